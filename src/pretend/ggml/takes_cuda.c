/* SPDX-License-Identifier: MIT */
/* What CUDA and ROCm compute, by ggml-cuda's device_supports_op of builds 9840 to 11434. */
#include <string.h>

#include "takes.h"

#define BUILD_ROWS                                                                                 \
    10500u /* the build that all quants came into GET_ROWS at, to within some hundreds */

enum { PRECISION_F32 = 10, HINT_HADAMARD = 1, BLOCK_OF_K = 256 };

static int sums_rows(const struct pretend_ask *ask)
{
    return ask->ta == TYPES(F32) && ask->tr == TYPES(F32) && pretend_has_whole_rows(ask);
}

static int unary(const struct pretend_ask *ask)
{
    static const char known[] =
        "ABS SGN NEG STEP GELU SILU RELU SIGMOID HARDSIGMOID HARDSWISH GELU_ERF GELU_QUICK TANH "
        "EXP EXPM1 SOFTPLUS ELU XIELU FLOOR CEIL ROUND TRUNC";
    const char *name = ask->ggml->op_desc(ask->op);
    return name && pretend_is_word_of(known, name) && pretend_is_contiguous(ask) &&
           !(ask->ta == TYPES(BF16) && strcmp(name, "XIELU") == 0);
}

static int gated(const struct pretend_ask *ask)
{
    static const char known[] = "REGLU GEGLU SWIGLU SWIGLU_OAI GEGLU_ERF GEGLU_QUICK SWIGLU_CLAMP";
    const char *name = ask->ggml->op_desc(ask->op);
    if (!name || !pretend_is_word_of(known, name))
        return 0;
    if (ask->ta == TYPES(BF16) && pretend_is_word_of("SWIGLU_OAI SWIGLU_CLAMP", name))
        return 0;
    return pretend_is_whole_from(ask->ggml, ask->a, 1);
}

static int is_hadamard(const struct pretend_ask *ask)
{
    return ask->rules->build > 11149 && ask->what == OP_MUL_MAT &&
           ask->op->op_params[1] == HINT_HADAMARD && ask->ta == TYPES(F32) &&
           ask->tr == TYPES(F32) && pretend_is_whole_from(ask->ggml, ask->b, 0);
}

static int product(const struct pretend_ask *ask)
{
    const uint64_t known = FLOATS | LEGACY | FROM_K | FROM_I | TYPES(Q1_0) | TYPES(Q2_0) |
                           TYPES(Q8_K) | TYPES(MXFP4) | TYPES(NVFP4) | TYPES(IQ4_NL);
    int is_new = ask->rules->build >= BUILD_ROWS;
    if (is_new && (ask->a->nb[0] != pretend_type_of(ask->ggml, ask->a->type).bytes ||
                   ask->b->nb[0] != pretend_type_of(ask->ggml, ask->b->type).bytes))
        return 0;
    if (ask->tb == TYPES(F16) && ask->ta != TYPES(F16) && !is_hadamard(ask))
        return 0;
    if (is_new && ask->what == OP_MUL_MAT_ID && ask->op->op_params[3] == PRECISION_F32)
        return 0;
    return pretend_is_one_of(ask->ta, known) &&
           (ask->ta != TYPES(Q2_0) || ask->rules->build >= BUILD_ROWS);
}

static int gets_rows(const struct pretend_ask *ask)
{
    if (pretend_is_one_of(ask->ta, FLOATS | TYPES(I32) | LEGACY | TYPES(Q1_0)))
        return 1;
    if (ask->rules->build < BUILD_ROWS)
        return 0;
    if (pretend_is_one_of(ask->ta, TYPES(IQ4_NL) | TYPES(MXFP4)))
        return ask->a->ne[0] % BLOCK_OF_K == 0;
    return pretend_is_one_of(ask->ta, FROM_K | FROM_I | TYPES(Q2_0));
}

static int sets_rows(const struct pretend_ask *ask)
{
    int is_known =
        ask->ta == TYPES(F32) && pretend_is_one_of(ask->tr, FLOATS | LEGACY | TYPES(IQ4_NL));
    int is_half = ask->ta == TYPES(F16) && ask->tr == TYPES(F16) && ask->rules->build >= BUILD_ROWS;
    return (is_known || is_half) && pretend_is_one_of(ask->tb, TYPES(I64) | TYPES(I32));
}

static int sets(const struct pretend_ask *ask)
{
    return pretend_is_one_of(ask->tr, TYPES(F32) | TYPES(I32)) && ask->tr == ask->ta &&
           ask->tr == ask->tb;
}

static int copies(const struct pretend_ask *ask)
{
    if (pretend_is_one_of(ask->ta, FLOATS) && pretend_is_one_of(ask->tb, FLOATS))
        return 1;
    if (ask->ta == TYPES(F32) && pretend_is_one_of(ask->tb, LEGACY | TYPES(IQ4_NL) | TYPES(I32)))
        return 1;
    if (ask->tb == TYPES(F32) && pretend_is_one_of(ask->ta, LEGACY | TYPES(I32)))
        return 1;
    return ask->a->type == ask->b->type && (ask->ta == TYPES(I32) || pretend_are_contiguous(ask));
}

static int repeats(const struct pretend_ask *ask)
{
    if (ask->rules->build >= BUILD_ROWS || ask->what == OP_REPEAT)
        return pretend_is_one_of(ask->ta, TYPES(F32) | TYPES(F16));
    return 1;
}

static int repeats_back(const struct pretend_ask *ask)
{
    return ask->tr == TYPES(F32) && ask->a->ne[2] * ask->a->ne[3] <= 1 << 15;
}

static int joins(const struct pretend_ask *ask)
{
    struct pretend_type_info info = pretend_type_of(ask->ggml, ask->a->type);
    if (ask->a->type != ask->b->type || ask->a->type != ask->op->type)
        return 0;
    if (!info.is_quantized)
        return info.block == 1;
    if (ask->rules->build < BUILD_ROWS)
        return 0;
    return pretend_are_contiguous(ask) && ask->a->ne[0] % info.block == 0 &&
           ask->b->ne[0] % info.block == 0;
}

static int scales(const struct pretend_ask *ask)
{
    if (ask->rules->build <= 11149)
        return 1;
    return pretend_is_one_of(ask->ta, TYPES(F32) | TYPES(BF16)) && ask->ta == ask->tr;
}

static int adds(const struct pretend_ask *ask)
{
    const uint64_t plain = TYPES(F32) | TYPES(F16);
    if ((ask->ta | ask->tb | ask->tr) & TYPES(BF16))
        return ask->rules->build > 11149 && ask->ta == TYPES(BF16) && ask->tr == TYPES(BF16) &&
               pretend_is_one_of(ask->tb, TYPES(BF16) | TYPES(F32));
    return pretend_is_one_of(ask->ta, plain) && pretend_is_one_of(ask->tb, plain) &&
           pretend_is_one_of(ask->tr, plain);
}

static int scans_state(const struct pretend_ask *ask)
{
    const struct ggml_tensor *rates = ask->op->src[3], *groups = ask->op->src[4];
    int64_t state = ask->a->ne[0];
    if (!rates || !groups)
        return 0;
    if (rates->ne[0] == 1)
        return (state == 128 || state == 256 || (state == 96 && ask->rules->build > 11149)) &&
               ask->a->ne[1] % 16 == 0;
    if (ask->rules->build >= BUILD_ROWS && ask->op->op_params[0] > 1)
        return 0;
    return state == 16 && ask->a->ne[1] == 1 && ask->a->ne[2] % 128 == 0 && groups->ne[1] == 1;
}

static int convolves_state(const struct pretend_ask *ask)
{
    return ask->a->ne[1] % 128 == 0;
}

static int rotates(const struct pretend_ask *ask)
{
    return ask->a->nb[0] == pretend_type_of(ask->ggml, ask->a->type).bytes &&
           pretend_is_whole_from(ask->ggml, ask->a, 2);
}

static int soft_max_back(const struct pretend_ask *ask)
{
    float bias;
    memcpy(&bias, &ask->op->op_params[1], sizeof bias);
    return !(bias > 0 || bias < 0);
}

static int rolls(const struct pretend_ask *ask)
{
    return ask->ta == TYPES(F32) && pretend_is_contiguous(ask);
}

static int sorts(const struct pretend_ask *ask)
{
    (void)ask;
    return 1; /* CUDA's own library of sorts is compiled in from toolkit 11.7 on */
}

static int pays_attention(const struct pretend_ask *ask)
{
    return pretend_flash_is_taken(ask->device, ask->op);
}

static int indexes(const struct pretend_ask *ask)
{
    int64_t heads = ask->a->ne[1];
    return ask->rules->build >= BUILD_ROWS && ask->a->ne[0] == 128 &&
           (heads == 64 || heads == 32 || heads == 4);
}

static int is_new(const struct pretend_ask *ask)
{
    return ask->rules->build >= BUILD_ROWS && pretend_all_f32(ask);
}

static pretend_answer *const answers[OP_OTHER + 1] = {
    [OP_NONE] = pretend_yes,
    [OP_RESHAPE] = pretend_yes,
    [OP_VIEW] = pretend_yes,
    [OP_PERMUTE] = pretend_yes,
    [OP_TRANSPOSE] = pretend_yes,
    [OP_CONT] = pretend_yes,
    [OP_DUP] = pretend_yes,
    [OP_CPY] = copies,
    [OP_SET] = sets,
    [OP_GET_ROWS] = gets_rows,
    [OP_SET_ROWS] = sets_rows,
    [OP_MUL_MAT] = product,
    [OP_MUL_MAT_ID] = product,
    [OP_OUT_PROD] = pretend_all_f32,
    [OP_ADD] = adds,
    [OP_SUB] = adds,
    [OP_MUL] = adds,
    [OP_DIV] = adds,
    [OP_ADD_ID] = pretend_yes,
    [OP_ADD1] = pretend_yes,
    [OP_ACC] = pretend_are_contiguous,
    [OP_SQR] = pretend_yes,
    [OP_SQRT] = pretend_yes,
    [OP_SIN] = pretend_yes,
    [OP_COS] = pretend_yes,
    [OP_LOG] = pretend_yes,
    [OP_CLAMP] = pretend_yes,
    [OP_SCALE] = scales,
    [OP_UNARY] = unary,
    [OP_GLU] = gated,
    [OP_NORM] = pretend_has_whole_rows,
    [OP_RMS_NORM] = pretend_has_whole_rows,
    [OP_L2_NORM] = pretend_has_whole_rows,
    [OP_RMS_NORM_BACK] = pretend_is_contiguous,
    [OP_SILU_BACK] = rolls,
    [OP_GROUP_NORM] = pretend_is_contiguous,
    [OP_SUM] = pretend_has_whole_rows,
    [OP_SUM_ROWS] = sums_rows,
    [OP_MEAN] = sums_rows,
    [OP_ARGMAX] = pretend_yes,
    [OP_COUNT_EQUAL] = pretend_yes,
    [OP_REPEAT] = repeats,
    [OP_REPEAT_BACK] = repeats_back,
    [OP_CONCAT] = joins,
    [OP_DIAG_MASK_INF] = pretend_yes,
    [OP_SOFT_MAX] = pretend_yes,
    [OP_SOFT_MAX_BACK] = soft_max_back,
    [OP_ROPE] = rotates,
    [OP_ROPE_BACK] = rotates,
    [OP_ROLL] = rolls,
    [OP_IM2COL] = pretend_are_contiguous,
    [OP_IM2COL_3D] = pretend_are_contiguous,
    [OP_CONV_2D] = pretend_are_contiguous,
    [OP_CONV_3D] = pretend_are_contiguous,
    [OP_CONV_2D_DW] = pretend_yes,
    [OP_CONV_TRANSPOSE_2D] = pretend_yes,
    [OP_CONV_TRANSPOSE_1D] = pretend_all_f32,
    [OP_COL2IM_1D] = pretend_is_contiguous,
    [OP_POOL_1D] = pretend_yes,
    [OP_POOL_2D] = pretend_yes,
    [OP_TOP_K] = sorts,
    [OP_ARGSORT] = sorts,
    [OP_PAD] = pretend_yes,
    [OP_UPSCALE] = pretend_yes,
    [OP_PAD_REFLECT_1D] = pretend_yes,
    [OP_ARANGE] = pretend_yes,
    [OP_TIMESTEP_EMBEDDING] = pretend_yes,
    [OP_LEAKY_RELU] = pretend_yes,
    [OP_RWKV_WKV6] = pretend_yes,
    [OP_RWKV_WKV7] = pretend_yes,
    [OP_GATED_LINEAR_ATTN] = pretend_yes,
    [OP_GATED_DELTA_NET] = pretend_yes,
    [OP_SSM_SCAN] = scans_state,
    [OP_SSM_CONV] = convolves_state,
    [OP_DSV4_HC_COMB] = is_new,
    [OP_DSV4_HC_PRE] = is_new,
    [OP_DSV4_HC_POST] = is_new,
    [OP_LIGHTNING_INDEXER] = indexes,
    [OP_FLASH_ATTN_EXT] = pays_attention,
    [OP_CROSS_ENTROPY_LOSS] = pretend_yes,
    [OP_CROSS_ENTROPY_LOSS_BACK] = pretend_yes,
    [OP_OPT_STEP_ADAMW] = pretend_yes,
    [OP_OPT_STEP_SGD] = pretend_yes,
    [OP_FILL] = pretend_yes,
    [OP_CUMSUM] = pretend_yes,
    [OP_TRI] = pretend_yes,
    [OP_DIAG] = pretend_yes,
    [OP_SOLVE_TRI] = pretend_yes,
};

pretend_answer *pretend_answer_cuda(enum pretend_op what)
{
    return answers[what];
}
