/* SPDX-License-Identifier: MIT */
/* What an engine left on the host: the rules of the same run with all on devices are the measure.
 */
#include "tests/support/unit.h"

#include <memtally/error.h>
#include <memtally/predict.h>
#include <memtally/tally.h>
#include <stdlib.h>
#include <string.h>

#include "advise/spills.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

#define MODEL CONFIG_DIR "/Meta-Llama-3.1-8B.json"

static const uint64_t devices[] = {12 * GIB};

/* A run with one device of 12 GiB, and what rules count for the host with all layers on it. */
struct run {
    struct mt_model *model;
    struct mt_predict_settings settings;
    uint64_t weights;
    struct mt_tally_detail details[2];
    struct mt_tally_row rows[3];
    struct mt_tally_place place;
    struct mt_tally tally;
    char text[MT_ADVISE_SPILLS_BYTES];
};

static int setup(void **state)
{
    struct run *run = calloc(1, sizeof *run);
    struct mt_estimate *rules;
    struct mt_predict_settings all = {
        .context_tokens = 8192,
        .device_bytes = devices,
        .n_devices = 1,
        .has_gpu_layers = 1,
        .gpu_layers = MT_ALL,
    };
    assert_non_null(run);
    assert_int_equal(mt_model_open(MODEL, NULL, &run->model, NULL), 0);
    assert_int_equal(mt_estimate_create(run->model, &all, &rules, NULL), 0);
    for (size_t i = 0; i < rules->tally.n_places; i++) {
        const struct mt_tally_place *place = &rules->tally.places[i];
        if (!strcmp(place->place, "host"))
            run->weights = mt_tally_row_of(place, MT_CATEGORY_WEIGHTS)->allocated_bytes;
    }
    mt_estimate_destroy(rules);
    run->settings = all;
    run->settings.has_gpu_layers = 0;
    run->rows[0] =
        (struct mt_tally_row){.category = MT_CATEGORY_WEIGHTS, .allocated_bytes = run->weights};
    run->rows[1] = (struct mt_tally_row){.category = MT_CATEGORY_KV_CACHE};
    run->rows[2] = (struct mt_tally_row){.category = MT_CATEGORY_RECURRENT_STATE};
    run->place = (struct mt_tally_place){.place = "host", .n_rows = 3, .rows = run->rows};
    run->tally = (struct mt_tally){.n_places = 1, .places = &run->place};
    *state = run;
    return 0;
}

static int teardown(void **state)
{
    struct run *run = *state;
    mt_model_close(run->model);
    free(run);
    return 0;
}

static const char *said_of(struct run *run, uint64_t least, uint64_t margin)
{
    const struct mt_advise_left_open open = {run->model, &run->settings, &run->tally, least,
                                             margin};
    assert_int_equal(mt_advise_spills(&open, run->text, sizeof run->text, NULL), 0);
    return run->text;
}

static void assert_begins(const char *text, const char *words)
{
    if (strncmp(text, words, strlen(words)) != 0)
        fail_msg("\"%s\" does not begin with \"%s\"", text, words);
}

static void test_what_the_rules_have_on_the_host_is_meant_for_it(void **state)
{
    struct run *run = *state;
    assert_true(run->weights > 0);
    assert_string_equal(said_of(run, 0, 0), "");
    /* A 50th and 16 MiB more are pages at the ends of buffers. */
    run->rows[0].allocated_bytes = run->weights + run->weights / 50 + 16 * MIB;
    assert_string_equal(said_of(run, 0, 0), "");
    run->rows[0].allocated_bytes++;
    assert_string_not_equal(said_of(run, 0, 0), "");
    run->tally.n_places = 0;
    assert_string_equal(said_of(run, 0, 0), "");
}

static void test_weights_and_cache_beyond_it_were_meant_for_devices(void **state)
{
    struct run *run = *state;
    run->rows[0].allocated_bytes = run->weights + 3 * GIB;
    assert_begins(said_of(run, 0, 0),
                  "3.00 GiB of weights would go to devices and lie on the host: "
                  "with all on devices, ");
    run->rows[1].allocated_bytes = GIB;
    run->rows[2].allocated_bytes = GIB / 2;
    assert_begins(said_of(run, 0, 0), "3.00 GiB of weights and 1.50 GiB of cache would go");
    run->rows[0].allocated_bytes = run->weights;
    assert_begins(said_of(run, 0, 0), "1.50 GiB of cache would go");
}

static void test_weights_of_a_draft_model_lie_on_the_host_in_any_case(void **state)
{
    struct run *run = *state;
    run->rows[0].allocated_bytes = run->weights + 3 * GIB;
    assert_string_equal(said_of(run, 3 * GIB, 0), "");
    assert_begins(said_of(run, 2 * GIB, 0), "1.00 GiB of weights would go");
}

static void test_states_of_past_prompts_were_never_meant_for_a_device(void **state)
{
    struct run *run = *state;
    run->details[0] = (struct mt_tally_detail){.name = "RS buffer", .allocated_bytes = GIB};
    run->details[1] =
        (struct mt_tally_detail){.name = "heap, past prompts", .allocated_bytes = GIB};
    run->rows[2].allocated_bytes = 2 * GIB;
    run->rows[2].n_details = 2;
    run->rows[2].details = run->details;
    assert_begins(said_of(run, 0, 0), "1.00 GiB of cache would go");
    run->rows[2].allocated_bytes = GIB;
    run->rows[2].n_details = 1;
    run->rows[2].details = run->details + 1;
    assert_string_equal(said_of(run, 0, 0), "");
}

static void test_what_an_engine_keeps_free_is_a_reason(void **state)
{
    struct run *run = *state;
    run->rows[0].allocated_bytes = run->weights + 3 * GIB;
    assert_non_null(strstr(said_of(run, 0, GIB), "the engine keeps 1.00 GiB of each device free "
                                                 "(-fitt), and with all on devices, "));
}

static void test_an_engine_that_is_not_known_says_nothing(void **state)
{
    struct run *run = *state;
    struct mt_error error = {0};
    const struct mt_advise_left_open open = {run->model, &run->settings, &run->tally, 0, 0};
    run->settings.engine = "no-such-engine";
    run->rows[0].allocated_bytes = run->weights + 3 * GIB;
    strcpy(run->text, "of before");
    assert_int_equal(mt_advise_spills(&open, run->text, sizeof run->text, &error), MT_ENOTFOUND);
    assert_string_equal(run->text, "");
}

static const char *said_of_command(struct run *run, const char *const *more)
{
    static char *const environment[] = {NULL};
    const char *argv[12] = {"llama-server", "-m", MODEL, "-c", "8192"};
    for (size_t i = 0; more[i]; i++)
        argv[5 + i] = more[i];
    strcpy(run->text, "of before");
    mt_advise_command_spills((char *const *)argv, environment, &run->settings, &run->tally,
                             run->text, sizeof run->text);
    return run->text;
}

static void test_a_command_that_places_layers_itself_asked_for_it(void **state)
{
    static const char *const asked[][4] = {
        {"-ngl", "10"}, {"--cpu-moe"}, {"-ot", "ffn=CPU"}, {"--device", "CUDA0"}, {"-m", "none"}};
    static const char *const open[][4] = {{NULL}, {"-ngl", "auto"}, {"-ngl", "-1"}};
    struct run *run = *state;
    run->rows[0].allocated_bytes = run->weights + 3 * GIB;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        assert_string_equal(said_of_command(run, asked[i]), "");
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        assert_begins(said_of_command(run, open[i]), "3.00 GiB of weights would go");
    run->settings.n_devices = 0;
    assert_string_equal(said_of_command(run, open[0]), "");
}

static void test_a_command_says_what_the_engine_keeps_free(void **state)
{
    static const char *const target[] = {"-fitt", "2048", NULL};
    struct run *run = *state;
    run->rows[0].allocated_bytes = run->weights + 3 * GIB;
    assert_non_null(strstr(said_of_command(run, target), "keeps 2.00 GiB of each device free"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_the_rules_have_on_the_host_is_meant_for_it),
        TEST(test_weights_and_cache_beyond_it_were_meant_for_devices),
        TEST(test_weights_of_a_draft_model_lie_on_the_host_in_any_case),
        TEST(test_states_of_past_prompts_were_never_meant_for_a_device),
        TEST(test_what_an_engine_keeps_free_is_a_reason),
        TEST(test_an_engine_that_is_not_known_says_nothing),
        TEST(test_a_command_that_places_layers_itself_asked_for_it),
        TEST(test_a_command_says_what_the_engine_keeps_free),
    };
    return RUN_TESTS(tests);
}
