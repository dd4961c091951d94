/* SPDX-License-Identifier: MIT */
/* What a driver takes of a card for itself, by laws that published measurements of other cards
 * follow (tests/conformance/device_context.csv). Pure arithmetic; knows no table. */
#ifndef MT_GPU_LAW_H
#define MT_GPU_LAW_H

#include "gpu/spec.h"

/* Bytes: likely, at least, at most. */
struct mt_gpu_band {
    uint64_t bytes;
    uint64_t low_bytes;
    uint64_t high_bytes;
};

/* A process's context on a card, before any kernel runs. */
struct mt_gpu_band mt_gpu_law_context(uint32_t multiprocessors, uint32_t threads);

/* The band of a context that was measured on such a card. */
struct mt_gpu_band mt_gpu_law_measured(uint64_t bytes);

/* What kernels and libraries take beside the context once an engine has worked. */
struct mt_gpu_band mt_gpu_law_modules(uint32_t multiprocessors);

/* A communicator of `ranks` ranks, each of them. */
struct mt_gpu_band mt_gpu_law_communication(enum mt_gpu_link link, unsigned ranks);

/* A node of an instantiated graph, by drivers from CUDA 12.4 (550) on. */
struct mt_gpu_band mt_gpu_law_graph_node(void);

/* What the programming guide says of a capability: shared memory, threads and blocks. */
void mt_gpu_law_architecture(struct mt_gpu_spec *gpu);

/* "ampere", "cdna3", of a capability as in struct mt_gpu_spec; "" of none that is known. */
const char *mt_gpu_generation(uint32_t capability);

#endif
