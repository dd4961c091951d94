/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include <math.h>
#include <memtally/model.h>
#include <string.h>

/* Parameters as the makers' own files count them (the sum over the published safetensors, without
 * image towers and MTP layers), and what GGUF files hold beside them: Llama 3's frequency factors.
 * Gemma's are those of its 262144 real tokens. */
static void test_named_shapes_have_the_published_number_of_parameters(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t published, beside;
    } models[] = {
        {"smollm-135m", 134515008, 0},      {"smollm-360m", 361821120, 0},
        {"tinyllama-1.1b", 1100048384, 0},  {"llama-3.2-1b", 1235814400, 32},
        {"llama-3.2-3b", 3212749824, 64},   {"llama-3.1-8b", 8030261248, 64},
        {"llama-3.1-70b", 70553706496, 64}, {"llama-2-7b", 6738415616, 0},
        {"mistral-7b", 7248023552, 0},      {"mixtral-8x7b", 46702792704, 0},
        {"qwen2.5-0.5b", 494032768, 0},     {"qwen2.5-7b", 7615616512, 0},
        {"qwen3-0.6b", 596049920, 0},       {"qwen3-4b", 4022468096, 0},
        {"qwen3-8b", 8190735360, 0},        {"qwen3-30b-a3b", 30532122624, 0},
        {"gemma-3-1b", 999885952, 0},       {"gemma-3-12b", 11765788416, 0},
        {"gemma-3-27b", 27009002240, 0},    {"deepseek-v2-lite", 15706484224, 0},
        {"deepseek-v3", 671026419200, 0},   {"qwen2.5-32b", 32763876352, 0},
        {"qwen3-32b", 32762123264, 0},      {"qwen3-235b-a22b", 235093634560, 0},
        {"kimi-k2", 1026408232448, 0},
    };
    const size_t n = sizeof models / sizeof *models;
    struct mt_sample_options options = {.type = MT_WEIGHT_F16};
    for (size_t i = 0; i < n; i++) {
        const struct mt_model_shape *shape = mt_model_shape_by_name(models[i].name);
        struct mt_sample_facts facts;
        assert_non_null(shape);
        assert_int_equal(mt_sample_model_plan(shape, &options, &facts, NULL), 0);
        assert_int_equal(facts.parameters, models[i].published + models[i].beside);
    }
    assert_non_null(mt_model_shape_at(n - 1));
    assert_null(mt_model_shape_at(n));
}

static void test_shapes_and_types_are_found_in_any_case_and_others_are_not(void **state)
{
    (void)state;
    assert_ptr_equal(mt_model_shape_by_name("SmolLM-135M"), mt_model_shape_by_name("smollm-135m"));
    assert_null(mt_model_shape_by_name("llama-9-1t"));
    assert_null(mt_model_shape_by_name(NULL));
    enum mt_weight_type type = MT_WEIGHT_F32;
    assert_int_equal(mt_weight_type_by_name("Q4_K", &type), 0);
    assert_int_equal(type, MT_WEIGHT_Q4_K);
    assert_int_equal(mt_weight_type_by_name("q3_x", &type), MT_ENOTFOUND);
    assert_int_equal(type, MT_WEIGHT_Q4_K);
    assert_string_equal(mt_weight_type_name((enum mt_weight_type)77), "?");
}

static const struct mt_model_shape plain = {
    .layers = 2, .embedding_length = 64, .ff_length = 128, .heads = 4, .vocabulary = 400};

static uint64_t parameters(const struct mt_model_shape *shape)
{
    struct mt_sample_options options = {.type = MT_WEIGHT_F32};
    struct mt_sample_facts facts;
    struct mt_error error = {0};
    if (mt_sample_model_plan(shape, &options, &facts, &error))
        fail_msg("%s", error.text);
    return facts.parameters;
}

static void test_what_is_left_open_takes_its_default(void **state)
{
    (void)state;
    struct mt_model_shape said = plain;
    said.architecture = "llama";
    said.kv_heads = 4;
    said.head_size = 16;
    assert_int_equal(parameters(&plain), parameters(&said));
    /* Per layer two norms, four matrices of attention, three of the feed-forward. */
    uint64_t layer = 2 * 64 + 4 * 64 * 64 + 3 * 64 * 128;
    assert_int_equal(parameters(&plain), 2 * 400 * 64 + 64 + 2 * layer);
}

static void assert_refused(struct mt_model_shape shape, int code, const char *said)
{
    struct mt_sample_options options = {.type = MT_WEIGHT_F32};
    struct mt_sample_facts facts = {.parameters = 7};
    struct mt_error error = {0};
    assert_int_equal(mt_sample_model_plan(&shape, &options, &facts, &error), code);
    assert_int_equal(error.code, code);
    assert_int_equal(facts.parameters, 7);
    if (!strstr(error.text, said))
        fail_msg("'%s' does not say '%s'", error.text, said);
}

#define REFUSED(code, said, ...)                                                                   \
    do {                                                                                           \
        struct mt_model_shape shape = plain;                                                       \
        __VA_ARGS__;                                                                               \
        assert_refused(shape, code, said);                                                         \
    } while (0)

static void test_numbers_that_make_no_model_are_refused_by_name(void **state)
{
    (void)state;
    REFUSED(MT_EARG, "layers", shape.layers = 0);
    REFUSED(MT_EARG, "embedding_length", shape.embedding_length = 0);
    REFUSED(MT_EARG, "ff_length", shape.ff_length = 0);
    REFUSED(MT_EARG, "heads", shape.heads = 0);
    REFUSED(MT_EARG, "vocabulary", shape.vocabulary = 383);
    REFUSED(MT_EARG, "multiple of heads", shape.heads = 5);
    REFUSED(MT_EARG, "multiple of kv_heads", shape.kv_heads = 3);
    REFUSED(MT_EARG, "even", shape.head_size = 15);
    REFUSED(MT_EARG, "rwkv9", shape.architecture = "rwkv9");
    REFUSED(MT_EARG, "kv_lora_rank", shape.kv_lora_rank = 64);
    REFUSED(MT_EARG, "sliding_window", shape.architecture = "gemma3");
    REFUSED(MT_EARG, "sliding_window", shape.sliding_window = 128);
    REFUSED(MT_EARG, "experts_used", shape.experts = 8);
    REFUSED(MT_EARG, "experts_used", shape.experts = 8, shape.experts_used = 9);
    REFUSED(MT_EARG, "experts", shape.experts_used = 2);
    REFUSED(MT_EARG, "experts", shape.architecture = "qwen3moe");
    REFUSED(MT_EARG, "factor", shape.rope_freq_base = (double)NAN);
    REFUSED(MT_EARG, "factor", shape.norm_epsilon = -1);
    REFUSED(MT_EARG, "equal to embedding_length", shape.architecture = "qwen2",
            shape.head_size = 32);
}

static void test_numbers_too_large_are_refused_before_they_overflow(void **state)
{
    (void)state;
    REFUSED(MT_ELIMIT, "layers is 513", shape.layers = 513);
    REFUSED(MT_ELIMIT, "heads", shape.heads = UINT64_MAX);
    REFUSED(MT_ELIMIT, "experts", shape.experts = 1025);
    REFUSED(MT_ELIMIT, "vocabulary", shape.vocabulary = (uint64_t)1 << 40);
    REFUSED(MT_ELIMIT, "larger than a file", shape.layers = 512, shape.ff_length = 1 << 24,
            shape.embedding_length = 1 << 20, shape.experts = 1024, shape.experts_used = 1);
}

static void test_options_outside_their_lists_are_refused(void **state)
{
    (void)state;
    struct mt_sample_facts facts;
    struct mt_sample_options type = {.type = (enum mt_weight_type)99};
    struct mt_sample_options mode = {.mode = (enum mt_sample_mode)9};
    assert_int_equal(mt_sample_model_plan(&plain, &type, &facts, NULL), MT_EARG);
    assert_int_equal(mt_sample_model_plan(&plain, &mode, &facts, NULL), MT_EARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_named_shapes_have_the_published_number_of_parameters),
        cmocka_unit_test(test_shapes_and_types_are_found_in_any_case_and_others_are_not),
        cmocka_unit_test(test_what_is_left_open_takes_its_default),
        cmocka_unit_test(test_numbers_that_make_no_model_are_refused_by_name),
        cmocka_unit_test(test_numbers_too_large_are_refused_before_they_overflow),
        cmocka_unit_test(test_options_outside_their_lists_are_refused),
    };
    return RUN_TESTS(tests);
}
