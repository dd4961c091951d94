/* SPDX-License-Identifier: MIT */
/* Weights in the layouts of processors, against the sizes in llama.cpp's sources and against what
 * published logs say. */
#include "tests/support/unit.h"

#include <string.h>

#include "hand_model.h"

#define EMBEDDING MT_NO_LAYER, MT_TENSOR_TOKEN_EMBEDDING
#define OUTPUT    MT_NO_LAYER, MT_TENSOR_OUTPUT
#define LAYER     0, MT_TENSOR_LAYER

static const char amx[] = "weights for AMX";
static const char kleidiai[] = "weights for KleidiAI";
static const char repacked[] = "repacked weights";

static struct mt_estimate *on(const struct hand_model *hand, enum mt_processor processor)
{
    const struct mt_predict_settings settings = {
        .context_tokens = 512, .sequences = 1, .processor = processor};
    return hand_model_estimate(hand, &settings);
}

static uint64_t part(const struct mt_estimate *estimate, const char *name)
{
    return hand_model_bytes(estimate, "host", MT_CATEGORY_WEIGHTS, name);
}

/* One matrix of 256 columns and `rows` rows. */
static uint64_t of_matrix(const char *type, uint64_t rows, enum mt_processor processor,
                          const char *name)
{
    struct hand_model hand;
    hand_model_init(&hand, "llama", 1, 4, 4, 64);
    hand_model_tensor(&hand, "blk.0.ffn_up.weight", type, 256, rows, 0, LAYER);
    struct mt_estimate *estimate = on(&hand, processor);
    uint64_t bytes = part(estimate, name);
    mt_estimate_destroy(estimate);
    return bytes;
}

/* ggml-cpu/amx/mmq.cpp, get_row_size(): a block of q8_0 has an int32_t appended, one of q4_K and
 * q5_K four bytes, one of iq4_xs two. Blocks of the others are as in the file. */
static void test_blocks_for_amx_are_as_large_as_its_kernels_want_them(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        uint64_t row_bytes; /* of 256 columns */
    } types[] = {
        {"f16", 512},      {"q4_0", 8 * 18},  {"q4_1", 8 * 20}, {"q8_0", 8 * (34 + 4)},
        {"q4_k", 144 + 4}, {"q5_k", 176 + 4}, {"q6_k", 210},    {"iq4_xs", 136 + 2},
        {"q5_0", 0},       {"q2_k", 0},       {"bf16", 0},      {"f32", 0},
        {"iq4_nl", 0},     {"mxfp4", 0},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        assert_int_equal(of_matrix(types[i].type, 64, MT_PROCESSOR_AMX, amx),
                         64 * types[i].row_bytes);
}

/* op->ne[0] % (TILE_N * 2): what AMX does not take, the next layout may. */
static void test_amx_takes_rows_by_32_and_leaves_the_rest_to_repacking(void **state)
{
    (void)state;
    assert_int_equal(of_matrix("q4_0", 40, MT_PROCESSOR_AMX, amx), 0);
    assert_int_equal(of_matrix("q4_0", 40, MT_PROCESSOR_AMX, repacked), 40 * 8 * 18);
    assert_int_equal(of_matrix("q8_0", 40, MT_PROCESSOR_AMX, repacked), 0);
    assert_int_equal(of_matrix("q4_0", 64, MT_PROCESSOR_AMX, repacked), 0);
    assert_int_equal(of_matrix("iq4_nl", 64, MT_PROCESSOR_AMX, repacked), 64 * 8 * 18);
}

/* ggml-cpu/repack.cpp, ggml_repack_get_optimal_repack_type() of build 11434. */
static void test_each_processor_repacks_its_own_types(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        uint64_t rows;
        enum mt_processor processor;
        int is_copied;
    } cases[] = {
        {"q4_k", 64, MT_PROCESSOR_AVX2, 1},    {"q2_k", 64, MT_PROCESSOR_AVX2, 0},
        {"q2_k", 64, MT_PROCESSOR_AVX512, 1},  {"q2_k", 64, MT_PROCESSOR_AMX, 1},
        {"q4_0", 64, MT_PROCESSOR_X86_64, 0},  {"q4_0", 12, MT_PROCESSOR_AVX2, 0},
        {"q4_0", 12, MT_PROCESSOR_DOTPROD, 1}, {"q6_k", 12, MT_PROCESSOR_DOTPROD, 0},
        {"q6_k", 64, MT_PROCESSOR_DOTPROD, 1}, {"q8_0", 64, MT_PROCESSOR_DOTPROD, 1},
        {"q8_0", 64, MT_PROCESSOR_AVX512, 0},  {"q8_0", 64, MT_PROCESSOR_AARCH64, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(of_matrix(cases[i].type, cases[i].rows, cases[i].processor, repacked) != 0,
                         cases[i].is_copied);
}

/* Products of experts are of another operation, and convolutions are no products. */
static void test_experts_and_convolutions_are_not_for_amx(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "llama", 1, 4, 4, 64);
    hand_model_tensor(&hand, "blk.0.ffn_up_exps.weight", "q4_0", 256, 64, 4, 0, MT_TENSOR_EXPERTS);
    hand_model_tensor(&hand, "blk.0.ffn_down_exps.weight", "q8_0", 256, 64, 4, 0,
                      MT_TENSOR_EXPERTS);
    hand_model_tensor(&hand, "blk.0.shortconv.conv.weight", "f16", 64, 64, 0, LAYER);
    hand_model_tensor(&hand, "blk.0.shortconv.in_proj.weight", "f16", 64, 64, 0, LAYER);
    hand_model_tensor(&hand, "blk.0.ssm_alpha.weight", "f16", 64, 32, 0, LAYER);
    hand_model_tensor(&hand, "blk.0.ssm_a", "f16", 64, 32, 0, LAYER);
    struct mt_estimate *estimate = on(&hand, MT_PROCESSOR_AMX);
    assert_int_equal(part(estimate, amx), 64 * (64 + 32) * 2);
    assert_int_equal(part(estimate, repacked), 4 * 64 * 8 * 18);
    mt_estimate_destroy(estimate);
}

/* Llama 3.1 405B of its first release (16 heads of keys) in q8_0: "AMX model buffer size =
 * 462027.75 MiB" in github.com/ggml-org/llama.cpp/issues/13475. Matrices of all 126 layers that
 * have as many columns stand here as one. */
static void test_a_published_405b_takes_what_its_log_says(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "llama", 1, 128, 16, 128);
    hand_model_tensor(&hand, "token_embd.weight", "q8_0", 16384, 128256, 0, EMBEDDING);
    hand_model_tensor(&hand, "blk.0.ffn_up.weight", "q8_0", 16384,
                      126 * (2 * 16384 + 2 * 2048 + 2 * 53248), 0, LAYER);
    hand_model_tensor(&hand, "blk.0.ffn_down.weight", "q8_0", 53248, 126 * 16384, 0, LAYER);
    hand_model_tensor(&hand, "output.weight", "q8_0", 16384, 128256, 0, OUTPUT);
    struct mt_estimate *estimate = on(&hand, MT_PROCESSOR_AMX);
    assert_int_equal(part(estimate, amx) * 100 >> 20, 46202775);
    mt_estimate_destroy(estimate);
}

/* LFM2.5 1.2B in q8_0: "AMX model buffer size = 1325.25 MiB" and "CPU_Mapped model buffer size =
 * 1186.25 MiB" in github.com/ggml-org/llama.cpp/issues/19184. The tied embedding is in both. */
static void test_a_published_tied_embedding_is_there_twice(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "llama", 1, 32, 8, 64);
    hand_model_tensor(&hand, "token_embd.weight", "q8_0", 2048, 65536, 0, EMBEDDING);
    hand_model_tensor(&hand, "blk.0.ffn_up.weight", "q8_0", 2048,
                      16 * 2 * 8192 + 10 * (6144 + 2048) + 6 * (2 * 2048 + 2 * 512), 0, LAYER);
    hand_model_tensor(&hand, "blk.0.ffn_down.weight", "q8_0", 8192, 16 * 2048, 0, LAYER);
    hand_model_tensor(&hand, "blk.0.ffn_norm.weight", "f32", 2048, 0, 0, LAYER);
    hand.model.description.tied_output = 1;
    struct mt_estimate *estimate = on(&hand, MT_PROCESSOR_AMX);
    assert_int_equal(part(estimate, amx) * 100 >> 20, 132525);
    /* The log's file has half a MiB of norms and convolutions more. */
    assert_in_range(part(estimate, "mapped weights") * 100 >> 20, 118575, 118625);
    mt_estimate_destroy(estimate);
}

static void test_devices_in_use_and_no_repack_leave_weights_as_they_are(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "llama", 1, 4, 4, 64);
    hand_model_tensor(&hand, "blk.0.ffn_up.weight", "q8_0", 256, 64, 0, LAYER);
    const uint64_t device_bytes[] = {UINT64_C(1) << 30};
    struct mt_predict_settings settings = {.context_tokens = 512,
                                           .sequences = 1,
                                           .processor = MT_PROCESSOR_AMX,
                                           .repack = MT_SWITCH_OFF};
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    assert_int_equal(part(estimate, NULL), 64 * 8 * 34);
    mt_estimate_destroy(estimate);
    settings.repack = MT_SWITCH_AUTO;
    settings.device_bytes = device_bytes;
    settings.n_devices = 1;
    settings.has_gpu_layers = 1;
    estimate = hand_model_estimate(&hand, &settings);
    assert_int_equal(part(estimate, NULL), 64 * 8 * 34);
    mt_estimate_destroy(estimate);
}

/* Builds from before the layout, and the last one that refused several matrices in one tensor. */
static void test_layouts_come_with_the_builds_that_brought_them(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "llama", 1, 4, 4, 64);
    hand_model_tensor(&hand, "blk.0.attn_k_b.weight", "q8_0", 256, 64, 4, LAYER);
    hand_model_tensor(&hand, "blk.0.ffn_up.weight", "q8_0", 256, 64, 0, LAYER);
    const uint64_t matrix = 64 * 8 * 38;
    const struct {
        const char *engine;
        uint64_t bytes;
    } builds[] = {{"llama.cpp@4100", 0},
                  {"llama.cpp@5000", matrix},
                  {"llama.cpp@6180", matrix},
                  {"llama.cpp@11434", 2 * matrix}};
    for (size_t i = 0; i < sizeof builds / sizeof *builds; i++) {
        const struct mt_predict_settings settings = {.engine = builds[i].engine,
                                                     .context_tokens = 512,
                                                     .sequences = 1,
                                                     .processor = MT_PROCESSOR_AMX};
        struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
        assert_int_equal(part(estimate, amx), builds[i].bytes);
        mt_estimate_destroy(estimate);
    }
}

/* The embedding is looked up in KleidiAI's layout too, so that a tied one is there once. */
static void test_kleidiai_keeps_embeddings_too(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "llama", 1, 4, 4, 64);
    hand_model_tensor(&hand, "token_embd.weight", "q4_0", 256, 64, 0, EMBEDDING);
    hand_model_tensor(&hand, "blk.0.ffn_up.weight", "q6_k", 256, 64, 0, LAYER);
    hand.model.description.tied_output = 1;
    struct mt_estimate *estimate = on(&hand, MT_PROCESSOR_KLEIDIAI);
    assert_in_range(part(estimate, kleidiai), 64 * 8 * 18, 64 * 8 * 18 + 128);
    assert_int_equal(part(estimate, repacked), 64 * 210);
    mt_estimate_destroy(estimate);
}

static const struct mt_estimate_term *term_of(const struct mt_estimate *estimate, const char *name)
{
    for (size_t i = 0; i < estimate->n_terms; i++)
        if (!strcmp(estimate->terms[i].name, name))
            return &estimate->terms[i];
    fail_msg("no term is called %s", name);
    return NULL;
}

static void test_a_processor_that_is_not_known_widens_the_band_and_says_so(void **state)
{
    (void)state;
    struct hand_model hand;
    hand_model_init(&hand, "llama", 1, 4, 4, 64);
    hand_model_tensor(&hand, "blk.0.ffn_up.weight", "q4_0", 256, 64, 0, LAYER);
    hand_model_tensor(&hand, "blk.0.ffn_down.weight", "q8_0", 256, 64, 0, LAYER);
    struct mt_estimate *estimate = on(&hand, MT_PROCESSOR_UNKNOWN);
    const struct mt_estimate_term *term = term_of(estimate, repacked);
    assert_int_equal(term->low_bytes, 0);
    assert_int_equal(term->bytes, 64 * 8 * 18);
    /* AMX's are the largest; KleidiAI's have headers. */
    assert_in_range(term->high_bytes, 64 * 8 * (18 + 38), 64 * 8 * (18 + 38) + 128);
    assert_int_equal(term->provenance, MT_PROVENANCE_ASSUMED);
    int is_said = 0;
    for (size_t i = 0; i < estimate->tally.n_notes; i++)
        is_said |= strstr(estimate->tally.notes[i], "--cpu") != NULL;
    assert_true(is_said);
    mt_estimate_destroy(estimate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_for_amx_are_as_large_as_its_kernels_want_them),
        cmocka_unit_test(test_amx_takes_rows_by_32_and_leaves_the_rest_to_repacking),
        cmocka_unit_test(test_each_processor_repacks_its_own_types),
        cmocka_unit_test(test_experts_and_convolutions_are_not_for_amx),
        cmocka_unit_test(test_a_published_405b_takes_what_its_log_says),
        cmocka_unit_test(test_a_published_tied_embedding_is_there_twice),
        cmocka_unit_test(test_devices_in_use_and_no_repack_leave_weights_as_they_are),
        cmocka_unit_test(test_layouts_come_with_the_builds_that_brought_them),
        cmocka_unit_test(test_kleidiai_keeps_embeddings_too),
        cmocka_unit_test(test_a_processor_that_is_not_known_widens_the_band_and_says_so),
    };
    return RUN_TESTS(tests);
}
