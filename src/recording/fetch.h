/* SPDX-License-Identifier: MIT */
/* Bytes of an open recording file, and what packed frames unpack to. Inside this room only. */
#ifndef MT_RECORDING_FETCH_H
#define MT_RECORDING_FETCH_H

#include "recording/reader.h"

/* Reads up to `length` bytes at `offset`. Returns how many there were, or a negated errno. */
long mt_file_read(const struct mt_record_file *file, uint64_t offset, void *bytes, size_t length);

/* Unpacks the frames of a packed file. */
struct mt_unpacker;

/* Returns NULL where memory ran out. */
struct mt_unpacker *mt_unpacker_create(const struct mt_record_file *file);
void mt_unpacker_destroy(struct mt_unpacker *unpacker);

/* What a frame at `offset` unpacked to. */
struct mt_frame {
    uint8_t *bytes;
    size_t length;
    size_t room; /* made as large as needed, up to `limit` */
    size_t limit;
    uint64_t end; /* where in the file the next one begins; of a damaged one, how far it was read */
};

/* Returns 1, 0 where the frame is damaged, cut or larger than frame->limit (what came out before
 * that is kept), MT_ENOMEM or MT_EIO. */
int mt_unpack_frame(struct mt_unpacker *unpacker, uint64_t offset, struct mt_frame *frame);

/* Reads events of blocks, for as many cursors as are said to take turns. Returns 0 or MT_ENOMEM. */
int mt_fetch_create(const struct mt_record_file *file, size_t n_cursors, struct mt_fetch **fetch);
void mt_fetch_destroy(struct mt_fetch *fetch);

/* Copies `length` bytes of the block's events from `from` on. Returns 0, MT_ENOMEM, or MT_EIO where
 * the file is not what it was when it was opened. */
int mt_fetch_events(struct mt_fetch *fetch, const struct mt_block *block, size_t from, uint8_t *to,
                    size_t length);

#endif
