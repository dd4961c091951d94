/* SPDX-License-Identifier: MIT */
/* A rehearsal from its start to its tally, with a program that writes the account itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <memtally/error.h>
#include <memtally/rehearsal.h>
#include <memtally/tally.h>
#include <memtally/units.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rehearse/account.h"
#include "rehearse/program.h"
#include "rehearse/rehearsal.h"

#define MIB    (UINT64_C(1) << 20)
#define SECOND UINT64_C(1000000000)

/* A rehearsal with its folder. */
struct stage {
    char folder[64];
    struct mt_rehearsal_device devices[2];
    struct mt_rehearsal_options options;
    struct mt_rehearsal *rehearsal;
    struct mt_rehearsal_status status;
    struct mt_error error;
};

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status;
    (void)type;
    (void)where;
    return remove(path);
}

static int set_up(void **state)
{
    struct stage *stage = calloc(1, sizeof *stage);
    snprintf(stage->folder, sizeof stage->folder, "/tmp/memtally-test-rehearsal-XXXXXX");
    assert_non_null(mkdtemp(stage->folder));
    stage->devices[0] =
        (struct mt_rehearsal_device){.bytes = 1024 * MIB, .reserved_bytes = 24 * MIB};
    stage->devices[1] = (struct mt_rehearsal_device){.bytes = 2048 * MIB};
    stage->options = (struct mt_rehearsal_options){.directory = stage->folder,
                                                   .pretend_path = getenv("REHEARSED_NOTHING"),
                                                   .environment = environ,
                                                   .devices = stage->devices,
                                                   .n_devices = 2,
                                                   .host_bytes = 4096 * MIB,
                                                   .stdout_fd = -1,
                                                   .stderr_fd = -1};
    *state = stage;
    return 0;
}

static int tear_down(void **state)
{
    struct stage *stage = *state;
    mt_rehearsal_destroy(stage->rehearsal);
    nftw(stage->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(stage);
    return 0;
}

static void start(struct stage *stage, const char *const *argv)
{
    stage->options.argv = (char **)(uintptr_t)argv;
    int result = mt_rehearsal_start(&stage->options, &stage->rehearsal, &stage->error);
    if (result < 0)
        print_error("%s\n", stage->error.text);
    assert_int_equal(result, 0);
}

static void wait_for_end(struct stage *stage)
{
    for (int i = 0; i < 60; i++) {
        assert_int_equal(mt_rehearsal_wait(stage->rehearsal, SECOND, &stage->status, NULL), 0);
        if (!stage->status.running)
            return;
    }
    fail_msg("the program did not end");
}

#define RUN(stage, ...)                                                                            \
    do {                                                                                           \
        const char *const argv_[] = {getenv("REHEARSED_CHILD"), __VA_ARGS__, NULL};                \
        start(stage, argv_);                                                                       \
        wait_for_end(stage);                                                                       \
    } while (0)

static int refuse(struct stage *stage)
{
    const char *const argv[] = {getenv("REHEARSED_CHILD"), NULL};
    if (!stage->options.argv)
        stage->options.argv = (char **)(uintptr_t)argv;
    int result = mt_rehearsal_start(&stage->options, &stage->rehearsal, &stage->error);
    stage->options.argv = NULL;
    return result;
}

static void read_file(const struct stage *stage, const char *name, char *text, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", stage->folder, name);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t got = read(fd, text, size - 1);
    assert_true(got >= 0);
    text[got] = '\0';
    close(fd);
}

static void test_devices_come_into_the_environment_and_real_ones_go(void **state)
{
    struct stage *stage = *state;
    static const char *const environment[] = {"LD_PRELOAD=libm.so.6", "CUDA_VISIBLE_DEVICES=0,1",
                                              "MEMTALLY_REHEARSAL=/nowhere", "KEPT=as it was",
                                              NULL};
    char text[2048];
    char expected[2048];
    const char *object = getenv("REHEARSED_NOTHING");
    stage->options.environment = (char **)(uintptr_t)environment;
    RUN(stage, "env=LD_PRELOAD", "env=GGML_BACKEND_PATH", "env=MEMTALLY_REHEARSAL",
        "env=CUDA_VISIBLE_DEVICES", "env=GGML_VK_VISIBLE_DEVICES", "env=KEPT");
    read_file(stage, "output", text, sizeof text);
    snprintf(expected, sizeof expected,
             "LD_PRELOAD=%s:libm.so.6\nGGML_BACKEND_PATH=%s\nMEMTALLY_REHEARSAL=%s/account\n"
             "CUDA_VISIBLE_DEVICES=-1\nGGML_VK_VISIBLE_DEVICES=\nKEPT=as it was\n",
             object, object, stage->folder);
    assert_string_equal(text, expected);
}

static void test_how_the_program_ended_is_told(void **state)
{
    struct stage *stage = *state;
    RUN(stage, "say=first words", "say=and the last", "exit=42");
    assert_int_equal(stage->status.exit_code, 42);
    assert_int_equal(stage->status.signal, 0);
    char words[64];
    mt_rehearsal_last_words(stage->rehearsal, words, sizeof words);
    assert_string_equal(words, "first words\nand the last");
    mt_rehearsal_last_words(stage->rehearsal, words, 16); /* whole lines only */
    assert_string_equal(words, "and the last");
}

/* As vLLM writes them; a sequence that is cut short at the end is left out as well. */
static void test_colours_are_no_part_of_last_words(void **state)
{
    struct stage *stage = *state;
    RUN(stage, "say=\033[1;36m(EngineCore)\033[0;0m no room\033[", "exit=1");
    char words[64];
    mt_rehearsal_last_words(stage->rehearsal, words, sizeof words);
    assert_string_equal(words, "(EngineCore) no room");
}

static void test_a_crash_is_told_as_its_signal(void **state)
{
    struct stage *stage = *state;
    RUN(stage, "abort");
    assert_int_equal(stage->status.signal, SIGABRT);
    assert_int_equal(stage->status.exit_code, 128 + SIGABRT);
}

/* The account is the program's to write: what it does to it is told, and harms nobody else. */
static void spoil(struct stage *stage, const char *how)
{
    const char *const argv[] = {getenv("REHEARSED_CHILD"), how, NULL};
    start(stage, argv);
    assert_int_equal(
        mt_rehearsal_wait(stage->rehearsal, 60 * SECOND, &stage->status, &stage->error), MT_EIO);
    assert_non_null(strstr(stage->error.text, "wrote over"));
}

static void test_an_account_that_is_cut_off_is_told(void **state)
{
    spoil(*state, "cut");
}

static void test_an_account_with_devices_without_number_is_told(void **state)
{
    spoil(*state, "scribble");
}

static void test_a_long_output_keeps_its_end_and_little_of_the_disk(void **state)
{
    struct stage *stage = *state;
    const char *const argv[] = {getenv("REHEARSED_CHILD"), "flood=64", "say=the end", "wait", NULL};
    char words[128];
    struct stat status = {0};
    char path[128];
    start(stage, argv);
    do {
        assert_int_equal(mt_rehearsal_wait(stage->rehearsal, SECOND / 10, &stage->status, NULL), 0);
        mt_rehearsal_last_words(stage->rehearsal, words, sizeof words);
    } while (!strstr(words, "the end"));
    mt_rehearsal_wait(stage->rehearsal, SECOND / 4, &stage->status, NULL);
    snprintf(path, sizeof path, "%s/errors", stage->folder);
    assert_int_equal(stat(path, &status), 0);
    assert_true((uint64_t)status.st_blocks * 512 <= 12 * MIB);
}

static const struct mt_tally_place *place_of(const struct mt_tally *tally, const char *name)
{
    for (size_t i = 0; i < tally->n_places; i++)
        if (strcmp(tally->places[i].place, name) == 0)
            return &tally->places[i];
    fail_msg("no place %s", name);
    return NULL;
}

/* What comes after an event that a killed process left half written is not lost with it. */
static void test_a_process_that_is_killed_as_it_writes_hides_nothing_of_others(void **state)
{
    struct stage *stage = *state;
    struct mt_tally *tally;
    RUN(stage, "child=hole", "alloc=0,16,1048576,1,CUDA0,weights");
    assert_int_equal(stage->status.n_events, 3); /* the end frees it */
    assert_int_equal(mt_rehearsal_tally(stage->rehearsal, SIZE_MAX, &tally, NULL), 0);
    assert_int_equal(place_of(tally, "gpu:0")->total_allocated_bytes, MIB);
    assert_int_equal(tally->n_notes, 1);
    assert_non_null(strstr(tally->notes[0], "killed while it wrote"));
    mt_tally_destroy(tally);
}

static void test_the_tally_is_of_the_peak_of_each_place(void **state)
{
    struct stage *stage = *state;
    struct mt_tally *tally;
    RUN(stage, "attach", "alloc=0,0x10,100,1,CUDA0,", "alloc=0,0x20,50,4,CUDA0,compute",
        "alloc=1,0x30,7,2,CUDA1,cache_k_l0", "free=0x20", "alloc=1,0x40,8,2,CUDA1,cache_k_l0",
        "alloc=255,0x50,9,0,CPU,", "free=0x50");
    assert_int_equal(mt_rehearsal_tally(stage->rehearsal, SIZE_MAX, &tally, NULL), 0);
    assert_int_equal(tally->kind, MT_TALLY_ESTIMATE);
    assert_int_equal(tally->n_places, 3);
    const struct mt_tally_place *first = place_of(tally, "gpu:0");
    assert_int_equal(first->total_allocated_bytes, 150);
    assert_int_equal(first->capacity_bytes, 1024 * MIB);
    assert_int_equal(first->n_rows, 2);
    assert_int_equal(first->rows[0].provenance, MT_PROVENANCE_EXACT);
    assert_string_equal(mt_tally_row_of(first, MT_CATEGORY_ACTIVATIONS)->details[0].name,
                        "CUDA0: compute");
    const struct mt_tally_row *cache =
        mt_tally_row_of(place_of(tally, "gpu:1"), MT_CATEGORY_KV_CACHE);
    assert_int_equal(cache->allocated_bytes, 15); /* while gpu:0 was past its peak */
    assert_int_equal(cache->n_details, 1);
    assert_int_equal(cache->details[0].count, 2);
    assert_int_equal(cache->low_bytes, 15);
    assert_int_equal(place_of(tally, "host")->total_allocated_bytes, 9);
    mt_tally_destroy(tally);
}

static void test_a_tally_may_be_of_any_event(void **state)
{
    struct stage *stage = *state;
    struct mt_tally *tally;
    RUN(stage, "alloc=0,0x10,100,1,CUDA0,", "alloc=0,0x20,50,4,CUDA0,", "free=0x10");
    assert_int_equal(mt_rehearsal_tally(stage->rehearsal, 2, &tally, NULL), 0);
    assert_int_equal(place_of(tally, "gpu:0")->total_allocated_bytes, 50);
    assert_int_equal(place_of(tally, "gpu:1")->total_allocated_bytes, MT_UNKNOWN);
    mt_tally_destroy(tally);
    assert_int_equal(mt_rehearsal_tally(stage->rehearsal, 1000, &tally, &stage->error), MT_EARG);
}

static uint64_t held(struct stage *stage, size_t index)
{
    struct mt_tally *tally;
    assert_int_equal(mt_rehearsal_tally(stage->rehearsal, index, &tally, NULL), 0);
    uint64_t bytes = place_of(tally, "gpu:0")->total_allocated_bytes;
    mt_tally_destroy(tally);
    return bytes;
}

/* What the devices count as used. */
static uint64_t used(const struct stage *stage)
{
    char path[128];
    uint64_t bytes = 0;
    snprintf(path, sizeof path, "%s/account", stage->folder);
    int fd = open(path, O_RDONLY);
    assert_int_equal(
        pread(fd, &bytes, sizeof bytes, offsetof(struct mt_account, device[0].used_bytes)),
        sizeof bytes);
    close(fd);
    return bytes;
}

static void test_a_killed_process_gives_back_what_it_held(void **state)
{
    struct stage *stage = *state;
    const char *const argv[] = {
        getenv("REHEARSED_CHILD"),         "take=0,105", "alloc=0,0x10,5,1,CUDA0,",
        "child=alloc=0,0x10,100,1,CUDA0,", "wait",       NULL};
    const struct mt_rehearsal_event *event = NULL;
    start(stage, argv);
    do {
        mt_rehearsal_wait(stage->rehearsal, SECOND / 10, &stage->status, NULL);
        event = mt_rehearsal_event_at(stage->rehearsal, 3);
    } while (!event && stage->status.running);
    assert_non_null(event);
    assert_string_equal(event->name, "process ended");
    assert_int_equal(held(stage, 1), 105);
    assert_int_equal(held(stage, 3), 5);
    assert_int_equal(used(stage), 5);
}

static void test_marks_of_the_caller_stand_among_the_events(void **state)
{
    struct stage *stage = *state;
    const char *const argv[] = {getenv("REHEARSED_CHILD"), "refuse=0,2000,1000,CUDA0", "wait",
                                NULL};
    start(stage, argv);
    while (!mt_rehearsal_event_at(stage->rehearsal, 0))
        mt_rehearsal_wait(stage->rehearsal, SECOND / 100, &stage->status, NULL);
    mt_rehearsal_mark(stage->rehearsal, "ready");
    const struct mt_rehearsal_event *refused = mt_rehearsal_event_at(stage->rehearsal, 0);
    assert_int_equal(refused->kind, MT_REHEARSAL_REFUSED);
    assert_int_equal(refused->bytes, 2000);
    assert_int_equal(refused->free_bytes, 1000);
    assert_string_equal(mt_rehearsal_event_at(stage->rehearsal, 1)->name, "ready");
}

/* Runs a program that leaves a process in a session of its own, then does `first` and `last`. */
static void assert_stray_is_ended(struct stage *stage, const char *first, const char *last)
{
    char path[128];
    char word[160];
    char text[32] = "";
    snprintf(path, sizeof path, "%s/stray", stage->folder);
    snprintf(word, sizeof word, "stray=%s", path);
    const char *const argv[] = {getenv("REHEARSED_CHILD"), first, word, last, NULL};
    start(stage, argv);
    while (access(path, R_OK) < 0 || !strchr(text, '\n')) {
        mt_rehearsal_wait(stage->rehearsal, SECOND / 100, &stage->status, NULL);
        if (access(path, R_OK) == 0)
            read_file(stage, "stray", text, sizeof text);
    }
    pid_t stray = (pid_t)atoi(text);
    assert_true(stray > 1);
    mt_rehearsal_stop(stage->rehearsal, SECOND);
    assert_false(mt_program_is_gone((uint32_t)getpid()));
    while (!mt_program_is_gone((uint32_t)stray)) /* the test's own time limit ends it */
        usleep(10000);
}

static void test_what_a_program_leaves_behind_is_ended_too(void **state)
{
    assert_stray_is_ended(*state, "preloaded", "wait");
}

/* It may not have loaded anything yet, so that the account knows of no second process. */
static void test_what_a_program_leaves_behind_at_its_own_end_is_ended_too(void **state)
{
    assert_stray_is_ended(*state, "say=bye", "exit=0");
}

static void test_two_rehearsals_run_at_a_time(void **state)
{
    struct stage *one = *state;
    struct stage *other;
    const char *const argv[] = {getenv("REHEARSED_CHILD"), "alloc=0,0x10,100,1,CUDA0,", "wait",
                                NULL};
    assert_int_equal(set_up((void **)&other), 0);
    start(one, argv);
    start(other, argv);
    while (!mt_rehearsal_event_at(one->rehearsal, 0) || !mt_rehearsal_event_at(other->rehearsal, 0))
        mt_rehearsal_wait(one->rehearsal, SECOND / 100, &one->status, NULL);
    mt_rehearsal_stop(one->rehearsal, SECOND);
    mt_rehearsal_wait(other->rehearsal, 0, &other->status, NULL);
    assert_true(other->status.running);
    assert_int_equal(held(other, 0), 100);
    tear_down((void **)&other);
}

static void test_a_static_program_is_refused_with_what_would_work(void **state)
{
    struct stage *stage = *state;
    const char *const argv[] = {getenv("REHEARSED_STATIC_CHILD"), NULL};
    stage->options.argv = (char **)(uintptr_t)argv;
    assert_int_equal(refuse(stage), MT_EUNSUPPORTED);
    assert_non_null(strstr(stage->error.text, "BUILD_SHARED_LIBS=ON"));
}

static void test_a_setuid_program_is_refused(void **state)
{
    struct stage *stage = *state;
    char path[128];
    char command[512];
    snprintf(path, sizeof path, "%s/privileged", stage->folder);
    snprintf(command, sizeof command, "cp '%s' '%s' && chmod u+xs '%s'", getenv("REHEARSED_CHILD"),
             path, path);
    assert_int_equal(system(command), 0);
    const char *const argv[] = {path, NULL};
    stage->options.argv = (char **)(uintptr_t)argv;
    assert_int_equal(refuse(stage), MT_EUNSUPPORTED);
    assert_non_null(strstr(stage->error.text, "plain copy"));
}

static void test_what_cannot_be_started_says_so(void **state)
{
    struct stage *stage = *state;
    const char *const nobody[] = {"no-such-program-anywhere", NULL};
    const char *const folder[] = {stage->folder, NULL};
    stage->options.argv = (char **)(uintptr_t)nobody;
    assert_int_equal(refuse(stage), MT_ENOTFOUND);
    stage->options.argv = (char **)(uintptr_t)folder;
    assert_int_equal(refuse(stage), MT_EPERM);
    stage->options.pretend_path = "/tmp/a b.so";
    assert_int_equal(refuse(stage), MT_EARG);
    stage->options.pretend_path = "/nowhere/to/be/found.so";
    assert_int_equal(refuse(stage), MT_ENOTFOUND);
}

static void test_devices_that_cannot_be_are_refused(void **state)
{
    struct stage *stage = *state;
    struct mt_rehearsal_device many[65];
    for (size_t i = 0; i < 65; i++)
        many[i] = (struct mt_rehearsal_device){.bytes = MIB};
    stage->options.devices = NULL;
    assert_int_equal(refuse(stage), MT_EARG);
    stage->options.devices = many;
    stage->options.n_devices = 65;
    assert_int_equal(refuse(stage), MT_EARG);
    stage->options.n_devices = 1;
    many[0].bytes = 0;
    assert_int_equal(refuse(stage), MT_EARG);
    many[0] = (struct mt_rehearsal_device){.bytes = MIB, .reserved_bytes = MIB};
    assert_int_equal(refuse(stage), MT_EARG);
}

static void test_a_folder_holds_one_account(void **state)
{
    struct stage *stage = *state;
    RUN(stage, "exit=0");
    struct mt_rehearsal *second = NULL;
    const char *const argv[] = {getenv("REHEARSED_CHILD"), NULL};
    stage->options.argv = (char **)(uintptr_t)argv;
    assert_int_equal(mt_rehearsal_start(&stage->options, &second, &stage->error), MT_EBUSY);
    assert_null(second);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_devices_come_into_the_environment_and_real_ones_go),
        TEST(test_a_process_that_is_killed_as_it_writes_hides_nothing_of_others),
        TEST(test_how_the_program_ended_is_told),
        TEST(test_colours_are_no_part_of_last_words),
        TEST(test_a_crash_is_told_as_its_signal),
        TEST(test_an_account_that_is_cut_off_is_told),
        TEST(test_an_account_with_devices_without_number_is_told),
        TEST(test_a_long_output_keeps_its_end_and_little_of_the_disk),
        TEST(test_the_tally_is_of_the_peak_of_each_place),
        TEST(test_a_tally_may_be_of_any_event),
        TEST(test_a_killed_process_gives_back_what_it_held),
        TEST(test_marks_of_the_caller_stand_among_the_events),
        TEST(test_what_a_program_leaves_behind_is_ended_too),
        TEST(test_what_a_program_leaves_behind_at_its_own_end_is_ended_too),
        TEST(test_two_rehearsals_run_at_a_time),
        TEST(test_a_static_program_is_refused_with_what_would_work),
        TEST(test_a_setuid_program_is_refused),
        TEST(test_what_cannot_be_started_says_so),
        TEST(test_devices_that_cannot_be_are_refused),
        TEST(test_a_folder_holds_one_account),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
