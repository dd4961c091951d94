/* SPDX-License-Identifier: MIT */
/* Programs that are watched by another already: under Valgrind, whose machine knows not all that
 * the recorder asks of a kernel, or with a sanitizer's runtime, whose memory is mostly its own.
 * There the recorder does nothing, and what is not recorded is seen from outside. */
#include "recorder/recorder.h"

#include "recorder/real.h"

#define RUNNING_ON_VALGRIND 0x1001u

/* The request that Valgrind defines for its clients (valgrind.h): instructions that change nothing
 * on a processor. Elsewhere the answer is the 0 that was put in. */
static int is_under_valgrind(void)
{
    volatile uint64_t request[6] = {RUNNING_ON_VALGRIND};
    uint64_t answer = 0;
#if defined(__x86_64__)
    __asm__ volatile("rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi\n\t"
                     "xchgq %%rbx, %%rbx"
                     : "=d"(answer)
                     : "a"(&request[0]), "0"(answer)
                     : "cc", "memory");
#elif defined(__aarch64__)
    __asm__ volatile("mov x3, %1; mov x4, %2\n\t"
                     "ror x12, x12, #3; ror x12, x12, #13; ror x12, x12, #51; ror x12, x12, #61\n\t"
                     "orr x10, x10, x10\n\t"
                     "mov %0, x3"
                     : "=r"(answer)
                     : "r"(answer), "r"(&request[0])
                     : "cc", "memory", "x3", "x4");
#endif
    return answer != 0;
}

int is_watched_by_another(void)
{
    return is_under_valgrind() || memtally_real.has_sanitizer;
}
