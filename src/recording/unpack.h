/* SPDX-License-Identifier: MIT */
/* The events of a packed recording, in the order in which they were merged. Inside this room only.
 */
#ifndef MT_RECORDING_UNPACK_H
#define MT_RECORDING_UNPACK_H

#include "recording/reader.h"

/* Lists the frames of an open file, and finds its last times and what is damaged. Returns 0,
 * MT_ENOMEM or MT_EIO. */
int mt_find_frames(struct mt_record_file *file);

/* Steps through the events of a file whose frames are listed. */
struct mt_frames;

/* On success *frames is owned by the caller. Errors: MT_ENOMEM. */
int mt_frames_create(const struct mt_record_file *file, struct mt_frames **frames);
void mt_frames_destroy(struct mt_frames *frames);

/* See mt_merge_skip_blocks(). */
void mt_frames_skip_blocks(struct mt_frames *frames);

/* Returns 1 and the next event, or 0 at the end and where it failed. What is left of a picture part
 * of which is missing is passed over. *begun (may be NULL) gets the header of each block that
 * begins. */
int mt_frames_next(struct mt_frames *frames, struct mt_event *event, struct mt_block_header *begun);

/* 0, MT_ENOMEM or MT_EIO. */
int mt_frames_failed(const struct mt_frames *frames);

/* How many frames so far broke the grammar, and blocks were not finished by their writer. */
size_t mt_frames_broken(const struct mt_frames *frames);
size_t mt_frames_blocks_open(const struct mt_frames *frames);

#endif
