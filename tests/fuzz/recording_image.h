/* SPDX-License-Identifier: MIT */
/* Recording files made from a fuzzer's bytes, in memory files that the reader opens by name. */
#ifndef MT_TESTS_RECORDING_IMAGE_H
#define MT_TESTS_RECORDING_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "recording/reader.h"

/* Opens the recording that `bytes` are; NULL where it is refused. */
struct mt_record_file *open_bytes(const uint8_t *bytes, size_t length);

/* The header that `settings` gives, made whole: magic, version, sizes and checksums. */
void put_header(uint8_t page[MT_HEADER_BYTES], const struct mt_file_header *settings,
                uint32_t flags, uint32_t n_blocks);

/* The header of a small recording, with its checksums right. */
void fill_header(uint8_t page[MT_HEADER_BYTES], uint32_t flags, uint32_t n_blocks);

/* Makes the checksum of a block right that has `room` bytes of events behind it. */
void seal_block(uint8_t *block, size_t room);

/* Reads all that can be read of a file, aborts where it contradicts itself, and returns a hash over
 * the events of all blocks. */
uint64_t read_all_events(const struct mt_record_file *file);

#endif
