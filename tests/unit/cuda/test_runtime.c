/* SPDX-License-Identifier: MIT */
/* The pretended CUDA runtime as a compiled program meets it, once for each version. What is
 * expected is what NVIDIA's documentation of the runtime says. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "pretend/cuda/abi/runtime.h"
#include "rehearse/account.h"

#define MIB        (UINT64_C(1) << 20)
#define GIB        (UINT64_C(1) << 30)
#define CARD_BYTES (24 * GIB)
#define N_DEVICES  2

#if RUNTIME_VERSION < 13000
#define GET_PROPERTIES cudaGetDeviceProperties_v2
#else
#define GET_PROPERTIES cudaGetDeviceProperties
#endif

cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorName(cudaError_t code);
const char *cudaGetErrorString(cudaError_t code);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceReset(void);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t GET_PROPERTIES(void *properties, int device);
cudaError_t cudaMalloc(void **pointer, size_t bytes);
cudaError_t cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height);
cudaError_t cudaFree(void *pointer);
cudaError_t cudaMallocHost(void **pointer, size_t bytes);
cudaError_t cudaFreeHost(void *pointer);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t width, size_t height, int kind);
cudaError_t cudaMemset(void *to, int value, size_t bytes);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *pointer);
cudaError_t cudaStreamCreate(CUstream *stream);
cudaError_t cudaStreamDestroy(CUstream stream);
cudaError_t cudaStreamQuery(CUstream stream);
cudaError_t cudaStreamSynchronize(CUstream stream);
cudaError_t cudaStreamBeginCapture(CUstream stream, int mode);
cudaError_t cudaStreamEndCapture(CUstream stream, CUgraph *graph);
cudaError_t cudaStreamBeginCapture_ptsz(CUstream stream, int mode);
cudaError_t cudaStreamEndCapture_ptsz(CUstream stream, CUgraph *graph);
cudaError_t cudaGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n);
cudaError_t cudaGraphDestroy(CUgraph graph);
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags, int *status);
void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *function, const char *name,
                            int threads_most, void *thread_index, void *block_index, void *block,
                            void *grid, int *warp);
void __cudaRegisterVar(void **handle, char *host, char *address, const char *name, int is_extern,
                       size_t bytes, int is_constant, int is_global);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, CUstream *stream);
cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments,
                             size_t shared, CUstream stream);
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *host);
cudaError_t cudaFuncSetAttribute(const void *host, int attribute, int value);
cudaError_t cudaGetSymbolAddress(void **out, const void *symbol);
cudaError_t cudaGetSymbolSize(size_t *out, const void *symbol);
cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset,
                               int kind);
cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset,
                                 int kind);

static struct mt_account *account;

static void *allocate(size_t bytes)
{
    void *pointer = NULL;
    assert_int_equal(cudaMalloc(&pointer, bytes), cudaSuccess);
    return pointer;
}

static uint64_t used_bytes(int device)
{
    return account->device[device].used_bytes;
}

/* These come first: they need a process that has no context yet. */

static void test_a_driver_of_an_older_major_version_is_insufficient(void **state)
{
    (void)state;
    int count = 7;
    account->cuda.driver_version = (RUNTIME_VERSION / 1000 - 1) * 1000 + 80;
    assert_int_equal(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    assert_int_equal(count, 0);
    assert_int_equal(cudaGetLastError(), cudaErrorInsufficientDriver);
    account->cuda.driver_version = RUNTIME_VERSION / 1000 * 1000;
    assert_int_equal(cudaGetDeviceCount(&count), cudaSuccess);
    assert_int_equal(count, N_DEVICES);
}

static void test_asking_for_the_device_makes_no_context(void **state)
{
    (void)state;
    int device = -1;
    assert_int_equal(cudaGetDevice(&device), cudaSuccess);
    assert_int_equal(device, 0);
    assert_int_equal(account->cuda.n_contexts, 0);
}

static void test_choosing_a_device_makes_its_context_and_no_other(void **state)
{
    (void)state;
    int device = -1;
    assert_int_equal(cudaSetDevice(1), cudaSuccess);
    assert_int_equal(account->cuda.n_contexts, 1);
    assert_int_equal(used_bytes(0), 0);
    assert_true(used_bytes(1) >= account->device[1].gpu.context_bytes);
    assert_int_equal(cudaGetDevice(&device), cudaSuccess);
    assert_int_equal(device, 1);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    assert_int_equal(account->cuda.n_contexts, 2);
}

static void test_a_device_that_is_none_is_refused_and_the_old_one_stays(void **state)
{
    (void)state;
    int device = -1;
    assert_int_equal(cudaSetDevice(N_DEVICES), cudaErrorInvalidDevice);
    assert_int_equal(cudaSetDevice(-1), cudaErrorInvalidDevice);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidDevice);
    assert_int_equal(cudaGetDevice(&device), cudaSuccess);
    assert_int_equal(device, 0);
}

static void test_an_error_stays_until_it_is_read(void **state)
{
    (void)state;
    void *pointer = &pointer;
    assert_int_equal(cudaMalloc(&pointer, 2 * CARD_BYTES), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    assert_int_equal(cudaPeekAtLastError(), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cudaGetLastError(), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
}

static void *look_at_a_fresh_thread(void *result)
{
    int device = -1;
    *(int *)result =
        cudaPeekAtLastError() == cudaSuccess && cudaGetDevice(&device) == cudaSuccess ? device : -2;
    return NULL;
}

static void test_errors_and_devices_are_of_a_thread(void **state)
{
    (void)state;
    pthread_t thread;
    int seen = -1;
    assert_int_equal(cudaSetDevice(1), cudaSuccess);
    assert_int_equal(cudaFree((void *)&seen), cudaErrorInvalidValue);
    pthread_create(&thread, NULL, look_at_a_fresh_thread, &seen);
    pthread_join(thread, NULL);
    assert_int_equal(seen, 0);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
}

static void test_errors_have_the_documented_names(void **state)
{
    (void)state;
    assert_string_equal(cudaGetErrorName(2), "cudaErrorMemoryAllocation");
    assert_string_equal(cudaGetErrorString(2), "out of memory");
    assert_string_equal(cudaGetErrorName(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
                        "cudaErrorStreamCaptureInvalidated");
    assert_string_equal(cudaGetErrorString(0), "no error");
    assert_string_equal(cudaGetErrorString(31337), "unrecognized error code");
}

/* Offsets are those of the structure in NVIDIA's headers. */
static void test_properties_lie_where_compiled_programs_read_them(void **state)
{
    (void)state;
    union {
        char bytes[1100];
        int ints[1];
    } out;
    const int is_12 = RUNTIME_VERSION < 13000;
    const struct mt_gpu_spec *gpu = &account->device[0].gpu;
    size_t total, optin;
    int value;
    memset(&out, 0x5a, sizeof out);
    assert_int_equal(GET_PROPERTIES(&out, 0), cudaSuccess);
    assert_string_equal(out.bytes, gpu->name);
    memcpy(&total, out.bytes + 288, sizeof total);
    assert_int_equal(total, CARD_BYTES);
    memcpy(&value, out.bytes + 360, sizeof value);
    assert_int_equal(value, gpu->capability / 10);
    memcpy(&value, out.bytes + 364, sizeof value);
    assert_int_equal(value, gpu->capability % 10);
    memcpy(&value, out.bytes + (is_12 ? 388 : 384), sizeof value);
    assert_int_equal(value, gpu->multiprocessors);
    memcpy(&value, out.bytes + (is_12 ? 616 : 596), sizeof value);
    assert_int_equal(value, gpu->l2_bytes);
    memcpy(&optin, out.bytes + (is_12 ? 696 : 672), sizeof optin);
    assert_int_equal(optin, gpu->shared_block_bytes);
    memcpy(&value, out.bytes + (is_12 ? 712 : 688), sizeof value);
    assert_int_equal(value, gpu->blocks_most);
    assert_int_equal(out.bytes[is_12 ? 1031 : 1007], 0);
    assert_int_equal(out.bytes[is_12 ? 1032 : 1008], 0x5a);
    assert_int_equal(GET_PROPERTIES(&out, N_DEVICES), cudaErrorInvalidDevice);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidDevice);
}

static void test_an_allocation_of_nothing_is_null(void **state)
{
    (void)state;
    void *pointer = &pointer;
    size_t pitch = 1;
    assert_int_equal(cudaMalloc(&pointer, 0), cudaSuccess);
    assert_null(pointer);
    assert_int_equal(cudaFree(NULL), cudaSuccess);
    assert_int_equal(cudaMallocHost(&pointer, 0), cudaSuccess);
    assert_int_equal(cudaFreeHost(NULL), cudaSuccess);
    assert_int_equal(cudaMalloc(NULL, 16), cudaErrorInvalidValue);
    assert_int_equal(cudaMallocPitch(&pointer, NULL, 16, 16), cudaErrorInvalidValue);
    assert_int_equal(cudaMallocPitch(&pointer, &pitch, 0, 16), cudaSuccess);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
}

static void test_memory_goes_to_the_device_of_the_thread(void **state)
{
    (void)state;
    uint64_t before[] = {used_bytes(0), used_bytes(1)};
    struct cudaPointerAttributes what;
    assert_int_equal(cudaSetDevice(1), cudaSuccess);
    void *pointer = allocate(10 * MIB);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    assert_int_equal(used_bytes(0), before[0]);
    assert_int_equal(used_bytes(1), before[1] + 10 * MIB);
    assert_int_equal(cudaPointerGetAttributes(&what, (char *)pointer + MIB), cudaSuccess);
    assert_int_equal(what.type, 2);
    assert_int_equal(what.device, 1);
    assert_ptr_equal(what.devicePointer, (char *)pointer + MIB);
    assert_null(what.hostPointer);
    assert_int_equal(cudaFree(pointer), cudaSuccess);
    assert_int_equal(cudaPointerGetAttributes(&what, &what), cudaSuccess);
    assert_int_equal(what.type, 0);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
}

static void test_small_copies_come_back(void **state)
{
    (void)state;
    char out[64] = {0}, rows[2][8] = {{0}};
    char *pointer = allocate(4096);
    assert_int_equal(cudaMemcpy(pointer, "sixteen integers", 16, 1), cudaSuccess);
    assert_int_equal(cudaMemset(pointer + 3, '-', 2), cudaSuccess);
    assert_int_equal(cudaMemcpy(out, pointer, 16, 2), cudaSuccess);
    assert_string_equal(out, "six--en integers");
    assert_int_equal(cudaMemcpy2D(rows, 8, pointer, 4, 3, 2, 4), cudaSuccess);
    assert_string_equal(rows[0], "six");
    assert_string_equal(rows[1], "-en");
    assert_int_equal(cudaMemcpy2D(rows, 2, pointer, 4, 3, 2, 4), cudaErrorInvalidPitchValue);
    assert_int_equal(cudaMemcpy(out, pointer, 16, 5), cudaErrorInvalidMemcpyDirection);
    assert_int_equal(cudaMemcpy(NULL, NULL, 0, 4), cudaSuccess);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidMemcpyDirection);
    assert_int_equal(cudaFree(pointer), cudaSuccess);
}

static void test_what_is_captured_is_a_graph(void **state)
{
    (void)state;
    CUstream stream = NULL;
    CUgraph graph = NULL, found = NULL;
    const CUgraphNode *after = NULL;
    unsigned long long id = 0;
    size_t n = 0;
    int status = -1;
    assert_int_equal(cudaStreamCreate(&stream), cudaSuccess);
    assert_int_equal(cudaStreamBeginCapture(stream, 1), cudaSuccess);
#if RUNTIME_VERSION < 13000
    cudaError_t cudaStreamGetCaptureInfo_v2(CUstream, int *, unsigned long long *, CUgraph *,
                                            const CUgraphNode **, size_t *);
    assert_int_equal(cudaStreamGetCaptureInfo_v2(stream, &status, &id, &found, &after, &n), 0);
#else
    cudaError_t cudaStreamGetCaptureInfo(CUstream, int *, unsigned long long *, CUgraph *,
                                         const CUgraphNode **, const void **, size_t *);
    const void *edges = NULL;
    assert_int_equal(cudaStreamGetCaptureInfo(stream, &status, &id, &found, &after, &edges, &n), 0);
#endif
    assert_int_equal(status, 1);
    assert_non_null(found);
    assert_int_equal(n, 0);
    assert_int_equal(cudaStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cudaStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(cudaGetLastError(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(cudaStreamBeginCapture(stream, 1), cudaSuccess);
    assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    assert_int_equal(cudaGraphGetNodes(graph, NULL, &n), cudaSuccess);
    assert_int_equal(n, 0);
    assert_int_equal(cudaGraphDestroy(graph), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
}

static void test_the_default_streams_need_not_be_made(void **state)
{
    (void)state;
    CUstream legacy = (CUstream)1, per_thread = (CUstream)2;
    assert_int_equal(cudaStreamQuery(NULL), cudaSuccess);
    assert_int_equal(cudaStreamQuery(legacy), cudaSuccess);
    assert_int_equal(cudaStreamQuery(per_thread), cudaSuccess);
}

static void test_code_with_a_default_stream_for_each_thread_may_capture_it(void **state)
{
    (void)state;
    CUgraph graph = NULL;
    assert_int_equal(cudaStreamBeginCapture(NULL, 1), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cudaGetLastError(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cudaStreamBeginCapture_ptsz(NULL, 1), cudaSuccess);
    assert_int_equal(cudaStreamEndCapture_ptsz(NULL, &graph), cudaSuccess);
    assert_int_equal(cudaGraphDestroy(graph), cudaSuccess);
}

static void test_the_drivers_functions_are_found_by_name(void **state)
{
    (void)state;
    void *function = NULL;
    int status = -1;
    assert_int_equal(cudaGetDriverEntryPointByVersion("cuMemAlloc", &function, 12000, 0, &status),
                     cudaSuccess);
    assert_int_equal(status, 0);
    assert_non_null(function);
    assert_int_equal(cudaGetDriverEntryPointByVersion("cuNoSuch", &function, 12000, 0, &status),
                     cudaSuccess);
    assert_int_equal(status, 1);
    assert_null(function);
}

/* Kernels, as a compiler registers them. */

static char kernel, newer_kernel, unknown_kernel, variable;

struct code_entry {
    uint16_t kind, version; /* 2: machine code */
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t unused[3], architecture;
    uint32_t unused_too[8];
};

struct code {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
    struct code_entry entry[2];
};

#define ENTRY(capability)                                                                          \
    {                                                                                              \
        .kind = 2, .version = 1, .header_bytes = 64, .architecture = capability                    \
    }
#define CODE(first, second)                                                                        \
    {                                                                                              \
        0xBA55ED50, 1, 16, 2 * sizeof(struct code_entry),                                          \
        {                                                                                          \
            ENTRY(first), ENTRY(second)                                                            \
        }                                                                                          \
    }
static const struct code code = CODE(80, 90), newer_code = CODE(90, 100);

struct wrapper {
    uint32_t magic, version;
    const void *code;
    void *more;
};
static struct wrapper wrapper = {0x466243b1, 1, &code, NULL},
                      newer_wrapper = {0x466243b1, 1, &newer_code, NULL};

static void test_configurations_are_popped_in_reverse(void **state)
{
    (void)state;
    dim3 grid = {1, 2, 3}, block = {4, 5, 6}, other = {7, 8, 9}, got_grid, got_block;
    CUstream stream = NULL;
    size_t shared = 0;
    assert_int_equal(__cudaPushCallConfiguration(grid, block, 48, NULL), 0);
    assert_int_equal(__cudaPushCallConfiguration(other, other, 0, (CUstream)2), 0);
    assert_int_equal(__cudaPopCallConfiguration(&got_grid, &got_block, &shared, &stream), 0);
    assert_int_equal(got_grid.x, 7);
    assert_ptr_equal(stream, (CUstream)2);
    assert_int_equal(__cudaPopCallConfiguration(&got_grid, &got_block, &shared, &stream), 0);
    assert_int_equal(got_grid.z, 3);
    assert_int_equal(got_block.y, 5);
    assert_int_equal(shared, 48);
    assert_int_equal(__cudaPopCallConfiguration(&got_grid, &got_block, &shared, &stream),
                     cudaErrorMissingConfiguration);
    cudaGetLastError();
}

static void test_a_launch_is_checked_against_the_device(void **state)
{
    (void)state;
    dim3 one = {1, 1, 1}, none = {0, 1, 1}, wide = {1025, 1, 1}, deep = {1, 1, 65},
         high = {1, 65536, 1}, many = {32, 33, 1};
    assert_int_equal(cudaLaunchKernel(&unknown_kernel, one, one, NULL, 0, NULL),
                     cudaErrorInvalidDeviceFunction);
    assert_int_equal(cudaLaunchKernel(&kernel, one, one, NULL, 0, NULL), cudaSuccess);
    assert_int_equal(cudaLaunchKernel(&kernel, none, one, NULL, 0, NULL), 9);
    assert_int_equal(cudaLaunchKernel(&kernel, one, wide, NULL, 0, NULL), 9);
    assert_int_equal(cudaLaunchKernel(&kernel, one, deep, NULL, 0, NULL), 9);
    assert_int_equal(cudaLaunchKernel(&kernel, one, many, NULL, 0, NULL), 9);
    assert_int_equal(cudaLaunchKernel(&kernel, high, one, NULL, 0, NULL), 9);
    assert_int_equal(cudaLaunchKernel(&kernel, one, one, NULL, 49153, NULL), 1);
    assert_int_equal(cudaFuncSetAttribute(&kernel, 8, 65536), cudaSuccess);
    assert_int_equal(cudaLaunchKernel(&kernel, one, one, NULL, 49153, NULL), cudaSuccess);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
}

static void test_code_for_other_devices_only_does_not_run(void **state)
{
    (void)state;
    dim3 one = {1, 1, 1};
    assert_int_equal(cudaLaunchKernel(&newer_kernel, one, one, NULL, 0, NULL), 209);
    assert_string_equal(cudaGetErrorName(cudaGetLastError()), "cudaErrorNoKernelImageForDevice");
}

static void test_a_kernel_says_what_it_was_compiled_for(void **state)
{
    (void)state;
    struct cudaFuncAttributes attributes;
    assert_int_equal(cudaFuncGetAttributes(&attributes, &kernel), cudaSuccess);
    assert_int_equal(attributes.binaryVersion, 80);
    assert_int_equal(attributes.maxThreadsPerBlock, 1024);
    assert_int_equal(cudaFuncGetAttributes(&attributes, &unknown_kernel),
                     cudaErrorInvalidDeviceFunction);
    assert_int_equal(cudaFuncGetAttributes(NULL, &kernel), cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
}

static void test_a_variable_keeps_what_is_copied_to_it(void **state)
{
    (void)state;
    int in = 41, out = 0;
    void *address = NULL;
    size_t bytes = 0;
    assert_int_equal(cudaGetSymbolSize(&bytes, &variable), cudaSuccess);
    assert_int_equal(bytes, 16);
    assert_int_equal(cudaMemcpyToSymbol(&variable, &in, sizeof in, 12, 1), cudaSuccess);
    assert_int_equal(cudaMemcpyFromSymbol(&out, &variable, sizeof out, 12, 2), cudaSuccess);
    assert_int_equal(out, 41);
    assert_int_equal(cudaMemcpyToSymbol(&variable, &in, sizeof in, 13, 1), cudaErrorInvalidValue);
    assert_int_equal(cudaGetSymbolAddress(&address, &variable), cudaSuccess);
    assert_non_null(address);
    assert_int_equal(cudaGetSymbolAddress(&address, &kernel), cudaErrorInvalidSymbol);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidSymbol);
}

static void test_a_forked_child_is_told_that_it_cannot(void **state)
{
    (void)state;
    int status = -1;
    pid_t child = fork();
    if (!child) {
        void *pointer;
        _exit(cudaMalloc(&pointer, 16) == cudaErrorInitializationError ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Comes last. */
static void test_a_reset_gives_the_context_back_and_the_next_call_makes_another(void **state)
{
    (void)state;
    uint64_t other = used_bytes(1);
    uint32_t n_contexts = account->cuda.n_contexts;
    assert_true(used_bytes(0) >= account->device[0].gpu.context_bytes);
    assert_int_equal(cudaDeviceReset(), cudaSuccess);
    assert_int_equal(used_bytes(0), 0);
    assert_int_equal(used_bytes(1), other);
    assert_int_equal(cudaFree(NULL), cudaSuccess);
    assert_int_equal(account->cuda.n_contexts, n_contexts + 1);
    assert_true(used_bytes(0) >= account->device[0].gpu.context_bytes);
}

static void fill_account(void)
{
    memcpy(account->magic, MT_ACCOUNT_MAGIC, sizeof account->magic);
    account->format = MT_ACCOUNT_FORMAT;
    account->n_devices = N_DEVICES;
    account->cuda.driver_version = 13000;
    account->cuda.copy_bytes_most = 64 << 10;
    for (int i = 0; i < N_DEVICES; i++) {
        account->device[i].total_bytes = account->device[i].free_bytes = CARD_BYTES;
        account->device[i].gpu = (struct mt_gpu_spec){
            .name = "NVIDIA GeForce RTX 3090",
            .capability = 86,
            .multiprocessors = 82,
            .shared_bytes = 100 << 10,
            .shared_block_bytes = 99 << 10,
            .threads_most = 1536,
            .blocks_most = 16,
            .l2_bytes = 6 << 20,
            .context_bytes = 300 * MIB,
        };
    }
}

static void **register_kernel(struct wrapper *of, char *host)
{
    void **handle = __cudaRegisterFatBinary(of);
    __cudaRegisterFunction(handle, host, host, "kernel", -1, NULL, NULL, NULL, NULL, NULL);
    return handle;
}

static char path[] = "/tmp/memtally-runtime-XXXXXX";

static int make_rehearsal(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, sizeof *account), 0);
    account = mmap(NULL, sizeof *account, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    fill_account();
    setenv(MT_ACCOUNT_VARIABLE, path, 1);
    void **handle = register_kernel(&wrapper, &kernel);
    __cudaRegisterVar(handle, &variable, &variable, "variable", 0, 16, 0, 0);
    __cudaRegisterFatBinaryEnd(handle);
    __cudaRegisterFatBinaryEnd(register_kernel(&newer_wrapper, &newer_kernel));
    return 0;
}

static int drop_rehearsal(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_driver_of_an_older_major_version_is_insufficient),
        cmocka_unit_test(test_asking_for_the_device_makes_no_context),
        cmocka_unit_test(test_choosing_a_device_makes_its_context_and_no_other),
        cmocka_unit_test(test_a_device_that_is_none_is_refused_and_the_old_one_stays),
        cmocka_unit_test(test_an_error_stays_until_it_is_read),
        cmocka_unit_test(test_errors_and_devices_are_of_a_thread),
        cmocka_unit_test(test_errors_have_the_documented_names),
        cmocka_unit_test(test_properties_lie_where_compiled_programs_read_them),
        cmocka_unit_test(test_an_allocation_of_nothing_is_null),
        cmocka_unit_test(test_memory_goes_to_the_device_of_the_thread),
        cmocka_unit_test(test_small_copies_come_back),
        cmocka_unit_test(test_what_is_captured_is_a_graph),
        cmocka_unit_test(test_the_default_streams_need_not_be_made),
        cmocka_unit_test(test_code_with_a_default_stream_for_each_thread_may_capture_it),
        cmocka_unit_test(test_the_drivers_functions_are_found_by_name),
        cmocka_unit_test(test_configurations_are_popped_in_reverse),
        cmocka_unit_test(test_a_launch_is_checked_against_the_device),
        cmocka_unit_test(test_code_for_other_devices_only_does_not_run),
        cmocka_unit_test(test_a_kernel_says_what_it_was_compiled_for),
        cmocka_unit_test(test_a_variable_keeps_what_is_copied_to_it),
        cmocka_unit_test(test_a_forked_child_is_told_that_it_cannot),
        cmocka_unit_test(test_a_reset_gives_the_context_back_and_the_next_call_makes_another),
    };
    return cmocka_run_group_tests(tests, make_rehearsal, drop_rehearsal);
}
