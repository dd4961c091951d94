/* SPDX-License-Identifier: MIT */
/* Which CUDA graphs an engine captures, and what they take.
 *
 * The engine's table has the rule, by the version that it holds from:
 *
 *   graphs.rule           requests: sizes are requests of a batch; tokens: they are tokens
 *   graphs.kinds          FULL and PIECEWISE, either or both
 *   graphs.sizes          sizes: words N, A-B+STEP or A-B*FACTOR; without B there is no end
 *   graphs.sizes.padded   the same where batches are padded to the next size (--graph-padding)
 *   graphs.sizes.draft    the same where tokens are drafted
 *   graphs.prefill.sizes  tokens of prompts that have graphs, up to those of a step
 *   graphs.most           the largest size, unless it is told (--graph-batch)
 *   graphs.largest        append: the largest one is captured though it is no size
 *   graphs.draft          what drafts do: longest, there are graphs of the longest draft alone;
 *                         concurrency, also without a draft where --max-concurrency is given;
 *                         round, sizes become multiples of 1 + draft; add, multiples are added
 *   graphs.logits         bytes that a graph holds for each logit of a token
 *   graphs.static         bytes of buffers and workspaces that captures take beside the pool
 *   graphs.splits.hopper  parts of a token's attention that a graph adds up, on such cards
 *   graphs.nodes          nodes of a layer; .experts and .states: of such layers; .pieces: of plain
 *                         ones without attention
 *
 * A pool that all graphs share is as large as the largest one needs; smaller ones find room in it.
 * Each graph has its own nodes, which the driver keeps. */
#ifndef MT_PREDICT_BUDGET_GRAPHS_H
#define MT_PREDICT_BUDGET_GRAPHS_H

#include "predict/torch/torch.h"

struct mt_estimate_graphs; /* <memtally/predict.h> */

/* Says which graphs there are; not present where the table has no rule, or the settings none. */
void mt_budget_graphs(const struct mt_predict_input *in, struct mt_estimate_graphs *graphs);

/* Adds what they take on a rank of a stage, with a band. */
void mt_budget_weigh_graphs(const struct mt_predict_input *in, const struct mt_torch_stage *stage,
                            struct mt_estimate_graphs *graphs);

/* How many sizes of a key of the table are at most `most`. */
uint64_t mt_budget_count_sizes(const struct mt_engine *engine, const char *key, uint64_t most);

#endif
