/* SPDX-License-Identifier: MIT */
/* The engine's choice, in its own order, and what follows from it. */
#include "engine/flash_kernel.h"

#define VOLTA  700u
#define TURING 750u
#define ADA    890u
#define CDNA1  0x1000908u
#define GFX909 0x1000909u /* processors with graphics, which have no matrix kernels */
#define GFX90C 0x100090Cu
#define RDNA1  0x1001010u
#define RDNA3  0x1001100u

#define HEAD_OF_VECTORS 256
#define BYTES_OF_F16    2u

static int has_vector_kernel(const struct mt_flash_attention *a)
{
    return a->head <= HEAD_OF_VECTORS && a->head % 64 == 0 && a->head != 192 &&
           a->cells % MT_FLASH_STRIDE_OF_KEYS == 0;
}

static int is_odd_head(const struct mt_flash_attention *a)
{
    return a->head == 40 || a->head == 72;
}

static enum mt_flash_kernel choose_turing(const struct mt_flash_attention *a)
{
    int is_ada = a->capability >= ADA;
    if (!has_vector_kernel(a))
        return MT_FLASH_MATRIX;
    if (a->is_quantised) {
        if (a->rows <= (is_ada ? 2 : 1))
            return MT_FLASH_VECTOR;
    } else if (is_ada && a->rows == 1 && a->batches == 1 &&
               !(a->ratio > 4 && (a->head >= 256 || a->cells >= 8192))) {
        return MT_FLASH_VECTOR;
    }
    return !a->is_grouped && a->rows == 1 ? MT_FLASH_VECTOR : MT_FLASH_MATRIX;
}

/* Rows that a kernel sees where it takes the heads of a group as rows. */
static uint64_t effective_rows(const struct mt_flash_attention *a)
{
    uint64_t most = a->head == 320 ? 32 : a->head == 576 || a->head == 192 ? 16 : 8;
    uint64_t together = 1;
    while (!a->has_bias && a->ratio % (2 * together) == 0 && together < most)
        together *= 2;
    return a->rows * together;
}

static int amd_has_matrix_kernel(const struct mt_flash_attention *a)
{
    uint64_t head = a->head, rows = effective_rows(a);
    uint32_t capability = a->capability;
    if (capability == GFX909 || capability == GFX90C)
        return 0;
    if (capability >= CDNA1 && capability < RDNA1)
        return head <= 64    ? rows > 8
               : head <= 128 ? rows > 16
               : head <= 256 ? rows > 64
                             : a->is_grouped && rows > 128 && a->build > 11149;
    if (capability < RDNA3 || !a->is_grouped)
        return 0;
    return head <= 128 ? rows > 8 : head <= 256 && rows > 16 && a->build > 9840;
}

static enum mt_flash_kernel choose_tile(const struct mt_flash_attention *a)
{
    if (!has_vector_kernel(a))
        return MT_FLASH_TILE;
    if (a->is_quantised)
        return a->rows <= 2 ? MT_FLASH_VECTOR : MT_FLASH_TILE;
    return a->rows == 1 && !a->is_grouped ? MT_FLASH_VECTOR : MT_FLASH_TILE;
}

enum mt_flash_kernel mt_flash_choose(const struct mt_flash_attention *a)
{
    uint32_t capability = a->capability;
    if (capability >= MT_FLASH_AMD)
        return !is_odd_head(a) && amd_has_matrix_kernel(a) ? MT_FLASH_MATRIX : choose_tile(a);
    if (capability >= TURING && !is_odd_head(a))
        return choose_turing(a);
    if (capability >= VOLTA && capability < TURING && !is_odd_head(a)) {
        uint64_t rows = effective_rows(a);
        if (has_vector_kernel(a) && rows <= 2)
            return MT_FLASH_VECTOR;
        return rows <= 16 ? MT_FLASH_TILE : MT_FLASH_MATRIX;
    }
    return choose_tile(a);
}

/* The pairs of types that vector kernels are compiled for where nobody asks for more. */
static int has_compiled_pair(const struct mt_flash_cache *cache)
{
    enum mt_flash_type k = cache->k;
    enum mt_flash_type v = cache->v;
    int is_half =
        (k == MT_FLASH_F16 || k == MT_FLASH_F32) && (v == MT_FLASH_F16 || v == MT_FLASH_F32);
    return is_half || (k == v && (k == MT_FLASH_BF16 || k == MT_FLASH_Q4_0 || k == MT_FLASH_Q8_0));
}

/* The vector kernel reads most types as they are. */
static int is_copied(const struct mt_flash_cache *cache, enum mt_flash_kernel kernel,
                     enum mt_flash_type type)
{
    if (type == MT_FLASH_F16)
        return 0;
    if (kernel != MT_FLASH_VECTOR || type == MT_FLASH_F32)
        return 1;
    return cache->has_any_pair && !has_compiled_pair(cache);
}

static uint64_t with_copy(uint64_t bytes, uint64_t alignment, uint64_t elements)
{
    return (bytes + alignment - 1) / alignment * alignment + elements * BYTES_OF_F16;
}

uint64_t mt_flash_bytes(const struct mt_flash_cache *cache, enum mt_flash_kernel kernel,
                        uint64_t output_bytes, uint64_t alignment)
{
    uint64_t bytes = output_bytes;
    if (is_copied(cache, kernel, cache->k))
        bytes = with_copy(bytes, alignment, cache->k_elements);
    if (is_copied(cache, kernel, cache->v) && !cache->values_are_keys)
        bytes = with_copy(bytes, alignment, cache->v_elements);
    return bytes;
}
