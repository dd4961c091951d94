/* SPDX-License-Identifier: MIT */
/* Who is in the tree: processes that come, call exec, end. What they hold is sample.c's. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memtally/error_code.h>
#include <memtally/units.h>

#include "base/array.h"
#include "base/ticks.h"
#include "recording/reader.h"
#include "watch/watch.h"

#define START_APART_NS 20000000u
#define LOADING_NS     1000000000u

void mt_watch_write(struct mt_run *run, enum mt_event_op op, const uint64_t *fields,
                    size_t n_fields)
{
    mt_write_event(&run->writer, op, mt_monotonic_ns(), fields, n_fields);
}

void mt_watch_note_strangers(struct mt_run *run)
{
    struct mt_process_list *list = &run->strangers;
    size_t n = 0;
    if (mt_process_descendants(&run->host, getpid(), list, NULL) < 0)
        return;
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i].parent_pid == getpid())
            list->items[n++] = list->items[i];
    list->n = n;
}

static int was_before(const struct mt_run *run, const struct mt_process *seen)
{
    for (size_t i = 0; i < run->strangers.n; i++)
        if (run->strangers.items[i].pid == seen->pid &&
            run->strangers.items[i].start_ticks == seen->start_ticks)
            return 1;
    return 0;
}

/* Whether a process of our own tree is none of the run. Parents come before children. */
static int is_strange(struct mt_run *run, const struct mt_process *seen)
{
    uint64_t unused;
    if (seen->pid == getpid())
        return 1;
    if (!run->strangers.n)
        return 0;
    int strange = seen->parent_pid == getpid()
                      ? was_before(run, seen)
                      : mt_table_get(&run->strange, (uint64_t)seen->parent_pid, &unused);
    if (strange)
        mt_table_set(&run->strange, (uint64_t)seen->pid, 1);
    return strange;
}

static int by_pid(const void *a, const void *b)
{
    const struct watched *x = a;
    const struct watched *y = b;
    return x->seen.pid < y->seen.pid ? -1 : x->seen.pid > y->seen.pid;
}

struct watched *mt_watch_find(struct mt_run *run, pid_t pid)
{
    const struct watched wanted = {.seen = {.pid = pid}};
    if (!run->n_processes)
        return NULL;
    return bsearch(&wanted, run->processes, run->n_processes, sizeof wanted, by_pid);
}

/* The kernel no longer names the parent of a process whose end the parent has just been told. */
static void see(struct watched *process, const struct mt_process *seen)
{
    int parent_pid = process->seen.parent_pid;
    process->seen = *seen;
    if (!process->seen.parent_pid)
        process->seen.parent_pid = parent_pid;
}

static uint64_t start_ns_of(const struct mt_run *run, const struct watched *process)
{
    uint64_t start_ns = mt_process_start_ns(&run->host, &process->seen);
    if (process->replaced || start_ns == MT_UNKNOWN)
        return process->since_ns;
    int64_t monotonic_ns = (int64_t)start_ns - run->boot_offset_ns;
    if (monotonic_ns < 0 || (uint64_t)monotonic_ns > process->since_ns)
        return process->since_ns;
    return (uint64_t)monotonic_ns;
}

static int has_file_in(const char *directory, const struct mt_run *run,
                       const struct watched *process)
{
    char path[PATH_MAX];
    struct mt_file_header header;
    int found = 0;
    for (int number = 0; directory && run->has_recorder; number++) {
        int length =
            snprintf(path, sizeof path, "%s/%d-%d.mtr", directory, process->seen.pid, number);
        if (length >= (int)sizeof path || access(path, F_OK) < 0)
            break;
        found = mt_record_header_read(path, &header, NULL) == 0 &&
                header.start_monotonic_ns + START_APART_NS >= start_ns_of(run, process);
    }
    return found;
}

/* Whether the recorder has begun a file for this process: a process id that was used before has
 * older ones. */
static int has_file(const struct mt_run *run, const struct watched *process)
{
    return has_file_in(run->directory, run, process) || has_file_in(run->side, run, process);
}

/* It is searched in pieces, each behind the end of the one before. */
int mt_watch_text_has(const struct mt_run *run, const char *path, const char *wanted)
{
    char *text = run->scratch;
    size_t overlap = strlen(wanted);
    size_t kept = 0;
    int found = 0;
    int fd = mt_watch_os.open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    long got = 0;
    while (!found &&
           (got = mt_watch_os.read(fd, text + kept, MT_PICTURE_SCRATCH_BYTES - kept)) > 0) {
        size_t length = kept + (size_t)got;
        found = memmem(text, length, wanted, overlap) != NULL;
        kept = length < overlap ? length : overlap;
        memmove(text, text + length - kept, kept);
    }
    mt_watch_os.close(fd);
    return found ? 1 : got < 0 ? -1 : 0;
}

/* The recorder has its file mapped as long as it records, and a fork has its parent's until it
 * begins its own. If we may not see a process's mappings, we tell the process by its file. */
static int is_recorded(const struct mt_run *run, const struct watched *process)
{
    char path[64];
    char wanted[PATH_MAX + 32];
    const char *const folders[] = {run->directory, run->side};
    int mapped = 0;
    if (!run->has_recorder)
        return 0;
    snprintf(path, sizeof path, "/proc/%d/maps", process->reader);
    for (size_t i = 0; i < 2 && mapped == 0 && folders[i]; i++) {
        snprintf(wanted, sizeof wanted, "%s/%d-", folders[i], process->seen.pid);
        mapped = mt_watch_text_has(run, path, wanted);
    }
    return mapped < 0 ? has_file(run, process) : mapped;
}

/* The kernel lists a process by its first thread, whose memory is gone when that has ended, and
 * lets every thread be looked at by its own number. */
pid_t mt_watch_living_thread(const struct mt_run *run, pid_t pid)
{
    char path[32];
    pid_t found = pid;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *folder = opendir(path);
    if (!folder)
        return pid;
    for (struct dirent *entry; found == pid && (entry = readdir(folder)) != NULL;) {
        pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
        uint64_t resident = thread > 0 ? mt_process_resident_bytes(&run->host, thread) : 0;
        if (resident && resident != MT_UNKNOWN)
            found = thread;
    }
    closedir(folder);
    return found;
}

static void write_process(struct mt_run *run, const struct watched *process)
{
    char command[MT_MAX_STRING];
    if (mt_process_command(&run->host, process->seen.pid, command, sizeof command) < 0)
        snprintf(command, sizeof command, "[%s]", process->seen.name);
    uint64_t fields[] = {
        (uint64_t)process->seen.pid, (uint64_t)process->seen.parent_pid, start_ns_of(run, process),
        mt_write_string(&run->writer, mt_monotonic_ns(), command, strlen(command))};
    mt_watch_write(run, MT_EVENT_PROCESS, fields, 4);
}

static void write_outside(struct mt_run *run, const struct watched *process,
                          enum mt_outside_reason reason)
{
    uint64_t fields[] = {(uint64_t)process->seen.pid, (uint64_t)reason};
    mt_watch_write(run, MT_EVENT_OUTSIDE_ONLY, fields, 2);
}

/* What may not be looked at by its own user has more rights than that user. */
static enum mt_outside_reason reason_of(const struct mt_run *run, const struct watched *process)
{
    char path[PATH_MAX];
    int result = mt_process_program(&run->host, process->seen.pid, path, sizeof path);
    if (result == MT_EPERM)
        return MT_OUTSIDE_SETUID;
    return result < 0 ? MT_OUTSIDE_NOT_LOADED : mt_outside_reason_of(path);
}

static enum mt_outside_reason reason_of_attached(const struct watched *process)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/pagemap", process->reader);
    int fd = mt_watch_os.open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return fd == -EACCES || fd == -EPERM ? MT_OUTSIDE_NOT_ALLOWED : MT_OUTSIDE_ATTACHED;
    mt_watch_os.close(fd);
    return MT_OUTSIDE_ATTACHED;
}

static uint64_t program_of(const struct mt_run *run, pid_t pid)
{
    char path[PATH_MAX];
    uint64_t hash = 0xcbf29ce484222325u;
    if (mt_process_program(&run->host, pid, path, sizeof path) < 0)
        return 0;
    for (const char *at = path; *at; at++)
        hash = (hash ^ (uint8_t)*at) * 0x100000001b3u;
    return hash | 1;
}

/* A program with many libraries takes its time until the recorder begins. */
void mt_watch_judge(struct mt_run *run, struct watched *process, uint64_t now_ns)
{
    struct mt_process seen;
    enum mt_outside_reason reason = run->is_attached ? MT_OUTSIDE_ATTACHED : MT_OUTSIDE_NOT_LOADED;
    if (mt_process_read(&run->host, process->seen.pid, &seen, NULL) < 0 || seen.state == 'X' ||
        seen.start_ticks != process->seen.start_ticks ||
        (seen.state == 'Z' && process->reader == process->seen.pid))
        return; /* its end is taken soon */
    see(process, &seen);
    process->recorded = is_recorded(run, process);
    if (run->is_attached)
        reason = reason_of_attached(process);
    else if (!process->recorded)
        reason = reason_of(run, process);
    if (!process->recorded && reason == MT_OUTSIDE_NOT_LOADED && run->has_recorder &&
        now_ns - process->since_ns < LOADING_NS)
        return;
    process->program = program_of(run, seen.pid);
    process->judged = 1;
    write_process(run, process);
    if (!process->recorded)
        write_outside(run, process, reason);
}

/* A process that ends before it was judged is still said to have been there. */
static void judge_ended(struct mt_run *run, struct watched *process)
{
    struct mt_process seen;
    if (process->judged)
        return;
    if (mt_process_read(&run->host, process->seen.pid, &seen, NULL) == 0 &&
        seen.start_ticks == process->seen.start_ticks)
        see(process, &seen); /* not yet taken, it has its last name */
    write_process(run, process);
    if (!has_file(run, process))
        write_outside(run, process, MT_OUTSIDE_TOO_SHORT);
}

static void write_end(struct mt_run *run, pid_t pid, const int *status)
{
    uint64_t fields[] = {(uint64_t)pid, MT_PROCESS_GONE, 0};
    if (status && WIFEXITED(*status)) {
        fields[1] = MT_PROCESS_EXITED;
        fields[2] = (uint64_t)WEXITSTATUS(*status);
    } else if (status && WIFSIGNALED(*status)) {
        fields[1] = MT_PROCESS_KILLED;
        fields[2] = (uint64_t)WTERMSIG(*status);
    }
    mt_watch_write(run, MT_EVENT_PROCESS_END, fields, 3);
}

/* What the kernel counts for a child is the largest of all programs that it ran, and of what it was
 * before the first: a copy of us. Below that it says nothing. */
static void write_usage(struct mt_run *run, const struct rusage *usage)
{
    uint64_t bytes = (uint64_t)usage->ru_maxrss * 1024;
    if (bytes <= run->own_peak_bytes)
        return;
    uint64_t fields[] = {(uint64_t)run->pid, bytes};
    mt_write_skipped(&run->writer, MT_EVENT_PROCESS_PEAK, mt_monotonic_ns(), fields, 2);
}

static void remove_at(struct mt_run *run, size_t i)
{
    memmove(&run->processes[i], &run->processes[i + 1],
            (run->n_processes - i - 1) * sizeof *run->processes);
    run->n_processes--;
}

void mt_watch_take_out(struct mt_run *run, size_t i)
{
    judge_ended(run, &run->processes[i]);
    write_end(run, run->processes[i].seen.pid, NULL);
    remove_at(run, i);
}

void mt_watch_sort(struct mt_run *run)
{
    qsort(run->processes, run->n_processes, sizeof *run->processes, by_pid);
}

void mt_watch_add(struct mt_run *run, const struct mt_process *seen, uint64_t now_ns)
{
    if (mt_array_reserve(run->processes, run->n_processes, run->processes_capacity, 64) < 0)
        return; /* it is seen again at the next look */
    run->processes[run->n_processes++] = (struct watched){
        .seen = *seen,
        .reader = seen->pid,
        .since_ns = now_ns,
        .high_water_bytes = MT_UNKNOWN,
        .alive = 1,
    };
}

void mt_watch_note_exec(struct mt_run *run, struct watched *process, uint64_t now_ns)
{
    uint64_t program = process->judged ? program_of(run, process->seen.pid) : 0;
    if (!program || !process->program || program == process->program)
        return;
    *process = (struct watched){
        .seen = process->seen,
        .reader = process->seen.pid,
        .since_ns = now_ns,
        .high_water_bytes = MT_UNKNOWN,
        .replaced = 1,
        .alive = 1,
    };
}

static void mark_the_living(struct mt_run *run, uint64_t now_ns, size_t *n_new)
{
    size_t known = run->n_processes;
    mt_table_finish(&run->strange);
    for (size_t i = 0; i < run->tree.n; i++) {
        const struct mt_process *seen = &run->tree.items[i];
        if (is_strange(run, seen))
            continue;
        size_t all = run->n_processes;
        run->n_processes = known; /* those are sorted */
        struct watched *process = mt_watch_find(run, seen->pid);
        run->n_processes = all;
        if (process && process->seen.start_ticks == seen->start_ticks) {
            see(process, seen);
            process->alive = 1;
            mt_watch_note_exec(run, process, now_ns);
        } else {
            mt_watch_add(run, seen, now_ns);
        }
    }
    *n_new = run->n_processes - known;
}

/* The tree is not read at one instant: a process whose parent ends meanwhile may be missing. */
static int is_still_there(const struct mt_run *run, struct watched *process)
{
    struct mt_process seen;
    if (process->alive)
        return 1;
    if (mt_process_read(&run->host, process->seen.pid, &seen, NULL) < 0 ||
        seen.start_ticks != process->seen.start_ticks)
        return 0;
    see(process, &seen);
    return 1;
}

void mt_watch_tree(struct mt_run *run, uint64_t now_ns)
{
    size_t n_new;
    pid_t root = run->is_attached ? run->pid : getpid();
    int result = run->group ? mt_process_group(&run->host, root, run->group, &run->tree, NULL)
                            : mt_process_descendants(&run->host, root, &run->tree, NULL);
    if (result < 0 || (!run->tree.n && !run->is_attached))
        return;
    for (size_t i = 0; i < run->n_processes; i++)
        run->processes[i].alive = 0;
    mark_the_living(run, now_ns, &n_new);
    size_t kept = 0;
    for (size_t i = 0; i < run->n_processes; i++) {
        struct watched *process = &run->processes[i];
        if (is_still_there(run, process)) {
            run->processes[kept++] = *process;
            continue;
        }
        judge_ended(run, process);
        write_end(run, process->seen.pid, NULL);
    }
    run->n_processes = kept;
    if (n_new)
        mt_watch_sort(run);
}

/* Whether a child of ours has ended; what there is to see of it is taken before its end is. */
static int reap_one(struct mt_run *run, pid_t pid, struct watched *process)
{
    siginfo_t info = {0};
    struct rusage usage;
    int status;
    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
        return 0;
    if (info.si_pid != pid)
        return 0;
    if (process)
        judge_ended(run, process);
    if (wait4(pid, &status, 0, &usage) != pid)
        return 0;
    if (pid == run->pid)
        write_usage(run, &usage);
    write_end(run, pid, &status);
    if (pid == run->pid) {
        run->ended = 1;
        run->status = status;
    }
    return 1;
}

void mt_watch_reap(struct mt_run *run)
{
    if (run->is_attached) {
        run->ended = !mt_watch_find(run, run->pid);
        return;
    }
    for (size_t i = run->n_processes; i-- > 0;) {
        struct watched *process = &run->processes[i];
        if (process->seen.pid != run->pid && process->seen.parent_pid != getpid())
            continue;
        if (reap_one(run, process->seen.pid, process))
            remove_at(run, i);
    }
    /* Without a /proc there is no list. */
    if (!run->ended && !mt_watch_find(run, run->pid))
        reap_one(run, run->pid, NULL);
}
