/* SPDX-License-Identifier: MIT */
/* The recorder's life in a process: reading its orders, opening the recording file, ending it. */
#include "recorder/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <memtally/depth.h>

#include "base/device_caps.h"
#include "base/filters.h"
#include "recorder/cuda_cap.h"
#include "recorder/real.h"
#include "recorder/sys.h"

struct recorder memtally_recorder;
__thread struct tls memtally_tls;

#if defined(__x86_64__)
/* Whether the kernel trusts the counter; where it does not say, it is taken to. */
static void ask_clock_source(int *is_trusted)
{
    char source[8] = "";
    int fd =
        memtally_record_os.open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                                O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    long got = memtally_record_os.read(fd, source, sizeof source - 1);
    memtally_record_os.close(fd);
    *is_trusted = got > 0 && (memcmp(source, "tsc", 3) == 0 || memcmp(source, "kvm", 3) == 0);
}

/* A program that was started by one that forbade it must not read the counter. */
static int may_read_counter(void)
{
    int mode = 0;
    return MT_SYS2(SYS_prctl, PR_GET_TSC, &mode) < 0 || mode != PR_TSC_SIGSEGV;
}
#endif

/* Whether the processor's counter runs at one rate and the kernel trusts it too. */
static int counter_is_constant(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    int is_trusted = 1;
    if (!may_read_counter())
        return 0;
    __cpuid(0x80000007u, a, b, c, d); /* every processor of 64 bits has this leaf */
    if (d & (1u << 8))
        ask_clock_source(&is_trusted);
    return d & (1u << 8) && is_trusted;
#elif defined(__aarch64__)
    return 1;
#else
    return 0;
#endif
}

static uint32_t clock_kind(void)
{
    if (!memtally_recorder.use_counter)
        return MT_CLOCK_MONOTONIC;
#if defined(__aarch64__)
    return MT_CLOCK_CNTVCT;
#else
    return MT_CLOCK_TSC;
#endif
}

static uint64_t realtime_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static char *put_number(char *at, uint64_t number)
{
    char digits[20];
    size_t n = 0;
    do
        digits[n++] = (char)('0' + number % 10);
    while (number /= 10);
    while (n)
        *at++ = digits[--n];
    return at;
}

static void file_path(char path[MT_PATH_BYTES], const char *directory, uint64_t pid,
                      uint64_t number)
{
    size_t length = strlen(directory);
    memcpy(path, directory, length);
    char *at = path + length;
    *at++ = '/';
    at = put_number(at, pid);
    *at++ = '-';
    at = put_number(at, number);
    memcpy(at, ".mtr", sizeof ".mtr");
}

static void fill_header(struct mt_file_header *header, int forked)
{
    const struct recorder *recorder = &memtally_recorder;
    int full = recorder->depth == MT_DEPTH_FULL;
    uint64_t ticks, monotonic_ns;
    mt_clock_pair((int)recorder->use_counter, &ticks, &monotonic_ns);
    uint64_t fork_ticks = memtally_tls.fork_ticks ? memtally_tls.fork_ticks : ticks;
    *header = (struct mt_file_header){
        .kind = MT_FILE_PROCESS,
        .flags = forked ? MT_FILE_FORKED : 0,
        .pid = (uint32_t)MT_SYS0(SYS_getpid),
        .parent_pid = (uint32_t)MT_SYS0(SYS_getppid),
        .page_bytes = (uint32_t)recorder->page_bytes,
        .clock_kind = clock_kind(),
        .depth = recorder->depth,
        .stacks = recorder->stacks,
        .start_ticks = ticks,
        .start_monotonic_ns = monotonic_ns,
        .start_realtime_ns = realtime_ns(),
        .fork_ticks = forked ? fork_ticks : 0,
        .exact_from_bytes = full ? 0 : EXACT_FROM_BYTES,
        .sample_interval_bytes = full ? 0 : SAMPLE_INTERVAL_BYTES,
        .picture_share_ppm = recorder->share_ppm,
    };
}

struct creation {
    struct process *process;
    int result;
    uint64_t resident;
    void (*then)(void *context);
    void *context;
};

static int is_too_little(int result)
{
    return result == -ENOSPC || result == -EFBIG || result == -EDQUOT;
}

/* A file that there was no space for is not left behind empty. */
static int create_in(const char *directory, struct mt_file *file,
                     const struct mt_file_header *header)
{
    char path[MT_PATH_BYTES];
    int result = -EEXIST;
    for (uint64_t number = 0; result == -EEXIST && number < 100000; number++) {
        file_path(path, directory, header->pid, number);
        result = mt_file_create(file, &memtally_record_os, path, header);
    }
    if (is_too_little(result))
        MT_SYS3(SYS_unlinkat, AT_FDCWD, path, 0);
    return result;
}

/* All that has to be asked of files when a process begins, in one go. A program that was root may
 * not write there any more. */
static void create_file(void *context)
{
    struct creation *creation = context;
    struct process *process = creation->process;
    struct recorder *recorder = &memtally_recorder;
    struct mt_file_header header;
    if (!recorder->knows_clock) {
        recorder->use_counter = (uint32_t)counter_is_constant();
        recorder->knows_clock = 1;
    }
    fill_header(&header, (uint32_t)MT_SYS0(SYS_getpid) != recorder->pid);
    int result = create_in(recorder->directory, &process->file, &header);
    if (result < 0 && !is_too_little(result) && *recorder->other_directory)
        result = create_in(recorder->other_directory, &process->file, &header);
    process->start_ns = header.start_monotonic_ns;
    creation->result = result;
    const char *directory;
    creation->resident = own_resident_bytes(&directory);
}

/* One thread aside is made for all that is to be done there when a process begins. */
static void begin_recording(void *context)
{
    struct creation *creation = context;
    struct process *process = creation->process;
    create_file(creation);
    process->scratch = creation->result < 0 ? NULL : mt_sys_map(MT_PICTURE_SCRATCH_BYTES);
    if (!process->scratch)
        return;
    look_at_beginning(process, creation->resident);
    __atomic_store_n(&process->alive, PROCESS_RECORDS, __ATOMIC_RELEASE);
    creation->then(creation->context);
}

int process_start(void (*then)(void *context), void *context)
{
    struct process *process = memtally_recorder.process;
    uint32_t none = PROCESS_NEW;
    if (!process)
        return 0;
    if (!__atomic_compare_exchange_n(&process->alive, &none, PROCESS_STARTING, 0, __ATOMIC_ACQUIRE,
                                     __ATOMIC_ACQUIRE))
        return none == PROCESS_RECORDS;
    struct creation creation = {process, -EPERM, 0, then, context};
    /* What was said of blocks before is in the file of the process that it was forked from. */
    __atomic_fetch_add(&memtally_recorder.range_labels, 1, __ATOMIC_RELAXED);
    do_aside_or_here(begin_recording, &creation);
    if (process->scratch)
        return 1;
    process->alive = PROCESS_GAVE_UP;
    say_once(is_too_little(creation.result)
                 ? "no space left for the recording; the program runs unrecorded"
                 : "the recording cannot be written; the program runs unrecorded");
    return 0;
}

void write_self(struct thread *thread, const void *address, size_t length)
{
    uint64_t fields[] = {(uint64_t)(uintptr_t)address, length};
    mt_write_event(&thread->writer, MT_EVENT_SELF, now_ticks(), fields, 2);
}

/* A child of vfork() runs in its parent's memory: its end is not the parent's. Behind a filter
 * nothing can be asked, nor the clock read: the last event says when it was. */
void process_end(int kind)
{
    struct process *process = memtally_recorder.process;
    if (!process || process->alive != PROCESS_RECORDS || process->ended)
        return;
    if (memtally_recorder.is_filtered) {
        process->file.header->end_kind = (uint32_t)kind;
        return;
    }
    if (process->file.header->pid != (uint32_t)MT_SYS0(SYS_getpid))
        return;
    struct thread *thread = enter();
    if (!thread)
        return;
    if (!__atomic_exchange_n(&process->ended, 1, __ATOMIC_ACQ_REL)) {
        look_at_end(thread);
        struct mt_file_header *header = process->file.header;
        mt_clock_pair((int)memtally_recorder.use_counter, &header->end_ticks,
                      &header->end_monotonic_ns);
        header->end_kind = (uint32_t)kind;
        mt_writer_finish_at_end(&thread->writer);
    }
    leave();
}

/* The value of `name` in the environment, as it was when the program began. */
static const char *setting(char **environment, const char *name)
{
    size_t length = strlen(name);
    for (; environment && *environment; environment++)
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
            return *environment + length + 1;
    return NULL;
}

static uint32_t number_setting(char **environment, const char *name, uint32_t otherwise)
{
    const char *text = setting(environment, name);
    if (!text || *text < '0' || *text > '9')
        return otherwise;
    uint64_t number = 0;
    for (; *text >= '0' && *text <= '9' && number < 1000000000; text++)
        number = number * 10 + (uint64_t)(*text - '0');
    return (uint32_t)number;
}

static int read_settings(char **environment)
{
    struct recorder *recorder = &memtally_recorder;
    const char *directory = setting(environment, "MEMTALLY_RECORD_DIR");
    if (!directory)
        return 0;
    if (*directory != '/' || strlen(directory) >= sizeof recorder->directory) {
        say_once("MEMTALLY_RECORD_DIR is no absolute path or too long; nothing is recorded");
        return 0;
    }
    memcpy(recorder->directory, directory, strlen(directory) + 1);
    const char *other = setting(environment, "MEMTALLY_RECORD_OTHER_DIR");
    if (other && *other == '/' && strlen(other) < sizeof recorder->other_directory)
        memcpy(recorder->other_directory, other, strlen(other) + 1);
    recorder->depth = number_setting(environment, "MEMTALLY_RECORD_DEPTH", MT_DEPTH_DEFAULT);
    recorder->stacks = number_setting(environment, "MEMTALLY_RECORD_STACKS", MT_STACKS_FP);
    recorder->share_ppm = number_setting(environment, "MEMTALLY_RECORD_SHARE_PPM", 15000);
    recorder->avoid_scan = number_setting(environment, "MEMTALLY_RECORD_AVOID_SCAN", 0);
    return 1;
}

/* The bytes of struct process and struct thread are wiped in a forked child. */
static void *map_wiped(size_t length)
{
    void *memory = mt_sys_map(length);
    if (memory && MT_SYS3(SYS_madvise, memory, length, MADV_WIPEONFORK) < 0)
        return NULL;
    return memory;
}

static void end_exit(void)
{
    int saved_errno = errno;
    process_end(MT_END_EXIT);
    errno = saved_errno;
}

/* From <cxxabi.h>. Of no module, it is called where it stands in the order of all: before main()
 * that is ahead of the loader's own, which calls all destructors, so that it comes after them. */
int __cxa_atexit(void (*function)(void *), void *context, void *module); /* NOLINT */

/* Where it is called before our destructor, that one ends the recording. */
static void end_last(void *context)
{
    (void)context;
    memtally_recorder.ends_last = 0;
    if (memtally_recorder.process && memtally_recorder.process->looked_at_stop)
        end_exit();
}

static int get_ready(char **environment)
{
    struct recorder *recorder = &memtally_recorder;
    if (setting(environment, MT_FILTERS_VARIABLE) &&
        has_more_filters(number_setting(environment, MT_FILTERS_VARIABLE, 0)))
        return 0;
    remember_stderr();
    stacks_init();
    if (!read_settings(environment) || is_watched_by_another())
        return 0;
    recorder->pid = (uint32_t)MT_SYS0(SYS_getpid);
    recorder->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    recorder->process = map_wiped(sizeof *recorder->process);
    if (!recorder->process || !heap_init()) {
        say_once("no memory for the recorder; the program runs unrecorded");
        return 0;
    }
    recorder->has_key = (uint32_t)thread_make_key();
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
    at_quick_exit(end_exit);
    recorder->ends_last = __cxa_atexit(end_last, NULL, NULL) == 0;
    return 1;
}

static void load_unwinder(struct recorder *recorder)
{
    loader_errors_aside();
    int loaded = stacks_load_unwinder();
    loader_errors_back();
    if (loaded)
        return;
    say_once("libunwind.so.8 is not installed; stacks are taken by frame pointers");
    recorder->stacks = MT_STACKS_FP;
}

/* Starts at the first hook after libc is ready, since the constructors of libraries come before
 * ours; that is when it has set `environ`. An unwinder is loaded by our constructor alone: the
 * first hook may be called from within the loader. The caller has set the guard. */
int recorder_start(char **environment)
{
    struct recorder *recorder = &memtally_recorder;
    uint32_t state = NOT_STARTED;
    char **given = environment ? environment : environ;
    if (!given || !real_ready())
        return 0;
    const char *stacks = setting(given, "MEMTALLY_RECORD_STACKS");
    if (!environment && stacks && *stacks == '0' + MT_STACKS_UNWIND)
        return 0;
    if (!__atomic_compare_exchange_n(&recorder->state, &state, STARTING, 0, __ATOMIC_ACQUIRE,
                                     __ATOMIC_ACQUIRE))
        return state == STARTED;
    const char *caps = setting(given, MT_CAPS_VARIABLE);
    if (caps)
        cuda_cap_start(caps);
    int ready = get_ready(given);
    if (ready && recorder->stacks == MT_STACKS_UNWIND)
        load_unwinder(recorder);
    __atomic_store_n(&recorder->state, ready ? STARTED : OFF, __ATOMIC_RELEASE);
    return ready;
}

__attribute__((constructor)) static void start(int argc, char **argv, char **environment)
{
    struct tls *tls = &memtally_tls;
    int saved_errno = errno;
    (void)argc;
    (void)argv;
    if (tls->busy || !real_ready())
        return;
    tls->busy = (uintptr_t)__builtin_frame_address(0);
    KEEP_ORDER();
    int started = recorder_start(environment);
    KEEP_ORDER();
    tls->busy = 0;
    if (started && enter())
        leave();
    errno = saved_errno;
}

static void look_at_stop(struct process *process)
{
    int saved_errno = errno;
    struct thread *thread =
        process->file.header->pid == (uint32_t)MT_SYS0(SYS_getpid) ? enter() : NULL;
    if (thread) {
        foresee_end();
        look_at_end(thread);
        process->looked_at_stop = 1;
        leave();
    }
    errno = saved_errno;
}

__attribute__((destructor)) static void stop(void)
{
    struct process *process = memtally_recorder.process;
    if (process && process->alive == PROCESS_RECORDS && !process->ended &&
        !memtally_recorder.is_filtered)
        look_at_stop(process);
    if (!process || !process->looked_at_stop || !memtally_recorder.ends_last)
        end_exit();
}
