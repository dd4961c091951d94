/* SPDX-License-Identifier: MIT */
/* Which of ggml-cuda's kernels of flash attention a device runs (ggml-cuda/fattn.cu, of builds 9840
 * to 11434), since that decides whether keys and values are copied to f16 first, and what the
 * copies take. Pure arithmetic; knows no tensor. */
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

/* Types of a cache, as far as kernels differ by them. */
enum mt_flash_type {
    MT_FLASH_OTHER,
    MT_FLASH_F16,
    MT_FLASH_F32,
    MT_FLASH_BF16,
    MT_FLASH_Q4_0,
    MT_FLASH_Q8_0
};

/* Keys and values beside an attention. */
struct mt_flash_cache {
    enum mt_flash_type k;
    enum mt_flash_type v;
    uint64_t k_elements;
    uint64_t v_elements;
    int values_are_keys; /* a view of the same bytes */
    int has_any_pair;    /* the build takes types that it has no vector kernel for */
};

/* The bytes of the output with what lies behind it: copies in f16 of what the kernel does not read
 * as it is, each from a multiple of `alignment` on. */
uint64_t mt_flash_bytes(const struct mt_flash_cache *cache, enum mt_flash_kernel kernel,
                        uint64_t output_bytes, uint64_t alignment);

#endif
