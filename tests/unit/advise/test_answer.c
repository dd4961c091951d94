/* SPDX-License-Identifier: MIT */
/* What is said beside a rehearsal: notes, the count of what was tried, and the device that would
 * do. */
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

#include "advise/answer.h"
#include "advise/device_size.h"

#define GIB (UINT64_C(1) << 30)

static struct mt_advise_answer *answer;

static int setup(void **state)
{
    (void)state;
    answer = calloc(1, sizeof *answer);
    return answer ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    free(answer);
    return 0;
}

static void test_notes_are_sentences_with_a_blank_between(void **state)
{
    (void)state;
    mt_advise_answer_note(answer, "%d rehearsals.", 3);
    mt_advise_answer_note(answer, "And more.");
    assert_string_equal(answer->note, "3 rehearsals. And more.");
}

static void test_notes_end_where_there_is_no_room(void **state)
{
    char text[sizeof answer->note + 10];
    (void)state;
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    mt_advise_answer_note(answer, "%s", text);
    assert_int_equal(strlen(answer->note), sizeof answer->note - 1);
    mt_advise_answer_note(answer, "more");
    assert_int_equal(strlen(answer->note), sizeof answer->note - 1);
    assert_null(strchr(answer->note, 'm'));
}

static void test_what_was_tried_in_vain_is_counted(void **state)
{
    (void)state;
    answer->changes.n = 1;
    mt_advise_answer_count(answer);
    assert_string_equal(answer->note, "");
    answer->changes.n = 0;
    mt_advise_answer_count(answer);
    assert_string_equal(answer->note, "memtally knows no change of flags that would make room.");
    answer->note[0] = '\0';
    answer->changes.n_tried = 7;
    mt_advise_answer_count(answer);
    assert_string_equal(answer->note,
                        "No change of flags that was tried fits, in 7 more rehearsals.");
    answer->note[0] = '\0';
    answer->changes.is_cut_short = 1;
    strcpy(answer->changes.least, "-c 512");
    mt_advise_answer_count(answer);
    assert_string_equal(answer->note, "No change of flags that was tried fits: not even -c 512, in "
                                      "7 more rehearsals, and then the search was broken off.");
    answer->note[0] = '\0';
    answer->changes.n_tried = 1;
    answer->changes.is_cut_short = 0;
    mt_advise_answer_count(answer);
    assert_string_equal(answer->note, "No change of flags that was tried fits: not even -c 512, in "
                                      "1 more rehearsal.");
    answer->note[0] = '\0';
    answer->changes.n_tried = 0;
    answer->changes.is_cut_short = 1;
    mt_advise_answer_count(answer);
    assert_string_equal(answer->note, "The search for flags that fit was broken off.");
}

static void test_a_program_that_worked_on_is_told_with_its_times(void **state)
{
    (void)state;
    answer->result.status.elapsed_ns = UINT64_C(120000000000);
    answer->result.status.quiet_ns = UINT64_C(30000000000);
    mt_advise_note_runs_on(answer);
    assert_non_null(
        strstr(answer->note, "while it worked, after 120 s, the last 30 s without new"));
    assert_non_null(strstr(answer->note, "--timeout"));
}

/* The change that is told for a device of `gpu` where `bytes` are the least. */
static const struct mt_advise_change *told_for(const char *gpu, uint64_t device_bytes,
                                               uint64_t bytes, int is_share)
{
    struct mt_rehearsal_device device = {.gpu = gpu, .bytes = device_bytes};
    struct mt_drive_job job = {.devices = &device, .n_devices = 1};
    struct mt_advise_whole whole = {.is_known = 1, .least_bytes = bytes, .is_share = is_share};
    answer->changes.n = 0;
    mt_advise_answer_device_size(&job, &whole, answer);
    assert_int_equal(answer->changes.n, 1);
    return &answer->changes.items[0];
}

/* The smallest with 130 GiB of NVIDIA's cards that are no older than an H100 is the H200 (139.8),
 * and for an L4 the smallest with 40 GiB is the L40, which shows 44.39 GiB where an L40S shows
 * 44.42. Nothing has 10 TiB. */
static void test_the_smallest_card_that_would_do_is_named(void **state)
{
    (void)state;
    const struct mt_advise_change *change = told_for("H100-80GB", 80 * GIB, 130 * GIB, 0);
    assert_string_equal(change->flags, "a device of 130.00 GiB (H200)");
    assert_string_equal(change->instead_of, "80.00 GiB");
    assert_string_equal(change->costs, "what it takes without a limit");
    change = told_for("L4", 24 * GIB, 40 * GIB, 0);
    assert_string_equal(change->flags, "a device of 40.00 GiB (L40)");
    change = told_for("L4", 24 * GIB, UINT64_C(10) << 40, 1);
    assert_string_equal(change->flags, "a device of 10.00 TiB");
    assert_non_null(strstr(change->costs, "one request of the longest length"));
}

static void test_without_a_size_the_reason_is_noted(void **state)
{
    struct mt_drive_job job = {.n_devices = 0};
    struct mt_advise_whole whole = {.is_known = 0};
    (void)state;
    mt_advise_answer_device_size(&job, &whole, answer);
    assert_int_equal(answer->changes.n, 0);
    assert_string_equal(answer->note, "It runs on devices with many times the memory, and does not "
                                      "say how much would do.");
    answer->note[0] = '\0';
    strcpy(whole.why, "it crashed");
    mt_advise_answer_device_size(&job, &whole, answer);
    assert_string_equal(
        answer->note, "It does not run on devices with many times the memory either: it crashed.");
}

static void test_a_full_list_of_changes_stays_as_it_is(void **state)
{
    struct mt_rehearsal_device device = {.gpu = "L4", .bytes = 24 * GIB};
    struct mt_drive_job job = {.devices = &device, .n_devices = 1};
    struct mt_advise_whole whole = {.is_known = 1, .least_bytes = GIB};
    (void)state;
    answer->changes.n = MT_ADVISE_CHANGES_MAX;
    mt_advise_answer_device_size(&job, &whole, answer);
    assert_int_equal(answer->changes.n, MT_ADVISE_CHANGES_MAX);
}

/* The word has to be a program, a script or a module: a folder called vllm says nothing. */
static void test_engines_that_take_a_share_are_known_by_their_program(void **state)
{
    const char *const vllm[] = {"/venv/bin/vllm", "serve", "m", NULL};
    const char *const module[] = {"python", "-m", "sglang.launch_server", NULL};
    const char *const folder[] = {"python", "/src/vllm/train.py", NULL};
    const char *const llama[] = {"llama-server", "-m", "x", NULL};
    (void)state;
    assert_true(mt_advise_takes_a_share((char *const *)vllm));
    assert_true(mt_advise_takes_a_share((char *const *)module));
    assert_false(mt_advise_takes_a_share((char *const *)folder));
    assert_false(mt_advise_takes_a_share((char *const *)llama));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_notes_are_sentences_with_a_blank_between),
        TEST(test_notes_end_where_there_is_no_room),
        TEST(test_what_was_tried_in_vain_is_counted),
        TEST(test_a_program_that_worked_on_is_told_with_its_times),
        TEST(test_the_smallest_card_that_would_do_is_named),
        TEST(test_without_a_size_the_reason_is_noted),
        TEST(test_a_full_list_of_changes_stays_as_it_is),
        TEST(test_engines_that_take_a_share_are_known_by_their_program),
    };
    return RUN_TESTS(tests);
}
