/* SPDX-License-Identifier: MIT */
/* Work that needs descriptors, done aside: by a thread of the kernel's making that shares all with
 * its caller but the table of descriptors: its own has the first three only. Nobody in the program
 * sees a number come or go, takes one of ours for its own, or closes one; nothing that the program
 * holds is held longer, flushed or locked by us. The caller sleeps meanwhile; no signal reaches the
 * thread, and libc does not know of it. It costs some 12 us of processor time. */
#include "recorder/recorder.h"

#include <sched.h>
#include <time.h>

#include "recorder/sys.h"

#define CLOSE_ALL  UINT32_MAX
#define END_TRIES  20000
#define END_YIELDS 8
#define NAP_NS     100000

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE 2
#endif

/* aside.S: clone() with `flags`, where the new thread calls `function` on its own stack and ends.
 * Returns the thread's number or a negated errno. */
HIDDEN long memtally_clone(unsigned long flags, void *stack_end, void (*function)(void *),
                           void *context);

struct aside {
    void (*function)(void *context);
    void *context;
    int shares; /* the table of descriptors, as yet */
    int done;
};

/* Before Linux 5.9 the whole table is copied. */
static int leave_descriptors(void)
{
    if (MT_SYS3(SYS_close_range, 3, CLOSE_ALL, CLOSE_RANGE_UNSHARE) >= 0)
        return 1;
    return MT_SYS1(SYS_unshare, CLONE_FILES) >= 0;
}

/* Standard error is what say_once() says things on. The other two make room for ours, where the
 * program may have no more than a few. */
static void begin(void *context)
{
    struct aside *aside = context;
    if (aside->shares && !leave_descriptors())
        return;
    memtally_record_os.close(0);
    memtally_record_os.close(1);
    aside->function(aside->context);
    aside->done = 1;
}

/* The kernel wakes the caller a little before it takes the thread off the process's list. A program
 * that counts its threads, or may do what is for one thread only, must not find ours. Where other
 * programs want the processor, yielding it does not give it to the thread; sleeping does. */
static void await_end(long thread)
{
    const struct timespec nap = {0, NAP_NS};
    long process = MT_SYS0(SYS_getpid);
    for (int tries = 0; tries < END_TRIES; tries++) {
        if (MT_SYS3(SYS_tgkill, process, thread, 0) < 0)
            return;
        if (tries < END_YIELDS)
            MT_SYS0(SYS_sched_yield);
        else
            MT_SYS2(SYS_nanosleep, &nap, NULL);
    }
}

static void start(struct aside *aside)
{
    const unsigned long flags = CLONE_VM | CLONE_FS | CLONE_SYSVSEM | CLONE_SIGHAND | CLONE_THREAD |
                                CLONE_VFORK | CLONE_UNTRACED;
    uint8_t *stack = memtally_recorder.process->aside_stack;
    long thread = memtally_clone(aside->shares ? flags | CLONE_FILES : flags,
                                 stack + ASIDE_STACK_BYTES, begin, aside);
    if (thread > 0)
        await_end(thread);
}

/* clone() copies a table that cannot be left, as in some containers. */
int do_aside(void (*function)(void *context), void *context)
{
    struct aside aside = {function, context, 1, 0};
    struct process *process = memtally_recorder.process;
    uint64_t signals;
    if (memtally_recorder.is_filtered || !memtally_record_os.lock(&process->aside_busy, &signals))
        return 0;
    if (!memtally_recorder.is_filtered)
        start(&aside);
    aside.shares = 0;
    if (!memtally_recorder.is_filtered && !aside.done)
        start(&aside);
    memtally_record_os.unlock(&process->aside_busy, &signals);
    return aside.done;
}

void do_aside_or_here(void (*function)(void *context), void *context)
{
    if (!do_aside(function, context))
        function(context);
}
