/* SPDX-License-Identifier: MIT */
#include "settled.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ports.h"

#define DESCENDANTS_MAX 256
#define LEAST_PART      50 /* of the time: what a waiting program's own clocks stay under */
#define LOOKS           8  /* of the time, between two looks */
#define STAT_BYTES      1024
#define FIELDS_TO_CPU   11 /* after the name: state and ten more stand before utime */

/* utime and stime of a process; its name may hold anything, the last ")" ends it. */
static uint64_t ticks_of(const char *proc, pid_t pid)
{
    char path[64];
    char text[STAT_BYTES];
    uint64_t user = 0;
    uint64_t system = 0;
    snprintf(path, sizeof path, "%.32s/%ld/stat", proc, (long)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    const char *at = strrchr(text, ')');
    at = at && at[1] ? at + 2 : NULL;
    for (int i = 0; at && i < FIELDS_TO_CPU; i++) {
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    if (!at || sscanf(at, "%" SCNu64 " %" SCNu64, &user, &system) != 2)
        return 0;
    return user + system;
}

uint64_t mt_drive_cpu_ns(const char *proc, pid_t root)
{
    pid_t pids[DESCENDANTS_MAX];
    size_t n = mt_drive_descendants(proc, root, pids, DESCENDANTS_MAX);
    uint64_t ticks = 0;
    long per_second = sysconf(_SC_CLK_TCK);
    for (size_t i = 0; i < n; i++)
        ticks += ticks_of(proc, pids[i]);
    return per_second > 0 ? ticks * (1000000000u / (uint64_t)per_second) : 0;
}

void mt_drive_work_look(struct mt_drive_work *work, uint64_t now_ns, pid_t root)
{
    if (!work->begin_ns)
        work->begin_ns = work->at_ns[0] = work->at_ns[1] = now_ns;
    if ((now_ns - work->at_ns[1]) * LOOKS < now_ns - work->begin_ns || now_ns == work->begin_ns)
        return;
    work->at_ns[0] = work->at_ns[1];
    work->cpu_ns[0] = work->cpu_ns[1];
    work->at_ns[1] = now_ns;
    work->cpu_ns[1] = mt_drive_cpu_ns("/proc", root);
}

int mt_drive_work_goes_on(const struct mt_drive_work *work, uint64_t now_ns, uint64_t cpu_ns)
{
    if (now_ns <= work->at_ns[0] || cpu_ns <= work->cpu_ns[0])
        return 0;
    return cpu_ns - work->cpu_ns[0] > (now_ns - work->at_ns[0]) / LEAST_PART;
}
