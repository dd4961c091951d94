/* SPDX-License-Identifier: MIT */
/* Inverse queries against the plainest way to answer them: trying every value. */
#include "tests/support/unit.h"

#include <memtally/model.h>
#include <memtally/model_file.h>
#include <memtally/predict.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB  (UINT64_C(1) << 20)
#define STEP 256

/* Shapes of the families whose caches differ: all heads, grouped heads, windows, latent, experts.
 */
static const struct mt_model_shape shapes[] = {
    {.name = "grouped",
     .architecture = "llama",
     .layers = 8,
     .embedding_length = 1024,
     .ff_length = 2816,
     .heads = 16,
     .kv_heads = 4,
     .vocabulary = 4096,
     .context_length = 12288},
    {.name = "windowed",
     .architecture = "gemma3",
     .layers = 12,
     .embedding_length = 640,
     .ff_length = 2048,
     .heads = 4,
     .kv_heads = 1,
     .head_size = 256,
     .vocabulary = 8192,
     .context_length = 12288,
     .sliding_window = 512,
     .tied_embeddings = 1},
    {.name = "latent",
     .architecture = "deepseek2",
     .layers = 4,
     .embedding_length = 512,
     .ff_length = 1024,
     .heads = 8,
     .vocabulary = 4096,
     .context_length = 12288,
     .experts = 8,
     .experts_used = 2,
     .experts_shared = 1,
     .expert_ff_length = 256,
     .leading_dense_layers = 1,
     .kv_lora_rank = 512,
     .qk_rope_head_size = 64,
     .qk_nope_head_size = 128,
     .value_head_size = 128},
    /* Layers that are large beside the band of a driver's context. */
    {.name = "wide",
     .architecture = "llama",
     .layers = 8,
     .embedding_length = 4096,
     .ff_length = 14336,
     .heads = 32,
     .kv_heads = 8,
     .vocabulary = 4096,
     .context_length = 65536},
    {.name = "experts",
     .architecture = "qwen3moe",
     .layers = 8,
     .embedding_length = 2048,
     .ff_length = 4096,
     .heads = 32,
     .kv_heads = 4,
     .head_size = 128,
     .vocabulary = 4096,
     .context_length = 12288,
     .experts = 64,
     .experts_used = 8,
     .expert_ff_length = 768},
    {.name = "llama-3.1-8b",
     .architecture = "llama",
     .layers = 32,
     .embedding_length = 4096,
     .ff_length = 14336,
     .heads = 32,
     .kv_heads = 8,
     .vocabulary = 128256,
     .context_length = 131072},
};

#define N_SHAPES (sizeof shapes / sizeof *shapes)
#define N_SMALL  3
#define WIDE     3
#define EXPERTS  4
#define LLAMA_8B 5

static struct mt_model *models[N_SHAPES];

static int open_models(void **state)
{
    (void)state;
    char folder[] = "/tmp/memtally-solve-XXXXXX";
    if (!mkdtemp(folder))
        return -1;
    for (size_t i = 0; i < N_SHAPES; i++) {
        const struct mt_sample_options options = {.type = MT_WEIGHT_Q8_0, .mode = MT_SAMPLE_SPARSE};
        struct mt_error error = {0};
        char path[64];
        snprintf(path, sizeof path, "%s/%zu.gguf", folder, i);
        if (mt_sample_model_write(path, &shapes[i], &options, NULL, &error) < 0 ||
            mt_model_open(path, NULL, &models[i], &error) < 0) {
            fprintf(stderr, "%s: %s\n", shapes[i].name, error.text);
            return -1;
        }
        unlink(path);
    }
    return rmdir(folder);
}

static int close_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        mt_model_close(models[i]);
    return 0;
}

/* Where it is left open, newer versions leave layers on the host by themselves. */
#define ALL_LAYERS .has_gpu_layers = 1, .gpu_layers = MT_ALL

/* Ways to run a model that change how its memory grows, and the cells that a cache is padded to:
 * llama.cpp before build 6985 took 32 without flash attention. */
static const struct {
    uint64_t step;
    struct mt_predict_settings settings;
} ways[] = {
    {256, {ALL_LAYERS}},
    {256, {ALL_LAYERS, .kv_type_k = "q8_0", .kv_type_v = "q8_0"}},
    {256, {ALL_LAYERS, .flash_attention = MT_SWITCH_OFF}},
    {256, {ALL_LAYERS, .sequences = 3}},
    {256, {ALL_LAYERS, .sequences = 2, .unified_kv = MT_SWITCH_ON, .ubatch = 2048}},
    {32, {ALL_LAYERS, .engine = "llama.cpp@6000"}},
};

#define N_WAYS (sizeof ways / sizeof *ways)

/* A question whose answer is tried out. */
struct question {
    const struct mt_model *model;
    struct mt_predict_settings settings;
    uint64_t device_bytes[2];
    uint64_t most; /* values are 1 to `most` steps */
    uint64_t step;
    void (*set)(struct mt_predict_settings *settings, uint64_t value);
};

static void set_context(struct mt_predict_settings *settings, uint64_t value)
{
    settings->context_tokens = value;
}

static void set_ubatch(struct mt_predict_settings *settings, uint64_t value)
{
    settings->ubatch = value;
    settings->batch = value > 2048 ? value : 2048;
}

static void set_sequences_of_512(struct mt_predict_settings *settings, uint64_t value)
{
    settings->sequences = value;
    settings->context_tokens = 512 * value;
}

static void set_devices(struct question *question, size_t n, uint64_t bytes)
{
    question->settings.n_devices = n;
    question->settings.device_bytes = question->device_bytes;
    for (size_t i = 0; i < n; i++)
        question->device_bytes[i] = bytes;
}

/* Devices of one card: what its driver takes does not change with the size that is tried. */
static void set_cards(struct question *question, size_t n, uint64_t bytes)
{
    static const struct mt_device_known cards[] = {{.gpu = "RTX3090"}, {.gpu = "RTX3090"}};
    set_devices(question, n, bytes);
    question->settings.device_known = cards;
}

static struct mt_estimate *estimate_of(const struct question *question, uint64_t value)
{
    struct mt_predict_settings settings = question->settings;
    struct mt_estimate *estimate = NULL;
    struct mt_error error = {0};
    question->set(&settings, value);
    if (mt_estimate_create(question->model, &settings, &estimate, &error) < 0)
        fail_msg("value %llu: %s", (unsigned long long)value, error.text);
    return estimate;
}

/* The most that any device takes with a value, at the high end. */
static uint64_t demand_of(const struct question *question, uint64_t value)
{
    struct mt_estimate *estimate = estimate_of(question, value);
    uint64_t most = 0;
    for (size_t i = 1; i < estimate->tally.n_places; i++)
        if (estimate->tally.places[i].total_high_bytes > most)
            most = estimate->tally.places[i].total_high_bytes;
    mt_estimate_destroy(estimate);
    return most;
}

static int fits(const struct question *question, uint64_t value)
{
    struct mt_estimate *estimate = estimate_of(question, value);
    int result = estimate->verdict == MT_VERDICT_FITS;
    mt_estimate_destroy(estimate);
    return result;
}

/* The largest value that fits, by trying all of them. */
static uint64_t by_trying(const struct question *question)
{
    for (uint64_t i = question->most; i; i--)
        if (fits(question, i * question->step))
            return i * question->step;
    return 0;
}

static uint64_t solve(const struct question *question, enum mt_goal goal)
{
    struct mt_estimate *estimate = NULL;
    struct mt_error error = {0};
    uint64_t answer = MT_UNKNOWN;
    if (mt_estimate_solve(question->model, &question->settings, goal, &answer, &estimate, &error))
        fail_msg("%s", error.text);
    if (answer)
        assert_int_equal(estimate->verdict, MT_VERDICT_FITS);
    else
        assert_null(estimate);
    mt_estimate_destroy(estimate);
    return answer;
}

static void assert_found(const struct question *question, enum mt_goal goal, const char *what)
{
    uint64_t answer = solve(question, goal);
    uint64_t expected = by_trying(question);
    if (answer != expected)
        fail_msg("%s: found %llu, by trying %llu", what, (unsigned long long)answer,
                 (unsigned long long)expected);
}

/* Asks with devices of too little, a little, half, nearly all and all that the values take. */
static void assert_found_with_all_sizes(struct question *question, size_t n_devices,
                                        enum mt_goal goal, const char *what)
{
    static const double parts[] = {-0.1, 0.03, 0.51, 0.97, 1};
    set_devices(question, n_devices, UINT64_C(1) << 40);
    uint64_t least = demand_of(question, question->step);
    uint64_t most = demand_of(question, question->most * question->step);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        double bytes = (double)least + parts[i] * ((double)most - (double)least);
        set_devices(question, n_devices, (uint64_t)bytes);
        assert_found(question, goal, what);
    }
}

static void test_the_largest_context_is_the_one_that_trying_finds(void **state)
{
    (void)state;
    for (size_t m = 0; m < N_SMALL; m++)
        for (size_t w = 0; w < N_WAYS; w++)
            for (size_t n = 1; n <= 2; n++) {
                struct question question = {.model = models[m],
                                            .settings = ways[w].settings,
                                            .step = ways[w].step,
                                            .most = 12288 / ways[w].step,
                                            .set = set_context};
                char what[64];
                snprintf(what, sizeof what, "%s, way %zu, %zu devices", shapes[m].name, w, n);
                assert_found_with_all_sizes(&question, n, MT_GOAL_CONTEXT, what);
            }
}

static void test_the_largest_ubatch_is_the_one_that_trying_finds(void **state)
{
    (void)state;
    for (size_t m = 0; m < N_SMALL; m++) {
        struct question question = {.model = models[m],
                                    .settings = {ALL_LAYERS, .context_tokens = 512},
                                    .step = 1,
                                    .most = 512,
                                    .set = set_ubatch};
        assert_found_with_all_sizes(&question, 1, MT_GOAL_BATCH, shapes[m].name);
    }
}

static void test_the_most_sequences_keep_their_context_each(void **state)
{
    (void)state;
    for (size_t m = 0; m < N_SMALL; m++) {
        struct question question = {.model = models[m],
                                    .settings = {ALL_LAYERS, .context_tokens = 512},
                                    .step = 1,
                                    .most = 256,
                                    .set = set_sequences_of_512};
        assert_found_with_all_sizes(&question, 1, MT_GOAL_SEQUENCES, shapes[m].name);
    }
}

static void test_a_context_on_the_cpu_is_held_against_the_host(void **state)
{
    (void)state;
    struct question question = {.model = models[0],
                                .settings = {.mmap = MT_SWITCH_OFF},
                                .step = STEP,
                                .most = 12288 / STEP,
                                .set = set_context};
    struct mt_estimate *estimate = estimate_of(&question, 6144);
    question.settings.host_bytes = estimate->tally.places[0].total_high_bytes;
    mt_estimate_destroy(estimate);
    assert_int_equal(solve(&question, MT_GOAL_CONTEXT), 6144);
    question.settings.host_used_bytes = 1;
    assert_int_equal(solve(&question, MT_GOAL_CONTEXT), 6144 - STEP);
}

static void test_the_smallest_device_holds_it_and_one_mib_less_does_not(void **state)
{
    (void)state;
    for (size_t m = 0; m < N_SMALL; m++)
        for (size_t n = 1; n <= 2; n++) {
            struct question question = {.model = models[m],
                                        .settings = {ALL_LAYERS, .context_tokens = 4096},
                                        .set = set_context};
            set_devices(&question, n, 0);
            uint64_t answer = solve(&question, MT_GOAL_SMALLEST_DEVICE);
            assert_int_equal(answer % MIB, 0);
            set_devices(&question, n, answer);
            assert_true(fits(&question, 4096));
            set_devices(&question, n, answer - MIB);
            assert_false(fits(&question, 4096));
        }
}

/* An estimate with the layers on devices that the
 * settings say, or that it takes. */
static struct mt_estimate *placed(const struct question *question, int said, uint64_t layers)
{
    struct question other = *question;
    other.settings.has_gpu_layers = said;
    other.settings.gpu_layers = layers;
    return estimate_of(&other, 4096);
}

static void test_what_does_not_fit_spills_as_few_layers_as_must_be(void **state)
{
    (void)state;
    struct question question = {
        .model = models[WIDE], .settings = {ALL_LAYERS}, .set = set_context};
    set_cards(&question, 1, UINT64_C(1) << 40);
    struct mt_estimate *half = placed(&question, 1, 5);
    set_cards(&question, 1, half->tally.places[1].total_high_bytes);
    struct mt_estimate *estimate = placed(&question, 0, 0);
    assert_int_equal(estimate->verdict, MT_VERDICT_SPILLS);
    assert_int_equal(estimate->settings.gpu_layers, 5);
    assert_non_null(strstr(estimate->reason, "4 of 9 layers and output lie on the host"));
    assert_int_equal(estimate->tally.places[1].total_high_bytes,
                     half->tally.places[1].total_high_bytes);
    mt_estimate_destroy(estimate);
    set_cards(&question, 1, half->tally.places[1].total_high_bytes - 1);
    estimate = placed(&question, 0, 0);
    assert_int_equal(estimate->settings.gpu_layers, 4);
    mt_estimate_destroy(estimate);
    mt_estimate_destroy(half);
}

static void test_experts_leave_before_layers_do(void **state)
{
    (void)state;
    struct question question = {
        .model = models[EXPERTS], .settings = {ALL_LAYERS}, .set = set_context};
    set_cards(&question, 1, UINT64_C(1) << 40);
    question.settings.cpu_moe_layers = 2;
    struct mt_estimate *two = placed(&question, 1, MT_ALL);
    question.settings.cpu_moe_layers = 0;
    set_cards(&question, 1, two->tally.places[1].total_high_bytes);
    struct mt_estimate *estimate = placed(&question, 0, 0);
    assert_int_equal(estimate->verdict, MT_VERDICT_SPILLS);
    assert_int_equal(estimate->settings.cpu_moe_layers, 2);
    assert_non_null(strstr(estimate->reason, "the experts of 2 of 8 layers lie on the host"));
    mt_estimate_destroy(estimate);
    mt_estimate_destroy(two);
}

static void leave_context_open(struct mt_predict_settings *settings, uint64_t value)
{
    (void)value;
    settings->context_tokens = 0;
}

static void test_a_context_that_was_left_open_shrinks_first(void **state)
{
    (void)state;
    struct question question = {.model = models[WIDE], .settings = {0}, .set = set_context};
    set_cards(&question, 1, UINT64_C(1) << 40);
    struct mt_estimate *wanted = estimate_of(&question, 5120);
    set_cards(&question, 1, wanted->tally.places[1].total_allocated_bytes + 1024 * MIB);
    mt_estimate_destroy(wanted);
    question.set = leave_context_open;
    struct mt_estimate *estimate = estimate_of(&question, 0);
    assert_int_equal(estimate->verdict, MT_VERDICT_FITS);
    assert_int_equal(estimate->settings.context_tokens, 5120); /* the margin is 1024 MiB */
    mt_estimate_destroy(estimate);
    question.device_bytes[0]--;
    estimate = estimate_of(&question, 0);
    assert_int_equal(estimate->settings.context_tokens, 5120 - 256);
    mt_estimate_destroy(estimate);
    question.settings.gpu_layers = MT_ALL; /* layers that were asked for do not keep it open */
    question.settings.has_gpu_layers = 1;
    estimate = estimate_of(&question, 0);
    assert_int_equal(estimate->settings.context_tokens, 5120 - 256);
    mt_estimate_destroy(estimate);
    question.settings.has_gpu_layers = 0;
    question.settings.engine = "llama.cpp@7000"; /* takes 4096 without looking */
    estimate = estimate_of(&question, 0);
    assert_int_equal(estimate->settings.context_tokens, 4096);
    mt_estimate_destroy(estimate);
}

/* What llama-server of build 11434 says on devices that a pretended driver reports: each of 8 GiB,
 * of which 7592 MiB are free. "context size reduced from 131072 to ..." */
static void test_a_context_shrinks_to_what_the_server_takes(void **state)
{
    (void)state;
    static const struct {
        size_t n_devices;
        uint64_t device_bytes;
        uint64_t context_tokens;
    } cases[] = {{1, UINT64_C(12) << 30, 23296}, {2, UINT64_C(8) << 30, 35840}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct question question = {.model = models[LLAMA_8B],
                                    .settings = {.context_bytes = 600 * MIB},
                                    .set = leave_context_open};
        set_devices(&question, cases[i].n_devices, cases[i].device_bytes);
        struct mt_estimate *estimate = estimate_of(&question, 0);
        assert_int_equal(estimate->settings.context_tokens, cases[i].context_tokens);
        mt_estimate_destroy(estimate);
    }
}

static void test_without_a_device_the_context_shrinks_to_the_host(void **state)
{
    (void)state;
    struct question question = {.model = models[LLAMA_8B],
                                .settings = {.host_bytes = 12 * 1024 * MIB},
                                .set = leave_context_open};
    struct mt_estimate *estimate = estimate_of(&question, 0);
    assert_in_range(estimate->settings.context_tokens, 4096, 131071);
    mt_estimate_destroy(estimate);
    question.settings.engine = "llama.cpp@8700"; /* looks at devices only */
    estimate = estimate_of(&question, 0);
    assert_int_equal(estimate->settings.context_tokens, 131072);
    mt_estimate_destroy(estimate);
}

static void test_a_placement_that_was_asked_for_is_not_changed(void **state)
{
    (void)state;
    struct question question = {
        .model = models[WIDE], .settings = {ALL_LAYERS}, .set = set_context};
    set_devices(&question, 1, UINT64_C(1) << 40);
    struct mt_estimate *half = placed(&question, 1, 5);
    set_devices(&question, 1, half->tally.places[1].total_high_bytes);
    struct mt_estimate *estimate = placed(&question, 1, MT_ALL);
    assert_int_equal(estimate->verdict, MT_VERDICT_CANNOT);
    mt_estimate_destroy(estimate);
    mt_estimate_destroy(half);
    set_devices(&question, 1, MIB);
    estimate = placed(&question, 0, 0);
    assert_int_equal(estimate->verdict, MT_VERDICT_CANNOT); /* not even without a layer */
    mt_estimate_destroy(estimate);
}

static void test_answers_are_of_all_layers_on_devices(void **state)
{
    (void)state;
    static const char *const engines[] = {"llama.cpp", "ik_llama.cpp", "ollama"};
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
        struct question question = {.model = models[WIDE], .settings = {.engine = engines[i]}};
        struct mt_estimate *estimate = NULL;
        uint64_t answer = 0;
        set_devices(&question, 1, UINT64_C(4) << 30);
        assert_int_equal(mt_estimate_solve(question.model, &question.settings, MT_GOAL_CONTEXT,
                                           &answer, &estimate, NULL),
                         0);
        assert_non_null(estimate); /* ik_llama.cpp by itself leaves all on the host */
        assert_non_null(mt_tally_row_of(&estimate->tally.places[1], MT_CATEGORY_KV_CACHE));
        assert_null(mt_tally_row_of(&estimate->tally.places[0], MT_CATEGORY_KV_CACHE));
        mt_estimate_destroy(estimate);
    }
}

static void test_a_question_without_a_capacity_is_refused(void **state)
{
    (void)state;
    const struct mt_predict_settings settings = {ALL_LAYERS};
    struct mt_estimate *estimate = NULL;
    struct mt_error error;
    uint64_t answer = 7;
    assert_int_equal(
        mt_estimate_solve(models[0], &settings, MT_GOAL_CONTEXT, &answer, &estimate, &error),
        MT_EARG);
    assert_non_null(strstr(error.text, "capacity"));
    assert_int_equal(answer, 7);
    assert_null(estimate);
}

static void test_an_unknown_engine_is_refused_before_anything_is_tried(void **state)
{
    (void)state;
    const struct mt_predict_settings settings = {.engine = "lama.cpp", .host_bytes = MIB};
    struct mt_estimate *estimate = NULL;
    uint64_t answer;
    assert_int_equal(
        mt_estimate_solve(models[0], &settings, MT_GOAL_CONTEXT, &answer, &estimate, NULL),
        MT_ENOTFOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_largest_context_is_the_one_that_trying_finds),
        cmocka_unit_test(test_the_largest_ubatch_is_the_one_that_trying_finds),
        cmocka_unit_test(test_the_most_sequences_keep_their_context_each),
        cmocka_unit_test(test_a_context_on_the_cpu_is_held_against_the_host),
        cmocka_unit_test(test_the_smallest_device_holds_it_and_one_mib_less_does_not),
        cmocka_unit_test(test_what_does_not_fit_spills_as_few_layers_as_must_be),
        cmocka_unit_test(test_experts_leave_before_layers_do),
        cmocka_unit_test(test_a_context_that_was_left_open_shrinks_first),
        cmocka_unit_test(test_a_context_shrinks_to_what_the_server_takes),
        cmocka_unit_test(test_without_a_device_the_context_shrinks_to_the_host),
        cmocka_unit_test(test_a_placement_that_was_asked_for_is_not_changed),
        cmocka_unit_test(test_answers_are_of_all_layers_on_devices),
        cmocka_unit_test(test_a_question_without_a_capacity_is_refused),
        cmocka_unit_test(test_an_unknown_engine_is_refused_before_anything_is_tried),
    };
    return cmocka_run_group_tests_name("solve", tests, open_models, close_models);
}
