/* SPDX-License-Identifier: MIT */
/* Kinds of processors, by /proc/cpuinfo as machines give it. */
#include "tests/support/unit.h"

#include "device/processor.h"
#include "tests/support/replay.h"

static int granted(void *context)
{
    (void)context;
    return 1;
}

static int refused(void *context)
{
    (void)context;
    return 0;
}

static enum mt_processor look(const char *machine, int (*grants_tiles)(void *context), int *lacks)
{
    struct mt_processor_os os = {.grants_tiles = grants_tiles};
    struct replay *replay = replay_open(machine, &os.host);
    enum mt_processor processor = mt_processor_look(&os, lacks);
    replay_close(replay);
    return processor;
}

static enum mt_processor of_text(const char *text)
{
    struct mt_processor_os os = {.grants_tiles = granted};
    struct replay *replay = replay_text(text, &os.host);
    enum mt_processor processor = mt_processor_look(&os, NULL);
    replay_close(replay);
    return processor;
}

static void test_a_xeon_with_amx_counts_as_such_where_the_kernel_grants_it(void **state)
{
    (void)state;
    int lacks;
    assert_int_equal(look("processor-sapphire-rapids", granted, &lacks), MT_PROCESSOR_AMX);
    assert_int_equal(lacks, 0);
    assert_int_equal(look("processor-sapphire-rapids", refused, &lacks), MT_PROCESSOR_AVX512);
    assert_int_equal(lacks, 1);
}

static void test_other_machines_are_told_by_their_features(void **state)
{
    (void)state;
    int lacks;
    assert_int_equal(look("processor-zen4", granted, &lacks), MT_PROCESSOR_AVX512);
    assert_int_equal(lacks, 0);
    assert_int_equal(look("processor-neoverse-n1", granted, &lacks), MT_PROCESSOR_DOTPROD);
}

static void test_words_are_whole_and_of_the_right_line(void **state)
{
    (void)state;
    assert_int_equal(of_text("=== /proc/cpuinfo\nflags\t\t: fpu avx2 avx512_vnni\n"),
                     MT_PROCESSOR_AVX2);
    assert_int_equal(of_text("=== /proc/cpuinfo\nflags\t\t: fpu avx2x xavx2\n"),
                     MT_PROCESSOR_X86_64);
    assert_int_equal(of_text("=== /proc/cpuinfo\nvmx flags\t: avx2\nflags\t\t: fpu\n"
                             "bugs\t\t: avx2\n"),
                     MT_PROCESSOR_X86_64);
    assert_int_equal(of_text("=== /proc/cpuinfo\nflags\t\t: avx2"), MT_PROCESSOR_AVX2);
    assert_int_equal(of_text("=== /proc/cpuinfo\nFeatures\t: fp asimd\n"), MT_PROCESSOR_AARCH64);
}

/* AMX for 8-bit integers is of use with AVX-512 VNNI alone. */
static void test_amx_without_vnni_is_none(void **state)
{
    (void)state;
    assert_int_equal(of_text("=== /proc/cpuinfo\nflags\t\t: avx2 avx512f amx_int8 amx_tile\n"),
                     MT_PROCESSOR_AVX512);
}

static void test_a_machine_that_says_nothing_is_unknown(void **state)
{
    (void)state;
    assert_int_equal(of_text("=== /etc/hostname\nbare\n"), MT_PROCESSOR_UNKNOWN);
    assert_int_equal(of_text("=== /proc/cpuinfo\nisa\t\t: rv64imafdcv\n"), MT_PROCESSOR_UNKNOWN);
    assert_int_equal(of_text("=== /proc/cpuinfo\nflags"), MT_PROCESSOR_UNKNOWN);
}

static void test_names_go_with_the_kinds(void **state)
{
    (void)state;
    assert_string_equal(mt_processor_name(MT_PROCESSOR_AMX), "amx");
    assert_string_equal(mt_processor_name(MT_PROCESSOR_X86_64), "x86-64");
    assert_string_equal(mt_processor_name(MT_PROCESSOR_COUNT), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_xeon_with_amx_counts_as_such_where_the_kernel_grants_it),
        cmocka_unit_test(test_other_machines_are_told_by_their_features),
        cmocka_unit_test(test_words_are_whole_and_of_the_right_line),
        cmocka_unit_test(test_amx_without_vnni_is_none),
        cmocka_unit_test(test_a_machine_that_says_nothing_is_unknown),
        cmocka_unit_test(test_names_go_with_the_kinds),
    };
    return RUN_TESTS(tests);
}
