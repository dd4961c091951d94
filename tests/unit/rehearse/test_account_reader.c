/* SPDX-License-Identifier: MIT */
/* Reading an account, also one that no sane program would write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rehearse/rehearsal.h"

struct account {
    struct mt_account *written;
    struct mt_account_reader reader;
};

static int set_up(void **state)
{
    struct account *made = calloc(1, sizeof *made);
    made->written = calloc(1, sizeof *made->written);
    made->written->n_devices = 2;
    made->written->start_ns = 1000;
    made->reader.account = made->written;
    *state = made;
    return 0;
}

static int tear_down(void **state)
{
    struct account *made = *state;
    mt_account_reader_finish(&made->reader);
    free(made->written);
    free(made);
    return 0;
}

static struct mt_account_event *put(struct account *to, enum mt_account_kind kind, uint64_t object,
                                    uint64_t bytes)
{
    struct mt_account_event *event = &to->written->event[to->written->n_events++];
    event->kind = (uint32_t)kind;
    event->pid = 7;
    event->time_ns = 1000 + to->written->n_events;
    event->object = object;
    event->bytes = bytes;
    snprintf(event->name, sizeof event->name, "CUDA0");
    return event;
}

static void read_all(struct account *from)
{
    mt_account_reader_read(&from->reader, 2000000000, 0);
}

static const struct mt_rehearsal_event *event_at(const struct account *from, size_t index)
{
    const struct mt_noted *noted = mt_account_reader_at(&from->reader, index);
    assert_non_null(noted);
    return &noted->event;
}

static void test_what_a_buffer_is_for_may_be_told_later(void **state)
{
    struct account *account = *state;
    put(account, MT_ACCOUNT_ALLOC, 16, 100);
    struct mt_account_event *usage = put(account, MT_ACCOUNT_USAGE, 16, 0);
    usage->category = MT_CATEGORY_KV_CACHE;
    snprintf(usage->detail, sizeof usage->detail, "cache_k_l0");
    read_all(account);
    assert_int_equal(account->reader.n_events, 1);
    assert_int_equal(event_at(account, 0)->category, MT_CATEGORY_KV_CACHE);
    assert_string_equal(event_at(account, 0)->detail, "cache_k_l0");
    assert_int_equal(event_at(account, 0)->time_ns, 1);
}

/* The program knows it by its handle still, PyTorch by the address; what it is for stays open. */
static void test_an_allocation_without_an_address_gets_one(void **state)
{
    struct account *account = *state;
    put(account, MT_ACCOUNT_ALLOC, 16, 100)->category = MT_CATEGORY_WEIGHTS;
    put(account, MT_ACCOUNT_USAGE, 16, 0)->address = 4096;
    put(account, MT_ACCOUNT_FREE, 16, 0);
    read_all(account);
    assert_int_equal(account->reader.n_events, 2);
    assert_int_equal(mt_account_reader_at(&account->reader, 0)->object, 4096);
    assert_int_equal(event_at(account, 0)->category, MT_CATEGORY_WEIGHTS);
    assert_int_equal(event_at(account, 1)->kind, MT_REHEARSAL_FREE);
    assert_int_equal(event_at(account, 1)->bytes, 100);
}

static void test_a_free_says_again_what_was_freed(void **state)
{
    struct account *account = *state;
    put(account, MT_ACCOUNT_ALLOC, 16, 100)->place = 1;
    put(account, MT_ACCOUNT_FREE, 16, 0);
    put(account, MT_ACCOUNT_FREE, 16, 0); /* of nothing that is there */
    read_all(account);
    assert_int_equal(account->reader.n_events, 2);
    assert_int_equal(event_at(account, 1)->kind, MT_REHEARSAL_FREE);
    assert_int_equal(event_at(account, 1)->bytes, 100);
    assert_string_equal(event_at(account, 1)->place, "gpu:1");
    assert_int_equal(mt_account_reader_at(&account->reader, 0)->freed_at, 1);
}

static void test_a_buffer_that_is_made_again_was_freed_in_between(void **state)
{
    struct account *account = *state;
    put(account, MT_ACCOUNT_ALLOC, 16, 100);
    put(account, MT_ACCOUNT_ALLOC, 16, 30);
    read_all(account);
    assert_int_equal(account->reader.n_events, 3);
    assert_int_equal(event_at(account, 1)->kind, MT_REHEARSAL_FREE);
    assert_int_equal(mt_account_reader_held(&account->reader, 7, "gpu:0", NULL), 30);
}

static void test_the_end_of_a_process_frees_what_it_held_and_no_more(void **state)
{
    struct account *account = *state;
    for (uint64_t i = 0; i < 1000; i++)
        put(account, MT_ACCOUNT_ALLOC, 16 * i, 1)->pid = i % 2 ? 7 : 8;
    put(account, MT_ACCOUNT_END, 0, 0);
    read_all(account);
    assert_int_equal(mt_account_reader_held(&account->reader, 7, "gpu:0", NULL), 0);
    assert_int_equal(mt_account_reader_held(&account->reader, 8, "gpu:0", NULL), 500);
    assert_int_equal(account->reader.n_events, 1000 + 500 + 1);
    assert_int_equal(event_at(account, 1500)->kind, MT_REHEARSAL_MARK);
}

static void test_buffers_are_freed_in_any_order(void **state)
{
    struct account *account = *state;
    for (uint64_t i = 0; i < 1000; i++)
        put(account, MT_ACCOUNT_ALLOC, 16 * i, 1);
    for (uint64_t i = 0; i < 1000; i++)
        put(account, MT_ACCOUNT_FREE, 16 * (i * 7 % 1000), 0);
    read_all(account);
    assert_int_equal(account->reader.n_events, 2000);
    assert_int_equal(account->reader.live.n, 0);
}

static void test_an_event_that_is_being_written_is_waited_for(void **state)
{
    struct account *account = *state;
    struct mt_account_event *slow = put(account, MT_ACCOUNT_NONE, 16, 100);
    put(account, MT_ACCOUNT_ALLOC, 32, 5);
    mt_account_reader_read(&account->reader, 1000000, 0);
    assert_int_equal(account->reader.n_events, 0);
    slow->kind = MT_ACCOUNT_ALLOC;
    mt_account_reader_read(&account->reader, 2000000, 0);
    assert_int_equal(account->reader.n_events, 2);
    assert_int_equal(event_at(account, 0)->bytes, 100);
}

/* A process that was there and is gone. */
static uint32_t gone_process(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return (uint32_t)pid;
}

static void test_an_event_is_waited_for_as_long_as_its_process_lives(void **state)
{
    struct account *account = *state;
    struct mt_account_event *slow = put(account, MT_ACCOUNT_NONE, 16, 100);
    slow->pid = (uint32_t)getpid();
    put(account, MT_ACCOUNT_ALLOC, 32, 5);
    for (uint64_t second = 1; second < 100; second++)
        mt_account_reader_read(&account->reader, second * 1000000000, 0);
    assert_int_equal(account->reader.n_events, 0);
    slow->kind = MT_ACCOUNT_ALLOC;
    mt_account_reader_read(&account->reader, UINT64_C(100000000000), 0);
    assert_int_equal(account->reader.n_events, 2);
    assert_int_equal(account->reader.n_unwritten, 0);
}

static void test_an_event_of_a_process_that_is_gone_is_given_up(void **state)
{
    struct account *account = *state;
    put(account, MT_ACCOUNT_NONE, 16, 100)->pid = gone_process();
    put(account, MT_ACCOUNT_ALLOC, 32, 5);
    mt_account_reader_read(&account->reader, 1000000000, 0);
    assert_int_equal(account->reader.n_events, 0); /* it may live where its number is another */
    mt_account_reader_read(&account->reader, UINT64_C(2000000001), 0);
    assert_int_equal(account->reader.n_events, 1);
    assert_int_equal(account->reader.n_unwritten, 1);
}

static void test_an_event_that_nobody_writes_any_more_is_given_up(void **state)
{
    struct account *account = *state;
    put(account, MT_ACCOUNT_NONE, 16, 100)->pid = (uint32_t)getpid();
    put(account, MT_ACCOUNT_ALLOC, 32, 5);
    mt_account_reader_read(&account->reader, 1000000000, 0);
    assert_int_equal(account->reader.n_events, 0);
    mt_account_reader_read(&account->reader, 2000000000, 1); /* the rehearsal is over */
    assert_int_equal(account->reader.n_events, 1);
    put(account, MT_ACCOUNT_NONE, 48, 1)->pid = 0; /* killed before it said who it is */
    put(account, MT_ACCOUNT_ALLOC, 64, 1);
    mt_account_reader_read(&account->reader, UINT64_C(3000000000), 0);
    mt_account_reader_read(&account->reader, UINT64_C(12000000000), 0);
    assert_int_equal(account->reader.n_events, 1);
    mt_account_reader_read(&account->reader, UINT64_C(13000000001), 0);
    assert_int_equal(account->reader.n_events, 2);
    assert_int_equal(account->reader.n_unwritten, 2);
}

static void test_places_and_kinds_that_there_are_not_are_skipped(void **state)
{
    struct account *account = *state;
    put(account, MT_ACCOUNT_ALLOC, 16, 100)->place = 2; /* of 0 and 1 */
    put(account, MT_ACCOUNT_ALLOC, 32, 100)->place = 254;
    put(account, (enum mt_account_kind)77, 48, 100);
    put(account, MT_ACCOUNT_ALLOC, 64, 9)->category = 200;
    put(account, MT_ACCOUNT_ALLOC, 80, 8)->place = MT_ACCOUNT_HOST;
    read_all(account);
    assert_int_equal(account->reader.n_skipped, 3);
    assert_int_equal(account->reader.n_events, 2);
    assert_int_equal(event_at(account, 0)->category, MT_CATEGORY_NONE);
    assert_string_equal(event_at(account, 1)->place, "host");
}

static void test_texts_without_an_end_stay_within_their_fields(void **state)
{
    struct account *account = *state;
    struct mt_account_event *event = put(account, MT_ACCOUNT_ALLOC, 16, 1);
    memset(event->name, 'n', sizeof event->name);
    memset(event->detail, 'd', sizeof event->detail);
    struct mt_account_event *note = put(account, MT_ACCOUNT_NOTE, 0, 0);
    memset(note->name, 'n', sizeof note->name);
    memset(note->detail, 'd', sizeof note->detail);
    read_all(account);
    assert_int_equal(strlen(event_at(account, 0)->name), 48);
    assert_int_equal(strlen(event_at(account, 0)->detail), 96);
    assert_int_equal(strlen(event_at(account, 1)->name), 48 + 96);
    assert_string_equal(event_at(account, 1)->detail, "");
}

static void test_a_refused_buffer_is_what_was_planned_of_its_size(void **state)
{
    struct account *account = *state;
    struct mt_account_event *planned = put(account, MT_ACCOUNT_ALLOC, 16, 100);
    planned->flags = MT_ACCOUNT_PLANNED;
    planned->category = MT_CATEGORY_WEIGHTS;
    planned = put(account, MT_ACCOUNT_ALLOC, 32, 200);
    planned->flags = MT_ACCOUNT_PLANNED;
    planned->category = MT_CATEGORY_KV_CACHE;
    put(account, MT_ACCOUNT_REFUSE, 0, 100)->free_bytes = 60;
    put(account, MT_ACCOUNT_REFUSE, 0, 101);
    read_all(account);
    assert_int_equal(event_at(account, 2)->kind, MT_REHEARSAL_REFUSED);
    assert_int_equal(event_at(account, 2)->category, MT_CATEGORY_WEIGHTS);
    assert_int_equal(event_at(account, 2)->free_bytes, 60);
    assert_int_equal(event_at(account, 3)->category, MT_CATEGORY_NONE);
}

static void test_a_refused_buffer_lacks_what_its_granules_do(void **state)
{
    struct account *account = *state;
    account->written->rules.granule_bytes = 64;
    put(account, MT_ACCOUNT_REFUSE, 0, 100)->free_bytes = 100;
    put(account, MT_ACCOUNT_REFUSE, 0, 128)->free_bytes = 60;
    struct mt_account_event *host = put(account, MT_ACCOUNT_REFUSE, 0, 100);
    host->free_bytes = 99;
    host->place = MT_ACCOUNT_HOST;
    read_all(account);
    assert_int_equal(event_at(account, 0)->missing_bytes, 28);
    assert_int_equal(event_at(account, 1)->missing_bytes, 68);
    assert_int_equal(event_at(account, 2)->missing_bytes, 1);
}

/* Weights of so many bytes are planned on gpu:0 and forgotten: two events. */
static void put_trial(struct account *account, uint64_t bytes)
{
    struct mt_account_event *planned = put(account, MT_ACCOUNT_ALLOC, 16, bytes);
    planned->flags = MT_ACCOUNT_PLANNED;
    planned->category = MT_CATEGORY_WEIGHTS;
    put(account, MT_ACCOUNT_FREE, 16, 0);
}

static void test_an_engine_settles_for_its_last_plan_that_fits(void **state)
{
    struct account *account = *state;
    account->written->device[0].free_bytes = 100;
    put_trial(account, 300);
    put_trial(account, 80);
    put_trial(account, 90);
    put_trial(account, 101);
    read_all(account);
    struct mt_span settled = mt_account_reader_settled(&account->reader, 1);
    assert_int_equal(settled.first, 4);
    assert_int_equal(settled.last, 5);
}

static void test_what_was_tried_before_a_model_is_loaded_does_not_count(void **state)
{
    struct account *account = *state;
    account->written->device[0].free_bytes = 100;
    put_trial(account, 80);
    put(account, MT_ACCOUNT_ALLOC, 32, 50);
    read_all(account);
    assert_int_equal(mt_account_reader_settled(&account->reader, 0).first,
                     0); /* it never came to that */
    put(account, MT_ACCOUNT_ALLOC, 48, 60)->category = MT_CATEGORY_WEIGHTS;
    read_all(account);
    assert_int_equal(mt_account_reader_settled(&account->reader, 0).first, 2);
    assert_int_equal(mt_account_reader_settled(&account->reader, 0).last, SIZE_MAX);
}

static void test_a_full_account_is_read_to_its_end(void **state)
{
    struct account *account = *state;
    for (uint64_t i = 0; i < MT_ACCOUNT_EVENTS_MAX; i++)
        put(account, i % 2 ? MT_ACCOUNT_FREE : MT_ACCOUNT_ALLOC, i & ~UINT64_C(1), 1);
    account->written->n_events = UINT64_MAX - 5;
    read_all(account);
    assert_int_equal(account->reader.n_events, MT_ACCOUNT_EVENTS_MAX);
    assert_int_equal(account->reader.live.n, 0);
    assert_false(account->reader.out_of_memory);
}

static void test_sums_past_all_numbers_stay_at_the_most(void **state)
{
    struct account *account = *state;
    put(account, MT_ACCOUNT_ALLOC, 16, UINT64_MAX);
    put(account, MT_ACCOUNT_ALLOC, 32, UINT64_MAX);
    read_all(account);
    assert_int_equal(mt_account_reader_held(&account->reader, 7, "gpu:0", NULL), UINT64_MAX);
}

static struct mt_account_event *put_of(struct account *to, enum mt_account_kind kind,
                                       uint64_t object, uint32_t pid)
{
    struct mt_account_event *event = put(to, kind, object, 1);
    event->pid = pid;
    return event;
}

static void test_what_processes_share_is_there_until_the_last_of_them_drops_it(void **state)
{
    struct account *account = *state;
    const uint64_t first = MT_ACCOUNT_SHARED | 1, second = MT_ACCOUNT_SHARED | 2;
    put_of(account, MT_ACCOUNT_ALLOC, first, 7);
    put_of(account, MT_ACCOUNT_ALLOC, first, 8);
    put_of(account, MT_ACCOUNT_ALLOC, first, 8); /* twice */
    put_of(account, MT_ACCOUNT_ALLOC, second, 8);
    put_of(account, MT_ACCOUNT_FREE, first, 7);
    put_of(account, MT_ACCOUNT_FREE, first, 7); /* which it does not hold any more */
    put_of(account, MT_ACCOUNT_FREE, first, 8);
    read_all(account);
    assert_int_equal(account->reader.n_events, 2);
    put_of(account, MT_ACCOUNT_FREE, first, 8);
    put_of(account, MT_ACCOUNT_END, 0, 8);
    read_all(account);
    assert_int_equal(account->reader.n_events, 5);
    assert_int_equal(event_at(account, 2)->kind, MT_REHEARSAL_FREE);
    assert_int_equal(event_at(account, 3)->kind, MT_REHEARSAL_FREE);
    assert_int_equal(account->reader.live.n, 0);
    assert_int_equal(account->reader.holdings.n, 0);
}

/* Four accounts that took minutes when each event looked at all that is there. */
static void test_each_process_of_a_full_account_shares_and_ends(void **state)
{
    struct account *account = *state;
    const uint32_t third = MT_ACCOUNT_EVENTS_MAX / 3;
    for (uint32_t i = 0; i < third; i++)
        put_of(account, MT_ACCOUNT_ALLOC, MT_ACCOUNT_SHARED | i << 1, 100 + i);
    for (uint32_t i = 0; i < third; i++)
        put_of(account, MT_ACCOUNT_FREE, MT_ACCOUNT_SHARED | (third - 1 - i) << 1, 99 + third - i);
    for (uint32_t i = 0; i < third; i++)
        put_of(account, MT_ACCOUNT_END, 0, 100 + i);
    read_all(account);
    assert_int_equal(account->reader.n_events, 3 * third);
    assert_int_equal(account->reader.live.n, 0);
}

static void test_processes_end_while_another_holds_a_full_account(void **state)
{
    struct account *account = *state;
    const uint32_t half = MT_ACCOUNT_EVENTS_MAX / 2;
    for (uint32_t i = 0; i < half; i++)
        put_of(account, MT_ACCOUNT_ALLOC, i, 7);
    for (uint32_t i = 0; i < half; i++)
        put_of(account, MT_ACCOUNT_END, 0, 100 + i);
    read_all(account);
    assert_int_equal(account->reader.n_events, 2 * half);
    assert_int_equal(mt_account_reader_held(&account->reader, 7, "gpu:0", NULL), half);
}

/* Products with the multiplier of a plain hash that differ in their low bits alone. */
static void test_an_account_cannot_choose_objects_that_collide(void **state)
{
    struct account *account = *state;
    uint64_t inverse = 1;
    for (int i = 0; i < 6; i++)
        inverse *= 2 - inverse * UINT64_C(0x9e3779b97f4a7c15);
    for (uint32_t i = 0; i < MT_ACCOUNT_EVENTS_MAX; i++)
        put_of(account, MT_ACCOUNT_ALLOC, (i * inverse ^ UINT64_C(7) << 40) & ~MT_ACCOUNT_SHARED,
               7);
    read_all(account);
    assert_int_equal(account->reader.n_events, MT_ACCOUNT_EVENTS_MAX);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_a_buffer_is_for_may_be_told_later),
        TEST(test_an_allocation_without_an_address_gets_one),
        TEST(test_a_free_says_again_what_was_freed),
        TEST(test_a_buffer_that_is_made_again_was_freed_in_between),
        TEST(test_the_end_of_a_process_frees_what_it_held_and_no_more),
        TEST(test_buffers_are_freed_in_any_order),
        TEST(test_an_event_that_is_being_written_is_waited_for),
        TEST(test_an_event_is_waited_for_as_long_as_its_process_lives),
        TEST(test_an_event_of_a_process_that_is_gone_is_given_up),
        TEST(test_an_event_that_nobody_writes_any_more_is_given_up),
        TEST(test_places_and_kinds_that_there_are_not_are_skipped),
        TEST(test_texts_without_an_end_stay_within_their_fields),
        TEST(test_a_refused_buffer_is_what_was_planned_of_its_size),
        TEST(test_a_refused_buffer_lacks_what_its_granules_do),
        TEST(test_an_engine_settles_for_its_last_plan_that_fits),
        TEST(test_what_was_tried_before_a_model_is_loaded_does_not_count),
        TEST(test_a_full_account_is_read_to_its_end),
        TEST(test_sums_past_all_numbers_stay_at_the_most),
        TEST(test_what_processes_share_is_there_until_the_last_of_them_drops_it),
        TEST(test_each_process_of_a_full_account_shares_and_ends),
        TEST(test_processes_end_while_another_holds_a_full_account),
        TEST(test_an_account_cannot_choose_objects_that_collide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
