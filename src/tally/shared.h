/* SPDX-License-Identifier: MIT */
/* File pages that processes of a tree have in common, by identity: a page is (device, inode,
 * offset), whoever maps it. */
#ifndef MT_TALLY_SHARED_H
#define MT_TALLY_SHARED_H

#include "tally/ranges.h"
#include "tally/table.h"

/* A piece of a file. */
struct mt_file_piece {
    uint64_t device;
    uint64_t inode;
    uint64_t low;
    uint64_t high;
};

struct mt_file_pages {
    uint64_t device;
    uint64_t inode;
    struct mt_ranges held;
};

/* What the processes so far hold. `pending` is what the process at hand holds: it counts for the
 * next ones, since the kernel counts a page twice that one process maps twice. Zero it before use.
 */
struct mt_shared_pages {
    struct mt_table by_hash;
    struct mt_file_pages *files;
    size_t n_files;
    size_t files_capacity;
    struct mt_file_piece *pending;
    size_t n_pending;
    size_t pending_capacity;
};

void mt_shared_pages_finish(struct mt_shared_pages *seen);

/* Notes that the process at hand holds `piece`; *held is how much of it earlier ones do. Returns 0
 * or MT_ENOMEM. */
int mt_shared_pages_note(struct mt_shared_pages *seen, const struct mt_file_piece *piece,
                         uint64_t *held);

/* The process at hand is one of the earlier ones from now on. Returns 0 or MT_ENOMEM. */
int mt_shared_pages_commit(struct mt_shared_pages *seen);

#endif
