/* SPDX-License-Identifier: MIT */
/* The outside world of the doctor, so that its advice can be tested for machines that we lack. */
#ifndef MT_DEVICE_DOCTOR_H
#define MT_DEVICE_DOCTOR_H

#include <stddef.h>
#include <stdint.h>

#include <memtally/doctor.h>

#include "device/processor.h"

/* Functions return 0 or a negative errno and get `context` of `host`. */
struct mt_doctor_os {
    struct mt_host_os host;
    /* Whether the pages of this process can be listed, by the PAGEMAP_SCAN call and by reading. */
    int (*try_pagemap_scan)(void *context);
    int (*try_pagemap_read)(void *context);
    int (*can_write)(void *context, const char *path);
    int (*is_program)(void *context, const char *path);
    int (*has_library)(void *context, const char *name);
    int (*grants_tiles)(void *context); /* as that of struct mt_processor_os */
    int (*free_bytes)(void *context, const char *directory, uint64_t *bytes);
};

void mt_doctor_os_init(struct mt_doctor_os *os);

/* Like mt_doctor_run() on any machine. */
int mt_doctor_look(const struct mt_doctor_os *os, const struct mt_doctor_options *options,
                   struct mt_check **checks, size_t *n_checks, struct mt_error *error);

#endif
