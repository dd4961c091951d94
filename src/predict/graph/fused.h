/* SPDX-License-Identifier: MIT */
/* What devices keep allocated for the operations that they fuse. */
#ifndef MT_PREDICT_GRAPH_KEEP_H
#define MT_PREDICT_GRAPH_KEEP_H

#include "graph.h"

/* Looks for what is fused among nodes `start` to `end`, one split: puts what is kept into `kept` of
 * the node until which it is, and moves nodes as the device does. `kept`: MT_KEEP_… */
void mt_graph_keep_fused(struct mt_graph *graph, size_t start, size_t end, unsigned kept);

#endif
