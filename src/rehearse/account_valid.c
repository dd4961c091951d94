/* SPDX-License-Identifier: MIT */
/* What holds for an account while nobody writes it. */
#include <string.h>

#include "rehearse/account_file.h"

/* What processes have of a device themselves and together. */
static uint64_t sum_of(const struct mt_account *account, uint32_t device)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < MT_ACCOUNT_PROCESSES; i++)
        sum += account->process[i].pid ? account->process[i].used_bytes[device] : 0;
    for (uint32_t i = 0; i < MT_ACCOUNT_SHARED_MAX; i++)
        if (account->shared[i].holders && account->shared[i].place == device)
            sum += account->shared[i].bytes;
    return sum;
}

static int device_is_valid(const struct mt_account *account, uint32_t number)
{
    const struct mt_account_device *device = &account->device[number];
    return device->free_bytes <= device->total_bytes && device->used_bytes <= device->held_bytes &&
           device->used_bytes <= device->peak_bytes && device->held_bytes <= device->free_bytes &&
           sum_of(account, number) == device->used_bytes;
}

int mt_account_is_valid(const struct mt_account *account)
{
    if (memcmp(account->magic, MT_ACCOUNT_MAGIC, sizeof account->magic) != 0 ||
        account->format != MT_ACCOUNT_FORMAT || account->n_devices > MT_ACCOUNT_DEVICES_MAX ||
        account->n_attached > account->n_preloaded ||
        account->host_used_bytes > account->host_peak_bytes)
        return 0;
    for (uint32_t i = 0; i < account->n_devices; i++)
        if (!device_is_valid(account, i))
            return 0;
    return 1;
}
