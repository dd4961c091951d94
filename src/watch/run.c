/* SPDX-License-Identifier: MIT */
/* The life of a run: the folder, the program, the watching, the end. */
#include <memtally/run.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "base/out_of_memory.h"
#include "base/ticks.h"
#include "recording/reader.h"
#include "watch/watch.h"

#define STEP_MS        20
#define LEFT_BEHIND_MS 1000

static int holds_recording(const char *directory)
{
    DIR *folder = opendir(directory);
    int found = 0;
    if (!folder)
        return 0;
    for (struct dirent *entry; !found && (entry = readdir(folder)) != NULL;) {
        const char *dot = strrchr(entry->d_name, '.');
        found = dot && (strcmp(dot, ".mtr") == 0 || strcmp(dot, ".mtz") == 0);
    }
    closedir(folder);
    return found;
}

static int prepare_directory(struct mt_run *run, const char *directory, struct mt_error *error)
{
    run->made_directory = mkdir(directory, 0777) == 0;
    if (!run->made_directory && errno != EEXIST)
        return mt_fail_errno(error, errno, "cannot make the folder %s", directory);
    if (holds_recording(directory))
        return mt_fail(error, MT_EBUSY, MT_NO_OFFSET,
                       "%s: already holds a recording; choose another folder or remove it",
                       directory);
    run->directory = realpath(directory, NULL);
    if (!run->directory)
        return mt_fail_errno(error, errno, "cannot use the folder %s", directory);
    return 0;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int create_file(struct mt_run *run, const struct mt_run_options *options,
                       struct mt_error *error)
{
    const struct mt_file_header header = {
        .kind = MT_FILE_WATCH,
        .pid = (uint32_t)getpid(),
        .parent_pid = (uint32_t)getppid(),
        .page_bytes = (uint32_t)sysconf(_SC_PAGESIZE),
        .clock_kind = MT_CLOCK_MONOTONIC,
        .depth = (uint32_t)options->depth,
        .stacks = (uint32_t)options->stacks,
        .start_ticks = run->start_ns,
        .start_monotonic_ns = run->start_ns,
        .start_realtime_ns = clock_ns(CLOCK_REALTIME),
        .picture_share_ppm = (uint64_t)(run->share * 1e6),
    };
    size_t size = sizeof run->file_path;
    if (snprintf(run->file_path, size, "%s/watch.mtr", run->directory) >= (int)size)
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "%s: the path is too long", run->directory);
    int result = mt_file_create(&run->file, &mt_watch_os, run->file_path, &header);
    if (result < 0)
        return mt_fail_errno(error, -result, "cannot write %s", run->file_path);
    mt_writer_init(&run->writer, &run->file, 0, (uint32_t)getpid());
    mt_watch_unrecorded_devices(run);
    return 0;
}

static void destroy(struct mt_run *run)
{
    if (!run)
        return;
    mt_watch_gpus_finish(run);
    mt_writer_finish(&run->writer);
    mt_file_close(&run->file);
    if (run->pidfd >= 0)
        close(run->pidfd);
    mt_process_list_finish(&run->tree);
    mt_process_numbers_finish(&run->numbers);
    mt_process_numbers_finish(&run->numbers_now);
    mt_process_list_finish(&run->strangers);
    mt_table_finish(&run->strange);
    free(run->processes);
    free(run->scratch);
    free(run->directory);
    free(run->side);
    free(run->copied_recorder);
    free(run->group);
    free(run);
}

int mt_run_prepare(struct mt_run *run, const struct mt_run_options *options, struct mt_error *error)
{
    run->pidfd = -1;
    run->has_recorder = options->recorder_path != NULL;
    run->share = options->picture_share > 0 ? options->picture_share : 0.02;
    run->start_ns = mt_monotonic_ns();
    run->boot_offset_ns = (int64_t)(clock_ns(CLOCK_BOOTTIME) - mt_monotonic_ns());
    run->scratch = malloc(MT_PICTURE_SCRATCH_BYTES);
    mt_host_os_init(&run->host);
    mt_cgroup_find(&run->host, run->pid, &run->cgroup);
    if (!run->scratch)
        return mt_out_of_memory(error);
    int result = prepare_directory(run, options->directory, error);
    if (result == 0)
        result = create_file(run, options, error);
    if (result == 0 && !run->is_attached)
        mt_side_make(run, options->recorder_path);
    return result;
}

/* Ends of children must reach us: a caller that has SIGCHLD ignored would never see them. */
static void become_parent(struct mt_run *run)
{
    const struct sigaction plain = {.sa_handler = SIG_DFL};
    mt_watch_note_strangers(run);
    prctl(PR_GET_CHILD_SUBREAPER, &run->was_subreaper);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigaction(SIGCHLD, NULL, &run->child_action);
    if (run->child_action.sa_handler == SIG_IGN || run->child_action.sa_flags & SA_NOCLDWAIT)
        sigaction(SIGCHLD, &plain, NULL);
}

static void end_parenthood(const struct mt_run *run)
{
    if (run->child_action.sa_handler == SIG_IGN || run->child_action.sa_flags & SA_NOCLDWAIT)
        sigaction(SIGCHLD, &run->child_action, NULL);
    if (!run->was_subreaper)
        prctl(PR_SET_CHILD_SUBREAPER, 0);
}

/* A copy of us may have a little more: its stack is touched anew. */
static uint64_t own_peak_bytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * 1024 + 256 * 1024;
}

/* Removes what was made for a run that could not start. */
static void leave_nothing(const struct mt_run *run)
{
    if (run->file.header)
        unlink(run->file_path);
    if (run->made_directory && run->directory)
        rmdir(run->directory);
    mt_side_leave(run);
}

void mt_run_undo(struct mt_run *run)
{
    leave_nothing(run);
    destroy(run);
}

int mt_run_start(const struct mt_run_options *options, struct mt_run **run, struct mt_error *error)
{
    if (!options->directory || !options->argv || !options->argv[0] || !options->environment)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "a run needs a folder, a program and its environment");
    if (options->recorder_path && strpbrk(options->recorder_path, " :"))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%s: a preloaded library's path may have no space and no colon in it",
                       options->recorder_path);
    struct mt_run *made = calloc(1, sizeof *made);
    if (!made)
        return mt_out_of_memory(error);
    int result = mt_run_prepare(made, options, error);
    if (result == 0) {
        become_parent(made);
        made->own_peak_bytes = own_peak_bytes();
        result = mt_spawn(options, made, error);
        if (result < 0)
            end_parenthood(made);
    }
    if (result < 0) {
        mt_run_undo(made);
        return result;
    }
    made->pid = result;
    made->pidfd = (int)syscall(SYS_pidfd_open, made->pid, 0);
    made->gpus.next_ns = mt_monotonic_ns() + MT_WATCH_GPUS_EVERY_NS; /* no driver is loaded yet */
    mt_watch_look(made, mt_monotonic_ns());
    *run = made;
    return 0;
}

int mt_run_pid(const struct mt_run *run)
{
    return run->pid;
}

uint64_t mt_run_began_ns(const struct mt_run *run)
{
    return run->start_ns;
}

void mt_run_mark(struct mt_run *run, const char *name)
{
    uint64_t now = mt_monotonic_ns();
    uint64_t number = mt_write_string(&run->writer, now, name, strlen(name));
    mt_write_event(&run->writer, MT_EVENT_MARK, now, &number, 1);
}

int mt_run_signal(const struct mt_run *run, int signal)
{
    return run->ended || kill(run->pid, signal) < 0 ? MT_ENOTFOUND : 0;
}

/* An attached process wakes nobody: we sleep until something of it is to be looked at. */
static void wait_a_step(const struct mt_run *run, uint64_t left_ns)
{
    struct pollfd fd = {.fd = run->pidfd, .events = POLLIN};
    uint64_t step_ms = STEP_MS;
    if (run->is_attached) {
        uint64_t now_ns = mt_monotonic_ns();
        uint64_t next_ns = mt_watch_next_ns(run);
        step_ms = next_ns > now_ns ? (next_ns - now_ns) / 1000000u + 1 : 1;
    }
    uint64_t left_ms = left_ns / 1000000u + 1;
    poll(&fd, run->pidfd >= 0 && !run->is_attached, (int)(left_ms < step_ms ? left_ms : step_ms));
}

static void fill_status(const struct mt_run *run, struct mt_run_status *status)
{
    *status = (struct mt_run_status){
        .running = !run->ended,
        .elapsed_ns = mt_monotonic_ns() - run->start_ns,
    };
    for (size_t i = 0; i < run->n_processes; i++) {
        status->resident_bytes += run->processes[i].resident_bytes;
        status->n_processes++;
    }
}

int mt_run_poll(struct mt_run *run, int timeout_ms, struct mt_run_status *status,
                struct mt_error *error)
{
    uint64_t wait_ms = timeout_ms > 0 ? (uint64_t)timeout_ms : 0;
    uint64_t end_ns = mt_monotonic_ns() + wait_ms * 1000000u;
    do {
        uint64_t now_ns = mt_monotonic_ns();
        mt_watch_look(run, now_ns);
        mt_watch_reap(run);
        if (run->ended || now_ns >= end_ns)
            break;
        wait_a_step(run, end_ns - now_ns);
    } while (1);
    fill_status(run, status);
    if (run->writer.failed)
        return mt_fail(error, MT_EIO, MT_NO_OFFSET,
                       "%s: cannot be written any more; is the disk full?", run->file_path);
    return 0;
}

/* The last looks of each kind may be long ago, unless it has only begun. */
static void look_once_more(struct mt_run *run)
{
    uint64_t now_ns = mt_monotonic_ns();
    int has_only_begun = now_ns - run->start_ns < MT_WATCH_GPUS_EVERY_NS;
    if (!has_only_begun)
        mt_watch_tree(run, now_ns);
    mt_watch_last_sizes(run);
    if (!has_only_begun)
        mt_watch_gpus(run, now_ns);
}

static void wait_for_the_rest(struct mt_run *run)
{
    const struct timespec pause = {.tv_nsec = STEP_MS * 1000000};
    if (run->is_attached) {
        look_once_more(run);
        mt_watch_picture_the_rest(run);
        mt_watch_machine(run);
        return;
    }
    while (!run->ended) {
        struct mt_run_status status;
        mt_run_poll(run, 1000, &status, NULL);
    }
    for (int waited = 0; waited < LEFT_BEHIND_MS; waited += STEP_MS) {
        mt_watch_tree(run, mt_monotonic_ns());
        mt_watch_look(run, mt_monotonic_ns());
        mt_watch_reap(run);
        if (!run->n_processes)
            break;
        nanosleep(&pause, NULL);
    }
    mt_watch_machine_at_end(run);
}

static int is_busy(const struct mt_run *run, long pid)
{
    for (size_t i = 0; i < run->n_processes; i++)
        if (run->processes[i].seen.pid == pid)
            return 1;
    return 0;
}

/* The process that a file of the recorder is named after: "PID-NUMBER.mtr". */
static int may_be_packed(const struct mt_run *run, const char *name)
{
    return !is_busy(run, strtol(name, NULL, 10));
}

static int is_raw(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 4 && strcmp(entry->d_name + length - 4, ".mtr") == 0;
}

/* A file that cannot be packed is kept as it is; *error has the first. */
static int pack_all(const struct mt_run *run, void (*progress)(void *, double), void *context,
                    struct mt_error *error)
{
    struct dirent **entries;
    int n = scandir(run->directory, &entries, is_raw, alphasort);
    int result = 0;
    if (n < 0)
        return mt_fail_errno(error, errno, "cannot read the folder %s", run->directory);
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", run->directory, entries[i]->d_name);
        struct mt_error *first = result == 0 ? error : NULL;
        int packed = may_be_packed(run, entries[i]->d_name) ? mt_record_file_pack(path, first) : 0;
        if (result == 0)
            result = packed;
        free(entries[i]);
        if (progress)
            progress(context, (double)(i + 1) / n);
    }
    free(entries);
    return result;
}

static void end_file(struct mt_run *run)
{
    struct mt_file_header *header = run->file.header;
    header->end_ticks = header->end_monotonic_ns = mt_monotonic_ns();
    header->end_kind = MT_END_EXIT;
    mt_writer_finish(&run->writer);
    mt_file_close(&run->file);
}

int mt_run_finish(struct mt_run *run, void (*progress)(void *context, double share), void *context,
                  struct mt_run_result *result, struct mt_error *error)
{
    wait_for_the_rest(run);
    *result = (struct mt_run_result){
        .exit_code = run->is_attached         ? 0
                     : WIFEXITED(run->status) ? WEXITSTATUS(run->status)
                                              : 128 + WTERMSIG(run->status),
        .signal = WIFSIGNALED(run->status) ? WTERMSIG(run->status) : 0,
        .wall_ns = mt_monotonic_ns() - run->start_ns,
        .peak_resident_bytes = run->peak_resident_bytes,
    };
    end_file(run);
    int taken = mt_side_take_in(run, is_busy, error);
    int packed = pack_all(run, progress, context, taken < 0 ? NULL : error);
    if (packed == 0)
        packed = taken;
    if (!run->is_attached)
        end_parenthood(run);
    destroy(run);
    return packed;
}

/* New processes may come while the others are killed. */
static void kill_all(struct mt_run *run)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    if (!run->ended)
        kill(run->pid, SIGKILL);
    for (int i = 0; i < LEFT_BEHIND_MS; i++) {
        mt_watch_tree(run, mt_monotonic_ns());
        for (size_t j = 0; j < run->n_processes; j++)
            kill(run->processes[j].seen.pid, SIGKILL);
        mt_watch_reap(run);
        if (run->ended && !run->n_processes)
            return;
        nanosleep(&pause, NULL);
    }
}

void mt_run_abandon(struct mt_run *run)
{
    if (!run)
        return;
    if (!run->is_attached)
        kill_all(run);
    end_file(run);
    mt_side_take_in(run, is_busy, NULL);
    if (!run->is_attached)
        end_parenthood(run);
    destroy(run);
}
