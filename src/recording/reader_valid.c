/* SPDX-License-Identifier: MIT */
/* What holds for the index of every recording file. */
#include "recording/reader.h"

static int in_order(const struct mt_block *one, const struct mt_block *next)
{
    return one->header.stream < next->header.stream ||
           (one->header.stream == next->header.stream &&
            one->header.sequence < next->header.sequence);
}

int mt_record_file_is_valid(const struct mt_record_file *file)
{
    int is_packed = (file->header.flags & MT_FILE_PACKED) != 0;
    if (is_packed ? file->blocks != NULL : file->n_frames != 0)
        return 0;
    for (size_t i = 0; i < file->n_blocks && !is_packed; i++)
        if (file->blocks[i].offset >= file->file_bytes ||
            (i && !in_order(&file->blocks[i - 1], &file->blocks[i])))
            return 0;
    for (size_t i = 0; i < file->n_frames; i++)
        if (file->frames[i].offset >= file->file_bytes ||
            (i && file->frames[i].offset <= file->frames[i - 1].offset))
            return 0;
    return 1;
}
