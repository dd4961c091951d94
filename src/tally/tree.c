/* SPDX-License-Identifier: MIT */
/* Replaying a process that began as a fork of another. */
#include "tally/tree.h"

/* The parent's state at the fork is where a forked child begins. */
static int replay_parents(const struct mt_recording *recording, const struct mt_image *image,
                          struct mt_replay *replay, int depth)
{
    if (!(image->file->header.flags & MT_FILE_FORKED) || depth > 8)
        return 0;
    const struct mt_image *parent =
        mt_image_at(recording, image->file->header.parent_pid, image->start_ns);
    if (!parent || !parent->file || parent == image)
        return 0;
    int result = replay_parents(recording, parent, replay, depth + 1);
    if (result == 0)
        result = mt_replay_file(replay, parent->file, image->file->header.fork_ticks);
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
