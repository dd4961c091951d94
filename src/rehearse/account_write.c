/* SPDX-License-Identifier: MIT */
/* The writing half of a rehearsal's account. It knows the file and nothing of ggml.
 *
 * System calls are made directly: the object that this is part of has hooks of its own for some of
 * libc's names, and they may be the caller. */
#include "rehearse/account_write.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define AWAIT_STEPS   200
#define AWAIT_STEP_NS 5000000
#define ALIVE_FD      200 /* or above it */

/* Where the account is mapped: NULL before it was looked for. */
static struct mt_account *the_account;
static const char no_account;

uint64_t pretend_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct mt_account *map_account(const char *path)
{
    long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0)
        return NULL;
    long size = syscall(SYS_lseek, fd, 0L, SEEK_END);
    struct mt_account *account = NULL;
    if (size >= (long)sizeof *account) {
        long at = syscall(SYS_mmap, NULL, sizeof *account, (long)PROT_READ | PROT_WRITE,
                          (long)MAP_SHARED, fd, 0L);
        account = at < 0 && at > -4096 ? NULL : (struct mt_account *)at;
    }
    syscall(SYS_close, fd);
    return account;
}

/* node-llama-cpp tries its library in a process of its own, and takes one for processors alone that
 * finds devices for the wrong one: nothing is pretended to that process. */
static int is_trial(void)
{
    const char *trial = getenv("TEST_BINDING_CP");
    return trial && strcmp(trial, "true") == 0;
}

/* The driver holds a pipe beside the account open for writing. Where it is killed, the kernel kills
 * us as we asked: nobody would end a server then. It costs no thread, and a descriptor out of the
 * way of the program's own. */
static void die_with_driver(const char *account_path)
{
    char path[PATH_MAX];
    size_t length = strlen(account_path);
    if (length + sizeof MT_ACCOUNT_ALIVE > sizeof path)
        return;
    memcpy(path, account_path, length);
    memcpy(path + length, MT_ACCOUNT_ALIVE, sizeof MT_ACCOUNT_ALIVE);
    long low = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0);
    if (low < 0)
        return;
    long high = syscall(SYS_fcntl, low, (long)F_DUPFD_CLOEXEC, (long)ALIVE_FD);
    long fd = high < 0 ? low : high;
    if (fd != low)
        syscall(SYS_close, low);
    syscall(SYS_fcntl, fd, (long)F_SETSIG, (long)SIGKILL);
    syscall(SYS_fcntl, fd, (long)F_SETOWN, (long)getpid());
    syscall(SYS_fcntl, fd, (long)F_SETFL, (long)(O_NONBLOCK | O_ASYNC));
}

static struct mt_account *open_account(void)
{
    const char *path = getenv(MT_ACCOUNT_VARIABLE);
    if (!path || !*path || is_trial())
        return NULL;
    struct mt_account *account = map_account(path);
    if (!account)
        return NULL;
    if (memcmp(account->magic, MT_ACCOUNT_MAGIC, sizeof account->magic) == 0 &&
        account->format == MT_ACCOUNT_FORMAT && account->n_devices <= MT_ACCOUNT_DEVICES_MAX) {
        die_with_driver(path);
        return account;
    }
    syscall(SYS_munmap, account, sizeof *account);
    return NULL;
}

struct mt_account *pretend_account(void)
{
    struct mt_account *found = __atomic_load_n(&the_account, __ATOMIC_ACQUIRE);
    if (found == (const void *)&no_account)
        return NULL;
    if (found)
        return found;
    int saved = errno;
    struct mt_account *made = open_account();
    struct mt_account *keep = made ? made : (struct mt_account *)(uintptr_t)&no_account;
    if (!__atomic_compare_exchange_n(&the_account, &found, keep, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        if (made)
            syscall(SYS_munmap, made, sizeof *made);
        made = found == (const void *)&no_account ? NULL : found;
    }
    errno = saved;
    return made;
}

/* The process, and the thread in it. A child that is forked knows another process when it asks
 * next, and its one thread is a new one: where the kernel wipes a page of ours in the child
 * (Linux 4.14), a system call is made once for each thread, else each time. */
struct who {
    uint32_t pid, tid;
};
static __thread struct who this_thread __attribute__((tls_model("initial-exec")));

static uint32_t *make_process_page(void)
{
    int saved = errno;
    long bytes = sysconf(_SC_PAGESIZE);
    long at = syscall(SYS_mmap, NULL, bytes, (long)PROT_READ | PROT_WRITE,
                      (long)MAP_PRIVATE | MAP_ANONYMOUS, -1L, 0L);
    if (at < 0 && at > -4096)
        return NULL;
    if (syscall(SYS_madvise, at, bytes, (long)MADV_WIPEONFORK) == 0)
        return (uint32_t *)at;
    syscall(SYS_munmap, at, bytes);
    errno = saved;
    return NULL;
}

/* The process as the page has it, 0 in a child that is new; NULL where there is no page. */
static uint32_t *process_page(void)
{
    static uint32_t *page;
    static uint32_t no_page;
    uint32_t *found = __atomic_load_n(&page, __ATOMIC_ACQUIRE);
    if (!found) {
        uint32_t *made = make_process_page();
        uint32_t *keep = made ? made : &no_page;
        if (__atomic_compare_exchange_n(&page, &found, keep, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            found = keep;
        else if (made)
            syscall(SYS_munmap, made, sysconf(_SC_PAGESIZE));
    }
    return found == &no_page ? NULL : found;
}

static struct who who_is_here(void)
{
    uint32_t *page = process_page();
    uint32_t pid = page ? __atomic_load_n(page, __ATOMIC_RELAXED) : 0;
    if (!pid)
        pid = (uint32_t)getpid();
    if (page)
        __atomic_store_n(page, pid, __ATOMIC_RELAXED);
    if (!page || this_thread.pid != pid)
        this_thread = (struct who){pid, (uint32_t)syscall(SYS_gettid)};
    return this_thread;
}

/* Copies as much of a text as there is room for, whole characters of UTF-8 only. */
static size_t copy_text(char *to, size_t size, const char *text)
{
    size_t length = text ? strnlen(text, size) : 0;
    if (length == size) {
        length--;
        while (length && ((unsigned char)text[length] & 0xC0) == 0x80)
            length--;
    }
    if (length)
        memcpy(to, text, length);
    to[length] = 0;
    return length;
}

/* Puts an event into the account; `made` without its process and thread. A time of 0 is now. */
static void write_event(const struct mt_account_event *made, const char *name, const char *detail)
{
    struct mt_account *account = pretend_account();
    if (!account)
        return;
    struct who who = who_is_here();
    uint64_t number = __atomic_fetch_add(&account->n_events, 1, __ATOMIC_RELAXED);
    if (number >= MT_ACCOUNT_EVENTS_MAX)
        return;
    struct mt_account_event *event = &account->event[number];
    /* First of all: whoever reads waits for the event as long as its process lives. */
    __atomic_store_n(&event->pid, who.pid, __ATOMIC_RELEASE);
    event->tid = who.tid;
    event->place = made->place;
    event->category = made->category;
    event->flags = made->flags;
    event->time_ns = made->time_ns ? made->time_ns : pretend_now_ns();
    event->object = made->object;
    event->bytes = made->bytes;
    event->address = made->address; /* or its free bytes */
    copy_text(event->name, sizeof event->name, name);
    copy_text(event->detail, sizeof event->detail, detail);
    __atomic_store_n(&event->kind, made->kind, __ATOMIC_RELEASE);
}

void pretend_note_alloc(uint32_t place, enum mt_category category, uint32_t flags,
                        const void *object, uint64_t bytes, const char *name, const char *detail)
{
    struct mt_account_event event = {.kind = MT_ACCOUNT_ALLOC,
                                     .place = (uint8_t)place,
                                     .category = (uint8_t)category,
                                     .flags = (uint16_t)flags,
                                     .object = (uint64_t)(uintptr_t)object,
                                     .bytes = bytes};
    write_event(&event, name, detail);
}

void pretend_note_free(uint32_t place, const void *object, uint64_t bytes)
{
    struct mt_account_event event = {.kind = MT_ACCOUNT_FREE,
                                     .place = (uint8_t)place,
                                     .object = (uint64_t)(uintptr_t)object,
                                     .bytes = bytes};
    write_event(&event, NULL, NULL);
}

void pretend_note_part(uint32_t place, enum mt_category category, uint64_t since_ns,
                       const void *object, uint64_t bytes, const char *detail)
{
    struct mt_account_event event = {.kind = MT_ACCOUNT_USAGE,
                                     .place = (uint8_t)place,
                                     .category = (uint8_t)category,
                                     .time_ns = since_ns,
                                     .object = (uint64_t)(uintptr_t)object,
                                     .bytes = bytes};
    write_event(&event, NULL, detail);
}

void pretend_note_usage(uint32_t place, enum mt_category category, const void *object,
                        uint64_t bytes, const char *detail)
{
    pretend_note_part(place, category, 0, object, bytes, detail);
}

void pretend_note_mapped(uint32_t place, const void *object, uint64_t address)
{
    struct mt_account_event event = {.kind = MT_ACCOUNT_USAGE,
                                     .place = (uint8_t)place,
                                     .object = (uint64_t)(uintptr_t)object,
                                     .address = address};
    write_event(&event, NULL, NULL);
}

void pretend_note_refuse(uint32_t place, enum mt_category category, uint64_t bytes,
                         uint64_t free_bytes, const char *name, const char *detail)
{
    struct mt_account_event event = {.kind = MT_ACCOUNT_REFUSE,
                                     .place = (uint8_t)place,
                                     .category = (uint8_t)category,
                                     .bytes = bytes,
                                     .free_bytes = free_bytes};
    write_event(&event, name, detail);
}

void pretend_note_mark(const char *name)
{
    struct mt_account_event event = {.kind = MT_ACCOUNT_MARK, .place = MT_ACCOUNT_HOST};
    write_event(&event, name, NULL);
}

void pretend_note(const char *text)
{
    struct mt_account_event event = {.kind = MT_ACCOUNT_NOTE, .place = MT_ACCOUNT_HOST};
    char name[sizeof event.name];
    size_t used = copy_text(name, sizeof name, text);
    write_event(&event, name, text ? text + used : NULL);
}

void pretend_note_absent(uint32_t place, enum mt_category category, uint64_t bytes,
                         const char *text)
{
    struct mt_account_event event = {.kind = MT_ACCOUNT_NOTE,
                                     .place = (uint8_t)place,
                                     .category = (uint8_t)category,
                                     .bytes = bytes};
    char name[sizeof event.name];
    size_t used = copy_text(name, sizeof name, text);
    write_event(&event, name, text ? text + used : NULL);
}

static void raise_peak(uint64_t *peak, uint64_t value)
{
    uint64_t seen = __atomic_load_n(peak, __ATOMIC_RELAXED);
    while (seen < value && !__atomic_compare_exchange_n(peak, &seen, value, 1, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED)) {
    }
}

/* The counters of a place and its limit. */
struct ledger {
    uint64_t *used;
    uint64_t *peak;
    uint64_t *held;
    uint64_t limit;
};

static int find_ledger(uint32_t place, struct ledger *ledger)
{
    struct mt_account *account = pretend_account();
    if (!account || (place != MT_ACCOUNT_HOST && place >= account->n_devices))
        return 0;
    if (place == MT_ACCOUNT_HOST) {
        *ledger = (struct ledger){&account->host_used_bytes, &account->host_peak_bytes, NULL,
                                  account->host_bytes ? account->host_bytes : UINT64_MAX};
        return 1;
    }
    struct mt_account_device *device = &account->device[place];
    *ledger = (struct ledger){&device->used_bytes, &device->peak_bytes, &device->held_bytes,
                              device->free_bytes};
    return 1;
}

/* Adds to what is held of a place unless that is over its limit. */
static int take(uint64_t *held, uint64_t bytes, uint64_t limit, uint64_t *free_bytes)
{
    uint64_t seen = __atomic_load_n(held, __ATOMIC_RELAXED);
    do {
        *free_bytes = seen < limit ? limit - seen : 0;
        if (bytes > *free_bytes)
            return 0;
    } while (!__atomic_compare_exchange_n(held, &seen, seen + bytes, 1, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return 1;
}

/* A number that every exec() makes anew and that children of fork() keep: the kernel's random
 * bytes. */
static uint64_t this_image(void)
{
    const void *random = (const void *)(uintptr_t)getauxval(AT_RANDOM);
    uint64_t image = 1;
    if (random)
        memcpy(&image, random, sizeof image);
    return image ? image : 1;
}

/* What the row's process held as another program is free again. */
static int empty_row(struct mt_account *account, struct mt_account_process *row)
{
    uint64_t bytes = __atomic_exchange_n(&row->host_used_bytes, 0, __ATOMIC_RELAXED);
    uint64_t any = bytes;
    __atomic_fetch_sub(&account->host_used_bytes, bytes, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < account->n_devices; i++) {
        bytes = __atomic_exchange_n(&row->used_bytes[i], 0, __ATOMIC_RELAXED);
        any |= bytes;
        __atomic_fetch_sub(&account->device[i].used_bytes, bytes, __ATOMIC_RELAXED);
        bytes = __atomic_exchange_n(&row->held_bytes[i], 0, __ATOMIC_RELAXED);
        __atomic_fetch_sub(&account->device[i].held_bytes, bytes, __ATOMIC_RELAXED);
    }
    return any != 0;
}

void pretend_begin_image(void)
{
    struct mt_account *account = pretend_account();
    const struct mt_account_event event = {.kind = MT_ACCOUNT_END, .place = MT_ACCOUNT_HOST};
    uint32_t pid = (uint32_t)getpid();
    uint64_t image = this_image();
    for (uint32_t i = 0; account && i < MT_ACCOUNT_PROCESSES; i++) {
        struct mt_account_process *row = &account->process[i];
        uint64_t there = __atomic_load_n(&row->image, __ATOMIC_ACQUIRE);
        if (__atomic_load_n(&row->pid, __ATOMIC_ACQUIRE) != pid || there == 0 || there == image ||
            !__atomic_compare_exchange_n(&row->image, &there, image, 0, __ATOMIC_ACQ_REL,
                                         __ATOMIC_RELAXED))
            continue;
        if (empty_row(account, row))
            write_event(&event, "became another program", NULL);
    }
}

/* The row of this process, NULL where all are taken. */
static struct mt_account_process *own_row(struct mt_account *account)
{
    static struct mt_account_process *known;
    uint32_t pid = (uint32_t)getpid();
    struct mt_account_process *row = __atomic_load_n(&known, __ATOMIC_ACQUIRE);
    if (row && __atomic_load_n(&row->pid, __ATOMIC_RELAXED) == pid)
        return row;
    for (uint32_t i = 0; i < MT_ACCOUNT_PROCESSES; i++) {
        uint32_t seen = 0;
        row = &account->process[i];
        if (!__atomic_compare_exchange_n(&row->pid, &seen, pid, 0, __ATOMIC_ACQ_REL,
                                         __ATOMIC_RELAXED) &&
            seen != pid)
            continue;
        if (!seen) {
            __atomic_store_n(&row->image, this_image(), __ATOMIC_RELEASE);
            raise_peak(&account->n_rows, i + 1);
        }
        __atomic_store_n(&known, row, __ATOMIC_RELEASE);
        return row;
    }
    return NULL;
}

/* Host memory is of no device and has no rules. */
static void own_host(int64_t bytes)
{
    struct mt_account *account = pretend_account();
    struct mt_account_process *row = account ? own_row(account) : NULL;
    if (row)
        __atomic_fetch_add(&row->host_used_bytes, (uint64_t)bytes, __ATOMIC_RELAXED);
}

void pretend_own(uint32_t place, uint64_t bytes)
{
    struct mt_account *account = pretend_account();
    struct mt_account_process *row =
        account && place < account->n_devices ? own_row(account) : NULL;
    if (!row)
        return;
    __atomic_fetch_add(&row->used_bytes[place], bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&row->held_bytes[place], mt_account_held(&account->rules, bytes),
                       __ATOMIC_RELAXED);
}

void pretend_disown(uint32_t place, uint64_t bytes)
{
    struct mt_account *account = pretend_account();
    struct mt_account_process *row =
        account && place < account->n_devices ? own_row(account) : NULL;
    if (!row)
        return;
    __atomic_fetch_sub(&row->used_bytes[place], bytes, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&row->held_bytes[place], mt_account_held(&account->rules, bytes),
                       __ATOMIC_RELAXED);
}

/* A process whose parent has waited for its end is no more; one that ended may not have been waited
 * for yet. Where its row is not emptied within a second nobody empties it, and no other is waited
 * for. */
static int is_settled(const struct mt_account_process *row)
{
    const struct timespec step = {.tv_nsec = AWAIT_STEP_NS};
    uint32_t pid = __atomic_load_n(&row->pid, __ATOMIC_ACQUIRE);
    int n = 0;
    if (!pid || pid == (uint32_t)getpid() || syscall(SYS_kill, (long)pid, 0L) == 0 ||
        errno != ESRCH)
        return 1;
    while (n < AWAIT_STEPS && __atomic_load_n(&row->pid, __ATOMIC_ACQUIRE) == pid) {
        syscall(SYS_nanosleep, &step, NULL);
        n++;
    }
    return n < AWAIT_STEPS;
}

/* A driver has back what a process held before the process's parent can learn of the end. The
 * rehearsal looks at intervals who has ended: whoever waited for a process and takes memory then
 * would find that of both in use. */
static void settle(const struct mt_account *account)
{
    static int is_hopeless;
    uint64_t n = __atomic_load_n(&account->n_rows, __ATOMIC_ACQUIRE);
    int saved = errno;
    for (uint64_t i = 0; i < n && i < MT_ACCOUNT_PROCESSES; i++)
        if (!__atomic_load_n(&is_hopeless, __ATOMIC_RELAXED) && !is_settled(&account->process[i]))
            __atomic_store_n(&is_hopeless, 1, __ATOMIC_RELAXED);
    errno = saved;
}

int pretend_take(uint32_t place, uint64_t bytes, uint64_t *free_bytes)
{
    struct ledger ledger;
    *free_bytes = UINT64_MAX;
    if (!find_ledger(place, &ledger))
        return 1;
    if (ledger.held)
        settle(pretend_account());
    uint64_t held = ledger.held ? mt_account_held(&pretend_account()->rules, bytes) : bytes;
    uint64_t *limited = ledger.held ? ledger.held : ledger.used;
    if (!take(limited, held, ledger.limit, free_bytes))
        return 0;
    uint64_t used = ledger.held ? __atomic_add_fetch(ledger.used, bytes, __ATOMIC_RELAXED)
                                : __atomic_load_n(ledger.used, __ATOMIC_RELAXED);
    raise_peak(ledger.peak, used);
    if (place == MT_ACCOUNT_HOST)
        own_host((int64_t)bytes);
    pretend_own(place, bytes);
    return 1;
}

void pretend_give_back(uint32_t place, uint64_t bytes)
{
    struct ledger ledger;
    if (!find_ledger(place, &ledger))
        return;
    if (place == MT_ACCOUNT_HOST)
        own_host(-(int64_t)bytes);
    pretend_disown(place, bytes);
    __atomic_fetch_sub(ledger.used, bytes, __ATOMIC_RELAXED);
    if (ledger.held)
        __atomic_fetch_sub(ledger.held, mt_account_held(&pretend_account()->rules, bytes),
                           __ATOMIC_RELAXED);
}

/* A process that ended and that nobody has waited for is gone, too. */
static int is_gone(uint32_t pid)
{
    char path[32], text[512];
    snprintf(path, sizeof path, "/proc/%u/stat", (unsigned)pid);
    long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return fd == -1 && errno == ENOENT;
    long n = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    text[n > 0 ? n : 0] = '\0';
    const char *state = strrchr(text, ')');
    return state && state[1] && (state[2] == 'Z' || state[2] == 'X');
}

static int is_any_gone(const struct mt_account *account)
{
    for (uint32_t i = 0; i < MT_ACCOUNT_PROCESSES; i++) {
        uint32_t pid = __atomic_load_n(&account->process[i].pid, __ATOMIC_ACQUIRE);
        if (pid && is_gone(pid))
            return 1;
    }
    return 0;
}

int pretend_await_gone(void)
{
    const struct mt_account *account = pretend_account();
    const struct timespec step = {.tv_nsec = AWAIT_STEP_NS};
    int saved = errno, n = 0;
    while (account && n < AWAIT_STEPS && is_any_gone(account)) {
        syscall(SYS_nanosleep, &step, NULL);
        n++;
    }
    errno = saved;
    return n > 0;
}

uint64_t pretend_free_bytes(uint32_t device)
{
    struct ledger ledger;
    if (!find_ledger(device, &ledger) || !ledger.held)
        return 0;
    settle(pretend_account());
    uint64_t held = __atomic_load_n(ledger.held, __ATOMIC_RELAXED);
    return held < ledger.limit ? ledger.limit - held : 0;
}
