/* SPDX-License-Identifier: MIT */
/* Catching the peak. Resident memory falls only in a few calls; the recorder looks just before
 * them, and where the resident size stands higher than in every picture so far it takes a new one,
 * within the share of run time that pictures may take. A height that is too little above the last
 * picture for one of its own is looked at without a picture. Moments that the program marks may
 * have a part of that share. */
#include "recorder/recorder.h"

#include <sys/resource.h>

#include "recorder/sys.h"

#define LOOK_EVERY_NS      100000u
#define LOOK_ALWAYS_BYTES  (16u << 20)
#define PICTURE_STEP       (4u << 20)
#define FREE_PICTURE_NS    20000000u /* what a process may spend whatever its run time */
#define FIRST_PICTURES_NS  4000000u
#define MINCORE_PAGES      1024u
#define MINCORE_MOST_BYTES ((uint64_t)1 << 30)
#define PICTURE_BASE_NS    300000u
#define LEAST_NS_PER_MIB   12000u
#define MOST_NS_PER_MIB    200000u
#define TOTALS_TRIES       1000
#define LOOK_NS            25000u
#define LAG_BYTES          (512u << 10)
#define CLOSER_FIRST_NS    1000000u
#define CLOSER_PART        200
#define UNSEEN_PART        2048u
#define UNSEEN_LEAST       (128u << 10) /* by so much the kernel's own figure may be off */

/* A burst of frees should not become a burst of system calls. */
static int is_too_soon(uint64_t *last_ns)
{
    uint64_t now = mt_monotonic_ns();
    if (now - __atomic_load_n(last_ns, __ATOMIC_RELAXED) < LOOK_EVERY_NS)
        return 1;
    __atomic_store_n(last_ns, now, __ATOMIC_RELAXED);
    return 0;
}

static uint64_t allowed_ns(const struct process *process)
{
    uint64_t elapsed = mt_monotonic_ns() - process->start_ns;
    uint64_t allowed = elapsed / 1000000 * memtally_recorder.share_ppm;
    return allowed > FREE_PICTURE_NS ? allowed : FREE_PICTURE_NS;
}

/* A process may spend some time on pictures whatever its run time. Pictures that differ little take
 * no more of it than a thirtieth of the time so far: a heap that creeps upward would have spent all
 * of it at once. */
static uint64_t allowed_for_steps_ns(const struct process *process)
{
    uint64_t allowed = allowed_ns(process);
    uint64_t so_far = FIRST_PICTURES_NS + (mt_monotonic_ns() - process->start_ns) / 30;
    return so_far < allowed ? so_far : allowed;
}

/* A program that marks each of its steps must leave something for its peak. */
static uint64_t allowed_for_marks_ns(const struct process *process)
{
    return allowed_ns(process) / 2;
}

/* By how much a resident size must stand above every picture to be worth one: by little as long as
 * there is much to spend. While a program grows, each new height would make a picture of its own,
 * and those on the way up are not worth the one at the top. */
static uint64_t step_above(const struct process *process)
{
    uint64_t highest = __atomic_load_n(&process->pictured_bytes, __ATOMIC_RELAXED);
    uint64_t allowed = allowed_for_steps_ns(process);
    uint64_t part = 320;
    uint64_t least = PICTURE_STEP / 512;
    if (process->picture_spent_ns > allowed / 4 * 3) {
        part = 96;
        least = PICTURE_STEP / 32;
    } else if (process->picture_spent_ns > allowed / 2) {
        part = 192;
        least = PICTURE_STEP / 64;
    }
    return (highest / part > least ? highest / part : least) + 1;
}

/* Something is left for one more after a picture of the way up. One that is much higher than all
 * before may take more than is left, once. */
static int is_affordable(const struct process *process, enum mt_picture_reason reason,
                         uint64_t resident)
{
    uint64_t rate = process->ns_per_mib ? process->ns_per_mib : LEAST_NS_PER_MIB;
    uint64_t cost = PICTURE_BASE_NS + (resident >> 20) * rate;
    uint64_t pictures = reason == MT_PICTURE_FALL || reason == MT_PICTURE_MARK ? 2 : 1;
    uint64_t highest = __atomic_load_n(&process->pictured_bytes, __ATOMIC_RELAXED);
    if (reason == MT_PICTURE_MARK && process->mark_spent_ns + cost > allowed_for_marks_ns(process))
        return 0;
    if (resident >= highest + highest / 8 + PICTURE_STEP)
        return process->picture_spent_ns < allowed_ns(process);
    return process->picture_spent_ns + pictures * cost <= allowed_ns(process);
}

/* The processor time of a picture is charged in full: on a busy machine its elapsed time is mostly
 * other programs'. The guess of what the next will cost is kept within reason, and falls again with
 * each picture skipped. */
static void charge(struct process *process, uint64_t cost_ns, uint64_t resident)
{
    uint64_t rate = cost_ns > PICTURE_BASE_NS ? (cost_ns - PICTURE_BASE_NS) / ((resident >> 20) + 1)
                                              : LEAST_NS_PER_MIB;
    if (rate < LEAST_NS_PER_MIB)
        rate = LEAST_NS_PER_MIB;
    process->ns_per_mib = rate < MOST_NS_PER_MIB ? rate : MOST_NS_PER_MIB;
    process->picture_spent_ns += cost_ns;
    process->file.header->picture_ns += cost_ns;
}

static void add_totals(uint64_t totals[4], const struct mt_writer *writer)
{
    totals[0] += __atomic_load_n(&writer->small_allocs, __ATOMIC_SEQ_CST);
    totals[1] += __atomic_load_n(&writer->small_alloc_bytes, __ATOMIC_SEQ_CST);
    totals[2] += __atomic_load_n(&writer->small_frees, __ATOMIC_SEQ_CST);
    totals[3] += __atomic_load_n(&writer->small_free_bytes, __ATOMIC_SEQ_CST);
}

/* The totals of all threads; each is read while its owner may be changing it. Returns 0 where
 * counts were moved meanwhile: they are then in there twice, or not at all. */
static int add_up(struct process *process, uint64_t totals[4])
{
    uint64_t done = __atomic_load_n(&process->moves_done, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&process->moves_begun, __ATOMIC_SEQ_CST) != done)
        return 0;
    for (size_t i = 0; i < 4; i++)
        totals[i] = __atomic_load_n(&process->ended_totals[i], __ATOMIC_SEQ_CST);
    struct thread *each = __atomic_load_n(&process->threads, __ATOMIC_ACQUIRE);
    for (; each; each = each->next)
        add_totals(totals, &each->writer);
    return __atomic_load_n(&process->moves_begun, __ATOMIC_SEQ_CST) == done;
}

/* The last counts still hold while threads end faster than we add their counts up. */
static void write_totals(struct thread *thread)
{
    uint64_t totals[4];
    for (int tries = 0; tries < TOTALS_TRIES; tries++) {
        if (add_up(memtally_recorder.process, totals)) {
            mt_write_event(&thread->writer, MT_EVENT_TOTALS, now_ticks(), totals, 4);
            return;
        }
        if (!memtally_recorder.is_filtered)
            MT_SYS0(SYS_sched_yield);
    }
}

/* A look at the resident size, and what may follow from it. Runs aside. */
struct looking {
    struct thread *thread;
    enum mt_picture_reason reason;
    uint64_t least_bytes; /* a picture is wanted from this resident size on */
    uint64_t step;        /* or so far above the highest that has one; 0: no such step */
    uint64_t name;        /* of the mark */
    int is_marked;        /* the mark is written */
};

/* The process's own directory shows nothing once its first thread has ended. That of the thread
 * that looks does, but Linux clears up behind it when the thread ends, and who waits for the
 * process's end meanwhile spins until that is done. */
uint64_t own_resident_bytes(const char **directory)
{
    const struct mt_record_os *os = &memtally_record_os;
    *directory = "/proc/self";
    uint64_t resident = mt_resident_bytes(os, *directory, memtally_recorder.page_bytes);
    if (resident)
        return resident;
    *directory = "/proc/thread-self";
    return mt_resident_bytes(os, *directory, memtally_recorder.page_bytes);
}

static void take_picture(const struct looking *looking, const char *directory, uint64_t resident)
{
    struct process *process = memtally_recorder.process;
    struct mt_file_header *header = process->file.header;
    const struct mt_picture_request request = {
        .process_directory = directory,
        .reason = looking->reason,
        .resident_bytes = resident,
        .avoid_scan = (int)memtally_recorder.avoid_scan,
        .shares_nothing = !memtally_recorder.has_forked && !(header->flags & MT_FILE_FORKED),
        .scratch = process->scratch,
    };
    struct mt_picture_result result;
    write_totals(looking->thread);
    mt_picture_take(&looking->thread->writer, &request, &result);
    if (!result.complete)
        return;
    header->pictures_taken++;
    if (resident > process->pictured_bytes)
        process->pictured_bytes = resident;
}

static void skip_picture(struct process *process, uint64_t resident)
{
    struct mt_file_header *header = process->file.header;
    if (process->ns_per_mib > LEAST_NS_PER_MIB) /* the guess may have been too high */
        process->ns_per_mib -= (process->ns_per_mib - LEAST_NS_PER_MIB) / 8;
    /* Looks at the same height would be one picture. */
    if (header->pictures_skipped && resident <= header->skipped_resident_bytes + PICTURE_STEP / 4)
        return;
    header->pictures_skipped++;
    header->skipped_resident_bytes = resident;
}

/* The mark has the time of the size that it is of. */
static void write_size(struct looking *looking, uint64_t resident)
{
    uint64_t ticks = now_ticks();
    mt_write_event(&looking->thread->writer, MT_EVENT_LOOK, ticks, &resident, 1);
    if (looking->reason != MT_PICTURE_MARK)
        return;
    mt_write_event(&looking->thread->writer, MT_EVENT_MARK, ticks, &looking->name, 1);
    looking->is_marked = 1;
}

static void raise_to(uint64_t *highest, uint64_t bytes)
{
    uint64_t known = __atomic_load_n(highest, __ATOMIC_RELAXED);
    while (bytes > known && !__atomic_compare_exchange_n(highest, &known, bytes, 1,
                                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

static void look_and_picture(struct looking *looking, uint64_t before_ns)
{
    struct process *process = memtally_recorder.process;
    struct thread *thread = looking->thread;
    const char *directory;
    uint64_t resident = own_resident_bytes(&directory);
    __atomic_fetch_add(&process->file.header->looks, 1, __ATOMIC_RELAXED);
    raise_to(&process->seen_bytes, resident);
    write_size(looking, resident);
    write_clock(thread);
    if (resident >= looking->least_bytes && is_affordable(process, looking->reason, resident)) {
        take_picture(looking, directory, resident);
        charge(process, mt_thread_cpu_ns() - before_ns, resident);
        return;
    }
    write_totals(thread); /* what the heap held at that size */
    if (resident >= looking->least_bytes && looking->reason != MT_PICTURE_MARK)
        skip_picture(process, resident);
}

static void look(void *context)
{
    struct looking *looking = context;
    uint64_t before_ns = mt_thread_cpu_ns();
    look_and_picture(looking, before_ns);
    if (looking->reason == MT_PICTURE_MARK)
        __atomic_fetch_add(&memtally_recorder.process->mark_spent_ns,
                           mt_thread_cpu_ns() - before_ns, __ATOMIC_RELAXED);
}

/* What falls above all pictures is worth a wait for another thread's look: that one may come to the
 * size when this thread's memory has gone. */
static int get_turn(struct process *process, int is_worth_a_wait)
{
    int waits = is_worth_a_wait && !__atomic_load_n(&process->turn_is_stuck, __ATOMIC_RELAXED);
    int has = (waits ? await_turn : take_turn)(&process->picture_busy);
    if (has || waits)
        __atomic_store_n(&process->turn_is_stuck, !has, __ATOMIC_RELAXED);
    return has;
}

static int look_in_turn(struct looking *looking)
{
    struct process *process = memtally_recorder.process;
    if (!get_turn(process, looking->step != 0))
        return 0;
    if (looking->step)
        looking->least_bytes =
            __atomic_load_n(&process->pictured_bytes, __ATOMIC_RELAXED) + looking->step;
    do_aside(look, looking);
    end_turn(&process->picture_busy);
    return 1;
}

static void try_look(struct thread *thread, enum mt_picture_reason reason, uint64_t least_bytes)
{
    look_in_turn(&(struct looking){.thread = thread, .reason = reason, .least_bytes = least_bytes});
}

/* The highest resident size of the process so far, by a call that needs no descriptor and a tenth
 * of the time. Of one thread alone the kernel need not add up what all have used. */
static uint64_t highest_so_far(void)
{
    struct rusage usage;
    if (MT_SYS2(SYS_getrusage, RUSAGE_THREAD, &usage) < 0)
        return 0;
    return (uint64_t)usage.ru_maxrss * 1024;
}

/* Looks for what the kernel's figure does not show yet may take a two hundredth of the time. */
static int may_look_closer(struct process *process)
{
    uint64_t allowed = CLOSER_FIRST_NS + (mt_monotonic_ns() - process->start_ns) / CLOSER_PART;
    if (__atomic_load_n(&process->closer_ns, __ATOMIC_RELAXED) > allowed)
        return 0;
    __atomic_fetch_add(&process->closer_ns, LOOK_NS, __ATOMIC_RELAXED);
    return 1;
}

/* Whether the resident size may stand higher than at each look. What the kernel keeps is the
 * highest of all programs that the process has run: one that it began with tells nothing. Linux
 * takes it from counters of which each processor keeps up to 32 pages, so that it stands still
 * while memory grows by less, and falls short after it has moved. */
static int may_be_higher(struct process *process, uint64_t highest, uint64_t step)
{
    uint64_t known = __atomic_load_n(&process->pictured_bytes, __ATOMIC_RELAXED);
    uint64_t passed = __atomic_load_n(&process->passed_bytes, __ATOMIC_RELAXED);
    if (!highest || highest == process->unseen_bytes)
        return 1;
    if (highest > known + step && highest > passed + step)
        return 1;
    return highest != passed && highest + LAG_BYTES > known + step && may_look_closer(process);
}

/* Whatever the look finds, the highest size is either pictured then or gone; until then others do
 * not take it for passed, and wait with what they are about to give back. */
static void look_above(struct thread *thread, uint64_t highest, uint64_t step)
{
    struct process *process = memtally_recorder.process;
    look_in_turn(&(struct looking){.thread = thread, .reason = MT_PICTURE_FALL, .step = step});
    __atomic_store_n(&process->passed_bytes, highest, __ATOMIC_RELAXED);
    raise_to(&process->seen_bytes, highest);
}

/* An engine that gives a buffer back has done with a phase of its work, and what comes after has
 * other contents: here a smaller step is worth a picture. */
void look_before_buffer_goes(struct thread *thread)
{
    struct process *process = memtally_recorder.process;
    uint64_t pictured = __atomic_load_n(&process->pictured_bytes, __ATOMIC_RELAXED);
    try_look(thread, MT_PICTURE_BUFFER, pictured + PICTURE_STEP / 4);
}

/* How much of a range is resident, counted until it is `enough`. Of a file the page cache counts
 * too, and what is not known where, or is too long to be gone through, counts whole. */
static uint64_t resident_in(uintptr_t address, uint64_t length, uint64_t enough)
{
    const uint64_t page = memtally_recorder.page_bytes;
    const uintptr_t end = address + length;
    uint8_t pages[MINCORE_PAGES];
    uint64_t found = 0;
    if (!address || length > MINCORE_MOST_BYTES)
        return length;
    for (uintptr_t at = address & ~(page - 1); at < end && found < enough;
         at += sizeof pages * page) {
        uint64_t n = (end - at + page - 1) / page;
        if (n > sizeof pages)
            n = sizeof pages;
        if (MT_SYS3(SYS_mincore, at, n * page, pages) < 0)
            continue;
        for (uint64_t i = 0; i < n; i++)
            found += pages[i] & 1 ? page : 0;
    }
    return found;
}

/* Falls that are small together are worth no picture: as much less is what a later one shows. */
static int is_worth_a_look(uint64_t *fallen_bytes, uint64_t falls, uint64_t step)
{
    if (__atomic_add_fetch(fallen_bytes, falls, __ATOMIC_RELAXED) < step)
        return 0;
    __atomic_store_n(fallen_bytes, 0, __ATOMIC_RELAXED);
    return 1;
}

/* What is about to go: so many bytes, or what is resident of as many from an address on. */
struct fall {
    uintptr_t address; /* 0: all of it */
    uint64_t bytes;
};

static uint64_t falls_by(const struct fall *fall, uint64_t enough)
{
    return fall->address ? resident_in(fall->address, fall->bytes, enough) : fall->bytes;
}

/* A height that is worth no picture is looked at: what a report shows as the peak is the most that
 * was seen, and without the look it would miss as much as a picture must stand above the one
 * before. */
static void look_without_picture(struct thread *thread, uint64_t highest, const struct fall *fall)
{
    struct process *process = memtally_recorder.process;
    uint64_t seen = __atomic_load_n(&process->seen_bytes, __ATOMIC_RELAXED);
    uint64_t part = seen / UNSEEN_PART;
    uint64_t step = part > UNSEEN_LEAST ? part : UNSEEN_LEAST;
    struct looking looking = {
        .thread = thread, .reason = MT_PICTURE_FALL, .least_bytes = UINT64_MAX};
    if (highest <= seen + step || highest == process->unseen_bytes ||
        !is_worth_a_look(&process->slipped_bytes, falls_by(fall, step), step) ||
        !may_look_closer(process))
        return;
    if (look_in_turn(&looking))
        raise_to(&process->seen_bytes, highest);
}

/* Returns whether a picture was worth it. */
static int look_at_fall(struct thread *thread, const struct fall *fall, uint64_t step)
{
    struct process *process = memtally_recorder.process;
    uint64_t highest = highest_so_far();
    if (may_be_higher(process, highest, step) &&
        is_worth_a_look(&process->fallen_bytes, falls_by(fall, step), step)) {
        look_above(thread, highest, step);
        return 1;
    }
    look_without_picture(thread, highest, fall);
    return 0;
}

/* Another thread's look is worth a wait where it would not see any more what goes here. */
static void let_look_end(struct process *process)
{
    if (get_turn(process, 1))
        end_turn(&process->picture_busy);
}

void look_before_fall(struct thread *thread, uint64_t bytes)
{
    struct process *process = memtally_recorder.process;
    if (memtally_recorder.is_filtered ||
        (bytes < LOOK_ALWAYS_BYTES && is_too_soon(&process->last_look_ns)))
        return;
    look_at_fall(thread, &(struct fall){.bytes = bytes}, step_above(process));
}

/* A heap that was not shortened may be by the next free: a part of what was freed stands for it. */
void look_after_small_frees(struct thread *thread, uint64_t freed, uintptr_t end)
{
    struct process *process = memtally_recorder.process;
    uintptr_t before = __atomic_exchange_n(&process->heap_end, end, __ATOMIC_RELAXED);
    uint64_t falls = before > end ? before - end : freed / 4;
    if (memtally_recorder.is_filtered || is_too_soon(&process->last_small_look_ns)) {
        __atomic_fetch_add(&process->fallen_bytes, falls, __ATOMIC_RELAXED);
        return;
    }
    look_at_fall(thread, &(struct fall){.bytes = falls}, step_above(process));
}

/* What was never touched does not fall: it is no reason to look, nor to wait for a look. */
void look_before_sure_fall(struct thread *thread, const void *address, uint64_t length)
{
    struct process *process = memtally_recorder.process;
    const struct fall fall = {(uintptr_t)address, length};
    if (memtally_recorder.is_filtered)
        return;
    uint64_t step = step_above(process);
    if (!look_at_fall(thread, &fall, step) &&
        __atomic_load_n(&process->picture_busy, __ATOMIC_RELAXED) && falls_by(&fall, step) >= step)
        let_look_end(process);
}

/* How often a page was missing where the process touched it, or had it made resident. */
static uint64_t faults_so_far(void)
{
    struct rusage usage;
    if (MT_SYS2(SYS_getrusage, RUSAGE_SELF, &usage) < 0)
        return 0;
    return (uint64_t)usage.ru_minflt + (uint64_t)usage.ru_majflt;
}

/* Between our destructor and the last that is run at the exit, those of other libraries are, and
 * what they make resident is worth a second picture. Where no page was missing nothing came. */
void look_at_end(struct thread *thread)
{
    struct process *process = memtally_recorder.process;
    uint64_t pictured = __atomic_load_n(&process->pictured_bytes, __ATOMIC_RELAXED);
    uint64_t least = process->looked_at_stop ? pictured + 1 : 0;
    if (!least || !process->faults_at_stop || faults_so_far() != process->faults_at_stop)
        try_look(thread, MT_PICTURE_EXIT, least);
    write_totals(thread);
    process->faults_at_stop = faults_so_far();
}

/* The last that is seen from inside. */
void look_before_filter(struct thread *thread)
{
    try_look(thread, MT_PICTURE_FALL, 0);
    write_totals(thread);
}

/* What was touched since the last picture is in no event, so that a moment which the program means
 * to ask for is worth a picture whatever its height. Looks are charged too: there may be thousands.
 */
int look_at_mark(struct thread *thread, uint64_t name)
{
    struct process *process = memtally_recorder.process;
    struct looking looking = {.thread = thread, .reason = MT_PICTURE_MARK, .name = name};
    uint64_t spent = __atomic_load_n(&process->mark_spent_ns, __ATOMIC_RELAXED);
    if (!memtally_recorder.is_filtered && spent < allowed_for_marks_ns(process))
        look_in_turn(&looking);
    return looking.is_marked;
}

/* A program that comes in the place of a larger one, or is started by one, has that one's height.
 */
void look_at_beginning(struct process *process, uint64_t resident)
{
    uint64_t highest = highest_so_far();
    if (highest > resident + PICTURE_STEP / 4)
        process->unseen_bytes = highest;
}
