/* SPDX-License-Identifier: MIT */
/* What the words of CUDA programs come to. */
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

#include <memtally/tally.h>
#include <memtally/units.h>

#include "advise/cuda_suggest.h"
#include "advise/device_size.h"
#include "drive/words.h"

static void test_the_innermost_line_of_the_programs_own_code_is_named(void **state)
{
    static const char said[] =
        "Traceback (most recent call last):\n"
        "  File \"/srv/run/train.py\", line 40, in <module>\n"
        "    main()\n"
        "  File \"/srv/run/train.py\", line 31, in main\n"
        "    optimizer.step()\n"
        "  File \"/venv/lib/python3.11/site-packages/torch/optim/adamw.py\", line 7, in step\n"
        "    raise\n"
        "torch.OutOfMemoryError: CUDA out of memory.\n";
    char text[64] = "";
    (void)state;
    assert_true(mt_drive_python_place(said, text, sizeof text));
    assert_string_equal(text, "at line 31 of train.py");
}

static void test_words_without_a_traceback_name_no_line(void **state)
{
    char text[64] = "untouched";
    (void)state;
    assert_false(mt_drive_python_place("out of memory\n", text, sizeof text));
    assert_false(mt_drive_python_place("  File \"cut short", text, sizeof text));
    assert_false(mt_drive_python_place("  File \"/venv/bin/vllm\", line 8, in <module>\n", text,
                                       sizeof text));
    assert_string_equal(text, "untouched");
}

static void test_a_program_that_fails_by_itself_is_given_its_last_word(void **state)
{
    static const char *const said[][2] = {
        {"loading\n[rank0]: Traceback (most recent call last):\n[rank0]:   File \"a.py\", line 3\n"
         "[rank0]:     ^^^^^^^\n[rank0]: RuntimeError: repeats can not be negative\n"
         "[rank0]:[W1122 ProcessGroupNCCL.cpp:1538] Warning: not destroyed\n",
         "exit status 1 after 2.00 s, before it was ready; it said: RuntimeError: repeats can not "
         "be "
         "negative"},
        {"(EngineCore_DP0 pid=21) ValueError: no such layer\n"
         "RuntimeError: Engine core initialization failed. See root cause above. {}\n",
         "; it said: ValueError: no such layer"},
        {"loading\nno kernel image is there\n\n", "; it said: no kernel image is there"},
        {"\n", "before it was ready"}};
    static struct mt_drive_result result;
    (void)state;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        size_t length = strlen(said[i][1]);
        result = (struct mt_drive_result){
            .outcome = MT_DRIVE_FAILS,
            .is_cuda = 1,
            .status = {.exit_code = 1, .elapsed_ns = UINT64_C(2000000000)},
        };
        snprintf(result.said, sizeof result.said, "%s", said[i][0]);
        mt_drive_explain_end(&result);
        assert_true(strlen(result.why) > length);
        assert_string_equal(result.why + strlen(result.why) - length, said[i][1]);
    }
}

static void test_an_engine_that_foresees_too_little_memory_is_understood(void **state)
{
    static const char *const said[][2] = {
        {"ValueError: To serve at least one request with the models's max seq len (100000), (12.21 "
         "GiB KV cache is needed, which is larger than the available KV cache memory (2.51 GiB). "
         "Based on the available memory, the estimated maximum model length is 20544.",
         "--max-model-len 20544"},
        {"ValueError: No available memory for the cache blocks. Try increasing",
         "--gpu-memory-utilization"},
        {"RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
         "--mem-fraction-static"}};
    static struct mt_drive_result result;
    (void)state;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        result = (struct mt_drive_result){.outcome = MT_DRIVE_FAILS};
        snprintf(result.said, sizeof result.said, "%s\n", said[i][0]);
        mt_drive_explain_end(&result);
        assert_true(result.lacks_memory);
        assert_non_null(strstr(result.why, said[i][1]));
    }
}

static void test_an_engines_words_say_how_much_is_missing(void **state)
{
    const uint64_t gib = (uint64_t)1 << 30;
    struct mt_advise_shortage small = {.kind = MT_ADVISE_NOT_SHORT};
    (void)state;
    /* As vLLM 0.11 and 0.7 say it. */
    mt_advise_shortage_from_words(
        "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 "
        "GiB "
        "KV cache is needed, which is larger than the available KV cache memory (5.50 GiB). Based "
        "on "
        "the available memory, the estimated maximum model length is 45056. Try increasing",
        &small);
    assert_int_equal(small.kind, MT_ADVISE_SHORT_CACHE);
    assert_int_equal(small.asked_tokens, 131072);
    assert_int_equal(small.fits_tokens, 45056);
    assert_int_equal(small.cache_bytes, 16 * gib);
    assert_int_equal(small.missing_bytes, 10 * gib + gib / 2);
    small = (struct mt_advise_shortage){.kind = MT_ADVISE_NOT_SHORT};
    mt_advise_shortage_from_words(
        "The model's max seq len (32768) is larger than the maximum number of "
        "tokens that can be stored in KV cache (20016). Try increasing",
        &small);
    assert_int_equal(small.kind, MT_ADVISE_SHORT_CACHE);
    assert_int_equal(small.fits_tokens, 20016);
    assert_int_equal(small.missing_bytes, 0);
}

static void test_an_engine_without_any_cache_says_by_how_much(void **state)
{
    struct mt_advise_shortage none = {.kind = MT_ADVISE_NOT_SHORT};
    (void)state;
    /* What the engine said last counts. */
    mt_advise_shortage_from_words(
        "INFO Available KV cache memory: 1.50 GiB\n"
        "INFO Available KV cache memory: -2.25 GiB\n"
        "ValueError: No available memory for the cache blocks. Try increasing",
        &none);
    assert_int_equal(none.kind, MT_ADVISE_SHORT_NO_CACHE);
    assert_int_equal(none.missing_bytes, (uint64_t)9 << 28);
}

static void test_the_share_that_is_free_is_read(void **state)
{
    struct mt_advise_shortage share = {.kind = MT_ADVISE_NOT_SHORT};
    struct mt_advise_shortage other = {.kind = MT_ADVISE_NOT_SHORT};
    (void)state;
    mt_advise_shortage_from_words(
        "ValueError: Free memory on device (18.00/24.00 GiB) on startup is less than desired GPU "
        "memory utilization (0.9, 21.60 GiB). Decrease GPU memory utilization",
        &share);
    assert_int_equal(share.kind, MT_ADVISE_SHORT_SHARE);
    assert_float_equal(share.free_share, 0.75, 1e-9);
    mt_advise_shortage_from_words("less than desired GPU memory utilization", &other);
    assert_float_equal(other.free_share, 0, 0);
    mt_advise_shortage_from_words("KeyError: 'model_type'", &other);
}

/* What was refused beside what, in which phase. */
static void test_what_was_refused_follows_from_the_phase_and_what_was_there(void **state)
{
    const struct mt_rehearsal_event refusal = {.place = "gpu:0", .missing_bytes = 7};
    const struct mt_tally_row rows[] = {{.category = MT_CATEGORY_WEIGHTS, .allocated_bytes = 5},
                                        {.category = MT_CATEGORY_KV_CACHE, .allocated_bytes = 3}};
    const struct mt_tally_place place = {.place = "gpu:0", .n_rows = 2, .rows = rows};
    const struct mt_tally_place other = {.place = "gpu:1", .n_rows = 2, .rows = rows};
    struct mt_tally cached = {.n_places = 1, .places = &place};
    struct mt_tally elsewhere = {.n_places = 1, .places = &other};
    static struct mt_drive_result result;
    struct mt_advise_shortage shortage;
    (void)state;
    const struct {
        enum mt_category phase;
        struct mt_tally *held;
        enum mt_advise_shortage_kind kind;
    } cases[] = {{MT_CATEGORY_WEIGHTS, &elsewhere, MT_ADVISE_SHORT_WEIGHTS},
                 {MT_CATEGORY_WEIGHTS, NULL, MT_ADVISE_SHORT_WEIGHTS},
                 {MT_CATEGORY_ACTIVATIONS, &elsewhere, MT_ADVISE_SHORT_COMPUTE},
                 {MT_CATEGORY_ACTIVATIONS, &cached, MT_ADVISE_SHORT_LATE},
                 {MT_CATEGORY_GRAPHS, &cached, MT_ADVISE_SHORT_GRAPHS},
                 {MT_CATEGORY_KV_CACHE, NULL, MT_ADVISE_SHORT_LATE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        result = (struct mt_drive_result){
            .refusal = &refusal, .phase_category = cases[i].phase, .held = cases[i].held};
        mt_advise_shortage_of(&result, &shortage);
        assert_int_equal(shortage.kind, cases[i].kind);
        assert_int_equal(shortage.missing_bytes, 7);
    }
}

/* PyTorch tries once more after it has given back what it can: that it was refused first is not why
 * the engine ended. */
static void test_an_engine_that_foresees_is_believed_though_something_was_refused(void **state)
{
    static struct mt_drive_result result;
    const struct mt_rehearsal_event refusal = {.place = "gpu:0", .name = "", .detail = ""};
    (void)state;
    result =
        (struct mt_drive_result){.outcome = MT_DRIVE_RUNS_OUT, .refusal = &refusal, .is_cuda = 1};
    snprintf(result.said, sizeof result.said, "No available memory for the cache blocks.\n");
    assert_true(mt_drive_explain_foresight(&result));
    snprintf(result.said, sizeof result.said, "Please decrease --mem-fraction-static\n");
    assert_false(mt_drive_explain_foresight(&result));
}

static void test_what_an_engine_wanted_and_had_is_told(void **state)
{
    static const struct {
        const char *said, *answer;
    } words[] = {
        {"the models's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than "
         "the "
         "available KV cache memory (2.34 GiB). Based on",
         "(16.00 GiB are wanted, 2.34 GiB are there)"},
        {"max seq len (131072), 16.00 GiB KV cache is needed, which is larger than the available "
         "KV "
         "cache memory (0.5 GiB).",
         "(16.00 GiB are wanted, 0.5 GiB are there)"},
        {" GiB KV cache is needed, which is larger than the available KV cache memory ( GiB)",
         NULL},
        {"is larger than the available KV cache memory (cut", NULL}};
    static struct mt_drive_result result;
    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        result = (struct mt_drive_result){.outcome = MT_DRIVE_FAILS};
        snprintf(result.said, sizeof result.said, "%s", words[i].said);
        mt_drive_explain_end(&result);
        assert_true(result.lacks_memory);
        if (words[i].answer)
            assert_non_null(strstr(result.why, words[i].answer));
        else
            assert_null(strstr(result.why, "wanted"));
    }
}

static void test_another_failure_is_not_taken_for_too_little_memory(void **state)
{
    static struct mt_drive_result result;
    (void)state;
    result = (struct mt_drive_result){.outcome = MT_DRIVE_FAILS, .status.exit_code = 1};
    snprintf(result.said, sizeof result.said, "KeyError: 'model_type'\n");
    mt_drive_explain_end(&result);
    assert_false(result.lacks_memory);
    assert_non_null(strstr(result.why, "exit status 1"));
}

static void test_a_program_that_is_cut_off_while_it_computes_is_not_called_stuck(void **state)
{
    static struct mt_drive_result result;
    (void)state;
    result = (struct mt_drive_result){
        .outcome = MT_DRIVE_UNDECIDED, .is_cuda = 1, .report = {.works_on = 1}};
    mt_drive_explain_end(&result);
    assert_non_null(strstr(result.why, "--timeout gives it longer"));
    assert_null(strstr(result.why, "hangs"));
}

static void test_a_program_that_computes_nothing_hangs(void **state)
{
    static struct mt_drive_result result;
    (void)state;
    result = (struct mt_drive_result){.outcome = MT_DRIVE_UNDECIDED, .is_cuda = 1};
    mt_drive_explain_end(&result);
    assert_non_null(strstr(result.why, "hangs"));
    assert_non_null(strstr(result.why, "computed next to nothing"));
}

static void test_the_share_of_a_device_is_read_from_the_command_line(void **state)
{
    static const struct {
        const char *argv[6];
        double share;
    } commands[] = {{{"vllm", "serve", "x", "--gpu-memory-utilization", "0.8"}, 0.8},
                    {{"vllm", "serve", "--gpu-memory-utilization=0.75"}, 0.75},
                    {{"python", "rehearse_vllm.py", "{\"memory_share\":0.5}"}, 0.5},
                    /* vLLM's documented default */
                    {{"vllm", "serve", "--gpu-memory-utilization"}, 0.9}};
    (void)state;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        assert_float_equal(mt_advise_share_of((char *const *)commands[i].argv), commands[i].share,
                           1e-9);
}

/* 15 GiB of weights and a cache of 40 GiB for 80 requests: one of them needs 0.5 GiB. */
static void test_a_device_needs_a_cache_for_one_request_only(void **state)
{
    const uint64_t gib = (uint64_t)1 << 30;
    const struct mt_tally_row rows[] = {
        {.category = MT_CATEGORY_WEIGHTS, .allocated_bytes = 15 * gib},
        {.category = MT_CATEGORY_KV_CACHE, .allocated_bytes = 40 * gib}};
    const struct mt_tally_place places[] = {
        {.place = "host", .total_allocated_bytes = 100 * gib},
        {.place = "gpu:0", .total_allocated_bytes = 55 * gib, .n_rows = 2, .rows = rows},
        {.place = "gpu:1", .total_allocated_bytes = MT_UNKNOWN}};
    const struct mt_tally tally = {.n_places = 3, .places = places};
    (void)state;
    assert_int_equal(mt_advise_least_bytes(&tally, 80), 15 * gib + gib / 2);
    assert_int_equal(mt_advise_least_bytes(&tally, 0), 55 * gib);
}

static const char *why_no_cuda(const char *said, unsigned n_private, char *variable)
{
    static struct mt_drive_result result;
    const char *const argv[] = {"./program", NULL};
    char *const environment[] = {variable, NULL};
    const struct mt_drive_job job = {.argv = (char *const *)argv, .environment = environment};
    result = (struct mt_drive_result){.is_unseen = 1, .status.n_private = n_private};
    snprintf(result.said, sizeof result.said, "%s\n", said);
    return mt_drive_explain_no_cuda(&job, &result) ? result.why : NULL;
}

static void test_a_library_of_another_cuda_is_named(void **state)
{
    const char *why = why_no_cuda("./program: error while loading shared libraries: "
                                  "libcudart.so.11.0: cannot open shared object file: No such file",
                                  0, NULL);
    (void)state;
    assert_non_null(why);
    assert_non_null(strstr(why, "needs libcudart.so.11.0,"));
    assert_non_null(strstr(why, "CUDA 12 and 13"));
    assert_null(why_no_cuda("libjpeg.so.62: cannot open shared object file", 0, NULL));
}

static void test_a_static_runtime_and_hidden_devices_are_told_apart(void **state)
{
    char hidden[] = "CUDA_VISIBLE_DEVICES=";
    char seen[] = "CUDA_VISIBLE_DEVICES=0";
    (void)state;
    assert_non_null(strstr(why_no_cuda("", 3, NULL), "linked statically"));
    assert_non_null(strstr(why_no_cuda("", 0, hidden), "CUDA_VISIBLE_DEVICES="));
    assert_null(why_no_cuda("", 0, seen));
}

static void test_a_device_too_small_for_a_context_is_named(void **state)
{
    static struct mt_drive_result result;
    static char program[] = "python";
    char *const argv[] = {program, NULL};
    const struct mt_drive_job job = {.argv = argv};
    const struct mt_rehearsal_event refusal = {.kind = MT_REHEARSAL_REFUSED,
                                               .place = "gpu:1",
                                               .bytes = UINT64_C(140) << 20,
                                               .free_bytes = UINT64_C(1) << 20};
    (void)state;
    result = (struct mt_drive_result){.refusal = &refusal};
    assert_int_equal(mt_drive_explain_no_cuda(&job, &result), 1);
    assert_non_null(strstr(result.why, "gpu:1"));
    assert_non_null(strstr(result.why, "140 MiB, and 1 MiB"));
}

/* No device refused anything, so that PyTorch's own limit did. */
static void test_a_refusal_of_pytorch_itself_is_told_from_one_of_a_device(void **state)
{
    static struct mt_drive_result result;
    (void)state;
    result = (struct mt_drive_result){
        .outcome = MT_DRIVE_FAILS,
        .is_cuda = 1,
        .status.exit_code = 1,
        .said = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has "
                "a total capacity of 24.00 GiB of which 23.00 GiB is free.\n"};
    mt_drive_explain_end(&result);
    assert_non_null(strstr(result.why, "with no allocation refused"));
    assert_non_null(strstr(result.why, "set_per_process_memory_fraction()"));
    result = (struct mt_drive_result){.outcome = MT_DRIVE_FAILS,
                                      .is_cuda = 1,
                                      .status.exit_code = 1,
                                      .said = "RuntimeError: CUDA is out of luck\n"};
    mt_drive_explain_end(&result);
    assert_null(strstr(result.why, "set_per_process_memory_fraction()"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_innermost_line_of_the_programs_own_code_is_named),
        cmocka_unit_test(test_words_without_a_traceback_name_no_line),
        cmocka_unit_test(test_a_program_that_fails_by_itself_is_given_its_last_word),
        cmocka_unit_test(test_an_engine_that_foresees_too_little_memory_is_understood),
        cmocka_unit_test(test_an_engines_words_say_how_much_is_missing),
        cmocka_unit_test(test_an_engine_without_any_cache_says_by_how_much),
        cmocka_unit_test(test_the_share_that_is_free_is_read),
        cmocka_unit_test(test_what_was_refused_follows_from_the_phase_and_what_was_there),
        cmocka_unit_test(test_an_engine_that_foresees_is_believed_though_something_was_refused),
        cmocka_unit_test(test_what_an_engine_wanted_and_had_is_told),
        cmocka_unit_test(test_a_device_too_small_for_a_context_is_named),
        cmocka_unit_test(test_a_refusal_of_pytorch_itself_is_told_from_one_of_a_device),
        cmocka_unit_test(test_another_failure_is_not_taken_for_too_little_memory),
        cmocka_unit_test(test_a_program_that_is_cut_off_while_it_computes_is_not_called_stuck),
        cmocka_unit_test(test_a_program_that_computes_nothing_hangs),
        cmocka_unit_test(test_the_share_of_a_device_is_read_from_the_command_line),
        cmocka_unit_test(test_a_device_needs_a_cache_for_one_request_only),
        cmocka_unit_test(test_a_library_of_another_cuda_is_named),
        cmocka_unit_test(test_a_static_runtime_and_hidden_devices_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
