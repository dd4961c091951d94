/* SPDX-License-Identifier: MIT */
/* What captures of CUDA graphs took beside their pools, by when it was taken. */
#ifndef MT_PYTORCH_GRAPH_BUCKETS_H
#define MT_PYTORCH_GRAPH_BUCKETS_H

#include "pytorch/graphs.h"

struct mt_torch; /* "pytorch/torch.h" */

/* A capture. The functions below add up what its last members say. */
struct mt_graph_span {
    uint32_t pid, device;
    uint64_t begin_ns, end_ns;
    uint64_t pool_bytes, driver_bytes; /* the caller's, as the next one */
    size_t owner;
    uint64_t library_bytes;   /* taken in it by others than PyTorch's allocator */
    uint64_t workspace_bytes; /* blocks made in it that a library was told to work in */
    uint64_t static_bytes;    /* MT_UNKNOWN of the first of a process and device */
};

/* Sorts spans by process, device and beginning, and fills in all but what takings are for. */
void mt_graph_spans_prepare(struct mt_graph_span *spans, size_t n);

/* Each taking goes to the capture that it was made in: the one begun last, of several. */
void mt_graph_spans_take(struct mt_graph_span *spans, size_t n, const struct mt_torch *torch,
                         const struct mt_graph_takings *takings);

/* Blocks of PyTorch's allocator. Workspaces are those that were told to be. Static are those that
 * were made after the capture before and outside of any, that are no pool's, no weights and no
 * cache, and are there when the process captures its last graph. */
void mt_graph_spans_look(struct mt_graph_span *spans, size_t n, const struct mt_torch *torch);

#endif
