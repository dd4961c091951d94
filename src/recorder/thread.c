/* SPDX-License-Identifier: MIT */
/* A thread's recording state: made at its first event, sealed at its end, used again by a later
 * thread. */
#include "recorder/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "base/secrets.h"
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

void write_clock(struct thread *thread)
{
    uint64_t ticks, monotonic_ns;
    mt_clock_pair((int)memtally_recorder.use_counter, &ticks, &monotonic_ns);
    mt_write_event(&thread->writer, MT_EVENT_CLOCK, ticks, &monotonic_ns, 1);
}

static void write_thread(struct thread *thread)
{
    const struct tls *tls = &memtally_tls;
    uint64_t fields[] = {thread->writer.tid, tls->stack_low, tls->stack_high};
    mt_write_event(&thread->writer, MT_EVENT_THREAD, now_ticks(), fields, 3);
}

static void write_beginning(struct thread *thread, int first)
{
    struct recorder *recorder = &memtally_recorder;
    write_clock(thread);
    write_self(thread, thread, sizeof *thread);
    if (!first)
        return;
    write_self(thread, recorder->process, sizeof *recorder->process);
    write_self(thread, recorder->process->scratch, MT_PICTURE_SCRATCH_BYTES);
    heap_write_self(thread);
}

/* What may be a secret is hidden before it is written. Of an argument that was cut nobody can say
 * whether it is one, so that it is left out. */
static void write_command(struct thread *thread, const char *directory)
{
    char *text = memtally_recorder.process->scratch;
    char *line = text + MT_MAX_STRING;
    const long room = MT_PICTURE_SCRATCH_BYTES - MT_MAX_STRING;
    int fd = mt_open_of_process(&memtally_record_os, directory, "/cmdline");
    if (fd < 0)
        return;
    long got = memtally_record_os.read(fd, line, (size_t)room);
    memtally_record_os.close(fd);
    while (got == room && got > 0 && line[got - 1] != '\0')
        got--;
    if (got <= 0)
        return;
    size_t length = mt_hide_secrets(line, (size_t)got, text, MT_MAX_STRING);
    mt_write_bytes(&thread->writer, MT_EVENT_MACHINE, now_ticks(), MT_MACHINE_COMMAND, text,
                   length);
}

/* What was mapped before the first event: the loader's and the libraries' own memory. The thread's
 * stack is looked for in passing. */
static void write_first_maps(struct thread *thread, const char *directory,
                             struct stack_search *search)
{
    static const uint64_t begin[] = {0, MT_PICTURE_START, 0, 0};
    static const uint64_t end[] = {0, 0, MT_METHOD_NONE};
    char *text = memtally_recorder.process->scratch;
    int fd = mt_open_of_process(&memtally_record_os, directory, "/maps");
    if (fd < 0)
        return;
    mt_write_event(&thread->writer, MT_EVENT_PICTURE_BEGIN, now_ticks(), begin, 4);
    long got;
    while ((got = memtally_record_os.read(fd, text, MT_TEXT_PIECE)) > 0) {
        mt_write_bytes(&thread->writer, MT_EVENT_PICTURE_TEXT, now_ticks(), MT_TEXT_MAPS, text,
                       (size_t)got);
        stack_search(search, text, got);
    }
    mt_write_event(&thread->writer, MT_EVENT_PICTURE_END, now_ticks(), end, 3);
    memtally_record_os.close(fd);
}

struct beginning {
    struct thread *thread; /* NULL as long as it has no state */
    const void *here;      /* on its stack */
    uint32_t tid;
    int first; /* whether it began the process's recording */
};

/* What there is before the program takes anything: of one that is killed before it is looked at
 * again nothing else is known. */
static void describe_process(const struct beginning *beginning)
{
    struct process *process = memtally_recorder.process;
    struct stack_search search = {.place = (uintptr_t)beginning->here};
    struct thread *thread = beginning->thread;
    const char *directory;
    if (!beginning->first || !take_turn(&process->picture_busy))
        return;
    uint64_t resident = own_resident_bytes(&directory);
    if (resident)
        mt_write_event(&thread->writer, MT_EVENT_LOOK, now_ticks(), &resident, 1);
    write_command(thread, directory);
    write_first_maps(thread, directory, &search);
    end_turn(&process->picture_busy);
    if (!memtally_tls.stack_high)
        stack_set_bounds(&search);
}

/* What is asked of /proc when a thread begins, and what it is asked for. Runs aside. */
static void ask_and_write(void *context)
{
    const struct beginning *beginning = context;
    write_beginning(beginning->thread, beginning->first);
    describe_process(beginning);
    if (!memtally_tls.stack_high)
        stack_find_bounds(beginning->here);
    write_thread(beginning->thread);
}

/* The counts of a thread that ends stay in the process's totals when its state is used again.
 * Whoever adds up meanwhile sees by the two numbers that he must do it again. */
static void keep_totals(struct mt_writer *writer)
{
    struct process *process = memtally_recorder.process;
    uint64_t *kept = process->ended_totals;
    uint64_t *counts[] = {&writer->small_allocs, &writer->small_alloc_bytes, &writer->small_frees,
                          &writer->small_free_bytes};
    __atomic_fetch_add(&process->moves_begun, 1, __ATOMIC_SEQ_CST);
    for (size_t i = 0; i < 4; i++) {
        __atomic_fetch_add(&kept[i], *counts[i], __ATOMIC_SEQ_CST);
        __atomic_store_n(counts[i], 0, __ATOMIC_SEQ_CST);
    }
    __atomic_fetch_add(&process->moves_done, 1, __ATOMIC_SEQ_CST);
}

/* The destructor of the thread's key. It asks to be called once more, so that what the destructors
 * of other keys free is still the thread's own; what comes after that is the leftover's. */
static void stop_thread(void *context)
{
    struct thread *thread = context;
    struct tls *tls = &memtally_tls;
    const void *frame = __builtin_frame_address(0);
    if (tls->thread != thread || !thread->alive || (tls->busy && !guard_was_left(frame)))
        return;
    if (!tls->last_call) {
        tls->last_call = 1;
        pthread_setspecific(memtally_recorder.key, thread);
        return;
    }
    tls->busy = (uintptr_t)frame;
    KEEP_ORDER();
    look_before_sure_fall(thread, (const void *)tls->stack_low, tls->stack_high - tls->stack_low);
    mt_writer_finish(&thread->writer);
    keep_totals(&thread->writer);
    tls->thread = NULL;
    tls->ended = 1;
    thread->alive = 0;
    thread->used_before = 1;
    __atomic_store_n(&thread->in_use, 0, __ATOMIC_RELEASE);
    KEEP_ORDER();
    tls->busy = 0;
}

int thread_make_key(void)
{
    return pthread_key_create(&memtally_recorder.key, stop_thread) == 0;
}

static void init_thread(struct thread *thread, struct process *process, uint32_t tid)
{
    uint32_t stream = __atomic_fetch_add(&process->next_stream, 1, __ATOMIC_RELAXED);
    if (stream)
        __atomic_store_n(&memtally_recorder.has_threads, 1, __ATOMIC_SEQ_CST);
    mt_writer_init(&thread->writer, &process->file, stream, tid);
    if (thread->used_before) {
        memset(thread->names, 0, sizeof thread->names);
        memset(thread->stacks, 0, sizeof thread->stacks);
        memset(thread->python, 0, sizeof thread->python);
        memset(&thread->chain, 0, sizeof thread->chain);
    }
    thread->random = mt_counter() ^ ((uint64_t)tid << 32) ^ 0x9e3779b97f4a7c15u;
    heap_init_thread(thread);
    thread->ggml_call = NULL;
    thread->alive = 1;
}

/* From then on a handler that forks tells by it what it came upon. */
static void make_thread(struct beginning *beginning)
{
    struct process *process = memtally_recorder.process;
    struct thread *thread = get_thread(process);
    if (thread) {
        init_thread(thread, process, beginning->tid);
        memtally_tls.thread = thread;
    }
    beginning->thread = thread;
}

/* Where a recording begins, all of it runs aside. */
static void begin_first(void *context)
{
    struct beginning *beginning = context;
    make_thread(beginning);
    beginning->first = beginning->thread != NULL;
    if (beginning->first)
        ask_and_write(beginning);
}

static void begin_further(struct beginning *beginning)
{
    make_thread(beginning);
    if (!beginning->thread)
        return;
    if (memtally_tls.stack_high || !do_aside(ask_and_write, beginning)) {
        write_beginning(beginning->thread, 0);
        write_thread(beginning->thread);
    }
}

static struct thread *begin_own(struct tls *tls)
{
    struct beginning beginning = {.here = __builtin_frame_address(0),
                                  .tid = (uint32_t)MT_SYS0(SYS_gettid)};
    if (!process_start(begin_first, &beginning))
        return NULL;
    if (!beginning.first)
        begin_further(&beginning);
    if (!beginning.thread)
        return NULL;
    if (memtally_recorder.has_key)
        pthread_setspecific(memtally_recorder.key, tls->thread);
    return tls->thread;
}

/* A thread that has ended still frees: its tables, the stacks of others. That goes through one
 * state for all of them, which is waited for briefly and never for long. */
static struct thread *borrow(struct tls *tls)
{
    struct process *process = memtally_recorder.process;
    if (process->alive != PROCESS_RECORDS)
        return NULL;
    for (int tries = 0; __atomic_exchange_n(&process->leftover_busy, 1, __ATOMIC_ACQUIRE); tries++)
        if (tries == 10000) {
            __atomic_fetch_add(&process->file.header->events_lost, 1, __ATOMIC_RELAXED);
            return NULL;
        }
    tls->borrowed = BORROWED;
    if (process->leftover) {
        memset(&process->leftover->chain, 0, sizeof process->leftover->chain); /* another's */
        return process->leftover;
    }
    struct thread *thread = map_thread(process);
    if (!thread) {
        thread_give_back();
        return NULL;
    }
    init_thread(thread, process, (uint32_t)MT_SYS0(SYS_gettid));
    write_self(thread, thread, sizeof *thread);
    process->leftover = thread;
    return thread;
}

void thread_give_back(void)
{
    if (memtally_tls.borrowed & INHERITED) {
        forget_parent();
        return;
    }
    memtally_tls.borrowed = 0;
    __atomic_store_n(&memtally_recorder.process->leftover_busy, 0, __ATOMIC_RELEASE);
}

static int is_on_signal_stack(void)
{
    stack_t stack = {0};
    return MT_SYS2(SYS_sigaltstack, NULL, &stack) < 0 || stack.ss_flags & SS_ONSTACK;
}

/* What was written up to then stands. The event that was begun may have moved what the next ones
 * are differences to, so that they begin a new block. */
static void give_up(struct tls *tls)
{
    struct process *process = memtally_recorder.process;
    struct thread *thread = tls->borrowed & BORROWED && process ? process->leftover : tls->thread;
    if (thread) {
        memset(&thread->chain, 0, sizeof thread->chain);
        mt_writer_break_off(&thread->writer);
    }
    if (tls->borrowed)
        thread_give_back();
    tls->busy = 0;
}

/* A signal handler may leave the recorder's frames by siglongjmp(), and a child of vfork(), which
 * runs in its parent's memory and on its stack, may be killed in one. Whatever is called from a
 * frame lies below it on the same stack, so that who stands above has outlived it; a handler may
 * have a stack of its own, even within the thread's. */
int guard_was_left(const void *frame)
{
    struct tls *tls = &memtally_tls;
    uintptr_t here = (uintptr_t)frame;
    if (here < tls->busy || tls->busy < tls->stack_low || here >= tls->stack_high ||
        memtally_recorder.is_filtered || is_on_signal_stack())
        return 0;
    give_up(tls);
    return 1;
}

static struct thread *begin_or_borrow(struct tls *tls)
{
    struct recorder *recorder = &memtally_recorder;
    uint32_t state = __atomic_load_n(&recorder->state, __ATOMIC_ACQUIRE);
    if (state == OFF || (state == STARTED && recorder->process->alive == PROCESS_GAVE_UP))
        return NULL;
    if (recorder->is_filtered) { /* a new state would need system calls */
        if (recorder->process->alive == PROCESS_RECORDS)
            __atomic_fetch_add(&recorder->process->file.header->events_lost, 1, __ATOMIC_RELAXED);
        return NULL;
    }
    if (state != STARTED && !recorder_start(NULL))
        return NULL;
    return tls->ended ? borrow(tls) : begin_own(tls);
}

/* The guard is set. */
struct thread *thread_start(void)
{
    struct tls *tls = &memtally_tls;
    int saved_errno = errno;
    struct thread *thread = begin_or_borrow(tls);
    if (!thread) {
        KEEP_ORDER();
        tls->busy = 0;
    }
    errno = saved_errno;
    return thread;
}

uint64_t hash_text(const char *text)
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
