/* SPDX-License-Identifier: MIT */
/* Which of ggml-cuda's kernels of flash attention a device runs (ggml-cuda/fattn.cu, of builds 9840
 * to 11434), since that decides whether keys and values are copied to f16 first. Pure arithmetic;
 * knows no tensor. */
#ifndef MT_ENGINE_FLASH_KERNEL_H
#define MT_ENGINE_FLASH_KERNEL_H

#include <stdint.h>

enum mt_flash_kernel { MT_FLASH_TILE, MT_FLASH_VECTOR, MT_FLASH_MATRIX };

#define MT_FLASH_STRIDE_OF_KEYS 256 /* the kernels' step over the cache */
#define MT_FLASH_AMD            0x1000000u

/* An attention that the device takes. */
struct mt_flash_attention {
    uint32_t capability; /* as ggml counts: 860; AMD's from MT_FLASH_AMD on, 0x1000942 is gfx942 */
    uint64_t build;      /* of the engine */
    uint64_t head;       /* elements of a head of queries */
    uint64_t rows;       /* of queries, for each head */
    uint64_t batches;    /* of queries */
    uint64_t ratio;      /* heads that share a head of keys */
    uint64_t cells;      /* of the cache */
    int is_grouped;      /* the kernels' way to take such heads together applies */
    int has_bias;        /* ALiBi */
    int is_quantised;    /* keys or values are */
};

enum mt_flash_kernel mt_flash_choose(const struct mt_flash_attention *a);

#endif
