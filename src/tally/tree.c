/* SPDX-License-Identifier: MIT */
/* Replaying a process that began as a fork of another. */
#include "tally/tree.h"

/* The replay keeps so many files apart; deeper forks begin with what the nearest ones say. */
#define MOST_PARENTS 12

static int is_fork(const struct mt_image *image)
{
    return image->file && image->file->header.flags & MT_FILE_FORKED;
}

/* When the fork was. A process that was cloned behind libc's back has the time of an earlier fork
 * or none, and then began no later than its own first event. */
static uint64_t fork_ticks(const struct mt_image *parent, const struct mt_image *image)
{
    uint64_t ticks = image->file->header.fork_ticks;
    uint64_t start = image->file->header.start_ticks;
    return ticks < parent->file->header.start_ticks || ticks > start ? start : ticks;
}

/* Of the images that the parent process had, the last that began before the fork: a child may write
 * its first event when its parent has called exec already. */
const struct mt_image *mt_tree_parent(const struct mt_recording *recording,
                                      const struct mt_image *image)
{
    const struct mt_image *found = NULL;
    if (!is_fork(image))
        return NULL;
    const struct mt_file_header *header = &image->file->header;
    uint64_t ticks = header->fork_ticks ? header->fork_ticks : header->start_ticks;
    size_t n;
    const size_t *images = mt_images_of(recording, header->parent_pid, &n);
    for (size_t i = 0; i < n; i++) {
        const struct mt_image *parent = &recording->images[images[i]];
        if (parent->file && parent != image && parent->file->header.start_ticks <= ticks)
            found = parent;
    }
    return found;
}

const struct mt_image *mt_tree_root(const struct mt_recording *recording,
                                    const struct mt_image *image)
{
    for (int i = 0; i < MOST_PARENTS && image && is_fork(image); i++)
        image = mt_tree_parent(recording, image);
    return image && is_fork(image) ? NULL : image;
}

/* The parent's state at the fork is where a forked child begins. */
static int replay_parents(const struct mt_recording *recording, const struct mt_image *image,
                          struct mt_replay *replay, int depth)
{
    const struct mt_image *parent = depth < MOST_PARENTS ? mt_tree_parent(recording, image) : NULL;
    if (!parent)
        return 0;
    int result = replay_parents(recording, parent, replay, depth + 1);
    if (result == 0)
        result = mt_replay_file(replay, parent->file, fork_ticks(parent, image));
    /* The child counts its own small blocks from zero on top of what it inherited. */
    replay->inherited_allocs = replay->small_allocs;
    replay->inherited_alloc_bytes = replay->small_alloc_bytes;
    replay->inherited_frees = replay->small_frees;
    replay->inherited_free_bytes = replay->small_free_bytes;
    return result;
}

int mt_tree_replay(const struct mt_recording *recording, const struct mt_image *image,
                   const struct mt_picture *picture, struct mt_replay *replay)
{
    uint64_t ticks = picture->ticks ? picture->ticks : mt_clock_ticks(&image->clock, picture->ns);
    int result = replay_parents(recording, image, replay, 0);
    return result < 0 ? result : mt_replay_file(replay, image->file, ticks);
}
