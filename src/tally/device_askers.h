/* SPDX-License-Identifier: MIT */
/* Who asked for what devices held at a moment: the call stacks of their allocations. */
#ifndef MT_TALLY_DEVICE_ASKERS_H
#define MT_TALLY_DEVICE_ASKERS_H

#include "tally/image.h"
#include "tally/replay.h"

struct mt_device_asker {
    const struct mt_device_block *block;
    size_t image;   /* of the process, when it asked */
    uint32_t stack; /* of the replay; 0: none */
};

/* What was allocated at `ns`, or of each device at its own peak: by image, then by device.
 * *askers is owned by the caller (free()), also where it fails. Returns 0 or MT_ENOMEM. */
int mt_device_askers_list(const struct mt_recording *recording, int is_peak, uint64_t ns,
                          struct mt_device_asker **askers, size_t *n);

/* Replays the image of `askers`, which is one and the same, to its end and tells them their stacks.
 * Returns 0, MT_ENOMEM or MT_EIO. */
int mt_device_askers_find(const struct mt_recording *recording, struct mt_device_asker *askers,
                          size_t n, struct mt_replay *replay);

#endif
