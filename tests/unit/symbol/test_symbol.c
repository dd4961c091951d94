/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "symbol/demangle.h"
#include "symbol/symbol.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *full_path;
static char *stripped_path;

struct place {
    char path[PATH_MAX];
    uint64_t file_offset;
};

/* Where an address of this process comes from, by /proc/self/maps. */
static struct place place_of(const void *address)
{
    struct place place = {.file_offset = UINT64_MAX};
    unsigned long start;
    unsigned long end;
    unsigned long offset;
    char line[PATH_MAX + 128];
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) {
        int at = 0;
        if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %n", &start, &end, &offset, &at) != 3)
            continue;
        if ((uintptr_t)address < start || (uintptr_t)address >= end)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(place.path, sizeof place.path, "%s", line + at);
        place.file_offset = (uintptr_t)address - start + offset;
    }
    fclose(maps);
    assert_int_not_equal(place.file_offset, UINT64_MAX);
    return place;
}

/* The address of a function as bytes of its code. */
static const char *code_of(void *handle, const char *name)
{
    const char *code = dlsym(handle, name);
    assert_non_null(code);
    return code;
}

static struct mt_symbolizer *symbolizer_with(const char *debug_directory)
{
    struct mt_symbolizer *symbolizer = NULL;
    struct mt_symbolizer_options options = {.debug_directory = debug_directory};
    assert_int_equal(mt_symbolizer_create(&options, &symbolizer, NULL), 0);
    return symbolizer;
}

static void assert_named(struct mt_symbolizer *symbolizer, const void *address,
                         const char *expected)
{
    char text[128];
    struct place place = place_of(address);
    struct mt_module module = {.path = place.path};
    assert_int_equal(mt_symbolizer_name(symbolizer, &module, place.file_offset, text, sizeof text),
                     1);
    assert_string_equal(text, expected);
}

static void assert_place(struct mt_symbolizer *symbolizer, const char *path, uint64_t file_offset,
                         const char *expected)
{
    char text[128];
    struct mt_module module = {.path = path};
    assert_int_equal(mt_symbolizer_name(symbolizer, &module, file_offset, text, sizeof text), 0);
    assert_string_equal(text, expected);
}

__attribute__((noinline)) static int function_of_this_test(int n)
{
    __asm__ volatile("" : "+r"(n));
    return n * 7 + 3;
}

static void test_a_static_function_of_this_program_is_named(void **state)
{
    (void)state;
    struct mt_symbolizer *symbolizer = symbolizer_with("/nowhere");
    const char *code = (const char *)(uintptr_t)function_of_this_test;
    assert_int_equal(function_of_this_test(1), 10);
    assert_named(symbolizer, code, "function_of_this_test");
    assert_named(symbolizer, code + 1, "function_of_this_test");
    mt_symbolizer_destroy(symbolizer);
}

static void test_the_name_that_others_use_wins_over_the_librarys_own(void **state)
{
    (void)state;
    struct mt_symbolizer *symbolizer = symbolizer_with("/nowhere");
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(libc);
    assert_named(symbolizer, code_of(libc, "malloc") + 1, "malloc");
    assert_named(symbolizer, code_of(libc, "mmap") + 1, "mmap");
    assert_named(symbolizer, code_of(libc, "qsort") + 1, "qsort");
    dlclose(libc);
    mt_symbolizer_destroy(symbolizer);
}

static void test_a_stripped_library_names_what_it_exports_and_nothing_else(void **state)
{
    (void)state;
    struct mt_symbolizer *symbolizer = symbolizer_with("/nowhere");
    void *fixture = dlopen(stripped_path, RTLD_NOW);
    assert_non_null(fixture);
    uintptr_t (*inside)(void) = NULL;
    void *found = dlsym(fixture, "fixture_inside");
    memcpy(&inside, &found, sizeof inside);
    assert_named(symbolizer, code_of(fixture, "fixture_first"), "fixture_first");

    struct place hidden = place_of((const void *)inside());
    assert_true((const char *)inside() > code_of(fixture, "fixture_first"));
    char expected[64];
    snprintf(expected, sizeof expected, "fixture_stripped.so+0x%llx",
             (unsigned long long)hidden.file_offset);
    assert_place(symbolizer, hidden.path, hidden.file_offset, expected);
    dlclose(fixture);
    mt_symbolizer_destroy(symbolizer);
}

static void copy_file(const char *from, const char *to, size_t length)
{
    static char bytes[1 << 20];
    FILE *source = fopen(from, "rb");
    assert_non_null(source);
    size_t n = fread(bytes, 1, sizeof bytes, source);
    fclose(source);
    FILE *target = fopen(to, "wb");
    assert_non_null(target);
    n = length < n ? length : n;
    assert_int_equal(fwrite(bytes, 1, n, target), n);
    fclose(target);
}

static void test_a_separate_debug_file_of_the_same_build_gives_the_rest(void **state)
{
    (void)state;
    char directory[] = "/tmp/mt-symbol-XXXXXX";
    char path[256];
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/.build-id", directory);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/.build-id/fe", directory);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/.build-id/fe/edbeef00112233.debug", directory);
    copy_file(full_path, path, SIZE_MAX);

    struct mt_symbolizer *symbolizer = symbolizer_with(directory);
    void *fixture = dlopen(stripped_path, RTLD_NOW);
    assert_non_null(fixture);
    uintptr_t (*inside)(void) = NULL;
    void *found = dlsym(fixture, "fixture_inside");
    memcpy(&inside, &found, sizeof inside);
    assert_named(symbolizer, (const void *)inside(), "hidden_function");
    dlclose(fixture);
    mt_symbolizer_destroy(symbolizer);

    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/.build-id/fe", directory);
    assert_int_equal(rmdir(path), 0);
    snprintf(path, sizeof path, "%s/.build-id", directory);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(directory), 0);
}

static void test_a_file_that_was_replaced_is_not_believed(void **state)
{
    (void)state;
    static const uint8_t recorded[] = {0xfe, 0xed, 0xbe, 0xef, 0x00, 0x11, 0x22, 0x33};
    static const uint8_t other[] = {0xfe, 0xed, 0xbe, 0xef, 0x00, 0x11, 0x22, 0x34};
    struct mt_symbolizer *symbolizer = symbolizer_with("/nowhere");
    void *fixture = dlopen(full_path, RTLD_NOW);
    assert_non_null(fixture);
    struct place place = place_of(code_of(fixture, "fixture_first"));
    struct mt_module module = {place.path, recorded, sizeof recorded};
    char text[128];
    assert_int_equal(mt_symbolizer_name(symbolizer, &module, place.file_offset, text, sizeof text),
                     1);
    assert_string_equal(text, "fixture_first");
    module.build_id = other;
    assert_int_equal(mt_symbolizer_name(symbolizer, &module, place.file_offset, text, sizeof text),
                     0);
    assert_int_equal(strncmp(text, "fixture_full.so+0x", strlen("fixture_full.so+0x")), 0);
    dlclose(fixture);
    mt_symbolizer_destroy(symbolizer);
}

static void test_what_is_no_program_gives_its_place_and_does_not_hang(void **state)
{
    (void)state;
    char directory[] = "/tmp/mt-symbol-XXXXXX";
    char text_file[64];
    char fifo[64];
    char folder[64];
    assert_non_null(mkdtemp(directory));
    snprintf(text_file, sizeof text_file, "%s/text", directory);
    snprintf(fifo, sizeof fifo, "%s/fifo", directory);
    snprintf(folder, sizeof folder, "%s/folder", directory);
    copy_file("/proc/self/status", text_file, SIZE_MAX);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(mkdir(folder, 0700), 0);

    struct mt_symbolizer *symbolizer = symbolizer_with("/nowhere");
    assert_place(symbolizer, text_file, 0x1234, "text+0x1234");
    assert_place(symbolizer, fifo, 16, "fifo+0x10");
    assert_place(symbolizer, folder, 0, "folder+0x0");
    assert_place(symbolizer, "/nowhere/libgone.so (deleted)", 255, "libgone.so (deleted)+0xff");
    assert_place(symbolizer, "/dev/zero", 1, "zero+0x1");
    assert_place(symbolizer, "[vdso]", 0xa00, "[vdso]+0xa00");
    assert_place(symbolizer, "", 0xa00, "[anonymous]+0xa00");
    assert_place(symbolizer, "/nowhere/\x1b[31m", 1, "?[31m+0x1");
    assert_place(symbolizer, full_path, UINT64_MAX, "fixture_full.so+0xffffffffffffffff");
    mt_symbolizer_destroy(symbolizer);

    assert_int_equal(unlink(text_file), 0);
    assert_int_equal(unlink(fifo), 0);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(rmdir(directory), 0);
}

/* Whatever is in the file, a look-up returns; sanitizers watch what it touches meanwhile. */
static void look_up_everywhere(const char *path)
{
    char text[64];
    struct mt_symbolizer *symbolizer = symbolizer_with("/nowhere");
    struct mt_module module = {.path = path};
    for (uint64_t file_offset = 0; file_offset < 0x4000; file_offset += 0x80)
        mt_symbolizer_name(symbolizer, &module, file_offset, text, sizeof text);
    mt_symbolizer_destroy(symbolizer);
}

static void test_a_truncated_program_is_survived_at_every_length(void **state)
{
    (void)state;
    char path[] = "/tmp/mt-symbol-XXXXXX";
    struct stat status;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(stat(full_path, &status), 0);
    for (off_t length = 0; length < status.st_size; length += 61) {
        copy_file(full_path, path, (size_t)length);
        look_up_everywhere(path);
    }
    assert_int_equal(unlink(path), 0);
}

static void test_damaged_headers_are_survived(void **state)
{
    (void)state;
    char path[] = "/tmp/mt-symbol-XXXXXX";
    struct stat status;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(stat(full_path, &status), 0);
    uint32_t random = 1;
    for (int round = 0; round < 600; round++) {
        copy_file(full_path, path, SIZE_MAX);
        for (int i = 0; i < 8; i++) {
            random = random * 1664525 + 1013904223;
            uint8_t byte = (uint8_t)(random >> 24);
            /* Half in the file and program headers, half in the section headers at the end. */
            off_t at = i % 2 ? (off_t)(random >> 8) % 1024
                             : status.st_size - 1 - (off_t)(random >> 8) % 2048;
            assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        }
        look_up_everywhere(path);
    }
    close(fd);
    assert_int_equal(unlink(path), 0);
}

static void test_names_of_c_plus_plus_are_written_out_where_that_is_affordable(void **state)
{
    (void)state;
    struct mt_demangler demangler;
    mt_demangler_init(&demangler);
    if (!demangler.demangle) {
        print_message("# not run: there is no libstdc++ to write names out\n");
        mt_demangler_finish(&demangler);
        return;
    }
    char *name = mt_demangle(&demangler, "_ZN5torch3jit6Module4loadERKSs");
    assert_non_null(name);
    assert_non_null(strstr(name, "torch::jit::Module::load("));
    free(name);
    assert_null(mt_demangle(&demangler, "malloc"));
    assert_null(mt_demangle(&demangler, "_Znonsense"));

    /* Each S_ repeats all before it: this one would write out gigabytes. */
    char bomb[512] = "_Z1fI1AE1B";
    for (int i = 0; i < 60; i++)
        strcat(bomb, "S_S0_");
    assert_null(mt_demangle(&demangler, bomb));
    char longer[4096] = "_Z";
    memset(longer + 2, '1', sizeof longer - 3);
    assert_null(mt_demangle(&demangler, longer));
    mt_demangler_finish(&demangler);
}

static void test_a_name_is_cut_to_the_room_that_there_is(void **state)
{
    (void)state;
    struct mt_symbolizer *symbolizer = symbolizer_with("/nowhere");
    struct place place = place_of((const void *)(uintptr_t)function_of_this_test);
    struct mt_module module = {.path = place.path};
    char text[9] = "";
    assert_int_equal(mt_symbolizer_name(symbolizer, &module, place.file_offset, text, sizeof text),
                     1);
    assert_string_equal(text, "function");
    assert_int_equal(mt_symbolizer_name(symbolizer, &module, place.file_offset, NULL, 0), 0);
    mt_symbolizer_destroy(symbolizer);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_static_function_of_this_program_is_named),
        cmocka_unit_test(test_the_name_that_others_use_wins_over_the_librarys_own),
        cmocka_unit_test(test_a_stripped_library_names_what_it_exports_and_nothing_else),
        cmocka_unit_test(test_a_separate_debug_file_of_the_same_build_gives_the_rest),
        cmocka_unit_test(test_a_file_that_was_replaced_is_not_believed),
        cmocka_unit_test(test_what_is_no_program_gives_its_place_and_does_not_hang),
        cmocka_unit_test(test_a_truncated_program_is_survived_at_every_length),
        cmocka_unit_test(test_damaged_headers_are_survived),
        cmocka_unit_test(test_names_of_c_plus_plus_are_written_out_where_that_is_affordable),
        cmocka_unit_test(test_a_name_is_cut_to_the_room_that_there_is),
    };
    if (argc != 3) {
        fprintf(stderr, "usage: test_symbol FIXTURE STRIPPED_FIXTURE\n");
        return 2;
    }
    full_path = realpath(argv[1], NULL);
    stripped_path = realpath(argv[2], NULL);
    int status = full_path && stripped_path ? RUN_TESTS(tests) : 2;
    free(full_path);
    free(stripped_path);
    return status;
}
