/* SPDX-License-Identifier: MIT */
/* What a recording knows of devices, for a list of its CUDA graphs. */
#ifndef MT_TALLY_GRAPH_SOURCE_H
#define MT_TALLY_GRAPH_SOURCE_H

#include "pytorch/graphs.h"

struct mt_recording;

/* Borrows the recording. */
struct mt_graph_source mt_graph_source_of_recording(struct mt_recording *recording);

#endif
