/* SPDX-License-Identifier: MIT */
/* Counting what a program takes of a device, in a file that all processes of its job map, and
 * refusing what is past the cap as the driver refuses what it has not. What the process has is
 * kept in a table, because the driver says no sizes when memory is given back. A lock of its own
 * guards the table; these functions are called by a program, never from inside an allocator. */
#include "recorder/cuda_cap.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/device_caps.h"
#include "recorder/cuda.h"
#include "recorder/real.h"
#include "recorder/sys.h"

#define ENTRIES ((uint64_t)1 << 17) /* what has no room in the table is not counted */
#define OTHERS  MT_CAPS_DEVICES
#define FREE    (-1)

enum object { NOTHING, BY_ADDRESS, BY_HANDLE, MAPPING };

struct cuda_entry {
    uint64_t key; /* an address or a handle */
    uint64_t bytes;
    uint64_t of;    /* the handle of a mapping, the context of an address */
    uint32_t kind;  /* enum object */
    uint16_t index; /* of the device in the file */
    uint16_t n;     /* handles and mappings of physical memory */
};

/* It holds the process. A forked child may have a copy that a thread of its parent held, and takes
 * it over. */
static void lock(void)
{
    uint32_t pid = (uint32_t)MT_SYS0(SYS_getpid);
    uint32_t holder = 0;
    while (!__atomic_compare_exchange_n(&memtally_real.cap.lock, &holder, pid, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) {
        if (holder != pid)
            continue;
        MT_SYS0(SYS_sched_yield);
        holder = 0;
    }
}

static void unlock(void)
{
    __atomic_store_n(&memtally_real.cap.lock, 0, __ATOMIC_RELEASE);
}

void cuda_cap_start(const char *path)
{
    int fd = (int)MT_SYS4(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    if (fd == -ENOENT) /* the job has ended, and what it left goes on */
        return;
    memtally_real.cap.is_lost = 1;
    if (fd < 0)
        return;
    long at = MT_SYS6(SYS_mmap, 0, sizeof *memtally_real.cap.caps, PROT_READ | PROT_WRITE,
                      MAP_SHARED, fd, 0);
    MT_SYS1(SYS_close, fd);
    struct mt_device_caps *caps = (struct mt_device_caps *)at; /* NOLINT */
    if (at > 0 && caps->magic == MT_CAPS_MAGIC && caps->n_devices <= MT_CAPS_DEVICES)
        memtally_real.cap.caps = caps;
    memtally_real.cap.is_lost = !memtally_real.cap.caps;
}

/* ---- processes ---- */

/* The state and the start time of a process; 0 where there is none any more. */
static uint64_t start_of(uint64_t pid, char *state)
{
    char path[32] = "/proc/";
    char digits[24];
    char text[512];
    char *at = path + strlen(path);
    int n = 0;
    do
        digits[n++] = (char)('0' + pid % 10);
    while (pid /= 10);
    while (n)
        *at++ = digits[--n];
    memcpy(at, "/stat", sizeof "/stat");
    int fd = (int)MT_SYS4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    long got = fd < 0 ? -1 : MT_SYS3(SYS_read, fd, text, sizeof text - 1);
    if (fd >= 0)
        MT_SYS1(SYS_close, fd);
    text[got > 0 ? got : 0] = '\0';
    const char *field = strrchr(text, ')');
    if (!field || !field[1])
        return 0;
    *state = field[2];
    for (int skipped = 0; skipped < 20 && field; skipped++)
        field = strchr(field + 1, ' ');
    uint64_t ticks = 0;
    for (; field && field[1] >= '0' && field[1] <= '9'; field++)
        ticks = ticks * 10 + (uint64_t)(field[1] - '0');
    return ticks;
}

static void subtract(uint64_t *value, uint64_t bytes)
{
    uint64_t seen = __atomic_load_n(value, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(value, &seen, seen > bytes ? seen - bytes : 0, 1,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

/* Takes back what ended processes have in the file. 1 where there was any. */
static int take_back(void)
{
    int any = 0;
    for (unsigned i = 0; i < MT_CAPS_PROCESSES; i++) {
        struct mt_capped_process *process = &memtally_real.cap.caps->processes[i];
        uint64_t pid = __atomic_load_n(&process->pid, __ATOMIC_ACQUIRE);
        char state = 'X';
        uint64_t start = pid ? start_of(pid, &state) : 0;
        if (!pid || (start && start == process->start_ticks && state != 'Z' && state != 'X'))
            continue;
        for (unsigned k = 0; k < MT_CAPS_DEVICES; k++) {
            uint64_t bytes = __atomic_exchange_n(&process->held_bytes[k], 0, __ATOMIC_RELAXED);
            subtract(&memtally_real.cap.caps->devices[k].held_bytes, bytes);
            any |= bytes != 0;
        }
        __atomic_compare_exchange_n(&process->pid, &pid, 0, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    }
    return any;
}

static struct mt_capped_process *own_slot(uint32_t pid)
{
    char state;
    for (int round = 0; round < 2; round++) {
        for (unsigned i = 0; i < MT_CAPS_PROCESSES; i++) {
            struct mt_capped_process *process = &memtally_real.cap.caps->processes[i];
            uint64_t nobody = 0;
            if (process->pid || !__atomic_compare_exchange_n(&process->pid, &nobody, pid, 0,
                                                             __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
                continue;
            process->start_ticks = start_of(pid, &state);
            return process;
        }
        take_back();
    }
    return NULL;
}

/* Whether the process has what it needs to count. With the lock. */
static int is_ready(void)
{
    uint32_t pid = (uint32_t)MT_SYS0(SYS_getpid);
    if (memtally_real.cap.pid != pid) {
        if (memtally_real.cap.entries)
            MT_SYS2(SYS_munmap, memtally_real.cap.entries,
                    ENTRIES * sizeof *memtally_real.cap.entries);
        memtally_real.cap.entries = mt_sys_map(ENTRIES * sizeof *memtally_real.cap.entries);
        memtally_real.cap.own = own_slot(pid);
        memtally_real.cap.pid = pid;
    }
    return memtally_real.cap.own && memtally_real.cap.entries;
}

/* ---- devices ---- */

/* By UUID, else (as with slices of a device, which have UUIDs of their own) in the order of the
 * driver. */
static int find_index(int device)
{
    uint8_t uuid[MT_GPU_UUID_RAW_BYTES];
    char text[MT_GPU_UUID_TEXT_BYTES] = "";
    int n = (int)memtally_real.cap.caps->n_devices;
    if (memtally_real.cuda.cuDeviceGetUuid_v2 &&
        memtally_real.cuda.cuDeviceGetUuid_v2(uuid, device) == 0)
        mt_format_gpu_uuid(uuid, text);
    for (int i = 0; *text && i < n; i++)
        if (strcmp(memtally_real.cap.caps->devices[i].uuid, text) == 0)
            return i;
    return device < n ? device : OTHERS;
}

/* The index of a device in the file, OTHERS where nothing was reserved of it, or FREE where the
 * program is not held. */
static int index_of(int device)
{
    if (!memtally_real.cap.caps)
        return memtally_real.cap.is_lost ? OTHERS : FREE;
    if (device < 0 || device >= (int)sizeof memtally_real.cap.index_of)
        return FREE;
    uint8_t known = __atomic_load_n(&memtally_real.cap.index_of[device], __ATOMIC_RELAXED);
    if (!known) {
        known = (uint8_t)(find_index(device) + 1);
        __atomic_store_n(&memtally_real.cap.index_of[device], known, __ATOMIC_RELAXED);
    }
    return known - 1;
}

/* Whether there is something to count. */
static int is_held(int index)
{
    return index >= 0 && index < OTHERS;
}

static int add_within(struct mt_capped_device *device, uint64_t bytes)
{
    uint64_t beside = __atomic_load_n(&device->beside_bytes, __ATOMIC_RELAXED);
    uint64_t room = device->cap_bytes > beside ? device->cap_bytes - beside : 0;
    uint64_t seen = __atomic_load_n(&device->held_bytes, __ATOMIC_RELAXED);
    do {
        if (bytes > room || seen > room - bytes)
            return 0;
    } while (!__atomic_compare_exchange_n(&device->held_bytes, &seen, seen + bytes, 1,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    cuda_raise(&device->peak_bytes, seen + bytes + beside);
    return 1;
}

/* A process without a place in the file, or that uses a device of which nothing was reserved, is
 * refused all: nobody would count what it has. */
int cuda_cap_take(int device, uint64_t bytes)
{
    int index = index_of(device);
    if (!is_held(index))
        return index == FREE;
    lock();
    struct mt_capped_device *capped = &memtally_real.cap.caps->devices[index];
    int may =
        is_ready() && (add_within(capped, bytes) || (take_back() && add_within(capped, bytes)));
    if (may)
        __atomic_fetch_add(&memtally_real.cap.own->held_bytes[index], bytes, __ATOMIC_RELAXED);
    else
        __atomic_fetch_add(&capped->n_refusals, 1, __ATOMIC_RELAXED);
    unlock();
    return may;
}

void cuda_cap_add(int device, uint64_t bytes)
{
    int index = index_of(device);
    if (!is_held(index))
        return;
    lock();
    if (is_ready()) {
        __atomic_fetch_add(&memtally_real.cap.own->held_bytes[index], bytes, __ATOMIC_RELAXED);
        __atomic_fetch_add(&memtally_real.cap.caps->devices[index].held_bytes, bytes,
                           __ATOMIC_RELAXED);
    }
    unlock();
}

static void put_back_at(unsigned index, uint64_t bytes)
{
    subtract(&memtally_real.cap.own->held_bytes[index], bytes);
    subtract(&memtally_real.cap.caps->devices[index].held_bytes, bytes);
}

void cuda_cap_put_back(int device, uint64_t bytes)
{
    int index = index_of(device);
    if (!is_held(index))
        return;
    lock();
    if (is_ready())
        put_back_at((unsigned)index, bytes);
    unlock();
}

/* ---- what the process has ---- */

static uint64_t first_place(uint64_t key)
{
    return ((key * UINT64_C(0x9e3779b97f4a7c15)) >> 40) % ENTRIES;
}

static struct cuda_entry *find(enum object kind, uint64_t key)
{
    uint64_t at = first_place(key);
    for (uint64_t i = 0; i < ENTRIES; i++, at = (at + 1) % ENTRIES) {
        struct cuda_entry *entry = &memtally_real.cap.entries[at];
        if (entry->kind == NOTHING)
            return NULL;
        if (entry->kind == (uint32_t)kind && entry->key == key)
            return entry;
    }
    return NULL;
}

/* Where there is no room it stays counted until the process ends. */
static struct cuda_entry *add(enum object kind, uint64_t key)
{
    uint64_t at = first_place(key);
    for (uint64_t i = 0; i < ENTRIES / 2; i++, at = (at + 1) % ENTRIES) {
        if (memtally_real.cap.entries[at].kind != NOTHING)
            continue;
        memtally_real.cap.entries[at] = (struct cuda_entry){.key = key, .kind = (uint32_t)kind};
        return &memtally_real.cap.entries[at];
    }
    return NULL;
}

/* Those behind it move up, as far as they would be looked for there. */
static void erase(struct cuda_entry *entry)
{
    uint64_t hole = (uint64_t)(entry - memtally_real.cap.entries);
    uint64_t at = (hole + 1) % ENTRIES;
    for (; memtally_real.cap.entries[at].kind != NOTHING; at = (at + 1) % ENTRIES) {
        uint64_t first = first_place(memtally_real.cap.entries[at].key);
        if ((at - first) % ENTRIES < (at - hole) % ENTRIES)
            continue;
        memtally_real.cap.entries[hole] = memtally_real.cap.entries[at];
        hole = at;
    }
    memtally_real.cap.entries[hole].kind = NOTHING;
}

static void let_go(struct cuda_entry *entry)
{
    if (!entry || --entry->n)
        return;
    put_back_at(entry->index, entry->bytes);
    erase(entry);
}

/* Whether an allocation is the device's own memory. */
static int is_counted(enum mt_device_kind kind)
{
    return kind == MT_DEVICE_LINEAR || kind == MT_DEVICE_MANAGED || kind == MT_DEVICE_POOLED ||
           kind == MT_DEVICE_PHYSICAL || kind == MT_DEVICE_ARRAY;
}

static enum object object_of(enum mt_device_kind kind)
{
    return kind == MT_DEVICE_PHYSICAL ? BY_HANDLE : BY_ADDRESS;
}

static uint64_t current_context(void)
{
    void *context = NULL;
    if (memtally_real.cuda.cuCtxGetCurrent)
        memtally_real.cuda.cuCtxGetCurrent(&context);
    return (uint64_t)(uintptr_t)context;
}

void cuda_cap_keep(enum mt_device_kind kind, uint64_t object, int device, uint64_t bytes)
{
    int index = is_counted(kind) ? index_of(device) : FREE;
    if (!is_held(index))
        return;
    lock();
    struct cuda_entry *entry = is_ready() ? add(object_of(kind), object) : NULL;
    if (entry) {
        entry->bytes = bytes;
        entry->of = current_context();
        entry->index = (uint16_t)index;
        entry->n = 1;
    }
    unlock();
}

void cuda_cap_give_back(enum mt_device_kind kind, uint64_t object)
{
    if (!memtally_real.cap.caps || !is_counted(kind))
        return;
    lock();
    if (is_ready())
        let_go(find(object_of(kind), object));
    unlock();
}

void cuda_cap_hold(uint64_t handle)
{
    if (!memtally_real.cap.caps)
        return;
    lock();
    struct cuda_entry *entry = is_ready() ? find(BY_HANDLE, handle) : NULL;
    if (entry)
        entry->n++;
    unlock();
}

void cuda_cap_map(uint64_t address, uint64_t size, uint64_t handle)
{
    if (!memtally_real.cap.caps)
        return;
    lock();
    struct cuda_entry *memory = is_ready() ? find(BY_HANDLE, handle) : NULL;
    struct cuda_entry *mapping = memory ? add(MAPPING, address) : NULL;
    if (mapping) {
        mapping->bytes = size;
        mapping->of = handle;
        memory->n++;
    }
    unlock();
}

/* One call may unmap what several have mapped. */
void cuda_cap_unmap(uint64_t address, uint64_t size)
{
    if (!memtally_real.cap.caps)
        return;
    lock();
    for (uint64_t at = address; is_ready() && at - address < size;) {
        struct cuda_entry *mapping = find(MAPPING, at);
        if (!mapping)
            break;
        struct cuda_entry was = *mapping;
        erase(mapping);
        let_go(find(BY_HANDLE, was.of));
        at += was.bytes ? was.bytes : size;
    }
    unlock();
}

/* An entry that moves up is looked at again. */
static void let_go_of(int index, uint64_t context)
{
    for (uint64_t at = 0; at < ENTRIES;) {
        struct cuda_entry *entry = &memtally_real.cap.entries[at];
        if (entry->kind == BY_ADDRESS && (entry->index == index || entry->of == context))
            let_go(entry);
        else
            at++;
    }
}

void cuda_cap_reset(int device)
{
    int index = index_of(device);
    if (!is_held(index))
        return;
    lock();
    if (is_ready())
        let_go_of(index, UINT64_MAX);
    unlock();
}

void cuda_cap_end_context(const void *context)
{
    if (!memtally_real.cap.caps)
        return;
    lock();
    if (is_ready())
        let_go_of(-1, (uint64_t)(uintptr_t)context);
    unlock();
}

/* ---- what the program is told of the device ---- */

/* An engine that takes a share of what is free takes it of its part. */
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    REAL(cuMemGetInfo_v2)
    int device = -1;
    int result = memtally_real.cuda.cuMemGetInfo_v2(free_bytes, total_bytes);
    if (result != 0 || !memtally_real.cap.caps || !free_bytes ||
        !memtally_real.cuda.cuCtxGetDevice || memtally_real.cuda.cuCtxGetDevice(&device) != 0)
        return result;
    int index = index_of(device);
    if (!is_held(index))
        return result;
    const struct mt_capped_device *capped = &memtally_real.cap.caps->devices[index];
    uint64_t has = __atomic_load_n(&capped->held_bytes, __ATOMIC_RELAXED) +
                   __atomic_load_n(&capped->beside_bytes, __ATOMIC_RELAXED);
    uint64_t left = capped->cap_bytes > has ? capped->cap_bytes - has : 0;
    if (left < *free_bytes)
        *free_bytes = (size_t)left;
    return result;
}
