/* SPDX-License-Identifier: MIT */
/* What pretended devices are called. */
#ifndef CLI_REHEARSE_DEVICE_NAMES_H
#define CLI_REHEARSE_DEVICE_NAMES_H

#include <stddef.h>

#include "cli/command.h"

struct mt_error; /* <memtally/error.h> */

#define REHEARSE_NAMED_MAX   64
#define REHEARSE_NAMES_BYTES 4096

/* The name of each device, NULL where it has none. Their texts lie in `text`, so that a copy of it
 * is of no use. */
struct rehearse_device_names {
    const char *of[REHEARSE_NAMED_MAX];
    char text[REHEARSE_NAMES_BYTES];
};

/* Reads names, several in one text being parted by commas, for `n_devices` devices in their order.
 * One name alone is of all devices. Errors: MT_EARG (an empty name, one that engines would cut, one
 * that is no plain text, more names than devices). */
int rehearse_name_devices(const struct cli_texts *given, size_t n_devices,
                          struct rehearse_device_names *names, struct mt_error *error);

#endif
