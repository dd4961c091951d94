/* SPDX-License-Identifier: MIT */
/* Work that needs descriptors, done aside: by a thread of the kernel's making that shares all with
 * its caller but the table of descriptors, of which it has a copy. Nobody in the program sees a
 * number come or go, takes one of ours for its own, or closes one. The caller sleeps meanwhile; no
 * signal reaches the thread, and libc does not know of it. It costs some 12 us of processor time. */
#include "recorder/recorder.h"

#include <sched.h>
#include <signal.h>

#include "recorder/sys.h"

#define SIGNAL_SET_BYTES 8
#define CLOSE_ALL        UINT32_MAX

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

/* aside.S: clone() with `flags`, where the new thread calls `function` on its own stack and ends.
 * Returns the thread's number or a negated errno. */
HIDDEN long memtally_clone(unsigned long flags, void *stack_end, void (*function)(void *),
                           void *context);

struct aside {
    void (*function)(void *context);
    void *context;
};

/* What the program holds is not held for longer than it must be: a pipe's other end may wait for its
 * last descriptor to be closed. Standard error is what say_once() says things on. */
static void begin(void *context)
{
    const struct aside *aside = context;
    MT_SYS3(SYS_close_range, 0, 1, 0);
    MT_SYS3(SYS_close_range, 3, CLOSE_ALL, 0);
    aside->function(aside->context);
}

int do_aside(void (*function)(void *context), void *context)
{
    const unsigned long flags = CLONE_VM | CLONE_FS | CLONE_SYSVSEM | CLONE_SIGHAND | CLONE_THREAD |
                                CLONE_VFORK | CLONE_UNTRACED;
    struct aside aside = {function, context};
    struct process *process = memtally_recorder.process;
    uint64_t all = ~(uint64_t)0;
    uint64_t mask = 0;
    if (memtally_recorder.is_filtered)
        return 0;
    if (__atomic_exchange_n(&process->aside_busy, 1, __ATOMIC_ACQUIRE))
        return 0;
    MT_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, SIGNAL_SET_BYTES);
    long thread = memtally_clone(flags, process->aside_stack + sizeof process->aside_stack, begin,
                                 &aside);
    MT_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, SIGNAL_SET_BYTES);
    __atomic_store_n(&process->aside_busy, 0, __ATOMIC_RELEASE);
    return thread > 0;
}
