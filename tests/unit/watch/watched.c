/* SPDX-License-Identifier: MIT */
#include "watched.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memtally/error.h>
#include <memtally/recording.h>

char watched_folder[64];

int watched_setup(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    strcpy(watched_folder, "/tmp/memtally-watch-XXXXXX");
    return mkdtemp(watched_folder) && chmod(watched_folder, 0755) == 0 ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

int watched_teardown(void **state)
{
    (void)state;
    return nftw(watched_folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static const char *from_environment(const char *name)
{
    const char *value = getenv(name);
    if (!value)
        fail_msg("%s is not in the environment; run this by the test runner", name);
    return value;
}

const char *watched_child(void)
{
    return from_environment("WATCHED_CHILD");
}

const char *watched_static_child(void)
{
    return from_environment("WATCHED_STATIC_CHILD");
}

const char *watched_recorder(void)
{
    return from_environment("WATCHED_RECORDER");
}

void watched_prepare(struct watched_run *run, const char *program, const char *const *doings)
{
    int in[2], out[2];
    *run = (struct watched_run){0};
    snprintf(run->directory, sizeof run->directory, "%s/r", watched_folder);
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    run->argv[0] = (char *)(uintptr_t)program;
    for (size_t i = 0; doings[i]; i++)
        run->argv[i + 1] = (char *)(uintptr_t)doings[i];
    run->fds[0] = in[0];
    run->fds[1] = out[1];
    run->input = in[1];
    run->output = out[0];
    run->options = (struct mt_run_options){
        .directory = run->directory,
        .recorder_path = watched_recorder(),
        .picture_share = 1,
        .argv = run->argv,
        .environment = environ,
        .stdout_fd = out[1],
        .stderr_fd = -1,
    };
}

void watched_start(struct watched_run *run)
{
    struct mt_error error;
    int saved = dup(STDIN_FILENO);
    /* The program has our standard input. */
    assert_true(saved >= 0 && dup2(run->fds[0], STDIN_FILENO) == STDIN_FILENO);
    int result = mt_run_start(&run->options, &run->run, &error);
    dup2(saved, STDIN_FILENO);
    close(saved);
    close(run->fds[0]);
    close(run->fds[1]);
    if (result < 0)
        fail_msg("%s", error.text);
}

static void poll_once(struct watched_run *run, struct mt_run_status *status)
{
    struct mt_error error;
    if (mt_run_poll(run->run, 20, status, &error) < 0)
        fail_msg("%s", error.text);
}

void watched_poll(struct watched_run *run)
{
    struct mt_run_status status;
    poll_once(run, &status);
}

void watched_poll_alive(struct watched_run *run)
{
    struct mt_run_status status;
    poll_once(run, &status);
    if (!status.running)
        fail_msg("the program has ended: it could not start, or was killed");
}

void watched_read_line(struct watched_run *run, char line[256])
{
    size_t length = 0;
    while (length == 0 || line[length - 1] != '\n') {
        struct pollfd fd = {.fd = run->output, .events = POLLIN};
        watched_poll(run);
        if (poll(&fd, 1, 0) <= 0)
            continue;
        assert_true(length < 255);
        assert_int_equal(read(run->output, line + length, 1), 1);
        length++;
        while (line[length - 1] != '\n' && read(run->output, line + length, 1) == 1)
            length++;
    }
    line[length - 1] = '\0';
}

void watched_finish(struct watched_run *run)
{
    struct mt_run_status status = {.running = 1};
    struct mt_error error;
    close(run->input);
    run->input = -1;
    while (status.running)
        if (mt_run_poll(run->run, 1000, &status, &error) < 0)
            fail_msg("%s", error.text);
    if (mt_run_finish(run->run, NULL, NULL, &run->result, &error) < 0)
        fail_msg("%s", error.text);
    close(run->output);
}

void watched_close(struct watched_run *run)
{
    close(run->fds[0]);
    close(run->fds[1]);
    close(run->input);
    close(run->output);
}

struct mt_tally *watched_tally(const struct watched_run *run, enum mt_moment_kind kind,
                               uint64_t time_ns)
{
    const struct mt_moment moment = {kind, time_ns};
    struct mt_recording *recording;
    struct mt_tally *tally = NULL;
    struct mt_error error;
    if (mt_recording_open(run->directory, &recording, &error) < 0)
        fail_msg("%s", error.text);
    if (mt_recording_tally(recording, &moment, &tally, &error) == 0)
        assert_true(mt_tally_adds_up(tally));
    mt_recording_close(recording);
    return tally;
}

const struct mt_tally_process *watched_process(const struct mt_tally *tally, uint64_t pid)
{
    for (size_t i = 0; i < tally->n_processes; i++)
        if (tally->processes[i].pid == pid)
            return &tally->processes[i];
    return NULL;
}

uint64_t watched_rollup(int pid, const char *name)
{
    char path[64], line[256];
    unsigned long long kib;
    uint64_t bytes = UINT64_MAX;
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return bytes;
    while (fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':' &&
            sscanf(line + strlen(name) + 1, "%llu kB", &kib) == 1)
            bytes = kib * 1024;
    fclose(file);
    return bytes;
}

char watched_state(int pid)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    size_t got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[got] = '\0';
    const char *at = strrchr(text, ')');
    return at && at[1] ? at[2] : 0;
}
