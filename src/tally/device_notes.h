/* SPDX-License-Identifier: MIT */
/* What is to be said of a device in words. */
#ifndef MT_TALLY_DEVICE_NOTES_H
#define MT_TALLY_DEVICE_NOTES_H

#include "tally/devices.h"

struct mt_torch;

/* Says what was refused of a device last: to whom, how much, what was free, what most of it was
 * then and what had grown. "" where nothing was. `start_ns` is when the recording began. Returns 0
 * or MT_ENOMEM. */
int mt_device_refusal_note(const struct mt_devices *devices, size_t place, uint64_t start_ns,
                           struct mt_torch *torch, char *text, size_t size);

#endif
