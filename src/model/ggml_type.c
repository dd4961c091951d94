/* SPDX-License-Identifier: MIT */
/* The table of tensor types and the arithmetic of their blocks. Knows libc only. */
#include "model/ggml_type.h"

#include <memtally/error_code.h>
#include <strings.h>

/* By number; one that is missing has no name. */
static const struct mt_ggml_type types[] = {
#define ROW(NAME, number, name, elements, bytes)                                                   \
    [number] = {number, name, elements, bytes, .is_ik = 0},
    MT_GGML_TYPE_LIST(ROW)
#undef ROW
#define ROW(NAME, number, name, elements, bytes, row)                                              \
    [number] = {number, name, elements, bytes, row, 1},
        MT_GGML_IK_TYPE_LIST(ROW)
#undef ROW
};

#define N_TYPES (sizeof types / sizeof *types)

const struct mt_ggml_type *mt_ggml_type_by_number(uint32_t number)
{
    return number < N_TYPES && types[number].name ? &types[number] : NULL;
}

const struct mt_ggml_type *mt_ggml_type_by_name(const char *name)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (types[i].name && strcasecmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

int mt_ggml_tensor_size(const struct mt_ggml_type *type, const uint64_t *dims, size_t n_dims,
                        uint64_t *elements, uint64_t *bytes)
{
    uint64_t count = 1, size, beside;
    for (size_t i = 0; i < n_dims; i++) {
        if (dims[i] == 0)
            return MT_EARG;
        if (__builtin_mul_overflow(count, dims[i], &count))
            return MT_ELIMIT;
    }
    if (n_dims == 0 || dims[0] % type->block_elements != 0)
        return MT_EARG;
    if (__builtin_mul_overflow(count / type->block_elements, (uint64_t)type->block_bytes, &size) ||
        __builtin_mul_overflow(count / dims[0], (uint64_t)type->row_bytes, &beside) ||
        __builtin_add_overflow(size, beside, &size))
        return MT_ELIMIT;
    *elements = count;
    *bytes = size;
    return 0;
}

/* The 32-element relative of a type with 256-element blocks. */
static uint32_t smaller_relative(uint32_t number)
{
    switch (number) {
    case MT_GGML_Q4_K:
        return MT_GGML_Q5_0;
    case MT_GGML_Q5_K:
        return MT_GGML_Q5_1;
    case MT_GGML_Q6_K:
        return MT_GGML_Q8_0;
    case MT_GGML_Q2_K:
    case MT_GGML_Q3_K:
    case MT_GGML_TQ1_0:
    case MT_GGML_TQ2_0:
        return MT_GGML_Q4_0;
    default:
        return MT_GGML_IQ4_NL;
    }
}

const struct mt_ggml_type *mt_ggml_type_for_row(const struct mt_ggml_type *type,
                                                uint64_t row_elements)
{
    if (row_elements % type->block_elements == 0)
        return type;
    if (type->block_elements == 256 && row_elements % 32 == 0)
        return mt_ggml_type_by_number(smaller_relative(type->number));
    return mt_ggml_type_by_number(MT_GGML_F16);
}
