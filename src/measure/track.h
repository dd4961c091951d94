/* SPDX-License-Identifier: MIT */
/* Tracking by another outside world, for tests. */
#ifndef MT_MEASURE_TRACK_H
#define MT_MEASURE_TRACK_H

#include <memtally/track.h>

#include "measure/os.h"

/* As mt_track_start(); `os` must live as long as *track. */
int mt_track_start_with(const struct mt_measure_os *os, const struct mt_track_options *options,
                        struct mt_track **track, struct mt_error *error);

#endif
