/* SPDX-License-Identifier: MIT */
/* The graphics devices of the machine by the kernel's drivers, and those whose memory is not seen.
 */
#ifndef MT_DEVICE_CARDS_H
#define MT_DEVICE_CARDS_H

#include "device/host.h"

#define MT_CARDS_BYTES 192u

/* As "amdgpu (card0), i915 (card1)", cut where there is no room for more; "" for none. */
struct mt_cards {
    char all[MT_CARDS_BYTES];
    char unseen[MT_CARDS_BYTES]; /* those of AMD and Intel */
};

/* Looks under /sys/class/drm. Returns 0 or a negative errno. */
int mt_cards_read(const struct mt_host_os *os, struct mt_cards *cards);

#endif
