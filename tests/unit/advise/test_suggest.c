/* SPDX-License-Identifier: MIT */
/* Flags with which a program of llama.cpp fits, each rehearsed: a program whose need follows from
 * its flags by formulas (planned.c) runs out, and what is suggested is held against the formulas.
 */
#include "tests/support/unit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advise/answer.h"
#include "advise/suggest.h"

#define MODEL  CONFIG_DIR "/Meta-Llama-3.1-8B.json"
#define MIB    (UINT64_C(1) << 20)
#define SECOND UINT64_C(1000000000)

/* 687 MiB are for the program. */
static const struct mt_rehearsal_device device = {.bytes = 1024 * MIB, .reserved_bytes = 337 * MIB};

static volatile sig_atomic_t interrupted;

/* A job and what is advised on it. */
struct advised {
    char *argv[16];
    struct mt_drive_job job;
    struct mt_advise_answer answer;
};

/* Runs `words` behind the program's name, which must run out or cope, and looks for flags. */
static struct advised *advise_on(const char *program, const struct mt_rehearsal_device *on,
                                 uint64_t host_bytes, enum mt_drive_outcome outcome,
                                 const char *words)
{
    struct advised *advised = calloc(1, sizeof *advised);
    char copy[512];
    char *rest = copy;
    size_t n = 0;
    assert_non_null(advised);
    snprintf(copy, sizeof copy, "%s", words);
    advised->argv[n++] = strdup(program);
    for (char *word; (word = strsep(&rest, " ")) != NULL && n < 15;)
        advised->argv[n++] = strdup(word);
    advised->job = (struct mt_drive_job){
        .argv = advised->argv,
        .environment = environ,
        .devices = on,
        .n_devices = on ? 1 : 0,
        .host_bytes = host_bytes,
        .layer = MT_DRIVE_LAYER_GGML,
        .pretend_path = getenv("REHEARSED_NOTHING"),
        .timeout_ns = 120 * SECOND,
        .interrupted = &interrupted,
    };
    assert_int_equal(mt_drive_run(&advised->job, &advised->answer.result, NULL), 0);
    assert_int_equal(advised->answer.result.outcome, outcome);
    return advised;
}

/* As mt_advise_answer_find_changes() does it, with time for a busy machine. */
static void look(struct advised *advised)
{
    struct mt_drive_result *result = &advised->answer.result;
    struct mt_rehearsal_options options;
    mt_drive_job_options(&advised->job, result->folder, advised->job.pretend_path, &options);
    const struct mt_advise_suggest_settings settings = {
        .options = &options,
        .rehearsal = result->rehearsal,
        .place = result->refusal->place,
        .was = result->outcome,
        .limit_ns = 500 * SECOND,
    };
    assert_int_equal(mt_advise_suggest(&settings, &advised->answer.changes, NULL), 0);
    mt_advise_answer_count(&advised->answer);
    mt_advise_answer_fill(&advised->job, 1, &advised->answer);
}

static void finish(struct advised *advised)
{
    mt_advise_answer_finish(&advised->answer);
    for (size_t i = 0; advised->argv[i]; i++)
        free(advised->argv[i]);
    free(advised);
}

static const struct mt_rehearsed_change *change_of(const struct advised *advised, size_t i)
{
    assert_true(i < advised->answer.changes.n);
    return &advised->answer.document_changes[i];
}

/* 200 MiB of weights and 64 of compute buffers leave 423 for the cache, of which a token takes 64
 * KiB: 6,768, which is 6,656 in steps of 256. A layer takes a 33rd of 1,224 MiB: 16 of them and 64
 * MiB are 657.5. Neither the smallest batch nor a cache of eight bits is enough. */
static void test_each_flag_is_turned_as_far_as_the_device_asks(void **state)
{
    struct advised *advised =
        advise_on(getenv("PLANNED"), &device, 0, MT_DRIVE_RUNS_OUT, "-m " MODEL " -c 16384");
    (void)state;
    look(advised);
    assert_int_equal(advised->answer.changes.n, 2);
    assert_string_equal(change_of(advised, 0)->flags, "-c 6656");
    assert_string_equal(change_of(advised, 0)->instead_of, "-c 16384");
    assert_string_equal(change_of(advised, 0)->options, "--context 6656");
    assert_int_equal(change_of(advised, 0)->held_bytes, (337 + 264 + 416) * MIB);
    assert_int_equal(change_of(advised, 0)->capacity_bytes, 1024 * MIB);
    assert_string_equal(change_of(advised, 1)->flags, "-ngl 16");
    assert_string_equal(change_of(advised, 1)->options, "--gpu-layers 16");
    assert_string_equal(advised->answer.note, "");
    assert_string_equal(advised->answer.rehearsal.outcome, "ran out");
    finish(advised);
}

/* 10,000 tokens take 625 MiB. With eight bits they take half, and have 110.5 of 687 left. */
static void test_a_cache_of_eight_bits_is_told_as_both_options(void **state)
{
    struct advised *advised =
        advise_on(getenv("PLANNED"), &device, 0, MT_DRIVE_RUNS_OUT, "-c 10000");
    (void)state;
    look(advised);
    assert_string_equal(change_of(advised, 0)->flags, "-ctk q8_0 -ctv q8_0");
    assert_string_equal(change_of(advised, 0)->options, "--kv-type-k q8_0 --kv-type-v q8_0");
    assert_int_equal(change_of(advised, 0)->held_bytes, 1024 * MIB - 221 * MIB / 2);
    finish(advised);
}

/* 900 MiB of weights and 64 of cache in 33 layers: 21 of them and 64 MiB are 677.5. */
static void test_where_weights_alone_are_too_much_only_layers_move(void **state)
{
    struct advised *advised = advise_on(getenv("PLANNED"), &device, 0, MT_DRIVE_RUNS_OUT,
                                        "-m " MODEL " -c 1024 --weights 900");
    (void)state;
    look(advised);
    assert_int_equal(advised->answer.changes.n, 1);
    assert_string_equal(change_of(advised, 0)->flags, "-ngl 21");
    finish(advised);
}

/* A program that goes on without what it was refused must be given all of it. */
static void test_a_program_that_copes_is_given_flags_with_which_it_need_not(void **state)
{
    struct advised *advised =
        advise_on(getenv("PLANNED"), &device, 0, MT_DRIVE_RUNS_SHORT, "-c 16384 --copes");
    (void)state;
    look(advised);
    assert_string_equal(change_of(advised, 0)->flags, "-c 6656");
    assert_string_equal(advised->answer.rehearsal.outcome, "coped");
    finish(advised);
}

/* Layers are on the host already, so none is moved there: the last that fails is a step of context.
 */
static void test_a_host_that_is_short_is_helped_by_the_context_alone(void **state)
{
    struct advised *advised =
        advise_on(getenv("PLANNED"), NULL, 687 * MIB, MT_DRIVE_RUNS_OUT, "-m " MODEL " -c 16384");
    (void)state;
    look(advised);
    assert_int_equal(advised->answer.changes.n, 1);
    assert_string_equal(change_of(advised, 0)->flags, "-c 6656");
    assert_int_equal(change_of(advised, 0)->held_bytes, 680 * MIB);
    assert_string_equal(advised->answer.changes.least, "-c 6912");
    finish(advised);
}

/* 650 MiB of weights leave 37: the smallest batch takes 8, a token of eight bits 32 KiB. */
static void test_flags_add_up_where_none_is_enough(void **state)
{
    struct advised *advised =
        advise_on(getenv("PLANNED"), &device, 0, MT_DRIVE_RUNS_OUT, "-c 16384 --weights 650");
    (void)state;
    look(advised);
    assert_int_equal(advised->answer.changes.n, 1);
    assert_string_equal(change_of(advised, 0)->flags, "-c 768 -ctk q8_0 -ctv q8_0 -ub 64");
    assert_string_equal(change_of(advised, 0)->options,
                        "--context 768 --kv-type-k q8_0 --kv-type-v q8_0 --ubatch 64");
    finish(advised);
}

static void test_what_nothing_helps_is_told_with_the_least_that_was_tried(void **state)
{
    struct advised *advised =
        advise_on(getenv("PLANNED"), &device, 0, MT_DRIVE_RUNS_OUT, "-c 4096 --weights 700");
    (void)state;
    look(advised);
    assert_int_equal(advised->answer.changes.n, 0);
    assert_string_equal(advised->answer.note,
                        "No change of flags that was tried fits: not even -c 512 -ctk q8_0 -ctv "
                        "q8_0 -ub 64, in 2 more rehearsals.");
    finish(advised);
}

/* The command was broken off while it looked. */
static void test_a_search_that_is_broken_off_does_not_say_that_there_is_nothing(void **state)
{
    struct advised *advised =
        advise_on(getenv("PLANNED"), &device, 0, MT_DRIVE_RUNS_OUT, "-c 16384");
    (void)state;
    interrupted = 1;
    mt_advise_answer_find_changes(&advised->job, &advised->answer);
    interrupted = 0;
    assert_int_equal(advised->answer.changes.n, 0);
    assert_null(strstr(advised->answer.note, "knows no change"));
    assert_non_null(strstr(advised->answer.note, "broken off"));
    finish(advised);
}

static void test_a_program_whose_flags_are_not_known_is_named(void **state)
{
    struct advised *advised =
        advise_on(getenv("STRANGE"), &device, 0, MT_DRIVE_RUNS_OUT, "-c 16384");
    (void)state;
    mt_advise_answer_find_changes(&advised->job, &advised->answer);
    assert_int_equal(advised->answer.changes.n, 0);
    assert_non_null(strstr(advised->answer.note, "memtally suggests no flags: memtally does not "
                                                 "know the flags of"));
    assert_non_null(strstr(advised->answer.note, "strange"));
    finish(advised);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_flag_is_turned_as_far_as_the_device_asks),
        cmocka_unit_test(test_a_cache_of_eight_bits_is_told_as_both_options),
        cmocka_unit_test(test_where_weights_alone_are_too_much_only_layers_move),
        cmocka_unit_test(test_a_program_that_copes_is_given_flags_with_which_it_need_not),
        cmocka_unit_test(test_a_host_that_is_short_is_helped_by_the_context_alone),
        cmocka_unit_test(test_flags_add_up_where_none_is_enough),
        cmocka_unit_test(test_what_nothing_helps_is_told_with_the_least_that_was_tried),
        cmocka_unit_test(test_a_search_that_is_broken_off_does_not_say_that_there_is_nothing),
        cmocka_unit_test(test_a_program_whose_flags_are_not_known_is_named),
    };
    return RUN_TESTS(tests);
}
