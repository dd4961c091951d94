/* SPDX-License-Identifier: MIT */
/* Snapshots of PyTorch's allocator, as torch.cuda.memory._dump_snapshot() writes them, as tallies.
 *
 * The file is a pickle, of which only data are read: nothing in it is executed. Each device is a
 * place whose total is what the allocator had reserved in segments. What the driver took besides
 * is in no snapshot. A snapshot object is read-only once open and may be used from several threads
 * at a time. Sizes are in bytes. */
#ifndef MEMTALLY_SNAPSHOT_H
#define MEMTALLY_SNAPSHOT_H

#include <stddef.h>

#include <memtally/recording.h>
#include <memtally/tally.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */
struct mt_snapshot;

/* Reads the snapshot in the file `path`. On success *snapshot is owned by the caller; close it
 * with mt_snapshot_close(). Errors, with the offset of the byte: MT_EFORMAT (no pickle, more than
 * data, or no snapshot), MT_ETRUNCATED, MT_EVERSION, MT_EIO, MT_EPERM, MT_ENOTFOUND, MT_ENOMEM. */
int mt_snapshot_open(const char *path, struct mt_snapshot **snapshot, struct mt_error *error);

/* Whether the file `path` begins as a snapshot does. 0 also where it cannot be read. Any thread. */
int mt_snapshot_is_file(const char *path);

/* Closes a snapshot. Takes NULL. */
void mt_snapshot_close(struct mt_snapshot *snapshot);

/* The tally at a moment: MT_MOMENT_EXIT is when the snapshot was made. MT_MOMENT_PEAK is, of each
 * device by itself, when its blocks held most in the time that the snapshot's history covers;
 * without a history, when it was made. MT_MOMENT_TIME counts from the beginning of the history.
 * Other moments are MT_EARG. A category rests on the functions in a block's call stack and is
 * inferred; what no function tells is unattributed. On success *tally is owned by the caller; free
 * it with mt_tally_destroy(). Errors: MT_EARG, MT_ENOMEM. */
int mt_snapshot_tally(const struct mt_snapshot *snapshot, const struct mt_moment *moment,
                      struct mt_tally **tally, struct mt_error *error);

/* The call stacks that hold blocks at a moment, over all devices; at most `limit` entries, 0 for
 * all. A frame is "function (file:line)". *stacks is owned by the caller; free it with
 * mt_stack_list_destroy(). Errors: as mt_snapshot_tally(). */
int mt_snapshot_stacks(const struct mt_snapshot *snapshot, const struct mt_moment *moment,
                       size_t limit, struct mt_stack_list **stacks, struct mt_error *error);

#ifdef __cplusplus
}
#endif
#endif
