/* SPDX-License-Identifier: MIT */
/* What holds for all engines on PyTorch: budgets that add up, and sizes that nobody has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <memtally/error.h>

#include "made_model.h"
#include "predict/torch/torch.h"

static const char *const engines[] = {"vllm@0.11.0", "vllm", "sglang", "trt-llm"};
static const char *const others[] = {"transformers", "exllamav3"};
static struct made_model made;

static struct mt_estimate *estimate(struct mt_predict_settings settings)
{
    struct mt_estimate *result = NULL;
    struct mt_error error = {0};
    if (mt_estimate_create(&made.model, &settings, &result, &error) < 0)
        fail_msg("%s: %s", settings.engine, error.text);
    return result;
}

static void test_what_is_subtracted_gives_the_pool(void **state)
{
    (void)state;
    uint64_t devices[] = {48 * MADE_GIB, 48 * MADE_GIB};
    make_model(&made, &qwen3_32b);
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
        struct mt_estimate *result = estimate((struct mt_predict_settings){.engine = engines[i],
                                                                           .device_bytes = devices,
                                                                           .n_devices = 2,
                                                                           .tensor_parallel = 2,
                                                                           .context_tokens = 8192});
        const struct mt_estimate_pool *pool = &result->pool;
        assert_int_equal((int64_t)(pool->requested_bytes - pool->weights_bytes -
                                   pool->activations_bytes - pool->other_bytes -
                                   pool->graphs_bytes),
                         pool->pool_bytes);
        assert_true(pool->pool_tokens_low <= pool->pool_tokens);
        assert_true(pool->pool_tokens <= pool->pool_tokens_high);
        for (size_t place = 1; place < result->tally.n_places; place++) {
            const struct mt_tally_place *at = &result->tally.places[place];
            assert_true(at->total_low_bytes <= at->total_allocated_bytes);
            assert_true(at->total_allocated_bytes <= at->total_high_bytes);
        }
        mt_estimate_destroy(result);
    }
}

static uint64_t weights_of_two_stages(const char *architecture)
{
    uint64_t devices[] = {48 * MADE_GIB, 48 * MADE_GIB};
    make_model(&made, &llama_3_1_8b);
    made.model.description.architecture = architecture;
    struct mt_estimate *result = estimate((struct mt_predict_settings){.engine = "sglang",
                                                                       .device_bytes = devices,
                                                                       .n_devices = 2,
                                                                       .pipeline_parallel = 2,
                                                                       .context_tokens = 8192});
    uint64_t sum = 0;
    for (size_t place = 1; place < 3; place++)
        sum += mt_tally_row_of(&result->tally.places[place], MT_CATEGORY_WEIGHTS)->allocated_bytes;
    assert_int_equal(result->pool.bytes_per_token, 65536);
    mt_estimate_destroy(result);
    return sum;
}

/* Two stages hold what one device would: the layers once, the embedding at one end, the output at
 * the other. SGLang's class for Llama makes the output, 128256 * 4096 * 2 B, on each stage (a
 * rehearsal of 0.5.23 with two ranks has it on both). */
static void test_stages_hold_the_whole_model(void **state)
{
    (void)state;
    const uint64_t rotary = 2 * UINT64_C(131072) * 128 * 4; /* both rotate all positions */
    assert_int_equal(weights_of_two_stages("qwen2"), 16060522496 + rotary);
    assert_int_equal(weights_of_two_stages("llama"), 16060522496 + rotary + 128256ULL * 4096 * 2);
}

/* q, k, v, gate and up of one layer of Llama 3.1 8B become 8 bit, with 4 bytes for each row. */
static void test_weights_are_converted_when_loaded(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    struct mt_predict_settings settings = {.weight_type = "fp8"};
    struct mt_predict_input in = {&made.model, mt_model_describe(&made.model), &settings, NULL};
    const struct mt_torch_load load = {
        .tensor_parallel = 1, .vocabulary_padding = 64, .float_bytes = 1};
    struct mt_torch_stage stage;
    struct mt_torch_weights weights;
    mt_torch_stage_of(&in, 0, 1, &stage);
    mt_torch_weights_of(&in, &load, &stage, &weights);
    uint64_t matrices = 4096ULL * (4096 + 1024 + 1024 + 4096) + 3ULL * 4096 * 14336;
    uint64_t rows = 4096 + 1024 + 1024 + 4096 + 14336 + 14336 + 4096;
    assert_int_equal(weights.bytes, 32 * (matrices + 4 * rows + 2 * 4096 * 2) +
                                        2 * 128256ULL * 4096 * 2 + 4096 * 2);
}

static void test_sizes_that_nobody_has_do_not_overflow(void **state)
{
    (void)state;
    static const uint64_t values[] = {0, 1, UINT64_MAX / 2, UINT64_MAX};
    uint64_t devices[] = {24 * MADE_GIB, 24 * MADE_GIB};
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        make_model(&made, &llama_3_1_8b);
        struct mt_model_description *d = &made.model.description;
        d->embedding_length = d->vocabulary = d->context_length = values[v];
        d->inner_size = d->state_size = d->group_count = d->conv_kernel = values[v];
        for (size_t i = 0; i < 32; i++) {
            struct mt_model_layer *layer = &made.layers[i];
            layer->kv_heads = layer->key_size = layer->value_size = values[v];
            layer->window = layer->ff_length = layer->experts_used = values[v];
            layer->expert_ff_length = layer->experts = layer->weight_bytes = values[v];
            layer->attention = (enum mt_attention)(i % 6);
            layer->recurrence = (enum mt_recurrence)(i % 7);
        }
        for (size_t e = 0; e < 6; e++) {
            struct mt_predict_settings settings = {.engine = e < 4 ? engines[e] : others[e - 4],
                                                   .device_bytes = devices,
                                                   .n_devices = 2,
                                                   .context_tokens = values[v],
                                                   .sequences = values[v]};
            struct mt_estimate *result = NULL;
            struct mt_error error = {0};
            if (mt_estimate_create(&made.model, &settings, &result, &error) == 0) {
                for (size_t i = 0; i < result->n_terms; i++)
                    assert_true(result->terms[i].bytes <= 4 * MT_FAR);
                mt_estimate_destroy(result);
            }
        }
    }
}

/* --dtype of vLLM and SGLang takes PyTorch's names. */
static void test_flags_name_types_as_pytorch_does(void **state)
{
    (void)state;
    static const char *const with_flag[] = {"vllm", "sglang"};
    uint64_t device = 80 * MADE_GIB;
    make_model(&made, &llama_3_1_8b);
    for (size_t i = 0; i < 2; i++) {
        struct mt_predict_settings settings = {.engine = with_flag[i],
                                               .device_bytes = &device,
                                               .n_devices = 1,
                                               .context_tokens = 2048,
                                               .weight_type = "f32"};
        struct mt_estimate *result = estimate(settings);
        assert_non_null(strstr(result->flags, "--dtype float32"));
        mt_estimate_destroy(result);
        settings.weight_type = "fp8";
        result = estimate(settings);
        assert_non_null(strstr(result->flags, "--quantization fp8"));
        mt_estimate_destroy(result);
    }
}

static uint64_t width_of(const char *engine, const uint64_t *device, int *says)
{
    struct mt_estimate *result = NULL;
    const struct mt_predict_settings settings = {
        .engine = engine, .device_bytes = device, .n_devices = 1, .context_tokens = 2048};
    assert_int_equal(mt_estimate_create(&made.model, &settings, &result, NULL), 0);
    const struct mt_tally_row *row = mt_tally_row_of(&result->tally.places[1], MT_CATEGORY_CONTEXT);
    uint64_t width = row->high_bytes - row->low_bytes;
    *says = 0;
    for (size_t i = 0; i < result->tally.n_notes; i++)
        *says |= strstr(result->tally.notes[i], "bands are wider") != NULL;
    mt_estimate_destroy(result);
    return width;
}

static void test_versions_after_the_last_one_that_was_read_have_wider_bands(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"vllm@0.16.0", "vllm@0.16.1"},
                                           {"sglang@0.5.23", "sglang@0.5.24"},
                                           {"trt-llm@1.2.0", "trt-llm@2.0.0"},
                                           {"exllamav3@1.4.9", "exllamav3@1.5.0"},
                                           {"transformers@5.23.0", "transformers@6.0.0"}};
    uint64_t device = 80 * MADE_GIB;
    make_model(&made, &llama_3_1_8b);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        int says;
        uint64_t read = width_of(pairs[i][0], &device, &says);
        assert_false(says);
        assert_true(width_of(pairs[i][1], &device, &says) > read);
        assert_true(says);
    }
}

/* PyTorch's allocator: from 10 MiB on segments of whole 2 MiB, of which a rest of more than 1 MiB
 * is given to others, unless blocks of so much are kept whole. */
static void test_blocks_are_rounded_from_10_mib_on(void **state)
{
    (void)state;
    assert_int_equal(mt_torch_block_bytes(1, 0), 512);
    assert_int_equal(mt_torch_block_bytes(9 * MADE_MIB, 0), 9 * MADE_MIB);
    assert_int_equal(mt_torch_block_bytes(10 * MADE_MIB, 0), 10 * MADE_MIB);
    assert_int_equal(mt_torch_block_bytes(10 * MADE_MIB + 512, 0), 10 * MADE_MIB + 512);
    assert_int_equal(mt_torch_block_bytes(135 * MADE_MIB, 0), 136 * MADE_MIB);
    assert_int_equal(mt_torch_block_bytes(135 * MADE_MIB - 512, 0), 135 * MADE_MIB - 512);
    assert_int_equal(mt_torch_block_bytes(135 * MADE_MIB - 512, 20 * MADE_MIB), 136 * MADE_MIB);
    assert_int_equal(mt_torch_block_bytes(15 * MADE_MIB - 512, 20 * MADE_MIB), 15 * MADE_MIB - 512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_subtracted_gives_the_pool),
        cmocka_unit_test(test_stages_hold_the_whole_model),
        cmocka_unit_test(test_weights_are_converted_when_loaded),
        cmocka_unit_test(test_versions_after_the_last_one_that_was_read_have_wider_bands),
        cmocka_unit_test(test_flags_name_types_as_pytorch_does),
        cmocka_unit_test(test_blocks_are_rounded_from_10_mib_on),
        cmocka_unit_test(test_sizes_that_nobody_has_do_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
