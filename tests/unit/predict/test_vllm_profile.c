/* SPDX-License-Identifier: MIT */
/* What vLLM's profiling run, its weights and its graphs take, against rehearsals of it. */
#include "tests/support/unit.h"

#include <memtally/predict.h>

#include "made_model.h"

static struct made_model made;
static uint64_t h100[] = {81080 * MADE_MIB};

static struct mt_predict_settings on_h100(const char *engine)
{
    return (struct mt_predict_settings){.engine = engine,
                                        .device_bytes = h100,
                                        .n_devices = 1,
                                        .tensor_parallel = 1,
                                        .context_tokens = 8192};
}

static double gib(uint64_t bytes)
{
    return (double)bytes / (double)MADE_GIB;
}

static uint64_t activations_of(const char *engine, uint64_t tokens, uint64_t sequences)
{
    struct mt_predict_settings settings = on_h100(engine);
    settings.batched_tokens = tokens;
    settings.sequences = sequences;
    settings.eager = 1;
    struct mt_estimate *result = made_estimate(&made, settings);
    uint64_t bytes = result->pool.activations_bytes;
    mt_estimate_destroy(result);
    return bytes;
}

/* Llama 3.1 8B in 0.33.0, of a rehearsal: three rows of hidden states, gate and up, and their
 * product, 904,926,720 bytes of 8,192 tokens; with 16,384 and 1,024 sequences 1,986,049,536 of the
 * sampler, in blocks of whole 2 MiB. In 0.32.0 its runner samples greedily: the pass is more.
 * Before it sorted logits. */
static void test_a_run_is_counted_tensor_by_tensor(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    made.model.description.architecture = "llama";
    const uint64_t row = 2 * 3 * (4096 + 14336);
    assert_int_equal(activations_of("vllm@0.33.0", 8192, 256), 8192 * row);
    assert_float_equal(gib(activations_of("vllm@0.33.0", 8192, 256)), 904926720 / 0x1p30, 0.002);
    assert_float_equal(gib(activations_of("vllm@0.33.0", 16384, 1024)), 1986049536 / 0x1p30,
                       0.0005);
    assert_int_equal(activations_of("vllm@0.32.0", 16384, 1024), 16384 * row);
    assert_int_equal(activations_of("vllm@0.19.1", 8192, 256),
                     939524096); /* and 32 MiB of cuBLAS */
    assert_float_equal(gib(activations_of("vllm@0.19.1", 16384, 1024)), 2093090816 / 0x1p30, 0.004);
    assert_true(activations_of("vllm@0.21.0", 16384, 1024) >
                activations_of("vllm@0.32.0", 16384, 1024));
    assert_true(activations_of("vllm@0.16.0", 16384, 1024) >
                2 * activations_of("vllm@0.21.0", 16384, 1024));
}

/* Mistral 7B compiled in 0.26.0 on an A100, of a rehearsal's trace: three rows of hidden states of
 * 64 MiB, gate and up, 448, and their product, 224, while Inductor empties a cache of 40 MiB
 * between tries of a kernel, and cuBLAS's 8,519,680 bytes. */
static void test_a_compiled_pass_tries_its_kernels(void **state)
{
    static const struct made_shape mistral = {32, 4096, 14336, 32, 8, 128, 32000, 32768, 0, 0, 0};
    static const struct mt_device_known a100 = {.gpu = "A100-40GB"};
    static uint64_t device[] = {40 * MADE_GIB};
    struct mt_predict_settings settings = on_h100("vllm@0.26.0");
    (void)state;
    make_model(&made, &mistral);
    settings.device_bytes = device;
    settings.device_known = &a100;
    settings.batched_tokens = 8192;
    settings.sequences = 256;
    struct mt_estimate *result = made_estimate(&made, settings);
    assert_int_equal(result->pool.activations_bytes,
                     (3 * 64 + 448 + 224 + 40) * MADE_MIB + 8519680);
    mt_estimate_destroy(result);
}

/* A layer of Phi-3.5-MoE returns its residual, which its caller holds beside the next layer's: a
 * row of 4,096 numbers of 16 bit for each token. */
static void test_a_residual_that_nobody_reads_stays(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    made.model.description.architecture = "qwen2";
    uint64_t without = activations_of("vllm@0.33.0", 8192, 256);
    made.model.description.architecture = "phimoe";
    assert_int_equal(activations_of("vllm@0.33.0", 8192, 256) - without, 8192 * 4096 * 2);
}

static struct mt_estimate *with_sequences(const char *engine, uint64_t sequences)
{
    struct mt_predict_settings settings = on_h100(engine);
    settings.batched_tokens = 8192;
    settings.sequences = sequences;
    settings.eager = 1;
    return made_estimate(&made, settings);
}

/* Llama 3.1 8B in 0.15.1, of a rehearsal: 1,352,803,328 bytes. PyTorch's sort has nine rows of 32
 * bit for each sequence beside the logits in 16, and cuBLAS 32 MiB on Hopper. */
static void test_an_older_sampler_sorts_logits(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    assert_int_equal(activations_of("vllm@0.15.1", 8192, 256) - 8192 * 4096 * 2,
                     256 * (128256 * (9 * 4 + 2) + 2 * 4096 * 2) + 32 * MADE_MIB);
    assert_float_equal(gib(activations_of("vllm@0.15.1", 8192, 256)), 1352803328 / 0x1p30, 0.0005);
}

/* The same model in 0.12.0 with 2,048 tokens and 64 sequences, of a rehearsal: 465,047,040 bytes.
 * With fewer rows than 128 PyTorch sorts all as one, with a key for each index. */
static void test_few_rows_of_logits_are_sorted_as_one(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    assert_float_equal(gib(activations_of("vllm@0.12.0", 2048, 64)), 465047040 / 0x1p30, 0.004);
    assert_true(activations_of("vllm@0.12.0", 2048, 127) >
                activations_of("vllm@0.12.0", 2048, 128));
}

/* "a100" not in device_name: of the cards with 70 GiB and more it alone has few of both. */
static void test_an_a100_is_taken_for_a_small_card(void **state)
{
    static const struct mt_device_known a100 = {.gpu = "A100-80GB"};
    struct mt_predict_settings settings = on_h100("vllm@0.15.1");
    (void)state;
    make_model(&made, &llama_3_1_8b);
    settings.device_known = &a100;
    struct mt_estimate *now = made_estimate(&made, settings);
    settings.engine = "vllm@0.8.5";
    struct mt_estimate *before = made_estimate(&made, settings);
    assert_int_equal(now->settings.batched_tokens, 2048);
    assert_int_equal(now->settings.sequences, 256);
    assert_int_equal(before->settings.batched_tokens, 8192);
    mt_estimate_destroy(now);
    mt_estimate_destroy(before);
}

/* Its estimate of graphs is 0 up to 0.28.0. */
static void test_the_second_runner_set_nothing_aside_for_graphs(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    made.model.description.architecture = "llama";
    struct mt_estimate *first = made_estimate(&made, on_h100("vllm@0.22.0"));
    struct mt_estimate *second = made_estimate(&made, on_h100("vllm@0.28.0"));
    struct mt_estimate *now = made_estimate(&made, on_h100("vllm@0.29.0"));
    assert_true(first->pool.graphs_bytes > 0);
    assert_int_equal(second->pool.graphs_bytes, 0);
    assert_true(now->pool.graphs_bytes > 0);
    mt_estimate_destroy(first);
    mt_estimate_destroy(second);
    mt_estimate_destroy(now);
}

static struct mt_estimate *with_graphs(const struct mt_device_known *card)
{
    struct mt_predict_settings settings = on_h100("vllm@0.33.0");
    settings.batched_tokens = 8192;
    settings.sequences = 256;
    settings.device_known = card;
    return made_estimate(&made, settings);
}

/* Rehearsals of 0.33.0 with Llama 3.1 8B: of its 86 graphs, 51 of pieces have 289 nodes, 35 whole
 * ones 386; a pool on an H100 has 134,217,728 bytes for 32 parts of 256 tokens. */
static void test_graphs_have_the_nodes_and_parts_of_rehearsals(void **state)
{
    static const struct mt_device_known h100_card = {.gpu = "H100-80GB", .graph_node_bytes = 1000};
    static const struct mt_device_known a100_card = {.gpu = "A100-80GB", .graph_node_bytes = 1000};
    (void)state;
    make_model(&made, &llama_3_1_8b);
    struct mt_estimate *hopper = with_graphs(&h100_card);
    struct mt_estimate *ampere = with_graphs(&a100_card);
    assert_int_equal(hopper->graphs.n, 86);
    assert_float_equal((double)hopper->graphs.driver_bytes / 1000, 51 * 289 + 35 * 386, 200);
    assert_int_equal(hopper->graphs.pool_bytes - ampere->graphs.pool_bytes, 134217728);
    mt_estimate_destroy(hopper);
    mt_estimate_destroy(ampere);
}

/* By the sources of 0.27.0 and 0.31.0: the compiler's table has 128,256 * 4,096 numbers of 16 bit,
 * 501 blocks of 2 MiB, of which cuBLAS's 32 MiB are a part. In a rehearsal of Qwen3-0.6B in 0.27.1
 * it was seen. */
static void test_the_compilers_table_stays_where_blocks_are_divided(void **state)
{
    static const struct mt_device_known h100_card = {.gpu = "H100-80GB"};
    static const char *const versions[] = {"vllm@0.30.0", "vllm@0.31.0"};
    uint64_t kept[2][2];
    (void)state;
    make_model(&made, &llama_3_1_8b);
    for (int eager = 0; eager < 2; eager++) {
        for (size_t i = 0; i < 2; i++) {
            struct mt_predict_settings settings = on_h100(versions[i]);
            settings.device_known = &h100_card;
            settings.eager = eager;
            struct mt_estimate *result = made_estimate(&made, settings);
            kept[eager][i] = result->pool.other_bytes;
            mt_estimate_destroy(result);
        }
    }
    assert_int_equal(kept[0][0] - kept[0][1], 501 * 2 * MADE_MIB - 32 * MADE_MIB);
    assert_int_equal(kept[1][0], kept[1][1]);
}

/* MixtralForCausalLM, of the family llama, has experts and is not among those of the second runner
 * before 0.29.0, where LlamaForCausalLM is from 0.23.0 on. */
static void test_a_family_with_experts_has_a_runner_of_its_own(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    uint64_t dense = activations_of("vllm@0.24.0", 8192, 1024);
    made.model.description.experts = 8;
    assert_true(activations_of("vllm@0.24.0", 8192, 1024) > dense);
    assert_int_equal(activations_of("vllm@0.29.0", 8192, 1024),
                     activations_of("vllm@0.32.0", 8192, 1024));
    assert_true(activations_of("vllm@0.28.0", 8192, 1024) >
                activations_of("vllm@0.29.0", 8192, 1024));
}

static uint64_t weights_of(const char *engine)
{
    struct mt_estimate *result = made_estimate(&made, on_h100(engine));
    uint64_t bytes = result->pool.weights_bytes;
    mt_estimate_destroy(result);
    return bytes;
}

/* In a rehearsal of 0.33.0 with AWQ the zero points of 4 bits have the size of the scales, which
 * are of 16. A file of GPTQ has 4,096 columns of weights where one of AWQ has words of 8 of them,
 * and zero points that no kernel reads; some have no order of rows (g_idx) beside them. */
static void test_zero_points_of_awq_are_widened_on_hopper(void **state)
{
    const uint64_t packed = 2 * 32 * 512;
    (void)state;
    make_model(&made, &llama_3_1_8b);
    assert_int_equal(weights_of("vllm@0.19.0"), weights_of("vllm@0.18.0"));
    add_tensor(&made, "self_attn.o_proj.qweight", 512, 4096, 4, MT_TENSOR_LAYER);
    add_tensor(&made, "self_attn.o_proj.qzeros", 512, 32, 4, MT_TENSOR_LAYER);
    assert_int_equal(weights_of("vllm@0.19.0"), weights_of("vllm@0.18.0") + 3 * packed);
    make_model(&made, &llama_3_1_8b);
    add_tensor(&made, "self_attn.o_proj.qweight", 4096, 512, 4, MT_TENSOR_LAYER);
    add_tensor(&made, "self_attn.o_proj.qzeros", 512, 32, 4, MT_TENSOR_LAYER);
    assert_int_equal(weights_of("vllm@0.19.0"), weights_of("vllm@0.18.0"));
}

/* Counters of 32 bit and two bits for each of 128,256 tokens, and four tables of 1,024 words: from
 * 0.27.0 on they are part of what is subtracted, before they come on top. */
static void test_the_second_runner_keeps_counters(void **state)
{
    (void)state;
    make_model(&made, &llama_3_1_8b);
    made.model.description.architecture = "llama";
    const uint64_t each = 128256 * 4 + 128256 / 4 + 4 * 4096;
    struct mt_estimate *few = with_sequences("vllm@0.33.0", 128);
    struct mt_estimate *many = with_sequences("vllm@0.33.0", 256);
    struct mt_estimate *before = with_sequences("vllm@0.26.0", 256);
    struct mt_estimate *first = with_sequences("vllm@0.22.0", 256);
    assert_int_equal(many->pool.other_bytes - few->pool.other_bytes, 128 * each);
    assert_int_equal(many->pool.other_bytes - before->pool.other_bytes, 256 * each);
    assert_int_equal(made_row(before, 1, MT_CATEGORY_WORKSPACE), 256 * each);
    assert_int_equal(made_row(first, 1, MT_CATEGORY_WORKSPACE), 0);
    mt_estimate_destroy(few);
    mt_estimate_destroy(many);
    mt_estimate_destroy(before);
    mt_estimate_destroy(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run_is_counted_tensor_by_tensor),
        cmocka_unit_test(test_a_compiled_pass_tries_its_kernels),
        cmocka_unit_test(test_a_residual_that_nobody_reads_stays),
        cmocka_unit_test(test_a_family_with_experts_has_a_runner_of_its_own),
        cmocka_unit_test(test_the_compilers_table_stays_where_blocks_are_divided),
        cmocka_unit_test(test_an_older_sampler_sorts_logits),
        cmocka_unit_test(test_few_rows_of_logits_are_sorted_as_one),
        cmocka_unit_test(test_an_a100_is_taken_for_a_small_card),
        cmocka_unit_test(test_the_second_runner_set_nothing_aside_for_graphs),
        cmocka_unit_test(test_graphs_have_the_nodes_and_parts_of_rehearsals),
        cmocka_unit_test(test_zero_points_of_awq_are_widened_on_hopper),
        cmocka_unit_test(test_the_second_runner_keeps_counters),
    };
    return RUN_TESTS(tests);
}
