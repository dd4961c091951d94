/* SPDX-License-Identifier: MIT */
/* A program that has the kernel refuse system calls (seccomp), or the processor its counter
 * (PR_SET_TSC), is not to be ended or surprised by ours. Before a filter is set, blocks are taken
 * in advance; after it the recorder makes no system call, and what those blocks have no room for is
 * counted as lost. Under the strict mode, or where its clock would need a call, it stops. In a
 * program that is started under a filter it does not begin. */
#include "recorder/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <sys/prctl.h>

#include "base/filters.h"
#include "recorder/real.h"
#include "recorder/sys.h"

/* Every thread finds at its next event that nothing is recorded any more. */
static void stop_recording(struct thread *thread)
{
    struct recorder *recorder = &memtally_recorder;
    struct thread *each = __atomic_load_n(&recorder->process->threads, __ATOMIC_ACQUIRE);
    look_at_end(thread);
    mt_clock_pair((int)recorder->use_counter, &recorder->process->file.header->end_ticks,
                  &recorder->process->file.header->end_monotonic_ns);
    recorder->process->file.header->end_kind = MT_END_STOPPED;
    mt_writer_finish(&thread->writer);
    __atomic_store_n(&recorder->process->ended, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&recorder->state, OFF, __ATOMIC_RELEASE);
    for (; each; each = each->next)
        __atomic_store_n(&each->alive, 0, __ATOMIC_RELEASE);
}

static void before_stop(void)
{
    struct thread *thread = enter();
    if (!thread)
        return;
    stop_recording(thread);
    leave();
}

/* The filter may be set for all threads: none is in the middle of a call of ours then. */
static void cut_off(struct process *process)
{
    uint64_t signals;
    int locked = memtally_record_os.lock(&process->aside_busy, &signals);
    mt_file_cut_off(&process->file, MT_IN_ADVANCE_MOST);
    __atomic_store_n(&memtally_recorder.is_filtered, 1, __ATOMIC_RELEASE);
    if (locked)
        memtally_record_os.unlock(&process->aside_busy, &signals);
}

static void before_filter(void)
{
    struct thread *thread = memtally_recorder.is_filtered ? NULL : enter();
    if (!thread)
        return;
    if (!memtally_recorder.use_counter || memtally_recorder.unwind) {
        stop_recording(thread);
    } else {
        look_before_filter(thread);
        cut_off(memtally_recorder.process);
    }
    leave();
}

/* Libraries ask by a filter at address 0 whether there are filters. */
static void look_at_call(long number, unsigned long a, unsigned long b, unsigned long c)
{
    if (number == SYS_seccomp && a == SECCOMP_SET_MODE_STRICT)
        before_stop();
    else if (number == SYS_seccomp && a == SECCOMP_SET_MODE_FILTER && c)
        before_filter();
    else if (number == SYS_prctl && a == PR_SET_SECCOMP && b == SECCOMP_MODE_STRICT)
        before_stop();
    else if (number == SYS_prctl && a == PR_SET_SECCOMP && b == SECCOMP_MODE_FILTER && c)
        before_filter();
    else if (number == SYS_prctl && a == PR_SET_TSC && b == PR_TSC_SIGSEGV)
        before_stop();
}

/* A filter stays over an exec, and may end a program for calls that its own code never makes. What
 * the watching process lives with is allowed to us too: `given` is the number of its filters. Asked
 * by the calls alone that the loader has just made. */
int has_more_filters(uint32_t given)
{
    char text[MT_STATUS_BYTES];
    int fd = memtally_record_os.open(MT_OWN_STATUS, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    long got = memtally_record_os.read(fd, text, sizeof text - 1);
    memtally_record_os.close(fd);
    text[got > 0 ? got : 0] = '\0';
    return (uint32_t)mt_count_filters(text) > given;
}

EXPORTED int prctl(int option, ...);

int prctl(int option, ...)
{
    unsigned long argument[4];
    va_list arguments;
    va_start(arguments, option);
    for (int i = 0; i < 4; i++)
        argument[i] = va_arg(arguments, unsigned long); /* meant or not, as the kernel gets it */
    va_end(arguments);
    if (option == PR_SET_SECCOMP || option == PR_SET_TSC)
        look_at_call(SYS_prctl, (unsigned long)option, argument[0], argument[1]);
    if (LIKELY(real_ready()))
        return memtally_real.prctl(option, argument[0], argument[1], argument[2], argument[3]);
    long result = mt_sys(SYS_prctl, option, (long)argument[0], (long)argument[1], (long)argument[2],
                         (long)argument[3], 0);
    if (result >= 0)
        return (int)result;
    errno = (int)-result;
    return -1;
}

static long plain_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    long result = mt_sys(number, a, b, c, d, e, f);
    if (result >= 0 || result <= -4096)
        return result;
    errno = (int)-result;
    return -1;
}

HIDDEN void *memtally_decide_syscall(long number, unsigned long a, unsigned long b,
                                     unsigned long c);

/* Where syscall() jumps to; it may be one that returns twice, so that it has no frame of ours. */
void *memtally_decide_syscall(long number, unsigned long a, unsigned long b, unsigned long c)
{
    void *jump;
    long (*plain)(long, long, long, long, long, long, long) = plain_syscall;
    int is_known = real_ready() && memtally_real.syscall;
    if (UNLIKELY(number == SYS_seccomp || number == SYS_prctl))
        look_at_call(number, a, b, c);
    if (UNLIKELY(is_fork(number, a, b)))
        plain = fork_by_call;
    if (is_known && plain == plain_syscall)
        __builtin_memcpy(&jump, &memtally_real.syscall, sizeof jump);
    else
        __builtin_memcpy(&jump, &plain, sizeof jump);
    return jump;
}
