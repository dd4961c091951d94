/* SPDX-License-Identifier: MIT */
/* The search for flags that fit, on a program whose need is a formula: 32 layers of 100 units, a
 * cache of a unit for 64 tokens (half with q8_0), compute of a unit for 2 tokens of a micro-batch,
 * and 10 units for each sequence. What it should find follows from the formula. */
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

#include "advise/search.h"

#define LAYERS 32u

struct machine {
    uint64_t device;   /* units */
    uint64_t host;     /* units; 0: no limit */
    int is_bare;       /* but for weights, when it had no room */
    uint64_t experts;  /* of a layer's 100 units, so many are experts' */
    size_t stop_after; /* attempts; 0: never */
    size_t n;
};

static const char *value(const struct mt_drive_command *command, enum mt_drive_flag flag)
{
    return mt_drive_flag_value(command, NULL, flag);
}

static uint64_t number(const struct mt_drive_command *command, enum mt_drive_flag flag,
                       uint64_t otherwise)
{
    return mt_drive_flag_number(value(command, flag), otherwise);
}

static uint64_t device_need(const struct machine *machine, const struct mt_drive_command *command)
{
    uint64_t layers = number(command, MT_DRIVE_GPU_LAYERS, LAYERS);
    uint64_t moved = number(command, MT_DRIVE_CPU_EXPERTS, 0);
    const char *type = value(command, MT_DRIVE_KV_TYPE_K);
    uint64_t cache = number(command, MT_DRIVE_CONTEXT, 8192) / 64;
    if (layers > LAYERS)
        layers = LAYERS;
    if (type && strcmp(type, "q8_0") == 0)
        cache /= 2;
    return layers * 100 - (moved < layers ? moved : layers) * machine->experts + cache +
           number(command, MT_DRIVE_UBATCH, 512) / 2 + number(command, MT_DRIVE_SEQUENCES, 4) * 10;
}

static int attempt(void *argument, char *const *argv, struct mt_advise_fit *fit)
{
    struct machine *machine = argument;
    struct mt_drive_command command;
    if (machine->stop_after && machine->n == machine->stop_after)
        return 1;
    machine->n++;
    mt_drive_command_copy(argv, &command);
    uint64_t need = device_need(machine, &command);
    uint64_t host = number(&command, MT_DRIVE_CACHE_RAM, 8192);
    mt_drive_command_finish(&command);
    fit->fits = need <= machine->device && (!machine->host || host <= machine->host);
    fit->headroom_bytes = !fit->fits      ? 0
                          : machine->host ? machine->host - host
                                          : machine->device - need;
    return 0;
}

static void search(struct machine *machine, const char *const *argv,
                   struct mt_advise_changes *changes)
{
    struct mt_drive_command command;
    mt_drive_command_copy((char *const *)argv, &command);
    struct mt_advise_search what = {.command = &command,
                                    .layers = LAYERS,
                                    .experts = machine->experts ? 8 : 0,
                                    .context = 8192,
                                    .is_host_short = machine->host != 0,
                                    .is_weights_alone = machine->is_bare,
                                    .attempt = attempt,
                                    .argument = machine};
    assert_int_equal(mt_advise_search(&what, changes), 0);
    assert_int_equal(changes->n_tried, machine->n);
    mt_drive_command_finish(&command);
}

/* The number after `flag` in a change, or UINT64_MAX where no change has that flag first. */
static uint64_t found(const struct mt_advise_changes *changes, const char *flag)
{
    size_t length = strlen(flag);
    for (size_t i = 0; i < changes->n; i++)
        if (strncmp(changes->items[i].flags, flag, length) == 0 &&
            changes->items[i].flags[length] == ' ')
            return strtoull(changes->items[i].flags + length, NULL, 10);
    return UINT64_MAX;
}

static const char *const server[] = {"llama-server", "-m", "x", "-c", "65536", "-ngl", "99", NULL};
/* It takes 3200 for layers, 1024 for the cache, 256 for compute and 40 for sequences: 4520. */

static void test_each_knob_is_turned_as_little_as_it_must_be(void **state)
{
    struct machine machine = {.device = 4400};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, server, &changes);
    /* 120 units too much: 7680 tokens of cache, two layers, a micro-batch of 256. */
    assert_int_equal(found(&changes, "-ub"), 256);
    assert_int_equal(found(&changes, "-c"), 65536 - 7680);
    assert_int_equal(found(&changes, "-ngl"), 30);
    assert_true(found(&changes, "-ctk") != UINT64_MAX);
    assert_true(found(&changes, "-np") == UINT64_MAX);
    assert_true(found(&changes, "-ncmoe") == UINT64_MAX);
    assert_true(changes.n_tried <= 24);
}

static void test_the_cheapest_change_comes_first(void **state)
{
    struct machine machine = {.device = 4400};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, server, &changes);
    assert_int_equal(changes.n, 4);
    assert_string_equal(changes.items[0].flags, "-ub 256");
    /* 120 units too much, of which 128 are saved. */
    assert_int_equal(changes.items[0].headroom_bytes, 8);
    assert_string_equal(changes.items[0].instead_of, "");
    assert_string_equal(changes.items[1].flags, "-ctk q8_0 -ctv q8_0");
    assert_string_equal(changes.items[2].instead_of, "-c 65536");
    assert_string_equal(changes.items[3].instead_of, "-ngl 99");
}

static void test_only_moving_weights_makes_room_for_weights(void **state)
{
    struct machine machine = {.device = 4400, .experts = 80, .is_bare = 1};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, server, &changes);
    assert_int_equal(changes.n, 2);
    assert_int_equal(found(&changes, "-ncmoe"), 2);
    assert_int_equal(found(&changes, "-ngl"), 30);
}

static void test_a_number_that_was_not_looked_for_yet_is_not_suggested(void **state)
{
    /* Experts take some attempts, and the search ends after the first one with layers. */
    struct machine machine = {.device = 4400, .experts = 80, .is_bare = 1};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, server, &changes);
    size_t n_whole = machine.n;
    machine = (struct machine){.device = 4400, .experts = 80, .is_bare = 1};
    for (machine.stop_after = 1; machine.stop_after < n_whole; machine.stop_after++) {
        machine.n = 0;
        search(&machine, server, &changes);
        assert_true(changes.n == 1 || found(&changes, "-ngl") > 0);
    }
}

static void test_experts_leave_the_device_one_layer_at_a_time(void **state)
{
    struct machine machine = {.device = 4000, .experts = 80};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, server, &changes);
    assert_int_equal(found(&changes, "-ncmoe"), 7); /* 520 / 80 is 6.5 */
}

static void test_fewer_sequences_where_they_are_enough(void **state)
{
    const char *const argv[] = {"llama-server", "-m", "x", "-c", "65536", "-np", "64", NULL};
    struct machine machine = {.device = 4520};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, argv, &changes);
    assert_int_equal(found(&changes, "-np"), 4);
}

static void test_flash_attention_goes_with_a_quantised_cache(void **state)
{
    const char *const argv[] = {"llama-server", "-m", "x", "-c", "65536", "-fa", "off", NULL};
    struct machine machine = {.device = 4100};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, argv, &changes);
    assert_int_equal(found(&changes, "-ub"), UINT64_MAX); /* saves 224 of the 420 at most */
    assert_string_equal(changes.items[0].flags, "-ctk q8_0 -ctv q8_0 -fa on");
    assert_string_equal(changes.items[0].instead_of, "-fa off");
}

static void test_several_changes_together_where_none_is_enough(void **state)
{
    const char *const argv[] = {"llama-bench", "-m", "x", "-ub", "4096", "-ngl", "0", NULL};
    struct machine machine = {.device = 100};
    struct mt_advise_changes changes;
    (void)state;
    /* 0 layers, 128 of cache, 2048 of compute, 40: with 64 and q8_0 it is 32 + 64 + 40. */
    search(&machine, argv, &changes);
    assert_int_equal(changes.n, 0);
    machine = (struct machine){.device = 136};
    search(&machine, argv, &changes);
    assert_int_equal(changes.n, 1);
    assert_string_equal(changes.items[0].flags, "-ctk q8_0 -ctv q8_0 -ub 64");
}

static void test_lists_of_values_are_left_alone(void **state)
{
    const char *const argv[] = {"llama-bench", "-m", "x", "-ngl", "10,99", "-ub", "512", NULL};
    struct machine machine = {.device = 400};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, argv, &changes);
    assert_int_equal(found(&changes, "-ngl"), UINT64_MAX);
}

static void test_a_short_host_wants_a_smaller_prompt_cache(void **state)
{
    struct machine machine = {.device = 10000, .host = 3000};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, server, &changes);
    assert_int_equal(changes.n, 1);
    uint64_t mib = found(&changes, "-cram");
    assert_true(mib <= 3000 && mib >= 3000 - 128); /* a step is a 64th of 8192 */
}

static void test_a_search_that_is_ended_keeps_what_it_found(void **state)
{
    struct machine machine = {.device = 4400, .stop_after = 4};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, server, &changes);
    assert_true(changes.is_cut_short);
    assert_int_equal(found(&changes, "-ub"), 256);
    assert_int_equal(changes.n_tried, 4);
}

static void test_what_was_not_tried_is_not_suggested(void **state)
{
    struct machine machine = {.device = 4400, .stop_after = 0};
    struct mt_advise_changes changes;
    const char *const argv[] = {"llama-fit-params", "-m", "x", "-c", "600", "-ub", "64", NULL};
    (void)state;
    machine.device = 100; /* only without layers: 9 + 32 + 10 units */
    search(&machine, argv, &changes);
    assert_int_equal(found(&changes, "-c"), UINT64_MAX);
    assert_int_equal(found(&changes, "-ngl"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_knob_is_turned_as_little_as_it_must_be),
        cmocka_unit_test(test_the_cheapest_change_comes_first),
        cmocka_unit_test(test_only_moving_weights_makes_room_for_weights),
        cmocka_unit_test(test_a_number_that_was_not_looked_for_yet_is_not_suggested),
        cmocka_unit_test(test_experts_leave_the_device_one_layer_at_a_time),
        cmocka_unit_test(test_fewer_sequences_where_they_are_enough),
        cmocka_unit_test(test_flash_attention_goes_with_a_quantised_cache),
        cmocka_unit_test(test_several_changes_together_where_none_is_enough),
        cmocka_unit_test(test_lists_of_values_are_left_alone),
        cmocka_unit_test(test_a_short_host_wants_a_smaller_prompt_cache),
        cmocka_unit_test(test_a_search_that_is_ended_keeps_what_it_found),
        cmocka_unit_test(test_what_was_not_tried_is_not_suggested),
    };
    return RUN_TESTS(tests);
}
