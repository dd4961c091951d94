/* SPDX-License-Identifier: MIT */
/* Physical memory that processes share by a file descriptor. The descriptor is of a file in memory
 * which stands behind the addresses of each process, so that small numbers are seen by all; a page
 * at its end says what memory it is. The account has a list of such memory: each process that holds
 * it says so, the device is charged once, and has it back from the last one, or from the rehearsal
 * where that one died. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pretend/cuda/driver/table.h"
#include "rehearse/account_note.h"
#include "rehearse/account_write.h"
#include "virtual.h"

#define TAIL_BYTES  4096u
#define TAIL_MAGIC  "mtshared"
#define BLOCK_BYTES 4096u
#define LOW_FD      200 /* descriptors of ours are out of the program's way */
#define NAME        MT_ACCOUNT_SHARED_NAME

struct tail {
    char magic[8];
    uint64_t bytes;
    uint64_t shared;
    uint32_t place;
    int handle_types;
};

static struct pretend_table held; /* of this process, by their number in the account */

static struct mt_account_shared *slot_of(uint64_t shared)
{
    struct mt_account *account = pretend_account();
    uint64_t slot = shared & 0xFFFF;
    return account && slot < MT_ACCOUNT_SHARED_MAX ? &account->shared[slot] : NULL;
}

static uint64_t number_of(uint64_t slot, uint32_t generation)
{
    return MT_ACCOUNT_SHARED | (uint64_t)(generation & 0x7FFFFFFF) << 16 | slot;
}

/* An empty slot is taken by its first holder; 0 where all are full. */
static uint64_t claim(uint32_t place, uint64_t bytes)
{
    struct mt_account *account = pretend_account();
    for (uint64_t i = 0; account && i < MT_ACCOUNT_SHARED_MAX; i++) {
        struct mt_account_shared *slot = &account->shared[i];
        uint32_t empty = 0;
        if (!__atomic_compare_exchange_n(&slot->holders, &empty, 1, 0, __ATOMIC_ACQ_REL,
                                         __ATOMIC_RELAXED))
            continue;
        slot->generation++;
        slot->place = place;
        slot->bytes = bytes;
        return number_of(i, slot->generation);
    }
    return 0;
}

/* One more holder of what others hold; 0 where nobody does any more. */
static int join(uint64_t shared)
{
    struct mt_account_shared *slot = slot_of(shared);
    uint32_t seen = slot ? __atomic_load_n(&slot->holders, __ATOMIC_ACQUIRE) : 0;
    do {
        if (!seen || number_of(shared & 0xFFFF, slot->generation) != shared)
            return 0;
    } while (!__atomic_compare_exchange_n(&slot->holders, &seen, seen + 1, 1, __ATOMIC_ACQ_REL,
                                          __ATOMIC_ACQUIRE));
    return 1;
}

static const void *object_of(uint64_t shared)
{
    return (const void *)(uintptr_t)shared;
}

void pretend_shared_discharge(struct pretend_physical *physical)
{
    struct mt_account_shared *slot = slot_of(physical->shared);
    uint32_t place = pretend_place(physical->charge.device);
    pretend_table_remove(&held, physical->shared);
    pretend_note_free(place, object_of(physical->shared), physical->charge.held);
    if (slot && __atomic_sub_fetch(&slot->holders, 1, __ATOMIC_ACQ_REL) == 0) {
        pretend_own(place, physical->charge.held);
        pretend_give_back(place, physical->charge.held);
    }
    close(physical->fd);
}

static int out_of_the_way(int fd)
{
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, LOW_FD);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

static int is_zero(const char *block)
{
    return block[0] == 0 && memcmp(block, block + 1, BLOCK_BYTES - 1) == 0;
}

/* What was written at addresses goes into the file; the rest of it is a hole. */
static int save_pages(int fd, CUdeviceptr pointer, uint64_t bytes)
{
    for (uint64_t page = 0; page < bytes; page += PRETEND_PAGE) {
        if (!pretend_written_has(pointer + page, 1) ||
            !pretend_written_add(pointer + page, PRETEND_PAGE))
            continue;
        for (uint64_t at = page; at < page + PRETEND_PAGE; at += BLOCK_BYTES) {
            const char *block = (const char *)(uintptr_t)(pointer + at);
            if (!is_zero(block) && pwrite(fd, block, BLOCK_BYTES, (off_t)at) != BLOCK_BYTES)
                return 0;
        }
    }
    return 1;
}

static int make_file(uint64_t bytes)
{
    int fd = out_of_the_way(memfd_create("memtally-shared", MFD_CLOEXEC));
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

int pretend_share_pages(CUdeviceptr pointer, uint64_t bytes, uint64_t file_bytes)
{
    int fd = pretend_space_is_backed(pointer) ? make_file(file_bytes) : -1;
    if (fd < 0)
        return -1;
    if (save_pages(fd, pointer, bytes) && pretend_space_share(pointer, bytes, fd, 0))
        return fd;
    close(fd);
    return -1;
}

/* The file that stands behind memory from now on, at all addresses that it is mapped to. */
static int put_behind(const struct pretend_physical *physical)
{
    uint64_t file_bytes = physical->charge.bytes + TAIL_BYTES;
    struct pretend_range *map = physical->first_map;
    int fd = map ? pretend_share_pages(map->base, map->span, file_bytes) : make_file(file_bytes);
    for (; map && fd >= 0; map = ((struct pretend_map *)map->inside)->next)
        map->is_shared =
            map == physical->first_map || (uint8_t)pretend_space_share(map->base, map->span, fd, 0);
    return fd;
}

static int write_tail(int fd, const struct pretend_physical *physical)
{
    struct tail tail = {.bytes = physical->charge.bytes,
                        .shared = physical->shared,
                        .place = pretend_place(physical->charge.device),
                        .handle_types = physical->prop.requestedHandleTypes};
    memcpy(tail.magic, TAIL_MAGIC, sizeof tail.magic);
    return pwrite(fd, &tail, sizeof tail, (off_t)tail.bytes) == (ssize_t)sizeof tail;
}

/* Memory of one process becomes shared: the account hears of the same bytes under another name. */
static CUresult share(struct pretend_physical *physical)
{
    uint32_t place = pretend_place(physical->charge.device);
    int fd = put_behind(physical);
    if (fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    physical->shared = claim(place, physical->charge.held);
    if (!physical->shared || !write_tail(fd, physical) ||
        !pretend_table_put(&held, physical->shared, physical)) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    physical->fd = fd;
    pretend_disown(place, physical->charge.held);
    pretend_note_free(place, (const void *)(uintptr_t)physical->charge.base, physical->charge.held);
    pretend_note_alloc(place, MT_CATEGORY_NONE, 0, object_of(physical->shared),
                       physical->charge.held, NAME, NULL);
    return CUDA_SUCCESS;
}

static CUresult export(struct pretend_physical *physical, int *fd)
{
    if (physical->charge.device < 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = physical->fd < 0 ? share(physical) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        return result;
    int copy = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *fd = copy;
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      int type, unsigned long long flags);
PRETEND_CALL CUresult cuMemExportToShareableHandle(void *shareable,
                                                   CUmemGenericAllocationHandle handle, int type,
                                                   unsigned long long flags)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!shareable || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    pretend_lock();
    struct pretend_physical *physical = pretend_physical_of(handle);
    if (!physical || !(physical->prop.requestedHandleTypes & type))
        result = CUDA_ERROR_INVALID_VALUE;
    else
        result = export(physical, shareable);
    pretend_unlock();
    return result;
}

static int read_tail(int fd, struct tail *tail)
{
    struct stat status;
    return fstat(fd, &status) == 0 && status.st_size > TAIL_BYTES &&
           pread(fd, tail, sizeof *tail, status.st_size - TAIL_BYTES) == (ssize_t)sizeof *tail &&
           memcmp(tail->magic, TAIL_MAGIC, sizeof tail->magic) == 0 &&
           tail->bytes == (uint64_t)status.st_size - TAIL_BYTES && tail->bytes % PRETEND_PAGE == 0;
}

static int device_at(uint32_t place)
{
    for (int i = 0; i < pretend_device_count(); i++)
        if (pretend_place(i) == place)
            return i;
    return -1;
}

/* Where all that held it are gone, and only the descriptor is left, the device is charged anew. */
static CUresult join_or_charge(struct pretend_physical *physical, uint64_t shared)
{
    uint32_t place = pretend_place(physical->charge.device);
    uint64_t free_bytes;
    physical->shared = shared;
    if (join(shared))
        return CUDA_SUCCESS;
    if (!pretend_take(place, physical->charge.held, &free_bytes)) {
        pretend_note_refuse(place, MT_CATEGORY_NONE, physical->charge.bytes, free_bytes, NAME,
                            NULL);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    physical->shared = claim(place, physical->charge.held);
    if (physical->shared && write_tail(physical->fd, physical)) {
        pretend_disown(place, physical->charge.held);
        return CUDA_SUCCESS;
    }
    pretend_give_back(place, physical->charge.held);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult import(int fd, const struct tail *tail, CUmemGenericAllocationHandle *handle)
{
    struct pretend_physical *physical = pretend_table_get(&held, tail->shared);
    int device = device_at(tail->place);
    if (!physical) {
        CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .requestedHandleTypes = tail->handle_types,
                                    .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
        if (device < 0)
            return CUDA_ERROR_INVALID_DEVICE;
        physical = pretend_physical_make(&prop, tail->bytes);
        if (!physical)
            return CUDA_ERROR_OUT_OF_MEMORY;
        physical->fd = fcntl(fd, F_DUPFD_CLOEXEC, LOW_FD);
        CUresult result =
            physical->fd < 0 ? CUDA_ERROR_OUT_OF_MEMORY : join_or_charge(physical, tail->shared);
        if (result != CUDA_SUCCESS) {
            if (physical->fd >= 0)
                close(physical->fd);
            free(physical);
            return result;
        }
        pretend_note_alloc(tail->place, MT_CATEGORY_NONE, 0, object_of(physical->shared),
                           tail->bytes, NAME, NULL);
        pretend_table_put(&held, physical->shared, physical);
    }
    if (!pretend_physical_hold(physical))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = physical->charge.base;
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        int type);
PRETEND_CALL CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                                     void *shareable, int type)
{
    int fd = (int)(intptr_t)shareable;
    struct tail tail;
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!handle || !read_tail(fd, &tail))
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    result = import(fd, &tail, handle);
    pretend_unlock();
    return result;
}
