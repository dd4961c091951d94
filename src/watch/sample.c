/* SPDX-License-Identifier: MIT */
/* Looking at a process tree from outside: sizes often, the tree and the machine less often,
 * pictures within a quarter of the pictures' share, or all of it where the recorder is not in a
 * process. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/ticks.h"
#include "watch/watch.h"

#define SAMPLE_EVERY_NS    20000000u
#define TREE_EVERY_NS      100000000u
#define MACHINE_EVERY_NS   100000000u
#define JUDGE_AFTER_NS     50000000u
#define SAMPLE_AT_LEAST_NS 1000000000u
#define PICTURE_APART_NS   250000000u
#define OUTSIDE_APART_NS   30000000u
#define FREE_PICTURE_NS    5000000u
#define FIRST_NS_PER_MIB   30000u
#define PICTURE_BASE_NS    300000u
#define TEXT_BYTES         8192

static void write_event(struct mt_run *run, enum mt_event_op op, const uint64_t *fields,
                        size_t n_fields)
{
    mt_write_event(&run->writer, op, mt_monotonic_ns(), fields, n_fields);
}

static struct watched *find(struct mt_run *run, pid_t pid, uint64_t start_ticks)
{
    for (size_t i = 0; i < run->n_processes; i++) {
        struct watched *process = &run->processes[i];
        if (process->pid == pid && !process->ended &&
            (!start_ticks || process->start_ticks == start_ticks))
            return process;
    }
    return NULL;
}

static void write_process(struct mt_run *run, const struct mt_process *seen, uint64_t now_ns)
{
    char command[MT_MAX_STRING];
    if (mt_process_command(&run->host, seen->pid, command, sizeof command) < 0)
        snprintf(command, sizeof command, "[%s]", seen->name);
    uint64_t start_ns = mt_process_start_ns(&run->host, seen) - run->boot_offset_ns;
    if (start_ns > now_ns)
        start_ns = now_ns;
    uint64_t fields[] = {(uint64_t)seen->pid, (uint64_t)seen->parent_pid, start_ns,
                         mt_write_string(&run->writer, now_ns, command, strlen(command))};
    write_event(run, MT_EVENT_PROCESS, fields, 4);
}

static void add(struct mt_run *run, const struct mt_process *seen, uint64_t now_ns)
{
    struct watched *processes = realloc(run->processes, (run->n_processes + 1) * sizeof *processes);
    if (!processes)
        return; /* it is seen again at the next look */
    run->processes = processes;
    run->processes[run->n_processes++] = (struct watched){
        .pid = seen->pid,
        .start_ticks = seen->start_ticks,
        .first_seen_ns = now_ns,
        .high_water_bytes = MT_UNKNOWN,
    };
}

/* A process that is about to exec still looks like its parent, so that its command and whether the
 * recorder is in it are looked at a little later. */
static void judge(struct mt_run *run, struct watched *process, uint64_t now_ns)
{
    char path[PATH_MAX];
    struct mt_process seen;
    if (mt_process_read(&run->host, process->pid, &seen, NULL) < 0)
        return;
    process->judged = 1;
    write_process(run, &seen, now_ns);
    snprintf(path, sizeof path, "%s/%d-0.mtr", run->directory, (int)process->pid);
    process->recorded = access(path, F_OK) == 0;
    if (process->recorded || mt_process_program(&run->host, process->pid, path, sizeof path) < 0)
        return;
    uint64_t fields[] = {(uint64_t)process->pid, (uint64_t)mt_outside_reason_of(path)};
    write_event(run, MT_EVENT_OUTSIDE_ONLY, fields, 2);
}

static int is_watched(const struct mt_run *run, const struct mt_process *seen)
{
    return seen->pid != getpid() && seen->pid > 0 && run->pid > 0;
}

static void look_at_tree(struct mt_run *run, uint64_t now_ns)
{
    if (mt_process_tree(&run->host, getpid(), &run->tree, NULL) < 0)
        return;
    for (size_t i = 0; i < run->n_processes; i++) {
        struct watched *process = &run->processes[i];
        int alive = process->ended;
        for (size_t j = 0; j < run->tree.n && !alive; j++)
            alive = run->tree.items[j].pid == process->pid &&
                    run->tree.items[j].start_ticks == process->start_ticks;
        if (!alive)
            mt_watch_ended(run, process->pid, 0, 0);
    }
    for (size_t i = 0; i < run->tree.n; i++)
        if (is_watched(run, &run->tree.items[i]) &&
            !find(run, run->tree.items[i].pid, run->tree.items[i].start_ticks))
            add(run, &run->tree.items[i], now_ns);
}

static void write_sample(struct mt_run *run, struct watched *process, uint64_t now_ns)
{
    struct mt_process_memory memory;
    if (mt_process_memory_read(&run->host, process->pid, &memory, NULL) == 0 &&
        memory.resident_peak_bytes != MT_UNKNOWN)
        process->high_water_bytes = memory.resident_peak_bytes;
    uint64_t fields[] = {(uint64_t)process->pid, process->resident_bytes,
                         process->high_water_bytes};
    write_event(run, MT_EVENT_PROCESS_SAMPLE, fields, 3);
    process->sampled_bytes = process->resident_bytes;
    process->sampled_ns = now_ns;
}

static uint64_t apart(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

static int within_budget(const struct mt_run *run, const struct watched *process, uint64_t now_ns)
{
    uint64_t rate = run->ns_per_mib ? run->ns_per_mib : FIRST_NS_PER_MIB;
    uint64_t cost = PICTURE_BASE_NS + (process->resident_bytes >> 20) * rate;
    double share = run->share * (process->recorded ? 0.25 : 1.0);
    uint64_t allowed = (uint64_t)((double)(now_ns - run->start_ns) * share);
    if (allowed < FREE_PICTURE_NS)
        allowed = FREE_PICTURE_NS;
    return run->picture_spent_ns + cost <= allowed;
}

static int is_due(const struct watched *process, uint64_t now_ns)
{
    if (!process->judged || !process->resident_bytes)
        return 0;
    if (!process->pictured_ns)
        return 1;
    uint64_t least = process->recorded ? PICTURE_APART_NS : OUTSIDE_APART_NS;
    uint64_t step = process->pictured_bytes / 128 + (1u << 20);
    return now_ns - process->pictured_ns >= least &&
           (apart(process->resident_bytes, process->pictured_bytes) > step ||
            now_ns - process->pictured_ns >= 40 * PICTURE_APART_NS);
}

static void take_picture(struct mt_run *run, struct watched *process)
{
    char directory[32];
    struct mt_picture_result result;
    snprintf(directory, sizeof directory, "/proc/%d", (int)process->pid);
    const struct mt_picture_request request = {
        .process_directory = directory,
        .pid = (uint64_t)process->pid,
        .reason = MT_PICTURE_OUTSIDE,
        .resident_bytes = process->resident_bytes,
        .scratch = run->scratch,
    };
    mt_picture_take(&run->writer, &request, &result);
    run->picture_spent_ns += result.cost_ns;
    run->ns_per_mib = result.cost_ns / ((process->resident_bytes >> 20) + 1) + 1;
    run->file.header->picture_ns += result.cost_ns;
    run->file.header->pictures_taken += (uint64_t)result.complete;
    process->pictured_bytes = process->resident_bytes;
    process->pictured_ns = mt_monotonic_ns();
}

static void look_at_process(struct mt_run *run, struct watched *process, uint64_t now_ns)
{
    uint64_t resident = mt_process_resident_bytes(&run->host, process->pid);
    if (resident == MT_UNKNOWN || resident == 0)
        return;
    process->resident_bytes = resident;
    if (!process->judged && now_ns - process->first_seen_ns >= JUDGE_AFTER_NS)
        judge(run, process, now_ns);
    if (apart(resident, process->sampled_bytes) > resident / 256 ||
        now_ns - process->sampled_ns >= SAMPLE_AT_LEAST_NS)
        write_sample(run, process, now_ns);
    if (is_due(process, now_ns) && within_budget(run, process, now_ns))
        take_picture(run, process);
}

static void look_at_processes(struct mt_run *run, uint64_t now_ns)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < run->n_processes; i++) {
        if (run->processes[i].ended)
            continue;
        look_at_process(run, &run->processes[i], now_ns);
        sum += run->processes[i].resident_bytes;
    }
    if (sum > run->peak_resident_bytes)
        run->peak_resident_bytes = sum;
}

static void write_file(struct mt_run *run, enum mt_machine_text kind, const char *path)
{
    char text[TEXT_BYTES];
    long got = run->host.read_file(run->host.context, path, text, sizeof text);
    if (got > 0)
        mt_write_bytes(&run->writer, MT_EVENT_MACHINE, mt_monotonic_ns(), kind, text, (size_t)got);
}

static void write_text(struct mt_run *run, enum mt_machine_text kind, const char *text)
{
    mt_write_bytes(&run->writer, MT_EVENT_MACHINE, mt_monotonic_ns(), kind, text, strlen(text));
}

static void put_line(char *text, size_t capacity, const char *name, uint64_t value)
{
    size_t length = strlen(text);
    if (value == MT_UNKNOWN)
        snprintf(text + length, capacity - length, "%s -1\n", name);
    else
        snprintf(text + length, capacity - length, "%s %llu\n", name, (unsigned long long)value);
}

static void look_at_machine(struct mt_run *run)
{
    struct mt_host_sample sample;
    char text[512] = "";
    uint64_t tree = 0;
    write_file(run, MT_MACHINE_MEMINFO, "/proc/meminfo");
    write_file(run, MT_MACHINE_PRESSURE, "/proc/pressure/memory");
    if (mt_host_read(&run->host, &run->cgroup, &sample, NULL) < 0)
        return;
    put_line(text, sizeof text, "version", (uint64_t)sample.cgroup_version);
    put_line(text, sizeof text, "limit_bytes", sample.cgroup_limit_bytes);
    put_line(text, sizeof text, "usage_bytes", sample.cgroup_usage_bytes);
    put_line(text, sizeof text, "peak_bytes", sample.cgroup_peak_bytes);
    write_text(run, MT_MACHINE_CGROUP, text);
    for (size_t i = 0; i < run->n_processes; i++)
        tree += run->processes[i].ended ? 0 : run->processes[i].resident_bytes;
    text[0] = '\0';
    put_line(text, sizeof text, "resident_bytes", mt_host_other_resident_bytes(&sample, tree));
    write_text(run, MT_MACHINE_OTHERS, text);
}

void mt_watch_ended(struct mt_run *run, pid_t pid, int known, int status)
{
    struct watched *process = find(run, pid, 0);
    uint64_t fields[] = {(uint64_t)pid, MT_PROCESS_GONE, 0};
    if (process)
        process->ended = 1;
    if (known && WIFEXITED(status)) {
        fields[1] = MT_PROCESS_EXITED;
        fields[2] = (uint64_t)WEXITSTATUS(status);
    } else if (known && WIFSIGNALED(status)) {
        fields[1] = MT_PROCESS_KILLED;
        fields[2] = (uint64_t)WTERMSIG(status);
    }
    write_event(run, MT_EVENT_PROCESS_END, fields, 3);
}

void mt_watch_look(struct mt_run *run, uint64_t now_ns)
{
    if (now_ns >= run->next_tree_ns) {
        look_at_tree(run, now_ns);
        run->next_tree_ns = now_ns + TREE_EVERY_NS;
    }
    if (now_ns >= run->next_sample_ns) {
        look_at_processes(run, now_ns);
        run->next_sample_ns = now_ns + SAMPLE_EVERY_NS;
    }
    if (now_ns >= run->next_machine_ns) {
        look_at_machine(run);
        run->next_machine_ns = now_ns + MACHINE_EVERY_NS;
    }
}

void mt_watch_last_look(struct mt_run *run)
{
    look_at_machine(run);
}
