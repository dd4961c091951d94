/* SPDX-License-Identifier: MIT */
/* Sources over this room's outside world, which tests replace. */
#ifndef MT_GUARD_SOURCE_H
#define MT_GUARD_SOURCE_H

#include <memtally/monitor.h>

#include "device/host.h"
#include "device/nvml.h"

/* What process `pid` (0: the caller) can have of the host; `is_group`: of its control group alone.
 * Errors: as mt_monitor_open_source(). */
int mt_monitor_open_host(const struct mt_host_os *os, int pid, int is_group,
                         struct mt_monitor_source *source, struct mt_error *error);

/* What a program and its descendants have resident, of what it can have of the host. Errors: those,
 * MT_ENOTFOUND (no such process). */
int mt_monitor_open_program(const struct mt_host_os *os, int pid, struct mt_monitor_source *source,
                            struct mt_error *error);

int mt_monitor_open_device(mt_nvml_open open, void *context, int index,
                           struct mt_monitor_source *source, struct mt_error *error);

#endif
