/* SPDX-License-Identifier: MIT */
/* What each recorded process had of a device, block by block, over time. */
#ifndef MEMTALLY_HISTORY_H
#define MEMTALLY_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#include <memtally/category.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error;     /* <memtally/error.h> */
struct mt_recording; /* <memtally/recording.h> */

/* A piece of a device's memory in one process, from when it was taken until it was given back. */
struct mt_device_span {
    uint64_t address;
    uint64_t bytes;
    uint64_t begin_ns;         /* since the start of the recording */
    uint64_t end_ns;           /* MT_UNKNOWN where it stayed */
    int is_segment;            /* an allocation of the driver's; else a block within one */
    enum mt_category category; /* of a block; MT_CATEGORY_NONE if it is not known */
    const char *name;          /* likewise: "parameters"; "" if it is not known */
};

/* What one process had of one device. Spans are in the order of begin_ns; a segment comes before
 * its blocks. An allocation that is not PyTorch's has one block, which is all of it. */
struct mt_device_history {
    char place[64];
    uint64_t pid;
    size_t n_spans;
    const struct mt_device_span *spans;
};

struct mt_device_histories {
    size_t n;
    const struct mt_device_history *items;
};

/* The histories of the recording's devices. *histories is owned by the caller; free it with
 * mt_device_histories_destroy(). Errors: MT_ENOMEM, MT_EIO. */
int mt_recording_device_histories(const struct mt_recording *recording,
                                  struct mt_device_histories **histories, struct mt_error *error);

/* Frees histories. Takes NULL. */
void mt_device_histories_destroy(struct mt_device_histories *histories);

#ifdef __cplusplus
}
#endif
#endif
