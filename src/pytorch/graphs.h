/* SPDX-License-Identifier: MIT */
/* What a recording or a rehearsal knows of devices, as far as a list of CUDA graphs needs it. */
#ifndef MT_PYTORCH_GRAPHS_H
#define MT_PYTORCH_GRAPHS_H

#include <stddef.h>
#include <stdint.h>

struct mt_error;  /* <memtally/error.h> */
struct mt_graphs; /* <memtally/graphs.h> */
struct mt_torch;  /* "pytorch/torch.h" */

/* Memory that a device gave a process. Of PyTorch's allocator it is told apart by its address. */
struct mt_graph_taking {
    uint64_t pid;
    uint64_t ns;      /* CLOCK_MONOTONIC */
    uint64_t address; /* 0: what the driver took for itself, as code of kernels */
    uint64_t bytes;
};

/* Start with {0}; free(items). */
struct mt_graph_takings {
    struct mt_graph_taking *items;
    size_t n;
    size_t capacity;
};

/* Who knows of devices. Each function may be called once. */
struct mt_graph_source {
    void *context;
    /* Tells the traces what libraries were told of parts of allocations. */
    void (*tell)(void *context, struct mt_torch *torch);
    /* What was taken, in any order. Returns 0 or MT_ENOMEM. */
    int (*list)(void *context, struct mt_graph_takings *takings);
    /* What the run's processes held of all devices at a time. Returns 0 or MT_ENOMEM. */
    int (*total)(void *context, uint64_t ns, uint64_t *bytes);
};

/* Makes room for one more and adds it. Returns 0 or MT_ENOMEM. */
int mt_graph_takings_add(struct mt_graph_takings *takings, const struct mt_graph_taking *taking);

/* mt_graphs_read() of a folder's traces; `source` NULL: nothing but the traces is known. */
int mt_graphs_make(const char *directory, const struct mt_graph_source *source,
                   struct mt_graphs **graphs, struct mt_error *error);

#endif
