/* SPDX-License-Identifier: MIT */
/* What Vulkan computes, by ggml-vulkan's device_supports_op of build 11434, on a driver with the
 * extensions that a desktop card's has. */
#include "takes.h"

#define PLAIN         (TYPES(F32) | TYPES(F16))
#define STORED        (LEGACY | TYPES(Q1_0) | TYPES(Q2_0) | TYPES(IQ4_NL))
#define ROWS          (PLAIN | TYPES(BF16) | STORED | FROM_K | FROM_I | TYPES(MXFP4) | TYPES(NVFP4))
#define RANGE_MAX     UINT32_MAX /* maxStorageBufferRange */
#define PRECISION_F32 10

static int whole_f32(const struct pretend_ask *ask)
{
    return ask->ta == TYPES(F32) && pretend_is_contiguous(ask);
}

static int rows_of_f32(const struct pretend_ask *ask)
{
    return ask->ta == TYPES(F32) && pretend_has_whole_rows(ask);
}

static int same_plain(const struct pretend_ask *ask)
{
    return pretend_is_one_of(ask->ta, PLAIN) && ask->ta == ask->tr;
}

static int gated(const struct pretend_ask *ask)
{
    return same_plain(ask) && (!ask->b || ask->tb == ask->ta);
}

static int adds(const struct pretend_ask *ask)
{
    return pretend_is_one_of(ask->ta, PLAIN) && pretend_is_one_of(ask->tb, PLAIN) &&
           pretend_is_one_of(ask->tr, PLAIN);
}

static int product(const struct pretend_ask *ask)
{
    if (ask->what == OP_MUL_MAT_ID && ask->op->op_params[3] == PRECISION_F32)
        return 0;
    if (!pretend_is_one_of(ask->ta, ROWS))
        return 0;
    if ((ask->ta == TYPES(BF16) && ask->tb == TYPES(F16)) ||
        (ask->tb == TYPES(BF16) && ask->ta != TYPES(BF16)))
        return 0;
    return ask->what == OP_MUL_MAT_ID || ask->a->ne[3] == ask->b->ne[3];
}

static int pays_attention(const struct pretend_ask *ask)
{
    const uint64_t known = FLOATS | LEGACY | TYPES(IQ4_NL);
    const struct ggml_tensor *values = ask->op->src[2];
    uint64_t tv = pretend_types_of(ask->ggml, values);
    if (ask->b->ne[0] % 8 != 0 || values->ne[0] % 8 != 0 || ask->ta != TYPES(F32) ||
        ask->tr != TYPES(F32))
        return 0;
    return pretend_is_one_of(ask->tb, known) && pretend_is_one_of(tv, known) &&
           (ask->tb == TYPES(BF16)) == (tv == TYPES(BF16));
}

static int gets_rows(const struct pretend_ask *ask)
{
    return pretend_is_one_of(ask->ta, ROWS | TYPES(I32));
}

static int sets_rows(const struct pretend_ask *ask)
{
    return pretend_is_one_of(ask->ta, PLAIN) &&
           pretend_is_one_of(ask->tb, TYPES(I32) | TYPES(I64)) &&
           pretend_is_one_of(ask->tr, FLOATS | STORED);
}

static int copies(const struct pretend_ask *ask)
{
    uint64_t to = ask->b ? ask->tb : ask->ta;
    if (ask->ta == TYPES(F32) && pretend_is_one_of(to, FLOATS | STORED | TYPES(I32)))
        return 1;
    if (to == TYPES(F32) && pretend_is_one_of(ask->ta, HALVES | STORED | TYPES(I32)))
        return 1;
    struct pretend_type_info info = pretend_type_of(ask->ggml, ask->a->type);
    return ask->ta == to && info.bytes % 2 == 0 &&
           (!info.is_quantized || pretend_is_contiguous(ask));
}

static int repeats(const struct pretend_ask *ask)
{
    uint32_t from = pretend_type_of(ask->ggml, ask->a->type).bytes;
    return from == pretend_type_of(ask->ggml, ask->op->type).bytes && (from == 4 || from == 2);
}

static int joins(const struct pretend_ask *ask)
{
    if (ask->a->type != ask->b->type || ask->a->type != ask->op->type)
        return 0;
    return !pretend_type_of(ask->ggml, ask->a->type).is_quantized || pretend_has_whole_rows(ask);
}

static int scans_state(const struct pretend_ask *ask)
{
    const struct ggml_tensor *rates = ask->op->src[3];
    int64_t state = ask->a->ne[0];
    return ask->ta == TYPES(F32) && rates && rates->nb[1] == sizeof(float) &&
           (state == 128 || state == 256) && ask->a->ne[1] % 16 == 0;
}

static int gated_delta(const struct pretend_ask *ask)
{
    int64_t head = ask->op->src[2]->ne[0];
    return head == 16 || head == 32 || head == 64 || head == 128;
}

static int indexes(const struct pretend_ask *ask)
{
    return ask->a->ne[0] == 128;
}

static int fits(const struct pretend_ask *ask)
{
    int fit = pretend_bytes(ask->ggml, ask->op) <= RANGE_MAX;
    for (int i = 0; i < GGML_SOURCES; i++)
        if (ask->op->src[i] && pretend_bytes(ask->ggml, ask->op->src[i]) > RANGE_MAX)
            fit = 0;
    return fit;
}

static pretend_answer *const answers[OP_OTHER + 1] = {
    [OP_NONE] = pretend_yes,
    [OP_RESHAPE] = pretend_yes,
    [OP_VIEW] = pretend_yes,
    [OP_PERMUTE] = pretend_yes,
    [OP_TRANSPOSE] = pretend_yes,
    [OP_RMS_NORM] = pretend_yes,
    [OP_ROPE] = pretend_has_whole_rows,
    [OP_ROPE_BACK] = pretend_yes,
    [OP_UNARY] = same_plain,
    [OP_GLU] = gated,
    [OP_MUL_MAT] = product,
    [OP_MUL_MAT_ID] = product,
    [OP_FLASH_ATTN_EXT] = pays_attention,
    [OP_GET_ROWS] = gets_rows,
    [OP_SET_ROWS] = sets_rows,
    [OP_CONT] = copies,
    [OP_CPY] = copies,
    [OP_DUP] = copies,
    [OP_REPEAT] = repeats,
    [OP_GROUP_NORM] = pretend_is_contiguous,
    [OP_NORM] = pretend_all_f32,
    [OP_L2_NORM] = pretend_all_f32,
    [OP_ADD] = adds,
    [OP_SUB] = adds,
    [OP_MUL] = adds,
    [OP_DIV] = adds,
    [OP_ADD1] = adds,
    [OP_ADD_ID] = rows_of_f32,
    [OP_SQR] = same_plain,
    [OP_SQRT] = same_plain,
    [OP_SIN] = same_plain,
    [OP_COS] = same_plain,
    [OP_CLAMP] = same_plain,
    [OP_LEAKY_RELU] = same_plain,
    [OP_LOG] = same_plain,
    [OP_TRI] = same_plain,
    [OP_DIAG] = same_plain,
    [OP_OUT_PROD] = pretend_all_f32,
    [OP_ARGSORT] = pretend_is_contiguous,
    [OP_TOP_K] = pretend_is_contiguous,
    [OP_ACC] = pretend_all_f32,
    [OP_SET] = copies,
    [OP_CONCAT] = joins,
    [OP_ARANGE] = pretend_yes,
    [OP_FILL] = pretend_yes,
    [OP_SCALE] = whole_f32,
    [OP_PAD] = rows_of_f32,
    [OP_PAD_REFLECT_1D] = rows_of_f32,
    [OP_ROLL] = rows_of_f32,
    [OP_UPSCALE] = rows_of_f32,
    [OP_DIAG_MASK_INF] = whole_f32,
    [OP_SOFT_MAX] = whole_f32,
    [OP_SUM] = rows_of_f32,
    [OP_SUM_ROWS] = rows_of_f32,
    [OP_MEAN] = rows_of_f32,
    [OP_CUMSUM] = rows_of_f32,
    [OP_ARGMAX] = whole_f32,
    [OP_DSV4_HC_COMB] = pretend_all_f32,
    [OP_DSV4_HC_PRE] = pretend_all_f32,
    [OP_DSV4_HC_POST] = pretend_all_f32,
    [OP_SOLVE_TRI] = pretend_all_f32,
    [OP_IM2COL] = pretend_yes,
    [OP_CONV_2D] = pretend_are_contiguous,
    [OP_CONV_TRANSPOSE_2D] = pretend_are_contiguous,
    [OP_CONV_3D] = pretend_are_contiguous,
    [OP_CONV_2D_DW] = pretend_yes,
    [OP_CONV_TRANSPOSE_1D] = pretend_all_f32,
    [OP_POOL_1D] = whole_f32,
    [OP_POOL_2D] = whole_f32,
    [OP_TIMESTEP_EMBEDDING] = rows_of_f32,
    [OP_RWKV_WKV6] = pretend_yes,
    [OP_RWKV_WKV7] = pretend_yes,
    [OP_GATED_DELTA_NET] = gated_delta,
    [OP_LIGHTNING_INDEXER] = indexes,
    [OP_SSM_SCAN] = scans_state,
    [OP_SSM_CONV] = rows_of_f32,
};

static pretend_answer *answer_of(enum pretend_op what)
{
    return answers[what];
}

static int takes(const struct pretend_ask *ask)
{
    pretend_answer *answer = answer_of(ask->what);
    return answer && fits(ask) && answer(ask);
}

pretend_answer *pretend_answer_vulkan(enum pretend_op what)
{
    return answer_of(what) ? takes : NULL;
}
