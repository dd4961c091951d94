/* SPDX-License-Identifier: MIT */
/* The preloaded recorder, shared by its files.
 *
 * What holds for all of it: inside a hook nothing allocates, locks, prints, or calls the dynamic
 * loader (the ggml adapter apart, whose callers hold no allocator lock), and errno is left alone.
 * Thread-local state is a pointer and a guard. The guard is set while the recorder works, so that
 * whatever it causes itself passes through unrecorded. What a signal handler allocates is recorded
 * too, unless it came while the recorder was at work.
 *
 * A forked child starts anew: the state of the process and of its threads lies in memory that the
 * kernel wipes on fork (MADV_WIPEONFORK), so that the child finds zeros and begins its own file. */
#ifndef MT_RECORDER_RECORDER_H
#define MT_RECORDER_RECORDER_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/ticks.h"
#include "recording/picture.h"
#include "recording/writer.h"

#define LIKELY(x)   __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define HIDDEN      __attribute__((visibility("hidden")))
#define EXPORTED    __attribute__((visibility("default")))

#define EXACT_FROM_BYTES      65536u
#define SAMPLE_INTERVAL_BYTES 524288u
#define LOOK_FROM_BYTES       131072u /* what libc maps alone, or gives back of the heap's end */
#define LOOK_EACH_BYTES       (8 * LOOK_FROM_BYTES)
#define SURE_FALL_FROM_BYTES  16384u
#define THREAD_GRANULES       64u
#define STACK_SLOTS           4096u
#define NAME_SLOTS            64u
#define ASIDE_STACK_BYTES     32768u
#define REGION_LEAVES         4096u
#define PYTHON_SLOTS          512u

struct stack_slot {
    uint64_t hash;
    uint32_t number; /* of the stack in the stream; 0: empty */
    uint32_t reserved;
};

struct name_slot {
    uint64_t hash;
    uint32_t number;
};

/* A place in Python's code that the stream has the name of. */
struct python_slot {
    uint64_t key;
    uint64_t frame; /* 0: empty */
};

/* The last chain of frame pointers: where its frames lay, and behind them what the last said. */
struct chain {
    uint32_t n;
    const uintptr_t *at[MT_MAX_FRAMES + 1];
};

/* What a thread needs to record. In memory that is wiped on fork. */
struct thread {
    struct mt_writer writer; /* first: its cursor and limit are the hot fields */
    uint64_t sample_at;      /* small_alloc_bytes at which a block is sampled */
    uint64_t look_at;        /* small_free_bytes before which it is time to look */
    uint64_t
        granules[THREAD_GRANULES]; /* that are known to have been written, by their lower bits */
    uint64_t random;
    uint64_t freed_bytes; /* other blocks, since the last look */
    uint32_t is_full;     /* in the full depth nothing is only counted */
    uint32_t alive;
    uint32_t in_use;
    uint32_t used_before;   /* names and stacks hold what an earlier thread left */
    uint32_t ggml_recorded; /* how many buffers the adapter has recorded */
    uint64_t ggml_last;     /* the last of them */
    const struct ggml_call
        *ggml_call;       /* the innermost that allocates for tensors, if it is alive */
    uint64_t ggml_ticket; /* what is written in it as long as it is */
    uint64_t ggml_next_ticket;
    struct thread *next;
    struct name_slot names[NAME_SLOTS];
    struct chain chain;
    struct stack_slot stacks[STACK_SLOTS];
    struct python_slot python[PYTHON_SLOTS];
};

/* The most that the driver said was used of a device since it was last asked for. */
struct device_watch {
    uint32_t state;
    char uuid[44];
    uint64_t peak_bytes;
};

#define DEVICES_TOLD_MAX 64  /* a bit each */
#define DEVICE_WATCHES   16u /* measurements of devices at a time; further ones are sampled */

/* A line of maps, read a byte at a time. */
struct maps_line {
    uintptr_t number[2]; /* start and end */
    uint32_t field;      /* the number being read; 2: past them */
    char last[2];        /* the line's last characters */
};

enum mapping_kind { MAPPING_NONE, MAPPING_OTHER, MAPPING_MAIN_STACK };

/* A search for the mapping that `place` lies in. */
struct stack_search {
    uintptr_t place;
    enum mapping_kind found;
    uintptr_t low;
    uintptr_t high;
    struct maps_line line;
};

enum process_state { PROCESS_NEW, PROCESS_STARTING, PROCESS_RECORDS, PROCESS_GAVE_UP };

/* What the process knows of itself. In memory that is wiped on fork. */
struct process {
    uint32_t alive; /* enum process_state */
    uint32_t next_stream;
    uint32_t picture_busy;  /* whose turn it is, by its thread number; also guards `scratch` */
    uint32_t turn_is_stuck; /* it was waited for in vain, and not taken since */
    uint32_t ended;
    uint32_t leftover_busy;
    struct mt_file file;
    struct mt_file_header parents_header; /* in place of the file's where that is a parent's */
    struct thread *threads;
    struct thread *leftover; /* for what threads do after their end; one at a time */
    uint32_t aside_busy;     /* a lock */
    void *scratch;
    uint64_t ended_totals[4]; /* of the small blocks of threads that have ended */
    uint64_t moves_begun;     /* of a thread's counts into these */
    uint64_t moves_done;
    uint64_t start_ns;
    uint64_t last_look_ns;
    uint64_t last_small_look_ns; /* after small frees */
    uint64_t pictured_bytes;     /* the highest resident size with a picture */
    uint64_t passed_bytes;       /* a higher one that had fallen before it was looked at */
    uint64_t fallen_bytes;       /* by falls since the last look that were too small for one */
    uint64_t seen_bytes;         /* the highest resident size of any look, or gone before it */
    uint64_t slipped_bytes;      /* as fallen_bytes, for looks without a picture */
    uintptr_t heap_end;          /* of libc's heap at its last look */
    uint64_t closer_ns;          /* spent on looks for what the kernel's figure may not show yet */
    uint64_t unseen_bytes;       /* the kernel's highest size from before this program; 0: none */
    uint32_t looked_at_stop; /* the picture at the end is taken, and only a higher one is wanted */
    uint64_t faults_at_stop; /* pages that had been touched for the first time by then */
    uint64_t picture_spent_ns;
    uint64_t mark_spent_ns;                  /* of that, at marks */
    uint64_t ns_per_mib;                     /* what the last picture cost */
    uint64_t devices_told;                   /* one bit each */
    uint32_t own_contexts[DEVICES_TOLD_MAX]; /* that the program made and did not end, by device */
    struct device_watch device_watches[DEVICE_WATCHES];
    uint32_t n_device_watches;
    uint32_t python_readers; /* threads that read Python's frames */
    _Alignas(16) uint8_t aside_stack[ASIDE_STACK_BYTES];
};

enum recorder_state { NOT_STARTED = 0, STARTING = 1, STARTED = 2, OFF = 3 };

/* The functions of the Python that the program has, and how its frames lie. Set before frames are
 * read. */
struct interpreter {
    const struct python_layout *layout;
    uintptr_t code_type;
    void *(*thread_state)(void);
    void *(*text)(const char *bytes, ssize_t length);
    void *(*number)(long value);
    long (*as_number)(void *object);
    const char *(*bytes)(void *object);
    void *(*module)(void *definition, int version);
};

/* Most places of sampled blocks hold none, so that most blocks that are freed need not be looked
 * for. */
#define SAMPLE_PLACES 16384u

/* The recorder's one object. What it points to is set once, when it starts. */
struct recorder {
    uint32_t state; /* enum recorder_state */
    uint32_t pid;   /* of the process that it started in; a forked child has another */
    uint32_t depth;
    uint32_t stacks;
    uint32_t share_ppm;
    uint32_t use_counter;
    uint32_t knows_clock; /* use_counter is known */
    uint32_t avoid_scan;
    uint32_t said;
    uint32_t has_key;      /* `key` ends a thread's state */
    uint32_t ends_last;    /* a function of ours is called after all destructors */
    uint32_t has_threads;  /* more than one thread has recorded something */
    uint32_t has_forked;   /* fork() was called: pages may be shared with a child */
    uint32_t is_filtered;  /* the program lets the kernel refuse system calls: none is made */
    uint32_t python;       /* stacks have Python's frames too */
    uint32_t has_labels;   /* something was said of a block */
    uint64_t range_labels; /* how often a range was labelled, which may hold blocks, or we forked */
    uint32_t counts_heap;  /* the three below are counted, of blocks that are events */
    int64_t heap_bytes;    /* that are held since counting began, less what was freed from before */
    int64_t heap_peak_bytes;   /* the most of that since it was last asked for */
    uint64_t heap_taken_bytes; /* all that was allocated */
    pthread_key_t key;
    uint64_t page_bytes;
    uintptr_t main_self;    /* pthread_self() of the main thread; 0: not known */
    uint64_t stderr_device; /* what descriptor 2 was when the recorder started */
    uint64_t stderr_inode;
    struct interpreter interpreter;
    struct process *process;
    struct sample_set *samples;
    struct ggml_cache *ggml;
    struct region_leaf *leaves[REGION_LEAVES]; /* where the heap was seen; see regions.h */
    int (*unwind)(void **frames, int limit);
    uint64_t frame_keys[MT_MAX_FRAMES];  /* what a frame's address is multiplied with in a hash */
    uint8_t samples_near[SAMPLE_PLACES]; /* how many sampled blocks that are alive may lie where a
                                            hash says */
    char directory[MT_PATH_BYTES - 64];
    char other_directory[128]; /* where that one may not be written; "": none */
};

extern HIDDEN struct recorder memtally_recorder;

/* Whose state the thread at work has, for as long as it is at work. */
enum borrowed {
    BORROWED = 1, /* the process's leftover one */
    INHERITED = 2 /* that of a parent, whose work a signal handler interrupted to fork */
};

struct tls {
    struct thread *thread;
    uintptr_t busy;       /* the guard: the frame that has set it; 0: none */
    uint8_t borrowed;     /* enum borrowed */
    uint8_t ended;        /* the thread's own state is given back for good */
    uint8_t last_call;    /* its key's destructor has run once */
    uint8_t forks_within; /* a fork is under way that came upon the recorder at work */
    uintptr_t stack_low;
    uintptr_t stack_high;
    uint64_t fork_ticks;      /* when fork() was called, in the child too */
    uintptr_t ggml_caller;    /* of the last call into the ggml adapter */
    void *loader_errors;      /* of what the recorder asks; see loader_errors_aside() */
    const char *aligned_name; /* what aligned blocks of this thread are for; NULL: not known */
    int aligned_category;
    uint64_t n_aligned; /* that there were, since it was last asked */
};

extern HIDDEN __thread struct tls memtally_tls __attribute__((tls_model("initial-exec")));

/* process.c */
HIDDEN int recorder_start(char **environment);
HIDDEN int process_start(void (*then)(void *context), void *context);
HIDDEN void process_end(int kind);
HIDDEN void write_self(struct thread *thread, const void *address, size_t length);

/* fork.c: the handlers of pthread_atfork(), and the end of what a child inherited. */
HIDDEN void before_fork(void);
HIDDEN void after_fork(void);
HIDDEN void after_fork_in_child(void);
HIDDEN int is_fork(long number, unsigned long flags, unsigned long stack);
HIDDEN long fork_by_call(long number, long a, long b, long c, long d, long e, long f);
HIDDEN void forget_parent(void);

/* foresee.c: called by the loader's own end alone, since it asks the loader. */
HIDDEN void foresee_end(void);

/* filter.c: whether more filters of system calls stand over this process than those `given`. */
HIDDEN int has_more_filters(uint32_t given);

/* refuse.c: Valgrind or a sanitizer has the program's memory in hand. */
HIDDEN int is_watched_by_another(void);

/* thread.c: thread_start() is called with the guard set; where it returns NULL, it is set no more.
 */
HIDDEN struct thread *thread_start(void);
HIDDEN void thread_give_back(void);
HIDDEN int thread_make_key(void);
/* Says what both clocks show. A process that is killed has its ticks turned into time by the last
 * of these. */
HIDDEN void write_clock(struct thread *thread);
HIDDEN uint32_t thread_name(struct thread *thread, const char *text);
HIDDEN uint64_t hash_text(const char *text);

/* The guard is for the thread's own signal handlers and what the recorder itself causes, so that it
 * is enough to keep the compiler from moving work past it. */
#define KEEP_ORDER() __atomic_signal_fence(__ATOMIC_SEQ_CST)

/* Whether the guard is set for a frame that is no more: then it is taken back, and what was begun
 * there is given up. `frame` is the caller's. */
HIDDEN int guard_was_left(const void *frame);

/* Begins recording an event: the calling thread's state with the guard set, or NULL where nothing
 * is to be recorded. The guard comes first: a handler that forks tells by it that the state is in
 * use. */
static inline __attribute__((always_inline)) struct thread *enter(void)
{
    struct tls *tls = &memtally_tls;
    const void *frame = __builtin_frame_address(0);
    if (UNLIKELY(tls->busy) && !guard_was_left(frame))
        return NULL;
    tls->busy = (uintptr_t)frame;
    KEEP_ORDER();
    struct thread *thread = tls->thread;
    if (UNLIKELY(!thread || !thread->alive))
        return thread_start();
    return thread;
}

static inline void leave(void)
{
    struct tls *tls = &memtally_tls;
    if (UNLIKELY(tls->borrowed))
        thread_give_back();
    KEEP_ORDER();
    tls->busy = 0;
}

static inline void wait_for_loads(void)
{
#if defined(__x86_64__)
    __builtin_ia32_lfence();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* The time after all that was done so far. The processor may read the counter ahead of the loads
 * before it: then a block that another thread hands over would seem to be freed before it was
 * allocated, and one to be allocated before its place was free. A single thread's events are in
 * order anyhow. Whatever it gets from a second one it gets by a load that comes after the second
 * one's store to has_threads, and so does the load here. */
static inline uint64_t now_ticks(void)
{
    if (__atomic_load_n(&memtally_recorder.has_threads, __ATOMIC_RELAXED))
        wait_for_loads();
    return mt_ticks((int)memtally_recorder.use_counter);
}

/* stack.c: the calling stack's number from the frame at `frame` on; 0 where stacks are off. A stack
 * that is new is written with the time `ticks`. */
HIDDEN uint32_t stack_number(struct thread *thread, const void *frame, uint64_t ticks);
HIDDEN void stacks_init(void);
/* Finds the calling thread's stack; it stays unknown where that cannot be told. To be called aside,
 * from a frame on that stack: `here`. */
HIDDEN void stack_find_bounds(const void *here);
/* The same in two steps, for who reads the maps anyway: piece by piece, then the outcome. */
HIDDEN void stack_search(struct stack_search *search, const char *text, long length);
HIDDEN void stack_set_bounds(const struct stack_search *search);
HIDDEN int stacks_load_unwinder(void);

/* heap.c */
HIDDEN int heap_init(void);
HIDDEN void heap_write_self(struct thread *thread);
HIDDEN void heap_init_thread(struct thread *thread);
HIDDEN void note_allocated(void *address, size_t size, const void *frame);
HIDDEN void note_freed(void *address);
/* Whether what is said of the block at `address`, of which this is a hash, is not what was said
 * last. That the block is freed will be an event, however small it is. */
HIDDEN int label_is_new(const struct thread *thread, uint64_t address, uint64_t hash);

/* look.c */
HIDDEN void look_before_fall(struct thread *thread, uint64_t bytes);
/* Where `freed` bytes of small blocks were freed, of a heap that ends at `end` now. */
HIDDEN void look_after_small_frees(struct thread *thread, uint64_t freed, uintptr_t end);
/* The same where memory is given back for certain: it is looked at however soon. */
HIDDEN void look_before_sure_fall(struct thread *thread, const void *address, uint64_t length);
HIDDEN void look_before_buffer_goes(struct thread *thread);
HIDDEN void look_at_end(struct thread *thread);
HIDDEN void look_before_filter(struct thread *thread);
HIDDEN int look_at_mark(struct thread *thread, uint64_t name); /* whether the mark is written */
HIDDEN void look_at_beginning(struct process *process, uint64_t resident);
/* The resident size, and the directory of /proc that shows the process now. To be called aside. */
HIDDEN uint64_t own_resident_bytes(const char **directory);

/* aside.c: calls `function` where the program's descriptors are out of reach, one caller at a time.
 * Returns 0 where that could not be had, and nothing was called. The other one calls it all the
 * same: for a process that begins, whose other threads there are not yet. */
HIDDEN int do_aside(void (*function)(void *context), void *context);
HIDDEN void do_aside_or_here(void (*function)(void *context), void *context);

/* os.c. Whether this thread has the turn now: a turn that another thread has is not waited for, or
 * is waited for some 20 ms. */
HIDDEN int take_turn(uint32_t *word);
HIDDEN int await_turn(uint32_t *word);
HIDDEN void end_turn(uint32_t *word);
extern HIDDEN const struct mt_record_os memtally_record_os;
/* Says `text` on standard error, once in the life of a program, without harm to it: not where
 * descriptor 2 has become something else, and not where writing would wait or raise a signal. */
HIDDEN void say_once(const char *text);
HIDDEN void remember_stderr(void);

#endif
