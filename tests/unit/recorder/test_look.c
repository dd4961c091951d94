/* SPDX-License-Identifier: MIT */
/* Who waits for another thread's look before memory goes. */
#include "tests/support/unit.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "recorder/recorder.h"

#define LENGTH ((size_t)8 << 20)
#define PICTURED                                                                                   \
    ((uint64_t)1 << 30) /* of which a step is less than LENGTH, and more than we have */

/* The words of a turn that another thread waits for have this bit beside the holder's number. */
#define WAITED 0x80000000u

struct recorder memtally_recorder;
static struct process process;
static int n_looks;

int do_aside(void (*function)(void *context), void *context)
{
    (void)function;
    (void)context;
    n_looks++;
    return 1;
}

void write_clock(struct thread *thread)
{
    (void)thread;
}

static int begin(void **state)
{
    (void)state;
    memset(&process, 0, sizeof process);
    process.start_ns = mt_monotonic_ns();
    process.pictured_bytes = process.seen_bytes = PICTURED; /* no look but for a wait */
    memtally_recorder.process = &process;
    memtally_recorder.page_bytes = 4096;
    n_looks = 0;
    return 0;
}

static void *mapped(int touched)
{
    void *memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    if (touched)
        memset(memory, 1, LENGTH);
    return memory;
}

static void *give_back(void *memory)
{
    look_before_sure_fall(NULL, memory, LENGTH);
    return NULL;
}

/* Whether another thread that gives the memory back waits for this one's turn, which lasts longer
 * than any wait. */
static int is_wait_for_turn(void *memory)
{
    pthread_t thread;
    assert_true(take_turn(&process.picture_busy));
    assert_int_equal(pthread_create(&thread, NULL, give_back, memory), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    int waited = (process.picture_busy & WAITED) != 0;
    end_turn(&process.picture_busy);
    return waited;
}

static void test_what_is_resident_goes_after_another_threads_look(void **state)
{
    void *memory = mapped(1);
    (void)state;
    assert_true(is_wait_for_turn(memory));
    assert_int_equal(n_looks, 0);
    munmap(memory, LENGTH);
}

static void test_what_was_never_touched_goes_at_once(void **state)
{
    void *memory = mapped(0);
    (void)state;
    assert_false(is_wait_for_turn(memory));
    munmap(memory, LENGTH);
}

static void test_who_has_waited_in_vain_does_not_wait_again(void **state)
{
    void *memory = mapped(1);
    (void)state;
    assert_true(is_wait_for_turn(memory));
    assert_false(is_wait_for_turn(memory));
    munmap(memory, LENGTH);
}

static int is_back;

/* It gives up after a while, and the other thread may not be let run so long. */
static void *give_back_after_the_look(void *memory)
{
    do {
        process.turn_is_stuck = 0;
        look_before_sure_fall(NULL, memory, LENGTH);
    } while (process.turn_is_stuck);
    __atomic_store_n(&is_back, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void test_the_turn_is_free_after_the_wait(void **state)
{
    void *memory = mapped(1);
    pthread_t thread;
    (void)state;
    assert_true(take_turn(&process.picture_busy));
    assert_int_equal(pthread_create(&thread, NULL, give_back_after_the_look, memory), 0);
    while (!(__atomic_load_n(&process.picture_busy, __ATOMIC_ACQUIRE) & WAITED)) {
        assert_false(__atomic_load_n(&is_back, __ATOMIC_ACQUIRE));
        sched_yield();
    }
    end_turn(&process.picture_busy);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(process.picture_busy, 0);
    assert_int_equal(n_looks, 0);
    munmap(memory, LENGTH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_what_is_resident_goes_after_another_threads_look, begin),
        cmocka_unit_test_setup(test_what_was_never_touched_goes_at_once, begin),
        cmocka_unit_test_setup(test_who_has_waited_in_vain_does_not_wait_again, begin),
        cmocka_unit_test_setup(test_the_turn_is_free_after_the_wait, begin),
    };
    return RUN_TESTS(tests);
}
