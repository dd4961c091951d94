/* SPDX-License-Identifier: MIT */
/* A GPU as CUDA programs see it. The struct is part of the account of a rehearsal, which several
 * processes map: a change of it is a change of that format. */
#ifndef MT_GPU_SPEC_H
#define MT_GPU_SPEC_H

#include <stdint.h>

/* What ggml adds to the number of an AMD architecture: MT_GPU_AMD + 0x942 is gfx942. */
#define MT_GPU_AMD 0x1000000u

struct mt_gpu_spec {
    char name[64];               /* "NVIDIA H100 80GB HBM3", as the driver says it */
    uint32_t capability;         /* 90 is 9.0; of AMD's from MT_GPU_AMD on */
    uint32_t multiprocessors;    /* 132 */
    uint32_t shared_bytes;       /* shared memory of a multiprocessor */
    uint32_t shared_block_bytes; /* of these, at most for one block that asks for it */
    uint32_t threads_most;       /* resident in a multiprocessor */
    uint32_t blocks_most;        /* likewise */
    uint32_t l2_bytes;
    uint32_t clock_khz;
    uint32_t memory_clock_khz;
    uint32_t memory_bus_bits;
    uint32_t link; /* between two of them: MT_GPU_LINK_… */
    uint32_t is_ecc;
    uint64_t context_bytes;       /* of each process's primary context, its runtime loaded */
    uint64_t module_bytes;        /* what kernels of an engine take of the device once loaded */
    uint64_t communication_bytes; /* of a communicator of two ranks, each of them */
    uint64_t communication_many_bytes; /* of one of more ranks */
    uint64_t graph_node_bytes; /* that each node of an instantiated graph takes; 0: not known */
};

enum mt_gpu_link { MT_GPU_LINK_PCI, MT_GPU_LINK_NVLINK };

#endif
