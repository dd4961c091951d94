/* SPDX-License-Identifier: MIT */
/* Which picture of a process shows it best as it was at some time. */
#ifndef MT_TALLY_NEAREST_H
#define MT_TALLY_NEAREST_H

#include "tally/image.h"

/* If there are more pictures than these, only the nearest in time are looked at. */
#define MT_NEAREST_MOST 1024u

/* The one of `pictures`, which are by time, that shows the process best at `ns`, when it had so
 * many bytes resident. NULL where there is none. Counts in *looked_at, unless NULL, how many were
 * looked at. */
const struct mt_picture *mt_picture_nearest(const struct mt_picture *pictures, size_t n,
                                            uint64_t ns, uint64_t resident_bytes,
                                            size_t *looked_at);

#endif
