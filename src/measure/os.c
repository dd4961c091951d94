/* SPDX-License-Identifier: MIT */
/* The real outside world of measuring. Knows system calls, and nothing of what they are for. */
#include "measure/os.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <memtally/scope.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "device/cuda_uuid.h"
#include "device/nvml.h"

/* Enough for a sampler, and little under mlockall(). */
#define STACK_BYTES (256u << 10)

static uint64_t now_ns(void *context)
{
    (void)context;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static long read_file(void *context, const char *path, char *text, size_t size)
{
    (void)context;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t got;
    do
        got = read(fd, text, size - 1);
    while (got < 0 && errno == EINTR);
    long result = got < 0 ? -errno : got;
    close(fd);
    text[got < 0 ? 0 : got] = '\0';
    return result;
}

static int write_file(void *context, const char *path, const char *text)
{
    (void)context;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t put;
    do
        put = write(fd, text, strlen(text));
    while (put < 0 && errno == EINTR);
    int result = put < 0 ? -errno : 0;
    close(fd);
    return result;
}

static uint64_t page_bytes(void *context)
{
    (void)context;
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static void heap(void *context, uint64_t *used_bytes, uint64_t *free_bytes)
{
    (void)context;
    struct mallinfo2 said = mallinfo2();
    *used_bytes = said.uordblks + said.hblkhd;
    *free_bytes = said.fordblks;
}

static int start_thread(void *context, pthread_t *thread, void *(*run)(void *), void *argument)
{
    (void)context;
    pthread_attr_t attributes;
    int result = pthread_attr_init(&attributes);
    if (result != 0)
        return -result;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    result = pthread_attr_setstacksize(&attributes, STACK_BYTES);
    if (result == 0)
        result = pthread_create(thread, &attributes, run, argument);
    /* A program with much thread-local storage cannot live with a small stack. */
    if (result == EINVAL)
        result = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return -result;
}

static void wait_for(void *context, pthread_cond_t *condition, pthread_mutex_t *lock,
                     uint64_t interval_ns)
{
    uint64_t until = now_ns(context) + interval_ns;
    struct timespec deadline = {.tv_sec = (time_t)(until / 1000000000u),
                                .tv_nsec = (long)(until % 1000000000u)};
    pthread_cond_timedwait(condition, lock, &deadline);
}

static int open_nvml(void *context, struct mt_nvml *nvml, struct mt_error *error)
{
    (void)context;
    return mt_nvml_open_library(nvml, error);
}

static int cuda_uuid(void *context, int index, char uuid[MT_GPU_UUID_TEXT_BYTES],
                     struct mt_error *error)
{
    (void)context;
    return mt_cuda_uuid(index, uuid, error);
}

static uint32_t pid(void *context)
{
    (void)context;
    return (uint32_t)getpid();
}

/* The recorder's, where it is in the process. */
MT_SCOPE_WEAK int memtally_hook_device_watch(const char *uuid);
MT_SCOPE_WEAK uint64_t memtally_hook_device_peak(int watch);
MT_SCOPE_WEAK void memtally_hook_device_unwatch(int watch);

static int watch_device(void *context, const char *uuid)
{
    int (*hook)(const char *);
    (void)context;
    MT_SCOPE_FIND(hook, memtally_hook_device_watch);
    return hook ? hook(uuid) : MT_MEASURE_NO_WATCH;
}

static uint64_t watched_bytes(void *context, int watch)
{
    uint64_t (*hook)(int);
    (void)context;
    MT_SCOPE_FIND(hook, memtally_hook_device_peak);
    return hook ? hook(watch) : 0;
}

static void unwatch_device(void *context, int watch)
{
    void (*hook)(int);
    (void)context;
    MT_SCOPE_FIND(hook, memtally_hook_device_unwatch);
    if (hook)
        hook(watch);
}

const struct mt_measure_os mt_measure_os_real = {
    .now_ns = now_ns,
    .read_file = read_file,
    .write_file = write_file,
    .page_bytes = page_bytes,
    .heap = heap,
    .start_thread = start_thread,
    .wait = wait_for,
    .open_nvml = open_nvml,
    .cuda_uuid = cuda_uuid,
    .pid = pid,
    .watch_device = watch_device,
    .watched_bytes = watched_bytes,
    .unwatch_device = unwatch_device,
};

int mt_measure_cond_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    int result = pthread_condattr_init(&attributes);
    if (result != 0)
        return -result;
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    result = pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
    return -result;
}
