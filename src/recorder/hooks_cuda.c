/* SPDX-License-Identifier: MIT */
/* What a program takes of devices by CUDA's driver.
 *
 * The driver is called first, what it gave is noted after it; what is given back is noted before,
 * since another thread may be given the same place at once. Sizes are those that were asked for:
 * what the driver takes beside, for contexts, kernels, graphs and its own rounding, shows in what
 * it says is used, which is asked after each call that may change it. These functions are called by
 * a program and never from inside an allocator, so that asking the driver is safe here. They need
 * no context of their own: a thread may have none. */
#include <string.h>

#include <memtally/category.h>

#include "base/gpu_uuid.h"
#include "recorder/cuda.h"
#include "recorder/cuda_cap.h"
#include "recorder/real.h"

#define FRAME           __builtin_frame_address(0)
#define ASK_FROM_BYTES  ((size_t)1 << 20)    /* smaller allocations share what the driver has */
#define PINNED          "pinned for devices" /* as python/memtally/watch/cpu.py calls it */
#define POINTER_ORDINAL 9                    /* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL */

static void write_event(enum mt_event_op op, const uint64_t *fields, uint32_t n)
{
    struct thread *thread = enter();
    if (!thread)
        return;
    mt_write_event(&thread->writer, op, now_ticks(), fields, n);
    leave();
}

/* Once in the life of a process; a child that was forked tells anew. */
static void tell_device(int device)
{
    struct process *process = memtally_recorder.process;
    uint64_t bit = (uint64_t)1 << device;
    uint8_t uuid[MT_GPU_UUID_RAW_BYTES] = {0};
    char name[128] = "";
    char id[MT_GPU_UUID_TEXT_BYTES];
    size_t total = 0;
    if (!process || __atomic_load_n(&process->devices_told, __ATOMIC_RELAXED) & bit)
        return;
    if (memtally_real.cuda.cuDeviceGetName)
        memtally_real.cuda.cuDeviceGetName(name, sizeof name - 1, device);
    if (memtally_real.cuda.cuDeviceGetUuid_v2)
        memtally_real.cuda.cuDeviceGetUuid_v2(uuid, device);
    if (memtally_real.cuda.cuDeviceTotalMem_v2)
        memtally_real.cuda.cuDeviceTotalMem_v2(&total, device);
    mt_format_gpu_uuid(uuid, id);
    struct thread *thread = enter();
    if (!thread)
        return;
    if (!(__atomic_fetch_or(&process->devices_told, bit, __ATOMIC_RELAXED) & bit)) {
        uint64_t fields[] = {(uint64_t)device, total, thread_name(thread, id),
                             thread_name(thread, name)};
        mt_write_event(&thread->writer, MT_EVENT_DEVICE, now_ticks(), fields, 4);
    }
    leave();
}

int cuda_current_device(void)
{
    int device = CUDA_NO_DEVICE;
    if (!memtally_real.cuda.cuCtxGetDevice || memtally_real.cuda.cuCtxGetDevice(&device) != 0)
        return CUDA_NO_DEVICE;
    return device;
}

static int device_of(uint64_t address)
{
    int device = CUDA_NO_DEVICE;
    if (memtally_real.cuda.cuPointerGetAttribute &&
        memtally_real.cuda.cuPointerGetAttribute(&device, POINTER_ORDINAL, address) == 0 &&
        device >= 0)
        return device;
    return cuda_current_device();
}

/* What the driver says is used of the current context's device, by whomever. */
static void ask_used(int device, enum mt_device_reason reason)
{
    size_t free_bytes = 0;
    size_t total = 0;
    if (device < 0 || device >= DEVICES_TOLD_MAX || !memtally_real.cuda.cuMemGetInfo_v2 ||
        memtally_real.cuda.cuMemGetInfo_v2(&free_bytes, &total) != 0 || free_bytes > total)
        return;
    tell_device(device);
    uint64_t fields[] = {(uint64_t)device, total - free_bytes, reason};
    write_event(MT_EVENT_DEVICE_USED, fields, 3);
    cuda_watch_used(device, fields[1]);
}

void cuda_note_used(enum mt_device_reason reason)
{
    ask_used(cuda_current_device(), reason);
}

/* The same of the device that is current, which it need not be. */
static void ask_used_of(int device, enum mt_device_reason reason)
{
    if (device == cuda_current_device())
        ask_used(device, reason);
}

static void note_given(int device, enum mt_device_kind kind, uint64_t object, uint64_t size,
                       const void *frame)
{
    cuda_cap_keep(kind, object, device, size);
    if (device < 0 || device >= DEVICES_TOLD_MAX)
        return;
    tell_device(device);
    const char *caller = cuda_caller(frame);
    struct thread *thread = enter();
    if (!thread)
        return;
    uint64_t fields[] = {(uint64_t)device, kind, object, size,
                         stack_number(thread, frame, now_ticks())};
    mt_write_event(&thread->writer, MT_EVENT_DEVICE_ALLOC, now_ticks(), fields, 5);
    uint64_t called[] = {object, thread_name(thread, caller)};
    if (called[1])
        mt_write_event(&thread->writer, MT_EVENT_DEVICE_CALLER, now_ticks(), called, 2);
    leave();
}

static void note_refused(int device, enum mt_device_kind kind, uint64_t size, const void *frame)
{
    size_t free_bytes = 0;
    size_t total = 0;
    if (device < 0 || device >= DEVICES_TOLD_MAX)
        return;
    if (!memtally_real.cuda.cuMemGetInfo_v2 || device != cuda_current_device() ||
        memtally_real.cuda.cuMemGetInfo_v2(&free_bytes, &total) != 0)
        free_bytes = 0;
    tell_device(device);
    struct thread *thread = enter();
    if (!thread)
        return;
    uint64_t fields[] = {(uint64_t)device, kind, size, free_bytes,
                         stack_number(thread, frame, now_ticks())};
    mt_write_event(&thread->writer, MT_EVENT_DEVICE_REFUSED, now_ticks(), fields, 5);
    leave();
}

static void note_gone(enum mt_device_kind kind, uint64_t object)
{
    uint64_t fields[] = {kind, object};
    cuda_cap_give_back(kind, object);
    if (object)
        write_event(MT_EVENT_DEVICE_FREE, fields, 2);
}

/* What a pool holds, in use or free. Without a pool, the one that the device has in use. */
static void ask_pool(int device, void *pool)
{
    enum { RESERVED_CURRENT = 5 }; /* CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT */
    uint64_t reserved = 0;
    if (device < 0 || device >= DEVICES_TOLD_MAX || !memtally_real.cuda.cuMemPoolGetAttribute)
        return;
    if (!pool && (!memtally_real.cuda.cuDeviceGetMemPool ||
                  memtally_real.cuda.cuDeviceGetMemPool(&pool, device) != 0))
        return;
    if (memtally_real.cuda.cuMemPoolGetAttribute(pool, RESERVED_CURRENT, &reserved) != 0)
        return;
    tell_device(device);
    uint64_t fields[] = {(uint64_t)device, (uint64_t)(uintptr_t)pool, reserved};
    write_event(MT_EVENT_DEVICE_POOL, fields, 3);
}

/* What came of asking for `size` bytes of a device: what was past the cap is as if the driver had
 * refused it. */
static int answered(int result, int device, enum mt_device_kind kind, uint64_t size,
                    const void *frame)
{
    if (result > 0)
        cuda_cap_put_back(device, size);
    if (result == CUDA_OUT_OF_MEMORY || result == PAST_CAP)
        note_refused(device, kind, size, frame);
    return result == PAST_CAP ? CUDA_OUT_OF_MEMORY : result;
}

/* What came of an allocation by address. */
static int given(int result, enum mt_device_kind kind, const uint64_t *address, uint64_t size,
                 const void *frame)
{
    result = answered(result, cuda_current_device(), kind, size, frame);
    if (result != 0 || !address || !*address)
        return result;
    int device = device_of(*address);
    note_given(device, kind, *address, size, frame);
    if (size >= ASK_FROM_BYTES)
        ask_used_of(device, MT_DEVICE_BY_CALL);
    return result;
}

/* After a call by which the driver takes or gives back memory of its own. */
static int changed(int result, enum mt_device_reason reason)
{
    int device = result == 0 ? cuda_current_device() : CUDA_NO_DEVICE;
    if (device >= 0)
        ask_used(device, reason);
    return result;
}

/* ---- finding functions ---- */

static int found(int result, void **function)
{
    if (result == 0 && function && *function)
        *function = cuda_in_place_of(*function);
    return result;
}

int cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags)
{
    REAL(cuGetProcAddress)
    return found(memtally_real.cuda.cuGetProcAddress(symbol, function, version, flags), function);
}

int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                        int *status)
{
    REAL(cuGetProcAddress_v2)
    return found(memtally_real.cuda.cuGetProcAddress_v2(symbol, function, version, flags, status),
                 function);
}

/* ---- by address ---- */

int cuMemAlloc_v2(uint64_t *address, size_t size)
{
    REAL(cuMemAlloc_v2)
    int result =
        WITHIN_CAP(cuda_current_device(), size, memtally_real.cuda.cuMemAlloc_v2(address, size));
    return given(result, MT_DEVICE_LINEAR, address, size, FRAME);
}

int cuMemAllocPitch_v2(uint64_t *address, size_t *pitch, size_t width, size_t height,
                       unsigned element)
{
    REAL(cuMemAllocPitch_v2)
    int device = cuda_current_device();
    int result =
        WITHIN_CAP(device, width * height,
                   memtally_real.cuda.cuMemAllocPitch_v2(address, pitch, width, height, element));
    size_t row = result == 0 && pitch ? *pitch : width;
    cuda_cap_add(device, (row - width) * height);
    return given(result, MT_DEVICE_LINEAR, address, row * height, FRAME);
}

int cuMemAllocManaged(uint64_t *address, size_t size, unsigned flags)
{
    REAL(cuMemAllocManaged)
    int result = WITHIN_CAP(cuda_current_device(), size,
                            memtally_real.cuda.cuMemAllocManaged(address, size, flags));
    return given(result, MT_DEVICE_MANAGED, address, size, FRAME);
}

int cuMemFree_v2(uint64_t address)
{
    REAL(cuMemFree_v2)
    note_gone(MT_DEVICE_LINEAR, address);
    return changed(memtally_real.cuda.cuMemFree_v2(address), MT_DEVICE_BY_CALL);
}

/* ---- of the host ---- */

/* Pinned memory is mapped by the driver, and a label of it lasts until that unmaps it. What
 * the program says of it later counts more. */
static void label_pinned(const void *address, size_t size)
{
    struct thread *thread = enter();
    if (!thread)
        return;
    uint64_t fields[] = {(uint64_t)(uintptr_t)address, size, MT_CATEGORY_RUNTIME,
                         thread_name(thread, PINNED)};
    mt_write_event(&thread->writer, MT_EVENT_LABEL, now_ticks(), fields, 4);
    leave();
}

static int given_host(int result, enum mt_device_kind kind, const void *address, size_t size,
                      const void *frame)
{
    int device = cuda_current_device();
    if (result == CUDA_OUT_OF_MEMORY)
        note_refused(device, kind, size, frame);
    if (result == 0 && address)
        note_given(device < 0 ? 0 : device, kind, (uint64_t)(uintptr_t)address, size, frame);
    if (result == 0 && address && kind == MT_DEVICE_HOST)
        label_pinned(address, size);
    return result;
}

int cuMemAllocHost_v2(void **address, size_t size)
{
    REAL(cuMemAllocHost_v2)
    int result = memtally_real.cuda.cuMemAllocHost_v2(address, size);
    return given_host(result, MT_DEVICE_HOST, result == 0 ? *address : NULL, size, FRAME);
}

int cuMemHostAlloc(void **address, size_t size, unsigned flags)
{
    REAL(cuMemHostAlloc)
    int result = memtally_real.cuda.cuMemHostAlloc(address, size, flags);
    return given_host(result, MT_DEVICE_HOST, result == 0 ? *address : NULL, size, FRAME);
}

int cuMemFreeHost(void *address)
{
    REAL(cuMemFreeHost)
    note_gone(MT_DEVICE_HOST, (uint64_t)(uintptr_t)address);
    return memtally_real.cuda.cuMemFreeHost(address);
}

int cuMemHostRegister_v2(void *address, size_t size, unsigned flags)
{
    REAL(cuMemHostRegister_v2)
    return given_host(memtally_real.cuda.cuMemHostRegister_v2(address, size, flags),
                      MT_DEVICE_REGISTERED, address, size, FRAME);
}

int cuMemHostUnregister(void *address)
{
    REAL(cuMemHostUnregister)
    note_gone(MT_DEVICE_REGISTERED, (uint64_t)(uintptr_t)address);
    return memtally_real.cuda.cuMemHostUnregister(address);
}

/* ---- in the order of a stream, out of a pool ---- */

#define POOLED(name, parameters, arguments, pool)                                                  \
    int name parameters                                                                            \
    {                                                                                              \
        REAL(name)                                                                                 \
        int result = WITHIN_CAP(cuda_current_device(), size, memtally_real.cuda.name arguments);   \
        if (result == 0)                                                                           \
            ask_pool(device_of(*address), pool);                                                   \
        return given(result, MT_DEVICE_POOLED, address, size, FRAME);                              \
    }

POOLED(cuMemAllocAsync, (uint64_t * address, size_t size, void *stream), (address, size, stream),
       NULL)
POOLED(cuMemAllocAsync_ptsz, (uint64_t * address, size_t size, void *stream),
       (address, size, stream), NULL)
POOLED(cuMemAllocFromPoolAsync, (uint64_t * address, size_t size, void *pool, void *stream),
       (address, size, pool, stream), pool)
POOLED(cuMemAllocFromPoolAsync_ptsz, (uint64_t * address, size_t size, void *pool, void *stream),
       (address, size, pool, stream), pool)

int cuMemFreeAsync(uint64_t address, void *stream)
{
    REAL(cuMemFreeAsync)
    note_gone(MT_DEVICE_POOLED, address);
    return memtally_real.cuda.cuMemFreeAsync(address, stream);
}

int cuMemFreeAsync_ptsz(uint64_t address, void *stream)
{
    REAL(cuMemFreeAsync_ptsz)
    note_gone(MT_DEVICE_POOLED, address);
    return memtally_real.cuda.cuMemFreeAsync_ptsz(address, stream);
}

int cuMemPoolTrimTo(void *pool, size_t keep)
{
    REAL(cuMemPoolTrimTo)
    int result = memtally_real.cuda.cuMemPoolTrimTo(pool, keep);
    if (result == 0)
        ask_pool(cuda_current_device(), pool);
    return changed(result, MT_DEVICE_BY_POOL);
}

/* A lower threshold may give back what is free. */
int cuMemPoolSetAttribute(void *pool, int attribute, void *value)
{
    REAL(cuMemPoolSetAttribute)
    int result = memtally_real.cuda.cuMemPoolSetAttribute(pool, attribute, value);
    if (result == 0)
        ask_pool(cuda_current_device(), pool);
    return result;
}

/* Another process's allocation. */
int cuMemPoolImportPointer(uint64_t *address, void *pool, void *data)
{
    REAL(cuMemPoolImportPointer)
    int result = memtally_real.cuda.cuMemPoolImportPointer(address, pool, data);
    if (result == 0)
        note_given(device_of(*address), MT_DEVICE_IMPORTED, *address, 0, FRAME);
    return result;
}

int cuMemPoolDestroy(void *pool)
{
    REAL(cuMemPoolDestroy)
    uint64_t fields[] = {(uint64_t)cuda_current_device(), (uint64_t)(uintptr_t)pool, 0};
    if (pool)
        write_event(MT_EVENT_DEVICE_POOL, fields, 3);
    return changed(memtally_real.cuda.cuMemPoolDestroy(pool), MT_DEVICE_BY_POOL);
}

/* ---- physical memory, which counts once whoever maps it, and goes with its last handle and
 * mapping ---- */

/* The device stands in what was asked for: the calling thread may have no context. */
int cuMemCreate(uint64_t *handle, size_t size, const struct cuda_properties *properties,
                uint64_t flags)
{
    REAL(cuMemCreate)
    int device = properties && properties->location_type == CUDA_LOCATION_DEVICE
                     ? properties->location_id
                     : CUDA_NO_DEVICE;
    int result =
        WITHIN_CAP(device, size, memtally_real.cuda.cuMemCreate(handle, size, properties, flags));
    result = answered(result, device, MT_DEVICE_PHYSICAL, size, FRAME);
    if (result != 0 || device < 0)
        return result;
    note_given(device, MT_DEVICE_PHYSICAL, *handle, size, FRAME);
    ask_used_of(device, MT_DEVICE_BY_CALL);
    return result;
}

int cuMemRelease(uint64_t handle)
{
    REAL(cuMemRelease)
    note_gone(MT_DEVICE_PHYSICAL, handle);
    return memtally_real.cuda.cuMemRelease(handle);
}

int cuMemRetainAllocationHandle(uint64_t *handle, void *address)
{
    REAL(cuMemRetainAllocationHandle)
    int result = memtally_real.cuda.cuMemRetainAllocationHandle(handle, address);
    if (result != 0)
        return result;
    cuda_cap_hold(*handle);
    write_event(MT_EVENT_DEVICE_HELD, handle, 1);
    return result;
}

/* Another process made it, where it counts; here it takes nothing. */
int cuMemImportFromShareableHandle(uint64_t *handle, void *shareable, int kind)
{
    REAL(cuMemImportFromShareableHandle)
    struct cuda_properties properties = {0};
    int result = memtally_real.cuda.cuMemImportFromShareableHandle(handle, shareable, kind);
    if (result == 0 && memtally_real.cuda.cuMemGetAllocationPropertiesFromHandle &&
        memtally_real.cuda.cuMemGetAllocationPropertiesFromHandle(&properties, *handle) == 0 &&
        properties.location_type == CUDA_LOCATION_DEVICE)
        note_given(properties.location_id, MT_DEVICE_IMPORTED, *handle, 0, FRAME);
    return result;
}

int cuMemMap(uint64_t address, size_t size, size_t offset, uint64_t handle, uint64_t flags)
{
    REAL(cuMemMap)
    int result = memtally_real.cuda.cuMemMap(address, size, offset, handle, flags);
    uint64_t fields[] = {address, size, handle};
    if (result != 0)
        return result;
    cuda_cap_map(address, size, handle);
    write_event(MT_EVENT_DEVICE_MAP, fields, 3);
    return result;
}

int cuMemUnmap(uint64_t address, size_t size)
{
    REAL(cuMemUnmap)
    uint64_t fields[] = {address, size};
    write_event(MT_EVENT_DEVICE_UNMAP, fields, 2);
    cuda_cap_unmap(address, size);
    return changed(memtally_real.cuda.cuMemUnmap(address, size), MT_DEVICE_BY_CALL);
}

int cuIpcOpenMemHandle_v2(uint64_t *address, struct cuda_ipc_handle handle, unsigned flags)
{
    REAL(cuIpcOpenMemHandle_v2)
    int result = memtally_real.cuda.cuIpcOpenMemHandle_v2(address, handle, flags);
    if (result == 0)
        note_given(device_of(*address), MT_DEVICE_IMPORTED, *address, 0, FRAME);
    return result;
}

int cuIpcCloseMemHandle(uint64_t address)
{
    REAL(cuIpcCloseMemHandle)
    note_gone(MT_DEVICE_IMPORTED, address);
    return memtally_real.cuda.cuIpcCloseMemHandle(address);
}

/* ---- what has no size of its own: the driver is asked before and after ---- */

#define CHANGES(name, parameters, arguments, reason)                                               \
    int name parameters                                                                            \
    {                                                                                              \
        REAL(name)                                                                                 \
        ask_used(cuda_current_device(), MT_DEVICE_BEFORE);                                         \
        return changed(memtally_real.cuda.name arguments, reason);                                 \
    }

CHANGES(cuMemMapArrayAsync, (void *list, unsigned n, void *stream), (list, n, stream),
        MT_DEVICE_BY_ARRAY)
CHANGES(cuMemMapArrayAsync_ptsz, (void *list, unsigned n, void *stream), (list, n, stream),
        MT_DEVICE_BY_ARRAY)
CHANGES(cuExternalMemoryGetMappedMipmappedArray, (void **array, void *memory, const void *form),
        (array, memory, form), MT_DEVICE_BY_ARRAY)
CHANGES(cuModuleLoad, (void **module, const char *path), (module, path), MT_DEVICE_BY_MODULE)
CHANGES(cuModuleLoadData, (void **module, const void *image), (module, image), MT_DEVICE_BY_MODULE)
CHANGES(cuModuleLoadDataEx,
        (void **module, const void *image, unsigned n, int *options, void **values),
        (module, image, n, options, values), MT_DEVICE_BY_MODULE)
CHANGES(cuModuleLoadFatBinary, (void **module, const void *image), (module, image),
        MT_DEVICE_BY_MODULE)
CHANGES(cuFuncLoad, (void *function), (function), MT_DEVICE_BY_MODULE)
CHANGES(cuLibraryLoadData,
        (void **library, const void *image, int *jit, void **jit_values, unsigned n_jit,
         int *options, void **values, unsigned n),
        (library, image, jit, jit_values, n_jit, options, values, n), MT_DEVICE_BY_MODULE)
CHANGES(cuLibraryLoadFromFile,
        (void **library, const char *path, int *jit, void **jit_values, unsigned n_jit,
         int *options, void **values, unsigned n),
        (library, path, jit, jit_values, n_jit, options, values, n), MT_DEVICE_BY_MODULE)
CHANGES(cuCtxSetLimit, (int limit, size_t value), (limit, value), MT_DEVICE_BY_CONTEXT)
CHANGES(cuGraphInstantiate, (void **exec, void *graph, void **node, char *log, size_t size),
        (exec, graph, node, log, size), MT_DEVICE_BY_GRAPH)
CHANGES(cuGraphInstantiate_v2, (void **exec, void *graph, void **node, char *log, size_t size),
        (exec, graph, node, log, size), MT_DEVICE_BY_GRAPH)
CHANGES(cuGraphInstantiateWithFlags, (void **exec, void *graph, uint64_t flags),
        (exec, graph, flags), MT_DEVICE_BY_GRAPH)
CHANGES(cuGraphInstantiateWithParams, (void **exec, void *graph, void *parameters),
        (exec, graph, parameters), MT_DEVICE_BY_GRAPH)
CHANGES(cuGraphInstantiateWithParams_ptsz, (void **exec, void *graph, void *parameters),
        (exec, graph, parameters), MT_DEVICE_BY_GRAPH)
CHANGES(cuGraphUpload, (void *exec, void *stream), (exec, stream), MT_DEVICE_BY_GRAPH)
CHANGES(cuGraphUpload_ptsz, (void *exec, void *stream), (exec, stream), MT_DEVICE_BY_GRAPH)

/* ---- arrays, by what their elements take ---- */

static int given_array(int result, void *const *array, const struct cuda_array_3d *form,
                       unsigned levels, const void *frame)
{
    int device = cuda_current_device();
    uint64_t bytes = form ? cuda_array_bytes(form, levels) : 0;
    result = answered(result, device, MT_DEVICE_ARRAY, bytes, frame);
    if (result == 0 && bytes)
        note_given(device, MT_DEVICE_ARRAY, (uint64_t)(uintptr_t)*array, bytes, frame);
    return changed(result, MT_DEVICE_BY_ARRAY);
}

int cuArrayCreate_v2(void **array, const struct cuda_array *form)
{
    REAL(cuArrayCreate_v2)
    struct cuda_array_3d same = {0};
    if (form)
        same =
            (struct cuda_array_3d){form->width, form->height, 0, form->format, form->channels, 0};
    ask_used(cuda_current_device(), MT_DEVICE_BEFORE);
    int result = WITHIN_CAP(cuda_current_device(), form ? cuda_array_bytes(&same, 1) : 0,
                            memtally_real.cuda.cuArrayCreate_v2(array, form));
    return given_array(result, array, &same, 1, FRAME);
}

int cuArray3DCreate_v2(void **array, const struct cuda_array_3d *form)
{
    REAL(cuArray3DCreate_v2)
    ask_used(cuda_current_device(), MT_DEVICE_BEFORE);
    int result = WITHIN_CAP(cuda_current_device(), form ? cuda_array_bytes(form, 1) : 0,
                            memtally_real.cuda.cuArray3DCreate_v2(array, form));
    return given_array(result, array, form, 1, FRAME);
}

int cuMipmappedArrayCreate(void **array, const struct cuda_array_3d *form, unsigned levels)
{
    REAL(cuMipmappedArrayCreate)
    ask_used(cuda_current_device(), MT_DEVICE_BEFORE);
    int result = WITHIN_CAP(cuda_current_device(), form ? cuda_array_bytes(form, levels) : 0,
                            memtally_real.cuda.cuMipmappedArrayCreate(array, form, levels));
    return given_array(result, array, form, levels, FRAME);
}

int cuArrayDestroy(void *array)
{
    REAL(cuArrayDestroy)
    ask_used(cuda_current_device(), MT_DEVICE_BEFORE);
    note_gone(MT_DEVICE_ARRAY, (uint64_t)(uintptr_t)array);
    return changed(memtally_real.cuda.cuArrayDestroy(array), MT_DEVICE_BY_ARRAY);
}

int cuMipmappedArrayDestroy(void *array)
{
    REAL(cuMipmappedArrayDestroy)
    ask_used(cuda_current_device(), MT_DEVICE_BEFORE);
    note_gone(MT_DEVICE_ARRAY, (uint64_t)(uintptr_t)array);
    return changed(memtally_real.cuda.cuMipmappedArrayDestroy(array), MT_DEVICE_BY_ARRAY);
}

/* ---- memory of others' making: a multicast object is a way to memory that counts where it was
 * made, and external memory is another interface's ---- */

CHANGES(cuMulticastCreate, (uint64_t * handle, const void *properties), (handle, properties),
        MT_DEVICE_BY_CALL)
CHANGES(cuMulticastAddDevice, (uint64_t handle, int device), (handle, device), MT_DEVICE_BY_CALL)
CHANGES(cuMulticastBindMem,
        (uint64_t handle, size_t offset, uint64_t memory, size_t from, size_t size, uint64_t flags),
        (handle, offset, memory, from, size, flags), MT_DEVICE_BY_CALL)
CHANGES(cuMulticastBindMem_v2,
        (uint64_t handle, int device, size_t offset, uint64_t memory, size_t from, size_t size,
         uint64_t flags),
        (handle, device, offset, memory, from, size, flags), MT_DEVICE_BY_CALL)
CHANGES(cuMulticastBindAddr,
        (uint64_t handle, size_t offset, uint64_t address, size_t size, uint64_t flags),
        (handle, offset, address, size, flags), MT_DEVICE_BY_CALL)
CHANGES(cuMulticastBindAddr_v2,
        (uint64_t handle, int device, size_t offset, uint64_t address, size_t size, uint64_t flags),
        (handle, device, offset, address, size, flags), MT_DEVICE_BY_CALL)
CHANGES(cuMulticastUnbind, (uint64_t handle, int device, size_t offset, size_t size),
        (handle, device, offset, size), MT_DEVICE_BY_CALL)

int cuImportExternalMemory(void **memory, const void *handle)
{
    REAL(cuImportExternalMemory)
    int result = memtally_real.cuda.cuImportExternalMemory(memory, handle);
    if (result == 0)
        note_given(cuda_current_device(), MT_DEVICE_IMPORTED, (uint64_t)(uintptr_t)*memory, 0,
                   FRAME);
    return result;
}

int cuExternalMemoryGetMappedBuffer(uint64_t *address, void *memory, const void *buffer)
{
    REAL(cuExternalMemoryGetMappedBuffer)
    int result = memtally_real.cuda.cuExternalMemoryGetMappedBuffer(address, memory, buffer);
    if (result == 0)
        note_given(device_of(*address), MT_DEVICE_IMPORTED, *address, 0, FRAME);
    return result;
}

int cuDestroyExternalMemory(void *memory)
{
    REAL(cuDestroyExternalMemory)
    note_gone(MT_DEVICE_IMPORTED, (uint64_t)(uintptr_t)memory);
    return memtally_real.cuda.cuDestroyExternalMemory(memory);
}

/* ---- graphs: memory comes as they are made, uploaded and started first ---- */

static void ask_graph_pool(int device)
{
    enum { RESERVED_CURRENT = 2 }; /* CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT */
    uint64_t reserved = 0;
    if (device < 0 || device >= DEVICES_TOLD_MAX ||
        !memtally_real.cuda.cuDeviceGetGraphMemAttribute ||
        memtally_real.cuda.cuDeviceGetGraphMemAttribute(device, RESERVED_CURRENT, &reserved) != 0)
        return;
    tell_device(device);
    uint64_t fields[] = {(uint64_t)device, MT_DEVICE_POOL_OF_GRAPHS, reserved};
    write_event(MT_EVENT_DEVICE_POOL, fields, 3);
}

/* One that another graph has put out of its slot counts as new, which costs a question. */
static uintptr_t *launched_slot(const void *exec)
{
    uintptr_t place = (uintptr_t)exec;
    return &memtally_real.launched[(place >> 4 ^ place >> 14) % CUDA_LAUNCHED];
}

static int is_first_launch(const void *exec)
{
    return __atomic_exchange_n(launched_slot(exec), (uintptr_t)exec, __ATOMIC_RELAXED) !=
           (uintptr_t)exec;
}

#define LAUNCH(name)                                                                               \
    int name(void *exec, void *stream)                                                             \
    {                                                                                              \
        REAL(name)                                                                                 \
        if (!is_first_launch(exec))                                                                \
            return memtally_real.cuda.name(exec, stream);                                          \
        int device = cuda_current_device();                                                        \
        ask_used(device, MT_DEVICE_BEFORE);                                                        \
        int result = changed(memtally_real.cuda.name(exec, stream), MT_DEVICE_BY_GRAPH);           \
        ask_graph_pool(device);                                                                    \
        return result;                                                                             \
    }

LAUNCH(cuGraphLaunch)
LAUNCH(cuGraphLaunch_ptsz)

int cuGraphExecDestroy(void *exec)
{
    REAL(cuGraphExecDestroy)
    uintptr_t its = (uintptr_t)exec;
    ask_used(cuda_current_device(), MT_DEVICE_BEFORE);
    __atomic_compare_exchange_n(launched_slot(exec), &its, 0, 0, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
    return changed(memtally_real.cuda.cuGraphExecDestroy(exec), MT_DEVICE_BY_GRAPH);
}

int cuDeviceGraphMemTrim(int device)
{
    REAL(cuDeviceGraphMemTrim)
    int result = memtally_real.cuda.cuDeviceGraphMemTrim(device);
    ask_graph_pool(device);
    if (result == 0)
        ask_used_of(device, MT_DEVICE_BY_POOL);
    return result;
}

/* ---- code that is given up ---- */

#define UNLOADS(name, parameters, arguments)                                                       \
    int name parameters                                                                            \
    {                                                                                              \
        REAL(name)                                                                                 \
        ask_used(cuda_current_device(), MT_DEVICE_BEFORE);                                         \
        cuda_forget_kernels();                                                                     \
        return changed(memtally_real.cuda.name arguments, MT_DEVICE_BY_MODULE);                    \
    }

UNLOADS(cuModuleUnload, (void *module), (module))
UNLOADS(cuLibraryUnload, (void *library), (library))
