/* SPDX-License-Identifier: MIT */
/* The table of live blocks and their paint, against plain arrays. */
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

#include "tally/paint.h"

#define N_PLACES 5000u
#define N_TURNS  200000u

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* Puts and takes at random; the array says what has to be there. */
static void test_a_block_is_there_from_put_to_take(void **state)
{
    static uint64_t size[N_PLACES];
    struct mt_blocks blocks = {0};
    uint64_t seed = 88172645463325252u, found;
    size_t n = 0;
    (void)state;
    for (unsigned turn = 0; turn < N_TURNS; turn++) {
        uint64_t random = next_random(&seed);
        size_t place = random % N_PLACES;
        uint64_t address = 0x10000 + 16 * place;
        /* First it fills, then it empties. */
        if ((random >> 40) % 10 < (turn < N_TURNS / 2 ? 7u : 3u)) {
            const struct mt_heap_block block = {address, 1 + (random >> 50), 5, turn};
            assert_int_equal(mt_blocks_put(&blocks, &block), 0);
            n += size[place] == 0;
            size[place] = block.size;
        } else {
            assert_int_equal(mt_blocks_take(&blocks, address, &found), size[place] != 0);
            assert_true(size[place] == 0 || found == size[place]);
            n -= size[place] != 0;
            size[place] = 0;
        }
        assert_int_equal(blocks.n, n);
    }
    for (size_t place = 0; place < N_PLACES; place++) {
        const struct mt_heap_block *block = mt_blocks_get(&blocks, 0x10000 + 16 * place);
        assert_int_equal(block ? block->size : 0, size[place]);
    }
    mt_blocks_finish(&blocks);
    memset(size, 0, sizeof size);
}

static void test_each_block_is_stepped_through_once(void **state)
{
    struct mt_blocks blocks = {0};
    const struct mt_heap_block *block;
    uint64_t at = 0, sum = 0;
    (void)state;
    for (uint64_t i = 1; i <= 1000; i++)
        assert_int_equal(mt_blocks_put(&blocks, &(struct mt_heap_block){64 * i, i, 0, 0}), 0);
    for (size_t n = 0; (block = mt_blocks_next(&blocks, &at)); n++) {
        assert_true(n < 1000);
        sum += block->size;
    }
    assert_int_equal(sum, 1000 * 1001 / 2);
    mt_blocks_finish(&blocks);
}

#define SPACE 4096u

/* Ranges and blocks that overlap as they like, painted byte by byte beside. Claims: 1 and 2 below,
 * 3 the blocks in no scope, 10 and up those in scopes, 4 above. */
static void test_of_what_overlaps_the_stronger_and_younger_holds(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 60; seed++) {
        const struct mt_maps none = {0};
        static size_t expected[SPACE + 256];
        struct mt_blocks blocks = {0};
        struct mt_paint paint;
        struct mt_range piece;
        uint64_t random = seed * 0x9e3779b97f4a7c15u;
        memset(expected, 0, sizeof expected);
        mt_paint_init(&paint, &none);
        paint.plain_claim = 3;
        paint.claims = calloc(8, sizeof *paint.claims);
        assert_non_null(paint.claims);
        for (uint32_t i = 0; i < 8; i++)
            paint.claims[i] = 10 + i;
        for (unsigned i = 0; i < 20; i++) {
            uint64_t low = next_random(&random) % SPACE, length = next_random(&random) % 200;
            assert_int_equal(mt_paint_put(&paint.below, low, low + length, 1 + i % 2), 0);
            for (uint64_t at = low; at < low + length; at++)
                expected[at] = 1 + i % 2;
        }
        for (uint32_t i = 0; i < 60; i++) {
            uint64_t low = next_random(&random) % (SPACE / 8) * 8, length = random % 100;
            uint32_t site = i % 3 ? 7 : MT_SITE_IN_SCOPE | i % 8;
            if (mt_blocks_get(&blocks, low))
                continue; /* the one before it would not be seen any more */
            const struct mt_heap_block block = {low, length, site, i};
            assert_int_equal(mt_blocks_put(&blocks, &block), 0);
            for (uint64_t at = low; at < low + length; at++)
                expected[at] = i % 3 ? 3 : 10 + i % 8;
        }
        assert_int_equal(mt_paint_blocks(&paint, &blocks), 0);
        for (unsigned i = 0; i < 5; i++) {
            uint64_t low = next_random(&random) % SPACE, length = next_random(&random) % 50;
            assert_int_equal(mt_paint_put(&paint.above, low, low + length, 4), 0);
            for (uint64_t at = low; at < low + length; at++)
                expected[at] = 4;
        }
        for (uint64_t at = 0; at < SPACE + 200; at++) {
            int any = mt_paint_at_or_after(&paint, at, &piece);
            size_t found = any && piece.low <= at ? piece.value : 0;
            if (found != expected[at])
                fail_msg("seed %d, byte %d: %zu, not %zu", (int)seed, (int)at, found, expected[at]);
            assert_true(!any || piece.high > at);
        }
        mt_paint_finish(&paint);
        mt_blocks_finish(&blocks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_block_is_there_from_put_to_take),
        cmocka_unit_test(test_each_block_is_stepped_through_once),
        cmocka_unit_test(test_of_what_overlaps_the_stronger_and_younger_holds),
    };
    return RUN_TESTS(tests);
}
