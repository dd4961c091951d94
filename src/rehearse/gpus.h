/* SPDX-License-Identifier: MIT */
/* The table of GPUs that can be pretended to CUDA programs (data/gpus). */
#ifndef MT_REHEARSE_GPUS_H
#define MT_REHEARSE_GPUS_H

#include <memtally/error.h>
#include <memtally/rehearse.h>

#include "rehearse/account.h"

/* A row of the table. */
struct mt_gpu_row {
    char key[32]; /* "H100-80GB" */
    char also[96];
    uint64_t memory_bytes;
    struct mt_account_gpu gpu;
    uint64_t context_low_bytes, context_high_bytes;
    uint64_t module_low_bytes, module_high_bytes;
    uint64_t communication_low_bytes, communication_high_bytes;
};

/* The row at `index`, 0 past the last. */
int mt_gpu_row_at(size_t index, struct mt_gpu_row *row);

/* The GPU that is called `name`, without regard to case and to what parts its words. Errors:
 * MT_EARG, whose text lists names that are near it. */
int mt_gpu_find(const char *name, struct mt_gpu_row *row, struct mt_error *error);

/* The GPU whose memory is nearest to `bytes`, the first of such in the table. */
void mt_gpu_nearest(uint64_t bytes, struct mt_gpu_row *row);

#endif
