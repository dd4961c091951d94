/* SPDX-License-Identifier: MIT */
/* Handles of 64 bytes with which other processes open linear memory. The memory stays its maker's:
 * the device is charged there, and only there. What opens it maps the file that then stands behind
 * the maker's addresses, by its name under /proc, so that small numbers are seen on both sides. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory.h"
#include "pretend/cuda/driver/table.h"

#define HANDLE_MAGIC UINT64_C(0x6d74697063686e64)

struct handle {
    uint64_t magic;
    uint64_t id;     /* of the outermost range, in its process */
    uint64_t bytes;  /* of it */
    uint64_t offset; /* of what the handle is of */
    uint64_t inode;  /* of its file */
    int32_t pid;
    int32_t fd; /* -1 where no memory stands behind it */
    uint32_t place;
    uint32_t padding;
};
_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "a handle has 64 bytes");

/* Memory of another process: the `inside` of its range. */
struct opened {
    struct opened *next;
    struct pretend_range *range;
    int32_t pid;
    uint64_t id;
    unsigned references;
};

static struct pretend_table exported; /* descriptors plus 1, by the range's id */
static struct opened *all_opened;

void pretend_export_ended(const struct pretend_range *range)
{
    uintptr_t fd = (uintptr_t)pretend_table_get(&exported, range->id);
    if (!fd)
        return;
    pretend_table_remove(&exported, range->id);
    close((int)fd - 1);
}

/* The descriptor of the file behind a range, -1 where there can be none. */
static int export_range(struct pretend_range *outer)
{
    uintptr_t known = (uintptr_t)pretend_table_get(&exported, outer->id);
    if (known)
        return (int)known - 1;
    int fd = pretend_share_pages(outer->base, outer->span, outer->span);
    if (fd < 0)
        return -1;
    pretend_table_put(&exported, outer->id, (void *)((uintptr_t)fd + 1));
    outer->is_shared = 1;
    return fd;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer);
PRETEND_CALL CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
    struct stat status;
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    struct pretend_range *inner = pretend_range_find(pointer);
    struct pretend_range *outer = pretend_range_around(pointer);
    if (!handle || !inner || (inner->kind != PRETEND_LINEAR && inner->kind != PRETEND_SMALL)) {
        pretend_unlock();
        return CUDA_ERROR_INVALID_VALUE;
    }
    int fd = export_range(outer);
    struct handle made = {.magic = HANDLE_MAGIC,
                          .id = outer->id,
                          .bytes = outer->span,
                          .offset = inner->base - outer->base,
                          .inode = fd >= 0 && fstat(fd, &status) == 0 ? status.st_ino : 0,
                          .pid = getpid(),
                          .fd = fd,
                          .place = pretend_place(inner->device)};
    inner->is_shared = fd >= 0;
    pretend_unlock();
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &made, sizeof made);
    return CUDA_SUCCESS;
}

/* The maker's file, -1 where it is gone, or where it may not be seen. */
static int open_file(const struct handle *handle)
{
    char path[64];
    struct stat status;
    if (handle->fd < 0)
        return -1;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->pid, handle->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &status) < 0 || status.st_ino != handle->inode)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* The device of a place, or the current one where the program does not see that. */
static int device_for(uint32_t place)
{
    for (int i = 0; i < pretend_device_count(); i++)
        if (pretend_place(i) == place)
            return i;
    return pretend_current_device();
}

static struct opened *find_opened(const struct handle *handle)
{
    struct opened *opened = all_opened;
    while (opened && (opened->pid != handle->pid || opened->id != handle->id))
        opened = opened->next;
    return opened;
}

static CUresult open_new(const struct handle *handle, struct opened **made)
{
    struct opened *opened = calloc(1, sizeof *opened);
    struct pretend_range *range =
        opened ? pretend_range_make(PRETEND_OPENED, device_for(handle->place), handle->bytes)
               : NULL;
    CUresult result = range ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (range) {
        range->span = handle->bytes;
        range->inside = opened;
        result = pretend_range_place(range, PRETEND_PAGE, 0);
    }
    if (result != CUDA_SUCCESS) {
        free(opened);
        if (range)
            pretend_range_drop(range);
        return result;
    }
    int fd = open_file(handle);
    range->is_shared = fd >= 0 && pretend_space_share(range->base, range->span, fd, 0);
    if (fd >= 0)
        close(fd);
    *opened = (struct opened){all_opened, range, handle->pid, handle->id, 0};
    all_opened = opened;
    *made = opened;
    return CUDA_SUCCESS;
}

static CUresult check_handle(const struct handle *handle, unsigned flags)
{
    if (flags & ~CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    if (handle->magic != HANDLE_MAGIC || !handle->bytes || handle->bytes % PRETEND_PAGE ||
        handle->bytes > PRETEND_ADDRESSES || handle->offset >= handle->bytes)
        return CUDA_ERROR_INVALID_HANDLE;
    if (handle->pid == getpid() || pretend_current_device() < 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle given, unsigned flags);
PRETEND_CALL CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle given,
                                            unsigned flags)
{
    struct handle handle;
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    memcpy(&handle, &given, sizeof handle);
    result = pointer ? check_handle(&handle, flags) : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    struct opened *opened = find_opened(&handle);
    if (!opened)
        result = open_new(&handle, &opened);
    if (result == CUDA_SUCCESS) {
        opened->references++;
        *pointer = opened->range->base + handle.offset;
    }
    pretend_unlock();
    return result;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pointer, CUipcMemHandle given, unsigned flags);
PRETEND_CALL CUresult cuIpcOpenMemHandle(CUdeviceptr *pointer, CUipcMemHandle given, unsigned flags)
{
    return cuIpcOpenMemHandle_v2(pointer, given, flags);
}

static void close_opened(struct opened *opened)
{
    struct opened **at = &all_opened;
    while (*at != opened)
        at = &(*at)->next;
    *at = opened->next;
    pretend_range_remove(opened->range);
    pretend_range_drop(opened->range);
    free(opened);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer);
PRETEND_CALL CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    struct pretend_range *range = pretend_range_around(pointer);
    struct opened *opened = range && range->kind == PRETEND_OPENED ? range->inside : NULL;
    if (!opened)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (--opened->references == 0)
        close_opened(opened);
    pretend_unlock();
    return result;
}
