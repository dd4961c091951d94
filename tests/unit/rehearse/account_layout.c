/* SPDX-License-Identifier: MIT */
/* Writes where each member of the account's structures lies, for tests in other languages. */
#include <stddef.h>
#include <stdio.h>

#include "rehearse/account.h"

#define SIZE(name, type)           printf("%s %zu\n", name, sizeof(type))
#define MEMBER(name, type, member) printf("%s.%s %zu\n", name, #member, offsetof(type, member))

static void lay_out_rules(void)
{
    SIZE("Rules", struct mt_pretend_rules);
    MEMBER("Rules", struct mt_pretend_rules, alignment);
    MEMBER("Rules", struct mt_pretend_rules, has_events);
    MEMBER("Rules", struct mt_pretend_rules, graph_dependencies);
    MEMBER("Rules", struct mt_pretend_rules, perhaps_dependencies);
    MEMBER("Rules", struct mt_pretend_rules, is_unconfirmed);
    SIZE("Builds", struct mt_pretend_builds);
    MEMBER("Builds", struct mt_pretend_builds, era);
    MEMBER("Builds", struct mt_pretend_builds, seen);
    MEMBER("Builds", struct mt_pretend_builds, ggml_version);
    MEMBER("Builds", struct mt_pretend_builds, doubts_met);
    MEMBER("Builds", struct mt_pretend_builds, generations_differ);
}

static void lay_out_devices_and_events(void)
{
    SIZE("Device", struct mt_account_device);
    MEMBER("Device", struct mt_account_device, total_bytes);
    MEMBER("Device", struct mt_account_device, held_bytes);
    MEMBER("Device", struct mt_account_device, gpu);
    SIZE("Gpu", struct mt_gpu_spec);
    MEMBER("Gpu", struct mt_gpu_spec, is_ecc);
    MEMBER("Gpu", struct mt_gpu_spec, graph_node_bytes);
    SIZE("Cuda", struct mt_account_cuda);
    MEMBER("Cuda", struct mt_account_cuda, n_askings);
    SIZE("Event", struct mt_account_event);
    MEMBER("Event", struct mt_account_event, flags);
    MEMBER("Event", struct mt_account_event, time_ns);
    MEMBER("Event", struct mt_account_event, name);
    MEMBER("Event", struct mt_account_event, detail);
}

static void lay_out_account(void)
{
    SIZE("Account", struct mt_account);
    MEMBER("Account", struct mt_account, rules);
    MEMBER("Account", struct mt_account, builds);
    MEMBER("Account", struct mt_account, cuda);
    MEMBER("Account", struct mt_account, device);
    MEMBER("Account", struct mt_account, n_preloaded);
    MEMBER("Account", struct mt_account, is_refused);
    MEMBER("Account", struct mt_account, engine_version);
    MEMBER("Account", struct mt_account, host_used_bytes);
    MEMBER("Account", struct mt_account, shared);
    SIZE("Shared", struct mt_account_shared);
    MEMBER("Account", struct mt_account, n_events);
    MEMBER("Account", struct mt_account, event);
    MEMBER("Account", struct mt_account, process);
    SIZE("Process", struct mt_account_process);
    printf("FORMAT %u\n", MT_ACCOUNT_FORMAT);
}

int main(void)
{
    lay_out_rules();
    lay_out_devices_and_events();
    lay_out_account();
    return 0;
}
