/* SPDX-License-Identifier: MIT */
/* Forks. A child finds the state of its process and threads wiped, and begins anew. Where a signal
 * handler forks that came upon the recorder at work, the child may return from it: what was
 * interrupted there is brought to its end on the state as it was, with memory of the child's own in
 * place of its parent's blocks, and is forgotten then. */
#include "recorder/recorder.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "recorder/real.h"
#include "recorder/sys.h"

static struct thread *interrupted(void)
{
    const struct tls *tls = &memtally_tls;
    return tls->borrowed & BORROWED ? memtally_recorder.process->leftover : tls->thread;
}

static void advise(int advice)
{
    struct thread *thread = interrupted();
    MT_SYS3(SYS_madvise, memtally_recorder.process, sizeof *memtally_recorder.process, advice);
    MT_SYS3(SYS_madvise, thread, sizeof *thread, advice);
}

static size_t run_bytes(const struct mt_writer *writer)
{
    return (size_t)(writer->run_end - writer->run);
}

/* The time lies in the calling thread's own storage, which the child has a copy of. */
void before_fork(void)
{
    struct recorder *recorder = &memtally_recorder;
    struct tls *tls = &memtally_tls;
    recorder->has_forked = 1;
    tls->fork_ticks = recorder->knows_clock ? now_ticks() : 0;
    tls->forks_within =
        tls->busy && !recorder->is_filtered && recorder->process && interrupted() != NULL;
    if (tls->forks_within)
        advise(MADV_KEEPONFORK);
}

void after_fork(void)
{
    struct tls *tls = &memtally_tls;
    tls->fork_ticks = 0;
    if (tls->forks_within)
        advise(MADV_WIPEONFORK);
    tls->forks_within = 0;
}

void after_fork_in_child(void)
{
    struct tls *tls = &memtally_tls;
    struct process *process = memtally_recorder.process;
    int is_wiped = !process || !process->alive;
    /* Two threads that fork at once may meet the other's advice. */
    if (!tls->forks_within && !is_wiped)
        memset(process, 0, offsetof(struct process, aside_stack));
    if (!tls->forks_within || is_wiped) {
        tls->forks_within = 0;
        return;
    }
    const struct mt_writer *writer = &interrupted()->writer;
    tls->forks_within = 0;
    advise(MADV_WIPEONFORK);
    if (process->file.header) {
        process->parents_header = *process->file.header;
        process->file.header = &process->parents_header;
    }
    if (writer->run)
        MT_SYS6(SYS_mmap, writer->run, run_bytes(writer), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    tls->borrowed |= INHERITED;
}

void forget_parent(void)
{
    struct thread *thread = interrupted();
    struct process *process = memtally_recorder.process;
    memtally_tls.borrowed = 0;
    if (thread->writer.run)
        MT_SYS2(SYS_munmap, thread->writer.run, run_bytes(&thread->writer));
    memset(thread, 0, sizeof *thread);
    memset(process, 0, sizeof *process);
}

static long after(long pid)
{
    if (pid == 0)
        after_fork_in_child();
    else
        after_fork();
    return pid;
}

static pid_t result_of(long pid)
{
    if (pid < 0)
        errno = (int)-pid;
    return pid < 0 ? -1 : (pid_t)pid;
}

EXPORTED pid_t _Fork(void);

/* A fork that calls none of the handlers that libc's fork() calls. */
pid_t _Fork(void)
{
    int has_real = real_ready() && memtally_real._Fork;
    before_fork();
    return (pid_t)after(has_real ? memtally_real._Fork()
                                 : result_of(MT_SYS6(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0)));
}

/* A child that has a copy of its parent's memory and goes on upon the same stack. */
int is_fork(long number, unsigned long flags, unsigned long stack)
{
#if defined(SYS_fork)
    if (number == SYS_fork)
        return 1;
#endif
    return number == SYS_clone && !stack && !(flags & (CLONE_VM | CLONE_VFORK));
}

long fork_by_call(long number, long a, long b, long c, long d, long e, long f)
{
    before_fork();
    return result_of(after(mt_sys(number, a, b, c, d, e, f)));
}
