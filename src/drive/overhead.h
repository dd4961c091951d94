/* SPDX-License-Identifier: MIT */
/* What a device has no room for beside the engine. */
#ifndef DRIVE_HELD_BACK_H
#define DRIVE_HELD_BACK_H

#include <memtally/settings.h>
#include <stddef.h>
#include <stdint.h>

struct mt_error; /* <memtally/error.h> */

/* What the driver and libraries take of device number `device` of the settings, the middle of a
 * band: what mt_estimate_from_plan() adds. Without what other programs use. Errors: those of
 * mt_residue_expected(). */
int mt_drive_overhead(const struct mt_predict_settings *settings, size_t device, uint64_t *bytes,
                      struct mt_error *error);

#endif
