/* SPDX-License-Identifier: MIT */
/* The state of a process from its events: what is alive, and what it is said to be. */
#include "recorded.h"

#include <stdio.h>
#include <string.h>

#include "tally/replay.h"

struct replayed {
    struct recorded recorded;
    struct mt_record_file *file;
    struct mt_replay replay;
    uint64_t last_label_ticks; /* as opening a recording finds them */
};

static void begin(struct replayed *replayed)
{
    *replayed = (struct replayed){.recorded = {.header = {.pid = 7}, .ns = 1000}};
    recorded_begin(&replayed->recorded, "7-0");
}

static void replay_until(struct replayed *replayed, uint64_t ticks)
{
    char path[128];
    recorded_end(&replayed->recorded, 0);
    snprintf(path, sizeof path, "%s/7-0.mtr", recorded_directory);
    assert_int_equal(mt_record_file_open(path, &replayed->file, NULL), 0);
    replayed->file->last_label_ticks = replayed->last_label_ticks;
    mt_replay_init(&replayed->replay);
    assert_int_equal(mt_replay_file(&replayed->replay, replayed->file, ticks, NULL), 0);
}

static void end(struct replayed *replayed)
{
    mt_replay_finish(&replayed->replay);
    mt_record_file_close(replayed->file);
}

static const struct mt_live *in_table(const struct mt_replay *replay, const struct mt_table *table,
                                      uint64_t key)
{
    uint64_t index;
    return mt_table_get(table, key, &index) ? &replay->live[index] : NULL;
}

static const struct mt_live *in_ranges(const struct mt_replay *replay,
                                       const struct mt_ranges *ranges, uint64_t address)
{
    struct mt_range range;
    return mt_ranges_find(ranges, address, &range) ? &replay->live[range.value] : NULL;
}

static const char *name_of(const struct mt_replay *replay, const struct mt_live *live)
{
    static char name[MT_MAX_STRING + 1];
    const struct mt_text *text = &replay->texts.items[live->name];
    memcpy(name, text->text, text->length);
    name[text->length] = '\0';
    return name;
}

static void test_a_block_lives_from_its_allocation_to_its_free(void **state)
{
    (void)state;
    struct replayed r;
    begin(&r);
    recorded_alloc(&r.recorded, MT_EVENT_ALLOC, 0x10000, 70000, 0);
    recorded_alloc(&r.recorded, MT_EVENT_ALLOC, 0x50000, 90000, 0);
    recorded_alloc(&r.recorded, MT_EVENT_SAMPLE_ALLOC, 0x90000, 100, 0);
    r.recorded.ns = 2000;
    recorded_free(&r.recorded, MT_EVENT_FREE, 0x10000);
    recorded_free(&r.recorded, MT_EVENT_FREE, 0x77777000); /* never seen */
    recorded_free(&r.recorded, MT_EVENT_SAMPLE_FREE, 0x90000);
    replay_until(&r, 2000);
    assert_int_equal(r.replay.blocks.n, 1);
    assert_int_equal(r.replay.samples.n, 0);
    assert_int_equal(mt_blocks_get(&r.replay.blocks, 0x50000)->size, 90000);
    end(&r);
}

static void test_events_after_the_moment_do_not_count(void **state)
{
    (void)state;
    struct replayed r;
    begin(&r);
    recorded_alloc(&r.recorded, MT_EVENT_ALLOC, 0x10000, 70000, 0);
    r.recorded.ns = 2000;
    recorded_free(&r.recorded, MT_EVENT_FREE, 0x10000);
    replay_until(&r, 1999);
    assert_int_equal(r.replay.blocks.n, 1);
    end(&r);
}

/* A block whose free went unseen makes way for the next at its address, and nothing is kept of
 * blocks that are gone. */
static void test_what_is_kept_does_not_grow_with_what_is_gone(void **state)
{
    (void)state;
    struct replayed r;
    begin(&r);
    for (int i = 0; i < 10000; i++) {
        recorded_alloc(&r.recorded, MT_EVENT_ALLOC, 0x10000, 70000 + (uint64_t)i, 0);
        recorded_alloc(&r.recorded, MT_EVENT_ALLOC, 0x50000, 8, 0);
        recorded_free(&r.recorded, MT_EVENT_FREE, 0x50000);
        EVENT(&r.recorded, BUFFER_ALLOC, 0x99, 0x10000, 100, 1, 0, 0, 0);
    }
    replay_until(&r, UINT64_MAX);
    assert_int_equal(r.replay.blocks.n, 1);
    assert_int_equal(mt_blocks_get(&r.replay.blocks, 0x10000)->size, 79999);
    assert_int_equal(r.replay.buffers.n, 1);
    assert_true(r.replay.n_live < 10);
    end(&r);
}

static void test_scopes_nest_and_labels_are_their_own(void **state)
{
    (void)state;
    struct replayed r;
    begin(&r);
    uint64_t outer = recorded_string(&r.recorded, "outer");
    uint64_t inner = recorded_string(&r.recorded, "inner");
    EVENT(&r.recorded, SCOPE_BEGIN, MT_CATEGORY_KV_CACHE, outer);
    EVENT(&r.recorded, SCOPE_BEGIN, MT_CATEGORY_ACTIVATIONS, inner);
    recorded_alloc(&r.recorded, MT_EVENT_ALLOC, 0x10000, 70000, 0);
    recorded_event(&r.recorded, MT_EVENT_SCOPE_END, NULL, 0);
    EVENT(&r.recorded, MMAP, 0x100000, 0x4000, 3, 0x22, 0, 0, 0);
    /* What an allocator maps meanwhile is not the scope's. */
    EVENT(&r.recorded, MMAP, 0x200000, 0x4000, 3, 0x22 | MT_MAP_BY_ALLOCATOR, 0, 0, 0);
    recorded_event(&r.recorded, MT_EVENT_SCOPE_END, NULL, 0);
    recorded_event(&r.recorded, MT_EVENT_SCOPE_END, NULL, 0); /* one too many */
    recorded_alloc(&r.recorded, MT_EVENT_ALLOC, 0x50000, 70000, 0);
    EVENT(&r.recorded, LABEL, 0x50000, 100, 200 /* no category */, outer);
    replay_until(&r, UINT64_MAX);
    struct mt_site site = mt_replay_site(&r.replay, mt_blocks_get(&r.replay.blocks, 0x10000)->site);
    assert_int_equal(site.category, MT_CATEGORY_ACTIVATIONS);
    assert_string_equal(name_of(&r.replay, &(struct mt_live){.name = site.name}), "inner");
    const struct mt_live *mapping = in_ranges(&r.replay, &r.replay.maps, 0x103fff);
    assert_int_equal(mapping->category, MT_CATEGORY_KV_CACHE);
    assert_null(in_ranges(&r.replay, &r.replay.maps, 0x104000));
    const struct mt_live *arena = in_ranges(&r.replay, &r.replay.maps, 0x200000);
    assert_int_equal(arena->category, MT_CATEGORY_NONE);
    assert_int_equal(arena->flags, MT_MAPPED_ALLOCATOR);
    site = mt_replay_site(&r.replay, mt_blocks_get(&r.replay.blocks, 0x50000)->site);
    assert_int_equal(site.category, MT_CATEGORY_NONE);
    assert_int_equal(in_ranges(&r.replay, &r.replay.labels, 0x50000)->category, MT_CATEGORY_NONE);
    end(&r);
}

static void test_unmapping_the_middle_leaves_both_ends(void **state)
{
    (void)state;
    struct replayed r;
    begin(&r);
    EVENT(&r.recorded, MMAP, 0x100000, 0x10000, 3, 0x22, 0, 0, 0);
    EVENT(&r.recorded, LABEL, 0x100000, 0x10000, MT_CATEGORY_WEIGHTS, 0);
    EVENT(&r.recorded, MUNMAP, 0x104000, 0x4000);
    replay_until(&r, UINT64_MAX);
    assert_non_null(in_ranges(&r.replay, &r.replay.maps, 0x103fff));
    assert_null(in_ranges(&r.replay, &r.replay.maps, 0x104000));
    assert_null(in_ranges(&r.replay, &r.replay.labels, 0x107fff));
    assert_non_null(in_ranges(&r.replay, &r.replay.labels, 0x108000));
    end(&r);
}

static void test_labels_move_with_their_mapping(void **state)
{
    (void)state;
    struct replayed r;
    begin(&r);
    EVENT(&r.recorded, MMAP, 0x100000, 0x4000, 3, 0x22, 0, 0, 0);
    EVENT(&r.recorded, LABEL, 0x101000, 0x1000, MT_CATEGORY_KV_CACHE, 0);
    EVENT(&r.recorded, LABEL, 0x103000, 0x1000, MT_CATEGORY_WEIGHTS, 0);
    EVENT(&r.recorded, MREMAP, 0x100000, 0x4000, 0x900000, 0x8000, 0);
    replay_until(&r, UINT64_MAX);
    assert_null(in_ranges(&r.replay, &r.replay.maps, 0x100000));
    assert_null(in_ranges(&r.replay, &r.replay.labels, 0x101000));
    assert_int_equal(in_ranges(&r.replay, &r.replay.maps, 0x907fff)->size, 0x8000);
    assert_null(in_ranges(&r.replay, &r.replay.labels, 0x900fff));
    assert_int_equal(in_ranges(&r.replay, &r.replay.labels, 0x901000)->category,
                     MT_CATEGORY_KV_CACHE);
    assert_null(in_ranges(&r.replay, &r.replay.labels, 0x902000));
    assert_int_equal(in_ranges(&r.replay, &r.replay.labels, 0x903fff)->category,
                     MT_CATEGORY_WEIGHTS);
    assert_null(in_ranges(&r.replay, &r.replay.labels, 0x904000)); /* nobody spoke of it */
    end(&r);
}

/* The first thread's move takes from 2000 to 4000. Meanwhile the kernel has given its old place to
 * another thread, which has said what it is for; the end of it is mapped by nobody else. */
static void test_what_is_mapped_during_a_move_is_not_moved(void **state)
{
    (void)state;
    struct replayed r;
    begin(&r);
    EVENT(&r.recorded, MMAP, 0x100000, 0x8000, 3, 0x22, 0, 0, 0);
    EVENT(&r.recorded, LABEL, 0x104000, 0x1000, MT_CATEGORY_WEIGHTS, 0);
    r.recorded.ns = 3000;
    EVENT(&r.recorded, MMAP, 0x100000, 0x4000, 3, 0x22, 0, 0, 0);
    EVENT(&r.recorded, LABEL, 0x100000, 0x4000, MT_CATEGORY_KV_CACHE, 0);
    r.recorded.ns = 4000;
    EVENT(&r.recorded, MREMAP, 0x100000, 0x8000, 0x900000, 0x8000, 2000);
    replay_until(&r, UINT64_MAX);
    assert_int_equal(in_ranges(&r.replay, &r.replay.maps, 0x100000)->size, 0x4000);
    assert_int_equal(in_ranges(&r.replay, &r.replay.labels, 0x103fff)->category,
                     MT_CATEGORY_KV_CACHE);
    assert_null(in_ranges(&r.replay, &r.replay.maps, 0x104000));
    assert_null(in_ranges(&r.replay, &r.replay.labels, 0x104000));
    assert_int_equal(in_ranges(&r.replay, &r.replay.maps, 0x907fff)->size, 0x8000);
    assert_null(in_ranges(&r.replay, &r.replay.labels, 0x903fff));
    assert_int_equal(in_ranges(&r.replay, &r.replay.labels, 0x904000)->category,
                     MT_CATEGORY_WEIGHTS);
    end(&r);
}

static void test_a_mapping_that_shrinks_in_place_loses_its_end(void **state)
{
    (void)state;
    struct replayed r;
    begin(&r);
    EVENT(&r.recorded, MMAP, 0x100000, 0x4000, 3, 0x22, 0, 0, 0);
    EVENT(&r.recorded, LABEL, 0x100000, 0x4000, MT_CATEGORY_KV_CACHE, 0);
    EVENT(&r.recorded, MREMAP, 0x100000, 0x4000, 0x100000, 0x1000, 0);
    replay_until(&r, UINT64_MAX);
    assert_non_null(in_ranges(&r.replay, &r.replay.labels, 0x100fff));
    assert_null(in_ranges(&r.replay, &r.replay.labels, 0x101000));
    assert_null(in_ranges(&r.replay, &r.replay.maps, 0x101000));
    end(&r);
}

static void test_a_move_onto_itself_as_no_kernel_makes_it_ends(void **state)
{
    (void)state;
    struct replayed r;
    begin(&r);
    EVENT(&r.recorded, MMAP, 0x100000, (uint64_t)1 << 60, 3, 0x22, 0, 0, 0);
    EVENT(&r.recorded, LABEL, 0x100000, 1, MT_CATEGORY_KV_CACHE, 0);
    EVENT(&r.recorded, MREMAP, 0x100000, (uint64_t)1 << 60, 0x100001, (uint64_t)1 << 60, 0);
    replay_until(&r, UINT64_MAX);
    end(&r);
}

static void test_a_label_ends_with_its_block(void **state)
{
    (void)state;
    struct replayed r;
    begin(&r);
    recorded_alloc(&r.recorded, MT_EVENT_ALLOC, 0x10000, 70000, 0);
    EVENT(&r.recorded, LABEL, 0x10000 + 100, 1000, MT_CATEGORY_KV_CACHE, 0);
    EVENT(&r.recorded, LABEL, 0x10000 + 70000, 1000, MT_CATEGORY_WEIGHTS, 0);
    recorded_free(&r.recorded, MT_EVENT_FREE, 0x10000);
    replay_until(&r, UINT64_MAX);
    assert_null(in_ranges(&r.replay, &r.replay.labels, 0x10000 + 100));
    assert_non_null(in_ranges(&r.replay, &r.replay.labels, 0x10000 + 70000));
    end(&r);
}

/* What is said of a block later holds from its beginning, if it still lives when it is said. */
static void test_a_block_is_what_it_is_called_later(void **state)
{
    (void)state;
    struct replayed r;
    begin(&r);
    recorded_alloc(&r.recorded, MT_EVENT_ALLOC, 0x10000, 70000, 0);
    recorded_alloc(&r.recorded, MT_EVENT_ALLOC, 0x50000, 70000, 0);
    recorded_alloc(&r.recorded, MT_EVENT_ALLOC, 0x90000, 70000, 0);
    EVENT(&r.recorded, LABEL_BLOCK, 0x90000, 70000, MT_CATEGORY_WEIGHTS, 0);
    r.recorded.ns = 2000;
    recorded_free(&r.recorded, MT_EVENT_FREE, 0x50000);
    recorded_alloc(&r.recorded, MT_EVENT_ALLOC, 0x50000, 70000, 0); /* another one */
    recorded_alloc(&r.recorded, MT_EVENT_ALLOC, 0xd0000, 70000, 0); /* not there yet */
    uint64_t name = recorded_string(&r.recorded, "later");
    EVENT(&r.recorded, LABEL_BLOCK, 0x10000, 60000, MT_CATEGORY_KV_CACHE, name);
    EVENT(&r.recorded, LABEL_BLOCK, 0x50000, 70000, MT_CATEGORY_KV_CACHE, name);
    EVENT(&r.recorded, LABEL_BLOCK, 0x90000, 70000, MT_CATEGORY_KV_CACHE, name);
    EVENT(&r.recorded, LABEL_BLOCK, 0xd0000, 70000, MT_CATEGORY_KV_CACHE, name);
    r.last_label_ticks = 2000;
    replay_until(&r, 1500);
    const struct mt_live *label = in_ranges(&r.replay, &r.replay.labels, 0x10000);
    assert_int_equal(label->category, MT_CATEGORY_KV_CACHE);
    assert_int_equal(label->size, 60000);
    assert_string_equal(name_of(&r.replay, label), "later");
    assert_null(in_ranges(&r.replay, &r.replay.labels, 0x50000));
    assert_int_equal(in_ranges(&r.replay, &r.replay.labels, 0x90000)->category,
                     MT_CATEGORY_WEIGHTS);
    assert_null(in_ranges(&r.replay, &r.replay.labels, 0xd0000));
    assert_int_equal(r.replay.blocks.n, 3);
    end(&r);
}

/* Such a block has no event of its own but the end of a sample. */
static void test_a_label_ends_with_its_small_block(void **state)
{
    (void)state;
    struct replayed r;
    begin(&r);
    EVENT(&r.recorded, LABEL_BLOCK, 0x10000, 100, MT_CATEGORY_WEIGHTS, 0);
    EVENT(&r.recorded, LABEL_BLOCK, 0x20000, 100, MT_CATEGORY_WEIGHTS, 0);
    EVENT(&r.recorded, LABEL, 0x30000, 100, MT_CATEGORY_WEIGHTS, 0);
    recorded_free(&r.recorded, MT_EVENT_SAMPLE_FREE, 0x10000);
    recorded_free(&r.recorded, MT_EVENT_SAMPLE_FREE, 0x20010); /* within another */
    recorded_free(&r.recorded, MT_EVENT_SAMPLE_FREE, 0x30000); /* a range is no block */
    replay_until(&r, UINT64_MAX);
    assert_null(in_ranges(&r.replay, &r.replay.labels, 0x10063));
    assert_non_null(in_ranges(&r.replay, &r.replay.labels, 0x20063));
    assert_non_null(in_ranges(&r.replay, &r.replay.labels, 0x30063));
    end(&r);
}

/* It says a name for what happens, and not that it is none of what is around it. */
static void test_a_scope_without_a_category_has_that_of_the_one_around_it(void **state)
{
    (void)state;
    struct replayed r;
    begin(&r);
    uint64_t outer = recorded_string(&r.recorded, "outer");
    uint64_t step = recorded_string(&r.recorded, "step");
    EVENT(&r.recorded, SCOPE_BEGIN, MT_CATEGORY_NONE, step);
    recorded_alloc(&r.recorded, MT_EVENT_ALLOC, 0x10000, 70000, 0);
    EVENT(&r.recorded, SCOPE_BEGIN, MT_CATEGORY_KV_CACHE, outer);
    EVENT(&r.recorded, SCOPE_BEGIN, MT_CATEGORY_NONE, step);
    recorded_alloc(&r.recorded, MT_EVENT_ALLOC, 0x50000, 70000, 0);
    replay_until(&r, UINT64_MAX);
    struct mt_site bare = mt_replay_site(&r.replay, mt_blocks_get(&r.replay.blocks, 0x10000)->site);
    struct mt_site within =
        mt_replay_site(&r.replay, mt_blocks_get(&r.replay.blocks, 0x50000)->site);
    assert_int_equal(bare.category, MT_CATEGORY_NONE);
    assert_memory_equal(r.replay.texts.items[bare.name].text, "step", 4);
    assert_int_equal(within.category, MT_CATEGORY_KV_CACHE);
    assert_memory_equal(r.replay.texts.items[within.name].text, "outer", 5);
    end(&r);
}

static void test_part_of_a_label_can_be_taken_back(void **state)
{
    (void)state;
    struct replayed r;
    begin(&r);
    EVENT(&r.recorded, LABEL, 0x10000, 1000, MT_CATEGORY_KV_CACHE, 0);
    EVENT(&r.recorded, UNLABEL, 0x10000 + 10, 20);
    replay_until(&r, UINT64_MAX);
    assert_non_null(in_ranges(&r.replay, &r.replay.labels, 0x10000 + 9));
    assert_null(in_ranges(&r.replay, &r.replay.labels, 0x10000 + 10));
    assert_non_null(in_ranges(&r.replay, &r.replay.labels, 0x10000 + 30));
    end(&r);
}

static void test_buffers_know_their_use_until_they_are_freed(void **state)
{
    (void)state;
    struct replayed r;
    begin(&r);
    uint64_t name = recorded_string(&r.recorded, "CPU_REPACK");
    EVENT(&r.recorded, BUFFER_ALLOC, 0xabc, 0x10000, 5000, MT_BUFFER_HOST, 0, name, 0);
    EVENT(&r.recorded, BUFFER_USAGE, 0xabc, MT_USAGE_WEIGHTS);
    EVENT(&r.recorded, BUFFER_USAGE, 0xdef, MT_USAGE_COMPUTE); /* unknown */
    EVENT(&r.recorded, BUFFER_ALLOC, 0x123, 0x20000, 5000, MT_BUFFER_HOST, 0, 0, 0);
    EVENT(&r.recorded, BUFFER_FREE, 0x123);
    replay_until(&r, UINT64_MAX);
    const struct mt_live *buffer = in_table(&r.replay, &r.replay.buffers, 0xabc);
    assert_int_equal(buffer->usage, MT_USAGE_WEIGHTS);
    assert_string_equal(name_of(&r.replay, buffer), "CPU_REPACK");
    assert_null(in_table(&r.replay, &r.replay.buffers, 0x123));
    end(&r);
}

static void test_the_last_totals_hold(void **state)
{
    (void)state;
    struct replayed r;
    begin(&r);
    EVENT(&r.recorded, TOTALS, 5, 500, 1, 100);
    EVENT(&r.recorded, TOTALS, 9, 900, 4, 300);
    replay_until(&r, UINT64_MAX);
    assert_int_equal(r.replay.small_allocs, 9);
    assert_int_equal(r.replay.small_alloc_bytes, 900);
    assert_int_equal(r.replay.small_frees, 4);
    assert_int_equal(r.replay.small_free_bytes, 300);
    end(&r);
}

static void test_the_recorders_own_memory_is_whole_pages(void **state)
{
    (void)state;
    struct replayed r;
    struct mt_range range;
    begin(&r);
    EVENT(&r.recorded, SELF, 0x10000, PAGE + 1);
    replay_until(&r, UINT64_MAX);
    assert_true(mt_ranges_find(&r.replay.self, 0x10000, &range));
    assert_int_equal(range.high, 0x10000 + 2 * PAGE);
    end(&r);
}

/* Numbers that no recorder writes: at the end of the address space, past every limit. */
static void test_absurd_numbers_are_survived(void **state)
{
    (void)state;
    static const enum mt_event_op ops[] = {
        MT_EVENT_HEAP_REGION,  MT_EVENT_MMAP,         MT_EVENT_MUNMAP,      MT_EVENT_MREMAP,
        MT_EVENT_BUFFER_ALLOC, MT_EVENT_BUFFER_USAGE, MT_EVENT_BUFFER_FREE, MT_EVENT_SCOPE_BEGIN,
        MT_EVENT_LABEL,        MT_EVENT_UNLABEL,      MT_EVENT_THREAD,      MT_EVENT_SELF,
        MT_EVENT_TOTALS,       MT_EVENT_LOOK,         MT_EVENT_PROCESS_END, MT_EVENT_LABEL_BLOCK};
    static const uint64_t numbers[] = {0, 1, (uint64_t)1 << 44, UINT64_MAX - 1, UINT64_MAX};
    static const size_t n_fields[] = {2, 7, 2, 5, 7, 2, 1, 2, 4, 2, 3, 2, 4, 1, 3, 4};
    struct replayed r;
    begin(&r);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (unsigned choice = 0; choice < 5 * 5 * 5; choice++) {
            uint64_t fields[7];
            for (size_t j = 0; j < 7; j++)
                fields[j] = numbers[j % 3 == 0   ? choice % 5
                                    : j % 3 == 1 ? choice / 5 % 5
                                                 : choice / 25];
            recorded_event(&r.recorded, ops[i], fields, n_fields[i]);
        }
    replay_until(&r, UINT64_MAX);
    end(&r);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, recorded_setup, recorded_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_block_lives_from_its_allocation_to_its_free),
        TEST(test_events_after_the_moment_do_not_count),
        TEST(test_what_is_kept_does_not_grow_with_what_is_gone),
        TEST(test_scopes_nest_and_labels_are_their_own),
        TEST(test_unmapping_the_middle_leaves_both_ends),
        TEST(test_labels_move_with_their_mapping),
        TEST(test_what_is_mapped_during_a_move_is_not_moved),
        TEST(test_a_mapping_that_shrinks_in_place_loses_its_end),
        TEST(test_a_move_onto_itself_as_no_kernel_makes_it_ends),
        TEST(test_a_label_ends_with_its_block),
        TEST(test_a_block_is_what_it_is_called_later),
        TEST(test_a_label_ends_with_its_small_block),
        TEST(test_a_scope_without_a_category_has_that_of_the_one_around_it),
        TEST(test_part_of_a_label_can_be_taken_back),
        TEST(test_buffers_know_their_use_until_they_are_freed),
        TEST(test_the_last_totals_hold),
        TEST(test_the_recorders_own_memory_is_whole_pages),
        TEST(test_absurd_numbers_are_survived),
    };
    return RUN_TESTS(tests);
}
