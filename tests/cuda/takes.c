/* SPDX-License-Identifier: MIT */
/* A program that takes memory of a device in each of the ways that CUDA's driver has.
 *
 *   takes ROUTE WORD...
 *
 * ROUTE is how it finds the driver's functions: "dlsym" (of a library that it opens for itself),
 * "asked" (cuGetProcAddress), "asked2" (its second version), "static" (as NVIDIA's runtime does
 * that is linked statically: what cuGetProcAddress_v2 says of itself is asked) or "runtime" (the
 * runtime's cudaGetDriverEntryPoint). Words are below, "hold:PATH" makes PATH.there and waits for
 * PATH. checks what the driver answers: with another answer than without a recorder it fails. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define MIB ((size_t)1 << 20)

/* CUmemAllocationProp and CUmemAccessDesc (cuda.h 12.8). */
struct properties {
    int type, requested_handles, location_type, location_id;
    void *windows;
    unsigned char flags[8];
};
struct access {
    int location_type, location_id, flags;
};
struct ipc {
    char reserved[64];
};
struct pool_properties {
    int type, handle_types, location_type, location_id;
    void *windows;
    size_t most;
    unsigned short usage;
    unsigned char reserved[54];
};

#define FUNCTIONS(X)                                                                               \
    X(cuInit, (unsigned))                                                                          \
    X(cuDevicePrimaryCtxRetain, (void **, int))                                                    \
    X(cuDevicePrimaryCtxReset, (int))                                                              \
    X(cuDevicePrimaryCtxRelease, (int))                                                            \
    X(cuCtxSetCurrent, (void *))                                                                   \
    X(cuMemAlloc, (uint64_t *, size_t))                                                            \
    X(cuMemAllocPitch, (uint64_t *, size_t *, size_t, size_t, unsigned))                           \
    X(cuMemAllocManaged, (uint64_t *, size_t, unsigned))                                           \
    X(cuMemFree, (uint64_t))                                                                       \
    X(cuMemAllocAsync, (uint64_t *, size_t, void *))                                               \
    X(cuMemFreeAsync, (uint64_t, void *))                                                          \
    X(cuStreamSynchronize, (void *))                                                               \
    X(cuDeviceGetDefaultMemPool, (void **, int))                                                   \
    X(cuMemPoolTrimTo, (void *, size_t))                                                           \
    X(cuMemPoolCreate, (void **, const struct pool_properties *))                                  \
    X(cuMemAllocFromPoolAsync, (uint64_t *, size_t, void *, void *))                               \
    X(cuMemPoolSetAttribute, (void *, int, void *))                                                \
    X(cuMemPoolDestroy, (void *))                                                                  \
    X(cuMemAddressReserve, (uint64_t *, size_t, size_t, uint64_t, uint64_t))                       \
    X(cuMemCreate, (uint64_t *, size_t, const struct properties *, uint64_t))                      \
    X(cuMemRelease, (uint64_t))                                                                    \
    X(cuMemMap, (uint64_t, size_t, size_t, uint64_t, uint64_t))                                    \
    X(cuMemUnmap, (uint64_t, size_t))                                                              \
    X(cuMemRetainAllocationHandle, (uint64_t *, void *))                                           \
    X(cuMemHostAlloc, (void **, size_t, unsigned))                                                 \
    X(cuMemFreeHost, (void *))                                                                     \
    X(cuMemAllocHost, (void **, size_t))                                                           \
    X(cuMemHostRegister, (void *, size_t, unsigned))                                               \
    X(cuMemHostUnregister, (void *))                                                               \
    X(cuMemExportToShareableHandle, (void *, uint64_t, int, uint64_t))                             \
    X(cuMemImportFromShareableHandle, (uint64_t *, void *, int))                                   \
    X(cuCtxCreate, (void **, unsigned, int))                                                       \
    X(cuCtxDestroy, (void *))                                                                      \
    X(cuGraphCreate, (void **, unsigned))                                                          \
    X(cuGraphInstantiateWithFlags, (void **, void *, uint64_t))                                    \
    X(cuGraphUpload, (void *, void *))                                                             \
    X(cuGraphLaunch, (void *, void *))                                                             \
    X(cuGraphExecDestroy, (void *))                                                                \
    X(cuIpcGetMemHandle, (struct ipc *, uint64_t))                                                 \
    X(cuIpcOpenMemHandle, (uint64_t *, struct ipc, unsigned))                                      \
    X(cuIpcCloseMemHandle, (uint64_t))                                                             \
    X(cuModuleLoadData, (void **, const void *))                                                   \
    X(cuModuleGetFunction, (void **, void *, const char *))                                        \
    X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,         \
                       unsigned, void *, void **, void **))                                        \
    X(cuCtxSynchronize, (void))                                                                    \
    X(cuMemGetInfo, (size_t *, size_t *))

static struct {
#define MEMBER(name, parameters) int(*name) parameters;
    FUNCTIONS(MEMBER)
} driver;

typedef int (*ask)(const char *, void **, int, uint64_t);
typedef int (*ask2)(const char *, void **, int, uint64_t, int *);
typedef int (*ask_runtime)(const char *, void **, uint64_t, int *);

static void *library;
static void *asker;
static const char *route;

static void *symbol(void *from, const char *name)
{
    void *found = from ? dlsym(from, name) : NULL;
    if (!found)
        fprintf(stderr, "%s: %s\n", name, dlerror());
    CHECK(found);
    return found;
}

/* As programs of dlsym() know them: by the names that the library exports. */
static const char *exported(const char *name)
{
    static const char *const second[] = {"cuMemAlloc",
                                         "cuMemAllocPitch",
                                         "cuMemFree",
                                         "cuMemGetInfo",
                                         "cuMemAllocHost",
                                         "cuMemHostRegister",
                                         "cuCtxCreate",
                                         "cuCtxDestroy",
                                         "cuIpcOpenMemHandle",
                                         "cuDevicePrimaryCtxReset",
                                         "cuDevicePrimaryCtxRelease"};
    static char text[64];
    snprintf(text, sizeof text, "%s", name);
    for (size_t i = 0; i < sizeof second / sizeof *second; i++)
        if (strcmp(name, second[i]) == 0)
            snprintf(text, sizeof text, "%s_v2", name);
    return text;
}

static void find(const char *name, void *function)
{
    void *found = NULL;
    int status = 0;
    if (strcmp(route, "dlsym") == 0)
        found = symbol(library, exported(name));
    else if (strcmp(route, "asked") == 0) {
        ask question;
        memcpy(&question, &asker, sizeof question);
        CHECK(question(name, &found, 12000, 0) == 0);
    } else if (strcmp(route, "asked2") == 0 || strcmp(route, "static") == 0) {
        ask2 question;
        memcpy(&question, &asker, sizeof question);
        CHECK(question(name, &found, 12000, 0, &status) == 0 && status == 0);
    } else {
        ask_runtime question;
        memcpy(&question, &asker, sizeof question);
        CHECK(question(name, &found, 0, &status) == 0 && status == 0);
    }
    CHECK(found);
    memcpy(function, &found, sizeof found);
}

/* What libcudart_static.a 13.5.37 was seen to ask, in its order. */
static void ask_as_static_runtime(void)
{
    void *found = NULL;
    int status = 0;
    ask2 question;
    asker = symbol(library, "cuGetProcAddress_v2");
    memcpy(&question, &asker, sizeof question);
    question("", &found, 0, 0, &status);
    CHECK(question("cuInit", &found, 2000, 0, &status) == 0 && found);
    question("cuGetProcAddress", &found, 11030, 0, &status);
    CHECK(question("cuGetProcAddress", &found, 12000, 0, &status) == 0 && found);
    asker = found;
}

static void load(void)
{
    int is_runtime = strcmp(route, "runtime") == 0;
    library = dlopen(is_runtime ? "libcudart.so.12" : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(library);
    if (is_runtime)
        asker = symbol(library, "cudaGetDriverEntryPoint");
    else if (strcmp(route, "static") == 0)
        ask_as_static_runtime();
    else if (strcmp(route, "dlsym") != 0)
        asker = symbol(library,
                       strcmp(route, "asked") == 0 ? "cuGetProcAddress" : "cuGetProcAddress_v2");
#define FIND(name, parameters) find(#name, &driver.name);
    FUNCTIONS(FIND)
}

static void start(void)
{
    void *context;
    CHECK(driver.cuInit(0) == 0 && driver.cuDevicePrimaryCtxRetain(&context, 0) == 0);
    CHECK(driver.cuCtxSetCurrent(context) == 0);
}

static uint64_t take(size_t bytes)
{
    uint64_t address = 0;
    CHECK(driver.cuMemAlloc(&address, bytes) == 0 && address);
    return address;
}

static void linear(void)
{
    uint64_t first = take(10 * MIB);
    uint64_t second = take(30 * MIB);
    CHECK(driver.cuMemFree(first) == 0);
    take(6 * MIB);
    CHECK(driver.cuMemFree(second) == 0);
    CHECK(driver.cuMemFree(0) == 0);
}

static void small(void)
{
    for (int i = 0; i < 5; i++)
        take(1000);
    take(MIB + 123);
}

static void pitched(void)
{
    uint64_t address;
    size_t pitch = 0;
    CHECK(driver.cuMemAllocPitch(&address, &pitch, 1000, 4096, 16) == 0 && pitch >= 1000);
}

static void managed(void)
{
    uint64_t address;
    CHECK(driver.cuMemAllocManaged(&address, 8 * MIB, 1) == 0);
}

static void pooled(void)
{
    uint64_t address[3];
    void *pool;
    for (int i = 0; i < 3; i++)
        CHECK(driver.cuMemAllocAsync(&address[i], 20 * MIB, NULL) == 0);
    CHECK(driver.cuMemFreeAsync(address[1], NULL) == 0);
    CHECK(driver.cuStreamSynchronize(NULL) == 0);
    CHECK(driver.cuDeviceGetDefaultMemPool(&pool, 0) == 0);
    CHECK(driver.cuMemFreeAsync(address[2], NULL) == 0);
    CHECK(driver.cuMemPoolTrimTo(pool, 0) == 0);
}

/* Its memory goes with the pool, and a lower threshold lets go of what is free before. */
static void own_pool(void)
{
    const struct pool_properties properties = {.type = 1, .location_type = 1};
    uint64_t address[2];
    uint64_t keep = (uint64_t)64 * MIB;
    void *pool;
    CHECK(driver.cuMemPoolCreate(&pool, &properties) == 0);
    CHECK(driver.cuMemPoolSetAttribute(pool, 4, &keep) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(driver.cuMemAllocFromPoolAsync(&address[i], 20 * MIB, pool, NULL) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(driver.cuMemFreeAsync(address[i], NULL) == 0);
    CHECK(driver.cuStreamSynchronize(NULL) == 0);
    CHECK(driver.cuMemPoolDestroy(pool) == 0);
    take(2 * MIB);
}

/* A handle that was imported holds the memory after the first one is gone. */
static void imported(void)
{
    const struct properties properties = {.type = 1, .requested_handles = 1, .location_type = 1};
    uint64_t handle, other;
    int fd = -1;
    CHECK(driver.cuMemCreate(&handle, 4 * MIB, &properties, 0) == 0);
    CHECK(driver.cuMemExportToShareableHandle(&fd, handle, 1, 0) == 0);
    CHECK(driver.cuMemImportFromShareableHandle(&other, (void *)(intptr_t)fd, 1) == 0);
    take(2 * MIB);
    CHECK(driver.cuMemRelease(other) == 0 && driver.cuMemRelease(handle) == 0);
    take(6 * MIB);
}

/* It is there until the last handle and the last mapping are gone, in whichever order. */
static void virtual(void)
{
    const struct properties properties = {.type = 1, .location_type = 1};
    uint64_t address, handle, other, held;
    CHECK(driver.cuMemAddressReserve(&address, 64 * MIB, 0, 0, 0) == 0);
    CHECK(driver.cuMemCreate(&handle, 4 * MIB, &properties, 0) == 0);
    CHECK(driver.cuMemMap(address, 4 * MIB, 0, handle, 0) == 0);
    CHECK(driver.cuMemRelease(handle) == 0);
    CHECK(driver.cuMemCreate(&other, 6 * MIB, &properties, 0) == 0);
    CHECK(driver.cuMemMap(address + 8 * MIB, 6 * MIB, 0, other, 0) == 0);
    CHECK(driver.cuMemMap(address + 32 * MIB, 6 * MIB, 0, other, 0) == 0);
    CHECK(driver.cuMemUnmap(address, 4 * MIB) == 0);
    CHECK(driver.cuMemRetainAllocationHandle(&held, (void *)(uintptr_t)(address + 8 * MIB)) == 0);
    CHECK(driver.cuMemRelease(other) == 0);
    CHECK(driver.cuMemUnmap(address + 8 * MIB, 6 * MIB) == 0);
    CHECK(driver.cuMemUnmap(address + 32 * MIB, 6 * MIB) == 0);
    take(2 * MIB);
    CHECK(driver.cuMemRelease(held) == 0);
    take(2 * MIB);
}

static void hosted(void)
{
    void *address;
    CHECK(driver.cuMemHostAlloc(&address, 16 * MIB, 0) == 0);
    CHECK(driver.cuMemFreeHost(address) == 0);
}

/* What is registered was the program's before; what is allocated so is pinned for it. */
static void registered(void)
{
    char *own = aligned_alloc(4096, 8 * MIB);
    void *address;
    CHECK(own);
    memset(own, 1, 8 * MIB);
    CHECK(driver.cuMemHostRegister(own, 8 * MIB, 0) == 0);
    CHECK(driver.cuMemHostUnregister(own) == 0);
    free(own);
    CHECK(driver.cuMemAllocHost(&address, 16 * MIB) == 0);
    memset(address, 1, 16 * MIB);
}

static void refused(void)
{
    uint64_t address;
    CHECK(driver.cuMemAlloc(&address, (size_t)1 << 40) == 2);
}

static void reset(void)
{
    take(12 * MIB);
    CHECK(driver.cuDevicePrimaryCtxReset(0) == 0);
    start();
    take(2 * MIB);
}

/* What was taken in the program's only context goes with it. */
static void own_context(void)
{
    void *context;
    load();
    CHECK(driver.cuInit(0) == 0 && driver.cuCtxCreate(&context, 0, 0) == 0);
    take(12 * MIB);
    CHECK(driver.cuCtxDestroy(context) == 0 && driver.cuCtxCreate(&context, 0, 0) == 0);
    take(4 * MIB);
}

/* What lies in a context of the program's own stays when the primary one goes, or is emptied. */
static void beside_primary(void)
{
    void *own, *primary;
    load();
    CHECK(driver.cuInit(0) == 0 && driver.cuCtxCreate(&own, 0, 0) == 0);
    take(12 * MIB);
    CHECK(driver.cuDevicePrimaryCtxReset(0) == 0);
    CHECK(driver.cuDevicePrimaryCtxRetain(&primary, 0) == 0);
    CHECK(driver.cuDevicePrimaryCtxReset(0) == 0);
    CHECK(driver.cuDevicePrimaryCtxRelease(0) == 0);
    take(600 * MIB);
    CHECK(driver.cuCtxDestroy(own) == 0);
    start();
    take(4 * MIB);
}

static void graph(void)
{
    void *made, *exec;
    CHECK(driver.cuGraphCreate(&made, 0) == 0);
    CHECK(driver.cuGraphInstantiateWithFlags(&exec, made, 0) == 0);
    CHECK(driver.cuGraphUpload(exec, NULL) == 0 && driver.cuGraphLaunch(exec, NULL) == 0);
    CHECK(driver.cuStreamSynchronize(NULL) == 0 && driver.cuGraphExecDestroy(exec) == 0);
    take(4 * MIB);
}

/* As a library does that shares the context, and then the program at its end. */
static void released(void)
{
    void *context;
    CHECK(driver.cuDevicePrimaryCtxRetain(&context, 0) == 0);
    take(12 * MIB);
    CHECK(driver.cuDevicePrimaryCtxRelease(0) == 0);
    take(4 * MIB);
    CHECK(driver.cuDevicePrimaryCtxRelease(0) == 0);
    start();
    take(5 * MIB);
}

/* Another process maps what this one has: it counts once. */
static void shared(void)
{
    struct ipc handle;
    int line[2];
    CHECK(pipe(line) == 0);
    pid_t child = fork();
    if (child == 0) {
        uint64_t address;
        CHECK(read(line[0], &handle, sizeof handle) == sizeof handle);
        load();
        start();
        CHECK(driver.cuIpcOpenMemHandle(&address, handle, 1) == 0);
        take(4 * MIB);
        CHECK(driver.cuIpcCloseMemHandle(address) == 0);
        exit(0);
    }
    load();
    start();
    CHECK(driver.cuIpcGetMemHandle(&handle, take(32 * MIB)) == 0);
    CHECK(write(line[1], &handle, sizeof handle) == sizeof handle);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* The driver loads a kernel's code when it is launched first, after the last call that allocates.
 */
static void launched(void)
{
    static const char image[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                ".visible .entry nothing()\n{\n    ret;\n}\n";
    size_t before, after, total;
    void *module, *function;
    CHECK(driver.cuModuleLoadData(&module, image) == 0);
    CHECK(driver.cuModuleGetFunction(&function, module, "nothing") == 0);
    CHECK(driver.cuMemGetInfo(&before, &total) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == 0);
    CHECK(driver.cuCtxSynchronize() == 0);
    CHECK(driver.cuMemGetInfo(&after, &total) == 0 && after < before);
}

/* Each process has a context of its own. */
static void forked(void)
{
    pid_t child = fork();
    if (child == 0) {
        load();
        start();
        take(10 * MIB);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    load();
    start();
    take(6 * MIB);
}

/* What the driver does not have is not there, by whichever way. */
static void lacking(void)
{
    void *found = &found;
    int status = 0;
    ask2 question;
    void *way = symbol(library, "cuGetProcAddress_v2");
    memcpy(&question, &way, sizeof question);
    CHECK(!dlsym(library, "cuMemAllocNever") && dlerror());
    CHECK(question("cuMemAllocNever", &found, 12000, 0, &status) != 0 || !found);
}

/* As a global object of C++ does: after main(), when the driver may have ended. */
static void give_late(void)
{
    if (driver.cuMemFree(0xdead000) == 0)
        _exit(5);
}

static void late(void)
{
    CHECK(atexit(give_late) == 0);
}

/* What it had is gone with its image. */
static void replaced(char **argv)
{
    static char word[] = "linear";
    char *const next[] = {argv[0], argv[1], word, NULL};
    take(14 * MIB);
    execv("/proc/self/exe", next);
    exit(4);
}

/* Until its time has come. */
static void hold(const char *path)
{
    char there[4096];
    snprintf(there, sizeof there, "%s.there", path);
    FILE *file = fopen(there, "w");
    CHECK(file && fclose(file) == 0);
    while (access(path, F_OK) != 0)
        usleep(10000);
}

static const struct {
    const char *word;
    void (*take)(void);
    int is_apart; /* it starts for itself */
} ways[] = {
    {"linear", linear, 0},
    {"small", small, 0},
    {"pitched", pitched, 0},
    {"managed", managed, 0},
    {"pooled", pooled, 0},
    {"virtual", virtual, 0},
    {"hosted", hosted, 0},
    {"refused", refused, 0},
    {"reset", reset, 0},
    {"lacking", lacking, 0},
    {"late", late, 0},
    {"shared", shared, 1},
    {"released", released, 0},
    {"forked", forked, 1},
    {"launched", launched, 0},
    {"own_pool", own_pool, 0},
    {"graph", graph, 0},
    {"imported", imported, 0},
    {"own_context", own_context, 1},
    {"beside_primary", beside_primary, 1},
    {"registered", registered, 0},
};

int main(int argc, char **argv)
{
    int is_started = 0;
    CHECK(argc > 2);
    route = argv[1];
    for (int i = 2; i < argc; i++) {
        if (strncmp(argv[i], "hold:", 5) == 0)
            hold(argv[i] + 5);
        for (size_t j = 0; j <= sizeof ways / sizeof *ways; j++) {
            int is_last = j == sizeof ways / sizeof *ways;
            if (strcmp(argv[i], is_last ? "replaced" : ways[j].word) != 0)
                continue;
            if (!is_started && (is_last || !ways[j].is_apart)) {
                load();
                start();
                is_started = 1;
            }
            if (is_last)
                replaced(argv);
            ways[j].take();
        }
    }
    puts("done");
    return 0;
}
