/* SPDX-License-Identifier: MIT */
/* Whether a program that does not end still works, with the memory that it has. */
#ifndef DRIVE_SETTLED_H
#define DRIVE_SETTLED_H

#include <stdint.h>
#include <sys/types.h>

/* What the processes had computed a while ago: an eighth to a quarter of the time before now. Start
 * with {0}. */
struct mt_drive_work {
    uint64_t begin_ns; /* by the monotonic clock, like the others */
    uint64_t at_ns[2], cpu_ns[2];
};

/* Processor time of a process's descendants that still run, in ns. `proc` is "/proc". */
uint64_t mt_drive_cpu_ns(const char *proc, pid_t root);

/* Takes note of it: call it now and then. */
void mt_drive_work_look(struct mt_drive_work *work, uint64_t now_ns, pid_t root);

/* Whether the processes have computed lately for more than a little of the time. One that waits
 * for something has not. */
int mt_drive_work_goes_on(const struct mt_drive_work *work, uint64_t now_ns, uint64_t cpu_ns);

#endif
