/* SPDX-License-Identifier: MIT */
#include "fake_kernel.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static uint64_t now_ns(void *context)
{
    struct fake_kernel *kernel = context;
    pthread_mutex_lock(&kernel->lock);
    uint64_t now = kernel->clock_ns;
    pthread_mutex_unlock(&kernel->lock);
    return now;
}

static long status(const struct fake_kernel *kernel, char *text, size_t size)
{
    if (kernel->status_errno)
        return -kernel->status_errno;
    int length = snprintf(
        text, size, "Name:\tfake\nVmPeak:\t  9999 kB\n%s%8" PRIu64 " kB\nVmRSS:\t%8" PRIu64 " kB\n",
        kernel->hides_mark ? "VmOther:\t" : "VmHWM:\t", kernel->mark_bytes / 1024,
        kernel->resident_bytes / 1024);
    return length;
}

static long statm(struct fake_kernel *kernel, char *text, size_t size)
{
    kernel->n_looks++;
    if (kernel->statm_errno)
        return -kernel->statm_errno;
    return snprintf(text, size, "99999 %" PRIu64 " 12 1 0 89 0\n",
                    kernel->resident_bytes / PAGE_BYTES);
}

static long read_file(void *context, const char *path, char *text, size_t size)
{
    struct fake_kernel *kernel = context;
    pthread_mutex_lock(&kernel->lock);
    kernel->clock_ns += FILE_NS;
    long result = -ENOENT;
    errno = ENOENT; /* as any call may leave it */
    if (strcmp(path, "/proc/self/status") == 0)
        result = status(kernel, text, size);
    else if (strcmp(path, "/proc/self/statm") == 0)
        result = statm(kernel, text, size);
    pthread_mutex_unlock(&kernel->lock);
    return result;
}

static int write_file(void *context, const char *path, const char *text)
{
    struct fake_kernel *kernel = context;
    if (strcmp(path, "/proc/self/clear_refs") != 0 || strcmp(text, "5") != 0)
        return -ENOENT;
    pthread_mutex_lock(&kernel->lock);
    kernel->clock_ns += FILE_NS;
    int result = -kernel->clear_refs_errno;
    if (result == 0) {
        kernel->mark_bytes = kernel->resident_bytes;
        kernel->n_resets++;
    }
    pthread_mutex_unlock(&kernel->lock);
    return result;
}

static uint64_t page_bytes(void *context)
{
    (void)context;
    return PAGE_BYTES;
}

static int start_thread(void *context, pthread_t *thread, void *(*run)(void *), void *argument)
{
    struct fake_kernel *kernel = context;
    if (kernel->thread_errno)
        return -kernel->thread_errno;
    return mt_measure_os_real.start_thread(NULL, thread, run, argument);
}

void fake_kernel_init(struct fake_kernel *kernel)
{
    *kernel = (struct fake_kernel){
        .os = mt_measure_os_real,
        .registry = {.lock = PTHREAD_MUTEX_INITIALIZER},
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .resident_bytes = 100u << 20,
        .mark_bytes = 900u << 20,
    };
    kernel->os.context = kernel;
    kernel->os.now_ns = now_ns;
    kernel->os.read_file = read_file;
    kernel->os.write_file = write_file;
    kernel->os.page_bytes = page_bytes;
    kernel->os.start_thread = start_thread;
}

void fake_take(struct fake_kernel *kernel, uint64_t bytes)
{
    pthread_mutex_lock(&kernel->lock);
    kernel->resident_bytes += bytes;
    if (kernel->mark_bytes < kernel->resident_bytes)
        kernel->mark_bytes = kernel->resident_bytes;
    pthread_mutex_unlock(&kernel->lock);
}

void fake_give(struct fake_kernel *kernel, uint64_t bytes)
{
    pthread_mutex_lock(&kernel->lock);
    kernel->resident_bytes -= bytes;
    pthread_mutex_unlock(&kernel->lock);
}

void fake_pass(struct fake_kernel *kernel, uint64_t ns)
{
    pthread_mutex_lock(&kernel->lock);
    kernel->clock_ns += ns;
    pthread_mutex_unlock(&kernel->lock);
}

static unsigned looks(struct fake_kernel *kernel)
{
    pthread_mutex_lock(&kernel->lock);
    unsigned n = kernel->n_looks;
    pthread_mutex_unlock(&kernel->lock);
    return n;
}

void fake_await_look(struct fake_kernel *kernel)
{
    unsigned wanted = looks(kernel) + 2;
    while (looks(kernel) < wanted)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}
