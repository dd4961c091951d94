/* SPDX-License-Identifier: MIT */
/* What users type: needs of places, and times. */
#include "tests/support/unit.h"

#include <string.h>

#include "cli/budget/needs.h"

static void assert_refused(const char *text, const char *words)
{
    struct budget_needs needs = {.n = 0};
    struct mt_error error = {0};
    assert_int_equal(budget_parse_needs(text, &needs, &error), MT_EARG);
    if (!strstr(error.text, words))
        fail_msg("'%s' does not say '%s'", error.text, words);
}

static void test_needs_are_read_in_order(void **state)
{
    struct budget_needs needs = {.n = 0};
    (void)state;
    assert_int_equal(budget_parse_needs("host=2GiB,gpu0=4096,gpu12=1.5MiB", &needs, NULL), 0);
    assert_int_equal(needs.n, 3);
    assert_string_equal(needs.items[0].place, "host");
    assert_int_equal(needs.items[0].bytes, UINT64_C(2) << 30);
    assert_string_equal(needs.items[1].place, "gpu0");
    assert_int_equal(needs.items[1].bytes, 4096);
    assert_string_equal(needs.items[2].place, "gpu12");
    assert_int_equal(needs.items[2].bytes, 3 << 19);
    assert_int_equal(budget_host_bytes(&needs), UINT64_C(2) << 30);
}

/* Two devices of whichever have room are two needs; a place by name is one. */
static void test_any_device_may_be_asked_for_twice(void **state)
{
    struct budget_needs needs = {.n = 0};
    (void)state;
    assert_int_equal(budget_parse_needs("gpu=4GiB,gpu=2GiB", &needs, NULL), 0);
    assert_int_equal(needs.n, 2);
    assert_string_equal(needs.items[0].place, "gpu*");
    assert_string_equal(needs.items[1].place, "gpu*");
    assert_int_equal(budget_host_bytes(&needs), 0);
    assert_refused("gpu1=4GiB,gpu1=2GiB", "name the place gpu1 once");
    assert_refused("host=1GiB,gpu=1GiB,host=1GiB", "name the place host once");
}

static void test_what_is_no_need_says_how_one_looks(void **state)
{
    (void)state;
    assert_refused("", "is no PLACE=SIZE, as in host=2GiB");
    assert_refused("2GiB", "'2GiB' is no PLACE=SIZE");
    assert_refused("host=1GiB,", "'' is no PLACE=SIZE");
    assert_refused("=1GiB", "'' is no place; there are host, gpu0");
    assert_refused("gpu0x=1GiB", "'gpu0x' is no place");
    assert_refused("gpu-1=1GiB", "'gpu-1' is no place");
    assert_refused("gpu100=1GiB", "'gpu100' is no place");
    assert_refused("Host=1GiB", "'Host' is no place");
    assert_refused("host=", "'' is no size, as in host=2GiB");
    assert_refused("host=0", "'0' is no size");
    assert_refused("gpu0=-1GiB", "'-1GiB' is no size, as in gpu0=2GiB");
    assert_refused("host=a=b", "'a=b' is no size");
}

static void test_there_may_be_so_many_places_and_no_more(void **state)
{
    char text[MT_BUDGET_PLACES * 8 + 16] = "";
    (void)state;
    for (int i = 0; i < MT_BUDGET_PLACES; i++)
        strcat(text, i ? ",gpu=1" : "gpu=1");
    struct budget_needs needs = {.n = 0};
    assert_int_equal(budget_parse_needs(text, &needs, NULL), 0);
    assert_int_equal(needs.n, MT_BUDGET_PLACES);
    strcat(text, ",host=1");
    assert_refused(text, "name at most");
}

static void test_times_have_units(void **state)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } times[] = {{"90", UINT64_C(90000000000)},
                 {"90s", UINT64_C(90000000000)},
                 {"250ms", 250000000},
                 {"10m", UINT64_C(600000000000)},
                 {"10min", UINT64_C(600000000000)},
                 {"1.5h", UINT64_C(5400000000000)},
                 {"0", 0}};
    (void)state;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        uint64_t ns = 1;
        assert_int_equal(budget_parse_time(times[i].text, &ns), 0);
        assert_int_equal(ns, times[i].ns);
    }
}

static void test_what_is_no_time_is_refused(void **state)
{
    static const char *const wrong[] = {"",    "s",   "-1",  "+1", " 1",  "1 s",    "1d",
                                        "inf", "nan", "1e9", "1x", "1mm", "300000h"};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint64_t ns = 7;
        assert_int_equal(budget_parse_time(wrong[i], &ns), MT_EARG);
        assert_int_equal(ns, 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_needs_are_read_in_order),
        cmocka_unit_test(test_any_device_may_be_asked_for_twice),
        cmocka_unit_test(test_what_is_no_need_says_how_one_looks),
        cmocka_unit_test(test_there_may_be_so_many_places_and_no_more),
        cmocka_unit_test(test_times_have_units),
        cmocka_unit_test(test_what_is_no_time_is_refused),
    };
    return RUN_TESTS(tests);
}
