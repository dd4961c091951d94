/* SPDX-License-Identifier: MIT */
/* A thread's recording state: made at its first event, sealed at its end, used again by a later
 * thread. */
#include "recorder/recorder.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "recorder/real.h"
#include "recorder/sys.h"

static struct thread *claim_free(struct process *process)
{
    for (struct thread *thread = process->threads; thread; thread = thread->next) {
        uint32_t idle = 0;
        if (__atomic_compare_exchange_n(&thread->in_use, &idle, 1, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            return thread;
    }
    return NULL;
}

static void push(struct process *process, struct thread *thread)
{
    thread->next = __atomic_load_n(&process->threads, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&process->threads, &thread->next, thread, 1,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
}

static struct thread *map_thread(struct process *process)
{
    struct thread *thread = mt_sys_map(sizeof *thread);
    if (!thread || MT_SYS3(SYS_madvise, thread, sizeof *thread, MADV_WIPEONFORK) < 0)
        return NULL;
    thread->in_use = 1;
    push(process, thread);
    return thread;
}

/* Memory that a parent's thread of the same place left behind, zeroed by the fork, or free or new
 * memory. */
static struct thread *get_thread(struct process *process)
{
    struct thread *thread = memtally_tls.thread;
    if (thread && !thread->in_use) {
        thread->in_use = 1;
        push(process, thread);
        return thread;
    }
    thread = claim_free(process);
    return thread ? thread : map_thread(process);
}

static void find_stack(struct thread *thread)
{
    pthread_attr_t attributes;
    void *low;
    size_t size;
    thread->stack_low = thread->stack_high = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return;
    if (pthread_attr_getstack(&attributes, &low, &size) == 0) {
        thread->stack_low = (uintptr_t)low;
        thread->stack_high = (uintptr_t)low + size;
    }
    pthread_attr_destroy(&attributes);
}

static void write_beginning(struct thread *thread, int first)
{
    struct recorder *recorder = &memtally_recorder;
    uint64_t ticks = now_ticks();
    uint64_t fields[] = {thread->writer.tid, thread->stack_low, thread->stack_high};
    mt_write_event(&thread->writer, MT_EVENT_THREAD, ticks, fields, 3);
    uint64_t clock = mt_monotonic_ns();
    mt_write_event(&thread->writer, MT_EVENT_CLOCK, ticks, &clock, 1);
    write_self(thread, thread, sizeof *thread);
    if (!first)
        return;
    write_self(thread, recorder->process, sizeof *recorder->process);
    write_self(thread, recorder->process->scratch, MT_PICTURE_SCRATCH_BYTES);
}

static void write_command(struct thread *thread)
{
    char text[MT_MAX_STRING];
    int fd = memtally_record_os.open("/proc/self/cmdline", 0, 0);
    if (fd < 0)
        return;
    long got = memtally_record_os.read(fd, text, sizeof text);
    memtally_record_os.close(fd);
    if (got > 0)
        mt_write_bytes(&thread->writer, MT_EVENT_MACHINE, now_ticks(), MT_MACHINE_COMMAND, text,
                       (size_t)got);
}

/* What was mapped before the first event: the loader's and the libraries' own memory. */
static void write_first_maps(struct thread *thread)
{
    static const uint64_t begin[] = {0, MT_PICTURE_START, 0, 0};
    static const uint64_t end[] = {0, 0, MT_METHOD_NONE};
    char *text = memtally_recorder.process->scratch;
    int fd = memtally_record_os.open("/proc/self/maps", 0, 0);
    if (fd < 0)
        return;
    mt_write_event(&thread->writer, MT_EVENT_PICTURE_BEGIN, now_ticks(), begin, 4);
    long got;
    while ((got = memtally_record_os.read(fd, text, MT_TEXT_PIECE)) > 0)
        mt_write_bytes(&thread->writer, MT_EVENT_PICTURE_TEXT, now_ticks(), MT_TEXT_MAPS, text,
                       (size_t)got);
    mt_write_event(&thread->writer, MT_EVENT_PICTURE_END, now_ticks(), end, 3);
    memtally_record_os.close(fd);
}

static void stop_thread(void *context)
{
    struct thread *thread = context;
    struct tls *tls = &memtally_tls;
    if (tls->thread != thread || !thread->alive || tls->busy)
        return;
    tls->busy = 1;
    mt_writer_finish(&thread->writer);
    tls->thread = NULL;
    thread->alive = 0;
    __atomic_store_n(&thread->in_use, 0, __ATOMIC_RELEASE);
    tls->busy = 0;
}

/* The key whose destructor ends a thread's state; made once. pthread_once would take a lock. */
static void watch_end(struct thread *thread)
{
    struct recorder *recorder = &memtally_recorder;
    uint32_t none = 0;
    if (__atomic_compare_exchange_n(&recorder->key_state, &none, 1, 0, __ATOMIC_ACQUIRE,
                                    __ATOMIC_ACQUIRE)) {
        uint32_t state = pthread_key_create(&recorder->key, stop_thread) == 0 ? 2 : 3;
        __atomic_store_n(&recorder->key_state, state, __ATOMIC_RELEASE);
    }
    if (__atomic_load_n(&recorder->key_state, __ATOMIC_ACQUIRE) == 2)
        pthread_setspecific(recorder->key, thread);
}

static void init_thread(struct thread *thread, struct process *process)
{
    uint32_t stream = __atomic_fetch_add(&process->next_stream, 1, __ATOMIC_RELAXED);
    uint32_t tid = (uint32_t)MT_SYS0(SYS_gettid);
    mt_writer_init(&thread->writer, &process->file, stream, tid);
    memset(thread->names, 0, sizeof thread->names);
    memset(thread->stacks, 0, sizeof thread->stacks);
    thread->random = mt_counter() ^ ((uint64_t)tid << 32) ^ 0x9e3779b97f4a7c15u;
    thread->until_sample = 0;
    thread->freed_bytes = 0;
    thread->ggml_category = 0;
    find_stack(thread);
    thread->alive = 1;
}

/* *first: whether this thread is the one that began the process's recording. */
static struct thread *begin(int *first)
{
    struct process *process = memtally_recorder.process;
    *first = process->alive != 2;
    if (!process_start())
        return NULL;
    struct thread *thread = get_thread(process);
    if (thread)
        init_thread(thread, process);
    return thread;
}

struct thread *thread_start(void)
{
    struct tls *tls = &memtally_tls;
    int first;
    if (!memtally_recorder.started || !memtally_recorder.process ||
        memtally_recorder.process->alive == 3)
        return NULL;
    int saved_errno = errno;
    tls->busy = 1;
    struct thread *thread = begin(&first);
    tls->thread = thread;
    if (thread) {
        watch_end(thread);
        write_beginning(thread, first);
        if (first) {
            write_command(thread);
            write_first_maps(thread);
        }
    }
    tls->busy = 0;
    errno = saved_errno;
    return thread;
}

static uint64_t hash_text(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * 0x100000001b3u;
    return hash;
}

uint32_t thread_name(struct thread *thread, const char *text)
{
    if (!text || !*text)
        return 0;
    uint64_t hash = hash_text(text);
    struct name_slot *slot = &thread->names[hash % NAME_SLOTS];
    if (slot->number && slot->hash == hash)
        return slot->number;
    slot->hash = hash;
    slot->number = mt_write_string(&thread->writer, now_ticks(), text, strlen(text));
    return slot->number;
}
