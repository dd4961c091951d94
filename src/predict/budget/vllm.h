/* SPDX-License-Identifier: MIT */
/* vLLM's pool of blocks: how its layers' caches are put into groups that share it; and its experts.
 */
#ifndef MT_PREDICT_VLLM_H
#define MT_PREDICT_VLLM_H

#include "budget.h"

/* The pool of one rank of a stage. A block is `bytes_per_block` and holds, of one group, the pages
 * of `block_tokens` tokens of its layers; every group of a request takes blocks of its own. */
struct mt_vllm_pool {
    uint64_t block_tokens;
    uint64_t bytes_per_block;
    uint64_t blocks_per_request; /* of context_tokens */
    uint64_t n_groups;
    uint64_t bytes_per_token; /* of the layers whose cache grows with the context */
    uint64_t state_bytes;     /* of one recurrent layer; 0 without */
    uint64_t padding_layers;  /* that only fill a group */
};

void mt_vllm_pool_of(const struct mt_predict_input *in, const struct mt_torch_stage *stage,
                     struct mt_vllm_pool *pool);

/* Blocks that one request of `tokens` takes. */
uint64_t mt_vllm_blocks_of(const struct mt_predict_input *in, const struct mt_torch_stage *stage,
                           uint64_t tokens);

/* What a rank's experts in MXFP4 take more than the `read_bytes` that the file has of them. */
struct mt_vllm_experts {
    uint64_t more_bytes;
    uint64_t low_bytes;
    uint64_t high_bytes;
};
void mt_vllm_experts_of(const struct mt_predict_input *in, const struct mt_torch_stage *stage,
                        uint64_t read_bytes, struct mt_vllm_experts *experts);

/* The highest activations of the profiling run on a rank of a stage, and what stays of it: the
 * counters of the runner, and workspaces. */
struct mt_budget_part mt_vllm_profile_of(const struct mt_predict_input *in,
                                         const struct mt_torch_stage *stage, uint64_t mxfp4_bytes);
struct mt_budget_part mt_vllm_kept_of(const struct mt_predict_input *in,
                                      const struct mt_torch_stage *stage, uint64_t mxfp4_bytes);

/* Whether the version runs this model by its second runner, whose sampler, counters and estimate
 * of graphs are others. */
int mt_vllm_has_second_runner(const struct mt_predict_input *in);

/* Whether the first card is a Hopper, for which kernels and workspaces are others. */
int mt_vllm_is_hopper(const struct mt_predict_input *in);

/* Rows of logits that the profiling run samples from. */
uint64_t mt_vllm_logit_rows(const struct mt_predict_settings *settings);

#endif
