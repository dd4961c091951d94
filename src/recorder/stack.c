/* SPDX-License-Identifier: MIT */
/* Call stacks, by frame pointers or by libunwind, each written once per stream and then named by
 * its number. A frame pointer is followed only within the thread's own stack, so that a value that
 * is none cannot make the recorder read elsewhere. */
#include "recorder/recorder.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>

#include <memtally/depth.h>

#include "recorder/python.h"
#include "recorder/real.h"
#include "recorder/stack.h"
#include "recorder/sys.h"

#define HOOK(result, name, parameters) EXPORTED result name parameters;
#define HOOK_GGML(result, name, parameters)
#define HOOK_JUMP(name)
#define HOOK_OWN(result, name, parameters)
#include "recorder/hooks.def"

#define HIGHEST_DESCRIPTOR 65536u
#define DESCRIPTORS_BELOW  64u

/* `address` is not cleared: n says how many there are. */
struct frames {
    size_t n;
    int complete;
    uint64_t address[MT_MAX_FRAMES];
};

/* A hash is the sum of the frames' addresses, each multiplied with its key: unlike a chain it keeps
 * nothing waiting. Two stacks of one sum are less likely than 1 in 2^50. The keys are splitmix64's.
 */
void stacks_init(void)
{
    uint64_t state = 0;
    for (size_t i = 0; i < MT_MAX_FRAMES; i++) {
        uint64_t x = state += 0x9e3779b97f4a7c15u;
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
        x = (x ^ x >> 27) * 0x94d049bb133111ebu;
        memtally_recorder.frame_keys[i] = (x ^ x >> 31) | 1;
    }
}

/* How far from where a thread begins its first frame with a frame pointer may lie: below libc's
 * starting code, and for other threads than the main one also below libc's own data of the thread.
 */
#define MAIN_START_BYTES   1024u
#define THREAD_START_BYTES 16384u
#define THREAD_DATA_BYTES  2048u

static void read_byte(struct maps_line *line, char byte)
{
    uint32_t digit = (uint32_t)(byte <= '9' ? byte - '0' : byte - 'a' + 10);
    line->last[0] = line->last[1];
    line->last[1] = byte;
    if (line->field == 2)
        return;
    if (digit > 15)
        line->field++;
    else
        line->number[line->field] = line->number[line->field] << 4 | digit;
}

/* The main thread's stack is named "[stack]": no other name that the kernel gives to memory on
 * which code can stand ends in "k]". */
void stack_search(struct stack_search *search, const char *text, long length)
{
    struct maps_line *line = &search->line;
    for (long i = 0; i < length && search->found == MAPPING_NONE; i++) {
        if (text[i] != '\n') {
            read_byte(line, text[i]);
            continue;
        }
        if (search->place >= line->number[0] && search->place < line->number[1]) {
            search->low = line->number[0];
            search->high = line->number[1];
            search->found =
                line->last[0] == 'k' && line->last[1] == ']' ? MAPPING_MAIN_STACK : MAPPING_OTHER;
        }
        *line = (struct maps_line){0};
    }
}

static void search_maps(struct stack_search *search, const char *directory)
{
    char text[2048];
    long got;
    int fd = mt_open_of_process(&memtally_record_os, directory, "/maps");
    if (fd < 0)
        return;
    while (search->found == MAPPING_NONE &&
           (got = memtally_record_os.read(fd, text, sizeof text)) > 0)
        stack_search(search, text, got);
    memtally_record_os.close(fd);
}

/* How far the main thread's stack may yet grow. */
static uintptr_t limit_of_stack(void)
{
    struct rlimit limit = {0};
    long result = MT_SYS4(SYS_prlimit64, 0, RLIMIT_STACK, NULL, &limit);
    const uintptr_t most = (uintptr_t)1 << 30;
    return result < 0 || limit.rlim_cur > most ? most : (uintptr_t)limit.rlim_cur;
}

/* libc is not asked: pthread_getattr_np allocates, and the first event of a thread may come from
 * inside an allocator that holds its lock. libc puts its own data of a thread at the very top of
 * the thread's stack, and the thread pointer to it. */
void stack_set_bounds(const struct stack_search *search)
{
    struct tls *tls = &memtally_tls;
    uintptr_t self = (uintptr_t)pthread_self();
    uintptr_t low = search->low;
    uintptr_t high = search->high;
    if (search->found == MAPPING_NONE)
        return;
    if (search->found == MAPPING_MAIN_STACK) {
        uintptr_t grows = limit_of_stack();
        low = high > grows && high - grows < low ? high - grows : low;
    } else if (self > search->place && self < high && high - self > THREAD_DATA_BYTES) {
        high = self + THREAD_DATA_BYTES;
    }
    tls->stack_low = low;
    tls->stack_high = high;
}

void stack_find_bounds(const void *place)
{
    struct stack_search search = {.place = (uintptr_t)place};
    search_maps(&search, "/proc/self");
    if (search.found == MAPPING_NONE) /* its first thread has ended */
        search_maps(&search, "/proc/thread-self");
    stack_set_bounds(&search);
}

/* Whether the frame at `at` was called by the code that starts a thread. libc itself has no frame
 * pointers, so that the chain ends below it; that it ends near the stack's beginning tells this
 * from a function that libc calls back. */
static int at_start(const struct tls *tls, uintptr_t at, uintptr_t caller)
{
    uintptr_t end = memtally_real.stack_end;
    if (caller < memtally_real.libc_low || caller >= memtally_real.libc_high)
        return 0;
    if (end >= tls->stack_low && end < tls->stack_high)
        return at < end && end - at <= MAIN_START_BYTES;
    return tls->stack_high - at <= THREAD_START_BYTES;
}

static int is_frame(const struct tls *tls, uintptr_t at)
{
    return at % sizeof(uintptr_t) == 0 && at >= tls->stack_low && at < tls->stack_high &&
           tls->stack_high - at >= 2 * sizeof(uintptr_t);
}

/* The hook's own frame can be read wherever it is; the chain is followed only where that frame lies
 * on the thread's own stack, and not on that of a fiber or of a signal handler. */
static void walk_frame_pointers(const void *frame, struct frames *frames)
{
    const struct tls *tls = &memtally_tls;
    uintptr_t at = (uintptr_t)frame;
    int own_stack = is_frame(tls, at);
    for (;;) {
        uintptr_t next = ((const uintptr_t *)at)[0];
        uintptr_t caller = ((const uintptr_t *)at)[1];
        if (caller < 4096)
            return;
        frames->address[frames->n++] = caller;
        if (!own_stack)
            return;
        if (next <= at || !is_frame(tls, next) || frames->n == MT_MAX_FRAMES) {
            frames->complete = at_start(tls, at, caller);
            return;
        }
        at = next;
    }
}

/* Remembers the chain. */
static uint64_t follow_chain(struct chain *chain, uintptr_t at)
{
    const struct tls *tls = &memtally_tls;
    uint64_t hash = 0;
    uint32_t n = 0;
    for (;;) {
        uintptr_t next = ((const uintptr_t *)at)[0];
        hash += ((const uintptr_t *)at)[1] * memtally_recorder.frame_keys[n];
        chain->at[n++] = (const uintptr_t *)at;
        chain->at[n] = (const uintptr_t *)next;
        if (next <= at || !is_frame(tls, next) || n == MT_MAX_FRAMES)
            break;
        at = next;
    }
    chain->n = n;
    return hash;
}

/* Drops the recorder's own frames: the first frame kept is the one that called the hook. */
static void walk_unwinder(const void *frame, struct frames *frames)
{
    void *found[MT_MAX_FRAMES + 8];
    int saved_errno = errno;
    int n = memtally_recorder.unwind(found, MT_MAX_FRAMES + 8);
    errno = saved_errno;
    uintptr_t caller = ((const uintptr_t *)frame)[1];
    int first = 0;
    while (first < n && (uintptr_t)found[first] != caller)
        first++;
    if (first == n)
        first = 0;
    for (int i = first; i < n && frames->n < MT_MAX_FRAMES; i++)
        frames->address[frames->n++] = (uint64_t)(uintptr_t)found[i];
    frames->complete =
        frames->n > 0 && n < (int)(MT_MAX_FRAMES + 8) && n - first <= (int)MT_MAX_FRAMES;
}

/* A full neighbourhood is overwritten: the stack is then written once more under a new number. */
static inline struct stack_slot *slot_of(struct thread *thread, uint64_t hash)
{
    for (uint32_t probe = 0; probe < 8; probe++) {
        struct stack_slot *slot = &thread->stacks[(stack_home(hash) + probe) % STACK_SLOTS];
        if (!slot->number || slot->hash == hash)
            return slot;
    }
    struct stack_slot *slot = &thread->stacks[stack_home(hash)];
    slot->number = 0;
    return slot;
}

static uint64_t hash_frames(const struct frames *frames)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < frames->n; i++)
        hash += frames->address[i] * memtally_recorder.frame_keys[i];
    return hash ^ (uint64_t)frames->complete << 63;
}

__attribute__((noinline)) static void walk(const void *frame, struct frames *frames)
{
    frames->n = 0;
    frames->complete = 0;
    if (memtally_recorder.unwind)
        walk_unwinder(frame, frames);
    else
        walk_frame_pointers(frame, frames);
}

static uint32_t define(struct thread *thread, struct stack_slot *slot, uint64_t hash,
                       const struct frames *frames, uint64_t ticks)
{
    if (!frames->n)
        return 0;
    slot->hash = hash;
    slot->number =
        mt_write_stack(&thread->writer, ticks, frames->address, frames->n, frames->complete);
    return slot->number;
}

/* By what it takes to know a stack again without writing its frames down first. */
__attribute__((noinline)) static uint32_t number_of_new(struct thread *thread, const void *frame,
                                                        struct stack_slot *slot, uint64_t hash,
                                                        uint64_t ticks)
{
    struct frames frames;
    walk(frame, &frames);
    return define(thread, slot, hash, &frames, ticks);
}

__attribute__((noinline)) static uint32_t number_of_unwound(struct thread *thread,
                                                            const void *frame, uint64_t ticks)
{
    struct frames frames;
    walk(frame, &frames);
    uint64_t hash = hash_frames(&frames);
    struct stack_slot *slot = slot_of(thread, hash);
    return slot->number ? slot->number : define(thread, slot, hash, &frames, ticks);
}

/* Python's frames come behind the native ones, which leave them room; the reader puts them where
 * the interpreter's own are. */
static void add_python(struct thread *thread, const struct python_stack *stack, uint64_t ticks,
                       struct frames *frames)
{
    size_t room = MT_MAX_FRAMES - stack->n;
    if (frames->n > room)
        frames->n = room;
    if (stack->n)
        frames->complete = !stack->is_cut;
    for (uint32_t i = 0; i < stack->n; i++)
        frames->address[frames->n++] = python_frame(thread, &stack->place[i], ticks);
}

/* The short way does not see which Python functions are between the native frames: it is barred for
 * threads that have any. */
__attribute__((noinline)) static uint32_t number_with_python(struct thread *thread,
                                                             const void *frame,
                                                             const struct python_stack *stack,
                                                             uint64_t ticks)
{
    struct frames frames;
    uint64_t hash;
    int is_chain = !memtally_recorder.unwind && is_frame(&memtally_tls, (uintptr_t)frame);
    if (is_chain) {
        hash = follow_chain(&thread->chain, (uintptr_t)frame);
        thread->chain.at[0] = NULL;
        thread->chain.n = 0;
    } else {
        walk(frame, &frames);
        hash = hash_frames(&frames);
    }
    hash ^= stack->hash;
    struct stack_slot *slot = slot_of(thread, hash);
    if (LIKELY(slot->number))
        return slot->number;
    if (is_chain)
        walk(frame, &frames);
    add_python(thread, stack, ticks, &frames);
    return define(thread, slot, hash, &frames, ticks);
}

uint32_t stack_number(struct thread *thread, const void *frame, uint64_t ticks)
{
    if (memtally_recorder.stacks == MT_STACKS_NONE)
        return 0;
    if (UNLIKELY(memtally_recorder.python)) {
        struct python_stack python;
        if (python_walk(&python))
            return number_with_python(thread, frame, &python, ticks);
    }
    if (UNLIKELY(memtally_recorder.unwind != NULL) ||
        UNLIKELY(!is_frame(&memtally_tls, (uintptr_t)frame)))
        return number_of_unwound(thread, frame, ticks);
    uint64_t hash = follow_chain(&thread->chain, (uintptr_t)frame);
    struct stack_slot *slot = slot_of(thread, hash);
    return LIKELY(slot->number) ? slot->number : number_of_new(thread, frame, slot, hash, ticks);
}

static void *symbol(void *library, const char *name)
{
    return memtally_real.dlsym(library, name);
}

static long high_descriptor(int low, int flags)
{
    struct rlimit limit = {0};
    MT_SYS4(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit);
    rlim_t from = limit.rlim_cur < HIGHEST_DESCRIPTOR ? limit.rlim_cur : HIGHEST_DESCRIPTOR;
    from = from > 2 * DESCRIPTORS_BELOW ? from - DESCRIPTORS_BELOW : 0;
    long high = MT_SYS3(SYS_fcntl, low, flags & O_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, from);
    return high < 0 ? low : high;
}

/* libunwind tries through a pipe whether memory can be read, and closes and opens it anew when it
 * does not work. A program that closes all descriptors and opens its own gets these numbers: then
 * libunwind would read from, write to and close what is the program's. So its pipe is given numbers
 * that are seldom given. */
static int unwinder_pipe(int descriptors[2], int flags)
{
    int low[2];
    long result = MT_SYS2(SYS_pipe2, low, flags);
    if (result < 0) {
        errno = (int)-result;
        return -1;
    }
    for (size_t i = 0; i < 2; i++) {
        descriptors[i] = (int)high_descriptor(low[i], flags);
        if (descriptors[i] != low[i])
            memtally_record_os.close(low[i]);
    }
    return 0;
}

int pipe2(int descriptors[2], int flags)
{
    uintptr_t caller = (uintptr_t)__builtin_return_address(0);
    int ready = real_ready();
    if (UNLIKELY(!ready || (memtally_tls.busy && caller >= memtally_real.unwinder_low &&
                            caller < memtally_real.unwinder_high)))
        return unwinder_pipe(descriptors, flags);
    return memtally_real.pipe2(descriptors, flags);
}

/* libunwind's global cache of unwind tables takes a lock; its per-thread cache does not. */
int stacks_load_unwinder(void)
{
    enum { CACHE_PER_THREAD = 2 };
    void *library = memtally_real.dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return 0;
    void *backtrace = symbol(library, "unw_backtrace");
    void *policy = symbol(library, "_ULx86_64_set_caching_policy");
    void *space = symbol(library, "_ULx86_64_local_addr_space");
    if (!policy) {
        policy = symbol(library, "_ULaarch64_set_caching_policy");
        space = symbol(library, "_ULaarch64_local_addr_space");
    }
    if (!backtrace)
        return 0;
    find_module(backtrace, &memtally_real.unwinder_low, &memtally_real.unwinder_high);
    if (policy && space) {
        int (*set_policy)(void *space, int policy);
        __builtin_memcpy(&set_policy, &policy, sizeof set_policy);
        set_policy(*(void **)space, CACHE_PER_THREAD);
    }
    __builtin_memcpy(&memtally_recorder.unwind, &backtrace, sizeof backtrace);
    return 1;
}
