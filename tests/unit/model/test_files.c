/* SPDX-License-Identifier: MIT */
/* Files of this machine, and below a folder that is another process's root. */
#include "tests/support/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memtally/error.h>

#include "model/files.h"

static char folder[] = "/tmp/memtally-files-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[96];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void link_to(const char *target, const char *name)
{
    assert_int_equal(symlink(target, path_of(name)), 0);
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder) || mkdir(path_of("models"), 0755) < 0)
        return -1;
    write_file("models/x.gguf", "within");
    return 0;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

static int tear_down(void **state)
{
    (void)state;
    return nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* The first bytes of a file, or "" where it cannot be opened. */
static const char *text_of(const struct mt_model_files *files, const char *path)
{
    static char text[16];
    struct mt_model_source source;
    memset(text, 0, sizeof text);
    if (files->open(files->argument, path, &source, NULL) != MT_OK)
        return "";
    size_t length = source.size_bytes < sizeof text - 1 ? source.size_bytes : sizeof text - 1;
    assert_int_equal(source.read(source.argument, 0, text, length, NULL), 0);
    source.close(source.argument);
    return text;
}

static int skip_without_openat2(const struct mt_model_files *files)
{
    struct mt_model_source source;
    struct mt_error error = {0};
    int code = files->open(files->argument, "/models/x.gguf", &source, &error);
    assert_int_not_equal(code, MT_ENOTFOUND);
    if (code == MT_OK)
        source.close(source.argument);
    else
        print_message("not tried, the kernel opens nothing below a folder: %s\n", error.text);
    return code != MT_OK;
}

static void test_no_path_and_no_link_leads_out_of_another_root(void **state)
{
    (void)state;
    struct mt_model_files files;
    int root = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    mt_model_files_within(&root, &files);
    if (skip_without_openat2(&files)) {
        close(root);
        return;
    }
    link_to("/models/x.gguf", "models/absolute.gguf");
    link_to("/etc/passwd", "models/out");
    link_to("../../../../../../etc/passwd", "models/up");
    link_to("/etc", "etc-of-host");
    assert_string_equal(text_of(&files, "/models/x.gguf"), "within");
    assert_string_equal(text_of(&files, "/models/absolute.gguf"), "within");
    assert_string_equal(text_of(&files, "/../models/x.gguf"), "within");
    assert_true(*text_of(mt_model_files_local(), path_of("models/out")) != '\0');
    assert_string_equal(text_of(&files, "/models/out"), "");
    assert_string_equal(text_of(&files, "/models/up"), "");
    assert_string_equal(text_of(&files, "/etc/passwd"), "");
    assert_false(files.is_folder(files.argument, "/etc-of-host"));
    assert_true(files.is_folder(files.argument, "/models"));
    close(root);
}

static void test_without_a_root_nothing_is_found(void **state)
{
    (void)state;
    struct mt_model_files files;
    int root = -1;
    mt_model_files_within(&root, &files);
    assert_false(files.is_folder(files.argument, "/etc"));
    assert_string_equal(text_of(&files, "/etc/passwd"), "");
}

/* Some devices act when they are opened, as a watchdog does. */
static void test_what_is_no_regular_file_is_not_opened(void **state)
{
    (void)state;
    char events[256];
    struct mt_model_source source;
    struct mt_error error;
    const struct mt_model_files *files = mt_model_files_local();
    int noted = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    assert_true(inotify_add_watch(noted, path_of("pipe"), IN_OPEN) >= 0);
    assert_int_equal(files->open(files->argument, path_of("pipe"), &source, &error), MT_EARG);
    assert_non_null(strstr(error.text, "a device, a pipe or the like"));
    assert_int_equal(read(noted, events, sizeof events), -1);
    assert_int_equal(errno, EAGAIN);
    int fd = open(path_of("pipe"), O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* which would be seen */
    assert_true(read(noted, events, sizeof events) > 0);
    close(fd);
    close(noted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_path_and_no_link_leads_out_of_another_root),
        cmocka_unit_test(test_without_a_root_nothing_is_found),
        cmocka_unit_test(test_what_is_no_regular_file_is_not_opened),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
