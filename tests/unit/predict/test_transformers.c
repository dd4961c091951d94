/* SPDX-License-Identifier: MIT */
/* transformers' predictions against live tensors that were counted while the models' own code of
 * transformers 5.23 ran in torch 2.13's fake tensors, bf16, one prompt (storages rounded up to 512
 * bytes), with the shapes below. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "made_model.h"

static struct made_model made;

static struct mt_estimate *estimate(struct mt_predict_settings settings)
{
    return made_estimate(&made, settings);
}

struct point {
    uint64_t tokens;
    const char *engine;
    enum mt_switch flash;
    uint64_t weights;
    uint64_t kv;
    uint64_t activations;
    uint64_t within;
};

static void check(const struct point *point)
{
    struct mt_estimate *result =
        estimate((struct mt_predict_settings){.engine = point->engine,
                                              .context_tokens = point->tokens,
                                              .weight_type = "auto",
                                              .flash_attention = point->flash});
    uint64_t activations = made_row(result, 0, MT_CATEGORY_ACTIVATIONS);
    assert_int_equal(made_row(result, 0, MT_CATEGORY_WEIGHTS), point->weights);
    assert_int_equal(made_row(result, 0, MT_CATEGORY_KV_CACHE), point->kv);
    assert_in_range(activations, point->activations - point->within,
                    point->activations + point->within);
    mt_estimate_destroy(result);
}

static void test_llama_8b_takes_what_its_code_took(void **state)
{
    (void)state;
    static const struct point points[] = {
        {2048, "transformers@5.23.0", MT_SWITCH_AUTO, 16060522496, 268435456, 244350976, 0},
    };
    make_model(&made, &llama_3_1_8b);
    check(&points[0]);
}

/* The counted 3,846,251,520 bytes of weights hold two vectors of 64 frequencies, rounded up. */
static void test_four_layers_take_what_their_code_took(void **state)
{
    (void)state;
    static const struct made_shape shape = {4, 4096, 14336, 32, 8, 128, 128256, 131072, 0, 0, 0};
    static const struct point points[] = {
        {2048, "transformers@5.23.0", MT_SWITCH_AUTO, 3846250496, 33554432, 244350976, 0},
        {300, "transformers@5.23.0", MT_SWITCH_AUTO, 3846250496, 4915200, 35793920, 1024},
        {2048, "transformers@5.23.0", MT_SWITCH_OFF, 3846250496, 33554432, 1452310528, 0},
        {512, "transformers@5.23.0", MT_SWITCH_OFF, 3846250496, 8388608, 109846528, 0},
    };
    make_model(&made, &shape);
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        check(&points[i]);
}

/* Every position's logits in 32 bit beside those in 16 bit, as before 4.45. */
static void test_old_versions_keep_logits_of_all_positions(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    struct mt_estimate *result = estimate((struct mt_predict_settings){
        .engine = "transformers@4.44.0", .context_tokens = 2048, .weight_type = "bfloat16"});
    assert_int_equal(made_row(result, 0, MT_CATEGORY_ACTIVATIONS),
                     2048ULL * 128256 * (2 + 4) + 2048ULL * 4096 * 2);
    mt_estimate_destroy(result);
}

static void test_small_head_with_many_heads_takes_what_its_code_took(void **state)
{
    (void)state;
    static const struct made_shape qwen3 = {6, 1024, 3072, 16, 8, 128, 151936, 40960, 1, 0, 1};
    static const struct point points[] = {
        {2048, "transformers@5.23.0", MT_SWITCH_AUTO, 499942400, 50331648, 55607296, 0},
        {1024, "transformers@5.23.0", MT_SWITCH_OFF, 499942400, 25165824, 189284352, 0},
    };
    make_model(&made, &qwen3);
    /* The real one's 499,942,400 bytes: rounded up to 512 for each of 67 tensors. */
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        struct point point = points[i];
        point.weights = made.model.description.weight_bytes;
        assert_in_range(points[i].weights - point.weights, 0, 67 * 512);
        check(&point);
    }
}

/* Ten of twelve layers have a window of 512 and keep 511 tokens of 2,048; what the prompt had
 * beyond is a part of the same tensors until the next token: 9,426,944 of cache, and 127,974,400
 * more. */
static void test_windowed_layers_let_go_of_the_prompt_late(void **state)
{
    (void)state;
    static const struct made_shape gemma = {12, 1152, 6912, 4, 1, 256, 262144, 32768, 1, 0, 1};
    make_model(&made, &gemma);
    made.model.description.architecture = "gemma3";
    for (size_t i = 0; i < 12; i++)
        if (i % 6 != 5) {
            made.layers[i].attention = MT_ATTENTION_SLIDING;
            made.layers[i].window = 512;
        }
    struct point point = {2048, "transformers@5.23.0", MT_SWITCH_AUTO, 0, 9426944, 127974400, 8192};
    point.weights = made.model.description.weight_bytes;
    check(&point);
}

static void test_weights_double_where_the_version_loads_32_bit(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    struct mt_estimate *result = estimate(
        (struct mt_predict_settings){.engine = "transformers@4.50.0", .context_tokens = 1024});
    assert_int_equal(made_row(result, 0, MT_CATEGORY_WEIGHTS), 2 * 16060522496);
    assert_int_equal(made_row(result, 0, MT_CATEGORY_KV_CACHE), 2 * 134217728);
    assert_non_null(strstr(result->flags, "float32"));
    mt_estimate_destroy(result);
}

static void test_two_devices_share_the_layers(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    uint64_t devices[] = {24 * MADE_GIB, 24 * MADE_GIB};
    struct mt_estimate *result = estimate((struct mt_predict_settings){
        .engine = "transformers", .context_tokens = 2048, .device_bytes = devices, .n_devices = 2});
    uint64_t first = made_row(result, 1, MT_CATEGORY_WEIGHTS);
    uint64_t second = made_row(result, 2, MT_CATEGORY_WEIGHTS);
    assert_int_equal(first + second, 16060522496);
    assert_in_range(first, 7 * MADE_GIB, 9 * MADE_GIB);
    assert_int_equal(made_row(result, 1, MT_CATEGORY_KV_CACHE) +
                         made_row(result, 2, MT_CATEGORY_KV_CACHE),
                     268435456);
    assert_int_equal(made_row(result, 0, MT_CATEGORY_WEIGHTS), 0);
    mt_estimate_destroy(result);
}

static void test_what_does_not_fit_goes_to_the_host(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    uint64_t device = 12 * MADE_GIB;
    struct mt_estimate *result =
        estimate((struct mt_predict_settings){.engine = "transformers",
                                              .context_tokens = 2048,
                                              .device_bytes = &device,
                                              .n_devices = 1,
                                              .host_bytes = 64 * MADE_GIB});
    assert_true(made_row(result, 0, MT_CATEGORY_WEIGHTS) > 4 * MADE_GIB);
    assert_int_equal(result->verdict, MT_VERDICT_SPILLS);
    mt_estimate_destroy(result);
}

static void test_a_text_whose_length_is_not_said_is_not_as_long_as_can_be(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    uint64_t device = 24 * MADE_GIB;
    struct mt_estimate *result = estimate((struct mt_predict_settings){
        .engine = "transformers", .device_bytes = &device, .n_devices = 1});
    assert_int_equal(result->settings.context_tokens, 4096);
    assert_int_equal(made_row(result, 1, MT_CATEGORY_KV_CACHE), 4096 * 32 * 2 * 8 * 128 * 2);
    assert_int_equal(result->verdict, MT_VERDICT_FITS);
    mt_estimate_destroy(result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama_8b_takes_what_its_code_took),
        cmocka_unit_test(test_four_layers_take_what_their_code_took),
        cmocka_unit_test(test_old_versions_keep_logits_of_all_positions),
        cmocka_unit_test(test_small_head_with_many_heads_takes_what_its_code_took),
        cmocka_unit_test(test_windowed_layers_let_go_of_the_prompt_late),
        cmocka_unit_test(test_weights_double_where_the_version_loads_32_bit),
        cmocka_unit_test(test_two_devices_share_the_layers),
        cmocka_unit_test(test_what_does_not_fit_goes_to_the_host),
        cmocka_unit_test(test_a_text_whose_length_is_not_said_is_not_as_long_as_can_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
