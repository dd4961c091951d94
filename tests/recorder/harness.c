/* SPDX-License-Identifier: MIT */
/* Running programs under the recorder; it knows nothing of what they do. */
#include "recorder/harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memtally/error.h>

const char *program_path(const char *variable)
{
    const char *path = getenv(variable);
    if (!path)
        fail_msg("%s is not set; run this test through meson", variable);
    return path;
}

static void set_number(const char *name, int number)
{
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    setenv(name, text, 1);
}

static void set_environment(const struct how *how, const char *directory)
{
    char preload[1024];
    const char *after = how->preload ? how->preload : "";
    if (how->setting)
        putenv((char *)(uintptr_t)how->setting);
    snprintf(preload, sizeof preload, "%s:%s",
             how->unrecorded ? "" : program_path("MEMTALLY_TEST_RECORDER"), after);
    unsetenv("LD_PRELOAD");
    if (how->unrecorded && !how->preload)
        return;
    setenv("LD_PRELOAD", preload, 1);
    if (how->unrecorded)
        return;
    setenv("MEMTALLY_RECORD_DIR", directory, 1);
    set_number("MEMTALLY_RECORD_DEPTH", how->depth);
    set_number("MEMTALLY_RECORD_STACKS", how->stacks);
}

static void redirect(const char *directory, const char *name, int to, int flags)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, flags, 0600);
    if (fd < 0 || dup2(fd, to) < 0)
        _exit(99);
    close(fd);
}

static void become(const struct how *how, const char *side, const char *directory,
                   const char *const argv[])
{
    redirect(side, "in", 0, O_RDONLY);
    redirect(side, "out", 1, O_WRONLY | O_CREAT | O_TRUNC);
    redirect(side, "err", 2, O_WRONLY | O_CREAT | O_TRUNC);
    set_environment(how, directory);
    if (how->prepare)
        how->prepare();
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(99);
}

static char *slurp(const char *directory, const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *text = NULL;
    size_t used = 0, got;
    do {
        text = realloc(text, used + 65537);
        assert_non_null(text);
        got = fread(text + used, 1, 65536, file);
        used += got;
    } while (got);
    text[used] = '\0';
    fclose(file);
    return text;
}

static int is_recording(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot && strcmp(dot, ".mtr") == 0;
}

static void open_files(struct ran *ran, const char *directory)
{
    struct dirent **entries;
    int n = scandir(directory, &entries, is_recording, versionsort);
    for (int i = 0; i < n; i++) {
        char path[600];
        struct mt_error error;
        snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
        assert_true(ran->n_files < sizeof ran->files / sizeof *ran->files);
        if (mt_record_file_open(path, &ran->files[ran->n_files++], &error) < 0)
            fail_msg("%s: %s", path, error.text);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

static void write_input(const char *side, const char *input)
{
    char path[300];
    snprintf(path, sizeof path, "%s/in", side);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(input ? input : "", file);
    fclose(file);
}

struct ran *run(const struct how *how, const char *const argv[])
{
    struct ran *ran = calloc(1, sizeof *ran);
    char side[] = "/tmp/memtally-test-side-XXXXXX";
    assert_non_null(ran);
    strcpy(ran->directory, "/tmp/memtally-test-XXXXXX");
    assert_non_null(mkdtemp(ran->directory));
    assert_non_null(mkdtemp(side));
    write_input(side, how->input);
    const char *directory = how->directory ? how->directory : ran->directory;
    fflush(NULL);
    ran->pid = fork();
    assert_true(ran->pid >= 0);
    if (ran->pid == 0)
        become(how, side, directory, argv);
    if (how->meanwhile)
        how->meanwhile(ran->pid, ran->directory);
    while (waitpid(ran->pid, &ran->status, 0) < 0)
        assert_int_equal(errno, EINTR);
    ran->out = slurp(side, "out");
    ran->err = slurp(side, "err");
    open_files(ran, directory);
    char command[600];
    snprintf(command, sizeof command, "rm -rf %s", side);
    assert_int_equal(system(command), 0);
    return ran;
}

void ran_free(struct ran *ran)
{
    char command[600];
    for (size_t i = 0; i < ran->n_files; i++)
        mt_record_file_close(ran->files[i]);
    snprintf(command, sizeof command, "rm -rf %s", ran->directory);
    assert_int_equal(system(command), 0);
    free(ran->out);
    free(ran->err);
    free(ran);
}

int exited(const struct ran *ran, int code)
{
    if (WIFEXITED(ran->status) && WEXITSTATUS(ran->status) == code)
        return 1;
    print_message("status %#x, said: %s%s\n", (unsigned)ran->status, ran->out, ran->err);
    return 0;
}

const struct mt_record_file *the_file(const struct ran *ran)
{
    assert_int_equal(ran->n_files, 1);
    return ran->files[0];
}

const struct mt_record_file *file_of(const struct ran *ran, pid_t pid)
{
    const struct mt_record_file *found = NULL;
    for (size_t i = 0; i < ran->n_files; i++)
        if (ran->files[i]->header.pid == (uint32_t)pid) {
            assert_null(found);
            found = ran->files[i];
        }
    assert_non_null(found);
    return found;
}

uint64_t number_after(const char *text, const char *key)
{
    const char *found = strstr(text, key);
    if (!found)
        fail_msg("no %s in: %s", key, text);
    return strtoull(found + strlen(key), NULL, 0);
}
