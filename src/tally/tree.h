/* SPDX-License-Identifier: MIT */
/* What a process image needs of the others of its recording. */
#ifndef MT_TALLY_TREE_H
#define MT_TALLY_TREE_H

#include "tally/image.h"
#include "tally/replay.h"

/* Replays `image` up to `picture`, a forked child on top of its parents up to the fork. The image
 * has a file. Returns 0 or MT_ENOMEM. */
int mt_tree_replay(const struct mt_recording *recording, const struct mt_image *image,
                   const struct mt_picture *picture, struct mt_replay *replay);

#endif
