/* SPDX-License-Identifier: MIT */
/* The pages of files as ranges of offsets, one range map for each file. */
#include "tally/shared.h"
#include "base/array.h"

#include <memtally/error_code.h>
#include <stdlib.h>

void mt_shared_pages_finish(struct mt_shared_pages *seen)
{
    for (size_t i = 0; i < seen->n_files; i++)
        mt_ranges_finish(&seen->files[i].held);
    free(seen->files);
    free(seen->pending);
    mt_table_finish(&seen->by_hash);
    *seen = (struct mt_shared_pages){0};
}

/* Finds the file of `piece`, or the hash that it would be kept under. */
static struct mt_file_pages *find(const struct mt_shared_pages *seen,
                                  const struct mt_file_piece *piece, uint64_t *hash)
{
    uint64_t index;
    *hash = (piece->device * 0x9e3779b97f4a7c15u ^ piece->inode) >> 1;
    for (; mt_table_get(&seen->by_hash, *hash, &index); ++*hash) {
        struct mt_file_pages *file = &seen->files[index];
        if (file->device == piece->device && file->inode == piece->inode)
            return file;
    }
    return NULL;
}

static uint64_t held_of(const struct mt_ranges *ranges, uint64_t low, uint64_t high)
{
    struct mt_range range;
    uint64_t held = 0;
    while (low < high && mt_ranges_at_or_after(ranges, low, &range) && range.low < high) {
        uint64_t from = range.low > low ? range.low : low;
        uint64_t to = range.high < high ? range.high : high;
        held += to - from;
        low = to;
    }
    return held;
}

int mt_shared_pages_note(struct mt_shared_pages *seen, const struct mt_file_piece *piece,
                         uint64_t *held)
{
    uint64_t hash;
    if (mt_array_reserve(seen->pending, seen->n_pending, seen->pending_capacity, 256) < 0)
        return MT_ENOMEM;
    seen->pending[seen->n_pending++] = *piece;
    const struct mt_file_pages *file = find(seen, piece, &hash);
    *held = file ? held_of(&file->held, piece->low, piece->high) : 0;
    return 0;
}

static struct mt_file_pages *add(struct mt_shared_pages *seen, const struct mt_file_piece *piece,
                                 uint64_t hash)
{
    if (mt_array_reserve(seen->files, seen->n_files, seen->files_capacity, 64) < 0)
        return NULL;
    if (mt_table_set(&seen->by_hash, hash, seen->n_files) < 0)
        return NULL;
    struct mt_file_pages *file = &seen->files[seen->n_files++];
    *file = (struct mt_file_pages){.device = piece->device, .inode = piece->inode};
    mt_ranges_init(&file->held);
    return file;
}

int mt_shared_pages_commit(struct mt_shared_pages *seen)
{
    for (size_t i = 0; i < seen->n_pending; i++) {
        const struct mt_file_piece *piece = &seen->pending[i];
        uint64_t hash;
        struct mt_file_pages *file = find(seen, piece, &hash);
        if (!file)
            file = add(seen, piece, hash);
        if (!file)
            return MT_ENOMEM;
        mt_ranges_set(&file->held, piece->low, piece->high, 1);
        if (file->held.failed)
            return MT_ENOMEM;
    }
    seen->n_pending = 0;
    return 0;
}
