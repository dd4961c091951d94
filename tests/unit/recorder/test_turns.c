/* SPDX-License-Identifier: MIT */
/* Turns of threads at what only one may do at a time. */
#include "tests/support/unit.h"

#include <pthread.h>
#include <sched.h>

#include "recorder/recorder.h"

struct recorder memtally_recorder;

/* The words of a turn that another thread waits for have this bit beside the holder's number. */
#define WAITED 0x80000000u

struct waiter {
    uint32_t word;
    uint32_t had; /* the turn */
};

/* It gives up after a while, and the other thread may not be let run so long. */
static void *await(void *context)
{
    struct waiter *waiter = context;
    while (!await_turn(&waiter->word))
        ;
    __atomic_store_n(&waiter->had, 1, __ATOMIC_RELEASE);
    end_turn(&waiter->word);
    return NULL;
}

static void test_a_turn_is_waited_for_until_it_ends(void **state)
{
    struct waiter waiter = {0};
    pthread_t thread;
    (void)state;
    assert_true(take_turn(&waiter.word));
    assert_int_equal(pthread_create(&thread, NULL, await, &waiter), 0);
    while (!(__atomic_load_n(&waiter.word, __ATOMIC_ACQUIRE) & WAITED))
        sched_yield();
    assert_int_equal(__atomic_load_n(&waiter.had, __ATOMIC_ACQUIRE), 0);
    end_turn(&waiter.word);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(waiter.had, 1);
    assert_int_equal(waiter.word, 0);
}

static void *try_in_vain(void *context)
{
    struct waiter *waiter = context;
    waiter->had = (uint32_t)(take_turn(&waiter->word) || await_turn(&waiter->word));
    return NULL;
}

static void test_a_turn_that_does_not_end_is_not_waited_for_long(void **state)
{
    struct waiter waiter = {0};
    pthread_t thread;
    (void)state;
    assert_true(take_turn(&waiter.word));
    assert_int_equal(pthread_create(&thread, NULL, try_in_vain, &waiter), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(waiter.had, 0);
    assert_true(take_turn(&waiter.word)); /* one's own is left from a frame that is no more */
}

static void *take_and_end(void *context)
{
    struct waiter *waiter = context;
    waiter->had = (uint32_t)take_turn(&waiter->word);
    return NULL;
}

static void test_the_turn_of_a_thread_that_has_ended_is_free(void **state)
{
    struct waiter waiter = {0};
    pthread_t thread;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, take_and_end, &waiter), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(waiter.had, 1);
    while (!await_turn(&waiter.word)) /* the kernel takes it off its list a little later */
        ;
    assert_true(waiter.word);
}

static void test_behind_a_filter_nothing_is_waited_for(void **state)
{
    uint32_t word = 1;
    (void)state;
    memtally_recorder.is_filtered = 1;
    assert_false(await_turn(&word));
    memtally_recorder.is_filtered = 0;
    assert_int_equal(word, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_turn_is_waited_for_until_it_ends),
        cmocka_unit_test(test_a_turn_that_does_not_end_is_not_waited_for_long),
        cmocka_unit_test(test_the_turn_of_a_thread_that_has_ended_is_free),
        cmocka_unit_test(test_behind_a_filter_nothing_is_waited_for),
    };
    return RUN_TESTS(tests);
}
