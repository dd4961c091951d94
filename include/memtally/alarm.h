/* SPDX-License-Identifier: MIT */
/* Waits for the kernel to say that memory is short, without looking again and again.
 *
 *     struct mt_alarm *alarm;
 *     if (mt_alarm_open(0, NULL, &alarm, &error) == MT_OK) {
 *         while (mt_alarm_wait(alarm, MT_UNKNOWN, &counts, &error) == MT_OK)
 *             give_back(&counts);
 *         mt_alarm_close(alarm);
 *     }
 *
 * Waited for are stalls (Linux's pressure stall information) of the machine and of the process's
 * control group, and what happens to that group: files of version 2 that change, event descriptors
 * of version 1. An alarm belongs to one thread. */
#ifndef MEMTALLY_ALARM_H
#define MEMTALLY_ALARM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */

enum mt_alarm_kind {
    MT_ALARM_STALL,       /* tasks of the machine waited for memory */
    MT_ALARM_GROUP_STALL, /* tasks of the group did; version 2 */
    MT_ALARM_NEAR,        /* version 2: the group met its high mark or its limit; version 1: its use
                             went past a share of its limit */
    MT_ALARM_OOM,         /* the group has no memory left, or its OOM killer came */
    MT_N_ALARMS
};

/* The name of a kind ("group_stall"). Borrowed, static. */
const char *mt_alarm_kind_name(enum mt_alarm_kind kind);

/* Zeros are the defaults. */
struct mt_alarm_options {
    uint64_t stall_ns;  /* within a window; 0: 150 ms */
    uint64_t window_ns; /* 0: 2 s. The kernel takes multiples of 2 s only from callers without
                           CAP_SYS_RESOURCE; another window is then rounded up, with its stall */
    double near_ratio;  /* of the limit of a group of version 1; 0: 0.85 */
};

struct mt_alarm_counts {
    uint64_t n[MT_N_ALARMS];        /* since the opening; stalls at most once in a window */
    int is_waited_for[MT_N_ALARMS]; /* 0: the kernel does not say */
    uint64_t window_ns;             /* as the kernel took it; 0: it took none */
};

struct mt_alarm;

/* Opens what there is for process `pid` (0: the caller); NULL options are the defaults. The alarm
 * is owned: mt_alarm_close(). Errors: MT_EUNSUPPORTED (the kernel says nothing of the kind),
 * MT_EARG (a stall longer than its window, a window not between 0.5 and 10 s, a ratio outside 0 to
 * 1), MT_ENOMEM. */
int mt_alarm_open(int pid, const struct mt_alarm_options *options, struct mt_alarm **alarm,
                  struct mt_error *error);

/* Waits for something to happen, at most `timeout_ns`; MT_UNKNOWN: as long as it takes. `counts`
 * may be NULL. Returns MT_OK also where a signal handler ran. Errors: MT_ETIMEOUT, MT_EUNSUPPORTED
 * (nothing is left to wait for: the group is gone). */
int mt_alarm_wait(struct mt_alarm *alarm, uint64_t timeout_ns, struct mt_alarm_counts *counts,
                  struct mt_error *error);

/* What was counted so far. It does not look. */
void mt_alarm_read(const struct mt_alarm *alarm, struct mt_alarm_counts *counts);

/* NULL is allowed. */
void mt_alarm_close(struct mt_alarm *alarm);

#ifdef __cplusplus
}
#endif
#endif
