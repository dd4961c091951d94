/* SPDX-License-Identifier: MIT */
/* What is copied into a container beside the recorder: a static program, so that it runs in any
 * image, with a shell or without.
 *
 *   memtally-inside guard FOLDER MODIFIED
 *       waits until its standard input and the program of the other way have ended; then removes
 *       FOLDER, in which it lies itself, and sets back the time of the folder above
 *   memtally-inside run FOLDER WORD DEPTH STACKS SHARE PROGRAM [ARGUMENT...]
 *       runs the program under the recorder. What it has to say to memtally are lines on its
 *       standard error that begin with WORD, which nobody else knows; what memtally has to say are
 *       bytes on its standard input, each the number of a signal for the program.
 *
 * Whatever becomes of memtally, the end of the standard input ends the program and removes the
 * folder. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <memtally/error.h>
#include <memtally/run.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "container/inside/libc_version.h"
#include "container/removal.h"

#define POLL_MS      20
#define TELL_EVERY   25   /* of POLL_MS */
#define UNLOCK_STEPS 1500 /* of POLL_MS: what a program that is killed has to end */

/* These stand in place of the library's own. The driver's library of NVIDIA cannot be loaded into a
 * static program, and a folder in /tmp would be left there by a kill: all may write into ours. */
void mt_watch_gpus(struct mt_run *run, uint64_t now_ns);
void mt_watch_gpus_finish(struct mt_run *run);
void mt_side_make(struct mt_run *run, const char *recorder);
void mt_side_leave(const struct mt_run *run);
int mt_side_take_in(const struct mt_run *run, int (*is_busy)(const struct mt_run *run, long pid),
                    struct mt_error *error);

void mt_watch_gpus(struct mt_run *run, uint64_t now_ns)
{
    (void)run;
    (void)now_ns;
}

void mt_watch_gpus_finish(struct mt_run *run)
{
    (void)run;
}

void mt_side_make(struct mt_run *run, const char *recorder)
{
    (void)run;
    (void)recorder;
}

void mt_side_leave(const struct mt_run *run)
{
    (void)run;
}

int mt_side_take_in(const struct mt_run *run, int (*is_busy)(const struct mt_run *run, long pid),
                    struct mt_error *error)
{
    (void)run;
    (void)is_busy;
    (void)error;
    return 0;
}

static int open_lock(const char *folder)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/lock", folder);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* ---- guard ---- */

/* The folder above is as it was, also by its times. */
static int remove_folder(const char *folder, const struct timespec times[2])
{
    char above[PATH_MAX];
    snprintf(above, sizeof above, "%s/..", folder);
    int fd = open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int is_gone = fd >= 0 && mt_container_remove(fd, strrchr(folder, '/') + 1, times);
    if (fd >= 0)
        close(fd);
    return !is_gone;
}

static void wait_for_end_of_input(void)
{
    char bytes[256];
    ssize_t n;
    do
        n = read(STDIN_FILENO, bytes, sizeof bytes);
    while (n > 0 || (n < 0 && errno == EINTR));
}

/* `modified` is "SECONDS.NANOSECONDS", or "-" where it is not known. */
static int guard(const char *folder, const char *modified)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000};
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
    long long seconds;
    long nanoseconds;
    if (sscanf(modified, "%lld.%ld", &seconds, &nanoseconds) == 2)
        times[1] = (struct timespec){.tv_sec = seconds, .tv_nsec = nanoseconds};
    int lock = open_lock(folder);
    wait_for_end_of_input();
    for (int i = 0; i < UNLOCK_STEPS && lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) < 0; i++)
        nanosleep(&pause, NULL);
    if (lock >= 0)
        close(lock);
    return remove_folder(folder, times);
}

/* ---- run ---- */

/* Passes on what memtally says. Returns 0 at the end of it. */
static int take_words(const struct mt_run *run)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    unsigned char word;
    while (poll(&input, 1, 0) > 0) {
        ssize_t n = read(STDIN_FILENO, &word, 1);
        if (n == 0 || (n < 0 && errno != EINTR))
            return 0;
        if (n > 0 && word > 0 && word < NSIG)
            mt_run_signal(run, word);
    }
    return 1;
}

static int watch(struct mt_run *run, const char *word)
{
    struct mt_run_status status = {.running = 1};
    struct mt_run_result end;
    struct mt_error error = {0};
    for (unsigned i = 0; status.running; i++) {
        if (mt_run_poll(run, POLL_MS, &status, &error) < 0)
            fprintf(stderr, "\n%s failed %s\n", word, error.text);
        if (i % TELL_EVERY == 0)
            fprintf(stderr, "\n%s resident %" PRIu64 "\n", word, status.resident_bytes);
        if (error.code || !take_words(run)) {
            mt_run_abandon(run);
            return 1;
        }
    }
    if (mt_run_finish(run, NULL, NULL, &end, &error) < 0) {
        fprintf(stderr, "\n%s failed %s\n", word, error.text);
        return 1;
    }
    fprintf(stderr, "\n%s ended %d %d %" PRIu64 " %" PRIu64 "\n", word, end.exit_code, end.signal,
            end.wall_ns, end.peak_resident_bytes);
    return 0;
}

/* The program is a second one beside the container's own: of the two it is the one that is to end
 * where memory runs short. */
static void be_the_first_to_end(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = write(fd, "1000", 4);
        (void)n;
        close(fd);
    }
}

/* The recorder calls functions of them, and names no library but libc. */
static void preload_parts(void)
{
    const char *given = getenv("LD_PRELOAD");
    char value[PATH_MAX];
    if (snprintf(value, sizeof value, "libdl.so.2:libpthread.so.0%s%s", given ? ":" : "",
                 given ? given : "") < (int)sizeof value)
        setenv("LD_PRELOAD", value, 1);
}

static int run_program(const char *folder, char *const *words)
{
    char recorder[PATH_MAX];
    char recording[PATH_MAX];
    struct mt_error error = {0};
    struct mt_run *run;
    const char *why = inside_why_not_recorded(words[4]);
    snprintf(recorder, sizeof recorder, "%s/libmemtally-record.so", folder);
    snprintf(recording, sizeof recording, "%s/recording", folder);
    struct mt_run_options options = {
        .directory = recording,
        .recorder_path = why ? NULL : recorder,
        .depth = (enum mt_depth)atoi(words[1]),
        .stacks = (enum mt_stacks)atoi(words[2]),
        .picture_share = atof(words[3]),
        .argv = words + 4,
        .stdout_fd = -1,
        .stderr_fd = -1,
    };
    be_the_first_to_end();
    if (!why && inside_has_parts())
        preload_parts();
    options.environment = environ;
    if (mt_run_start(&options, &run, &error) < 0) {
        fprintf(stderr, "\n%s failed %s\n", words[0], error.text);
        return 1;
    }
    if (why)
        fprintf(stderr, "\n%s outside %s\n", words[0], why);
    fprintf(stderr, "\n%s began %" PRIu64 "\n", words[0], mt_run_began_ns(run));
    return watch(run, words[0]);
}

/* What the program does not inherit is closed where it starts, so the lock ends with this. */
static int run(const char *folder, char *const *words)
{
    int lock = open_lock(folder);
    if (lock >= 0)
        flock(lock, LOCK_SH);
    return run_program(folder, words);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 4 && strcmp(argv[1], "guard") == 0 && strchr(argv[2], '/'))
        return guard(argv[2], argv[3]);
    if (argc >= 8 && strcmp(argv[1], "run") == 0)
        return run(argv[2], argv + 3);
    fprintf(stderr, "memtally starts this in containers; see memtally profile --container\n");
    return 2;
}
