/* SPDX-License-Identifier: MIT */
/* Rows of a device at a moment. */
#ifndef MT_TALLY_DEVICE_ROWS_H
#define MT_TALLY_DEVICE_ROWS_H

#include "tally/attribute.h"
#include "tally/devices.h"

struct mt_torch;

/* Says what parts of PyTorch's blocks are for, by the labels that lie in them. Once, before rows
 * are made. `torch` may be NULL. */
void mt_device_tell_torch(const struct mt_devices *devices, struct mt_torch *torch);

/* What the driver took during the call of a kind after which it said a use: its word then less that
 * before the call; 0 where the use is no such one. */
int64_t mt_device_taken_in_call(const struct mt_devices *devices, size_t use,
                                enum mt_device_reason reason);

/* Whether PyTorch's traces (may be NULL) say what a block was divided into. PyTorch may have had it
 * for several things in turn, of which a label told one. */
int mt_device_is_of_torch(const struct mt_torch *torch, const struct mt_device_block *block);

/* Puts what a device held at `moment` into `claims`, which begin empty. What PyTorch's allocator
 * had is divided by its own traces (may be NULL), where `is_peak` as at its fullest moment while it
 * had the same segments. They add up to what the driver said was used then; where it said nothing,
 * to what was allocated. Returns 0 or MT_ENOMEM. */
int mt_device_claims(const struct mt_devices *devices, size_t place,
                     const struct mt_device_moment *moment, int is_peak, struct mt_torch *torch,
                     struct mt_claims *claims);

#endif
