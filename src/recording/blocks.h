/* SPDX-License-Identifier: MIT */
/* Finding the blocks of a recording file. Inside this room only. */
#ifndef MT_RECORDING_BLOCKS_H
#define MT_RECORDING_BLOCKS_H

#include "recording/reader.h"

/* Fills in the file's blocks, and counts what is damaged. Returns 0, MT_ENOMEM or MT_EIO. */
int mt_find_raw_blocks(struct mt_record_file *file);

/* Reads up to `length` bytes at `offset` of an open file. Returns how many there were, or a negated
 * errno. */
long mt_file_read(const struct mt_record_file *file, uint64_t offset, void *bytes, size_t length);

/* Counts one more thing that is damaged, at `offset` of the raw form. */
void mt_note_bad(struct mt_record_file *file, uint64_t offset);

/* Keeps the times of an event, and a moment by both clocks, where they are the latest. */
void mt_note_time(struct mt_record_file *file, const struct mt_event *event);
void mt_note_pair(struct mt_record_file *file, uint64_t ticks, uint64_t ns);

/* What tail_crc32c of a packed file has to be. */
uint32_t mt_header_tail_crc(const struct mt_file_header *header);

#endif
