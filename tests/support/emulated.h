/* SPDX-License-Identifier: MIT */
/* Whether a stand-in for a kernel runs the test, as qemu's user mode: it takes any advice about
 * memory and follows none, cannot map a page of a file again by way of itself, and answers for a
 * process's own files in /proc with others than its neighbours read. */
#ifndef MT_TESTS_EMULATED_H
#define MT_TESTS_EMULATED_H

#include <stddef.h>
#include <sys/mman.h>

static inline int is_emulated(void)
{
    enum { NO_ADVICE = 9999, PROBED_BYTES = 65536 };
    void *page =
        mmap(NULL, PROBED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int is_taken = page != MAP_FAILED && madvise(page, PROBED_BYTES, NO_ADVICE) == 0;
    if (page != MAP_FAILED)
        munmap(page, PROBED_BYTES);
    return is_taken;
}

/* Leaves a test that an emulator cannot pass; see NOT_HERE() of the recorder's tests. */
#define NOT_EMULATED()                                                                             \
    do                                                                                             \
        if (is_emulated()) {                                                                       \
            print_message("# not possible here\n");                                                \
            return;                                                                                \
        }                                                                                          \
    while (0)

#endif
