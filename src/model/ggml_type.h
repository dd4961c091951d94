/* SPDX-License-Identifier: MIT */
/* The types of tensors in GGUF files: how many elements make a block and how many bytes it takes.
 * Knows numbers only, no file. */
#ifndef MT_MODEL_GGML_TYPE_H
#define MT_MODEL_GGML_TYPE_H

#include <stddef.h>
#include <stdint.h>

/* X(NAME, number, "name", elements of a block, bytes of a block). Numbers that are missing were
 * withdrawn from the format. */
#define MT_GGML_TYPE_LIST(X)                                                                       \
    X(F32, 0, "f32", 1, 4)                                                                         \
    X(F16, 1, "f16", 1, 2)                                                                         \
    X(Q4_0, 2, "q4_0", 32, 18)                                                                     \
    X(Q4_1, 3, "q4_1", 32, 20)                                                                     \
    X(Q5_0, 6, "q5_0", 32, 22)                                                                     \
    X(Q5_1, 7, "q5_1", 32, 24)                                                                     \
    X(Q8_0, 8, "q8_0", 32, 34)                                                                     \
    X(Q8_1, 9, "q8_1", 32, 36)                                                                     \
    X(Q2_K, 10, "q2_k", 256, 84)                                                                   \
    X(Q3_K, 11, "q3_k", 256, 110)                                                                  \
    X(Q4_K, 12, "q4_k", 256, 144)                                                                  \
    X(Q5_K, 13, "q5_k", 256, 176)                                                                  \
    X(Q6_K, 14, "q6_k", 256, 210)                                                                  \
    X(Q8_K, 15, "q8_k", 256, 292)                                                                  \
    X(IQ2_XXS, 16, "iq2_xxs", 256, 66)                                                             \
    X(IQ2_XS, 17, "iq2_xs", 256, 74)                                                               \
    X(IQ3_XXS, 18, "iq3_xxs", 256, 98)                                                             \
    X(IQ1_S, 19, "iq1_s", 256, 50)                                                                 \
    X(IQ4_NL, 20, "iq4_nl", 32, 18)                                                                \
    X(IQ3_S, 21, "iq3_s", 256, 110)                                                                \
    X(IQ2_S, 22, "iq2_s", 256, 82)                                                                 \
    X(IQ4_XS, 23, "iq4_xs", 256, 136)                                                              \
    X(I8, 24, "i8", 1, 1)                                                                          \
    X(I16, 25, "i16", 1, 2)                                                                        \
    X(I32, 26, "i32", 1, 4)                                                                        \
    X(I64, 27, "i64", 1, 8)                                                                        \
    X(F64, 28, "f64", 1, 8)                                                                        \
    X(IQ1_M, 29, "iq1_m", 256, 56)                                                                 \
    X(BF16, 30, "bf16", 1, 2)                                                                      \
    X(TQ1_0, 34, "tq1_0", 256, 54)                                                                 \
    X(TQ2_0, 35, "tq2_0", 256, 66)                                                                 \
    X(MXFP4, 39, "mxfp4", 32, 17)                                                                  \
    X(NVFP4, 40, "nvfp4", 64, 36)                                                                  \
    X(Q1_0, 41, "q1_0", 128, 18)                                                                   \
    X(Q2_0, 42, "q2_0", 64, 18)

/* The types that only ik_llama.cpp has (ggml-common.h and ggml.c of its build 4840), beside those
 * that it computes with and never stores. X(NAME, number, "name", elements of a block, bytes of a
 * block, bytes of a row beside its blocks). */
#define MT_GGML_IK_TYPE_LIST(X)                                                                    \
    X(Q6_0, 133, "q6_0", 32, 26, 0)                                                                \
    X(IQ1_BN, 134, "iq1_bn", 64, 13, 2)                                                            \
    X(IQ2_BN, 135, "iq2_bn", 64, 16, 4)                                                            \
    X(IQ2_K, 137, "iq2_k", 256, 76, 0)                                                             \
    X(IQ3_K, 138, "iq3_k", 256, 110, 0)                                                            \
    X(IQ4_K, 139, "iq4_k", 256, 144, 0)                                                            \
    X(IQ5_K, 140, "iq5_k", 256, 176, 0)                                                            \
    X(IQ6_K, 141, "iq6_k", 256, 212, 0)                                                            \
    X(IQ4_KS, 144, "iq4_ks", 256, 136, 4)                                                          \
    X(IQ2_KS, 145, "iq2_ks", 256, 70, 2)                                                           \
    X(IQ4_KSS, 146, "iq4_kss", 256, 128, 4)                                                        \
    X(Q8_KV, 151, "q8_kv", 32, 32, 8)                                                              \
    X(IQ5_KS, 152, "iq5_ks", 256, 168, 4)                                                          \
    X(IQ2_KT, 153, "iq2_kt", 256, 68, 4)                                                           \
    X(IQ3_KT, 154, "iq3_kt", 256, 100, 4)                                                          \
    X(IQ4_KT, 155, "iq4_kt", 256, 128, 4)                                                          \
    X(IQ3_KS, 156, "iq3_ks", 256, 102, 2)                                                          \
    X(IQ2_KL, 157, "iq2_kl", 256, 86, 2)                                                           \
    X(IQ1_KT, 158, "iq1_kt", 256, 56, 4)                                                           \
    X(Q4_0_R8, 202, "q4_0_r8", 32, 18, 0)                                                          \
    X(Q5_0_R4, 206, "q5_0_r4", 32, 22, 0)                                                          \
    X(Q8_0_R8, 208, "q8_0_r8", 32, 34, 0)                                                          \
    X(Q2_K_R4, 210, "q2_k_r4", 256, 84, 0)                                                         \
    X(Q3_K_R4, 211, "q3_k_r4", 256, 110, 0)                                                        \
    X(Q4_K_R4, 212, "q4_k_r4", 256, 144, 0)                                                        \
    X(Q5_K_R4, 213, "q5_k_r4", 256, 176, 0)                                                        \
    X(Q6_K_R4, 214, "q6_k_r4", 256, 210, 0)                                                        \
    X(IQ2_XXS_R4, 216, "iq2_xxs_r4", 256, 66, 0)                                                   \
    X(IQ2_XS_R4, 217, "iq2_xs_r4", 256, 74, 0)                                                     \
    X(IQ3_XXS_R4, 218, "iq3_xxs_r4", 256, 98, 0)                                                   \
    X(IQ1_S_R4, 219, "iq1_s_r4", 32, 6, 2)                                                         \
    X(IQ4_NL_R4, 220, "iq4_nl_r4", 32, 18, 0)                                                      \
    X(IQ3_S_R4, 221, "iq3_s_r4", 256, 110, 0)                                                      \
    X(IQ2_S_R4, 222, "iq2_s_r4", 256, 82, 0)                                                       \
    X(IQ4_XS_R8, 223, "iq4_xs_r8", 256, 136, 0)                                                    \
    X(IQ1_M_R4, 229, "iq1_m_r4", 32, 7, 2)                                                         \
    X(BF16_R16, 230, "bf16_r16", 1, 2, 0)                                                          \
    X(Q6_0_R4, 233, "q6_0_r4", 32, 26, 0)                                                          \
    X(IQ2_BN_R4, 335, "iq2_bn_r4", 64, 16, 4)                                                      \
    X(IQ2_K_R4, 337, "iq2_k_r4", 256, 76, 0)                                                       \
    X(IQ3_K_R4, 338, "iq3_k_r4", 256, 110, 0)                                                      \
    X(IQ4_K_R4, 339, "iq4_k_r4", 256, 144, 0)                                                      \
    X(IQ5_K_R4, 340, "iq5_k_r4", 256, 176, 0)                                                      \
    X(IQ4_KS_R4, 344, "iq4_ks_r4", 256, 136, 4)                                                    \
    X(IQ5_KS_R4, 352, "iq5_ks_r4", 256, 168, 4)                                                    \
    X(MXFP4_R8, 353, "mxfp4_r8", 32, 17, 0)                                                        \
    X(Q8_K_R16, 397, "q8_k_r16", 256, 258, 0)                                                      \
    X(Q8_KV_R8, 398, "q8_kv_r8", 32, 32, 4)                                                        \
    X(Q8_K_R8, 399, "q8_k_r8", 256, 258, 0)

enum mt_ggml_type_number {
#define MT_GGML_TYPE_ENUM(NAME, number, name, elements, bytes) MT_GGML_##NAME = number,
    MT_GGML_TYPE_LIST(MT_GGML_TYPE_ENUM)
#undef MT_GGML_TYPE_ENUM
#define MT_GGML_TYPE_ENUM(NAME, number, name, elements, bytes, row) MT_GGML_##NAME = number,
        MT_GGML_IK_TYPE_LIST(MT_GGML_TYPE_ENUM)
#undef MT_GGML_TYPE_ENUM
};

struct mt_ggml_type {
    uint32_t number;
    const char *name;
    uint32_t block_elements;
    uint32_t block_bytes;
    uint32_t row_bytes; /* that each row takes beside its blocks */
    int is_ik;          /* ik_llama.cpp alone has it */
};

/* The type with `number`, or NULL. Borrowed, static. */
const struct mt_ggml_type *mt_ggml_type_by_number(uint32_t number);

/* The type called `name`, in any letter case, or NULL. Borrowed, static. */
const struct mt_ggml_type *mt_ggml_type_by_name(const char *name);

/* Counts the elements and bytes of a tensor of `n_dims` dimensions, the row first. Returns 0;
 * MT_EARG where the row is no whole number of blocks or a dimension is 0; MT_ELIMIT where a count
 * does not fit. */
int mt_ggml_tensor_size(const struct mt_ggml_type *type, const uint64_t *dims, size_t n_dims,
                        uint64_t *elements, uint64_t *bytes);

/* The type that llama.cpp's quantiser stores a row of `row_elements` in when asked for `type`:
 * `type` itself where its blocks divide the row, else a type of the same quality with blocks of 32,
 * else f16. Borrowed, static. */
const struct mt_ggml_type *mt_ggml_type_for_row(const struct mt_ggml_type *type,
                                                uint64_t row_elements);

#endif
