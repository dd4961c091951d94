/* SPDX-License-Identifier: MIT */
/* The laws with their constants. Each was fitted to what cards and programs said in public, and is
 * held against every source with that source left out by the board of contexts. */
#include "gpu/law.h"

#include <stddef.h>

#define KIB 1024.0
#define MIB (1024.0 * 1024.0)

/* The driver keeps local memory and a save area for each thread that can be resident. 19 cards from
 * Kepler to Blackwell; leaving out one card 13.6 MiB rms, 25 at most. */
#define CONTEXT_MIB        32.5
#define CONTEXT_THREAD_KIB 1.85
#define CONTEXT_SHARE      0.08
#define CONTEXT_MARGIN_MIB 25.0
#define MEASURED_MIB       15.0
#define MEASURED_SHARE     0.05 /* readings of one card in different places differ */

/* 47 messages of PyTorch on 18 cards; within a card the programs differ by 20 MiB rms. */
#define MODULES_MIB        0.73
#define MODULES_MARGIN_MIB 50.0

/* 300 nodes took 2.7 MiB; another source has 10 kB for a node. */
#define NODE_KIB      9.2
#define NODE_LOW_KIB  8.5
#define NODE_HIGH_KIB 10.5

static uint64_t to_bytes(double bytes)
{
    return bytes > 0 ? (uint64_t)bytes : 0;
}

static struct mt_gpu_band around(double bytes, double margin)
{
    return (struct mt_gpu_band){to_bytes(bytes), to_bytes(bytes - margin),
                                to_bytes(bytes + margin)};
}

struct mt_gpu_band mt_gpu_law_context(uint32_t multiprocessors, uint32_t threads)
{
    double bytes =
        CONTEXT_MIB * MIB + CONTEXT_THREAD_KIB * KIB * (double)multiprocessors * (double)threads;
    double margin = CONTEXT_SHARE * bytes;
    return around(bytes, margin > CONTEXT_MARGIN_MIB * MIB ? margin : CONTEXT_MARGIN_MIB * MIB);
}

struct mt_gpu_band mt_gpu_law_measured(uint64_t bytes)
{
    double margin = MEASURED_SHARE * (double)bytes;
    return around((double)bytes, margin > MEASURED_MIB * MIB ? margin : MEASURED_MIB * MIB);
}

/* An engine that brings kernels of its own was seen to take twice as much. */
struct mt_gpu_band mt_gpu_law_modules(uint32_t multiprocessors)
{
    double bytes = MODULES_MIB * MIB * (double)multiprocessors;
    struct mt_gpu_band band = around(bytes, MODULES_MARGIN_MIB * MIB);
    if (band.high_bytes < 2 * band.bytes)
        band.high_bytes = 2 * band.bytes;
    return band;
}

/* Over NVLink: 430 (H100) and 544 MiB (A100) for 2 ranks, 688 for 3 and 4, about 560 for 8 before
 * an all-to-all; over PCIe 258 for 2, up to 399 for the groups of 4. What 8 ranks came to in two
 * engines, about 1600 MiB, is of several groups. */
struct mt_gpu_band mt_gpu_law_communication(enum mt_gpu_link link, unsigned ranks)
{
    static const double mib[2][2][3] = {
        [MT_GPU_LINK_PCI] = {{258, 60, 400}, {258, 60, 600}},
        [MT_GPU_LINK_NVLINK] = {{490, 380, 620}, {640, 430, 1600}},
    };
    const double *of = mib[link == MT_GPU_LINK_NVLINK][ranks > 2];
    return (struct mt_gpu_band){to_bytes(of[0] * MIB), to_bytes(of[1] * MIB),
                                to_bytes(of[2] * MIB)};
}

struct mt_gpu_band mt_gpu_law_graph_node(void)
{
    return (struct mt_gpu_band){to_bytes(NODE_KIB * KIB), to_bytes(NODE_LOW_KIB * KIB),
                                to_bytes(NODE_HIGH_KIB * KIB)};
}

/* CUDA C++ Programming Guide, technical specifications per compute capability. */
static const struct architecture {
    uint32_t capability;
    const char *generation;
    uint32_t shared_kib, block_kib; /* of a multiprocessor, of one block that asks for it */
    uint32_t threads, blocks;
} architectures[] = {
    {50, "maxwell", .shared_kib = 64, .block_kib = 48, .threads = 2048, .blocks = 32},
    {52, "maxwell", .shared_kib = 96, .block_kib = 48, .threads = 2048, .blocks = 32},
    {60, "pascal", .shared_kib = 64, .block_kib = 48, .threads = 2048, .blocks = 32},
    {61, "pascal", .shared_kib = 96, .block_kib = 48, .threads = 2048, .blocks = 32},
    {70, "volta", .shared_kib = 96, .block_kib = 96, .threads = 2048, .blocks = 32},
    {75, "turing", .shared_kib = 64, .block_kib = 64, .threads = 1024, .blocks = 16},
    {80, "ampere", .shared_kib = 164, .block_kib = 163, .threads = 2048, .blocks = 32},
    {86, "ampere", .shared_kib = 100, .block_kib = 99, .threads = 1536, .blocks = 16},
    {87, "ampere", .shared_kib = 164, .block_kib = 163, .threads = 1536, .blocks = 16},
    {89, "ada", .shared_kib = 100, .block_kib = 99, .threads = 1536, .blocks = 24},
    {90, "hopper", .shared_kib = 228, .block_kib = 227, .threads = 2048, .blocks = 32},
    {100, "blackwell", .shared_kib = 228, .block_kib = 227, .threads = 2048, .blocks = 32},
    {103, "blackwell", .shared_kib = 228, .block_kib = 227, .threads = 2048, .blocks = 32},
    {110, "blackwell", .shared_kib = 228, .block_kib = 227, .threads = 1536, .blocks = 24},
    {120, "blackwell", .shared_kib = 100, .block_kib = 99, .threads = 1536, .blocks = 24},
    {121, "blackwell", .shared_kib = 100, .block_kib = 99, .threads = 1536, .blocks = 24},
};

static const struct architecture *find(uint32_t capability)
{
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (architectures[i].capability == capability)
            return &architectures[i];
    return NULL;
}

void mt_gpu_law_architecture(struct mt_gpu_spec *gpu)
{
    const struct architecture *of = find(gpu->capability);
    if (!of)
        return;
    gpu->shared_bytes = of->shared_kib << 10;
    gpu->shared_block_bytes = of->block_kib << 10;
    gpu->threads_most = of->threads;
    gpu->blocks_most = of->blocks;
}

/* As ggml parts them: the last that begins at or before a number. */
static const char *generation_of_amd(uint32_t number)
{
    static const struct {
        uint32_t first;
        const char *generation;
    } all[] = {{0x906, "vega20"}, {0x908, "cdna1"},  {0x909, ""},      {0x90a, "cdna2"},
               {0x90c, ""},       {0x942, "cdna3"},  {0x950, "cdna4"}, {0x1010, "rdna1"},
               {0x1030, "rdna2"}, {0x1100, "rdna3"}, {0x1200, "rdna4"}};
    const char *generation = "";
    for (size_t i = 0; i < sizeof all / sizeof *all && all[i].first <= number; i++)
        generation = all[i].generation;
    return generation;
}

const char *mt_gpu_generation(uint32_t capability)
{
    if (capability > MT_GPU_AMD)
        return generation_of_amd(capability - MT_GPU_AMD);
    const struct architecture *of = find(capability);
    return of ? of->generation : "";
}
