/* SPDX-License-Identifier: MIT */
/* Catching the peak. Resident memory falls only in a few calls; the recorder looks just before
 * them, and where the resident size stands higher than in every picture so far it takes a new one,
 * within the share of run time that pictures may take. */
#include "recorder/recorder.h"

#include <sys/resource.h>

#include "recorder/sys.h"

/* Of the thread that looks: the process's own shows nothing once its first thread has ended. */
#define OWN_DIRECTORY "/proc/thread-self"

#define LOOK_EVERY_NS     100000u
#define LOOK_ALWAYS_BYTES (16u << 20)
#define PICTURE_STEP      (4u << 20)
#define FREE_PICTURE_NS   20000000u /* what a process may spend whatever its run time */
#define PICTURE_BASE_NS   300000u
#define LEAST_NS_PER_MIB  12000u
#define MOST_NS_PER_MIB   200000u

/* Rarely called otherwise: a burst of frees should not become a burst of system calls. */
static int too_soon(struct process *process, uint64_t bytes)
{
    uint64_t now = mt_monotonic_ns();
    uint64_t last = __atomic_load_n(&process->last_look_ns, __ATOMIC_RELAXED);
    if (bytes < LOOK_ALWAYS_BYTES && now - last < LOOK_EVERY_NS)
        return 1;
    __atomic_store_n(&process->last_look_ns, now, __ATOMIC_RELAXED);
    return 0;
}

/* How far the budget goes: not to so many pictures, to ones that are needed, or to spare. */
enum budget { BUDGET_SPENT, BUDGET_TIGHT, BUDGET_AMPLE };

static enum budget budget_for(const struct process *process, uint64_t resident, uint64_t pictures)
{
    uint64_t rate = process->ns_per_mib ? process->ns_per_mib : LEAST_NS_PER_MIB;
    uint64_t cost = pictures * (PICTURE_BASE_NS + (resident >> 20) * rate);
    uint64_t elapsed = mt_monotonic_ns() - process->start_ns;
    uint64_t allowed = elapsed / 1000000 * memtally_recorder.share_ppm;
    if (allowed < FREE_PICTURE_NS)
        allowed = FREE_PICTURE_NS;
    if (process->picture_spent_ns + cost > allowed)
        return BUDGET_SPENT;
    return process->picture_spent_ns + cost > allowed / 2 ? BUDGET_TIGHT : BUDGET_AMPLE;
}

/* By how much a resident size must stand above every picture to be worth one: a 128th or `least`,
 * or much more. */
static uint64_t step_above(const struct process *process, int much)
{
    uint64_t highest = __atomic_load_n(&process->pictured_bytes, __ATOMIC_RELAXED);
    uint64_t step = highest / (much ? 8 : 128);
    uint64_t least = much ? 4 * PICTURE_STEP : PICTURE_STEP;
    return (step > least ? step : least) + 1;
}

/* While a program grows, each new height would make a picture of its own. Where the budget is
 * tight, only a much greater height does, and something is left for one more: the pictures on the
 * way up are not worth the one at the top. */
static int is_affordable(const struct process *process, enum mt_picture_reason reason,
                         uint64_t resident)
{
    if (reason != MT_PICTURE_FALL || budget_for(process, resident, 1) == BUDGET_AMPLE)
        return budget_for(process, resident, 1) != BUDGET_SPENT;
    uint64_t highest = __atomic_load_n(&process->pictured_bytes, __ATOMIC_RELAXED);
    return budget_for(process, resident, 2) != BUDGET_SPENT &&
           resident >= highest + step_above(process, 1);
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
    totals[0] += __atomic_load_n(&writer->small_allocs, __ATOMIC_RELAXED);
    totals[1] += __atomic_load_n(&writer->small_alloc_bytes, __ATOMIC_RELAXED);
    totals[2] += __atomic_load_n(&writer->small_frees, __ATOMIC_RELAXED);
    totals[3] += __atomic_load_n(&writer->small_free_bytes, __ATOMIC_RELAXED);
}

/* The totals of all threads; each is read while its owner may be changing it. */
static void write_totals(struct thread *thread)
{
    struct process *process = memtally_recorder.process;
    struct thread *each = __atomic_load_n(&process->threads, __ATOMIC_ACQUIRE);
    uint64_t totals[4];
    for (size_t i = 0; i < 4; i++)
        totals[i] = __atomic_load_n(&process->ended_totals[i], __ATOMIC_RELAXED);
    for (; each; each = each->next)
        add_totals(totals, &each->writer);
    mt_write_event(&thread->writer, MT_EVENT_TOTALS, now_ticks(), totals, 4);
}

static void take_picture(struct thread *thread, enum mt_picture_reason reason, uint64_t resident)
{
    struct process *process = memtally_recorder.process;
    struct mt_file_header *header = process->file.header;
    const struct mt_picture_request request = {
        .process_directory = OWN_DIRECTORY,
        .reason = reason,
        .resident_bytes = resident,
        .avoid_scan = (int)memtally_recorder.avoid_scan,
        .scratch = process->scratch,
    };
    struct mt_picture_result result;
    write_totals(thread);
    mt_picture_take(&thread->writer, &request, &result);
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

/* A look at the resident size, and what may follow from it. Runs aside. */
struct looking {
    struct thread *thread;
    enum mt_picture_reason reason;
    uint64_t least_bytes; /* a picture is wanted from this resident size on */
};

static void look(void *context)
{
    const struct looking *looking = context;
    struct process *process = memtally_recorder.process;
    struct thread *thread = looking->thread;
    uint64_t before_ns = mt_thread_cpu_ns();
    uint64_t resident =
        mt_resident_bytes(&memtally_record_os, OWN_DIRECTORY, memtally_recorder.page_bytes);
    __atomic_fetch_add(&process->file.header->looks, 1, __ATOMIC_RELAXED);
    mt_write_event(&thread->writer, MT_EVENT_LOOK, now_ticks(), &resident, 1);
    write_clock(thread);
    if (resident >= looking->least_bytes && is_affordable(process, looking->reason, resident)) {
        take_picture(thread, looking->reason, resident);
        charge(process, mt_thread_cpu_ns() - before_ns, resident);
        return;
    }
    write_totals(thread); /* what the heap held at that size */
    if (resident >= looking->least_bytes)
        skip_picture(process, resident);
}

static void try_look(struct thread *thread, enum mt_picture_reason reason, uint64_t least_bytes)
{
    struct process *process = memtally_recorder.process;
    struct looking looking = {thread, reason, least_bytes};
    if (__atomic_exchange_n(&process->picture_busy, 1, __ATOMIC_ACQUIRE))
        return;
    do_aside(look, &looking);
    __atomic_store_n(&process->picture_busy, 0, __ATOMIC_RELEASE);
}

/* The highest resident size so far, by a call that needs no descriptor and a tenth of the time. */
static uint64_t highest_so_far(void)
{
    struct rusage usage;
    if (MT_SYS2(SYS_getrusage, RUSAGE_SELF, &usage) < 0)
        return 0;
    return (uint64_t)usage.ru_maxrss * 1024;
}

/* Whether the resident size may stand higher than at each look. What the kernel keeps is the
 * highest of all programs that the process has run: one that it began with tells nothing. */
static int may_be_higher(struct process *process, uint64_t step)
{
    uint64_t highest = highest_so_far();
    uint64_t known = __atomic_load_n(&process->pictured_bytes, __ATOMIC_RELAXED);
    uint64_t passed = __atomic_load_n(&process->passed_bytes, __ATOMIC_RELAXED);
    if (!highest || highest == process->unseen_bytes)
        return 1;
    if (highest <= known + step || highest <= passed + step)
        return 0;
    __atomic_store_n(&process->passed_bytes, highest, __ATOMIC_RELAXED);
    return 1;
}

/* An engine that gives a buffer back has done with a phase of its work, and what comes after has
 * other contents: here a smaller step is worth a picture. */
void look_before_buffer_goes(struct thread *thread)
{
    struct process *process = memtally_recorder.process;
    uint64_t pictured = __atomic_load_n(&process->pictured_bytes, __ATOMIC_RELAXED);
    try_look(thread, MT_PICTURE_BUFFER, pictured + PICTURE_STEP / 4);
}

void look_before_fall(struct thread *thread, uint64_t bytes)
{
    struct process *process = memtally_recorder.process;
    thread->freed_bytes = 0;
    if (bytes < LOOK_FROM_BYTES || memtally_recorder.is_filtered || too_soon(process, bytes))
        return;
    uint64_t step = step_above(process, 0);
    if (may_be_higher(process, step))
        try_look(thread, MT_PICTURE_FALL,
                 __atomic_load_n(&process->pictured_bytes, __ATOMIC_RELAXED) + step);
}

void look_at_end(struct thread *thread)
{
    try_look(thread, MT_PICTURE_EXIT, 0);
    write_totals(thread);
}

/* The last that is seen from inside. */
void look_before_filter(struct thread *thread)
{
    try_look(thread, MT_PICTURE_FALL, 0);
    write_totals(thread);
}

/* A program that comes in the place of a larger one, or is started by one, has that one's height.
 */
static void read_height(void *context)
{
    uint64_t *resident = context;
    *resident = mt_resident_bytes(&memtally_record_os, OWN_DIRECTORY, memtally_recorder.page_bytes);
}

void look_at_beginning(struct process *process)
{
    uint64_t resident = 0;
    uint64_t highest = highest_so_far();
    do_aside(read_height, &resident);
    if (highest > resident + PICTURE_STEP / 4)
        process->unseen_bytes = highest;
}
