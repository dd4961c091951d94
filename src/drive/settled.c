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
#define FIELDS_TO_CPU   11 /* after the name: state and ten more stand before utime */

/* utime and stime of a process. */
static uint64_t ticks_of(const char *proc, pid_t pid)
{
    char text[MT_DRIVE_STAT_BYTES];
    uint64_t user = 0;
    uint64_t system = 0;
    const char *at = mt_drive_stat(proc, pid, text);
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
