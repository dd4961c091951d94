/* SPDX-License-Identifier: MIT */
/* What we ask a process's ggml: its functions, its version, and the names of its numbers. */
#ifndef MT_REHEARSAL_GGML_GGML_H
#define MT_REHEARSAL_GGML_GGML_H

#include <stddef.h>
#include <stdint.h>

#include "abi.h"

/* Operations that some rule is about. X(name as ggml says it). */
#define PRETEND_OPS(X)                                                                             \
    X(NONE)                                                                                        \
    X(DUP)                                                                                         \
    X(ADD)                                                                                         \
    X(ADD_ID)                                                                                      \
    X(ADD1)                                                                                        \
    X(ACC)                                                                                         \
    X(SUB)                                                                                         \
    X(MUL)                                                                                         \
    X(DIV)                                                                                         \
    X(SQR)                                                                                         \
    X(SQRT)                                                                                        \
    X(LOG)                                                                                         \
    X(SIN)                                                                                         \
    X(COS)                                                                                         \
    X(SUM)                                                                                         \
    X(SUM_ROWS)                                                                                    \
    X(CUMSUM)                                                                                      \
    X(MEAN)                                                                                        \
    X(ARGMAX)                                                                                      \
    X(COUNT_EQUAL)                                                                                 \
    X(REPEAT)                                                                                      \
    X(REPEAT_BACK)                                                                                 \
    X(CONCAT)                                                                                      \
    X(SILU_BACK)                                                                                   \
    X(NORM)                                                                                        \
    X(RMS_NORM)                                                                                    \
    X(RMS_NORM_BACK)                                                                               \
    X(GROUP_NORM)                                                                                  \
    X(L2_NORM)                                                                                     \
    X(MUL_MAT)                                                                                     \
    X(MUL_MAT_ID)                                                                                  \
    X(OUT_PROD)                                                                                    \
    X(SCALE)                                                                                       \
    X(SET)                                                                                         \
    X(CPY)                                                                                         \
    X(CONT)                                                                                        \
    X(RESHAPE)                                                                                     \
    X(VIEW)                                                                                        \
    X(PERMUTE)                                                                                     \
    X(TRANSPOSE)                                                                                   \
    X(GET_ROWS)                                                                                    \
    X(GET_ROWS_BACK)                                                                               \
    X(SET_ROWS)                                                                                    \
    X(DIAG)                                                                                        \
    X(DIAG_MASK_INF)                                                                               \
    X(SOFT_MAX)                                                                                    \
    X(SOFT_MAX_BACK)                                                                               \
    X(ROPE)                                                                                        \
    X(ROPE_BACK)                                                                                   \
    X(CLAMP)                                                                                       \
    X(CONV_TRANSPOSE_1D)                                                                           \
    X(COL2IM_1D)                                                                                   \
    X(IM2COL)                                                                                      \
    X(IM2COL_3D)                                                                                   \
    X(CONV_2D)                                                                                     \
    X(CONV_3D)                                                                                     \
    X(CONV_2D_DW)                                                                                  \
    X(CONV_TRANSPOSE_2D)                                                                           \
    X(POOL_1D)                                                                                     \
    X(POOL_2D)                                                                                     \
    X(UPSCALE)                                                                                     \
    X(PAD)                                                                                         \
    X(PAD_REFLECT_1D)                                                                              \
    X(ROLL)                                                                                        \
    X(ARANGE)                                                                                      \
    X(TIMESTEP_EMBEDDING)                                                                          \
    X(ARGSORT)                                                                                     \
    X(TOP_K)                                                                                       \
    X(LEAKY_RELU)                                                                                  \
    X(TRI)                                                                                         \
    X(FILL)                                                                                        \
    X(FLASH_ATTN_EXT)                                                                              \
    X(SSM_CONV)                                                                                    \
    X(SSM_SCAN)                                                                                    \
    X(RWKV_WKV6)                                                                                   \
    X(RWKV_WKV7)                                                                                   \
    X(GATED_LINEAR_ATTN)                                                                           \
    X(GATED_DELTA_NET)                                                                             \
    X(SOLVE_TRI)                                                                                   \
    X(LIGHTNING_INDEXER)                                                                           \
    X(DSV4_HC_COMB)                                                                                \
    X(DSV4_HC_PRE)                                                                                 \
    X(DSV4_HC_POST)                                                                                \
    X(UNARY)                                                                                       \
    X(GLU)                                                                                         \
    X(CROSS_ENTROPY_LOSS)                                                                          \
    X(CROSS_ENTROPY_LOSS_BACK)                                                                     \
    X(OPT_STEP_ADAMW)                                                                              \
    X(OPT_STEP_SGD)

enum pretend_op {
    OP_UNKNOWN, /* not seen yet */
#define PRETEND_OP(name) OP_##name,
    PRETEND_OPS(PRETEND_OP)
#undef PRETEND_OP
        OP_OTHER
};

/* Tensor types that some rule is about. X(NAME, name as ggml says it). */
#define PRETEND_TYPES(X)                                                                           \
    X(F32, "f32")                                                                                  \
    X(F16, "f16")                                                                                  \
    X(BF16, "bf16")                                                                                \
    X(I16, "i16")                                                                                  \
    X(I32, "i32")                                                                                  \
    X(I64, "i64")                                                                                  \
    X(Q1_0, "q1_0")                                                                                \
    X(Q2_0, "q2_0")                                                                                \
    X(Q4_0, "q4_0")                                                                                \
    X(Q4_1, "q4_1")                                                                                \
    X(Q5_0, "q5_0")                                                                                \
    X(Q5_1, "q5_1")                                                                                \
    X(Q8_0, "q8_0")                                                                                \
    X(MXFP4, "mxfp4")                                                                              \
    X(NVFP4, "nvfp4")                                                                              \
    X(Q2_K, "q2_K")                                                                                \
    X(Q3_K, "q3_K")                                                                                \
    X(Q4_K, "q4_K")                                                                                \
    X(Q5_K, "q5_K")                                                                                \
    X(Q6_K, "q6_K")                                                                                \
    X(Q8_K, "q8_K")                                                                                \
    X(IQ1_M, "iq1_m")                                                                              \
    X(IQ1_S, "iq1_s")                                                                              \
    X(IQ2_S, "iq2_s")                                                                              \
    X(IQ2_XS, "iq2_xs")                                                                            \
    X(IQ2_XXS, "iq2_xxs")                                                                          \
    X(IQ3_S, "iq3_s")                                                                              \
    X(IQ3_XXS, "iq3_xxs")                                                                          \
    X(IQ4_NL, "iq4_nl")                                                                            \
    X(IQ4_XS, "iq4_xs")

enum pretend_type_id {
    TYPE_UNKNOWN, /* not seen yet */
#define PRETEND_TYPE(id, name) TYPE_##id,
    PRETEND_TYPES(PRETEND_TYPE)
#undef PRETEND_TYPE
        TYPE_OTHER
};

#define TYPES(mask_type) (UINT64_C(1) << TYPE_##mask_type)

enum { GGML_OPS_MAX = 256, GGML_TYPES_MAX = 128 };

struct pretend_type_info {
    uint8_t id; /* enum pretend_type_id, written last */
    uint8_t is_quantized;
    uint16_t block; /* elements */
    uint32_t bytes; /* of a block */
};

/* One ggml of this process. Caches fill as numbers are seen; every value of theirs is the same
 * whichever thread writes it. */
struct pretend_ggml {
    int api_version;
    struct ggml_buffer *(*buffer_init)(struct ggml_buffer_type *type,
                                       struct ggml_buffer_functions iface, void *context,
                                       size_t size);
    const char *(*op_name)(int op);
    const char *(*op_desc)(const struct ggml_tensor *tensor);
    const char *(*type_name)(int type);
    int64_t (*blck_size)(int type);
    size_t (*type_size)(int type);
    bool (*is_quantized)(int type);
    /* Whether nothing outside some nodes needs what they make but the outputs; NULL in old builds.
     */
    bool (*can_fuse)(const struct ggml_graph *graph, const int *nodes, int count, const int *ops,
                     const int *outputs, int n_outputs);
    uint8_t op[GGML_OPS_MAX];
    struct pretend_type_info type[GGML_TYPES_MAX];
};

/* The function called `name` as the module that `caller` lies in would be bound to it, else of any
 * loaded module; never one of this object's own. NULL where there is none. */
void *pretend_find(const void *caller, const char *name);

/* Looks up the functions that are needed; returns 0 with *missing the first that is not there. */
int pretend_ggml_find(struct pretend_ggml *ggml, const void *caller, const char **missing);
/* The API version of the ggml around `caller`, 0 where it cannot be told. */
int pretend_ggml_version(const void *caller);
/* Whether tensors lie in memory as abi.h says. */
int pretend_ggml_fits(const struct pretend_ggml *ggml, const void *caller);

enum pretend_op pretend_op_of(struct pretend_ggml *ggml, const struct ggml_tensor *tensor);
struct pretend_type_info pretend_type_of(struct pretend_ggml *ggml, int type);
static inline uint64_t pretend_types_of(struct pretend_ggml *ggml, const struct ggml_tensor *tensor)
{
    return UINT64_C(1) << pretend_type_of(ggml, tensor->type).id;
}

/* Arithmetic on a tensor's shape; wide numbers stay at UINT64_MAX. */
uint64_t pretend_elements(const struct ggml_tensor *tensor);
uint64_t pretend_rows(const struct ggml_tensor *tensor);
uint64_t pretend_row_bytes(struct pretend_ggml *ggml, int type, uint64_t elements);
uint64_t pretend_bytes(struct pretend_ggml *ggml, const struct ggml_tensor *tensor);
/* Whether elements follow one another, leaving aside how the first `n` dimensions are laid out. */
int pretend_is_whole_from(struct pretend_ggml *ggml, const struct ggml_tensor *tensor, int n);
int pretend_is_contiguous_rows(struct pretend_ggml *ggml, const struct ggml_tensor *tensor);

#endif
