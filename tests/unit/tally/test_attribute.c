/* SPDX-License-Identifier: MIT */
/* Who holds each resident byte: one rule at a time, in made-up recordings of one process. */
#include "recorded.h"

#include <stdio.h>
#include <string.h>

#include <memtally/units.h>

#define BASE 0x10000000ull

/* 16 pages: a model file, a library with its data and .bss, the heap, anonymous memory, a device,
 * the stack. */
static const char maps[] =
    "10000000-10004000 r--s 00000000 fe:00 11                         /m/tiny.gguf\n"
    "10010000-10011000 r-xp 00000000 fe:00 12                         /lib/libx.so\n"
    "10011000-10012000 rw-p 00001000 fe:00 12                         /lib/libx.so\n"
    "10012000-10013000 rw-p 00000000 00:00 0 \n"
    "10020000-10024000 rw-p 00000000 00:00 0                          [heap]\n"
    "10100000-10104000 rw-p 00000000 00:00 0 \n"
    "10200000-10201000 rw-s 00000000 00:06 9                          /dev/nvidia0\n"
    "10300000-10301000 rw-p 00000000 00:00 0                          [anon:arena of x]\n"
    "10400000-10401000 rw-p 00000000 00:00 0                          [stack]\n"
    "10500000-10501000 r--p 00000000 00:00 0                          [vvar]\n";

static const uint64_t all_pages[][3] = {
    {0x10000, 4, MT_RUN_FILE}, {0x10010, 2, MT_RUN_FILE}, {0x10012, 1, 0},
    {0x10020, 4, 0},           {0x10100, 4, 0},           {0x10200, 1, MT_RUN_FILE},
    {0x10300, 1, 0},           {0x10400, 1, 0},           {0x10500, 1, 0}};

struct one {
    struct recorded recorded;
    const char *maps;
    struct mt_tally *tally;
    const struct mt_tally_place *place;
};

static void begin(struct one *one, uint64_t exact_from_bytes)
{
    *one = (struct one){
        .maps = maps,
        .recorded = {.header = {.pid = 7, .exact_from_bytes = exact_from_bytes}, .ns = 1000}};
    recorded_begin(&one->recorded, "7-0");
}

static void take(struct one *one, const uint64_t (*runs)[3], size_t n_runs)
{
    one->recorded.ns = 5000;
    recorded_picture(&one->recorded, &(struct recorded_picture){.reason = MT_PICTURE_EXIT,
                                                                .maps = one->maps,
                                                                .runs = runs,
                                                                .n_runs = n_runs});
    recorded_end(&one->recorded, 6000);
    one->tally = recorded_tally(MT_MOMENT_PEAK, 0);
    assert_int_equal(one->tally->n_processes, 1);
    one->place = one->tally->processes[0].places;
}

static void take_all(struct one *one)
{
    take(one, all_pages, sizeof all_pages / sizeof *all_pages);
}

static uint64_t weights(const struct one *one, const char *name)
{
    return resident_of(one->place, MT_CATEGORY_WEIGHTS, name);
}

static uint64_t runtime(const struct one *one, const char *name)
{
    return resident_of(one->place, MT_CATEGORY_RUNTIME, name);
}

static uint64_t cached(const struct one *one)
{
    return resident_of(one->place, MT_CATEGORY_CACHED, "free in heap arenas");
}

static void test_the_kernels_names_are_where_it_begins(void **state)
{
    (void)state;
    struct one one;
    begin(&one, 0);
    take_all(&one);
    assert_int_equal(weights(&one, "tiny.gguf"), 4 * PAGE);
    assert_int_equal(runtime(&one, "libx.so"), 3 * PAGE); /* .bss is the library's */
    assert_int_equal(cached(&one), 4 * PAGE);             /* no block lives in the heap */
    assert_int_equal(runtime(&one, "[anon:arena of x]"), PAGE);
    assert_int_equal(runtime(&one, "stacks"), PAGE);
    assert_int_equal(one.place->unattributed_bytes, 4 * PAGE);
    /* Neither a device's memory nor the kernel's own page is the process's. */
    assert_int_equal(one.place->total_resident_bytes, 17 * PAGE);
    const struct mt_tally_row *row = mt_tally_row_of(one.place, MT_CATEGORY_WEIGHTS);
    assert_int_equal(row->provenance, MT_PROVENANCE_INFERRED);
    assert_int_equal(row->count, 1);
    assert_int_equal(row->allocated_bytes, 4 * PAGE);
    assert_int_equal(row->low_bytes, MT_UNKNOWN);
    mt_tally_destroy(one.tally);
}

static void test_only_present_pages_count(void **state)
{
    (void)state;
    static const uint64_t two[][3] = {{0x10001, 2, MT_RUN_FILE}};
    struct one one;
    begin(&one, 0);
    take(&one, two, 1);
    assert_int_equal(one.place->total_resident_bytes, 2 * PAGE);
    assert_int_equal(weights(&one, "tiny.gguf"), 2 * PAGE);
    assert_int_equal(allocated_of(one.place, MT_CATEGORY_WEIGHTS, "tiny.gguf"), 4 * PAGE);
    mt_tally_destroy(one.tally);
}

/* A run over a mapping's end, and pages that no mapping explains. */
static void test_pages_outside_of_all_mappings_are_unattributed(void **state)
{
    (void)state;
    static const uint64_t runs[][3] = {{0x10003, 3, 0}, {0x10600, 1, 0}};
    struct one one;
    begin(&one, 0);
    take(&one, runs, 2);
    assert_int_equal(weights(&one, "tiny.gguf"), PAGE);
    assert_int_equal(one.place->unattributed_bytes, 3 * PAGE);
    mt_tally_destroy(one.tally);
}

static void test_runs_as_long_as_the_address_space_take_no_time(void **state)
{
    (void)state;
    static const uint64_t runs[][3] = {{1, ((uint64_t)1 << 44), 0},
                                       {(uint64_t)1 << 50, (uint64_t)1 << 51, 0}};
    struct one one;
    begin(&one, 0);
    take(&one, runs, 2);
    /* The second run is past what any kernel shows and is left out. */
    assert_int_equal(one.place->total_resident_bytes, ((uint64_t)1 << 44) * PAGE - 2 * PAGE);
    mt_tally_destroy(one.tally);
}

static void test_blocks_are_exact_to_the_byte(void **state)
{
    (void)state;
    struct one one;
    begin(&one, 0);
    recorded_alloc(&one.recorded, MT_EVENT_ALLOC, 0x10020010, 100, 0);
    recorded_alloc(&one.recorded, MT_EVENT_ALLOC, 0x10020ff8, 16, 0); /* over a page's edge */
    take_all(&one);
    assert_int_equal(runtime(&one, "heap blocks"), 116);
    assert_int_equal(cached(&one), 4 * PAGE - 116);
    const struct mt_tally_row *row = mt_tally_row_of(one.place, MT_CATEGORY_CACHED);
    assert_int_equal(row->provenance, MT_PROVENANCE_EXACT);
    mt_tally_destroy(one.tally);
}

/* Where blocks lie that nobody knows the place of, no recorder has two over each other. */
static void test_blocks_of_no_known_place_hold_no_more_than_was_taken(void **state)
{
    (void)state;
    struct one one;
    begin(&one, 0);
    recorded_alloc(&one.recorded, MT_EVENT_ALLOC, MT_UNPLACED_FROM + 16, 300, 0);
    recorded_alloc(&one.recorded, MT_EVENT_ALLOC, MT_UNPLACED_FROM + 32, 300, 0);
    take_all(&one);
    assert_int_equal(runtime(&one, "heap blocks"), 316);
    assert_int_equal(allocated_of(one.place, MT_CATEGORY_RUNTIME, "heap blocks"), 316);
    mt_tally_destroy(one.tally);
}

static void test_a_block_over_a_page_that_is_not_there_counts_what_is(void **state)
{
    (void)state;
    static const uint64_t second[][3] = {{0x10021, 1, 0}};
    struct one one;
    begin(&one, 0);
    recorded_alloc(&one.recorded, MT_EVENT_ALLOC, 0x10020ff0, 32, 0);
    take(&one, second, 1);
    assert_int_equal(runtime(&one, "heap blocks"), 16);
    assert_int_equal(allocated_of(one.place, MT_CATEGORY_RUNTIME, "heap blocks"), 32);
    mt_tally_destroy(one.tally);
}

/* A packed recording does not have the place of a block that came and went between two pictures. It
 * is in the heap all the same: what is free there is that much less, and neither is exact. */
static void test_blocks_whose_place_was_not_kept_are_in_the_heap(void **state)
{
    (void)state;
    struct one one;
    begin(&one, 0);
    recorded_alloc(&one.recorded, MT_EVENT_ALLOC, 0x10020010, 100, 0);
    recorded_alloc(&one.recorded, MT_EVENT_ALLOC, MT_UNPLACED_FROM, 3000, 0);
    recorded_alloc(&one.recorded, MT_EVENT_ALLOC, MT_UNPLACED_FROM + 4096, 2000, 0);
    take_all(&one);
    assert_int_equal(runtime(&one, "heap blocks"), 5100);
    assert_int_equal(allocated_of(one.place, MT_CATEGORY_RUNTIME, "heap blocks"), 5100);
    assert_int_equal(cached(&one), 4 * PAGE - 5100);
    assert_int_equal(mt_tally_row_of(one.place, MT_CATEGORY_CACHED)->provenance,
                     MT_PROVENANCE_INFERRED);
    assert_int_equal(mt_tally_row_of(one.place, MT_CATEGORY_RUNTIME)->provenance,
                     MT_PROVENANCE_INFERRED);
    mt_tally_destroy(one.tally);
}

/* What is said to be without a place cannot be more than the heap's pages; scopes and the rest have
 * their part of it. */
static void test_more_blocks_without_a_place_than_the_heap_holds_share_it(void **state)
{
    (void)state;
    struct one one;
    begin(&one, 0);
    recorded_alloc(&one.recorded, MT_EVENT_ALLOC, MT_UNPLACED_FROM, 24 * PAGE, 0);
    uint64_t name = recorded_string(&one.recorded, "s");
    EVENT(&one.recorded, SCOPE_BEGIN, MT_CATEGORY_WEIGHTS, name);
    recorded_alloc(&one.recorded, MT_EVENT_ALLOC, MT_UNPLACED_FROM + 32 * PAGE, 8 * PAGE, 0);
    take_all(&one);
    assert_int_equal(runtime(&one, "heap blocks"), 3 * PAGE);
    assert_int_equal(weights(&one, "s"), PAGE);
    assert_int_equal(cached(&one), 0);
    mt_tally_destroy(one.tally);
}

/* In the heap's four pages 5000 bytes are known to be in use, and a large block of 1000 has its
 * place. */
static void test_small_blocks_divide_the_heap(void **state)
{
    (void)state;
    struct one one;
    begin(&one, 65536);
    EVENT(&one.recorded, TOTALS, 20, 9000, 12, 4000);
    recorded_alloc(&one.recorded, MT_EVENT_ALLOC, 0x10020000, 1000, 0);
    take_all(&one);
    assert_int_equal(runtime(&one, "heap blocks from 64 KiB"), 1000);
    assert_int_equal(runtime(&one, "heap blocks below 64 KiB"), 5000);
    assert_int_equal(cached(&one), 4 * PAGE - 6000);
    assert_int_equal(mt_tally_row_of(one.place, MT_CATEGORY_CACHED)->provenance,
                     MT_PROVENANCE_INFERRED);
    mt_tally_destroy(one.tally);
}

/* A labelled block is one of those that were counted. */
static void test_small_blocks_that_are_labelled_are_counted_once(void **state)
{
    (void)state;
    struct one one;
    begin(&one, 65536);
    uint64_t name = recorded_string(&one.recorded, "parameters");
    EVENT(&one.recorded, TOTALS, 20, 9000, 12, 4000);
    EVENT(&one.recorded, LABEL_BLOCK, 0x10020000, 1000, MT_CATEGORY_WEIGHTS, name);
    take_all(&one);
    assert_int_equal(weights(&one, "parameters"), 1000);
    assert_int_equal(runtime(&one, "heap blocks below 64 KiB"), 4000);
    assert_int_equal(cached(&one), 4 * PAGE - 5000);
    mt_tally_destroy(one.tally);
}

/* Calls from the library at 0x10010000, PyTorch's or another one. */
static void blocks_of(const char *library, struct one *one)
{
    static char text[sizeof maps + 32];
    const char *at = strstr(maps, "/lib/libx.so");
    snprintf(text, sizeof text, "%.*s/lib/%s%s", (int)(at - maps), maps, library,
             at + strlen("/lib/libx.so"));
    begin(one, 65536);
    one->maps = text;
    uint64_t step = recorded_string(&one->recorded, "decode");
    uint64_t mine = recorded_string(&one->recorded, "mine");
    uint64_t stack = mt_write_stack(&one->recorded.writer, one->recorded.ns,
                                    (const uint64_t[]){0x10010800, 0x10000010}, 2, 1);
    recorded_alloc(&one->recorded, MT_EVENT_ALLOC, 0x10020000, 1000, stack);
    EVENT(&one->recorded, SCOPE_BEGIN, MT_CATEGORY_NONE, step);
    recorded_alloc(&one->recorded, MT_EVENT_ALLOC, 0x10021000, 2000, stack);
    recorded_alloc(&one->recorded, MT_EVENT_ALLOC, 0x10022000, 500, 0);
    EVENT(&one->recorded, SCOPE_BEGIN, MT_CATEGORY_GRAPHS, mine);
    recorded_alloc(&one->recorded, MT_EVENT_ALLOC, 0x10023000, 300, stack);
    take_all(one);
    assert_int_equal(resident_of(one->place, MT_CATEGORY_GRAPHS, "mine"), 300);
}

static void test_blocks_of_pytorch_are_tensors(void **state)
{
    (void)state;
    struct one one;
    blocks_of("libc10.so", &one);
    assert_int_equal(resident_of(one.place, MT_CATEGORY_ACTIVATIONS, "tensors"), 1000);
    assert_int_equal(resident_of(one.place, MT_CATEGORY_ACTIVATIONS, "decode"), 2000);
    assert_int_equal(runtime(&one, "heap blocks from 64 KiB"), 500);
    assert_int_equal(mt_tally_row_of(one.place, MT_CATEGORY_ACTIVATIONS)->provenance,
                     MT_PROVENANCE_INFERRED);
    mt_tally_destroy(one.tally);
}

static void test_blocks_of_other_libraries_are_the_heaps(void **state)
{
    (void)state;
    struct one one;
    blocks_of("libc10s.so", &one);
    assert_int_equal(resident_of(one.place, MT_CATEGORY_ACTIVATIONS, "decode"), 0);
    assert_int_equal(runtime(&one, "heap blocks from 64 KiB"), 3500);
    mt_tally_destroy(one.tally);
}

static void test_more_in_use_than_the_heap_holds_is_cut_at_what_it_holds(void **state)
{
    (void)state;
    struct one one;
    begin(&one, 65536);
    EVENT(&one.recorded, TOTALS, 20, 900000, 12, 4000);
    take_all(&one);
    assert_int_equal(runtime(&one, "heap blocks below 64 KiB"), 4 * PAGE);
    assert_int_equal(cached(&one), 0);
    mt_tally_destroy(one.tally);
}

static void test_more_freed_than_allocated_is_nothing_in_use(void **state)
{
    (void)state;
    struct one one;
    begin(&one, 65536);
    EVENT(&one.recorded, TOTALS, 2, 100, 12, 4000);
    take_all(&one);
    assert_int_equal(runtime(&one, "heap blocks below 64 KiB"), 0);
    assert_int_equal(cached(&one), 4 * PAGE);
    mt_tally_destroy(one.tally);
}

/* Mapping, block, buffer, label, each over part of the one before. */
static void test_stronger_claims_win_where_they_overlap(void **state)
{
    (void)state;
    struct one one;
    begin(&one, 0);
    uint64_t type = recorded_string(&one.recorded, "CPU");
    uint64_t label = recorded_string(&one.recorded, "mine");
    EVENT(&one.recorded, LABEL, 0x10103000, 100, MT_CATEGORY_KV_CACHE, label);
    EVENT(&one.recorded, BUFFER_ALLOC, 1, 0x10102000, 0x1800, MT_BUFFER_HOST, 0, type, 0);
    EVENT(&one.recorded, BUFFER_USAGE, 1, MT_USAGE_COMPUTE);
    /* As it happens, with the weakest said last. */
    EVENT(&one.recorded, MMAP, 0x10100000, 0x3000, 3, 0x22, 0, 0, 0);
    recorded_alloc(&one.recorded, MT_EVENT_ALLOC, 0x10101000, 0x1800, 0);
    take_all(&one);
    assert_int_equal(runtime(&one, "anonymous mappings"), PAGE);
    assert_int_equal(runtime(&one, "heap blocks"), PAGE);
    assert_int_equal(resident_of(one.place, MT_CATEGORY_ACTIVATIONS, "CPU compute"), 0x1800 - 100);
    assert_int_equal(resident_of(one.place, MT_CATEGORY_KV_CACHE, "mine"), 100);
    assert_int_equal(one.place->unattributed_bytes, 0x800);
    mt_tally_destroy(one.tally);
}

static void test_of_two_blocks_that_overlap_the_later_holds(void **state)
{
    (void)state;
    struct one one;
    begin(&one, 0);
    uint64_t first = recorded_string(&one.recorded, "first");
    uint64_t second = recorded_string(&one.recorded, "second");
    EVENT(&one.recorded, SCOPE_BEGIN, MT_CATEGORY_KV_CACHE, first);
    recorded_alloc(&one.recorded, MT_EVENT_ALLOC, 0x10100800, 4096, 0);
    EVENT(&one.recorded, SCOPE_BEGIN, MT_CATEGORY_KV_CACHE, second);
    recorded_alloc(&one.recorded, MT_EVENT_ALLOC, 0x10100000, 4096, 0);
    take_all(&one);
    assert_int_equal(resident_of(one.place, MT_CATEGORY_KV_CACHE, "second"), 4096);
    assert_int_equal(resident_of(one.place, MT_CATEGORY_KV_CACHE, "first"), 2048);
    mt_tally_destroy(one.tally);
}

/* Their ends went unseen, and a library was loaded where they were. */
static void test_memory_that_is_gone_does_not_hold_the_file_in_its_place(void **state)
{
    (void)state;
    struct one one;
    begin(&one, 0);
    EVENT(&one.recorded, MMAP, 0x1000f000, 0x3000, 3, 0x22, 0, 0, 0);
    recorded_alloc(&one.recorded, MT_EVENT_ALLOC, 0x10010000, 0x1800, 0);
    EVENT(&one.recorded, THREAD, 1, 0x10010000, 0x10012000);
    EVENT(&one.recorded, SELF, 0x10010000, PAGE);
    take_all(&one);
    assert_int_equal(runtime(&one, "libx.so"), 3 * PAGE);
    mt_tally_destroy(one.tally);
}

static void test_a_file_mapped_in_a_scope_is_the_scopes(void **state)
{
    (void)state;
    struct one one;
    begin(&one, 0);
    uint64_t name = recorded_string(&one.recorded, "lora");
    EVENT(&one.recorded, SCOPE_BEGIN, MT_CATEGORY_WEIGHTS, name);
    EVENT(&one.recorded, MMAP, 0x10010000, 0x1000, 1, 2, 1, 0, 0);
    recorded_event(&one.recorded, MT_EVENT_SCOPE_END, NULL, 0);
    EVENT(&one.recorded, MMAP, 0x10011000, 0x1000, 1, 2, 1, 0, 0); /* not in one */
    take_all(&one);
    assert_int_equal(weights(&one, "lora"), PAGE);
    assert_int_equal(runtime(&one, "libx.so"), 2 * PAGE);
    mt_tally_destroy(one.tally);
}

static void test_buffers_go_by_what_they_are_for(void **state)
{
    (void)state;
    struct one one;
    begin(&one, 0);
    uint64_t cpu = recorded_string(&one.recorded, "CPU");
    uint64_t mapped = recorded_string(&one.recorded, "CPU_Mapped");
    const uint64_t host = MT_BUFFER_HOST;
    EVENT(&one.recorded, BUFFER_ALLOC, 1, BASE + 100, 1000, host | MT_BUFFER_HOST_PTR, 0, mapped,
          0);
    EVENT(&one.recorded, BUFFER_ALLOC, 2, 0x10100000, 100, host, 0, cpu, 0);
    EVENT(&one.recorded, BUFFER_USAGE, 2, MT_USAGE_WEIGHTS);
    EVENT(&one.recorded, BUFFER_ALLOC, 3, 0x10100100, 200, host, MT_CATEGORY_KV_CACHE, cpu, 0);
    EVENT(&one.recorded, BUFFER_ALLOC, 4, 0x10100200, 30, host, 0, cpu, 0);
    EVENT(&one.recorded, BUFFER_USAGE, 4, MT_USAGE_COMPUTE);
    EVENT(&one.recorded, BUFFER_ALLOC, 5, 0x10100300, 40, host, 0, cpu, 0);
    EVENT(&one.recorded, BUFFER_ALLOC, 6, 0x10100400, 50, host | MT_BUFFER_TENSORS, 0, cpu, 0);
    EVENT(&one.recorded, BUFFER_ALLOC, 7, 0x10100500, 60, 0, 0, cpu, 0);  /* on a device */
    EVENT(&one.recorded, BUFFER_ALLOC, 8, 0x10100600, 70, host, 0, 0, 0); /* has no name */
    take_all(&one);
    assert_int_equal(weights(&one, "CPU_Mapped"), 1000);
    assert_int_equal(weights(&one, "tiny.gguf"), 4 * PAGE - 1000);
    assert_int_equal(weights(&one, "CPU"), 100);
    assert_int_equal(resident_of(one.place, MT_CATEGORY_KV_CACHE, "CPU"), 200);
    assert_int_equal(resident_of(one.place, MT_CATEGORY_ACTIVATIONS, "CPU compute"), 30);
    assert_int_equal(resident_of(one.place, MT_CATEGORY_ACTIVATIONS, "CPU output"), 40);
    assert_int_equal(resident_of(one.place, MT_CATEGORY_ACTIVATIONS, "CPU tensors"), 50);
    assert_int_equal(resident_of(one.place, MT_CATEGORY_ACTIVATIONS, "buffer output"), 70);
    mt_tally_destroy(one.tally);
}

/* Files on two devices may have one inode's number. */
static void test_a_model_is_known_by_inode_and_device(void **state)
{
    (void)state;
    static const uint64_t runs[][3] = {{0x10000, 4, MT_RUN_FILE}, {0x10010, 4, MT_RUN_FILE}};
    struct one one;
    begin(&one, 0);
    one.maps = "10000000-10004000 r--p 00000000 fe:00 9                      /m/weights.bin\n"
               "10010000-10014000 r--p 00000000 fe:01 9                      /m/other.bin\n";
    uint64_t mapped = recorded_string(&one.recorded, "CPU_Mapped");
    EVENT(&one.recorded, BUFFER_ALLOC, 1, 0x10000000, 1000, MT_BUFFER_HOST | MT_BUFFER_HOST_PTR, 0,
          mapped, 0);
    take(&one, runs, 2);
    assert_int_equal(weights(&one, "CPU_Mapped"), 1000);
    assert_int_equal(weights(&one, "weights.bin"), 4 * PAGE - 1000);
    assert_int_equal(runtime(&one, "other.bin"), 4 * PAGE);
    mt_tally_destroy(one.tally);
}

/* A string in a file may be as long as a block, which no recorder writes. */
static void test_a_name_of_any_length_is_cut(void **state)
{
    (void)state;
    static char name[60000];
    struct one one;
    begin(&one, 0);
    memset(name, 'x', sizeof name);
    struct mt_writer *writer = &one.recorded.writer;
    assert_true(mt_writer_room(writer, sizeof name + 64, one.recorded.ns));
    uint8_t *at = mt_event_begin(writer, MT_EVENT_STRING, one.recorded.ns);
    at = mt_varint_put(at, 1);
    at = mt_varint_put(at, sizeof name);
    memcpy(at, name, sizeof name);
    mt_event_end(writer, at + sizeof name);
    EVENT(&one.recorded, BUFFER_ALLOC, 1, 0x10100000, 100, MT_BUFFER_HOST, 0, 1, 0);
    take_all(&one);
    const struct mt_tally_row *row = mt_tally_row_of(one.place, MT_CATEGORY_ACTIVATIONS);
    assert_int_equal(row->resident_bytes, 100);
    assert_int_equal(strlen(row->details[0].name), MT_MAX_STRING + strlen(" output"));
    mt_tally_destroy(one.tally);
}

/* The heap was seen in the megabyte from 0x10100000, and what the loader had mapped before is its
 * own. */
static void test_unnamed_memory_is_the_heaps_where_it_was_seen_and_else_the_loaders(void **state)
{
    (void)state;
    static const char first[] = "10012000-10013000 rw-p 00000000 00:00 0 \n"
                                "10300000-10301000 rw-p 00000000 00:00 0 \n";
    struct one one;
    begin(&one, 0);
    EVENT(&one.recorded, PICTURE_BEGIN, 0, MT_PICTURE_START, 0, 0);
    mt_write_bytes(&one.recorded.writer, MT_EVENT_PICTURE_TEXT, 1000, MT_TEXT_MAPS, first,
                   strlen(first));
    EVENT(&one.recorded, PICTURE_END, 0, 0, 0);
    EVENT(&one.recorded, HEAP_REGION, 0x101, 1);
    take_all(&one);
    assert_int_equal(cached(&one), 8 * PAGE);
    assert_int_equal(runtime(&one, "libx.so"), 3 * PAGE);
    assert_int_equal(runtime(&one, "[anon:arena of x]"), PAGE); /* its name says more */
    assert_int_equal(one.place->unattributed_bytes, 0);
    mt_tally_destroy(one.tally);
}

/* A thread that allocates and frees the anonymous pages, whose end the picture finds still there.
 */
static void free_in_a_thread(struct one *one, struct mt_writer *thread)
{
    struct recorded as_thread = one->recorded;
    mt_writer_init(thread, &one->recorded.file, 1, 8);
    as_thread.writer = *thread;
    recorded_alloc(&as_thread, MT_EVENT_ALLOC, BASE + 0x100010, 4 * PAGE - 16, 0);
    recorded_free(&as_thread, MT_EVENT_FREE, BASE + 0x100010);
    *thread = as_thread.writer;
}

/* The event comes before the call that gives the memory back. */
static void test_what_a_thread_is_giving_back_is_its_allocators(void **state)
{
    (void)state;
    struct mt_writer thread;
    struct one one;
    begin(&one, 0);
    free_in_a_thread(&one, &thread);
    mt_writer_finish(&thread);
    take_all(&one);
    assert_int_equal(resident_of(one.place, MT_CATEGORY_CACHED, "being given back"), 4 * PAGE);
    assert_int_equal(one.place->unattributed_bytes, 0);
    assert_int_equal(mt_tally_row_of(one.place, MT_CATEGORY_CACHED)->provenance,
                     MT_PROVENANCE_INFERRED);
    mt_tally_destroy(one.tally);
}

static void test_what_a_thread_gave_back_before_it_went_on_is_not(void **state)
{
    (void)state;
    static const uint64_t fields[] = {1};
    struct mt_writer thread;
    struct one one;
    begin(&one, 0);
    free_in_a_thread(&one, &thread);
    mt_write_event(&thread, MT_EVENT_LOOK, 1000, fields, 1);
    mt_writer_finish(&thread);
    take_all(&one);
    assert_int_equal(resident_of(one.place, MT_CATEGORY_CACHED, "being given back"), 0);
    assert_int_equal(one.place->unattributed_bytes, 4 * PAGE);
    mt_tally_destroy(one.tally);
}

static void test_what_the_loader_mapped_first_is_said_to_be_its(void **state)
{
    (void)state;
    static const char first[] = "10101000-10109000 rw-p 00000000 00:00 0 \n";
    struct one one;
    begin(&one, 0);
    EVENT(&one.recorded, PICTURE_BEGIN, 0, MT_PICTURE_START, 0, 0);
    mt_write_bytes(&one.recorded.writer, MT_EVENT_PICTURE_TEXT, 1000, MT_TEXT_MAPS, first,
                   strlen(first));
    EVENT(&one.recorded, PICTURE_END, 0, 0, 0);
    take_all(&one);
    assert_int_equal(runtime(&one, "loader"), 3 * PAGE);
    assert_int_equal(one.place->unattributed_bytes, PAGE);
    mt_tally_destroy(one.tally);
}

/* A thread's stack behind its guard, a thread's arena, and memory of the program's own behind a
 * guard of its own. */
static void test_what_libc_maps_unseen_is_told_by_its_shape(void **state)
{
    (void)state;
    static const uint64_t runs[][3] = {
        {0x10001, 2, 0}, {0x20000, 1, 0}, {0x30001, 1, 0}, {0x40020, 1, 0}};
    struct one one;
    begin(&one, 0);
    one.maps = "10000000-10001000 ---p 00000000 00:00 0 \n"
               "10001000-10003000 rw-p 00000000 00:00 0 \n"
               "20000000-20021000 rw-p 00000000 00:00 0 \n"
               "20021000-24000000 ---p 00000000 00:00 0 \n"
               "30000000-30001000 ---p 00000000 00:00 0 \n"
               "30001000-30002000 rw-p 00000000 00:00 0 \n"
               "40000000-40020000 ---p 00000000 00:00 0 \n" /* too large for a guard */
               "40020000-40021000 rw-p 00000000 00:00 0 \n";
    EVENT(&one.recorded, MMAP, 0x30000000, 0x2000, 3, 0x22, 0, 0, 0);
    take(&one, runs, 4);
    assert_int_equal(runtime(&one, "stacks, by their guard"), 2 * PAGE);
    assert_int_equal(cached(&one), PAGE);
    assert_int_equal(runtime(&one, "anonymous mappings"), PAGE);
    assert_int_equal(one.place->unattributed_bytes, PAGE);
    mt_tally_destroy(one.tally);
}

/* One page of a mapping of four was touched, and the last may not be. The library's second page was
 * written to, so that no file is behind it any more. */
static void test_untouched_parts_and_written_pages_of_files_have_their_rows(void **state)
{
    (void)state;
    static const uint64_t runs[][3] = {{0x10010, 1, MT_RUN_FILE}, {0x10011, 1, 0}, {0x10100, 1, 0}};
    struct one one;
    begin(&one, 0);
    one.maps = "10010000-10011000 r-xp 00000000 fe:00 12                         /lib/libx.so\n"
               "10011000-10012000 rw-p 00001000 fe:00 12                         /lib/libx.so\n"
               "10100000-10103000 rw-p 00000000 00:00 0 \n"
               "10103000-10104000 ---p 00000000 00:00 0 \n";
    EVENT(&one.recorded, MMAP, 0x10100000, 0x4000, 3, 0x22, 0, 0, 0);
    take(&one, runs, 3);
    assert_int_equal(runtime(&one, "libx.so"), 2 * PAGE);
    assert_int_equal(runtime(&one, "anonymous mappings"), PAGE);
    assert_int_equal(allocated_of(one.place, MT_CATEGORY_RUNTIME, "anonymous mappings"), 3 * PAGE);
    assert_int_equal(one.place->unattributed_bytes, 0);
    mt_tally_destroy(one.tally);
}

/* What the recorder took and gave back is not its own any more. */
static void test_the_recorders_own_memory_ends_with_its_mapping(void **state)
{
    (void)state;
    struct one one;
    begin(&one, 0);
    EVENT(&one.recorded, SELF, 0x10100000, 2 * PAGE);
    EVENT(&one.recorded, MUNMAP, 0x10100000, PAGE);
    take_all(&one);
    assert_int_equal(runtime(&one, "memtally recorder"), PAGE);
    assert_int_equal(one.place->unattributed_bytes, 3 * PAGE);
    mt_tally_destroy(one.tally);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, recorded_setup, recorded_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_the_kernels_names_are_where_it_begins),
        TEST(test_only_present_pages_count),
        TEST(test_untouched_parts_and_written_pages_of_files_have_their_rows),
        TEST(test_the_recorders_own_memory_ends_with_its_mapping),
        TEST(test_pages_outside_of_all_mappings_are_unattributed),
        TEST(test_what_a_thread_is_giving_back_is_its_allocators),
        TEST(test_what_a_thread_gave_back_before_it_went_on_is_not),
        TEST(test_runs_as_long_as_the_address_space_take_no_time),
        TEST(test_blocks_are_exact_to_the_byte),
        TEST(test_blocks_of_no_known_place_hold_no_more_than_was_taken),
        TEST(test_a_block_over_a_page_that_is_not_there_counts_what_is),
        TEST(test_blocks_whose_place_was_not_kept_are_in_the_heap),
        TEST(test_more_blocks_without_a_place_than_the_heap_holds_share_it),
        TEST(test_small_blocks_divide_the_heap),
        TEST(test_small_blocks_that_are_labelled_are_counted_once),
        TEST(test_blocks_of_pytorch_are_tensors),
        TEST(test_blocks_of_other_libraries_are_the_heaps),
        TEST(test_more_in_use_than_the_heap_holds_is_cut_at_what_it_holds),
        TEST(test_more_freed_than_allocated_is_nothing_in_use),
        TEST(test_stronger_claims_win_where_they_overlap),
        TEST(test_of_two_blocks_that_overlap_the_later_holds),
        TEST(test_memory_that_is_gone_does_not_hold_the_file_in_its_place),
        TEST(test_a_file_mapped_in_a_scope_is_the_scopes),
        TEST(test_buffers_go_by_what_they_are_for),
        TEST(test_a_model_is_known_by_inode_and_device),
        TEST(test_a_name_of_any_length_is_cut),
        TEST(test_unnamed_memory_is_the_heaps_where_it_was_seen_and_else_the_loaders),
        TEST(test_what_the_loader_mapped_first_is_said_to_be_its),
        TEST(test_what_libc_maps_unseen_is_told_by_its_shape),
    };
    return RUN_TESTS(tests);
}
