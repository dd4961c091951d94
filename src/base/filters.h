/* SPDX-License-Identifier: MIT */
/* Filters of system calls (seccomp), by what the kernel says of a process. Preload-safe. */
#ifndef MT_BASE_FILTERS_H
#define MT_BASE_FILTERS_H

#include <string.h>

#define MT_OWN_STATUS       "/proc/self/status"
#define MT_STATUS_BYTES     4096
#define MT_FILTERS_VARIABLE "MEMTALLY_RECORD_FILTERS"

/* The number behind `key` in the text of a /proc/PID/status; -1 where there is none. */
static inline int mt_status_number(const char *status, const char *key)
{
    const char *at = strstr(status, key);
    int number = 0;
    if (!at)
        return -1;
    for (at += strlen(key); *at == '\t' || *at == ' '; at++)
        ;
    for (; *at >= '0' && *at <= '9' && number < 1000000; at++)
        number = number * 10 + (*at - '0');
    return number;
}

/* How many filters stand over a process; before Linux 5.9, which counts them, 1 for any. A text
 * that does not say has none. */
static inline int mt_count_filters(const char *status)
{
    int count = mt_status_number(status, "\nSeccomp_filters:");
    int mode = mt_status_number(status, "\nSeccomp:");
    if (count >= 0)
        return count;
    return mode > 0;
}

#endif
