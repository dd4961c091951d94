/* SPDX-License-Identifier: MIT */
/* What Metal computes on Apple's own chips, and what its kernels want beside their output, by
 * ggml-metal of builds 9840 to 11434. */
#include "takes.h"

#define STORED               (LEGACY | TYPES(IQ4_NL))
#define PLAIN                (TYPES(F32) | TYPES(F16))
#define BYTES_OF_INT         4u
#define BYTES_OF_F16         2u
#define BYTES_OF_SCALES      (8u + 256u * 4u) /* of a product of experts */
#define CELLS_OF_BLOCK       64u              /* of the cache, that a group of threads reads */
#define QUERIES_OF_BLOCK     8u
#define CELLS_OF_VECTOR      32u
#define ROWS_OF_VECTOR       20
#define GROUPS_OF_PARTS      32u /* that attention may be shared out to */
#define FIRST_BUILD_WITH_F16 11149u

static int plain_rows(const struct pretend_ask *ask)
{
    return pretend_has_whole_rows(ask) && pretend_is_one_of(ask->ta, PLAIN);
}

static int adds(const struct pretend_ask *ask)
{
    return plain_rows(ask) && pretend_is_contiguous_rows(ask->ggml, ask->b) && ask->ta == ask->tb;
}

static int accumulates(const struct pretend_ask *ask)
{
    return ask->ta == TYPES(F32) && pretend_has_whole_rows(ask) &&
           pretend_is_contiguous_rows(ask->ggml, ask->b);
}

static int gated(const struct pretend_ask *ask)
{
    return pretend_is_whole_from(ask->ggml, ask->a, 1) && pretend_is_one_of(ask->ta, PLAIN);
}

static int joins(const struct pretend_ask *ask)
{
    return ask->a->type == ask->b->type && ask->a->type == ask->op->type &&
           pretend_is_one_of(ask->ta, FLOATS | LEGACY | TYPES(I16) | TYPES(I32) | TYPES(I64));
}

static int product(const struct pretend_ask *ask)
{
    if (ask->ta == TYPES(NVFP4))
        return 0;
    return ask->tb != TYPES(F16) || ask->ta != TYPES(BF16);
}

static int pays_attention(const struct pretend_ask *ask)
{
    static const int64_t heads[] = {32, 40, 48, 64, 72, 80, 96, 112, 128, 192, 256, 320, 512, 576};
    const struct ggml_tensor *values = ask->op->src[2];
    int is_known = 0;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        is_known |= ask->a->ne[0] == heads[i];
    return is_known && ask->b->ne[0] >= values->ne[0] &&
           (ask->b->ne[0] != 72 || values->ne[0] == 72) && ask->b->type == values->type &&
           pretend_is_one_of(ask->tb, FLOATS | LEGACY);
}

static int copies(const struct pretend_ask *ask)
{
    switch (ask->ta) {
    case TYPES(F32):
        return pretend_is_one_of(ask->tr, FLOATS | STORED | TYPES(I32));
    case TYPES(F16):
        return pretend_is_one_of(ask->tr, PLAIN);
    case TYPES(BF16):
        return pretend_is_one_of(ask->tr, TYPES(F32) | TYPES(BF16));
    case TYPES(I32):
        return pretend_is_one_of(ask->tr, TYPES(F32) | TYPES(I32));
    default:
        return pretend_is_one_of(ask->ta, LEGACY) && pretend_is_one_of(ask->tr, PLAIN);
    }
}

static int gets_rows(const struct pretend_ask *ask)
{
    return ask->ta != TYPES(NVFP4);
}

static int sets_rows(const struct pretend_ask *ask)
{
    if (ask->ta == TYPES(F16))
        return ask->tr == TYPES(F16);
    return ask->ta == TYPES(F32) && pretend_is_one_of(ask->tr, FLOATS | STORED);
}

static int gated_delta(const struct pretend_ask *ask)
{
    return ask->op->src[2]->ne[0] % 32 == 0;
}

static pretend_answer *const answers[OP_OTHER + 1] = {
    [OP_NONE] = pretend_yes,
    [OP_RESHAPE] = pretend_yes,
    [OP_VIEW] = pretend_yes,
    [OP_TRANSPOSE] = pretend_yes,
    [OP_PERMUTE] = pretend_yes,
    [OP_SCALE] = plain_rows,
    [OP_FILL] = plain_rows,
    [OP_CLAMP] = plain_rows,
    [OP_SQR] = plain_rows,
    [OP_SQRT] = plain_rows,
    [OP_SIN] = plain_rows,
    [OP_COS] = plain_rows,
    [OP_LOG] = plain_rows,
    [OP_UNARY] = plain_rows,
    [OP_LEAKY_RELU] = plain_rows,
    [OP_GLU] = gated,
    [OP_CONCAT] = joins,
    [OP_ADD] = adds,
    [OP_SUB] = adds,
    [OP_MUL] = adds,
    [OP_DIV] = adds,
    [OP_ADD_ID] = adds,
    [OP_ACC] = accumulates,
    [OP_REPEAT] = pretend_yes,
    [OP_SUM] = pretend_is_contiguous,
    [OP_TRI] = pretend_has_whole_rows,
    [OP_SUM_ROWS] = pretend_has_whole_rows,
    [OP_CUMSUM] = pretend_has_whole_rows,
    [OP_MEAN] = pretend_has_whole_rows,
    [OP_SOFT_MAX] = pretend_has_whole_rows,
    [OP_GROUP_NORM] = pretend_has_whole_rows,
    [OP_L2_NORM] = pretend_has_whole_rows,
    [OP_NORM] = pretend_has_whole_rows,
    [OP_RMS_NORM] = pretend_has_whole_rows,
    [OP_ARGMAX] = pretend_yes,
    [OP_ROPE] = pretend_yes,
    [OP_ROPE_BACK] = pretend_yes,
    [OP_IM2COL] = pretend_yes,
    [OP_CONV_TRANSPOSE_1D] = pretend_yes,
    [OP_CONV_TRANSPOSE_2D] = pretend_are_contiguous,
    [OP_CONV_2D] = pretend_is_contiguous,
    [OP_CONV_3D] = pretend_are_contiguous,
    [OP_CONV_2D_DW] = pretend_yes,
    [OP_UPSCALE] = plain_rows,
    [OP_POOL_1D] = pretend_is_contiguous,
    [OP_POOL_2D] = plain_rows,
    [OP_PAD] = plain_rows,
    [OP_PAD_REFLECT_1D] = plain_rows,
    [OP_TIMESTEP_EMBEDDING] = plain_rows,
    [OP_ARGSORT] = pretend_yes,
    [OP_TOP_K] = pretend_yes,
    [OP_ARANGE] = pretend_yes,
    [OP_ROLL] = pretend_is_contiguous,
    [OP_FLASH_ATTN_EXT] = pays_attention,
    [OP_LIGHTNING_INDEXER] = pretend_has_whole_rows,
    [OP_DSV4_HC_COMB] = pretend_all_f32,
    [OP_DSV4_HC_PRE] = pretend_all_f32,
    [OP_DSV4_HC_POST] = pretend_all_f32,
    [OP_SSM_SCAN] = pretend_yes,
    [OP_SSM_CONV] = pretend_yes,
    [OP_RWKV_WKV6] = pretend_yes,
    [OP_RWKV_WKV7] = pretend_yes,
    [OP_GATED_DELTA_NET] = gated_delta,
    [OP_SOLVE_TRI] = pretend_all_f32,
    [OP_MUL_MAT] = product,
    [OP_MUL_MAT_ID] = product,
    [OP_SET] = copies,
    [OP_CPY] = copies,
    [OP_DUP] = copies,
    [OP_CONT] = copies,
    [OP_GET_ROWS] = gets_rows,
    [OP_SET_ROWS] = sets_rows,
    [OP_DIAG] = pretend_yes,
    [OP_OPT_STEP_ADAMW] = pretend_yes,
    [OP_OPT_STEP_SGD] = pretend_yes,
};

pretend_answer *pretend_answer_metal(enum pretend_op what)
{
    return answers[what];
}

static uint64_t pad(uint64_t bytes, uint64_t to)
{
    return (bytes + to - 1) / to * to;
}

static uint64_t planes(const struct ggml_tensor *tensor)
{
    return (uint64_t)(tensor->ne[2] * tensor->ne[3]);
}

/* A last block of cells, padded: keys, values and mask. Keys and values that will be read as f16
 * are f16 there. */
static uint64_t tail_bytes(struct pretend_ggml *ggml, const struct ggml_tensor *op, int is_copied)
{
    const struct ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3];
    int is_f16 =
        is_copied && q->ne[1] >= 32 && pretend_is_one_of(pretend_types_of(ggml, k), LEGACY);
    int is_view = v->view_src && (v->view_src == k ||
                                  (v->view_src == k->view_src && v->view_offs == k->view_offs));
    uint64_t row_k = is_f16 ? BYTES_OF_F16 * (uint64_t)k->ne[0] : k->nb[1];
    uint64_t row_v = is_f16 ? BYTES_OF_F16 * (uint64_t)(is_view ? k : v)->ne[0] : v->nb[1];
    return CELLS_OF_BLOCK * (row_k * planes(k) + row_v * planes(v) +
                             (mask ? BYTES_OF_F16 * (uint64_t)mask->ne[1] * planes(mask) : 0));
}

/* Which blocks of the mask are empty. */
static uint64_t block_bytes(const struct ggml_tensor *op)
{
    const struct ggml_tensor *q = op->src[0], *mask = op->src[3];
    int is_vector = q->ne[1] < ROWS_OF_VECTOR && q->ne[0] % 32 == 0;
    uint64_t queries = is_vector ? 1 : QUERIES_OF_BLOCK;
    uint64_t cells = is_vector ? CELLS_OF_VECTOR : CELLS_OF_BLOCK;
    if (!mask)
        return 0;
    return pad(((uint64_t)mask->ne[0] + cells - 1) / cells *
                   (((uint64_t)q->ne[1] + queries - 1) / queries) * planes(mask),
               32);
}

/* Results of each group of threads, to be put together. */
static uint64_t part_bytes(const struct ggml_tensor *op)
{
    const struct ggml_tensor *q = op->src[0], *v = op->src[2];
    uint64_t rows = (uint64_t)(q->ne[1] < 32 ? q->ne[1] : 32);
    return 4 * rows * planes(q) * GROUPS_OF_PARTS * ((uint64_t)v->ne[0] + 2);
}

/* Room for keys and values as f16, whether it is needed or not. */
static uint64_t copy_bytes(const struct ggml_tensor *op)
{
    const struct ggml_tensor *k = op->src[1], *v = op->src[2];
    int is_view = v->view_src && (v->view_src == k ||
                                  (v->view_src == k->view_src && v->view_offs == k->view_offs));
    return pad(BYTES_OF_F16 * pretend_elements(k), 16) +
           (is_view ? 0 : pad(BYTES_OF_F16 * pretend_elements(v), 16));
}

uint64_t pretend_metal_bytes(struct pretend_world *world, const struct ggml_tensor *op)
{
    uint64_t bytes = pretend_bytes(&world->ggml, op);
    int is_new = rules_of(world)->build >= FIRST_BUILD_WITH_F16;
    switch (pretend_op_of(&world->ggml, op)) {
    case OP_MUL_MAT_ID:
        return bytes + BYTES_OF_INT * (uint64_t)(op->src[0]->ne[2] * (1 + op->src[2]->ne[1])) +
               (is_new ? BYTES_OF_SCALES : 0);
    case OP_FLASH_ATTN_EXT:
        return bytes + tail_bytes(&world->ggml, op, is_new) + block_bytes(op) + part_bytes(op) +
               (is_new ? copy_bytes(op) : 0);
    case OP_CUMSUM:
    case OP_ARGSORT:
        return 2 * bytes;
    case OP_TOP_K:
        return 2 * BYTES_OF_INT * pretend_elements(op->src[0]);
    default:
        return bytes;
    }
}
