/* SPDX-License-Identifier: MIT */
/* Engines with a budget: the cache gets what nothing else needs of a share of the device.
 *
 * What is known of all of them is here: the walk over the ranks, what is left of a device and how
 * surely, the rank that bounds all, the totals of places where parts make up for each other, and
 * the flags. An engine says which parts there are, and how many units of cache so many bytes hold.
 */
#ifndef MT_PREDICT_BUDGET_H
#define MT_PREDICT_BUDGET_H

#include "gpu/gpus.h"
#include "predict/torch/torch.h"

struct mt_estimate_pool; /* <memtally/predict.h> */

#define MT_BUDGET_PARTS_MAX 8

/* Where a part stands:
 *
 *   requested = share * (capacity - BEFORE)
 *   left      = requested - WITHIN - SET_ASIDE
 *
 * BESIDE comes on top when the cache is there. SET_ASIDE is the engine's own estimate of what comes
 * on top: what it really takes may be another number. */
enum mt_budget_stand { MT_BUDGET_BEFORE, MT_BUDGET_WITHIN, MT_BUDGET_SET_ASIDE, MT_BUDGET_BESIDE };

struct mt_budget_part {
    enum mt_budget_stand stand;
    uint64_t bytes;
    uint64_t low;
    uint64_t high;
};

/* A rank on its device. An engine's own rank begins with it. */
struct mt_budget_rank {
    int device;
    struct mt_torch_stage stage;
    struct mt_torch_weights weights;
    struct mt_budget_part parts[MT_BUDGET_PARTS_MAX];
    size_t n_parts;
    uint64_t requested;
    int64_t left;
    int64_t left_low;
    int64_t left_high;
};

/* Units of cache, blocks or tokens, that all ranks hold as many of as the tightest one. */
struct mt_budget_units {
    uint64_t n;
    uint64_t low;
    uint64_t high;
};

struct mt_budget_engine {
    size_t rank_bytes; /* of its own struct, which begins with a struct mt_budget_rank */
    int is_fused;      /* as struct mt_torch_load has it */
    /* Fills in the parts of a rank, whose stage and weights are known, and what is its own. */
    void (*make)(const struct mt_predict_input *in, struct mt_budget_rank *rank);
    /* The parts that differ between devices, where there are any; NULL: there are none. */
    void (*place)(const struct mt_predict_input *in, struct mt_budget_rank *rank);
    /* How many units so many bytes above 0 hold; MT_FAR of a rank without a cache. */
    uint64_t (*units)(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                      uint64_t bytes);
    /* What the rank's cache takes with so many units. */
    uint64_t (*cache_bytes)(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                            uint64_t units);
    void (*write)(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                  const struct mt_budget_units *units, struct mt_sheet *sheet);
    /* Describes the pool of the tightest rank; what all engines have is filled in. */
    void (*fill_pool)(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                      const struct mt_budget_units *units, struct mt_estimate_pool *pool);
    /* Says what keeps the engine from starting; `idle` ends a reason, as mt_torch_idle_devices()
     * has it. */
    void (*judge)(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                  const struct mt_budget_units *units, const char *idle, struct mt_sheet *sheet);
};

/* Predicts by way of two ranks of the caller's, of engine->rank_bytes each. */
int mt_budget_predict(const struct mt_budget_engine *engine, const struct mt_predict_input *in,
                      struct mt_budget_rank *rank, struct mt_budget_rank *tightest,
                      struct mt_sheet *sheet, struct mt_error *error);

/* Adds a part to a rank. */
void mt_budget_add(struct mt_budget_rank *rank, struct mt_budget_part part);

/* What CUDA graphs take on a rank of a stage, as a part of its budget. Returns 0 and leaves the
 * part where there is no rule. */
int mt_budget_graphs_part(const struct mt_predict_input *in, const struct mt_torch_stage *stage,
                          struct mt_budget_part *part);

/* Puts in the share of a device, by the key "memory_share" where the settings leave it open, and
 * checks it. Errors: MT_EARG, which names the engine's flag. */
int mt_budget_complete_share(const struct mt_engine *engine, struct mt_predict_settings *settings,
                             struct mt_error *error);

/* How many numbers the rotations of all positions are, which engines keep, once for each kind of
 * layer that rotates differently. */
uint64_t mt_budget_rotations(const struct mt_predict_input *in);

/* Bytes of each in vLLM: those of the model's floats, or 4 of families that ask for 32 bit. */
uint64_t mt_budget_rotation_width(const struct mt_predict_input *in);

/* Writes what they take. */
void mt_budget_write_rotations(uint64_t bytes, int place, struct mt_sheet *sheet);

/* The least memory of a device. */
uint64_t mt_budget_smallest_device(const struct mt_predict_settings *settings);
/* The first card, by its name or by the size of the smallest. */
struct mt_gpu_spec mt_budget_card(const struct mt_predict_input *in);

#endif
