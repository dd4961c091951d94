/* SPDX-License-Identifier: MIT */
/* The events of one unfinished block, as a killed process leaves it. */
#include "recording_image.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length)
{
    struct mt_block_header header = {.magic = MT_BLOCK_MAGIC, .start_ticks = 1000};
    size_t room = MT_BLOCK_BYTES - sizeof header;
    if (length > room)
        return 0;
    static uint8_t image[MT_HEADER_BYTES + MT_BLOCK_BYTES];
    fill_header(image, 0, 1);
    header.used = (uint32_t)length;
    memcpy(image + MT_HEADER_BYTES, &header, sizeof header);
    memcpy(image + MT_HEADER_BYTES + sizeof header, data, length);
    struct mt_record_file *file = open_bytes(image, MT_HEADER_BYTES + MT_BLOCK_BYTES);
    if (!file || file->n_blocks != (length != 0) || file->blocks_bad)
        abort();
    read_all_events(file);
    mt_record_file_close(file);
    memset(image + MT_HEADER_BYTES + sizeof header, 0, length); /* for the next */
    return 0;
}
