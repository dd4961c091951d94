/* SPDX-License-Identifier: MIT */
/* Two programs run in the container: one that removes the folder when its input ends, as root, and
 * one that runs the engine, as the container's own user. Their inputs end also where memtally is
 * killed, since the kernel closes its connections. */
#include "drive/contained.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <memtally/error.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memtally/run.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "base/out_of_memory.h"
#include "base/strbuf.h"
#include "base/ticks.h"
#include "container/archive.h"
#include "container/exec.h"
#include "drive/contained_keeper.h"

#define START_NS   ((uint64_t)30 * 1000000000)
#define REMOVE_NS  ((uint64_t)60 * 1000000000)
#define LINE_BYTES 4096
#define ENDING_MS  2000      /* that a container takes to end whose programs are killed */
#define PIPE_BYTES (1 << 20) /* of what it prints before anybody reads */

struct mt_contained {
    const struct mt_container *container; /* borrowed */
    struct mt_profile_runner runner;
    char word[40];   /* that begins the lines which are for us */
    char folder[48]; /* in the container */
    struct mt_contained_keeper keeper;
    struct mt_container_exec *guard; /* removes the folder */
    struct mt_container_exec *run;   /* NULL where none runs */
    char recording[PATH_MAX];        /* the folder here */
    int outputs[2];                  /* of our own, -1 where no run is */
    char line[LINE_BYTES];           /* of its standard error, as far as it has come */
    size_t n_line;
    uint64_t began_ns;
    uint64_t resident_bytes;
    int has_ended;
    struct mt_run_result result;
    char failure[256];
    char outside[128];
};

/* ---- what it prints ---- */

static void pass(int fd, const char *bytes, size_t n)
{
    while (n) {
        ssize_t written = write(fd, bytes, n);
        if (written < 0 && errno != EINTR)
            return;
        bytes += written > 0 ? written : 0;
        n -= written > 0 ? (size_t)written : 0;
    }
}

static void take_word(struct mt_contained *contained, const char *said)
{
    struct mt_run_result *result = &contained->result;
    if (strncmp(said, "began ", 6) == 0)
        contained->began_ns = strtoull(said + 6, NULL, 10);
    else if (strncmp(said, "resident ", 9) == 0)
        contained->resident_bytes = strtoull(said + 9, NULL, 10);
    else if (strncmp(said, "outside ", 8) == 0)
        snprintf(contained->outside, sizeof contained->outside, "%s", said + 8);
    else if (strncmp(said, "failed ", 7) == 0)
        snprintf(contained->failure, sizeof contained->failure, "%s", said + 7);
    else if (sscanf(said, "ended %d %d %" SCNu64 " %" SCNu64, &result->exit_code, &result->signal,
                    &result->wall_ns, &result->peak_resident_bytes) == 4)
        contained->has_ended = 1;
}

/* An empty line stands before each line that is for us. */
static void end_line(struct mt_contained *contained)
{
    size_t length = strlen(contained->word);
    char *line = contained->line;
    line[contained->n_line] = '\0';
    if (contained->n_line > length && strncmp(line, contained->word, length) == 0)
        take_word(contained, line + length + 1);
    else if (contained->n_line) {
        line[contained->n_line++] = '\n';
        pass(contained->outputs[1], line, contained->n_line);
    }
    contained->n_line = 0;
}

static void take_output(void *context, int stream, const char *bytes, size_t n)
{
    struct mt_contained *contained = context;
    if (stream != 2) {
        pass(contained->outputs[0], bytes, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\n' || contained->n_line == LINE_BYTES - 2)
            end_line(contained);
        if (bytes[i] != '\n')
            contained->line[contained->n_line++] = bytes[i];
    }
}

/* ---- a run ---- */

/* Returns 1 as long as the run goes on, 0 at its end, or an error. */
static int listen_to(struct mt_contained *contained, int timeout_ms, struct mt_error *error)
{
    int more = mt_container_exec_read(contained->run, timeout_ms, take_output, contained, error);
    if (more == 0)
        end_line(contained);
    return more;
}

/* A program of this machine has copies of the caller's pipes, which closes its own. */
static void copy_outputs(struct mt_contained *contained, const int outputs[2])
{
    for (int i = 0; i < 2; i++) {
        contained->outputs[i] = fcntl(outputs[i], F_DUPFD_CLOEXEC, 0);
        fcntl(contained->outputs[i], F_SETPIPE_SZ, PIPE_BYTES); /* smaller is no harm */
    }
}

static void end_run(struct mt_contained *contained)
{
    mt_container_exec_close(contained->run);
    contained->run = NULL;
    for (int i = 0; i < 2; i++) {
        if (contained->outputs[i] >= 0)
            close(contained->outputs[i]);
        contained->outputs[i] = -1;
    }
}

static int wait_for_begin(struct mt_contained *contained, struct mt_error *error)
{
    uint64_t until_ns = mt_monotonic_ns() + START_NS;
    int more = 1;
    while (more > 0 && !contained->began_ns && !*contained->failure && mt_monotonic_ns() < until_ns)
        more = listen_to(contained, 5, error);
    if (more < 0 || contained->began_ns)
        return more < 0 ? more : MT_OK;
    if (*contained->failure)
        return mt_fail(error, MT_ECHILD, MT_NO_OFFSET, "in the container: %s", contained->failure);
    return mt_fail(error, MT_ECHILD, MT_NO_OFFSET,
                   "what memtally copied into the container does not start; is there a filter of "
                   "system calls, or are its folders mounted noexec?");
}

/* The folder here, as mt_run_start() takes it. */
static int prepare_folder(struct mt_contained *contained, const char *directory,
                          struct mt_error *error)
{
    char pattern[PATH_MAX];
    glob_t found;
    if (mkdir(directory, 0777) < 0 && errno != EEXIST)
        return mt_fail_errno(error, errno, "cannot make the folder %s", directory);
    snprintf(contained->recording, sizeof contained->recording, "%s", directory);
    if (snprintf(pattern, sizeof pattern, "%s/*.mt[rz]", directory) >= (int)sizeof pattern ||
        glob(pattern, GLOB_NOSORT, NULL, &found) != 0)
        return MT_OK;
    globfree(&found);
    return mt_fail(error, MT_EBUSY, MT_NO_OFFSET,
                   "%s: already holds a recording; choose another folder or remove it", directory);
}

static int start(void *context, const struct mt_run_options *options, struct mt_error *error)
{
    struct mt_contained *contained = context;
    char inside[96];
    char numbers[3][32];
    const char *words[80] = {inside,     "run",      contained->folder, contained->word,
                             numbers[0], numbers[1], numbers[2]};
    size_t n = 7;
    for (char *const *word = options->argv; *word; word++) {
        if (n == sizeof words / sizeof *words - 1)
            return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "the command line is too long");
        words[n++] = *word;
    }
    snprintf(inside, sizeof inside, "%s/memtally-inside", contained->folder);
    snprintf(numbers[0], sizeof numbers[0], "%d", (int)options->depth);
    snprintf(numbers[1], sizeof numbers[1], "%d", (int)options->stacks);
    snprintf(numbers[2], sizeof numbers[2], "%g", options->picture_share);
    copy_outputs(contained, (const int[]){options->stdout_fd, options->stderr_fd});
    int code = prepare_folder(contained, options->directory, error);
    if (code == MT_OK)
        code = mt_container_exec_start(contained->container, words, NULL, &contained->run, error);
    if (code == MT_OK)
        code = wait_for_begin(contained, error);
    if (code != MT_OK)
        end_run(contained);
    return code;
}

static uint64_t began_ns(void *context)
{
    return ((struct mt_contained *)context)->began_ns;
}

static int poll_run(void *context, int timeout_ms, struct mt_run_status *status,
                    struct mt_error *error)
{
    struct mt_contained *contained = context;
    int more = listen_to(contained, timeout_ms, error);
    *status = (struct mt_run_status){
        .running = more > 0,
        .elapsed_ns = mt_monotonic_ns() - contained->began_ns,
        .resident_bytes = contained->resident_bytes,
        .n_processes = 1,
    };
    return more < 0 ? more : MT_OK;
}

static void send_signal(void *context, int signal)
{
    struct mt_contained *contained = context;
    unsigned char byte = (unsigned char)signal;
    if (contained->run)
        mt_container_exec_write(contained->run, &byte, 1);
}

static int finish(void *context, void (*progress)(void *context, double share),
                  void *progress_context, struct mt_run_result *result, struct mt_error *error)
{
    struct mt_contained *contained = context;
    char folder[64];
    end_run(contained);
    if (!contained->has_ended && mt_contained_keeper_has_ended(&contained->keeper, ENDING_MS))
        return mt_fail(error, MT_ECHILD, MT_NO_OFFSET,
                       "the container %s ended while it was profiled", contained->container->name);
    if (!contained->has_ended)
        return mt_fail(error, MT_ECHILD, MT_NO_OFFSET, "in the container: %s",
                       *contained->failure ? contained->failure
                                           : "the run was killed before it could end");
    *result = contained->result;
    snprintf(folder, sizeof folder, "%s/recording", contained->folder);
    int code = mt_container_copy_out(contained->container, folder, contained->recording, error);
    if (progress)
        progress(progress_context, 1);
    return code;
}

/* The end of its input kills what runs. */
static void abandon(void *context)
{
    struct mt_contained *contained = context;
    uint64_t until_ns = mt_monotonic_ns() + START_NS;
    if (!contained->run)
        return;
    mt_container_exec_end_input(contained->run);
    while (mt_monotonic_ns() < until_ns && listen_to(contained, 100, NULL) > 0)
        continue;
    end_run(contained);
}

/* ---- the container's network ---- */

static void name_network(char *path, size_t size, const struct mt_container *container)
{
    snprintf(path, size, "/proc/%d/ns/net", container->pid);
}

static int is_our_network(const struct mt_container *container)
{
    char path[64];
    struct stat theirs;
    struct stat ours;
    name_network(path, sizeof path, container);
    return stat(path, &theirs) == 0 && stat("/proc/self/ns/net", &ours) == 0 &&
           theirs.st_ino == ours.st_ino && theirs.st_dev == ours.st_dev;
}

/* A thread may be in another network than the rest of its process, and so are those that it
 * starts. */
static void enter_network(const struct mt_container *container)
{
    char path[64];
    name_network(path, sizeof path, container);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    setns(fd, CLONE_NEWNET); /* where that fails the engine does not answer, which is said */
    close(fd);
}

static void enter(void *context)
{
    const struct mt_contained *contained = context;
    if (geteuid() == 0 && !is_our_network(contained->container))
        enter_network(contained->container);
}

/* Which network it has, other users may not see. */
static int check_network(const struct mt_container *container, struct mt_error *error)
{
    if (container->has_host_network || geteuid() == 0 || is_our_network(container))
        return MT_OK;
    return mt_fail(error, MT_EPERM, MT_NO_OFFSET,
                   "the container has a network of its own, which only root can enter; be root, or "
                   "start the container with --network host");
}

/* ---- what is copied ---- */

/* 128 bits that nobody guesses: what the program prints cannot pass for ours. */
static int choose_word(struct mt_contained *contained)
{
    unsigned char random[16];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return 0;
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(contained->word + 2 * i, 3, "%02x", random[i]);
    snprintf(contained->folder, sizeof contained->folder, "/.memtally-%.16s", contained->word);
    memmove(contained->word, contained->word + 16, 17); /* the folder's name can be seen */
    return 1;
}

static int copy_in(const struct mt_contained *contained, const struct mt_contained_files *files,
                   struct mt_error *error)
{
    struct mt_strbuf archive = {0};
    char name[96];
    const char *folder = contained->folder + 1;
    mt_archive_add_folder(&archive, folder, 0755);
    snprintf(name, sizeof name, "%s/recording", folder);
    mt_archive_add_folder(&archive, name, 0777);
    snprintf(name, sizeof name, "%s/lock", folder);
    mt_archive_add(&archive, name, 0666, "", 0);
    snprintf(name, sizeof name, "%s/libmemtally-record.so", folder);
    int code = mt_archive_add_file(&archive, name, 0755, files->recorder, error);
    snprintf(name, sizeof name, "%s/memtally-inside", folder);
    if (code == MT_OK)
        code = mt_archive_add_file(&archive, name, 0755, files->inside, error);
    mt_archive_end(&archive);
    if (code == MT_OK && mt_strbuf_failed(&archive))
        code = mt_out_of_memory(error);
    if (code == MT_OK)
        code = mt_container_copy_in(contained->container, &archive, error);
    mt_strbuf_finish(&archive);
    return code;
}

/* When the container's root folder was changed last, where this user may look at it. */
static void write_modified(const struct mt_contained_keeper *keeper, char modified[64])
{
    if (keeper->root >= 0)
        snprintf(modified, 64, "%lld.%09ld", (long long)keeper->times[1].tv_sec,
                 keeper->times[1].tv_nsec);
    else
        snprintf(modified, 64, "-");
}

/* Where nothing can be started in the container, nothing can be removed there but from here. */
static int start_guard(struct mt_contained *contained, struct mt_error *error)
{
    struct mt_error why = {0};
    char inside[96];
    char modified[64];
    const char *const words[] = {inside, "guard", contained->folder, modified, NULL};
    snprintf(inside, sizeof inside, "%s/memtally-inside", contained->folder);
    write_modified(&contained->keeper, modified);
    int code = mt_container_exec_start(contained->container, words, "0", &contained->guard, &why);
    if (code == MT_OK) {
        mt_contained_keeper_note_guard(&contained->keeper);
        return MT_OK;
    }
    if (mt_contained_keeper_remove(&contained->keeper))
        return mt_fail(error, code, MT_NO_OFFSET, "%s", why.text);
    return mt_fail(error, code, MT_NO_OFFSET,
                   "%s; the folder %s was copied into the container %s and is still there",
                   why.text, contained->folder, contained->container->name);
}

/* A copy that breaks off may have left a part. */
static int copy_and_guard(struct mt_contained *contained, const struct mt_contained_files *files,
                          struct mt_error *error)
{
    mt_contained_keeper_open(&contained->keeper, contained->container, contained->folder + 1);
    int code = copy_in(contained, files, error);
    if (code != MT_OK)
        mt_contained_keeper_remove(&contained->keeper);
    else
        code = start_guard(contained, error);
    if (code != MT_OK)
        mt_contained_keeper_close(&contained->keeper);
    return code;
}

int mt_contained_open(const struct mt_container *container, const struct mt_contained_files *files,
                      struct mt_contained **contained, struct mt_error *error)
{
    if (container->is_read_only)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "the container's root folder is read-only, so nothing can be copied into "
                       "it; 'memtally attach --container %s' looks at it from outside",
                       container->name);
    int code = check_network(container, error);
    if (code != MT_OK)
        return code;
    struct mt_contained *made = calloc(1, sizeof *made);
    if (!made || !choose_word(made)) {
        free(made);
        return mt_out_of_memory(error);
    }
    made->container = container;
    made->outputs[0] = made->outputs[1] = -1;
    made->runner = (struct mt_profile_runner){made,   start,   began_ns, poll_run, send_signal,
                                              finish, abandon, enter,    1};
    code = copy_and_guard(made, files, error);
    if (code != MT_OK) {
        free(made);
        return code;
    }
    *contained = made;
    return MT_OK;
}

const struct mt_profile_runner *mt_contained_runner(struct mt_contained *contained)
{
    return &contained->runner;
}

const char *mt_contained_why_outside(const struct mt_contained *contained)
{
    return contained->outside;
}

static void drop(void *context, int stream, const char *bytes, size_t n)
{
    (void)context;
    (void)stream;
    (void)bytes;
    (void)n;
}

int mt_contained_close(struct mt_contained *contained, struct mt_error *error)
{
    uint64_t until_ns = mt_monotonic_ns() + REMOVE_NS;
    int more = 1;
    if (!contained)
        return MT_OK;
    abandon(contained);
    mt_container_exec_end_input(contained->guard);
    while (more > 0 && mt_monotonic_ns() < until_ns)
        more = mt_container_exec_read(contained->guard, 100, drop, NULL, NULL);
    int status = more == 0 ? mt_container_exec_status(contained->guard) : -1;
    mt_container_exec_close(contained->guard);
    int code = MT_OK;
    if (status != 0 && !mt_contained_keeper_remove(&contained->keeper))
        code = mt_fail(error, MT_EIO, MT_NO_OFFSET,
                       "the folder %s may still be in the container %s; remove it there",
                       contained->folder, contained->container->name);
    mt_contained_keeper_close(&contained->keeper);
    free(contained);
    return code;
}
