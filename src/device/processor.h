/* SPDX-License-Identifier: MIT */
/* What the machine says about its processor, behind a struct so that others can be replayed. */
#ifndef MT_DEVICE_PROCESSOR_H
#define MT_DEVICE_PROCESSOR_H

#include <memtally/processor.h>

#include "device/host.h"

/* The outside world. `grants_tiles` gets `context` of `host` and returns 1 where the kernel lets
 * this process use the registers of AMX, else 0. */
struct mt_processor_os {
    struct mt_host_os host;
    int (*grants_tiles)(void *context);
};

void mt_processor_os_init(struct mt_processor_os *os);

/* Like mt_processor_here() on any machine. *lacks_grant, where that is not NULL, says whether the
 * processor has AMX and the kernel does not let programs use it. */
enum mt_processor mt_processor_look(const struct mt_processor_os *os, int *lacks_grant);

#endif
