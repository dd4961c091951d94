/* SPDX-License-Identifier: MIT */
/* A snapshot for PyTorch's viewer of memory (torch/cuda/_memory_viz.py and MemoryViz.js): a pickle
 * of protocol 2 of the form that torch.cuda.memory._snapshot() has. */
#ifndef MT_EMIT_MEMORY_VIZ_H
#define MT_EMIT_MEMORY_VIZ_H

#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

struct mt_viz_span {
    uint64_t address;
    uint64_t bytes;
    uint64_t begin_ns;
    uint64_t end_ns; /* UINT64_MAX where it stayed */
    int is_segment;
    const char *label; /* of a block; stands where the viewer shows its function */
};

/* One tab of the viewer: what lies in it has addresses of its own. */
struct mt_viz_device {
    const char *name;
    const struct mt_viz_span *spans; /* any order */
    size_t n_spans;
};

/* Appends the pickle. Blocks lie within segments. */
void mt_memory_viz(struct mt_strbuf *out, const struct mt_viz_device *devices, size_t n);

#endif
