/* SPDX-License-Identifier: MIT */
/* Virtual memory management: addresses are reserved, physical memory is made, the one is mapped to
 * the other. The device is charged when the memory is made, and has it back when the last handle
 * and the last map are gone. */
#include "virtual.h"

#include <stdlib.h>

#include "pretend/cuda/driver/table.h"
#include "rehearse/account_note.h"
#include "rehearse/account_write.h"

static struct pretend_table handles;

static int is_of_pages(uint64_t number)
{
    return number % PRETEND_PAGE == 0;
}

static int is_of_host(const CUmemLocation *location)
{
    return location->type >= CU_MEM_LOCATION_TYPE_HOST &&
           location->type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (is_of_host(&prop->location))
        return CUDA_SUCCESS;
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    return pretend_device(prop->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       int option);
PRETEND_CALL CUresult cuMemGetAllocationGranularity(size_t *granularity,
                                                    const CUmemAllocationProp *prop, int option)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!granularity || option < 0 || option > 1)
        return CUDA_ERROR_INVALID_VALUE;
    result = check_prop(prop);
    if (result == CUDA_SUCCESS)
        *granularity = PRETEND_PAGE;
    return result;
}

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment,
                             CUdeviceptr wanted, unsigned long long flags);
PRETEND_CALL CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment,
                                          CUdeviceptr wanted, unsigned long long flags)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!pointer || !bytes || !is_of_pages(bytes) || alignment & (alignment - 1) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > PRETEND_ADDRESSES)
        return CUDA_ERROR_OUT_OF_MEMORY;
    int device = pretend_current_device();
    pretend_lock();
    struct pretend_range *range =
        pretend_range_make(PRETEND_RESERVATION, device < 0 ? 0 : device, bytes);
    result = range ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (range) {
        range->span = bytes + PRETEND_PAGE;
        result = pretend_range_place(range, alignment, wanted ? wanted - PRETEND_PAGE : 0);
        if (result != CUDA_SUCCESS)
            pretend_cuda_note(
                "A pretended device has no more addresses, and the program was refused "
                "a reservation (expandable segments): it would have had it there.");
    }
    if (result == CUDA_SUCCESS)
        *pointer = range->base + PRETEND_PAGE;
    else if (range)
        pretend_range_drop(range);
    pretend_unlock();
    return result;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes);
PRETEND_CALL CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    struct pretend_range *range = pretend_reservation_at(pointer);
    if (!range || range->base + PRETEND_PAGE != pointer || range->bytes != bytes ||
        pretend_range_begins_in(pointer, bytes)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        pretend_range_remove(range);
        pretend_range_drop(range);
    }
    pretend_unlock();
    return result;
}

static CUresult charge(struct pretend_physical *physical)
{
    struct pretend_range *range = &physical->charge;
    uint64_t free_bytes;
    if (range->device >= 0)
        return pretend_charge(range, range->bytes, "mapped memory");
    if (!pretend_take(MT_ACCOUNT_HOST, range->held, &free_bytes)) {
        pretend_note_refuse(MT_ACCOUNT_HOST, MT_CATEGORY_NONE, range->bytes, free_bytes,
                            "mapped memory", NULL);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pretend_note_alloc(MT_ACCOUNT_HOST, MT_CATEGORY_NONE, MT_ACCOUNT_PINNED, physical, range->held,
                       "mapped memory", NULL);
    return CUDA_SUCCESS;
}

static void discharge(struct pretend_physical *physical)
{
    if (physical->fd >= 0)
        pretend_shared_discharge(physical);
    else if (physical->charge.device >= 0)
        pretend_discharge(&physical->charge);
    else {
        pretend_note_free(MT_ACCOUNT_HOST, physical, physical->charge.held);
        pretend_give_back(MT_ACCOUNT_HOST, physical->charge.held);
    }
}

struct pretend_physical *pretend_physical_make(const CUmemAllocationProp *prop, uint64_t bytes)
{
    struct pretend_physical *physical = calloc(1, sizeof *physical);
    if (!physical)
        return NULL;
    physical->prop = *prop;
    physical->fd = -1;
    physical->charge = (struct pretend_range){
        .base = (uint64_t)(uintptr_t)physical,
        .bytes = bytes,
        .span = bytes,
        .held = bytes,
        .device = is_of_host(&prop->location) ? -1 : prop->location.id,
    };
    return physical;
}

struct pretend_physical *pretend_physical_of(CUmemGenericAllocationHandle handle)
{
    return pretend_table_get(&handles, handle);
}

int pretend_physical_hold(struct pretend_physical *physical)
{
    if (!physical->handles && !pretend_table_put(&handles, physical->charge.base, physical))
        return 0;
    physical->handles++;
    return 1;
}

static void drop_unused(struct pretend_physical *physical)
{
    if (physical->handles || physical->maps)
        return;
    discharge(physical);
    free(physical);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *prop, unsigned long long flags);
PRETEND_CALL CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                                  const CUmemAllocationProp *prop, unsigned long long flags)
{
    CUresult result = pretend_enter();
    if (result == CUDA_SUCCESS)
        result = check_prop(prop);
    if (result != CUDA_SUCCESS)
        return result;
    if (!handle || !bytes || !is_of_pages(bytes) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    struct pretend_physical *made = pretend_physical_make(prop, bytes);
    result = made ? charge(made) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS && !pretend_physical_hold(made)) {
        discharge(made);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS)
        *handle = made->charge.base;
    else
        free(made);
    pretend_unlock();
    return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
PRETEND_CALL CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    struct pretend_physical *physical = pretend_physical_of(handle);
    if (!physical) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        if (--physical->handles == 0)
            pretend_table_remove(&handles, handle);
        drop_unused(physical);
    }
    pretend_unlock();
    return result;
}

static int is_unmapped(CUdeviceptr pointer, uint64_t bytes)
{
    const struct pretend_range *reservation = pretend_reservation_at(pointer);
    const struct pretend_range *there = pretend_range_around(pointer);
    return reservation && pointer > reservation->base &&
           bytes <= reservation->base + reservation->span - pointer &&
           (!there || there->kind != PRETEND_MAP) && !pretend_range_begins_in(pointer, bytes);
}

static CUresult map(CUdeviceptr pointer, uint64_t bytes, struct pretend_physical *physical)
{
    struct pretend_map *made = calloc(1, sizeof *made);
    int device = physical->charge.device < 0 ? pretend_space_at(pointer) : physical->charge.device;
    struct pretend_range *range = made ? pretend_range_make(PRETEND_MAP, device, bytes) : NULL;
    if (!range) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *made = (struct pretend_map){.physical = physical, .next = physical->first_map};
    range->base = pointer;
    range->span = bytes;
    range->access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    range->inside = made;
    range->is_shared = physical->fd >= 0 && pretend_space_share(pointer, bytes, physical->fd, 0);
    pretend_range_put(range);
    physical->first_map = range;
    physical->maps++;
    if (physical->charge.device >= 0 && physical->fd < 0)
        pretend_note_mapped(pretend_place(device), physical, pointer);
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags);
PRETEND_CALL CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                               CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!bytes || !is_of_pages(bytes) || offset || flags)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    struct pretend_physical *physical = pretend_physical_of(handle);
    const struct pretend_range *reservation = pretend_reservation_at(pointer);
    if (!physical || bytes > physical->charge.bytes || !reservation ||
        !is_of_pages(pointer - reservation->base) || !is_unmapped(pointer, bytes))
        result = CUDA_ERROR_INVALID_VALUE;
    else
        result = map(pointer, bytes, physical);
    pretend_unlock();
    return result;
}

static void unlink_map(struct pretend_physical *physical, struct pretend_range *range)
{
    struct pretend_range **at = &physical->first_map;
    while (*at != range)
        at = &((struct pretend_map *)(*at)->inside)->next;
    *at = ((struct pretend_map *)range->inside)->next;
}

static void unmap(struct pretend_range *range)
{
    struct pretend_map *made = range->inside;
    struct pretend_physical *physical = made->physical;
    unlink_map(physical, range);
    pretend_range_remove(range);
    pretend_range_drop(range);
    free(made);
    physical->maps--;
    drop_unused(physical);
}

/* Whether [pointer, pointer + bytes) is of whole maps, of at least one. */
static int is_of_maps(CUdeviceptr pointer, size_t bytes)
{
    CUdeviceptr end = pointer + bytes;
    if (!bytes || end < pointer)
        return 0;
    while (pointer < end) {
        const struct pretend_range *range = pretend_range_around(pointer);
        if (!range || range->kind != PRETEND_MAP || range->base != pointer)
            return 0;
        pointer += range->span;
    }
    return pointer == end;
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes);
PRETEND_CALL CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
    CUresult result = pretend_enter();
    CUdeviceptr end = pointer + bytes;
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    if (!is_of_maps(pointer, bytes))
        result = CUDA_ERROR_INVALID_VALUE;
    while (result == CUDA_SUCCESS && pointer < end) {
        struct pretend_range *range = pretend_range_around(pointer);
        pointer += range->span;
        unmap(range);
    }
    pretend_unlock();
    return result;
}

/* What one location may do with a map; the host's may, where it is host memory. */
static void set_access(struct pretend_range *range, const CUmemAccessDesc *desc)
{
    struct pretend_map *map = range->inside;
    uint64_t bit = desc->location.type == CU_MEM_LOCATION_TYPE_DEVICE
                       ? UINT64_C(1) << desc->location.id % 64
                       : 0;
    map->readable &= ~bit;
    map->writable &= ~bit;
    if (desc->flags & CU_MEM_ACCESS_FLAGS_PROT_READ)
        map->readable |= bit;
    if (desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        map->writable |= bit;
    range->access = map->writable   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                    : map->readable ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                    : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

static CUresult check_access(const CUmemAccessDesc *desc, size_t n)
{
    if (!desc || !n)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; i++) {
        if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
            desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
            desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return CUDA_ERROR_INVALID_VALUE;
        if (desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
            !pretend_device(desc[i].location.id))
            return CUDA_ERROR_INVALID_DEVICE;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *desc, size_t n);
PRETEND_CALL CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *desc,
                                     size_t n)
{
    CUresult result = pretend_enter();
    CUdeviceptr end = pointer + bytes;
    if (result == CUDA_SUCCESS)
        result = check_access(desc, n);
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    if (!is_of_maps(pointer, bytes))
        result = CUDA_ERROR_INVALID_VALUE;
    while (result == CUDA_SUCCESS && pointer < end) {
        struct pretend_range *range = pretend_range_around(pointer);
        for (size_t i = 0; i < n; i++)
            set_access(range, &desc[i]);
        pointer += range->span;
    }
    pretend_unlock();
    return result;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                        CUdeviceptr pointer);
PRETEND_CALL CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                                     CUdeviceptr pointer)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
        !pretend_device(location->id))
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    const struct pretend_range *range = pretend_range_around(pointer);
    if (range && range->kind == PRETEND_MAP) {
        const struct pretend_map *map = range->inside;
        *flags = map->writable >> location->id & 1   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                 : map->readable >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                     : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    } else {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    pretend_unlock();
    return result;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle);
PRETEND_CALL CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                             CUmemGenericAllocationHandle handle)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    const struct pretend_physical *physical = pretend_physical_of(handle);
    if (physical && prop)
        *prop = physical->prop;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    pretend_unlock();
    return result;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address);
PRETEND_CALL CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle,
                                                  void *address)
{
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    const struct pretend_range *range = pretend_range_around((CUdeviceptr)(uintptr_t)address);
    struct pretend_map *map = range && range->kind == PRETEND_MAP ? range->inside : NULL;
    if (!handle || !map)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!pretend_physical_hold(map->physical))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else
        *handle = map->physical->charge.base;
    pretend_unlock();
    return result;
}
