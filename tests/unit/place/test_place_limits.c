/* SPDX-License-Identifier: MIT */
/* What places refuse, and packing against sums of subsets, which tell for two devices whether there
 * is any way at all. */
#include "tests/support/unit.h"

#include <memtally/memtally.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UNITS 22
#define MOST  512 /* bytes of a unit */

static struct mt_place_unit units[UNITS];
static struct mt_place_device devices[65];

static struct mt_place_problem problem_of(size_t n_units, size_t n_devices)
{
    return (struct mt_place_problem){
        .units = units, .n_units = n_units, .devices = devices, .n_devices = n_devices};
}

static void give(size_t device, uint64_t bytes)
{
    devices[device] = (struct mt_place_device){.capacity_bytes = bytes, .limit_bytes = bytes};
}

static uint64_t next_random(uint64_t *random, uint64_t below)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (*random >> 33) % below;
}

/* Units of random sizes that are multiples of `step`. Returns their sum. */
static uint64_t make_units(uint64_t *random, uint64_t step)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < UNITS; i++) {
        uint64_t bytes = (1 + next_random(random, MOST / step)) * step;
        units[i] = (struct mt_place_unit){
            .name = "layer", .layer = i, .dense_bytes = bytes, .pinned = MT_PLACE_ANY};
        sum += bytes;
    }
    return sum;
}

/* Whether some of the units come to a sum of at least `low` and at most `high`. */
static int has_subset(uint64_t low, uint64_t high)
{
    static char is_sum[UNITS * MOST + 1];
    uint64_t sum = 0;
    memset(is_sum, 0, sizeof is_sum);
    is_sum[0] = 1;
    for (size_t i = 0; i < UNITS; i++) {
        for (uint64_t at = sum + 1; at-- > 0;)
            is_sum[at + units[i].dense_bytes] |= is_sum[at];
        sum += units[i].dense_bytes;
    }
    for (uint64_t at = low; at <= high && at <= sum; at++)
        if (is_sum[at])
            return 1;
    return 0;
}

/* Two devices that have just room for all: what does not lie on the one has to go on the other. */
static void try_pair(uint64_t sum, uint64_t first, uint64_t spare)
{
    struct mt_place_problem problem = problem_of(UNITS, 2);
    struct mt_placement *placement = NULL;
    give(0, first);
    give(1, sum - first + spare);
    problem.stretches_may_break = 1;
    int result = mt_place_units(&problem, &placement, NULL);
    assert_int_equal(result, has_subset(first - spare, first) ? 0 : MT_ELIMIT);
    if (result == 0) {
        assert_true(placement->devices[0].used_bytes <= first);
        assert_true(placement->devices[1].used_bytes <= sum - first + spare);
        assert_int_equal(placement->devices[0].used_bytes + placement->devices[1].used_bytes, sum);
    }
    mt_placement_destroy(placement);
}

static void test_units_are_packed_wherever_a_subset_fits(void **state)
{
    uint64_t random = 7;
    (void)state;
    for (int i = 0; i < 60; i++) {
        uint64_t sum = make_units(&random, 1);
        try_pair(sum, 1 + next_random(&random, sum / 2), next_random(&random, 3));
    }
}

/* Even sizes never come to an odd sum, however long one tries. */
static void test_what_cannot_be_packed_is_found_out(void **state)
{
    uint64_t random = 11;
    (void)state;
    for (int i = 0; i < 12; i++) {
        uint64_t sum = make_units(&random, 2);
        try_pair(sum, sum / 4 * 2 + 1, 0);
        try_pair(sum, sum / 4 * 2, 0);
    }
}

static void test_a_policy_that_there_is_not_is_named_by_its_number(void **state)
{
    struct mt_place_problem problem = problem_of(1, 1);
    struct mt_placement *placement;
    struct mt_error error = {0};
    (void)state;
    units[0] = (struct mt_place_unit){.dense_bytes = 5, .pinned = MT_PLACE_ANY};
    give(0, 10);
    assert_int_equal(mt_place_by_policy(&problem, (enum mt_place_policy)99, &placement, &error),
                     MT_EARG);
    assert_non_null(strstr(error.text, "99"));
    assert_int_equal(mt_place_by_policy(&problem, MT_PLACE_POLICY_BEST, &placement, &error), 0);
    assert_true(placement->is_best);
    mt_placement_destroy(placement);
}

static void test_sixty_four_devices_are_the_most(void **state)
{
    struct mt_place_problem problem = problem_of(1, 65);
    struct mt_placement *placement;
    struct mt_error error = {0};
    (void)state;
    units[0] = (struct mt_place_unit){.dense_bytes = 5, .pinned = MT_PLACE_ANY};
    for (size_t i = 0; i < 65; i++)
        give(i, 10);
    assert_int_equal(mt_place_units(&problem, &placement, &error), MT_EARG);
    assert_non_null(strstr(error.text, "there are 65 devices; the most are 64"));
    problem.n_devices = 64;
    assert_int_equal(mt_place_units(&problem, &placement, &error), 0);
    mt_placement_destroy(placement);
}

static void test_counts_of_experts_are_a_text_of_so_many_lines(void **state)
{
    static const char nul[] = "0,0,1\n0,\0001,1\n";
    const size_t most = 1 << 20;
    char *text = malloc(6 * (most + 1) + 1);
    struct mt_expert_use *uses;
    struct mt_error error = {0};
    size_t n = 0;
    (void)state;
    assert_int_equal(mt_expert_uses_parse("t", nul, sizeof nul - 1, &uses, &n, &error), MT_EFORMAT);
    assert_non_null(strstr(error.text, "t: line 2 is no line of text"));
    assert_non_null(text);
    for (size_t i = 0; i <= most; i++)
        memcpy(text + 6 * i, "0,0,1\n", 7);
    assert_int_equal(mt_expert_uses_parse("t", text, 6 * most, &uses, &n, &error), 0);
    assert_int_equal(n, most);
    mt_expert_uses_destroy(uses);
    assert_int_equal(mt_expert_uses_parse("t", text, 6 * (most + 1), &uses, &n, &error), MT_ELIMIT);
    free(text);
}

static void test_a_file_of_counts_has_to_be_one(void **state)
{
    char path[] = "/tmp/memtally-uses-XXXXXX";
    struct mt_expert_use *uses;
    struct mt_error error = {0};
    size_t n = 0;
    int fd = mkstemp(path);
    (void)state;
    assert_int_equal(write(fd, "layer,expert,count\n3,1,2.5\n", 27), 27);
    close(fd);
    assert_int_equal(mt_expert_uses_read(path, &uses, &n, &error), 0);
    assert_int_equal(n, 1);
    assert_int_equal(uses->layer, 3);
    assert_true(uses->count == 2.5);
    mt_expert_uses_destroy(uses);
    unlink(path);
    assert_int_equal(mt_expert_uses_read(path, &uses, &n, &error), MT_EIO);
    assert_int_equal(mt_expert_uses_read("/", &uses, &n, &error), MT_EIO);
    assert_non_null(strstr(error.text, "cannot be read"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_units_are_packed_wherever_a_subset_fits),
        cmocka_unit_test(test_what_cannot_be_packed_is_found_out),
        cmocka_unit_test(test_a_policy_that_there_is_not_is_named_by_its_number),
        cmocka_unit_test(test_sixty_four_devices_are_the_most),
        cmocka_unit_test(test_counts_of_experts_are_a_text_of_so_many_lines),
        cmocka_unit_test(test_a_file_of_counts_has_to_be_one),
    };
    return RUN_TESTS(tests);
}
