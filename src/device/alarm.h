/* SPDX-License-Identifier: MIT */
/* Alarms over a machine that tests replace. */
#ifndef MT_DEVICE_ALARM_H
#define MT_DEVICE_ALARM_H

#include <poll.h>

#include <memtally/alarm.h>

#include "device/host.h"

/* The outside world of this file. Each function gives a negative errno where it fails. */
struct mt_alarm_os {
    struct mt_host_os host;
    void *context;
    int (*open_file)(void *context, const char *path, int flags);
    long (*write_file)(void *context, int fd, const char *bytes, size_t n);
    long (*read_begin)(void *context, int fd, char *bytes,
                       size_t n); /* of a file, from its begin */
    int (*make_counter)(void *context);
    long (*take_count)(void *context, int fd, uint64_t *count); /* and sets it to zero */
    int (*wait)(void *context, struct pollfd *polled, size_t n, uint64_t timeout_ns);
    void (*close_file)(void *context, int fd);
};

void mt_alarm_os_init(struct mt_alarm_os *os);

int mt_alarm_open_with(const struct mt_alarm_os *os, int pid,
                       const struct mt_alarm_options *options, struct mt_alarm **alarm,
                       struct mt_error *error);

/* As mt_alarm_wait(), and comes back too once `fd` can be read. Returns 0, or MT_ETIMEOUT where
 * nothing happened. */
int mt_alarm_wait_beside(struct mt_alarm *alarm, int fd, uint64_t timeout_ns);

#endif
