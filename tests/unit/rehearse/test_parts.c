/* SPDX-License-Identifier: MIT */
/* What a CUDA program held, by the account alone: no trace of PyTorch lies beside it. Bands are
 * those of the H100 in the table of GPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rehearse/gpus.h"
#include "rehearse/parts.h"

#define MIB (UINT64_C(1) << 20)

struct held {
    struct mt_account *account;
    struct mt_reader reader;
    struct mt_parts parts;
    struct mt_gpu_row row;
};

static int set_up(void **state)
{
    struct held *held = calloc(1, sizeof *held);
    held->account = calloc(1, sizeof *held->account);
    held->account->n_devices = 2;
    assert_int_equal(mt_gpu_find("H100-80GB", &held->row, NULL), 0);
    held->account->device[0].gpu = held->account->device[1].gpu = held->row.gpu;
    held->reader.account = held->account;
    *state = held;
    return 0;
}

static int tear_down(void **state)
{
    struct held *held = *state;
    mt_parts_finish(&held->parts);
    mt_reader_finish(&held->reader);
    free(held->account);
    free(held);
    return 0;
}

static void take(struct held *held, uint8_t place, enum mt_category category, const char *name,
                 uint64_t bytes)
{
    uint64_t number = held->account->n_events++;
    struct mt_account_event *event = &held->account->event[number];
    *event = (struct mt_account_event){.kind = MT_ACCOUNT_ALLOC,
                                       .place = place,
                                       .category = (uint8_t)category,
                                       .pid = 7,
                                       .time_ns = number + 1,
                                       .object = (number + 1) * 4096,
                                       .bytes = bytes};
    snprintf(event->name, sizeof event->name, "%s", name);
}

static void pin(struct held *held, uint64_t bytes)
{
    take(held, MT_ACCOUNT_HOST, MT_CATEGORY_NONE, "pinned memory", bytes);
    held->account->event[held->account->n_events - 1].flags = MT_ACCOUNT_PINNED;
}

static void gather(struct held *held, uint8_t place)
{
    const struct mt_parts_source source = {.reader = &held->reader, .is_cuda = 1};
    mt_reader_read(&held->reader, 1000, 1);
    assert_int_equal(mt_parts_gather(&source, place, SIZE_MAX - 1, 0, &held->parts), 0);
}

static const struct mt_part *part_of(const struct held *held, const char *name)
{
    for (size_t i = 0; i < held->parts.n; i++)
        if (strcmp(held->parts.items[i].name, name) == 0)
            return &held->parts.items[i];
    fail_msg("there is no %s", name);
    return NULL;
}

static void test_what_no_one_splits_is_cached_and_said_to_be_unsplit(void **state)
{
    struct held *held = *state;
    take(held, 0, MT_CATEGORY_NONE, "device memory", 20 * MIB);
    take(held, 0, MT_CATEGORY_WORKSPACE, "cuBLAS workspace", 4 * MIB);
    take(held, 1, MT_CATEGORY_NONE, "device memory", 2 * MIB);
    gather(held, 0);
    assert_int_equal(held->parts.n, 2);
    assert_int_equal(held->parts.unsplit_bytes, 20 * MIB);
    const struct mt_part *part = part_of(held, "device memory");
    assert_int_equal(part->category, MT_CATEGORY_CACHED);
    assert_int_equal(part->provenance, MT_PROVENANCE_INFERRED);
    assert_int_equal(part_of(held, "cuBLAS workspace")->provenance, MT_PROVENANCE_EXACT);
    gather(held, 1);
    assert_int_equal(held->parts.unsplit_bytes, 2 * MIB);
}

static void assert_band(const struct mt_part *part, uint64_t low_bytes, uint64_t high_bytes)
{
    assert_int_equal(part->provenance, MT_PROVENANCE_ASSUMED);
    assert_in_range(part->low_bytes, low_bytes - 1, low_bytes + 1);
    assert_in_range(part->high_bytes, high_bytes - 1, high_bytes + 1);
}

static void test_figures_of_the_table_have_their_band(void **state)
{
    struct held *held = *state;
    const struct mt_gpu_row *row = &held->row;
    take(held, 0, MT_CATEGORY_CONTEXT, "context", row->gpu.context_bytes);
    take(held, 0, MT_CATEGORY_CONTEXT, "kernels", row->gpu.module_bytes);
    take(held, 0, MT_CATEGORY_COMMUNICATION, "NCCL", row->gpu.communication_bytes / 2);
    gather(held, 0);
    assert_band(part_of(held, "context"), row->context_low_bytes, row->context_high_bytes);
    assert_band(part_of(held, "kernels"), row->module_low_bytes, row->module_high_bytes);
    assert_band(part_of(held, "NCCL"), row->communication_low_bytes / 2,
                row->communication_high_bytes / 2);
}

static void test_of_host_memory_what_is_pinned_counts(void **state)
{
    struct held *held = *state;
    pin(held, 3 * MIB);
    take(held, MT_ACCOUNT_HOST, MT_CATEGORY_NONE, "pageable memory", 5 * MIB);
    gather(held, MT_ACCOUNT_HOST);
    assert_int_equal(held->parts.n, 1);
    assert_int_equal(held->parts.items[0].bytes, 3 * MIB);
    assert_int_equal(held->parts.items[0].category, MT_CATEGORY_RUNTIME);
    assert_int_equal(held->parts.unsplit_bytes, 0);
}

/* 100 MiB were noted and 700 were there at most, so 600 found no room. */
static void test_what_found_no_room_in_the_list_is_counted_at_the_peak(void **state)
{
    struct held *held = *state;
    const struct mt_parts_source source = {.reader = &held->reader, .is_cuda = 1};
    take(held, 0, MT_CATEGORY_NONE, "device memory", 100 * MIB);
    held->account->device[0].peak_bytes = 700 * MIB;
    mt_reader_read(&held->reader, 1000, 1);
    assert_int_equal(mt_parts_gather(&source, 0, SIZE_MAX - 1, 1, &held->parts), 0);
    assert_int_equal(held->parts.n, 1);
    held->account->n_events = MT_ACCOUNT_EVENTS_MAX + 1;
    assert_int_equal(mt_parts_gather(&source, 0, SIZE_MAX - 1, 1, &held->parts), 0);
    assert_int_equal(held->parts.n, 2);
    assert_int_equal(held->parts.items[0].bytes + held->parts.items[1].bytes, 700 * MIB);
    assert_int_equal(held->parts.unsplit_bytes, 700 * MIB);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_no_one_splits_is_cached_and_said_to_be_unsplit),
        TEST(test_figures_of_the_table_have_their_band),
        TEST(test_of_host_memory_what_is_pinned_counts),
        TEST(test_what_found_no_room_in_the_list_is_counted_at_the_peak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
