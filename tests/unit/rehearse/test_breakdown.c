/* SPDX-License-Identifier: MIT */
/* What a CUDA program held: by the account alone, and with a trace of PyTorch beside it, whose
 * times are those of the account's events. Bands are those of the H100 in the table of GPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/gpus.h"
#include "pytorch/torch.h"
#include "rehearse/breakdown.h"

#define MIB   (UINT64_C(1) << 20)
#define FIRST UINT64_C(0x7000000000)
#define OTHER UINT64_C(0x7100000000)
#define THIRD UINT64_C(0x7200000000)

struct held {
    struct mt_account *account;
    struct mt_account_reader reader;
    struct mt_breakdown parts;
    struct mt_gpu_row row;
    struct mt_torch *torch;
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
    mt_torch_close(held->torch);
    mt_breakdown_finish(&held->parts);
    mt_account_reader_finish(&held->reader);
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
    const struct mt_breakdown_source source = {.reader = &held->reader, .is_cuda = 1};
    mt_account_reader_read(&held->reader, 1000, 1);
    assert_int_equal(mt_breakdown_gather(&source, place, SIZE_MAX - 1, 0, &held->parts), 0);
}

static const struct mt_breakdown_part *part_of(const struct held *held, const char *name)
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
    const struct mt_breakdown_part *part = part_of(held, "device memory");
    assert_int_equal(part->category, MT_CATEGORY_CACHED);
    assert_int_equal(part->provenance, MT_PROVENANCE_INFERRED);
    assert_int_equal(part_of(held, "cuBLAS workspace")->provenance, MT_PROVENANCE_DERIVED);
    gather(held, 1);
    assert_int_equal(held->parts.unsplit_bytes, 2 * MIB);
}

static void assert_band(const struct mt_breakdown_part *part, uint64_t low_bytes,
                        uint64_t high_bytes)
{
    assert_int_equal(part->provenance, MT_PROVENANCE_DERIVED);
    assert_in_range(part->low_bytes, low_bytes - 1, low_bytes + 1);
    assert_in_range(part->high_bytes, high_bytes - 1, high_bytes + 1);
}

static void test_figures_of_the_table_have_their_band(void **state)
{
    struct held *held = *state;
    const struct mt_gpu_row *row = &held->row;
    take(held, 0, MT_CATEGORY_CONTEXT, "context", row->gpu.context_bytes);
    take(held, 0, MT_CATEGORY_CONTEXT, "kernels", row->gpu.module_bytes);
    take(held, 0, MT_CATEGORY_COMMUNICATION, "NCCL", row->gpu.communication_bytes);
    take(held, 0, MT_CATEGORY_COMMUNICATION, "of 8 ranks", row->gpu.communication_many_bytes);
    take(held, 0, MT_CATEGORY_GRAPHS, PRETEND_GRAPH_NODES, 92 * MIB);
    gather(held, 0);
    assert_band(part_of(held, "context"), row->context.low_bytes, row->context.high_bytes);
    assert_band(part_of(held, "kernels"), row->modules.low_bytes, row->modules.high_bytes);
    assert_band(part_of(held, "NCCL"), row->communication.low_bytes, row->communication.high_bytes);
    assert_band(part_of(held, "of 8 ranks"), row->communication_many.low_bytes,
                row->communication_many.high_bytes);
    /* 8.5 and 10.5 KiB a node, where 9.2 are likely. */
    const struct mt_breakdown_part *nodes = part_of(held, PRETEND_GRAPH_NODES);
    assert_in_range(nodes->low_bytes, 84 * MIB, 86 * MIB);
    assert_in_range(nodes->high_bytes, 104 * MIB, 106 * MIB);
}

static void test_what_processes_share_is_for_their_communication(void **state)
{
    struct held *held = *state;
    take(held, 0, MT_CATEGORY_NONE, MT_ACCOUNT_SHARED_NAME, 64 * MIB);
    gather(held, 0);
    const struct mt_breakdown_part *part = part_of(held, MT_ACCOUNT_SHARED_NAME);
    assert_int_equal(part->category, MT_CATEGORY_COMMUNICATION);
    assert_int_equal(part->provenance, MT_PROVENANCE_INFERRED);
    assert_true(part->low_bytes == 64 * MIB && part->high_bytes == 64 * MIB);
    assert_int_equal(held->parts.unsplit_bytes, 0);
}

static void test_what_a_program_went_without_is_in_the_band_of_its_device(void **state)
{
    struct held *held = *state;
    const struct mt_breakdown_source source = {.reader = &held->reader, .is_cuda = 1};
    take(held, 0, MT_CATEGORY_COMMUNICATION, "It was not made.", 96 * MIB);
    held->account->event[0].kind = MT_ACCOUNT_NOTE;
    take(held, 1, MT_CATEGORY_NONE, "device memory", 2 * MIB);
    mt_account_reader_read(&held->reader, 1000, 1);
    assert_int_equal(mt_breakdown_gather(&source, 0, SIZE_MAX - 1, 1, &held->parts), 0);
    assert_int_equal(held->parts.n, 1);
    const struct mt_breakdown_part *part = &held->parts.items[0];
    assert_int_equal(part->category, MT_CATEGORY_COMMUNICATION);
    assert_int_equal(part->provenance, MT_PROVENANCE_ASSUMED);
    assert_int_equal(part->bytes + part->low_bytes, 0);
    assert_int_equal(part->high_bytes, 96 * MIB);
    assert_int_equal(mt_breakdown_gather(&source, 1, SIZE_MAX - 1, 1, &held->parts), 0);
    assert_int_equal(held->parts.n, 1);
    assert_string_equal(held->parts.items[0].name, "device memory");
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
    const struct mt_breakdown_source source = {.reader = &held->reader, .is_cuda = 1};
    take(held, 0, MT_CATEGORY_NONE, "device memory", 100 * MIB);
    held->account->device[0].peak_bytes = 700 * MIB;
    mt_account_reader_read(&held->reader, 1000, 1);
    assert_int_equal(mt_breakdown_gather(&source, 0, SIZE_MAX - 1, 1, &held->parts), 0);
    assert_int_equal(held->parts.n, 1);
    held->account->n_events = MT_ACCOUNT_EVENTS_MAX + 1;
    assert_int_equal(mt_breakdown_gather(&source, 0, SIZE_MAX - 1, 1, &held->parts), 0);
    assert_int_equal(held->parts.n, 2);
    assert_int_equal(held->parts.items[0].bytes + held->parts.items[1].bytes, 700 * MIB);
    assert_int_equal(held->parts.unsplit_bytes, 700 * MIB);
}

/* Memory that PyTorch may have made a segment of, of process 7 unless it is said otherwise. */
static void take_at(struct held *held, uint8_t place, uint64_t address, uint64_t bytes)
{
    take(held, place, MT_CATEGORY_NONE, "device memory", bytes);
    held->account->event[held->account->n_events - 1].object = address;
}

static void give_back(struct held *held, uint8_t place, uint64_t address)
{
    take_at(held, place, address, 0);
    held->account->event[held->account->n_events - 1].kind = MT_ACCOUNT_FREE;
}

static void of_process(struct held *held, uint32_t pid)
{
    held->account->event[held->account->n_events - 1].pid = pid;
}

/* The division of device 0 at its peak, which is the event at time `peak`. */
static void gather_peak(struct held *held, const char *trace, uint64_t peak)
{
    char folder[] = "/tmp/memtally-parts-XXXXXX";
    char path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/torch-7.trace", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(trace, file);
    fclose(file);
    assert_int_equal(mt_torch_open(folder, &held->torch, NULL), 0);
    unlink(path);
    rmdir(folder);
    const struct mt_breakdown_source source = {
        .reader = &held->reader, .torch = held->torch, .is_cuda = 1};
    mt_account_reader_read(&held->reader, 1000, 1);
    assert_int_equal(mt_breakdown_gather(&source, 0, peak - 1, 1, &held->parts), 0);
}

static uint64_t bytes_of(const struct held *held, enum mt_category category)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < held->parts.n; i++)
        sum += held->parts.items[i].category == category ? held->parts.items[i].bytes : 0;
    return sum;
}

/* 10 MiB stay, 60 come and go at 3, and at 6 there is 1 beside those that stay. */
#define A_FORWARD_AT_3                                                                             \
    "s 0 2 7000000000 104857600\n"                                                                 \
    "a 0 2 7000000000 10485760\n"                                                                  \
    "a 0 3 7000a00000 62914560\n"                                                                  \
    "f 0 4 7000a00000\n"                                                                           \
    "a 0 6 7000a00000 1048576\n"

static void test_kernels_that_come_after_the_fullest_moment_do_not_hide_it(void **state)
{
    struct held *held = *state;
    take(held, 0, MT_CATEGORY_CONTEXT, "context", 500 * MIB);
    take_at(held, 0, FIRST, 100 * MIB);
    take(held, 0, MT_CATEGORY_CONTEXT, "kernels", 2 * MIB);
    take(held, 0, MT_CATEGORY_CONTEXT, "kernels", 2 * MIB);
    take(held, 0, MT_CATEGORY_CONTEXT, "kernels", 2 * MIB);
    gather_peak(held, A_FORWARD_AT_3, 5);
    assert_int_equal(bytes_of(held, MT_CATEGORY_ACTIVATIONS), 70 * MIB);
    assert_int_equal(bytes_of(held, MT_CATEGORY_CACHED), 30 * MIB);
    assert_int_equal(bytes_of(held, MT_CATEGORY_CONTEXT), 506 * MIB);
}

/* Memory of some other library's, another device's segment, one that is cuBLAS's as a whole, and a
 * communicator. */
static void test_what_is_not_for_the_device_s_segments_does_not_part_its_peak(void **state)
{
    struct held *held = *state;
    take(held, 0, MT_CATEGORY_CONTEXT, "context", 500 * MIB);
    take_at(held, 0, FIRST, 100 * MIB);
    take(held, 0, MT_CATEGORY_NONE, "device memory", 8 * MIB);
    take_at(held, 1, OTHER, 40 * MIB);
    take_at(held, 0, THIRD, 32 * MIB);
    held->account->event[4].category = MT_CATEGORY_WORKSPACE;
    take(held, 0, MT_CATEGORY_COMMUNICATION, "NCCL", 300 * MIB);
    gather_peak(held,
                A_FORWARD_AT_3 "s 1 4 7100000000 41943040\n"
                               "s 0 5 7200000000 33554432\n",
                6);
    assert_int_equal(bytes_of(held, MT_CATEGORY_ACTIVATIONS), 70 * MIB);
    assert_int_equal(bytes_of(held, MT_CATEGORY_WORKSPACE), 32 * MIB);
    assert_int_equal(held->parts.unsplit_bytes, 8 * MIB);
}

/* The first segment was fuller, with 90 MiB, than the one that is there at the peak, with 50. Of
 * two that were given back it is the last one. */
static void test_segments_that_were_made_anew_are_divided_as_they_were_then(void **state)
{
    struct held *held = *state;
    take_at(held, 0, FIRST, 100 * MIB);
    take_at(held, 0, THIRD, 2 * MIB);
    give_back(held, 0, THIRD);
    give_back(held, 0, FIRST);
    take_at(held, 0, OTHER, 100 * MIB);
    take(held, 0, MT_CATEGORY_CONTEXT, "kernels", 2 * MIB);
    take(held, 0, MT_CATEGORY_CONTEXT, "kernels", 2 * MIB);
    gather_peak(held,
                "s 0 1 7000000000 104857600\n"
                "a 0 1 7000000000 94371840\n"
                "s 0 2 7200000000 2097152\n"
                "e 0 3 7200000000\n"
                "f 0 4 7000000000\n"
                "e 0 4 7000000000\n"
                "s 0 5 7100000000 104857600\n"
                "a 0 6 7100000000 52428800\n"
                "f 0 7 7100000000\n",
                7);
    assert_int_equal(bytes_of(held, MT_CATEGORY_ACTIVATIONS), 50 * MIB);
    assert_int_equal(bytes_of(held, MT_CATEGORY_CACHED), 50 * MIB);
}

/* At 3 and 4 a communicator is given back and a process ends; at 7 a segment, so that the 90 MiB at
 * 8 are of another time than the 80 at 6. */
static void test_a_peak_lasts_until_a_segment_of_the_device_goes(void **state)
{
    struct held *held = *state;
    take(held, 0, MT_CATEGORY_COMMUNICATION, "NCCL", 300 * MIB);
    take_at(held, 0, FIRST, 100 * MIB);
    give_back(held, 0, held->account->event[0].object);
    take(held, MT_ACCOUNT_HOST, MT_CATEGORY_NONE, "", 0);
    held->account->event[3].kind = MT_ACCOUNT_END;
    of_process(held, 9);
    pin(held, MIB);
    pin(held, MIB);
    give_back(held, 0, FIRST);
    static const char trace[] = "s 0 2 7000000000 104857600\n"
                                "a 0 6 7000000000 83886080\n"
                                "f 0 7 7000000000\n"
                                "a 0 8 7000000000 94371840\n";
    gather_peak(held, trace, 2);
    assert_int_equal(bytes_of(held, MT_CATEGORY_ACTIVATIONS), 80 * MIB);
}

/* A server goes on with what it has, and no event of the account follows. */
static void test_a_peak_that_nothing_ends_lasts_as_long_as_the_program(void **state)
{
    struct held *held = *state;
    take(held, 0, MT_CATEGORY_CONTEXT, "context", 500 * MIB);
    take_at(held, 0, FIRST, 100 * MIB);
    gather_peak(held, "s 0 2 7000000000 104857600\na 0 900 7000000000 83886080\n", 2);
    assert_int_equal(bytes_of(held, MT_CATEGORY_ACTIVATIONS), 80 * MIB);
}

/* The second segment, of 2 MiB, came when the 60 MiB were gone. */
static void test_a_small_segment_that_comes_late_does_not_hide_the_fullest_moment(void **state)
{
    struct held *held = *state;
    take(held, 0, MT_CATEGORY_CONTEXT, "context", 500 * MIB);
    take_at(held, 0, FIRST, 100 * MIB);
    take(held, 0, MT_CATEGORY_CONTEXT, "kernels", 2 * MIB);
    take(held, 0, MT_CATEGORY_CONTEXT, "kernels", 2 * MIB);
    take_at(held, 0, OTHER, 2 * MIB);
    gather_peak(held, A_FORWARD_AT_3 "s 0 5 7100000000 2097152\na 0 5 7100000000 1048576\n", 5);
    assert_int_equal(bytes_of(held, MT_CATEGORY_ACTIVATIONS), 70 * MIB);
    assert_int_equal(bytes_of(held, MT_CATEGORY_CACHED), 32 * MIB);
}

/* The 70 MiB at 3 are the most of tensors, and were gone when the cache came. */
static void test_a_cache_at_the_peak_is_told_as_such_and_not_as_free(void **state)
{
    struct held *held = *state;
    take(held, 0, MT_CATEGORY_CONTEXT, "context", 500 * MIB);
    take_at(held, 0, FIRST, 100 * MIB);
    take(held, 0, MT_CATEGORY_CONTEXT, "kernels", 2 * MIB);
    take_at(held, 0, OTHER, 20 * MIB);
    gather_peak(held,
                A_FORWARD_AT_3 "s 0 5 7100000000 20971520\n"
                               "a 0 5 7100000000 20971520\n"
                               "h 5 7100000000 kv_cache keys\n",
                4);
    assert_int_equal(bytes_of(held, MT_CATEGORY_KV_CACHE), 20 * MIB);
    assert_int_equal(bytes_of(held, MT_CATEGORY_ACTIVATIONS), 70 * MIB);
    assert_int_equal(bytes_of(held, MT_CATEGORY_CACHED), 30 * MIB);
}

/* cuBLAS is told of all of a segment at 3, as its workspace; from 5 on there are gradients. */
static void test_a_segment_that_was_a_workspace_once_is_divided_as_it_was_then(void **state)
{
    struct held *held = *state;
    take_at(held, 0, FIRST, 32 * MIB);
    take(held, 0, MT_CATEGORY_CONTEXT, "kernels", 2 * MIB);
    take_at(held, 0, FIRST, 32 * MIB);
    held->account->event[2].kind = MT_ACCOUNT_USAGE;
    held->account->event[2].category = MT_CATEGORY_WORKSPACE;
    take_at(held, 0, OTHER, 20 * MIB);
    gather_peak(held,
                "s 0 1 7000000000 33554432\n"
                "a 0 2 7000000000 33554432\n"
                "f 0 4 7000000000\n"
                "s 0 4 7100000000 20971520\n"
                "a 0 5 7000000000 33554432\n"
                "h 5 7000000000 training gradients\n"
                "a 0 6 7100000000 20971520\n",
                4);
    assert_int_equal(bytes_of(held, MT_CATEGORY_TRAINING), 32 * MIB);
    assert_int_equal(bytes_of(held, MT_CATEGORY_WORKSPACE), 0);
    assert_int_equal(bytes_of(held, MT_CATEGORY_ACTIVATIONS), 20 * MIB);
}

/* cuBLAS was told at `ns` that a part is its workspace, or with no category that the part is gone.
 */
static void tell(struct held *held, uint64_t ns, enum mt_category category, uint64_t object,
                 uint64_t bytes)
{
    take_at(held, 0, object, bytes);
    struct mt_account_event *event = &held->account->event[held->account->n_events - 1];
    event->kind = MT_ACCOUNT_USAGE;
    event->category = (uint8_t)category;
    event->time_ns = ns;
}

static void gather_after(struct held *held, size_t after)
{
    const struct mt_breakdown_source source = {.reader = &held->reader, .is_cuda = 1};
    mt_account_reader_read(&held->reader, 1000, 1);
    assert_int_equal(mt_breakdown_gather(&source, 0, after, 1, &held->parts), 0);
}

static void take_pool(struct held *held)
{
    held->account->cuda.driver_version = 13000;
    take(held, 0, MT_CATEGORY_NONE, MT_ACCOUNT_POOL_NAME, 32 * MIB);
    held->account->event[0].object = FIRST;
}

/* A pool takes 32 MiB at 1 and 64 MiB at 4. The first is a workspace of cuBLAS from 1 to 3, of the
 * second a quarter is one from 4 on; the pool has both to the end. */
static void test_a_part_of_a_pool_is_a_workspace_as_long_as_it_is_there(void **state)
{
    struct held *held = *state;
    take_pool(held);
    tell(held, 1, MT_CATEGORY_WORKSPACE, FIRST, 32 * MIB);
    tell(held, 3, MT_CATEGORY_NONE, FIRST, 0);
    take(held, 0, MT_CATEGORY_NONE, MT_ACCOUNT_POOL_NAME, 64 * MIB);
    held->account->event[3].object = OTHER;
    tell(held, 4, MT_CATEGORY_WORKSPACE, OTHER + 16 * MIB, 16 * MIB);
    take(held, 0, MT_CATEGORY_CONTEXT, "kernels", 2 * MIB);
    gather_after(held, 0);
    assert_int_equal(bytes_of(held, MT_CATEGORY_WORKSPACE), 32 * MIB);
    assert_int_equal(bytes_of(held, MT_CATEGORY_CACHED), 0);
    gather_after(held, 2);
    assert_int_equal(bytes_of(held, MT_CATEGORY_WORKSPACE), 16 * MIB);
    assert_int_equal(bytes_of(held, MT_CATEGORY_CACHED), 80 * MIB);
    assert_int_equal(held->parts.unsplit_bytes, 80 * MIB);
    assert_int_equal(part_of(held, MT_ACCOUNT_POOL_NAME)->provenance, MT_PROVENANCE_DERIVED);
}

/* A byte that two words tell of counts for the first; a pool has no more than it took. */
static void test_parts_that_lie_within_each_other_count_once(void **state)
{
    struct held *held = *state;
    take_pool(held);
    tell(held, 1, MT_CATEGORY_WORKSPACE, FIRST, 30 * MIB);
    tell(held, 1, MT_CATEGORY_GRAPHS, FIRST + 1 * MIB, 1 * MIB);
    tell(held, 1, MT_CATEGORY_GRAPHS, FIRST + 4 * MIB, 27 * MIB);
    gather_after(held, 0);
    assert_int_equal(bytes_of(held, MT_CATEGORY_WORKSPACE), 30 * MIB);
    assert_int_equal(bytes_of(held, MT_CATEGORY_GRAPHS), 1 * MIB);
    assert_int_equal(bytes_of(held, MT_CATEGORY_CACHED), 1 * MIB);
    assert_int_equal(held->parts.unsplit_bytes, 1 * MIB);
}

/* A program's own allocator may use it for something else, unseen. */
static void test_what_a_library_was_told_of_a_programs_memory_is_not_exact(void **state)
{
    struct held *held = *state;
    held->account->cuda.driver_version = 13000;
    take_at(held, 0, FIRST, 32 * MIB);
    tell(held, 2, MT_CATEGORY_WORKSPACE, FIRST, 32 * MIB);
    gather_after(held, 0);
    assert_int_equal(bytes_of(held, MT_CATEGORY_WORKSPACE), 32 * MIB);
    assert_int_equal(held->parts.items[0].provenance, MT_PROVENANCE_DERIVED);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_no_one_splits_is_cached_and_said_to_be_unsplit),
        TEST(test_figures_of_the_table_have_their_band),
        TEST(test_what_processes_share_is_for_their_communication),
        TEST(test_what_a_program_went_without_is_in_the_band_of_its_device),
        TEST(test_of_host_memory_what_is_pinned_counts),
        TEST(test_what_found_no_room_in_the_list_is_counted_at_the_peak),
        TEST(test_kernels_that_come_after_the_fullest_moment_do_not_hide_it),
        TEST(test_what_is_not_for_the_device_s_segments_does_not_part_its_peak),
        TEST(test_segments_that_were_made_anew_are_divided_as_they_were_then),
        TEST(test_a_peak_lasts_until_a_segment_of_the_device_goes),
        TEST(test_a_peak_that_nothing_ends_lasts_as_long_as_the_program),
        TEST(test_a_small_segment_that_comes_late_does_not_hide_the_fullest_moment),
        TEST(test_a_cache_at_the_peak_is_told_as_such_and_not_as_free),
        TEST(test_a_segment_that_was_a_workspace_once_is_divided_as_it_was_then),
        TEST(test_a_part_of_a_pool_is_a_workspace_as_long_as_it_is_there),
        TEST(test_parts_that_lie_within_each_other_count_once),
        TEST(test_what_a_library_was_told_of_a_programs_memory_is_not_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
