/* SPDX-License-Identifier: MIT */
/* Callbacks that give memory back. Each is called by a thread of its own, so that one that hangs
 * keeps nobody: its thread holds the monitor, and the callback is passed over until it returns. */
#include "guard/monitor.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/units.h>

#include "base/error.h"

/* ---- registering ---- */

int mt_monitor_add_cleanup(struct mt_monitor *monitor, const char *name, mt_monitor_clean clean,
                           void *context, int priority, uint64_t *id, struct mt_error *error)
{
    struct cleanup *made = calloc(1, sizeof *made);
    pthread_mutex_lock(&monitor->lock);
    struct cleanup **cleanups =
        made ? realloc(monitor->cleanups, (monitor->n_cleanups + 1) * sizeof *cleanups) : NULL;
    if (cleanups) {
        snprintf(made->name, sizeof made->name, "%s", name);
        made->clean = clean;
        made->context = context;
        made->priority = priority;
        made->id = ++monitor->last_id;
        monitor->cleanups = cleanups;
        cleanups[monitor->n_cleanups++] = made;
        if (id)
            *id = made->id;
    }
    pthread_mutex_unlock(&monitor->lock);
    if (cleanups)
        return 0;
    free(made);
    return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory for a monitor's cleanup");
}

static uint64_t trim_heap(void *context)
{
    (void)context;
    malloc_trim(0);
    return MT_UNKNOWN;
}

int mt_monitor_add_heap_trim(struct mt_monitor *monitor, int priority, struct mt_error *error)
{
    return mt_monitor_add_cleanup(monitor, "malloc_trim", trim_heap, NULL, priority, NULL, error);
}

int mt_monitor_remove_cleanup(struct mt_monitor *monitor, uint64_t id)
{
    int status = MT_ENOTFOUND;
    pthread_mutex_lock(&monitor->lock);
    for (size_t i = 0; i < monitor->n_cleanups && status == MT_ENOTFOUND; i++) {
        struct cleanup *cleanup = monitor->cleanups[i];
        if (cleanup->id != id)
            continue;
        status = cleanup->is_called ? MT_EBUSY : 0;
        if (status == 0) {
            monitor->n_cleanups--;
            memmove(monitor->cleanups + i, monitor->cleanups + i + 1,
                    (monitor->n_cleanups - i) * sizeof *monitor->cleanups);
            free(cleanup);
        }
    }
    pthread_mutex_unlock(&monitor->lock);
    return status;
}

/* ---- order ---- */

static double worth(const struct cleanup *cleanup)
{
    return cleanup->freed_bytes / (cleanup->took_ns > 1 ? cleanup->took_ns : 1);
}

static int goes_before(const struct cleanup *a, const struct cleanup *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority;
    if (!a->n_calls || !b->n_calls)
        return !a->n_calls && b->n_calls;
    return worth(a) > worth(b);
}

/* The next one of this round, or NULL. With the lock held. */
static struct cleanup *next_of(const struct mt_monitor *monitor)
{
    struct cleanup *next = NULL;
    for (size_t i = 0; i < monitor->n_cleanups; i++) {
        struct cleanup *cleanup = monitor->cleanups[i];
        if (!cleanup->is_called && cleanup->round != monitor->round &&
            (!next || goes_before(cleanup, next)))
            next = cleanup;
    }
    return next;
}

/* ---- calling ---- */

struct call {
    struct mt_monitor *monitor;
    struct cleanup *cleanup;
    uint64_t begin_ns;
    uint64_t freed_bytes;
};

/* Also where the callback ended its thread. */
static void note_return(void *context)
{
    struct call *call = context;
    struct mt_monitor *monitor = call->monitor;
    uint64_t took_ns = monitor->os.now_ns(monitor->os.context) - call->begin_ns;
    pthread_mutex_lock(&monitor->lock);
    call->cleanup->n_calls++;
    call->cleanup->took_ns += (double)took_ns;
    if (call->freed_bytes != MT_UNKNOWN)
        call->cleanup->freed_bytes += (double)call->freed_bytes;
    call->cleanup->last_freed_bytes = call->freed_bytes;
    call->cleanup->last_took_ns = took_ns;
    call->cleanup->is_called = 0;
    pthread_cond_broadcast(&monitor->condition);
    mt_monitor_release(monitor);
    free(call);
}

static void *call_it(void *context)
{
    struct call *call = context;
    pthread_cleanup_push(note_return, call);
    call->freed_bytes = call->cleanup->clean(call->cleanup->context);
    pthread_cleanup_pop(1);
    return NULL;
}

/* A thread that takes no signals: those are for the program's own. */
static int start_thread(struct call *call)
{
    pthread_attr_t detached;
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, &detached, call_it, call);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    return failed;
}

/* Who lets go of the lock finds a cleanup anew, which may have been removed meanwhile. */
static int is_there(const struct mt_monitor *monitor, uint64_t id, struct cleanup **cleanup)
{
    for (size_t i = 0; i < monitor->n_cleanups; i++)
        if (monitor->cleanups[i]->id == id) {
            *cleanup = monitor->cleanups[i];
            return 1;
        }
    return 0;
}

/* Calls the cleanup with the lock held, which is let go meanwhile. Returns 0 or MT_ENOMEM. */
static int call_cleanup(struct mt_monitor *monitor, struct cleanup *cleanup)
{
    struct call *call = calloc(1, sizeof *call);
    if (!call)
        return MT_ENOMEM;
    uint64_t begin_ns = monitor->os.now_ns(monitor->os.context);
    *call = (struct call){monitor, cleanup, begin_ns, MT_UNKNOWN};
    cleanup->is_called = 1;
    cleanup->round = monitor->round;
    monitor->n_holders++;
    if (start_thread(call)) {
        cleanup->is_called = 0;
        monitor->n_holders--;
        free(call);
        return MT_ENOMEM;
    }
    uint64_t id = cleanup->id;
    uint64_t until_ns = begin_ns + monitor->options.callback_ns;
    for (uint64_t now_ns = begin_ns;
         is_there(monitor, id, &cleanup) && cleanup->is_called && now_ns < until_ns;
         now_ns = monitor->os.now_ns(monitor->os.context)) {
        if (monitor->os.wait(monitor->os.context, &monitor->condition, &monitor->lock,
                             until_ns - now_ns))
            break;
    }
    return 0;
}

/* ---- a cleanup ---- */

/* What a call freed, into the report and into what the cleanup is worth. With the lock held. */
static void note_call(struct mt_monitor *monitor, struct cleanup *cleanup,
                      struct mt_monitor_call *call, uint64_t grown_bytes)
{
    memcpy(call->name, cleanup->name, sizeof call->name);
    call->hangs = cleanup->is_called;
    if (call->hangs) {
        call->took_ns = monitor->options.callback_ns;
        call->freed_bytes = grown_bytes;
        return;
    }
    call->took_ns = cleanup->last_took_ns;
    call->freed_bytes = cleanup->last_freed_bytes;
    if (call->freed_bytes == MT_UNKNOWN) {
        call->freed_bytes = grown_bytes;
        cleanup->freed_bytes += (double)grown_bytes;
    }
}

/* Calls the next cleanup. Returns 1, 0 where there is none, or an MT_E code. */
static int call_next(struct mt_monitor *monitor, uint64_t *available_bytes,
                     struct mt_monitor_cleanup *report, struct mt_error *error)
{
    struct mt_monitor_snapshot seen;
    pthread_mutex_lock(&monitor->lock);
    struct cleanup *cleanup = next_of(monitor);
    uint64_t id = cleanup ? cleanup->id : 0;
    int status = cleanup ? call_cleanup(monitor, cleanup) : 0;
    pthread_mutex_unlock(&monitor->lock);
    if (status)
        return mt_fail(error, status, MT_NO_OFFSET, "no memory for a thread that cleans up");
    if (!id)
        return 0;
    status = mt_monitor_look(monitor, &seen, error);
    if (status)
        return status;
    uint64_t grown =
        seen.available_bytes > *available_bytes ? seen.available_bytes - *available_bytes : 0;
    struct mt_monitor_call call = {0};
    pthread_mutex_lock(&monitor->lock);
    if (is_there(monitor, id, &cleanup)) {
        note_call(monitor, cleanup, &call, grown);
        if (report->n_calls < MT_MONITOR_CALLS)
            report->calls[report->n_calls] = call;
        report->n_calls++;
        monitor->stats.cleaned_bytes += call.freed_bytes;
    }
    pthread_mutex_unlock(&monitor->lock);
    *available_bytes = report->after_bytes = seen.available_bytes;
    return 1;
}

static int begin_cleanup(struct mt_monitor *monitor, struct mt_error *error)
{
    pthread_mutex_lock(&monitor->lock);
    int is_busy = monitor->is_cleaning;
    if (!is_busy) {
        monitor->is_cleaning = 1;
        monitor->round++;
    }
    pthread_mutex_unlock(&monitor->lock);
    return is_busy ? mt_fail(error, MT_EBUSY, MT_NO_OFFSET, "a cleanup is under way") : 0;
}

int mt_monitor_cleanup(struct mt_monitor *monitor, uint64_t target_bytes,
                       struct mt_monitor_cleanup *cleanup, struct mt_error *error)
{
    struct mt_monitor_cleanup report = {0};
    struct mt_monitor_snapshot seen;
    int status = begin_cleanup(monitor, error);
    if (status)
        return status;
    status = mt_monitor_look(monitor, &seen, error);
    if (status == 0) {
        uint64_t available_bytes = seen.available_bytes;
        report.before_bytes = report.after_bytes = available_bytes;
        int more = 1;
        while (more > 0 && (target_bytes == MT_UNKNOWN || available_bytes < target_bytes))
            more = call_next(monitor, &available_bytes, &report, error);
        status = more < 0 ? more : 0;
    }
    pthread_mutex_lock(&monitor->lock);
    monitor->is_cleaning = 0;
    monitor->last_cleanup_ns = monitor->os.now_ns(monitor->os.context);
    monitor->stats.n_cleanups += status == 0;
    pthread_mutex_unlock(&monitor->lock);
    if (cleanup && status == 0)
        *cleanup = report;
    return status;
}
