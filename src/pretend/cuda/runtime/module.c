/* SPDX-License-Identifier: MIT */
/* What compiled code registers when it is loaded: images of device code, and the host functions and
 * variables that stand for kernels and variables in them. Nothing is loaded then; the first use of
 * one of its kernels makes an image a library of the driver's. */
#include <pthread.h>
#include <stdlib.h>

#include "driver_calls.h"
#include "pretend/cuda/pretend_cuda.h"
#include "pretend/cuda/take.h"
#include "rehearse/account.h"
#include "runtime.h"

#define BUCKETS       (1u << 15)
#define WRAPPER_MAGIC 0x466243b1u

struct image {
    const void *code;
    CUlibrary library; /* NULL: not loaded */
    struct entry *entries;
};

enum kind { KERNEL, VARIABLE, MANAGED, HANDLE };

struct entry {
    struct entry *next;    /* of its bucket */
    struct entry *sibling; /* of its image */
    const void *host;
    struct image *image;
    const char *name;
    enum kind kind;
    CUkernel kernel;     /* NULL: not loaded */
    size_t bytes;        /* of a variable */
    CUdeviceptr *memory; /* of a variable, for each device; 0: not there yet */
};

static struct {
    pthread_mutex_t lock;
    struct entry *bucket[BUCKETS];
} registered = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void lock(void)
{
    pthread_mutex_lock(&registered.lock);
}

static void unlock(void)
{
    pthread_mutex_unlock(&registered.lock);
}

/* A child that is forked meanwhile must be able to load libraries. */
__attribute__((constructor)) static void keep_lock_over_fork(void)
{
    pthread_atfork(lock, unlock, unlock);
}

static struct entry **bucket_of(const void *host)
{
    uint64_t hash = (uint64_t)(uintptr_t)host * UINT64_C(0x9e3779b97f4a7c15);
    return &registered.bucket[hash >> (64 - 15)];
}

static struct entry *find(const void *host)
{
    struct entry *entry = *bucket_of(host);
    while (entry && entry->host != host)
        entry = entry->next;
    return entry;
}

/* Lock held. NULL without memory: the kernel is then unknown. */
static struct entry *add(struct image *image, enum kind kind, const void *host, const char *name)
{
    struct entry **bucket = bucket_of(host), *entry = calloc(1, sizeof *entry);
    if (!entry)
        return NULL;
    *entry =
        (struct entry){.next = *bucket, .host = host, .image = image, .kind = kind, .name = name};
    *bucket = entry;
    if (image) {
        entry->sibling = image->entries;
        image->entries = entry;
    }
    return entry;
}

static void drop(struct entry *entry)
{
    struct entry **link = bucket_of(entry->host);
    while (*link && *link != entry)
        link = &(*link)->next;
    if (*link)
        *link = entry->next;
    for (int i = 0; entry->memory && i < (int)MT_ACCOUNT_DEVICES_MAX; i++)
        if (entry->memory[i] && entry->kind == VARIABLE)
            pretend_cuda_give(entry->memory[i]);
    free(entry->memory);
    free(entry);
}

/* What compilers wrap device code in. */
struct wrapper {
    uint32_t magic;
    uint32_t version;
    const void *code;
    void *more;
};

PRETEND_CALL void **__cudaRegisterFatBinary(void *code);
PRETEND_CALL void **__cudaRegisterFatBinary(void *code)
{
    const struct wrapper *wrapper = code;
    struct image *image = calloc(1, sizeof *image);
    if (image)
        image->code = wrapper && wrapper->magic == WRAPPER_MAGIC ? wrapper->code : code;
    return (void **)image;
}

PRETEND_CALL void __cudaRegisterFatBinaryEnd(void **handle);
PRETEND_CALL void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

PRETEND_CALL void __cudaUnregisterFatBinary(void **handle);
PRETEND_CALL void __cudaUnregisterFatBinary(void **handle)
{
    struct image *image = (struct image *)handle;
    if (!image)
        return;
    lock();
    for (struct entry *entry = image->entries, *next; entry; entry = next) {
        next = entry->sibling;
        drop(entry);
    }
    unlock();
    if (image->library)
        cuLibraryUnload(image->library);
    free(image);
}

PRETEND_CALL void __cudaRegisterFunction(void **handle, const char *host, char *function,
                                         const char *name, int threads_most, void *thread_index,
                                         void *block_index, void *block, void *grid, int *warp);
PRETEND_CALL void __cudaRegisterFunction(void **handle, const char *host, char *function,
                                         const char *name, int threads_most, void *thread_index,
                                         void *block_index, void *block, void *grid, int *warp)
{
    (void)function, (void)threads_most, (void)thread_index, (void)block_index;
    (void)block, (void)grid, (void)warp;
    if (!handle)
        return;
    lock();
    add((struct image *)handle, KERNEL, host, name);
    unlock();
}

static void register_variable(void **handle, enum kind kind, void *host, const char *name,
                              size_t bytes)
{
    if (!handle)
        return;
    lock();
    struct entry *entry = add((struct image *)handle, kind, host, name);
    if (entry)
        entry->bytes = bytes;
    unlock();
}

PRETEND_CALL void __cudaRegisterVar(void **handle, char *host, char *address, const char *name,
                                    int is_extern, size_t bytes, int is_constant, int is_global);
PRETEND_CALL void __cudaRegisterVar(void **handle, char *host, char *address, const char *name,
                                    int is_extern, size_t bytes, int is_constant, int is_global)
{
    (void)address, (void)is_extern, (void)is_constant, (void)is_global;
    register_variable(handle, VARIABLE, host, name, bytes);
}

/* A managed variable is a pointer in the program, which __cudaInitModule() sets before its use. */
PRETEND_CALL void __cudaRegisterManagedVar(void **handle, void **host, char *address,
                                           const char *name, int is_extern, size_t bytes,
                                           int is_constant, int is_global);
PRETEND_CALL void __cudaRegisterManagedVar(void **handle, void **host, char *address,
                                           const char *name, int is_extern, size_t bytes,
                                           int is_constant, int is_global)
{
    (void)address, (void)is_extern, (void)is_constant, (void)is_global;
    register_variable(handle, MANAGED, host, name, bytes);
}

PRETEND_CALL void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t bytes);
PRETEND_CALL void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t bytes)
{
    (void)handle, (void)name, (void)host, (void)bytes;
}

PRETEND_CALL char __cudaRegisterUnifiedTable(void **handle, void *table);
PRETEND_CALL char __cudaRegisterUnifiedTable(void **handle, void *table)
{
    (void)handle, (void)table;
    return 0;
}

PRETEND_CALL char __cudaInitModule(void **handle);
PRETEND_CALL char __cudaInitModule(void **handle)
{
    struct image *image = (struct image *)handle;
    if (!image || runtime_note(runtime_enter()) != cudaSuccess)
        return 0;
    lock();
    for (struct entry *entry = image->entries; entry; entry = entry->sibling) {
        CUdeviceptr pointer = 0;
        void **host = (void **)(uintptr_t)entry->host;
        if (entry->kind == MANAGED && entry->bytes && !*host &&
            cuMemAllocManaged(&pointer, entry->bytes, 1) == CUDA_SUCCESS)
            *host = (void *)(uintptr_t)pointer;
    }
    unlock();
    return 1;
}

/* Lock held. */
static int load(struct entry *entry)
{
    struct image *image = entry->image;
    int result = cudaSuccess;
    if (!image->library)
        result = cuLibraryLoadData(&image->library, image->code, NULL, NULL, 0, NULL, NULL, 0);
    if (result == cudaSuccess && !entry->kernel)
        result = cuLibraryGetKernel(&entry->kernel, image->library, entry->name);
    return result == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidDeviceFunction : result;
}

int runtime_kernel(const void *host, CUkernel *kernel)
{
    int result = cudaErrorInvalidDeviceFunction;
    lock();
    struct entry *entry = host ? find(host) : NULL;
    if (entry && (entry->kind == KERNEL || entry->kind == HANDLE))
        result = entry->kernel ? cudaSuccess : load(entry);
    if (result == cudaSuccess)
        *kernel = entry->kernel;
    unlock();
    return result;
}

int runtime_function(const void *host, CUfunction *function)
{
    CUkernel kernel = NULL;
    int result = runtime_kernel(host, &kernel);
    return result == cudaSuccess ? cuKernelGetFunction(function, kernel) : result;
}

const void *runtime_host_of(CUfunction function)
{
    const void *host = NULL;
    lock();
    for (size_t i = 0; i < BUCKETS && !host; i++)
        for (struct entry *entry = registered.bucket[i]; entry && !host; entry = entry->next) {
            CUfunction its = NULL;
            if (entry->kernel && cuKernelGetFunction(&its, entry->kernel) == CUDA_SUCCESS &&
                its == function)
                host = entry->host;
        }
    unlock();
    return host ? host : (const void *)function;
}

int runtime_know(CUkernel kernel)
{
    lock();
    struct entry *entry = find(kernel);
    if (!entry)
        entry = add(NULL, HANDLE, kernel, NULL);
    if (entry)
        entry->kernel = kernel;
    unlock();
    return entry ? cudaSuccess : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The memory of a variable on a device: where the image's is not to be had, memory of our own that
 * has its size. Lock held. */
static int place(struct entry *entry, int device, CUdeviceptr *pointer)
{
    if (!entry->memory)
        entry->memory = calloc(MT_ACCOUNT_DEVICES_MAX, sizeof *entry->memory);
    if (!entry->memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    int result = cudaSuccess;
    if (!entry->memory[device])
        result = (int)pretend_cuda_take(device, entry->bytes ? entry->bytes : 1,
                                        MT_CATEGORY_CONTEXT, entry->name, &entry->memory[device]);
    *pointer = entry->memory[device];
    return result;
}

void runtime_drop_symbols(int device)
{
    lock();
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct entry *entry = registered.bucket[i]; entry; entry = entry->next)
            if (entry->memory && entry->memory[device]) {
                pretend_cuda_give(entry->memory[device]);
                entry->memory[device] = 0;
            }
    unlock();
}

int runtime_symbol(const void *host, CUdeviceptr *pointer, size_t *bytes)
{
    int device = runtime_device();
    int result = cudaErrorInvalidSymbol;
    lock();
    struct entry *entry = host ? find(host) : NULL;
    if (entry && (entry->kind == VARIABLE || entry->kind == MANAGED)) {
        *bytes = entry->bytes;
        result = entry->kind == VARIABLE ? place(entry, device, pointer) : cudaSuccess;
        if (entry->kind == MANAGED)
            *pointer = (CUdeviceptr)(uintptr_t) * (void *const *)host;
    }
    unlock();
    return result;
}
