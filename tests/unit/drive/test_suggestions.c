/* SPDX-License-Identifier: MIT */
/* What would fit, as other programs ask it: each suggestion is estimated again with what it says.
 */
#include "tests/support/unit.h"

#include <memtally/advise.h>
#include <memtally/model.h>
#include <memtally/model_file.h>
#include <memtally/predict.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL CONFIG_DIR "/Meta-Llama-3.1-8B.json"
#define MIB   (UINT64_C(1) << 20)
#define GIB   (UINT64_C(1) << 30)

struct world {
    char path[64];
    struct mt_model *model;
    uint64_t device_bytes;
    struct mt_predict_settings settings;
};

static void open_world(struct world *world, uint64_t device_bytes)
{
    const struct mt_model_shape *shape = mt_model_shape_by_name("llama-3.2-1b");
    const struct mt_sample_options options = {.type = MT_WEIGHT_Q4_K, .mode = MT_SAMPLE_SPARSE};
    *world = (struct world){.path = "/tmp/memtally-suggest-XXXXXX", .device_bytes = device_bytes};
    int fd = mkstemp(world->path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(mt_sample_model_write(world->path, shape, &options, NULL, NULL), 0);
    assert_int_equal(mt_model_open(world->path, NULL, &world->model, NULL), 0);
    world->settings = (struct mt_predict_settings){
        .context_tokens = 131072, .device_bytes = &world->device_bytes, .n_devices = 1};
}

static void close_world(struct world *world)
{
    mt_model_close(world->model);
    unlink(world->path);
}

static enum mt_verdict verdict_of(const struct world *world,
                                  const struct mt_predict_settings *settings)
{
    struct mt_estimate *estimate = NULL;
    assert_int_equal(mt_estimate_create(world->model, settings, &estimate, NULL), 0);
    enum mt_verdict verdict = estimate->verdict;
    mt_estimate_destroy(estimate);
    return verdict;
}

static uint64_t number_after(const char *flags, const char *flag)
{
    const char *found = strstr(flags, flag);
    assert_non_null(found);
    return strtoull(found + strlen(flag), NULL, 10);
}

static void test_what_fits_needs_no_suggestion(void **state)
{
    struct world world;
    struct mt_suggestions *suggestions = NULL;
    (void)state;
    open_world(&world, 24 * GIB);
    assert_int_equal(mt_suggest(world.model, NULL, &world.settings, &suggestions, NULL), 0);
    assert_int_equal(mt_suggestions_estimate(suggestions)->verdict, MT_VERDICT_FITS);
    assert_null(mt_suggestions_at(suggestions, 0));
    assert_string_equal(mt_suggestions_note(suggestions), "");
    mt_suggestions_destroy(suggestions);
    close_world(&world);
}

static void test_each_suggestion_fits_when_it_is_taken(void **state)
{
    struct world world;
    struct mt_suggestions *suggestions = NULL;
    const struct mt_suggestion *one;
    size_t n_contexts = 0;
    size_t n_devices = 0;
    (void)state;
    open_world(&world, 2 * GIB);
    assert_int_equal(mt_suggest(world.model, NULL, &world.settings, &suggestions, NULL), 0);
    assert_int_not_equal(mt_suggestions_estimate(suggestions)->verdict, MT_VERDICT_FITS);
    for (size_t i = 0; (one = mt_suggestions_at(suggestions, i)) != NULL; i++) {
        struct mt_predict_settings changed = world.settings;
        uint64_t device_bytes = one->device_bytes;
        assert_int_equal(one->kind, MT_TERM_RULE);
        assert_true(one->held_bytes <= one->capacity_bytes);
        if (device_bytes) {
            changed.device_bytes = &device_bytes;
            changed.sizes_are_sought = 1;
            n_devices++;
        } else {
            assert_non_null(strstr(one->instead_of, "-c 131072"));
            changed.context_tokens = number_after(one->flags, "-c ");
            assert_true(changed.context_tokens < world.settings.context_tokens);
            n_contexts++;
        }
        assert_int_equal(verdict_of(&world, &changed), MT_VERDICT_FITS);
        device_bytes -= MIB;
        if (one->device_bytes)
            assert_int_not_equal(verdict_of(&world, &changed), MT_VERDICT_FITS);
    }
    assert_int_equal(n_contexts, 1);
    assert_int_equal(n_devices, 1);
    mt_suggestions_destroy(suggestions);
    close_world(&world);
}

/* What is suggested of one kind, taken: its number is less than asked, and it fits. */
struct taken {
    const char *flag;
    const char *costs;
    uint64_t *number; /* in `changed`, a copy of the world's settings */
    uint64_t asked;
};

static int is_taken(const struct world *world, const struct mt_suggestions *suggestions,
                    const struct mt_predict_settings *changed, const struct taken *taken)
{
    const struct mt_suggestion *one;
    for (size_t i = 0; (one = mt_suggestions_at(suggestions, i)) != NULL; i++) {
        if (strcmp(one->costs, taken->costs) != 0)
            continue;
        *taken->number = number_after(one->flags, taken->flag);
        assert_int_equal(number_after(one->instead_of, taken->flag), taken->asked);
        assert_true(*taken->number < taken->asked);
        assert_int_equal(verdict_of(world, changed), MT_VERDICT_FITS);
        return 1;
    }
    return 0;
}

/* Logits and activations of 131,072 tokens at a time are more than 24 GiB, and so are the caches
 * of 512 prompts of 16,384 tokens in transformers. */
static void test_a_smaller_batch_and_fewer_sequences_fit_when_they_are_taken(void **state)
{
    struct world world = {.device_bytes = 24 * GIB};
    struct mt_suggestions *suggestions = NULL;
    struct mt_predict_settings changed;
    (void)state;
    assert_int_equal(mt_model_open(MODEL, NULL, &world.model, NULL), 0);
    world.settings = (struct mt_predict_settings){.engine = "vllm",
                                                  .context_tokens = 4096,
                                                  .batched_tokens = 131072,
                                                  .device_bytes = &world.device_bytes,
                                                  .n_devices = 1};
    changed = world.settings;
    assert_int_equal(mt_suggest(world.model, NULL, &world.settings, &suggestions, NULL), 0);
    assert_true(
        is_taken(&world, suggestions, &changed,
                 &(struct taken){"--max-num-batched-tokens ", "prompts are read more slowly",
                                 &changed.batched_tokens, 131072}));
    mt_suggestions_destroy(suggestions);
    world.settings = (struct mt_predict_settings){.engine = "transformers",
                                                  .context_tokens = 16384,
                                                  .sequences = 512,
                                                  .device_bytes = &world.device_bytes,
                                                  .n_devices = 1};
    changed = world.settings;
    assert_int_equal(mt_suggest(world.model, NULL, &world.settings, &suggestions, NULL), 0);
    assert_true(is_taken(
        &world, suggestions, &changed,
        &(struct taken){"batch_size=", "fewer requests at a time", &changed.sequences, 512}));
    mt_suggestions_destroy(suggestions);
    mt_model_close(world.model);
}

static void test_failures_leave_what_was_handed_in(void **state)
{
    struct world world;
    struct mt_suggestions *suggestions = NULL;
    struct mt_stage *stage = NULL;
    struct mt_error error = {.code = MT_OK};
    const struct mt_stage_options nowhere = {.engine_path = "/nonexistent"};
    const struct mt_stage_options nothing = {.engine = NULL};
    (void)state;
    open_world(&world, 2 * GIB);
    world.settings.engine = "no-such-engine";
    assert_int_equal(mt_suggest(world.model, NULL, &world.settings, &suggestions, &error),
                     MT_ENOTFOUND);
    assert_null(suggestions);
    assert_true(mt_stage_open(world.model, &nowhere, &stage, &error) < 0);
    assert_string_not_equal(error.text, "");
    /* Without an environment nothing says where engines are. */
    assert_int_equal(mt_stage_open(world.model, &nothing, &stage, &error), MT_EUNSUPPORTED);
    assert_null(stage);
    mt_stage_close(NULL);
    mt_suggestions_destroy(NULL);
    close_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_fits_needs_no_suggestion),
        cmocka_unit_test(test_each_suggestion_fits_when_it_is_taken),
        cmocka_unit_test(test_a_smaller_batch_and_fewer_sequences_fit_when_they_are_taken),
        cmocka_unit_test(test_failures_leave_what_was_handed_in),
    };
    return RUN_TESTS(tests);
}
