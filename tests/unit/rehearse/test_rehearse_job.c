/* SPDX-License-Identifier: MIT */
/* What the command makes of programs that run, run out, crash, hang, or have no ggml. */
#include <memtally/residue.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memtally/error.h>
#include <memtally/predict.h>
#include <memtally/tally.h>

#include "drive/job.h"
#include "drive/overhead.h"
#include "rehearse/account.h"

#define MIB    (UINT64_C(1) << 20)
#define SECOND UINT64_C(1000000000)

static const struct mt_rehearsal_device device = {.bytes = 1024 * MIB, .reserved_bytes = 337 * MIB};

static void run_for(uint64_t timeout_ns, const char *const *argv, struct mt_drive_result *result)
{
    struct mt_error error = {0};
    const struct mt_drive_job job = {
        .argv = (char **)(uintptr_t)argv,
        .environment = environ,
        .devices = &device,
        .n_devices = 1,
        .pretend_path = getenv("REHEARSED_NOTHING"),
        .timeout_ns = timeout_ns,
    };
    int code = mt_drive_run(&job, result, &error);
    if (code < 0)
        print_error("%s\n", error.text);
    assert_int_equal(code, 0);
}

#define RUN(result, ...)                                                                           \
    do {                                                                                           \
        const char *const argv_[] = {getenv("REHEARSED_CHILD"), __VA_ARGS__, NULL};                \
        run_for(60 * SECOND, argv_, result);                                                       \
    } while (0)

/* Until the program has said that it waits: a busy machine may not let it come so far at once. */
static void run_until_it_waits(const char *const *argv, struct mt_drive_result *result)
{
    for (uint64_t ns = SECOND / 2;; ns *= 4) {
        run_for(ns, argv, result);
        if (strcmp(result->words, "waiting") == 0)
            return;
        assert_true(ns < 60 * SECOND);
        mt_drive_result_finish(result);
    }
}

static void assert_says(const char *text, const char *what)
{
    if (!strstr(text, what))
        fail_msg("'%s' is not in '%s'", what, text);
}

static struct mt_estimate *estimate(const struct mt_drive_result *result)
{
    const uint64_t bytes = 1024 * MIB;
    const struct mt_device_known card = {.gpu = "RTX3090"};
    const struct mt_predict_settings settings = {
        .device_kind = "cuda", .device_bytes = &bytes, .n_devices = 1, .device_known = &card};
    struct mt_estimate *made = NULL;
    assert_int_equal(mt_drive_estimate(result, NULL, &settings, &made, NULL), 0);
    return made;
}

static void test_a_program_that_ends_well_has_a_verdict_of_what_it_took(void **state)
{
    (void)state;
    struct mt_drive_result result;
    RUN(&result, "attach", "alloc=0,0x10,209715200,1,CUDA0,", "free=0x10");
    assert_int_equal(result.outcome, MT_DRIVE_RUNS);
    assert_string_equal(result.why, "");
    struct mt_estimate *made = estimate(&result);
    assert_int_equal(made->verdict, MT_VERDICT_FITS);
    const struct mt_tally_place *place = &made->tally.places[1];
    const struct mt_tally_row *weights = mt_tally_row_of(place, MT_CATEGORY_WEIGHTS);
    assert_int_equal(weights->allocated_bytes, 200 * MIB);
    assert_int_equal(weights->provenance, MT_PROVENANCE_EXACT);
    /* Published logs of an RTX 3090 with llama.cpp have 302 to 363 MiB. */
    const struct mt_tally_row *context = mt_tally_row_of(place, MT_CATEGORY_CONTEXT);
    assert_in_range(context->allocated_bytes, 302 * MIB, 363 * MIB);
    assert_int_equal(context->provenance, MT_PROVENANCE_DERIVED);
    mt_estimate_destroy(made);
    mt_drive_result_finish(&result);
}

/* What the devices were said to have taken beforehand is what the table adds: 900 MiB of 1024 fit
 * beside 100, as they did for the program. By the rules they would not. */
static void test_what_is_reserved_stands_for_the_context(void **state)
{
    (void)state;
    const uint64_t bytes = 1024 * MIB;
    const struct mt_predict_settings settings = {
        .device_kind = "cuda", .device_bytes = &bytes, .n_devices = 1, .context_bytes = 100 * MIB};
    struct mt_drive_result result;
    struct mt_estimate *made = NULL;
    uint64_t held_back = 0;
    RUN(&result, "attach", "alloc=0,0x10,943718400,1,CUDA0,", "free=0x10");
    assert_int_equal(mt_drive_estimate(&result, NULL, &settings, &made, NULL), 0);
    assert_int_equal(made->verdict, MT_VERDICT_FITS);
    assert_int_equal(made->tally.places[1].total_high_bytes, 1000 * MIB);
    assert_int_equal(mt_drive_overhead(&settings, 0, &held_back, NULL), 0);
    assert_int_equal(held_back, 100 * MIB);
    mt_estimate_destroy(made);
    mt_drive_result_finish(&result);
}

/* Learnt here: 200 MiB of context, 50 of a library's workspace. Both are held back, both added. */
static void test_what_was_learnt_is_held_back_as_it_is_added(void **state)
{
    (void)state;
    const uint64_t bytes = 1024 * MIB;
    const struct mt_residue learnt[] = {
        {.place_kind = "device",
         .category = MT_CATEGORY_CONTEXT,
         .n = 3,
         .low_bytes = (int64_t)(200 * MIB),
         .mean_bytes = (int64_t)(200 * MIB),
         .high_bytes = (int64_t)(200 * MIB)},
        {.place_kind = "device",
         .category = MT_CATEGORY_WORKSPACE,
         .n = 3,
         .low_bytes = (int64_t)(50 * MIB),
         .mean_bytes = (int64_t)(50 * MIB),
         .high_bytes = (int64_t)(50 * MIB)},
    };
    const struct mt_predict_settings settings = {.device_kind = "cuda",
                                                 .device_bytes = &bytes,
                                                 .n_devices = 1,
                                                 .residues = learnt,
                                                 .n_residues = 2};
    struct mt_drive_result result;
    struct mt_estimate *made = NULL;
    uint64_t held_back = 0;
    RUN(&result, "attach", "alloc=0,0x10,104857600,1,CUDA0,", "free=0x10");
    assert_int_equal(mt_drive_estimate(&result, NULL, &settings, &made, NULL), 0);
    assert_int_equal(mt_drive_overhead(&settings, 0, &held_back, NULL), 0);
    assert_int_equal(held_back, 250 * MIB);
    assert_int_equal(made->tally.places[1].total_allocated_bytes, 100 * MIB + held_back);
    mt_estimate_destroy(made);
    mt_drive_result_finish(&result);
}

static void test_a_program_that_runs_out_says_of_what_and_by_how_much(void **state)
{
    (void)state;
    struct mt_drive_result result;
    RUN(&result, "attach", "mark=model", "refuse=0,314572800,104857600,CUDA0,cache_k_l0",
        "say=no memory", "exit=1");
    assert_int_equal(result.outcome, MT_DRIVE_RUNS_OUT);
    assert_says(result.why, "gpu:0 has no room for 300.00 MiB");
    assert_says(result.why, "CUDA0: cache_k_l0");
    assert_says(result.why, "100.00 MiB are free, 200.00 MiB are missing");
    assert_says(result.why, "(while it made the context)");
    assert_string_equal(result.words, "no memory");
    struct mt_estimate *made = estimate(&result);
    assert_int_equal(made->verdict, MT_VERDICT_CANNOT);
    assert_string_equal(made->reason, result.why);
    mt_estimate_destroy(made);
    mt_drive_result_finish(&result);
}

static void test_a_program_that_copes_is_judged_by_its_end(void **state)
{
    (void)state;
    struct mt_drive_result result;
    RUN(&result, "attach", "refuse=0,300,100,CUDA0", "alloc=0,0x10,1000,1,CUDA0,");
    assert_int_equal(result.outcome, MT_DRIVE_RUNS_SHORT);
    assert_int_equal(result.n_refusals, 1);
    assert_string_equal(result.why, "");
    mt_drive_result_finish(&result);
}

static int has_note(const struct mt_tally *tally, const char *text)
{
    for (size_t i = 0; i < tally->n_notes; i++)
        if (strstr(tally->notes[i], text))
            return 1;
    return 0;
}

/* Category 4: buffers for computing. */
static void test_a_build_that_is_not_known_is_told(void **state)
{
    (void)state;
    struct mt_drive_result result;
    RUN(&result, "attach", "builds=10616,10815,0", "alloc=0,0x10,1000,4,CUDA0,");
    const struct mt_tally_row *row =
        mt_tally_row_of(&result.tally->places[1], MT_CATEGORY_ACTIVATIONS);
    assert_int_equal(row->provenance, MT_PROVENANCE_EXACT);
    assert_true(has_note(result.tally, "ggml 0.22.0 is of builds 10616 to 10815"));
    assert_true(has_note(result.tally, "--engine llama.cpp@BUILD"));
    assert_string_equal(result.version, "11434 (by ggml 0.22.0)");
    mt_drive_result_finish(&result);
}

static void test_what_builds_differ_in_is_not_exact(void **state)
{
    (void)state;
    struct mt_drive_result result;
    RUN(&result, "attach", "builds=10616,10815,2", "alloc=0,0x10,1000,4,CUDA0,",
        "alloc=0,0x20,500,1,CUDA0,", "alloc=255,0x30,300,4,CUDA_Host,");
    const struct mt_tally *tally = result.tally;
    const struct mt_tally_row *row = mt_tally_row_of(&tally->places[1], MT_CATEGORY_ACTIVATIONS);
    assert_int_equal(row->provenance, MT_PROVENANCE_DERIVED);
    assert_int_equal(row->low_bytes, 740);
    assert_int_equal(row->high_bytes, 1260);
    assert_int_equal(tally->places[1].total_low_bytes, 500 + 740);
    assert_int_equal(tally->places[1].total_high_bytes, 500 + 1260);
    assert_int_equal(mt_tally_row_of(&tally->places[1], MT_CATEGORY_WEIGHTS)->provenance,
                     MT_PROVENANCE_EXACT);
    assert_int_equal(mt_tally_row_of(&tally->places[0], MT_CATEGORY_ACTIVATIONS)->provenance,
                     MT_PROVENANCE_EXACT);
    assert_true(has_note(tally, "keep for fused operations"));
    mt_drive_result_finish(&result);
}

static void test_a_generation_that_nobody_said_is_not_exact(void **state)
{
    (void)state;
    struct mt_drive_result result;
    RUN(&result, "attach", "assumed=rdna4,0", "alloc=0,0x10,1000,4,ROCm0,",
        "alloc=0,0x20,500,1,ROCm0,");
    const struct mt_tally_place *place = &result.tally->places[1];
    const struct mt_tally_row *row = mt_tally_row_of(place, MT_CATEGORY_ACTIVATIONS);
    assert_int_equal(row->provenance, MT_PROVENANCE_DERIVED);
    assert_int_equal(row->high_bytes, 1000);
    assert_int_equal(mt_tally_row_of(place, MT_CATEGORY_WEIGHTS)->provenance, MT_PROVENANCE_EXACT);
    assert_true(has_note(result.tally, "behave as rdna4"));
    mt_drive_result_finish(&result);
    RUN(&result, "attach", "assumed=rdna4,1", "alloc=0,0x10,1000,4,ROCm0,");
    row = mt_tally_row_of(&result.tally->places[1], MT_CATEGORY_ACTIVATIONS);
    assert_true(row->low_bytes < 1000 && row->high_bytes > 1000);
    mt_drive_result_finish(&result);
}

static void test_how_another_vendor_aligns_is_not_exact(void **state)
{
    (void)state;
    struct mt_drive_result result;
    RUN(&result, "attach", "vendor=amd", "alloc=0,0x20,500,1,Vulkan0,");
    const struct mt_tally_place *place = &result.tally->places[1];
    assert_int_equal(mt_tally_row_of(place, MT_CATEGORY_WEIGHTS)->provenance,
                     MT_PROVENANCE_DERIVED);
    assert_true(has_note(result.tally, "Vulkan driver of amd"));
    mt_drive_result_finish(&result);
    RUN(&result, "attach", "vendor=nvidia", "alloc=0,0x20,500,1,Vulkan0,");
    place = &result.tally->places[1];
    assert_int_equal(mt_tally_row_of(place, MT_CATEGORY_WEIGHTS)->provenance, MT_PROVENANCE_EXACT);
    mt_drive_result_finish(&result);
}

static void test_devices_that_no_log_confirms_are_not_exact(void **state)
{
    (void)state;
    struct mt_drive_result result;
    RUN(&result, "attach", "unconfirmed=ROCm", "alloc=0,0x10,1000,4,ROCm0,",
        "alloc=0,0x20,500,1,ROCm0,");
    const struct mt_tally_place *place = &result.tally->places[1];
    const struct mt_tally_row *row = mt_tally_row_of(place, MT_CATEGORY_ACTIVATIONS);
    assert_int_equal(row->provenance, MT_PROVENANCE_DERIVED);
    assert_int_equal(row->low_bytes, 1000);
    assert_int_equal(row->high_bytes, 1000);
    assert_int_equal(mt_tally_row_of(place, MT_CATEGORY_WEIGHTS)->provenance,
                     MT_PROVENANCE_DERIVED);
    assert_true(has_note(result.tally, "No published log"));
    mt_drive_result_finish(&result);
}

static void test_devices_that_order_a_graph_themselves_are_not_exact(void **state)
{
    (void)state;
    struct mt_drive_result result;
    RUN(&result, "attach", "reordered", "alloc=0,0x10,1000,4,Vulkan0,");
    const struct mt_tally_row *row =
        mt_tally_row_of(&result.tally->places[1], MT_CATEGORY_ACTIVATIONS);
    assert_int_equal(row->provenance, MT_PROVENANCE_DERIVED);
    assert_int_equal(row->low_bytes, 900);
    assert_int_equal(row->high_bytes, 1100);
    mt_drive_result_finish(&result);
}

static void test_a_crash_is_the_programs_own(void **state)
{
    (void)state;
    struct mt_drive_result result;
    RUN(&result, "attach", "say=GGML_ASSERT failed", "abort");
    assert_int_equal(result.outcome, MT_DRIVE_FAILS);
    assert_says(result.why, "the program itself failed");
    assert_says(result.why, "SIGABRT");
    assert_string_equal(result.words, "GGML_ASSERT failed");
    mt_drive_result_finish(&result);
}

static void
test_a_program_that_took_more_after_a_refusal_may_have_ended_for_another_reason(void **state)
{
    (void)state;
    struct mt_drive_result result;
    RUN(&result, "context", "alloc=0,0x10,1000,0,device memory,",
        "refuse=0,5000000,4,device memory", "exit=1");
    assert_int_equal(result.outcome, MT_DRIVE_RUNS_OUT);
    assert_null(strstr(result.why, "took more"));
    mt_drive_result_finish(&result);
    RUN(&result, "context", "refuse=0,5000000,4,device memory",
        "alloc=0,0x10,1000,0,device memory,", "exit=1");
    assert_int_equal(result.outcome, MT_DRIVE_RUNS_OUT);
    assert_says(result.why, "took more after it");
    mt_drive_result_finish(&result);
}

static void test_a_model_that_the_engine_does_not_know_wants_a_newer_build(void **state)
{
    (void)state;
    struct mt_drive_result result;
    RUN(&result, "attach", "say=error loading model: unknown model architecture: 'zlama'",
        "exit=1");
    assert_int_equal(result.outcome, MT_DRIVE_FAILS);
    assert_says(result.why, "exit status 1");
    assert_says(result.why, "newer build");
    mt_drive_result_finish(&result);
}

/* A limit that nothing here comes near, so that it is only told of. */
static void test_a_limit_of_addresses_is_told_where_the_program_fails(void **state)
{
    (void)state;
    struct mt_drive_result result;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    struct rlimit limited = {.rlim_cur = (rlim_t)1 << 62, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &limited), 0);
    RUN(&result, "attach", "abort");
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_says(result.why, "ulimit -v");
    assert_says(result.why, "with no allocation refused");
    mt_drive_result_finish(&result);
}

static void test_a_hang_is_the_programs_own_and_is_ended(void **state)
{
    (void)state;
    struct mt_drive_result result;
    const char *const argv[] = {getenv("REHEARSED_CHILD"), "attach", "say=waiting", "wait", NULL};
    run_until_it_waits(argv, &result);
    assert_int_equal(result.outcome, MT_DRIVE_UNDECIDED);
    assert_says(result.why, "the program itself hangs");
    mt_drive_result_finish(&result);
}

static void test_a_program_without_ggml_says_so(void **state)
{
    (void)state;
    struct mt_drive_result result;
    RUN(&result, "preloaded");
    assert_true(result.is_unseen);
    assert_says(result.why, "loaded ggml");
    mt_drive_result_finish(&result);
    RUN(&result, "preloaded", "exit=3");
    assert_true(result.is_unseen);
    assert_says(result.why, "ended with status 3 before it loaded ggml");
    mt_drive_result_finish(&result);
}

/* As after env -i: ggml is loaded, and what was to be preloaded is not. */
static void test_a_ggml_that_was_started_without_the_devices_is_told_from_none(void **state)
{
    (void)state;
    struct mt_drive_result result;
    char folder[] = "/tmp/memtally-job-XXXXXX";
    char word[64];
    assert_non_null(mkdtemp(folder));
    snprintf(word, sizeof word, "map=%s/libggml-base.so", folder);
    const char *const argv[] = {
        getenv("REHEARSED_CHILD"), "preloaded", word, "say=waiting", "wait", NULL};
    run_until_it_waits(argv, &result);
    assert_true(result.is_unseen);
    assert_says(result.why, "took LD_PRELOAD or MEMTALLY_REHEARSAL out of the environment");
    mt_drive_result_finish(&result);
    assert_int_equal(unlink(strchr(word, '=') + 1), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void test_a_sanitizer_that_wants_to_be_first_is_named(void **state)
{
    (void)state;
    struct mt_drive_result result;
    RUN(&result, "say===1==ASan runtime does not come first in initial library list", "exit=1");
    assert_true(result.is_unseen);
    assert_says(result.why, "address sanitizer");
    mt_drive_result_finish(&result);
}

static void test_why_a_ggml_takes_no_devices_is_told_in_its_own_words(void **state)
{
    (void)state;
    struct mt_drive_result result;
    RUN(&result, "refused=its backends have API version 9");
    assert_true(result.is_unseen);
    assert_says(result.why, "no pretended devices: its backends have API version 9");
    mt_drive_result_finish(&result);
    RUN(&result, "refused=it does not export ggml_op_desc");
    assert_true(result.is_unseen);
    assert_says(result.why, "does not export ggml_op_desc");
    assert_null(strstr(result.why, "version"));
    mt_drive_result_finish(&result);
}

static void test_what_is_taken_late_is_told_with_its_growth(void **state)
{
    (void)state;
    struct mt_drive_result result;
    struct mt_rehearsed_late *late;
    RUN(&result, "attach", "alloc=0,0x10,100,4,CUDA0,compute", "mark=ready", "mark=request: long",
        "free=0x10", "alloc=0,0x20,130,4,CUDA0,compute", "alloc=255,0x30,7,2,heap,copy",
        "refuse=255,50,5,heap");
    assert_int_equal(mt_drive_late(&result, &late), 3);
    assert_string_equal(late[0].step, "request: long");
    assert_int_equal(late[0].bytes, 130);
    assert_int_equal(late[0].before_bytes, 100);
    assert_int_equal(late[1].before_bytes, 0);
    assert_string_equal(late[1].place, "host");
    assert_true(late[2].was_refused);
    free(late);
    mt_drive_result_finish(&result);
}

/* Freed again, grown twice, and there to stay: only a program that still runs can tell them apart.
 */
static void test_what_is_freed_again_and_what_grew_from_is_told(void **state)
{
    (void)state;
    struct mt_drive_result result;
    struct mt_rehearsed_late *late;
    const char *const argv[] = {getenv("REHEARSED_CHILD"),
                                "attach",
                                "alloc=0,0x10,100,4,CUDA0,compute",
                                "mark=ready",
                                "alloc=255,0x30,7,2,heap,copy",
                                "free=0x30",
                                "free=0x10",
                                "alloc=0,0x20,130,4,CUDA0,compute",
                                "free=0x20",
                                "alloc=0,0x40,150,4,CUDA0,compute",
                                "say=waiting",
                                "wait",
                                NULL};
    run_until_it_waits(argv, &result);
    assert_int_equal(mt_drive_late(&result, &late), 3);
    assert_true(late[0].was_freed && late[1].was_freed && !late[2].was_freed);
    assert_int_equal(late[1].before_bytes, 100);
    assert_int_equal(late[2].before_bytes, 130);
    assert_int_equal(late[2].ready_bytes, 100);
    free(late);
    mt_drive_result_finish(&result);
}

static void test_a_temporary_folder_is_gone_afterwards(void **state)
{
    (void)state;
    struct mt_drive_result result;
    char folder[PATH_MAX];
    RUN(&result, "attach");
    snprintf(folder, sizeof folder, "%s", result.folder);
    assert_int_equal(access(folder, F_OK), 0);
    mt_drive_result_finish(&result);
    assert_int_not_equal(access(folder, F_OK), 0);
}

/* What PyTorch held is told by files there: without them there is no answer, and it is not the
 * user's input that is wrong. */
static void test_a_program_that_removes_its_rehearsals_folder_is_told_so(void **state)
{
    (void)state;
    struct mt_drive_result result;
    struct mt_error error = {0};
    const char *const argv[] = {
        "sh", "-c", "\"$REHEARSED_CHILD\" context; rm -r \"${" MT_ACCOUNT_VARIABLE "%/*}\"", NULL};
    const struct mt_drive_job job = {
        .argv = (char **)(uintptr_t)argv,
        .environment = environ,
        .devices = &device,
        .n_devices = 1,
        .pretend_path = getenv("REHEARSED_NOTHING"),
        .timeout_ns = 60 * SECOND,
    };
    assert_int_equal(mt_drive_run(&job, &result, &error), MT_EIO);
    assert_says(error.text, "the program removed ");
    assert_says(error.text, "/memtally-rehearse-");
    assert_says(error.text, "rehearse it in a folder that it leaves alone");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_program_that_ends_well_has_a_verdict_of_what_it_took),
        cmocka_unit_test(test_what_is_reserved_stands_for_the_context),
        cmocka_unit_test(test_what_was_learnt_is_held_back_as_it_is_added),
        cmocka_unit_test(test_a_program_that_runs_out_says_of_what_and_by_how_much),
        cmocka_unit_test(test_a_program_that_copes_is_judged_by_its_end),
        cmocka_unit_test(test_a_build_that_is_not_known_is_told),
        cmocka_unit_test(test_what_builds_differ_in_is_not_exact),
        cmocka_unit_test(test_a_generation_that_nobody_said_is_not_exact),
        cmocka_unit_test(test_devices_that_no_log_confirms_are_not_exact),
        cmocka_unit_test(test_how_another_vendor_aligns_is_not_exact),
        cmocka_unit_test(test_devices_that_order_a_graph_themselves_are_not_exact),
        cmocka_unit_test(test_a_crash_is_the_programs_own),
        cmocka_unit_test(
            test_a_program_that_took_more_after_a_refusal_may_have_ended_for_another_reason),
        cmocka_unit_test(test_a_model_that_the_engine_does_not_know_wants_a_newer_build),
        cmocka_unit_test(test_a_limit_of_addresses_is_told_where_the_program_fails),
        cmocka_unit_test(test_a_hang_is_the_programs_own_and_is_ended),
        cmocka_unit_test(test_a_program_without_ggml_says_so),
        cmocka_unit_test(test_a_ggml_that_was_started_without_the_devices_is_told_from_none),
        cmocka_unit_test(test_a_sanitizer_that_wants_to_be_first_is_named),
        cmocka_unit_test(test_why_a_ggml_takes_no_devices_is_told_in_its_own_words),
        cmocka_unit_test(test_what_is_taken_late_is_told_with_its_growth),
        cmocka_unit_test(test_what_is_freed_again_and_what_grew_from_is_told),
        cmocka_unit_test(test_a_temporary_folder_is_gone_afterwards),
        cmocka_unit_test(test_a_program_that_removes_its_rehearsals_folder_is_told_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
