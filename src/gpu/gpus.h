/* SPDX-License-Identifier: MIT */
/* The tables of GPUs (data/gpus): cards by their names, and the card that stands for a size.
 * NVIDIA's can be pretended to CUDA programs; AMD's have a size and a generation, Apple's a size
 * alone. */
#ifndef MT_GPU_GPUS_H
#define MT_GPU_GPUS_H

#include <stddef.h>
#include <stdint.h>

#include "gpu/law.h"

struct mt_error; /* <memtally/error.h> */

/* A row of a table. */
struct mt_gpu_row {
    char key[32]; /* "H100-80GB" */
    char also[128];
    char kind[16]; /* "cuda", "rocm", "metal" */
    uint64_t memory_bytes;
    uint32_t is_typical;  /* taken where only a size is given */
    uint32_t is_measured; /* the context is of such cards, not of the law */
    struct mt_gpu_spec gpu;
    struct mt_gpu_band context, modules, communication, communication_many, graph_node;
};

/* Reads the row at `at`, the first one where that is NULL; NVIDIA's come first. Returns where the
 * next one is, NULL where there was none. */
const char *mt_gpu_next(const char *at, struct mt_gpu_row *row);

/* The row at `index`, 0 past the last. */
int mt_gpu_row_at(size_t index, struct mt_gpu_row *row);

/* The GPU that is called `name`, without regard to case and to what parts its words. Errors:
 * MT_EARG, whose text lists names that are near it. */
int mt_gpu_find(const char *name, struct mt_gpu_row *row, struct mt_error *error);

/* Whether `name`, by which `row` was found, may mean another size of the same card ("A100"); *other
 * is then that one. */
int mt_gpu_has_other_size(const char *name, const struct mt_gpu_row *row, struct mt_gpu_row *other);

/* The NVIDIA GPU that a device of `bytes` is taken for: the nearest in size of the typical ones, or
 * of a generation ("ampere", "8.6") of all that it has; the first of such. Errors: MT_EARG with the
 * generations that there are; none without a generation. */
int mt_gpu_of_size(uint64_t bytes, const char *generation, struct mt_gpu_row *row,
                   struct mt_error *error);

/* Whether a device of which we only know `bytes` may be such a card. */
int mt_gpu_may_be(const struct mt_gpu_row *row, uint64_t bytes);

#endif
