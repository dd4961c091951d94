/* SPDX-License-Identifier: MIT */
/* What is in a snapshot of PyTorch's allocator: torch.cuda.memory._snapshot() of PyTorch 2.1 to
 * 2.12 (torch/csrc/cuda/memory_snapshot.cpp, torch/cuda/_memory_viz.py).
 *
 * A part that is not as it should be is left out and counted. Two dictionaries that are one object
 * count once, so that a small file stands for no more than it has. */
#ifndef MT_PYTORCH_SNAPSHOT_H
#define MT_PYTORCH_SNAPSHOT_H

#include <memtally/category.h>
#include <memtally/snapshot.h>

#include <stdint.h>

#include "base/arena.h"

#define MT_SNAPSHOT_DEVICES_MAX 64u
#define MT_SNAPSHOT_FRAMES_MAX  256u /* of a stack; further ones, the outermost, are left out */

enum mt_snapshot_state { MT_SNAPSHOT_INACTIVE, MT_SNAPSHOT_ACTIVE, MT_SNAPSHOT_PENDING };

enum mt_snapshot_action_kind {
    MT_SNAPSHOT_ALLOC,
    MT_SNAPSHOT_FREE, /* the block can be used again */
    MT_SNAPSHOT_SEGMENT_TAKEN,
    MT_SNAPSHOT_SEGMENT_GIVEN,
    MT_SNAPSHOT_OOM,
};

/* Frames are borrowed from the snapshot, innermost first. Stack 0 is that of nobody. */
struct mt_snapshot_stack {
    size_t n;
    const struct mt_snapshot_frame **frames;
    uint16_t purpose; /* index into mt_snapshot_purposes; 0 if it is not known */
};

struct mt_snapshot_frame {
    char *text; /* "function (file:line)" */
    uint16_t purpose;
};

struct mt_snapshot_block {
    uint64_t address;
    uint64_t bytes; /* that it takes of its segment */
    uint64_t requested_bytes;
    enum mt_snapshot_state state;
    uint32_t stack;
};

struct mt_snapshot_segment {
    uint32_t device;
    int is_private; /* of a pool of captured graphs */
    uint64_t address;
    uint64_t bytes;
    uint64_t allocated_bytes; /* by PyTorch's own count of its blocks; MT_UNKNOWN */
    size_t first_block, n_blocks;
};

struct mt_snapshot_action {
    enum mt_snapshot_action_kind kind;
    uint64_t address; /* of OOM what was free */
    uint64_t bytes;
    uint64_t time_us; /* of an unnamed clock; 0 where it was not said */
    uint32_t stack;
};

struct mt_snapshot_device {
    size_t first_action, n_actions; /* in the order in which they were done */
    int has_segments;
};

struct mt_snapshot {
    char *path;
    struct mt_snapshot_device devices[MT_SNAPSHOT_DEVICES_MAX];
    size_t n_devices; /* one more than the highest that is spoken of */
    struct mt_snapshot_segment *segments;
    size_t n_segments;
    struct mt_snapshot_block *blocks;
    size_t n_blocks;
    struct mt_snapshot_action *actions;
    size_t n_actions;
    struct mt_snapshot_stack *stacks;
    size_t n_stacks;
    uint64_t n_left_out; /* parts that are not as they should be */
    struct mt_arena texts;
};

/* What a function in a stack tells of a block. */
struct mt_snapshot_purpose {
    enum mt_category category;
    const char *name;
    const char *file;     /* the end of its path */
    const char *function; /* NULL: any */
};

extern const struct mt_snapshot_purpose mt_snapshot_purposes[];

/* The same from bytes in memory, which are no longer needed then. `name` is for messages. */
int mt_snapshot_read(const void *bytes, size_t length, const char *name,
                     struct mt_snapshot **snapshot, struct mt_error *error);

#endif
