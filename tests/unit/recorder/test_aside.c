/* SPDX-License-Identifier: MIT */
/* A thread of the kernel's making, by the assembly of each processor. */
#include "tests/support/unit.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#define STACK_BYTES 65536

long memtally_clone(unsigned long flags, void *stack_end, void (*function)(void *), void *context);

/* What the thread left: where its own variables lay, and that it was called with its context. */
struct seen {
    uintptr_t stack;
    const void *context;
    uint32_t done;
};

static void look_around(void *context)
{
    struct seen *seen = context;
    volatile char here[256];
    memset((char *)(uintptr_t)here, 1, sizeof here);
    seen->stack = (uintptr_t)here;
    seen->context = context;
    __atomic_store_n(&seen->done, 1, __ATOMIC_RELEASE);
}

/* Not suspended as the recorder's callers are: qemu's user mode takes that for a fork. */
static void test_a_function_is_called_on_the_stack_that_is_given(void **state)
{
    const unsigned long flags =
        CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    (void)state;
    for (int i = 0; i < 20; i++) { /* each on its own: the one before may be leaving its yet */
        struct seen seen = {0};
        char *stack =
            mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(stack != MAP_FAILED);
        assert_true(memtally_clone(flags, stack + STACK_BYTES, look_around, &seen) > 0);
        while (!__atomic_load_n(&seen.done, __ATOMIC_ACQUIRE))
            sched_yield();
        assert_ptr_equal(seen.context, &seen);
        assert_in_range(seen.stack, (uintptr_t)stack, (uintptr_t)stack + STACK_BYTES);
    }
}

static void test_what_the_kernel_refuses_comes_back_as_its_error(void **state)
{
    char stack[256];
    struct seen seen = {0};
    (void)state;
    /* A thread shares its caller's signal handlers. */
    assert_int_equal(
        memtally_clone(CLONE_VM | CLONE_THREAD, stack + sizeof stack, look_around, &seen),
        -22); /* EINVAL */
    assert_int_equal(seen.done, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_function_is_called_on_the_stack_that_is_given),
        cmocka_unit_test(test_what_the_kernel_refuses_comes_back_as_its_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
