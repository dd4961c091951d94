/* SPDX-License-Identifier: MIT */
/* Reading maps text: lines as kernels write them, and lines as nobody should. */
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

#include "tally/maps.h"

/* Captured on Linux 6.18 from a Python program and from llama-bench. */
static const char captured[] =
    "564d3a000000-564d3a001000 r--p 00000000 fe:00 3018                       /usr/bin/python3.11\n"
    "564d3a001000-564d3a002000 r-xp 00001000 fe:00 3018                       /usr/bin/python3.11\n"
    "564d7b5a4000-564d7b6f1000 rw-p 00000000 00:00 0                          [heap]\n"
    "7f43be12c000-7f43ce1d2000 r--s 00000000 fe:00 655432                     "
    "/models/a model.gguf (deleted)\n"
    "7f43cfc1b000-7f43cfc2a000 rw-p 00000000 00:00 0 \n"
    "7f43cfc2a000-7f43cfc2b000 rw-s 00000000 00:01 77                         "
    "/memfd:doublemapper (deleted)\n"
    "7f43cfc2b000-7f43cfc2c000 rw-s 00000000 00:01 78                         "
    "/dev/zero (deleted)\n"
    "7f43cfc2c000-7f43cfc2d000 rw-s 00000000 00:06 300                        /dev/nvidia0\n"
    "7f43cfc2d000-7f43cfc2e000 rw-p 00000000 00:00 0                          [anon: glibc: "
    "malloc]\n"
    "7f43cfc2e000-7f43cfc2f000 rw-s 00000000 00:01 79                         [anon_shmem:mine]\n"
    "7f43cfc2f000-7f43cfc30000 rw-s 00000000 00:19 5                          /dev/shm/sem.x\n"
    "7f43cfe00000-7f43d0000000 rw-p 00000000 00:0f 41                         "
    "/anon_hugepage (deleted)\n"
    "7f43d0c00000-7f43d0c01000 r--p 00000000 fe:00 12                         "
    "/tmp/line\\012break\n"
    "7ffd1a2c0000-7ffd1a2e1000 rw-p 00000000 00:00 0                          [stack]\n"
    "7ffd1a3f2000-7ffd1a3f6000 r--p 00000000 00:00 0                          [vvar]\n"
    "7ffd1a3f6000-7ffd1a3f8000 r-xp 00000000 00:00 0                          [vdso]\n"
    "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";

static const struct {
    uint64_t start;
    enum mt_vma_kind kind;
    const char *name;
} expected[] = {
    {0x564d3a000000, MT_VMA_FILE, "/usr/bin/python3.11"},
    {0x564d3a001000, MT_VMA_FILE, "/usr/bin/python3.11"},
    {0x564d7b5a4000, MT_VMA_HEAP, "[heap]"},
    {0x7f43be12c000, MT_VMA_FILE, "/models/a model.gguf"},
    {0x7f43cfc1b000, MT_VMA_ANONYMOUS, ""},
    {0x7f43cfc2a000, MT_VMA_SHARED_MEMORY, "/memfd:doublemapper"},
    {0x7f43cfc2b000, MT_VMA_SHARED_MEMORY, "/dev/zero"},
    {0x7f43cfc2c000, MT_VMA_DEVICE, "/dev/nvidia0"},
    {0x7f43cfc2d000, MT_VMA_ANONYMOUS, "[anon: glibc: malloc]"},
    {0x7f43cfc2e000, MT_VMA_SHARED_MEMORY, "[anon_shmem:mine]"},
    {0x7f43cfc2f000, MT_VMA_SHARED_MEMORY, "/dev/shm/sem.x"},
    {0x7f43cfe00000, MT_VMA_HUGETLB, "/anon_hugepage"},
    {0x7f43d0c00000, MT_VMA_FILE, "/tmp/line\\012break"},
    {0x7ffd1a2c0000, MT_VMA_STACK, "[stack]"},
    {0x7ffd1a3f2000, MT_VMA_SPECIAL, "[vvar]"},
    {0x7ffd1a3f6000, MT_VMA_SPECIAL, "[vdso]"},
    {0xffffffffff600000, MT_VMA_SPECIAL, "[vsyscall]"},
};

static void test_captured_lines_are_read(void **state)
{
    (void)state;
    struct mt_maps maps;
    assert_int_equal(mt_maps_parse(captured, strlen(captured), &maps), 0);
    assert_int_equal(maps.n, sizeof expected / sizeof *expected);
    assert_int_equal(maps.lines_bad, 0);
    for (size_t i = 0; i < maps.n; i++) {
        assert_int_equal(maps.vmas[i].start, expected[i].start);
        assert_int_equal(maps.vmas[i].kind, expected[i].kind);
        assert_string_equal(maps.vmas[i].name, expected[i].name);
    }
    const struct mt_vma *model = &maps.vmas[3];
    assert_int_equal(model->end, 0x7f43ce1d2000);
    assert_int_equal(model->inode, 655432);
    assert_int_equal(model->device, (uint64_t)0xfe << 32);
    assert_true(model->readable && model->shared && !model->writable && !model->executable);
    assert_int_equal(maps.vmas[1].offset, 0x1000);
    assert_true(maps.vmas[1].executable && !maps.vmas[1].shared);
    mt_maps_finish(&maps);
}

static void test_an_address_is_found_up_to_the_edge_of_its_mapping(void **state)
{
    (void)state;
    struct mt_maps maps;
    assert_int_equal(mt_maps_parse(captured, strlen(captured), &maps), 0);
    assert_ptr_equal(mt_maps_find(&maps, 0x564d3a000000), &maps.vmas[0]);
    assert_ptr_equal(mt_maps_find(&maps, 0x564d3a000fff), &maps.vmas[0]);
    assert_ptr_equal(mt_maps_find(&maps, 0x564d3a001000), &maps.vmas[1]);
    assert_null(mt_maps_find(&maps, 0x564d3a002000));
    assert_null(mt_maps_find(&maps, 0x564d39ffffff));
    assert_null(mt_maps_find(&maps, UINT64_MAX));
    mt_maps_finish(&maps);
}

static void test_lines_that_make_no_sense_are_counted_and_left_out(void **state)
{
    (void)state;
    static const char text[] =
        "1000-2000 rw-p 00000000 00:00 0 \n"
        "\n"
        "garbage\n"
        "3000-2000 rw-p 00000000 00:00 0 \n"           /* backwards */
        "10000000000000000-2 rw-p 00000000 00:00 0 \n" /* too long a number */
        "4000-5000 rw-p 00000000 00:00\n"              /* cut */
        "5000-6000 r"                                  /* cut */
        "\n"
        "6000-7000 rw-p 00000000 00:00 99999999999999999999999 x\n"
        "8000-9000 rw-p 00000000 00:00 0 ";
    struct mt_maps maps;
    assert_int_equal(mt_maps_parse(text, strlen(text), &maps), 0);
    assert_int_equal(maps.n, 2);
    assert_int_equal(maps.vmas[0].start, 0x1000);
    assert_int_equal(maps.vmas[1].start, 0x8000);
    assert_int_equal(maps.lines_bad, 7);
    mt_maps_finish(&maps);
}

/* Text that was read while the process changed shows ranges twice or out of order. */
static void test_overlapping_lines_become_separate_ranges(void **state)
{
    (void)state;
    static const char text[] = "5000-9000 rw-p 00000000 00:00 0 b\n"
                               "1000-6000 rw-p 00000000 00:00 0 a\n"
                               "2000-3000 rw-p 00000000 00:00 0 inside\n"
                               "8000-a000 rw-p 00004000 00:00 0 c\n";
    struct mt_maps maps;
    assert_int_equal(mt_maps_parse(text, strlen(text), &maps), 0);
    assert_int_equal(maps.n, 3);
    for (size_t i = 0; i + 1 < maps.n; i++)
        assert_true(maps.vmas[i].end <= maps.vmas[i + 1].start);
    assert_string_equal(maps.vmas[0].name, "a");
    assert_int_equal(maps.vmas[1].start, 0x6000);
    /* What is left of a range keeps the place in its file. */
    assert_int_equal(maps.vmas[2].start, 0x9000);
    assert_int_equal(maps.vmas[2].offset, 0x5000);
    mt_maps_finish(&maps);
}

static void test_every_cut_of_the_text_is_survived(void **state)
{
    (void)state;
    for (size_t length = 0; length < sizeof captured; length++) {
        struct mt_maps maps;
        char *text = malloc(length + 1);
        assert_non_null(text);
        memcpy(text, captured, length);
        assert_int_equal(mt_maps_parse(text, length, &maps), 0);
        assert_true(maps.n <= sizeof expected / sizeof *expected);
        mt_maps_finish(&maps);
        free(text);
    }
}

static void test_fields_are_read_in_bytes_or_are_unknown(void **state)
{
    (void)state;
    static const char text[] = "Rss:               12 kB\nPss:\t 3 kB\nVmHWM:\t\nBig: "
                               "99999999999999999999 kB\nRssShmem: 5 kB\nLast: 7";
    size_t length = strlen(text);
    assert_int_equal(mt_field_bytes(text, length, "Rss"), 12 * 1024);
    assert_int_equal(mt_field_bytes(text, length, "Pss"), 3 * 1024);
    assert_int_equal(mt_field_bytes(text, length, "Last"), 7 * 1024);
    assert_int_equal(mt_field_bytes(text, length, "VmHWM"), UINT64_MAX);
    assert_int_equal(mt_field_bytes(text, length, "Big"), UINT64_MAX);
    assert_int_equal(mt_field_bytes(text, length, "Swap"), UINT64_MAX);
    assert_int_equal(mt_field_bytes(text, 0, "Rss"), UINT64_MAX);
}

/* A library of 0x4000 bytes, the last of them writable, and what the kernel has behind it. */
static void test_zeroed_data_is_no_larger_than_its_file_where_nobody_recorded(void **state)
{
    struct mt_vma text = {
        .start = 0x10000, .end = 0x13000, .kind = MT_VMA_FILE, .inode = 7, .device = 1};
    struct mt_vma data = text;
    struct mt_vma behind = {.start = 0x14000, .end = 0x18000, .kind = MT_VMA_ANONYMOUS};
    struct mt_mapped_file file = {0};
    (void)state;
    data.start = 0x13000;
    data.end = 0x14000;
    data.writable = 1;
    mt_mapped_file_note(&file, &text, 3);
    assert_false(mt_mapped_file_is_zeroed(&file, &behind, 1));
    mt_mapped_file_note(&file, &data, 3);
    assert_int_equal(file.claim, 3);
    assert_true(mt_mapped_file_is_zeroed(&file, &behind, 0));
    behind.end += 0x1000;
    assert_false(mt_mapped_file_is_zeroed(&file, &behind, 0));
    assert_true(mt_mapped_file_is_zeroed(&file, &behind, 1));
    behind.start += 0x1000;
    assert_false(mt_mapped_file_is_zeroed(&file, &behind, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zeroed_data_is_no_larger_than_its_file_where_nobody_recorded),
        cmocka_unit_test(test_captured_lines_are_read),
        cmocka_unit_test(test_an_address_is_found_up_to_the_edge_of_its_mapping),
        cmocka_unit_test(test_lines_that_make_no_sense_are_counted_and_left_out),
        cmocka_unit_test(test_overlapping_lines_become_separate_ranges),
        cmocka_unit_test(test_every_cut_of_the_text_is_survived),
        cmocka_unit_test(test_fields_are_read_in_bytes_or_are_unknown),
    };
    return RUN_TESTS(tests);
}
