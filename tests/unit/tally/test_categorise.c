/* SPDX-License-Identifier: MIT */
/* Words on a measurement: 100 MiB, of which 60 are unattributed, 30 the heap's and 10 a library's.
 */
#include "tests/support/unit.h"

#include <memtally/tally.h>
#include <memtally/units.h>
#include <string.h>

#include "tally/rows.h"

#define MIB 1048576ull

static struct mt_tally *make(void)
{
    struct mt_tally_arena *arena;
    struct mt_claims claims;
    struct mt_tally *tally = mt_tally_create(&arena);
    assert_non_null(tally);
    assert_int_equal(mt_claims_init(&claims), 0);
    claims.items[0].resident_bytes = 60 * MIB;
    size_t heap = mt_claim_of(&claims, MT_CATEGORY_RUNTIME, MT_PROVENANCE_MEASURED, "heap", 4);
    claims.items[heap].resident_bytes = 30 * MIB;
    claims.items[heap].allocated_bytes = 32 * MIB;
    size_t library = mt_claim_of(&claims, MT_CATEGORY_RUNTIME, MT_PROVENANCE_MEASURED, "libc", 4);
    claims.items[library].resident_bytes = 10 * MIB;
    claims.items[library].allocated_bytes = 10 * MIB;
    tally->places = mt_tally_make_place(arena, &claims, 100 * MIB);
    tally->n_places = 1;
    mt_claims_finish(&claims);
    assert_true(mt_tally_adds_up(tally));
    return tally;
}

static int tell(struct mt_tally *tally, const char *place, enum mt_category category,
                uint64_t bytes)
{
    const struct mt_tally_word word = {place, category, "the engine's word", bytes,
                                       MT_PROVENANCE_INFERRED};
    return mt_tally_tell(tally, &word, NULL);
}

static const struct mt_tally_row *row(const struct mt_tally *tally, enum mt_category category)
{
    return mt_tally_row_of(&tally->places[0], category);
}

static void test_bytes_move_and_the_total_stays(void **state)
{
    (void)state;
    struct mt_tally *tally = make();
    assert_int_equal(tell(tally, "host", MT_CATEGORY_KV_CACHE, 40 * MIB), 0);
    assert_int_equal(tally->places[0].unattributed_bytes, 20 * MIB);
    assert_int_equal(row(tally, MT_CATEGORY_KV_CACHE)->resident_bytes, 40 * MIB);
    assert_int_equal(row(tally, MT_CATEGORY_KV_CACHE)->provenance, MT_PROVENANCE_INFERRED);
    assert_int_equal(row(tally, MT_CATEGORY_RUNTIME)->resident_bytes, 40 * MIB);
    /* What is not unattributed any more is the heap's. */
    assert_int_equal(tell(tally, "host", MT_CATEGORY_WEIGHTS, 25 * MIB), 0);
    assert_int_equal(tally->places[0].unattributed_bytes, 0);
    assert_int_equal(row(tally, MT_CATEGORY_RUNTIME)->resident_bytes, 35 * MIB);
    assert_int_equal(row(tally, MT_CATEGORY_RUNTIME)->allocated_bytes, 37 * MIB);
    assert_int_equal(row(tally, MT_CATEGORY_WEIGHTS)->resident_bytes, 25 * MIB);
    assert_int_equal(tally->places[0].total_resident_bytes, 100 * MIB);
    assert_true(tally->places[0].rows[0].category == MT_CATEGORY_WEIGHTS);
    assert_true(mt_tally_adds_up(tally));
    mt_tally_destroy(tally);
}

/* A cache of which half was touched: libraries are not it. */
static void test_no_more_moves_than_is_there(void **state)
{
    (void)state;
    struct mt_tally *tally = make();
    assert_int_equal(tell(tally, "host", MT_CATEGORY_KV_CACHE, 200 * MIB), 0);
    assert_int_equal(row(tally, MT_CATEGORY_KV_CACHE)->resident_bytes, 90 * MIB);
    assert_int_equal(row(tally, MT_CATEGORY_KV_CACHE)->allocated_bytes, 200 * MIB);
    assert_int_equal(row(tally, MT_CATEGORY_RUNTIME)->resident_bytes, 10 * MIB);
    assert_true(mt_tally_adds_up(tally));
    mt_tally_destroy(tally);
}

static void test_what_nobody_knows_is_a_row_without_bytes(void **state)
{
    (void)state;
    struct mt_tally *tally = make();
    assert_int_equal(tell(tally, "host", MT_CATEGORY_KV_CACHE, MT_UNKNOWN), 0);
    assert_true(row(tally, MT_CATEGORY_KV_CACHE)->resident_bytes == MT_UNKNOWN);
    assert_int_equal(tally->places[0].unattributed_bytes, 60 * MIB);
    assert_true(mt_tally_adds_up(tally));
    /* Who knows says more. */
    assert_int_equal(tell(tally, "host", MT_CATEGORY_KV_CACHE, 3 * MIB), 0);
    assert_int_equal(row(tally, MT_CATEGORY_KV_CACHE)->resident_bytes, 3 * MIB);
    assert_int_equal(row(tally, MT_CATEGORY_KV_CACHE)->allocated_bytes, 3 * MIB);
    assert_int_equal(tell(tally, "host", MT_CATEGORY_KV_CACHE, MT_UNKNOWN), 0);
    assert_int_equal(row(tally, MT_CATEGORY_KV_CACHE)->resident_bytes, 3 * MIB);
    assert_true(mt_tally_adds_up(tally));
    mt_tally_destroy(tally);
}

/* A device that nobody measured. */
static void test_a_place_of_words_has_their_sum(void **state)
{
    (void)state;
    struct mt_tally *tally = make();
    assert_int_equal(tell(tally, "gpu:?", MT_CATEGORY_KV_CACHE, MT_UNKNOWN), 0);
    assert_int_equal(tell(tally, "gpu:?", MT_CATEGORY_WEIGHTS, 7 * MIB), 0);
    assert_true(tally->places[1].total_resident_bytes == MT_UNKNOWN);
    assert_true(tally->places[1].unattributed_bytes == MT_UNKNOWN);
    assert_true(mt_tally_adds_up(tally));
    assert_int_equal(tell(tally, "gpu:?", MT_CATEGORY_KV_CACHE, 5 * MIB), 0);
    assert_int_equal(tally->n_places, 2);
    assert_int_equal(tally->places[1].total_resident_bytes, 12 * MIB);
    assert_int_equal(tally->places[1].unattributed_bytes, 0);
    assert_int_equal(tally->places[1].n_rows, 2);
    assert_true(mt_tally_adds_up(tally));
    mt_tally_destroy(tally);
}

static void test_words_that_say_nothing_are_refused(void **state)
{
    (void)state;
    struct mt_tally *tally = make();
    assert_int_equal(tell(tally, "host", MT_CATEGORY_NONE, 1), MT_EARG);
    assert_int_equal(tell(tally, NULL, MT_CATEGORY_WEIGHTS, 1), MT_EARG);
    tally->kind = MT_TALLY_ESTIMATE;
    assert_int_equal(tell(tally, "host", MT_CATEGORY_WEIGHTS, 1), MT_EARG);
    mt_tally_destroy(tally);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_move_and_the_total_stays),
        cmocka_unit_test(test_no_more_moves_than_is_there),
        cmocka_unit_test(test_what_nobody_knows_is_a_row_without_bytes),
        cmocka_unit_test(test_a_place_of_words_has_their_sum),
        cmocka_unit_test(test_words_that_say_nothing_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
