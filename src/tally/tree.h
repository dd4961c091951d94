/* SPDX-License-Identifier: MIT */
/* What a process image needs of the others of its recording. */
#ifndef MT_TALLY_TREE_H
#define MT_TALLY_TREE_H

#include "tally/image.h"
#include "tally/replay.h"

/* The image that `image` was forked from, NULL where it is not a fork or the recording does not
 * have its parent. */
const struct mt_image *mt_tree_parent(const struct mt_recording *recording,
                                      const struct mt_image *image);

/* The image at the root of the forks that led to `image`, which is `image` where it is no fork;
 * NULL where a parent is missing. */
const struct mt_image *mt_tree_root(const struct mt_recording *recording,
                                    const struct mt_image *image);

/* Replays `image` up to `picture`, a forked child on top of its parents up to the fork. The image
 * has a file. Returns 0 or MT_ENOMEM. */
int mt_tree_replay(const struct mt_recording *recording, const struct mt_image *image,
                   const struct mt_picture *picture, struct mt_replay *replay);

#endif
