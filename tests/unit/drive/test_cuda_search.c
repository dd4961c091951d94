/* SPDX-License-Identifier: MIT */
/* The search for settings that fit on CUDA, on engines whose need is a formula. One takes a share
 * of a device of 24 GiB: weights, 8 MiB for each sequence at a time, and the rest is a cache, of
 * which a token takes 128 KiB and half with eight bits. The other takes 2 GiB and 1 MiB for each
 * token of each sequence. What the search should find follows from the formula. */
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advise/cuda_search.h"

#define GIB ((int64_t)1 << 30)
#define MIB ((int64_t)1 << 20)

struct machine {
    int64_t weights; /* of all devices */
    int64_t devices;
    int64_t default_sequences;
    int64_t default_context;
    int64_t scores; /* bytes for each pair of tokens */
    int64_t first;  /* bytes more for the first token of all */
    size_t n;
    char tried[16][160]; /* flags */
};

static int64_t number(const struct mt_drive_command *command, enum mt_advise_setting setting,
                      int64_t otherwise)
{
    char value[MT_ADVISE_SETTING_BYTES];
    return mt_advise_setting_get(command, setting, value)
               ? (int64_t)mt_drive_flag_number(value, (uint64_t)otherwise)
               : otherwise;
}

static double share_of(const struct mt_drive_command *command)
{
    char value[MT_ADVISE_SETTING_BYTES];
    return mt_advise_setting_get(command, MT_ADVISE_SET_SHARE, value) ? strtod(value, NULL) : 0.9;
}

static int64_t activations_of(const struct machine *machine, const struct mt_drive_command *command)
{
    return 8 * MIB * number(command, MT_ADVISE_SET_SEQUENCES, machine->default_sequences);
}

/* As vLLM goes about it: weights, a pass, then a cache of what is left. */
static void serve(const struct machine *machine, const struct mt_drive_command *command,
                  struct mt_advise_cuda_fit *fit)
{
    char type[MT_ADVISE_SETTING_BYTES] = "";
    mt_advise_setting_get(command, MT_ADVISE_SET_KV_TYPE, type);
    int64_t parts = number(command, MT_ADVISE_SET_TENSOR_PARALLEL, 1);
    int64_t weights = machine->weights / parts;
    int64_t budget = (int64_t)(share_of(command) * (double)(24 * GIB));
    int64_t cache = budget - weights - activations_of(machine, command);
    int64_t token = 128 * 1024 / parts / (strcmp(type, "fp8") == 0 ? 2 : 1);
    int64_t wanted = token * number(command, MT_ADVISE_SET_CONTEXT, machine->default_context);
    fit->shortage.activation_bytes = (uint64_t)activations_of(machine, command);
    if (weights > 24 * GIB) {
        fit->shortage.kind = MT_ADVISE_SHORT_WEIGHTS;
    } else if (weights + activations_of(machine, command) > 24 * GIB) {
        fit->shortage.kind = MT_ADVISE_SHORT_COMPUTE;
    } else if (cache <= 0) {
        fit->shortage.kind = MT_ADVISE_SHORT_NO_CACHE;
        fit->shortage.missing_bytes = (uint64_t)-cache;
    } else if (cache < wanted) {
        fit->shortage.kind = MT_ADVISE_SHORT_CACHE;
        fit->shortage.missing_bytes = (uint64_t)(wanted - cache);
        fit->shortage.cache_bytes = (uint64_t)wanted;
        fit->shortage.asked_tokens = (uint64_t)(wanted / token);
        fit->shortage.fits_tokens = (uint64_t)(cache / token);
    } else {
        fit->fits = 1;
        fit->held_bytes = (uint64_t)budget;
        fit->capacity_bytes = (uint64_t)(24 * GIB);
    }
}

/* As transformers does: it takes what it needs. */
static void generate(const struct machine *machine, const struct mt_drive_command *command,
                     struct mt_advise_cuda_fit *fit)
{
    int64_t context = number(command, MT_ADVISE_SET_CONTEXT, machine->default_context);
    int64_t held =
        machine->weights + machine->first + machine->scores * context * context +
        MIB * number(command, MT_ADVISE_SET_SEQUENCES, machine->default_sequences) * context;
    fit->fits = held <= 24 * GIB;
    fit->held_bytes = (uint64_t)held;
    fit->capacity_bytes = (uint64_t)(24 * GIB);
    fit->shortage.kind = MT_ADVISE_SHORT_COMPUTE;
}

static void run(const struct machine *machine, const struct mt_drive_command *command,
                struct mt_advise_cuda_fit *fit)
{
    if (strcmp(mt_advise_cuda_engine_of(command), "transformers") == 0)
        generate(machine, command, fit);
    else
        serve(machine, command, fit);
}

static int attempt(void *argument, char *const *argv, const char *flags,
                   struct mt_advise_cuda_fit *fit)
{
    struct machine *machine = argument;
    struct mt_drive_command command;
    assert_true(machine->n < 16);
    snprintf(machine->tried[machine->n++], sizeof *machine->tried, "%s", flags);
    mt_drive_command_copy(argv, &command);
    run(machine, &command, fit);
    mt_drive_command_finish(&command);
    return 0;
}

static void search_at_most(struct machine *machine, const char *const *argv, size_t attempts,
                           struct mt_advise_changes *changes)
{
    struct mt_drive_command command;
    struct mt_advise_cuda_fit first = {0};
    *changes = (struct mt_advise_changes){0};
    mt_drive_command_copy((char *const *)argv, &command);
    run(machine, &command, &first);
    assert_false(first.fits);
    int takes_share = strcmp(mt_advise_cuda_engine_of(&command), "transformers") != 0;
    struct mt_advise_cuda_search what = {.command = &command,
                                         .shortage = first.shortage,
                                         .n_devices = (uint64_t)machine->devices,
                                         .device_bytes = (uint64_t)(24 * GIB),
                                         .share = takes_share ? share_of(&command) : 0,
                                         .whole_bytes = first.held_bytes,
                                         .fixed_bytes = (uint64_t)machine->weights,
                                         .attempts_max = attempts,
                                         .fits_max = 2,
                                         .attempt = attempt,
                                         .argument = machine};
    if (takes_share)
        what.whole_bytes = what.fixed_bytes = 0;
    what.now[MT_ADVISE_SET_SEQUENCES] = (uint64_t)machine->default_sequences;
    what.now[MT_ADVISE_SET_CONTEXT] = (uint64_t)machine->default_context;
    assert_int_equal(mt_advise_cuda_search(&what, changes), 0);
    assert_int_equal(changes->n_tried, machine->n);
    mt_drive_command_finish(&command);
}

static void search(struct machine *machine, const char *const *argv,
                   struct mt_advise_changes *changes)
{
    search_at_most(machine, argv, 4, changes);
}

static const char *const server[] = {"vllm", "serve", "/m", NULL};

/* 21.6 GiB are 15 of weights, 2 of activations and 4.6 of a cache; 40960 tokens want 5. */
static void test_a_cache_that_is_a_little_too_small_takes_a_larger_share_first(void **state)
{
    struct machine machine = {
        .weights = 15 * GIB, .devices = 1, .default_sequences = 256, .default_context = 40960};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, server, &changes);
    assert_int_equal(changes.n, 2);
    assert_string_equal(changes.items[0].flags, "--gpu-memory-utilization 0.95");
    assert_string_equal(changes.items[0].instead_of, "");
    assert_string_equal(changes.items[0].options, "");
    assert_true(changes.items[0].held_bytes > 0 &&
                changes.items[0].held_bytes <= changes.items[0].capacity_bytes);
    assert_string_equal(changes.items[1].flags, "--max-num-seqs 64");
    assert_int_equal(changes.n_tried, 2);
}

/* 131072 tokens want 16 GiB, 11.4 more than there are: neither 1.2 of a larger share, nor 1.5 of
 * fewer sequences, nor the half of 16 are enough, and none of them is tried. */
static void test_what_cannot_be_enough_is_not_rehearsed(void **state)
{
    struct machine machine = {
        .weights = 15 * GIB, .devices = 1, .default_sequences = 256, .default_context = 131072};
    struct mt_advise_changes changes;
    (void)state;
    search_at_most(&machine, server, 1, &changes);
    assert_int_equal(changes.n, 1);
    int64_t there = (int64_t)(0.9 * (double)(24 * GIB)) - 17 * GIB;
    assert_string_equal(changes.items[0].flags, "--max-model-len 37683");
    assert_int_equal(there / (128 * 1024), 37683);
    assert_string_equal(changes.items[0].costs, "shorter conversations");
}

/* 4.6 and 1.2 GiB are 5.8, of which 0.98 hold 93126 tokens of 64 KiB, of which whole 64 are 93120.
 */
static void
test_a_longer_request_than_the_engine_says_wants_a_larger_and_narrower_cache(void **state)
{
    struct machine machine = {
        .weights = 15 * GIB, .devices = 1, .default_sequences = 256, .default_context = 131072};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, server, &changes);
    assert_int_equal(changes.n, 2);
    assert_int_equal(changes.n_tried, 2);
    assert_string_equal(changes.items[1].flags,
                        "--gpu-memory-utilization 0.95 --kv-cache-dtype fp8 --max-model-len 93120");
}

/* 23 GiB of weights leave nothing of 22.8: a share of 0.95 fails for its cache, of less than 0.
 * With 22 GiB of weights and 4 sequences it has 0.76 GiB, and says how long a request that is. */
static void
test_a_change_that_lacks_a_cache_alone_is_tried_with_what_the_engine_then_says(void **state)
{
    struct machine machine = {
        .weights = 22 * GIB, .devices = 1, .default_sequences = 3, .default_context = 40960};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, server, &changes);
    assert_int_equal(changes.n, 1);
    assert_string_equal(machine.tried[0], "--gpu-memory-utilization 0.95");
    int64_t there = (int64_t)(0.95 * (double)(24 * GIB)) - 22 * GIB - 3 * 8 * MIB;
    char flags[160];
    snprintf(flags, sizeof flags, "--gpu-memory-utilization 0.95 --max-model-len %lld",
             (long long)(there / (128 * 1024)));
    assert_string_equal(changes.items[0].flags, flags);
    assert_string_equal(changes.items[0].costs,
                        "less of the device is left to others, shorter conversations");
    assert_int_equal(changes.n_tried, 2);
}

/* 40 GiB of weights: only other devices help, and two were given. */
static void test_weights_alone_are_divided_over_the_devices_that_were_given(void **state)
{
    struct machine machine = {
        .weights = 40 * GIB, .devices = 3, .default_sequences = 16, .default_context = 4096};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, server, &changes);
    assert_int_equal(changes.n, 1);
    assert_string_equal(changes.items[0].flags, "--tensor-parallel-size 2");
    assert_int_equal(changes.n_tried, 1);
}

/* Each of two stages has two of four devices. */
static void test_stages_of_a_pipeline_divide_the_devices_among_them(void **state)
{
    static const char *const staged[] = {"vllm", "serve", "model", "--pipeline-parallel-size",
                                         "2",    NULL};
    struct machine machine = {
        .weights = 40 * GIB, .devices = 4, .default_sequences = 16, .default_context = 4096};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, staged, &changes);
    assert_int_equal(changes.n, 1);
    assert_string_equal(changes.items[0].flags, "--tensor-parallel-size 2");
}

/* 21 of 42 GiB and 2 of activations are 1.4 more than 21.6: a larger share brings 1.2, and a
 * quarter of the sequences 1.5. */
static void test_what_devices_alone_are_not_enough_for_is_looked_for_beside_them(void **state)
{
    struct machine machine = {
        .weights = 42 * GIB, .devices = 2, .default_sequences = 256, .default_context = 1024};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, server, &changes);
    assert_int_equal(changes.n, 1);
    assert_string_equal(changes.items[0].flags, "--tensor-parallel-size 2 --max-num-seqs 64");
    assert_string_equal(changes.items[0].costs,
                        "devices wait for each other, fewer requests at a time");
    assert_int_equal(changes.n_tried, 2);
}

/* 23 GiB and 2 of a pass are more than a device has, and 11.5 and 2 are not: whether fewer
 * sequences would do as well is not worth half a minute. */
static void test_one_answer_is_enough_where_others_are_mere_guesses(void **state)
{
    struct machine machine = {
        .weights = 23 * GIB, .devices = 2, .default_sequences = 256, .default_context = 1024};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, server, &changes);
    assert_int_equal(changes.n, 1);
    assert_string_equal(changes.items[0].flags, "--tensor-parallel-size 2");
    assert_int_equal(changes.n_tried, 1);
}

static void test_weights_that_no_device_holds_are_not_rehearsed_again(void **state)
{
    struct machine machine = {
        .weights = 40 * GIB, .devices = 1, .default_sequences = 16, .default_context = 4096};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, server, &changes);
    assert_int_equal(changes.n, 0);
    assert_int_equal(changes.n_tried, 0);
}

/* A share of 0.5 is 12 GiB, of which 3 are missing beside weights of 15: no share up to 0.95 is
 * skipped, since it brings 10.8. */
static void test_flags_keep_the_users_spelling(void **state)
{
    static const char *const argv[] = {"python",
                                       "-m",
                                       "vllm.entrypoints.openai.api_server",
                                       "--gpu_memory_utilization=0.5",
                                       "--model",
                                       "/m",
                                       NULL};
    struct machine machine = {
        .weights = 15 * GIB, .devices = 1, .default_sequences = 16, .default_context = 4096};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, argv, &changes);
    assert_string_equal(changes.items[0].flags, "--gpu-memory-utilization 0.95");
    assert_string_equal(changes.items[0].instead_of, "--gpu-memory-utilization 0.5");
}

static void test_settings_of_our_own_program_are_told_as_options_too(void **state)
{
    static const char *const argv[] = {"/venv/bin/python", "/x/rehearse_vllm.py", "/m",
                                       "{\"context_tokens\":131072,\"eager\":1}", NULL};
    struct machine machine = {.weights = 15 * GIB, .devices = 1, .default_sequences = 256};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, argv, &changes);
    assert_string_equal(changes.items[0].flags, "--max-model-len 37683");
    assert_string_equal(changes.items[0].instead_of, "--max-model-len 131072");
    assert_string_equal(changes.items[0].options, "--context 37683");
}

static void test_settings_of_a_model_in_sglang_are_told_both_ways(void **state)
{
    static const char *const argv[] = {"python", "/x/rehearse_sglang.py", "/m",
                                       "{\"context_tokens\":131072,\"eager\":1}", NULL};
    struct mt_drive_command command;
    char flag[64];
    char option[64];
    char value[MT_ADVISE_SETTING_BYTES];
    (void)state;
    mt_drive_command_copy((char *const *)argv, &command);
    assert_string_equal(mt_advise_cuda_engine_of(&command), "sglang");
    assert_true(mt_advise_setting_get(&command, MT_ADVISE_SET_CONTEXT, value));
    assert_string_equal(value, "131072");
    mt_advise_setting_set(&command, MT_ADVISE_SET_CONTEXT, "4096");
    mt_advise_setting_set(&command, MT_ADVISE_SET_SHARE, "0.95");
    assert_string_equal(command.words[3],
                        "{\"context_tokens\":4096,\"eager\":1,\"memory_share\":0.95}");
    mt_advise_setting_spell(&command, MT_ADVISE_SET_SHARE, "0.95", flag, option);
    assert_string_equal(flag, "--mem-fraction-static 0.95");
    assert_string_equal(option, "--memory-share 0.95");
    mt_drive_command_finish(&command);
}

/* 2 GiB and 1 MiB for each of 32 x 1024 tokens are 34 GiB. 0.98 of 24 GiB are 21.52 GiB for tokens:
 * 21 of 32 sequences, or 688 of 1024 tokens, of which whole 64 are 640. */
static void test_a_straight_line_finds_the_largest_number(void **state)
{
    static const char *const argv[] = {
        "python", "/x/rehearse_transformers.py", "/m",
        "{\"context_tokens\":1024,\"sequences\":32,\"kv_offload\":1}", NULL};
    struct machine machine = {.weights = 2 * GIB, .devices = 1};
    struct mt_advise_changes changes;
    (void)state;
    search_at_most(&machine, argv, 8, &changes);
    assert_int_equal(changes.n, 2);
    assert_string_equal(changes.items[0].flags, "batch_size=21");
    assert_string_equal(changes.items[0].instead_of, "batch_size=32");
    assert_string_equal(changes.items[0].options, "--sequences 21");
    assert_string_equal(changes.items[1].flags, "max_length=640");
    assert_int_equal(changes.n_tried, 2);
}

/* 1 KiB for each pair of 8192 tokens are 64 GiB, beside 2 for weights and 8 for the cache. By a
 * line 2432 tokens fit, which take 10 GiB; 0.98 of 24 GiB are full at 4265, of which whole 64 are
 * 4224. */
static void test_a_parabola_comes_closer_where_scores_of_attention_are_held(void **state)
{
    static const char *const argv[] = {"python", "/x/rehearse_transformers.py", "/m",
                                       "{\"context_tokens\":8192,\"kv_offload\":1}", NULL};
    struct machine machine = {
        .weights = 2 * GIB, .devices = 1, .default_sequences = 1, .scores = 1024};
    struct mt_advise_changes changes;
    (void)state;
    search_at_most(&machine, argv, 8, &changes);
    assert_int_equal(changes.n, 1);
    assert_string_equal(machine.tried[0], "max_length=2432");
    assert_string_equal(changes.items[0].flags, "max_length=4224");
    assert_int_equal(changes.n_tried, 2);
}

/* 4 GiB that the first token takes lie above the line. With 2 GiB and 1 MiB for each of 32 x 1024
 * tokens they are 38 GiB, by which 19 of 32 sequences would fit; they take 25 of 24. 14 of them, no
 * more than three quarters of 19, take 20, and 16, half-way from there, take 22. */
static void test_a_number_that_does_not_fit_is_the_end_of_a_shorter_line(void **state)
{
    static const char *const argv[] = {
        "python", "/x/rehearse_transformers.py", "/m",
        "{\"context_tokens\":1024,\"sequences\":32,\"kv_offload\":1}", NULL};
    struct machine machine = {.weights = 2 * GIB, .devices = 1, .first = 4 * GIB};
    struct mt_advise_changes changes;
    (void)state;
    search_at_most(&machine, argv, 8, &changes);
    assert_string_equal(machine.tried[0], "batch_size=19");
    assert_string_equal(machine.tried[1], "batch_size=14");
    assert_string_equal(changes.items[0].flags, "batch_size=16");
    assert_int_equal(changes.items[0].held_bytes, 22 * GIB);
}

static void test_numbers_are_numbers_in_the_settings_of_our_own_program(void **state)
{
    static const char *const argv[] = {"python", "/x/rehearse_vllm.py", "/m", "{}", NULL};
    struct mt_drive_command command;
    (void)state;
    mt_drive_command_copy((char *const *)argv, &command);
    mt_advise_setting_set(&command, MT_ADVISE_SET_SHARE, "0.95");
    mt_advise_setting_set(&command, MT_ADVISE_SET_EAGER, "1");
    mt_advise_setting_set(&command, MT_ADVISE_SET_KV_TYPE, "fp8");
    assert_string_equal(command.words[3],
                        "{\"memory_share\":0.95,\"eager\":1,\"kv_type\":\"fp8\"}");
    mt_drive_command_finish(&command);
}

/* Nothing helps by itself; of four attempts two are left for all together. */
static void test_no_more_is_rehearsed_than_is_allowed(void **state)
{
    struct machine machine = {
        .weights = 23 * GIB, .devices = 1, .default_sequences = 256, .default_context = 40960};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, server, &changes);
    assert_int_equal(changes.n, 0);
    assert_true(changes.n_tried <= 4);
    assert_true(*changes.least);
}

/* 20.9 GiB of weights and 2 of activations are 22.9 of 21.6: a larger share brings 1.2 of the 1.3
 * that are missing, a quarter of the sequences 1.5, but then 0.2 are left of the 0.25 of a request.
 */
static void test_changes_add_up_where_none_is_enough(void **state)
{
    struct machine machine = {.weights = 20 * GIB + 9 * GIB / 10,
                              .devices = 1,
                              .default_sequences = 256,
                              .default_context = 4096};
    struct mt_advise_changes changes;
    (void)state;
    search(&machine, server, &changes);
    assert_int_equal(changes.n, 1);
    assert_true(changes.n_tried <= 4);
    assert_non_null(strstr(changes.items[0].flags, "--max-num-seqs 64"));
}

/* How attempts go in turn; those that are not said fit. */
struct script {
    struct mt_advise_cuda_fit fits[4];
    size_t n_said;
    size_t n;
    char tried[8][160]; /* flags */
    struct mt_advise_changes changes;
};

static int follow(void *argument, char *const *argv, const char *flags,
                  struct mt_advise_cuda_fit *fit)
{
    struct script *script = argument;
    (void)argv;
    assert_true(script->n < 8);
    *fit = script->n < script->n_said ? script->fits[script->n]
                                      : (struct mt_advise_cuda_fit){.fits = 1};
    snprintf(script->tried[script->n++], sizeof *script->tried, "%s", flags);
    return 0;
}

/* A search on one device of 24 GiB, of which `what` says the rest. */
static void search_by_script(struct mt_advise_cuda_search what, const char *const *argv,
                             struct script *script)
{
    struct mt_drive_command command;
    mt_drive_command_copy((char *const *)argv, &command);
    what.command = &command;
    what.n_devices = 1;
    what.device_bytes = (uint64_t)(24 * GIB);
    what.attempts_max = what.attempts_max ? what.attempts_max : 4;
    what.fits_max = 1;
    what.attempt = follow;
    what.argument = script;
    assert_int_equal(mt_advise_cuda_search(&what, &script->changes), 0);
    mt_drive_command_finish(&command);
}

/* The first flags that are tried with a server; "" where none are. */
static const char *first_tried(struct mt_advise_cuda_search what)
{
    static struct script script;
    script = (struct script){0};
    search_by_script(what, server, &script);
    return script.tried[0];
}

/* 0.1 is the least: less holds little more than what the driver takes. */
static void test_a_share_of_less_than_a_tenth_is_not_rehearsed(void **state)
{
    struct mt_advise_cuda_search what = {.shortage.kind = MT_ADVISE_SHORT_SHARE, .share = 0.9};
    (void)state;
    what.shortage.free_share = 0.11;
    assert_string_equal(first_tried(what), "--gpu-memory-utilization 0.11");
    what.shortage.free_share = 0.09;
    assert_string_equal(first_tried(what), "");
}

/* 0.95 is the most, and less than 0.005 of a device is worth no attempt. */
static void test_a_share_that_is_the_largest_but_for_a_rounding_is_not_made_larger(void **state)
{
    struct mt_advise_cuda_search what = {.shortage.kind = MT_ADVISE_SHORT_NO_CACHE};
    (void)state;
    what.share = 0.944;
    assert_string_equal(first_tried(what), "--gpu-memory-utilization 0.95");
    what.share = 0.946;
    assert_string_equal(first_tried(what), "");
}

/* 1.2 of 24 GiB are 0.05 of it, and 0.02 are left to what rounding and fragments take. */
static void test_a_share_is_less_by_what_was_missing_and_a_little(void **state)
{
    struct mt_advise_cuda_search what = {.shortage.kind = MT_ADVISE_SHORT_LATE, .share = 0.9};
    (void)state;
    what.shortage.missing_bytes = (uint64_t)(12 * GIB / 10);
    assert_string_equal(first_tried(what), "--gpu-memory-utilization 0.83");
    what.shortage.missing_bytes = 0;
    assert_string_equal(first_tried(what), "--gpu-memory-utilization 0.88");
}

/* A quarter of 4096 is 1024, and of 1024 less than the 512 that are the least. */
static void test_prompts_are_read_in_no_fewer_than_512_tokens_at_a_time(void **state)
{
    struct mt_advise_cuda_search what = {.shortage.kind = MT_ADVISE_SHORT_COMPUTE, .share = 0.9};
    (void)state;
    what.now[MT_ADVISE_SET_BATCHED_TOKENS] = 4096;
    assert_string_equal(first_tried(what), "--max-num-batched-tokens 1024");
    what.now[MT_ADVISE_SET_BATCHED_TOKENS] = 1024;
    assert_string_equal(first_tried(what), "--max-num-batched-tokens 512");
    what.now[MT_ADVISE_SET_BATCHED_TOKENS] = 512;
    assert_string_equal(first_tried(what), "");
}

/* A cache of 8 bits saves one half of 16: 2.5 of 5 GiB. */
static void test_a_narrower_cache_is_rehearsed_where_one_half_is_enough(void **state)
{
    struct mt_advise_cuda_search what = {.shortage.kind = MT_ADVISE_SHORT_CACHE, .share = 0.95};
    (void)state;
    what.shortage.cache_bytes = (uint64_t)(5 * GIB);
    what.shortage.missing_bytes = (uint64_t)(24 * GIB / 10);
    assert_string_equal(first_tried(what), "--kv-cache-dtype fp8");
    what.shortage.missing_bytes = (uint64_t)(26 * GIB / 10);
    assert_string_equal(first_tried(what), "");
}

/* 30 GiB of weights of four bytes fit in 24 with two, and wherever the cache is they do not
 * with four. */
static void test_what_leaves_weights_as_they_are_cannot_help_where_they_are_too_large(void **state)
{
    static const char *const argv[] = {"python", "/x/rehearse_transformers.py", "/m", "{}", NULL};
    struct mt_advise_cuda_search what = {.shortage.kind = MT_ADVISE_SHORT_COMPUTE};
    struct script large = {0};
    struct script small = {0};
    (void)state;
    what.now[MT_ADVISE_SET_WEIGHT_TYPE] = 4;
    what.fixed_bytes = (uint64_t)(30 * GIB);
    search_by_script(what, argv, &large);
    assert_int_equal(large.n, 1);
    assert_string_equal(large.tried[0], "dtype=bf16");
    what.fixed_bytes = (uint64_t)(20 * GIB);
    search_by_script(what, argv, &small);
    assert_int_equal(small.n, 1);
    assert_string_equal(small.tried[0], "cache_implementation=\"offloaded\"");
}

/* Graphs are worth what the engine counted for them, where they lie in what the cache lacks. */
static void test_graphs_are_left_out_where_they_are_as_much_as_is_missing(void **state)
{
    struct mt_advise_cuda_search what = {.shortage.kind = MT_ADVISE_SHORT_NO_CACHE, .share = 0.95};
    (void)state;
    what.shortage.missing_bytes = (uint64_t)GIB;
    what.shortage.graph_bytes = (uint64_t)(2 * GIB);
    assert_string_equal(first_tried(what), "--enforce-eager");
    what.shortage.graph_bytes = (uint64_t)(GIB / 2);
    assert_string_equal(first_tried(what), "");
    what.shortage.graph_bytes = 0;
    assert_string_equal(first_tried(what), "");
}

/* A larger share has room for a cache, and not for the longest request: the engine says for which.
 */
static void test_a_length_that_the_engine_says_after_a_change_is_taken_with_it(void **state)
{
    struct mt_advise_cuda_search what = {
        .shortage.kind = MT_ADVISE_SHORT_NO_CACHE, .share = 0.9, .attempts_max = 3};
    struct script script = {.n_said = 1};
    (void)state;
    what.now[MT_ADVISE_SET_SEQUENCES] = 256;
    script.fits[0].shortage.kind = MT_ADVISE_SHORT_CACHE;
    script.fits[0].shortage.fits_tokens = 9000;
    search_by_script(what, server, &script);
    assert_int_equal(script.n, 2);
    assert_int_equal(script.changes.n, 1);
    assert_string_equal(script.changes.items[0].flags,
                        "--gpu-memory-utilization 0.95 --max-model-len 9000");
    assert_string_equal(script.changes.items[0].costs,
                        "less of the device is left to others, shorter conversations");
}

/* One of three attempts is for a change by itself, one for all together, and one for the length
 * that the engine then says. */
static void test_two_attempts_are_kept_for_all_changes_together(void **state)
{
    struct mt_advise_cuda_search what = {
        .shortage.kind = MT_ADVISE_SHORT_NO_CACHE, .share = 0.9, .attempts_max = 3};
    struct script script = {.n_said = 2};
    (void)state;
    what.now[MT_ADVISE_SET_SEQUENCES] = 256;
    what.now[MT_ADVISE_SET_BATCHED_TOKENS] = 8192;
    script.fits[0].shortage.kind = MT_ADVISE_SHORT_NO_CACHE;
    script.fits[1].shortage.kind = MT_ADVISE_SHORT_CACHE;
    script.fits[1].shortage.fits_tokens = 1000;
    search_by_script(what, server, &script);
    assert_int_equal(script.n, 3);
    assert_string_equal(script.tried[0], "--gpu-memory-utilization 0.95");
    assert_string_equal(script.tried[1],
                        "--gpu-memory-utilization 0.95 --max-num-batched-tokens 2048 "
                        "--max-num-seqs 64");
    assert_string_equal(script.tried[2],
                        "--gpu-memory-utilization 0.95 --max-num-batched-tokens 2048 "
                        "--max-num-seqs 64 --max-model-len 1000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cache_that_is_a_little_too_small_takes_a_larger_share_first),
        cmocka_unit_test(test_what_cannot_be_enough_is_not_rehearsed),
        cmocka_unit_test(
            test_a_change_that_lacks_a_cache_alone_is_tried_with_what_the_engine_then_says),
        cmocka_unit_test(
            test_a_longer_request_than_the_engine_says_wants_a_larger_and_narrower_cache),
        cmocka_unit_test(test_weights_alone_are_divided_over_the_devices_that_were_given),
        cmocka_unit_test(test_stages_of_a_pipeline_divide_the_devices_among_them),
        cmocka_unit_test(test_what_devices_alone_are_not_enough_for_is_looked_for_beside_them),
        cmocka_unit_test(test_one_answer_is_enough_where_others_are_mere_guesses),
        cmocka_unit_test(test_weights_that_no_device_holds_are_not_rehearsed_again),
        cmocka_unit_test(test_flags_keep_the_users_spelling),
        cmocka_unit_test(test_settings_of_our_own_program_are_told_as_options_too),
        cmocka_unit_test(test_settings_of_a_model_in_sglang_are_told_both_ways),
        cmocka_unit_test(test_a_straight_line_finds_the_largest_number),
        cmocka_unit_test(test_a_parabola_comes_closer_where_scores_of_attention_are_held),
        cmocka_unit_test(test_a_number_that_does_not_fit_is_the_end_of_a_shorter_line),
        cmocka_unit_test(test_numbers_are_numbers_in_the_settings_of_our_own_program),
        cmocka_unit_test(test_no_more_is_rehearsed_than_is_allowed),
        cmocka_unit_test(test_changes_add_up_where_none_is_enough),
        cmocka_unit_test(test_a_share_of_less_than_a_tenth_is_not_rehearsed),
        cmocka_unit_test(test_a_share_that_is_the_largest_but_for_a_rounding_is_not_made_larger),
        cmocka_unit_test(test_a_share_is_less_by_what_was_missing_and_a_little),
        cmocka_unit_test(test_prompts_are_read_in_no_fewer_than_512_tokens_at_a_time),
        cmocka_unit_test(test_a_narrower_cache_is_rehearsed_where_one_half_is_enough),
        cmocka_unit_test(test_a_length_that_the_engine_says_after_a_change_is_taken_with_it),
        cmocka_unit_test(test_graphs_are_left_out_where_they_are_as_much_as_is_missing),
        cmocka_unit_test(test_what_leaves_weights_as_they_are_cannot_help_where_they_are_too_large),
        cmocka_unit_test(test_two_attempts_are_kept_for_all_changes_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
