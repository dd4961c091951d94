/* SPDX-License-Identifier: MIT */
/* vLLM's predictions against its published logs, to the digits that they print, and against
 * arithmetic of its documented rules. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <memtally/error.h>

#include "made_model.h"
#include "predict/budget/vllm.h"

static struct made_model made;
static uint64_t h100[] = {81080 * MADE_MIB, 81080 * MADE_MIB};

static struct mt_estimate *estimate(struct mt_predict_settings settings)
{
    struct mt_estimate *result = NULL;
    struct mt_error error = {0};
    int code = mt_estimate_create(&made.model, &settings, &result, &error);
    if (code < 0)
        fail_msg("%s", error.text);
    return result;
}

static struct mt_predict_settings on_h100(const char *engine, size_t devices)
{
    return (struct mt_predict_settings){.engine = engine,
                                        .device_bytes = h100,
                                        .n_devices = devices,
                                        .tensor_parallel = devices,
                                        .context_tokens = 8192};
}

static int refuses(struct mt_predict_settings settings, const char *words)
{
    struct mt_estimate *result = NULL;
    struct mt_error error = {0};
    int code = mt_estimate_create(&made.model, &settings, &result, &error);
    if (code == 0)
        mt_estimate_destroy(result);
    if (code < 0 && !strstr(error.text, words))
        print_message("%s\n", error.text);
    return code < 0 && strstr(error.text, words) ? code : 0;
}

static double gib(uint64_t bytes)
{
    return (double)bytes / (double)MADE_GIB;
}

/* "Model loading took 14.99 GiB": 16,060,522,496 bytes and rotations of 131,072 positions. Of two
 * ranks each layer of Qwen has matrices of 125 MiB, or of 35, 25 and 135, that take 1 MiB more. */
static void test_weights_are_what_the_logs_print(void **state)
{
    (void)state;
    const struct {
        const struct made_shape *shape;
        size_t devices;
        double gib;
    } logs[] = {{&llama_3_1_8b, 1, 14.99}, {&llama_3_8b, 1, 14.96}, {&llama_3_8b, 2, 7.48},
                {&qwen3_32b, 1, 61.03},    {&qwen3_32b, 2, 30.59},  {&qwen2_5_32b, 2, 30.71}};
    for (size_t i = 0; i < sizeof logs / sizeof *logs; i++) {
        make_model(&made, logs[i].shape);
        struct mt_estimate *result = estimate(on_h100("vllm@0.11.0", logs[i].devices));
        assert_float_equal(round(gib(result->pool.weights_bytes) * 100) / 100, logs[i].gib, 1e-6);
        mt_estimate_destroy(result);
    }
}

/* The parts are subtracted as the engine's own line has them, and blocks of 16 tokens fill the
 * rest: 2 * 8 heads * 128 * 2 B * 32 layers are 131,072 bytes for a token. */
static void test_the_pool_is_what_the_budget_leaves(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    struct mt_estimate *result = estimate(on_h100("vllm@0.11.0", 1));
    const struct mt_estimate_pool *pool = &result->pool;
    assert_true(pool->present);
    assert_int_equal(pool->requested_bytes, 81080 * MADE_MIB / 10 * 9);
    assert_int_equal(pool->pool_bytes, (int64_t)(pool->requested_bytes - pool->weights_bytes -
                                                 pool->activations_bytes - pool->other_bytes));
    assert_int_equal(pool->bytes_per_token, 131072);
    assert_int_equal(pool->pool_tokens, (uint64_t)pool->pool_bytes / (16 * 131072) * 16);
    assert_float_equal(pool->concurrency, (double)pool->pool_tokens / 8192, 1e-9);
    assert_true(pool->pool_tokens_low < pool->pool_tokens);
    assert_true(pool->pool_tokens_high > pool->pool_tokens);
    mt_estimate_destroy(result);
}

/* llm-d-planner's table of 0.11.0 on one H100: 4.76, 5.64 GiB of activations with 1,024 sequences
 * and 8,192 tokens; the pool then is 51.38 and 4.45 GiB. */
static void test_activations_follow_the_vocabulary(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    struct mt_estimate *result = estimate(on_h100("vllm@0.11.0", 1));
    assert_int_equal(result->settings.sequences, 1024);
    assert_int_equal(result->settings.batched_tokens, 8192);
    assert_float_equal(gib(result->pool.activations_bytes), 4.76, 0.02);
    assert_float_equal(gib((uint64_t)result->pool.pool_bytes), 51.38, 0.03);
    mt_estimate_destroy(result);
    make_model(&made, &qwen3_32b);
    result = estimate(on_h100("vllm@0.11.0", 1));
    assert_float_equal(gib(result->pool.activations_bytes), 5.64, 0.02);
    assert_float_equal(gib((uint64_t)result->pool.pool_bytes), 4.45, 0.04);
    mt_estimate_destroy(result);
}

static void test_defaults_follow_the_version(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    struct mt_estimate *old = estimate(on_h100("vllm@0.19.1", 1));
    struct mt_estimate *now = estimate(on_h100("vllm@0.20.0", 1));
    assert_float_equal(old->settings.memory_share, 0.9, 1e-9);
    assert_float_equal(now->settings.memory_share, 0.92, 1e-9);
    assert_int_equal(old->pool.graphs_bytes, 0);
    assert_true(now->pool.graphs_bytes > 0);
    mt_estimate_destroy(old);
    mt_estimate_destroy(now);
}

/* Keys and values of 8 heads are divided by 2 and by 8; by 16 each head is there twice. */
static void test_heads_are_replicated_when_there_are_fewer_than_ranks(void **state)
{
    (void)state;
    struct mt_model_layer layer = {
        .attention = MT_ATTENTION_GLOBAL, .kv_heads = 8, .key_size = 128, .value_size = 128};
    const struct mt_torch_cell *bf16 = mt_torch_cell_of("auto");
    assert_int_equal(mt_torch_token_bytes(&layer, bf16, 1), 4096);
    assert_int_equal(mt_torch_token_bytes(&layer, bf16, 8), 512);
    assert_int_equal(mt_torch_token_bytes(&layer, bf16, 16), 512);
    assert_int_equal(mt_torch_token_bytes(&layer, mt_torch_cell_of("fp8"), 2), 1024);
    struct mt_model_layer latent = {
        .attention = MT_ATTENTION_LATENT, .kv_heads = 1, .key_size = 576};
    assert_int_equal(mt_torch_token_bytes(&latent, bf16, 8), 1152);
}

/* A model whose layers are three delta nets to one attention, as Qwen3-Next-80B-A3B has them. */
static void make_hybrid(const char *architecture, uint64_t value_heads, uint64_t kv_heads)
{
    static const struct made_shape shape = {48, 2048, 5120, 16, 2, 256, 151936, 262144, 0, 0, 0};
    make_model(&made, &shape);
    struct mt_model_description *d = &made.model.description;
    d->architecture = architecture;
    d->conv_kernel = 4;
    d->state_size = 128;
    d->group_count = 16;
    d->time_step_rank = value_heads;
    d->inner_size = value_heads * 128;
    for (size_t i = 0; i < 48; i++) {
        made.layers[i].kv_heads = kv_heads;
        if (i % 4 == 3)
            continue;
        made.layers[i].attention = MT_ATTENTION_NONE;
        made.layers[i].recurrence = MT_RECURRENCE_DELTA_NET;
    }
}

static struct mt_vllm_pool pool_of_hybrid_on(const char *card, const char *version,
                                             const char *kv_type)
{
    struct mt_engine engine;
    struct mt_device_known known = {.gpu = ""};
    snprintf(known.gpu, sizeof known.gpu, "%s", card);
    assert_int_equal(mt_engine_find(version, &engine, NULL), 0);
    struct mt_predict_settings settings = {.tensor_parallel = 1,
                                           .device_known = &known,
                                           .kv_type_k = kv_type,
                                           .context_tokens = 16384,
                                           .batched_tokens = 2048};
    struct mt_predict_input in = {&made.model, mt_model_describe(&made.model), &settings, &engine};
    struct mt_torch_stage stage = {.end = 48};
    struct mt_vllm_pool pool;
    mt_vllm_pool_of(&in, &stage, &pool);
    assert_int_equal(pool.n_groups, 4);
    return pool;
}

static struct mt_vllm_pool pool_of_hybrid(const char *version, const char *kv_type)
{
    return pool_of_hybrid_on("H100-80GB", version, kv_type);
}

static uint64_t block_tokens(const char *kv_type)
{
    return pool_of_hybrid("vllm@0.27.1", kv_type).block_tokens;
}

/* Qwen3.5-35B-A3B in 0.33.0 on an H200, of a rehearsal: pages of 1,088 tokens, of which 16 hold a
 * request of 16,384, and three of each group of recurrent layers. */
static void test_newer_hybrids_have_larger_pages_and_a_third_state(void **state)
{
    (void)state;
    make_hybrid("qwen35moe", 32, 2);
    struct mt_vllm_pool pool = pool_of_hybrid("vllm@0.33.0", "auto");
    assert_int_equal(pool.block_tokens, 1088);
    assert_int_equal(pool.blocks_per_request, 16 + 3 * 3);
    pool =
        pool_of_hybrid_on("A100-80GB", "vllm@0.33.0", "auto"); /* Triton's kernel reads prompts */
    assert_int_equal(pool.block_tokens, 1056);
    assert_int_equal(pool.blocks_per_request, 16 + 3 * 2);
}

/* By the sources of these versions, and rehearsals of 0.26.0, 0.28.0 and 0.30.0. A state of 64
 * heads of 64 * 128 in 32 bit and three inputs of 6,144 channels, 2,134,016 bytes, lies in 1,042
 * tokens of 2,048 bytes; in steps of 16 that are 1,056. A request of 16,384 has 16 such pages. */
static void test_a_hybrid_of_mamba_2_keeps_states_as_its_version_does(void **state)
{
    static const struct {
        const char *version;
        uint64_t states;
    } cases[] = {{"vllm@0.25.1", 1}, {"vllm@0.26.0", 1}, {"vllm@0.27.1", 1},
                 {"vllm@0.28.0", 2}, {"vllm@0.31.0", 2}, {"vllm@0.32.0", 3}};
    (void)state;
    make_hybrid("nemotron_h", 64, 2);
    made.model.description.group_count = 8;
    made.model.description.inner_size = 64 * 64;
    for (size_t i = 0; i < 48; i++)
        if (made.layers[i].recurrence)
            made.layers[i].recurrence = MT_RECURRENCE_MAMBA2;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mt_vllm_pool pool = pool_of_hybrid(cases[i].version, "auto");
        assert_int_equal(pool.block_tokens, 1056);
        assert_int_equal(pool.blocks_per_request, 16 + 3 * cases[i].states);
    }
}

/* "Setting attention block size to 544 tokens": the state of 32 heads of 128 * 128 in 16 bit and
 * three inputs of 8,192 channels are 1,097,728 bytes, which 536 tokens of 2,048 hold; in steps of
 * 16. With 32 bit states, as Qwen3.5 says, it is 1,056, and 2,096 with a cache of 8 bit; with 48
 * heads and four of keys 1,568. */
static void test_block_size_of_hybrids_is_that_of_the_logs(void **state)
{
    (void)state;
    make_hybrid("qwen3next", 32, 2);
    assert_int_equal(block_tokens("auto"), 544);
    make_hybrid("qwen35moe", 32, 2);
    assert_int_equal(block_tokens("auto"), 1056);
    assert_int_equal(block_tokens("fp8"), 2096);
    make_hybrid("qwen35", 48, 4);
    assert_int_equal(block_tokens("auto"), 784);
    assert_int_equal(block_tokens("fp8"), 1568);
}

/* A block holds the states of all layers for one sequence: 24 of 1,097,728 bytes. No token adds to
 * them, while it adds to layers that all have a window. */
static void test_only_states_hold_no_tokens(void **state)
{
    (void)state;
    static const struct made_shape shape = {24, 2048, 5120, 16, 2, 256, 151936, 262144, 0, 0, 0};
    make_hybrid("qwen3next", 32, 2);
    struct mt_model_description description = made.model.description;
    make_model(&made, &shape);
    struct mt_model_description *d = &made.model.description;
    d->architecture = description.architecture;
    d->conv_kernel = description.conv_kernel;
    d->state_size = description.state_size;
    d->group_count = description.group_count;
    d->time_step_rank = description.time_step_rank;
    d->inner_size = description.inner_size;
    for (size_t i = 0; i < 24; i++) {
        made.layers[i].attention = MT_ATTENTION_NONE;
        made.layers[i].recurrence = MT_RECURRENCE_DELTA_NET;
    }
    static const char *const versions[] = {"vllm@0.11.0", "vllm@0.33.0"};
    for (size_t i = 0; i < 2; i++) {
        struct mt_estimate *result = estimate(on_h100(versions[i], 1));
        assert_int_equal(result->pool.bytes_per_token, 0);
        assert_float_equal(result->pool.concurrency,
                           floor((double)result->pool.pool_bytes / (24 * 1097728)), 1e-9);
        mt_estimate_destroy(result);
    }
    make_model(&made, &shape);
    for (size_t i = 0; i < 24; i++) {
        made.layers[i].attention = MT_ATTENTION_SLIDING;
        made.layers[i].window = 1024;
    }
    struct mt_estimate *result = estimate(on_h100("vllm", 1));
    assert_int_equal(result->pool.bytes_per_token, 24 * 2 * 2 * 256 * 2);
    mt_estimate_destroy(result);
}

/* Gemma 3's 62 layers are 10 that see all and 52 with a window: the latter are six groups of ten,
 * of which eight layers only fill up the last. */
static void test_windowed_layers_are_padded_into_groups(void **state)
{
    (void)state;
    static const struct made_shape gemma = {62, 5376, 21504, 32, 16, 128, 262208, 131072, 0, 0, 1};
    make_model(&made, &gemma);
    for (size_t i = 0; i < 62; i++)
        if (i % 6 != 5) {
            made.layers[i].attention = MT_ATTENTION_SLIDING;
            made.layers[i].window = 1024;
        }
    struct mt_engine engine;
    assert_int_equal(mt_engine_find("vllm@0.11.0", &engine, NULL), 0);
    struct mt_predict_settings settings = {
        .tensor_parallel = 1, .kv_type_k = "auto", .context_tokens = 32768, .batched_tokens = 8192};
    struct mt_predict_input in = {&made.model, mt_model_describe(&made.model), &settings, &engine};
    struct mt_torch_stage stage = {.end = 62};
    struct mt_vllm_pool pool;
    mt_vllm_pool_of(&in, &stage, &pool);
    assert_int_equal(pool.n_groups, 1 + 6);
    assert_int_equal(pool.padding_layers, 8);
    assert_int_equal(pool.bytes_per_block, 16 * 16 * 128 * 2 * 2 * 10);
    /* 2,048 blocks of the ten, and six times 9,215 tokens in blocks and one more. */
    assert_int_equal(pool.blocks_per_request, 2048 + 6 * (576 + 1));
}

/* gpt-oss-20b in 0.33.0 on an H100 said 1,221,435 tokens and 74.55 requests of 16,384 for
 * 60,065,590,090 bytes of cache (a rehearsal of it): 152,754 blocks of 393,216 bytes, 2,049 for a
 * request. With a window of 128 and one pass of 8,192 tokens in flight they would be 1,024 + 521.
 */
static void test_a_window_keeps_what_all_passes_in_flight_have(void **state)
{
    (void)state;
    static const struct made_shape gpt = {24, 2880, 2880, 64, 8, 64, 201088, 131072, 0, 0, 1};
    static const struct {
        const char *version;
        uint64_t stages;
        uint64_t context;
        uint64_t of_window;
    } cases[] = {
        {"vllm@0.25.1", 1, 16384, 521},
        {"vllm@0.26.0", 1, 16384, 1025},
        {"vllm@0.33.0", 1, 16384, 1025},
        {"vllm@0.33.0", 1, 32768, 1032 + 1}, /* 127 + 2 * 8,192 tokens */
        {"vllm@0.33.0", 2, 32768, 1544 + 1}, /* 127 + 3 * 8,192 */
    };
    make_model(&made, &gpt);
    for (size_t i = 0; i < 24; i += 2) {
        made.layers[i].attention = MT_ATTENTION_SLIDING;
        made.layers[i].window = 128;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mt_engine engine;
        assert_int_equal(mt_engine_find(cases[i].version, &engine, NULL), 0);
        struct mt_predict_settings settings = {.tensor_parallel = 1,
                                               .pipeline_parallel = cases[i].stages,
                                               .kv_type_k = "auto",
                                               .context_tokens = cases[i].context,
                                               .batched_tokens = 8192};
        struct mt_predict_input in = {&made.model, mt_model_describe(&made.model), &settings,
                                      &engine};
        struct mt_torch_stage stage = {.end = 24};
        struct mt_vllm_pool pool;
        mt_vllm_pool_of(&in, &stage, &pool);
        assert_int_equal(pool.bytes_per_block, 393216);
        assert_int_equal(pool.blocks_per_request, cases[i].context / 16 + cases[i].of_window);
    }
}

static void test_a_request_that_does_not_fit_keeps_it_from_starting(void **state)
{
    (void)state;
    make_model(&made, &qwen3_32b);
    struct mt_predict_settings settings = on_h100("vllm@0.11.0", 1);
    settings.context_tokens = 40960;
    struct mt_estimate *result = estimate(settings);
    assert_true(result->pool.concurrency < 1);
    assert_int_equal(result->verdict, MT_VERDICT_CANNOT);
    assert_non_null(strstr(result->reason, "--max-model-len"));
    mt_estimate_destroy(result);
}

/* The reason names the devices that lie idle: 64 heads are divided by 4, and by 2 of 3 devices. */
static void test_idle_devices_are_named_where_one_does_not_suffice(void **state)
{
    (void)state;
    uint64_t devices[] = {48 * MADE_GIB, 48 * MADE_GIB, 48 * MADE_GIB, 48 * MADE_GIB};
    static const char *const ends[] = {"", ", on one device; --tensor-parallel 2 would use all 2",
                                       ", on one device; --tensor-parallel 2 would use 2",
                                       ", on one device; --tensor-parallel 4 would use all 4"};
    static const char *const engines[] = {"vllm", "sglang", "trt-llm"};
    make_model(&made, &qwen3_32b);
    for (size_t i = 0; i < 3 * 4; i++) {
        const char *end = ends[i % 4];
        struct mt_estimate *result = estimate((struct mt_predict_settings){.engine = engines[i / 4],
                                                                           .device_bytes = devices,
                                                                           .n_devices = i % 4 + 1,
                                                                           .context_tokens = 8192});
        assert_int_equal(result->verdict, MT_VERDICT_CANNOT);
        if (i % 4)
            assert_string_equal(result->reason + strlen(result->reason) - strlen(end), end);
        else
            assert_null(strstr(result->reason, "device;"));
        mt_estimate_destroy(result);
    }
}

static void test_what_vllm_does_not_know_is_refused_with_the_nearest(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    struct mt_predict_settings settings = on_h100("vllm", 1);
    settings.kv_type_k = "q8_0";
    assert_int_equal(refuses(settings, "nearest is fp8"), MT_EARG);
    settings = on_h100("vllm", 1);
    settings.has_gpu_layers = 1;
    assert_int_equal(refuses(settings, "--gpu-layers"), MT_EARG);
    settings = on_h100("vllm", 1);
    settings.ubatch = 512;
    assert_int_equal(refuses(settings, "--max-num-batched-tokens"), MT_EARG);
    settings = on_h100("vllm", 1);
    settings.draft_tokens = 4;
    settings.eager = 1; /* so that no graphs are of drafts */
    assert_int_equal(refuses(settings, "estimate a draft model by itself"), MT_EARG);
    settings = on_h100("vllm", 1);
    settings.n_devices = 0;
    assert_int_equal(refuses(settings, "device"), MT_EARG);
    settings = on_h100("vllm", 1);
    settings.tensor_parallel = 4;
    assert_int_equal(refuses(settings, "need 4 devices"), MT_EARG);
    made.model.description.format = MT_MODEL_GGUF;
    assert_int_equal(refuses(on_h100("vllm", 1), "GGUF"), MT_EUNSUPPORTED);
}

/* A bare config.json has no tensors of an encoder: that it fits cannot be promised, and the largest
 * context is that of what is counted. */
static void test_encoders_that_are_not_counted_leave_no_promise(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    struct mt_predict_settings settings = on_h100("vllm", 1);
    uint64_t whole;
    uint64_t partial;
    struct mt_estimate *result;
    assert_int_equal(
        mt_estimate_solve(&made.model, &settings, MT_GOAL_CONTEXT, &whole, &result, NULL), 0);
    assert_int_equal(result->verdict, MT_VERDICT_FITS);
    mt_estimate_destroy(result);
    made.model.description.lacks_encoders = 1;
    assert_int_equal(
        mt_estimate_solve(&made.model, &settings, MT_GOAL_CONTEXT, &partial, &result, NULL), 0);
    assert_int_equal(result->verdict, MT_VERDICT_TIGHT);
    assert_true(result->fits_as_counted);
    assert_int_equal(partial, whole);
    mt_estimate_destroy(result);
}

/* Where the config.json says what they consist of they are in the weights, with a band, and images
 * of theirs in the profiling run: 394 MiB of Mistral's in vl08's log. */
static void test_encoders_that_a_config_describes_are_counted(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    struct mt_estimate *without = estimate(on_h100("vllm@0.11.0", 1));
    made.model.description.lacks_encoders = 1;
    made.model.description.encoder_parameters = 400000000;
    struct mt_estimate *with = estimate(on_h100("vllm@0.11.0", 1));
    assert_int_equal(with->pool.weights_bytes - without->pool.weights_bytes, 800000000);
    const struct mt_tally_row *row = mt_tally_row_of(&with->tally.places[1], MT_CATEGORY_WEIGHTS);
    assert_in_range(row->high_bytes - row->allocated_bytes, 400000000, 410000000);
    assert_int_equal(with->verdict, MT_VERDICT_FITS);
    row = mt_tally_row_of(&with->tally.places[1], MT_CATEGORY_ACTIVATIONS);
    const struct mt_tally_row *before =
        mt_tally_row_of(&without->tally.places[1], MT_CATEGORY_ACTIVATIONS);
    assert_true(row->high_bytes > before->high_bytes);
    /* What both may take more is missing in the cache, of 131,072 bytes a token. */
    uint64_t more = 400000000 + (row->high_bytes - row->allocated_bytes) -
                    (before->high_bytes - before->allocated_bytes);
    uint64_t less = without->pool.pool_tokens - without->pool.pool_tokens_low;
    uint64_t less_with = with->pool.pool_tokens - with->pool.pool_tokens_low;
    assert_in_range(less_with - less, more / 131072 - 40, more / 131072 + 40);
    mt_estimate_destroy(without);
    mt_estimate_destroy(with);
}

/* Stages hold as many layers as the engine gives them: of 62 layers on 4, the rest of 2 goes to the
 * two before the last. */
static void test_layers_are_divided_into_stages(void **state)
{
    (void)state;
    static const struct made_shape shape = {62, 64, 128, 4, 4, 16, 256, 128, 0, 0, 0};
    static const uint64_t counts[] = {15, 16, 16, 15};
    make_model(&made, &shape);
    struct mt_predict_settings settings = {0};
    struct mt_predict_input in = {&made.model, mt_model_describe(&made.model), &settings, NULL};
    uint64_t first = 0;
    for (uint64_t i = 0; i < 4; i++) {
        struct mt_torch_stage stage;
        mt_torch_stage_of(&in, i, 4, &stage);
        assert_int_equal(stage.first, first);
        assert_int_equal(stage.end - stage.first, counts[i]);
        first = stage.end;
    }
    assert_int_equal(first, 62);
}

/* Layers that see all and layers with a window are two groups: 0.20.0 divides the blocks by their
 * number, 0.20.1 asks how often the longest request fits. A request of 8,192 tokens takes 512 pages
 * of the one group, and of the other (1,024 + 8,192 - 1, at most 8,192) / 16 + 1 = 513. */
static void test_tokens_of_several_groups_are_counted_by_the_longest_request(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    for (size_t i = 0; i < 32; i += 2) {
        made.layers[i].attention = MT_ATTENTION_SLIDING;
        made.layers[i].window = 1024;
    }
    struct mt_estimate *old = estimate(on_h100("vllm@0.20.0", 1));
    struct mt_estimate *now = estimate(on_h100("vllm@0.20.1", 1));
    assert_int_equal(old->pool.pool_bytes, now->pool.pool_bytes);
    uint64_t blocks = (uint64_t)old->pool.pool_bytes / (16 * 16 * 4096);
    assert_int_equal(old->pool.pool_tokens, blocks / 2 * 16);
    assert_in_range(now->pool.pool_tokens, blocks * 8192 / 1025 - 1, blocks * 8192 / 1025 + 1);
    mt_estimate_destroy(old);
    mt_estimate_destroy(now);
}

static void test_a_model_in_32_bit_has_a_cache_in_32_bit(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    struct mt_predict_settings settings = on_h100("vllm@0.11.0", 2);
    settings.weight_type = "float32";
    struct mt_estimate *result = estimate(settings);
    assert_int_equal(result->pool.bytes_per_token, 131072); /* half the heads, twice the bytes */
    mt_estimate_destroy(result);
    settings.kv_type_k = "fp8";
    result = estimate(settings);
    assert_int_equal(result->pool.bytes_per_token, 131072 / 4);
    mt_estimate_destroy(result);
}

static uint64_t weights_of(const char *engine, size_t devices)
{
    struct mt_estimate *result = estimate(on_h100(engine, devices));
    uint64_t bytes = result->pool.weights_bytes;
    mt_estimate_destroy(result);
    return bytes;
}

/* Rotations of 131,072 positions leave blocks of 32, 32 and 64 MiB. In the trace of a rehearsal of
 * 0.30.0 the one of 64 then holds a layer's queries, keys and values of 48 MiB. By the weights of
 * rehearsals of 0.33.0, two ranks lose 8 MiB with each of three tensors of 56, 24 and 24, and four
 * lose 8, 4 and 4 with tensors of 56, 28 and 28; and 1.5 of 252 with embeddings and output each,
 * which are of 250.5. 0.20 divides its blocks. */
static void test_weights_keep_the_rest_of_blocks_that_rotations_freed(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    assert_int_equal(weights_of("vllm@0.21.0", 1) - weights_of("vllm@0.20.0", 1), 16 * MADE_MIB);
    assert_int_equal(weights_of("vllm@0.21.0", 2) - weights_of("vllm@0.20.0", 2), 24 * MADE_MIB);
    assert_int_equal(weights_of("vllm@0.21.0", 4) - weights_of("vllm@0.20.0", 4), 19 * MADE_MIB);
    make_model(&made, &llama_3_8b); /* 8,192 positions: blocks of 4 MiB are divided */
    assert_int_equal(weights_of("vllm@0.21.0", 1), weights_of("vllm@0.20.0", 1));
}

/* Rehearsals of 0.14.1 and 0.15.1 have seven and four numbers of 512 bytes in each layer. */
static void test_layers_of_attention_have_scales(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    assert_int_equal(weights_of("vllm@0.14.0", 1) - weights_of("vllm@0.15.0", 1), 32 * 3 * 512);
    assert_int_equal(weights_of("vllm@0.15.0", 1) - weights_of("vllm@0.10.0", 1), 32 * 4 * 512);
}

/* A gpt-oss-120b without its small tensors, 0.15 GiB with biases: 36 layers of 128 experts of 2,880
 * and 2,880, in blocks of 32 numbers, 17 bytes each. */
static void make_mxfp4(void)
{
    static const struct made_shape shape = {36, 2880, 0, 64, 8, 64, 201088, 131072, 0, 0, 0};
    make_model(&made, &shape);
    for (uint32_t i = 0; i < 36; i++) {
        add_tensor(&made, "mlp.experts.all_blocks", 128 * 17 / 2, 3 * 2880 * 90, i,
                   MT_TENSOR_EXPERTS);
        made.layers[i].experts = 128;
        made.layers[i].expert_ff_length = 2880;
    }
}

/* Logs of 0.11.0 and 0.14.1 on one H100: 64.38 GiB; of 0.10.1 with Marlin's kernels 65.97; of
 * 0.28.0 on 8 cards 9.98, where each has 360 of the 2,880 columns. */
static void test_experts_in_mxfp4_are_padded_to_the_tiles_of_kernels(void **state)
{
    (void)state;
    uint64_t devices[8];
    for (size_t i = 0; i < 8; i++)
        devices[i] = 81080 * MADE_MIB;
    make_mxfp4();
    struct mt_predict_settings settings = on_h100("vllm@0.14.1", 1);
    struct mt_estimate *one = estimate(settings);
    assert_float_equal(gib(one->pool.weights_bytes), 64.23, 0.02);
    const struct mt_tally_row *row = mt_tally_row_of(&one->tally.places[1], MT_CATEGORY_WEIGHTS);
    assert_in_range((uint64_t)(65.97 * (double)MADE_GIB), row->low_bytes, row->high_bytes);
    settings = on_h100("vllm@0.28.0", 8);
    settings.device_bytes = devices;
    struct mt_estimate *eight = estimate(settings);
    row = mt_tally_row_of(&eight->tally.places[1], MT_CATEGORY_WEIGHTS);
    assert_float_equal(gib(eight->pool.weights_bytes), 9.98, 0.3);
    assert_in_range((uint64_t)(9.98 * (double)MADE_GIB), row->low_bytes, row->high_bytes);
    mt_estimate_destroy(one);
    mt_estimate_destroy(eight);
}

/* In a rehearsal of 0.33.0 the swizzled scales of a layer of gpt-oss-20b, 32 experts, are tensors
 * of 17,334,272 and 9,043,968 bytes, 32 * 5,888 * 92 and 32 * 3,072 * 92, and its biases, which the
 * file has in 16 bit, 737,280 and 368,640. Logs of 0.11.0 have the file's scales, too. */
static void test_scales_of_experts_in_mxfp4_are_there_once_in_newer_versions(void **state)
{
    (void)state;
    make_mxfp4();
    struct mt_estimate *old = estimate(on_h100("vllm@0.14.1", 1));
    struct mt_estimate *now = estimate(on_h100("vllm@0.33.0", 1));
    uint64_t numbers = UINT64_C(36) * 128 * 3 * 2880 * 2880 / 2;
    uint64_t scales = UINT64_C(36) * 4 * (17334272 + 9043968);
    uint64_t biases = UINT64_C(36) * 4 * (737280 + 368640) / 2;
    const struct mt_tally_row *row = mt_tally_row_of(&now->tally.places[1], MT_CATEGORY_WEIGHTS);
    uint64_t rest =
        UINT64_C(2) * 201088 * 2880 * 2 + 36 * UINT64_C(2) * 2880 * (2 * 4096 + 2 * 512);
    uint64_t laid_out = numbers + scales + biases;
    assert_in_range(row->low_bytes, laid_out + rest - MADE_MIB, laid_out + rest + 40 * MADE_MIB);
    assert_in_range(old->pool.weights_bytes - now->pool.weights_bytes, 2 * MADE_GIB,
                    4 * MADE_GIB); /* a seventeenth of 57 GiB */
    mt_estimate_destroy(old);
    mt_estimate_destroy(now);
}

static double share(uint64_t bytes, uint64_t whole)
{
    return (double)bytes / (double)whole;
}

/* 0.16.0 is the last version before 0.33.0 that was held against runs. */
static void test_a_version_that_was_not_read_has_wider_bands_and_says_so(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    struct mt_estimate *read = estimate(on_h100("vllm@0.16.0", 1));
    struct mt_estimate *after = estimate(on_h100("vllm@0.17.0", 1));
    static const enum mt_category parts[] = {MT_CATEGORY_ACTIVATIONS, MT_CATEGORY_CONTEXT};
    for (size_t i = 0; i < 2; i++) {
        const struct mt_tally_row *narrow = mt_tally_row_of(&read->tally.places[1], parts[i]);
        const struct mt_tally_row *wide = mt_tally_row_of(&after->tally.places[1], parts[i]);
        assert_true(share(wide->low_bytes, wide->allocated_bytes) <
                    share(narrow->low_bytes, narrow->allocated_bytes));
        assert_true(share(wide->high_bytes, wide->allocated_bytes) >
                    share(narrow->high_bytes, narrow->allocated_bytes));
    }
    int says = 0;
    for (size_t i = 0; i < read->tally.n_notes; i++)
        assert_null(strstr(read->tally.notes[i], "bands are wider"));
    for (size_t i = 0; i < after->tally.n_notes; i++)
        says |= strstr(after->tally.notes[i], "came after 0.16.0") != NULL;
    assert_true(says);
    mt_estimate_destroy(read);
    mt_estimate_destroy(after);
}

/* The second stage has room for a half more blocks than the first; it holds as many, within the
 * bounds of the first one, and its total is not the share that was asked for. */
static void test_the_tightest_stage_bounds_the_caches_of_all(void **state)
{
    (void)state;
    make_unequal_stages(&made);
    struct mt_predict_settings settings = two_stages("vllm@0.11.0");
    struct mt_estimate *result = estimate(settings);
    const struct mt_tally_place *first = &result->tally.places[1];
    const struct mt_tally_place *second = &result->tally.places[2];
    const struct mt_tally_row *own = mt_tally_row_of(first, MT_CATEGORY_KV_CACHE);
    const struct mt_tally_row *other = mt_tally_row_of(second, MT_CATEGORY_KV_CACHE);
    assert_true(own->low_bytes < own->allocated_bytes && own->allocated_bytes < own->high_bytes);
    assert_int_equal(other->allocated_bytes, own->allocated_bytes / 3 * 2);
    assert_int_equal(other->low_bytes, own->low_bytes / 3 * 2);
    assert_int_equal(other->high_bytes, own->high_bytes / 3 * 2);
    /* Where the cache does not take what is left, parts do not make up for each other. */
    uint64_t low = 0;
    for (size_t i = 0; i < second->n_rows; i++)
        low += second->rows[i].low_bytes;
    assert_int_equal(second->total_low_bytes, low);
    assert_true(second->total_low_bytes < second->total_allocated_bytes);
    assert_true(second->total_high_bytes > second->total_allocated_bytes);
    assert_true(second->total_high_bytes < first->total_high_bytes);
    mt_estimate_destroy(result);
}

/* Each device has to have the share free that is asked for, and not the tightest alone. */
static void test_what_others_hold_of_any_device_is_looked_at(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    uint64_t devices[] = {80 * MADE_GIB, 80 * MADE_GIB};
    uint64_t used[] = {0, 20 * MADE_GIB};
    struct mt_estimate *result = estimate((struct mt_predict_settings){.engine = "vllm@0.11.0",
                                                                       .device_bytes = devices,
                                                                       .device_used_bytes = used,
                                                                       .n_devices = 2,
                                                                       .tensor_parallel = 2,
                                                                       .context_tokens = 8192});
    assert_int_equal(result->verdict, MT_VERDICT_CANNOT);
    assert_non_null(strstr(result->reason, "of device 1"));
    mt_estimate_destroy(result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_are_what_the_logs_print),
        cmocka_unit_test(test_the_pool_is_what_the_budget_leaves),
        cmocka_unit_test(test_activations_follow_the_vocabulary),
        cmocka_unit_test(test_defaults_follow_the_version),
        cmocka_unit_test(test_heads_are_replicated_when_there_are_fewer_than_ranks),
        cmocka_unit_test(test_block_size_of_hybrids_is_that_of_the_logs),
        cmocka_unit_test(test_newer_hybrids_have_larger_pages_and_a_third_state),
        cmocka_unit_test(test_a_hybrid_of_mamba_2_keeps_states_as_its_version_does),
        cmocka_unit_test(test_only_states_hold_no_tokens),
        cmocka_unit_test(test_windowed_layers_are_padded_into_groups),
        cmocka_unit_test(test_a_window_keeps_what_all_passes_in_flight_have),
        cmocka_unit_test(test_a_request_that_does_not_fit_keeps_it_from_starting),
        cmocka_unit_test(test_idle_devices_are_named_where_one_does_not_suffice),
        cmocka_unit_test(test_what_vllm_does_not_know_is_refused_with_the_nearest),
        cmocka_unit_test(test_encoders_that_are_not_counted_leave_no_promise),
        cmocka_unit_test(test_encoders_that_a_config_describes_are_counted),
        cmocka_unit_test(test_layers_are_divided_into_stages),
        cmocka_unit_test(test_tokens_of_several_groups_are_counted_by_the_longest_request),
        cmocka_unit_test(test_a_model_in_32_bit_has_a_cache_in_32_bit),
        cmocka_unit_test(test_weights_keep_the_rest_of_blocks_that_rotations_freed),
        cmocka_unit_test(test_layers_of_attention_have_scales),
        cmocka_unit_test(test_experts_in_mxfp4_are_padded_to_the_tiles_of_kernels),
        cmocka_unit_test(test_scales_of_experts_in_mxfp4_are_there_once_in_newer_versions),
        cmocka_unit_test(test_a_version_that_was_not_read_has_wider_bands_and_says_so),
        cmocka_unit_test(test_the_tightest_stage_bounds_the_caches_of_all),
        cmocka_unit_test(test_what_others_hold_of_any_device_is_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
