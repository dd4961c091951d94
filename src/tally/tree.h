/* SPDX-License-Identifier: MIT */
/* What a process image needs of the others of its recording. */
#ifndef MT_TALLY_TREE_H
#define MT_TALLY_TREE_H

#include "tally/image.h"
#include "tally/replay.h"

/* Finds the parent of each image, once they are sorted and have their pictures. Returns 0 or
 * MT_ENOMEM. */
int mt_tree_index(struct mt_recording *recording);

/* The image that `image` was forked from, NULL where it is not a fork or the recording does not
 * have its parent. A child that never did what is recorded has no file of its own. */
const struct mt_image *mt_tree_parent(const struct mt_recording *recording,
                                      const struct mt_image *image);

/* The image at the root of the forks that led to `image`, which is `image` where it is no fork;
 * NULL where a parent is missing. */
const struct mt_image *mt_tree_root(const struct mt_recording *recording,
                                    const struct mt_image *image);

/* The image whose file has the settings that `image` was recorded with: itself or the nearest
 * parent with one; NULL where the recorder was in none of them. */
const struct mt_image *mt_tree_recorded(const struct mt_recording *recording,
                                        const struct mt_image *image);

/* When `image` was forked from `parent`, in the ticks of all files of the tree. */
uint64_t mt_tree_fork_ticks(const struct mt_image *parent, const struct mt_image *image);

/* Who is told of events: of those of the image's parents from `parent` on. */
struct mt_tree_observer {
    void (*event)(void *context, const struct mt_image *image, const struct mt_event *event);
    void (*next_image)(void *context); /* what follows are a child's events after its fork */
    void *context;
    uint64_t from_ticks;
    uint64_t until_ticks;
};

/* Replays `image` up to `ticks`, a forked child on top of its parents up to the fork. `observer` is
 * told of the events of its time, first of the parents; it may be NULL. Returns 0 or MT_ENOMEM. */
int mt_tree_replay(const struct mt_recording *recording, const struct mt_image *image,
                   uint64_t ticks, const struct mt_tree_observer *observer,
                   struct mt_replay *replay);

#endif
