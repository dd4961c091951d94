/* SPDX-License-Identifier: MIT */
/* Watching a process that already runs: a run whose program is not ours. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memtally/run.h>
#include <memtally/units.h>

#include "base/error.h"
#include "base/ticks.h"
#include "watch/watch.h"

/* A process id is used again: what is there is held by a descriptor before it is looked at. */
static int find_process(struct mt_run *run, struct mt_error *error)
{
    struct mt_process_memory memory;
    struct mt_process seen;
    if (run->pid == getpid())
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "process %d is memtally itself, which it leaves out; name another one",
                       (int)run->pid);
    run->pidfd = (int)syscall(SYS_pidfd_open, run->pid, 0);
    if (run->pidfd < 0 && errno == EINVAL)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%d is a thread of a process; name the process itself", (int)run->pid);
    if (run->pidfd < 0 && errno == ESRCH)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET, "no process has the number %d",
                       (int)run->pid);
    int result = mt_process_read(&run->host, run->pid, &seen, error);
    if (result == 0)
        result = mt_process_memory_read(&run->host, run->pid, &memory, error);
    if (result < 0)
        return result;
    if (seen.state == 'Z' && mt_watch_living_thread(run, run->pid) == run->pid)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "process %d has ended and waits for its parent %d", (int)run->pid,
                       seen.parent_pid);
    if (seen.state != 'Z' && memory.resident_bytes == MT_UNKNOWN)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "process %d is a thread of the kernel, which has no memory of its own",
                       (int)run->pid);
    return 0;
}

int mt_attach_start(const struct mt_attach_options *options, struct mt_run **run,
                    struct mt_error *error)
{
    const struct mt_run_options as_run = {
        .directory = options->directory,
        .picture_share =
            options->picture_share > 0 ? options->picture_share : MT_WATCH_ATTACHED_SHARE,
    };
    if (!options->directory || options->pid <= 0)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "attaching needs a folder and a process");
    struct mt_run *made = calloc(1, sizeof *made);
    if (!made)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    made->is_attached = 1;
    made->pid = options->pid;
    made->group = options->group ? strdup(options->group) : NULL;
    int result = mt_run_prepare(made, &as_run, error);
    if (result == 0 && options->group && !made->group)
        result = mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    if (result == 0)
        result = find_process(made, error);
    if (result < 0) {
        mt_run_undo(made);
        return result;
    }
    mt_watch_look(made, mt_monotonic_ns());
    *run = made;
    return 0;
}
