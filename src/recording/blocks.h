/* SPDX-License-Identifier: MIT */
/* Finding the blocks of a recording file. Inside this room only. */
#ifndef MT_RECORDING_BLOCKS_H
#define MT_RECORDING_BLOCKS_H

#include "recording/reader.h"

/* Fills in the file's blocks, and counts what is damaged. Returns 0, MT_ENOMEM or MT_EIO. */
int mt_find_raw_blocks(struct mt_record_file *file);
int mt_find_packed_blocks(struct mt_record_file *file);

/* Counts one more thing that is damaged, at `offset` of the raw form. */
void mt_note_bad(struct mt_record_file *file, uint64_t offset);

/* What tail_crc32c of a packed file has to be. */
uint32_t mt_header_tail_crc(const struct mt_file_header *header);

#endif
