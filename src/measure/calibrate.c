/* SPDX-License-Identifier: MIT */
/* What a card's driver takes, step by step: before and after each the whole card's use is read. The
 * few functions of CUDA, cuBLAS and NVML that this needs are declared here; no vendor header. */
#include <memtally/calibrate.h>
#include <memtally/units.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/gpu_uuid.h"
#include "device/nvml.h"

#define NODES    10000 /* of a graph: 90 MiB where one takes 9.2 KiB */
#define MATRIX   64    /* rows of the matrices that are multiplied */
#define PAGE     (UINT64_C(2) << 20)
#define STILL_NS 50000000L /* between two readings that must be alike */

struct cuda {
    void *library;
    int (*init)(unsigned flags);
    int (*driver_version)(int *version);
    int (*device_count)(int *count);
    int (*device)(int *device, int index);
    int (*device_name)(char *name, int length, int device);
    int (*uuid)(unsigned char uuid[16], int device);
    int (*total)(size_t *bytes, int device);
    int (*attribute)(int *value, int attribute, int device);
    int (*retain)(void **context, int device);
    int (*set_current)(void *context);
    int (*load)(void **module, const void *image);
    int (*function)(void **function, void *module, const char *name);
    int (*launch)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  unsigned shared, void *stream, void **arguments, void **extra);
    int (*synchronize)(void);
    int (*allocate)(unsigned long long *pointer, size_t bytes);
    int (*stream)(void **stream, unsigned flags);
    int (*begin_capture)(void *stream, int mode);
    int (*end_capture)(void *stream, void **graph);
    int (*instantiate)(void **exec, void *graph, unsigned long long flags);
    int (*launch_graph)(void *exec, void *stream);
    int (*synchronize_stream)(void *stream);
};

struct nvml {
    void *library;
    int (*init)(void);
    int (*by_uuid)(const char *uuid, void **device);
    int (*memory)(void *device, struct mt_nvml_memory *memory);
    void *device;
};

/* A calibration under way. */
struct run {
    struct cuda cuda;
    struct nvml nvml;
    struct mt_calibration *made;
    void *function;
    struct mt_error *error;
};

struct wanted {
    const char *name;
    void *function_pointer;
};

static int find(void *library, const struct wanted *wanted, size_t n, const char *file,
                struct mt_error *error)
{
    for (size_t i = 0; i < n; i++) {
        void *found = dlsym(library, wanted[i].name);
        if (!found)
            return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                           "%s has no %s: the NVIDIA driver is too old; bring it up to date", file,
                           wanted[i].name);
        memcpy(wanted[i].function_pointer, &found, sizeof found);
    }
    return 0;
}

static int find_cuda(struct run *run)
{
    struct cuda *c = &run->cuda;
    const struct wanted wanted[] = {{"cuInit", &c->init},
                                    {"cuDriverGetVersion", &c->driver_version},
                                    {"cuDeviceGetCount", &c->device_count},
                                    {"cuDeviceGet", &c->device},
                                    {"cuDeviceGetName", &c->device_name},
                                    {"cuDeviceGetUuid_v2", &c->uuid},
                                    {"cuDeviceTotalMem_v2", &c->total},
                                    {"cuDeviceGetAttribute", &c->attribute},
                                    {"cuDevicePrimaryCtxRetain", &c->retain},
                                    {"cuCtxSetCurrent", &c->set_current},
                                    {"cuModuleLoadData", &c->load},
                                    {"cuModuleGetFunction", &c->function},
                                    {"cuLaunchKernel", &c->launch},
                                    {"cuCtxSynchronize", &c->synchronize},
                                    {"cuMemAlloc_v2", &c->allocate},
                                    {"cuStreamCreate", &c->stream},
                                    {"cuStreamBeginCapture_v2", &c->begin_capture},
                                    {"cuStreamEndCapture", &c->end_capture},
                                    {"cuGraphInstantiateWithFlags", &c->instantiate},
                                    {"cuGraphLaunch", &c->launch_graph},
                                    {"cuStreamSynchronize", &c->synchronize_stream}};
    c->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!c->library)
        return mt_fail(run->error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "no NVIDIA driver is here (libcuda.so.1 cannot be opened): run this on the "
                       "machine with the card; estimates take the card's figures from a table");
    return find(c->library, wanted, sizeof wanted / sizeof *wanted, "libcuda.so.1", run->error);
}

static int find_nvml(struct run *run)
{
    struct nvml *n = &run->nvml;
    const struct wanted wanted[] = {{"nvmlInit_v2", &n->init},
                                    {"nvmlDeviceGetHandleByUUID", &n->by_uuid},
                                    {"nvmlDeviceGetMemoryInfo", &n->memory}};
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!n->library)
        return mt_fail(run->error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "libnvidia-ml.so.1 cannot be opened, which says how much of the card is in "
                       "use: install the driver's NVML, as of the package nvidia-utils");
    return find(n->library, wanted, sizeof wanted / sizeof *wanted, "libnvidia-ml.so.1",
                run->error);
}

static int fail_cuda(struct run *run, const char *what, int result)
{
    return mt_fail(run->error, MT_EIO, MT_NO_OFFSET,
                   "%s failed with CUDA's error %d; see nvidia-smi", what, result);
}

#define TRY(run, call, what)                                                                       \
    do {                                                                                           \
        int refused_ = (call);                                                                     \
        if (refused_)                                                                              \
            return fail_cuda(run, what, refused_);                                                 \
    } while (0)

static uint32_t attribute(const struct run *run, int which, int device)
{
    int value = 0;
    return run->cuda.attribute(&value, which, device) ? 0 : (uint32_t)value;
}

/* What the driver answers without a context. */
static int identify(struct run *run, int index, int *device)
{
    enum { MULTIPROCESSORS = 16, THREADS = 39, MAJOR = 75, MINOR = 76 };
    struct mt_calibration *made = run->made;
    unsigned char uuid[16];
    size_t total = 0;
    int count = 0, version = 0;
    int refused = run->cuda.init(0);
    if (refused || run->cuda.device_count(&count) || index >= count)
        return mt_fail(run->error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "no NVIDIA device %d is here: CUDA counts %d%s; see nvidia-smi", index,
                       count, refused ? " and does not start" : "");
    TRY(run, run->cuda.device(device, index), "cuDeviceGet");
    TRY(run, run->cuda.device_name(made->name, sizeof made->name, *device), "cuDeviceGetName");
    TRY(run, run->cuda.uuid(uuid, *device), "cuDeviceGetUuid");
    TRY(run, run->cuda.total(&total, *device), "cuDeviceTotalMem");
    TRY(run, run->cuda.driver_version(&version), "cuDriverGetVersion");
    mt_format_gpu_uuid(uuid, made->uuid);
    made->total_bytes = total;
    made->driver_version = (uint32_t)version;
    made->multiprocessors = attribute(run, MULTIPROCESSORS, *device);
    made->threads = attribute(run, THREADS, *device);
    made->capability = attribute(run, MAJOR, *device) * 10 + attribute(run, MINOR, *device);
    return 0;
}

static int open_nvml(struct run *run)
{
    struct mt_nvml_memory memory = {0};
    int refused = run->nvml.init();
    if (!refused)
        refused = run->nvml.by_uuid(run->made->uuid, &run->nvml.device);
    if (!refused)
        refused = run->nvml.memory(run->nvml.device, &memory);
    if (refused)
        return mt_fail(run->error, MT_EIO, MT_NO_OFFSET,
                       "NVML does not say how much of %s is in use (result %d); see nvidia-smi",
                       run->made->name, refused);
    run->made->nvml_total_bytes = memory.total_bytes;
    return 0;
}

static uint64_t used_bytes(const struct run *run)
{
    struct mt_nvml_memory memory = {0};
    return run->nvml.memory(run->nvml.device, &memory) ? 0 : memory.used_bytes;
}

static uint64_t grown(uint64_t from, uint64_t to)
{
    return to > from ? to - from : 0;
}

/* What is in use while nothing is done here; others at work are noticed. */
static uint64_t rest(const struct run *run)
{
    const struct timespec still = {.tv_nsec = STILL_NS};
    uint64_t before = used_bytes(run);
    nanosleep(&still, NULL);
    uint64_t after = used_bytes(run);
    run->made->is_disturbed |= after != before;
    return after;
}

static int make_context(struct run *run, int device)
{
    void *context;
    uint64_t before = rest(run);
    TRY(run, run->cuda.retain(&context, device), "cuDevicePrimaryCtxRetain");
    TRY(run, run->cuda.set_current(context), "cuCtxSetCurrent");
    run->made->context_bytes = grown(before, rest(run));
    return 0;
}

static int launch(const struct run *run, void *stream)
{
    return run->cuda.launch(run->function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

static int run_kernel(struct run *run)
{
    static const char image[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                ".visible .entry nothing()\n{\n\tret;\n}\n";
    void *module;
    uint64_t before = used_bytes(run);
    TRY(run, run->cuda.load(&module, image), "cuModuleLoadData");
    TRY(run, run->cuda.function(&run->function, module, "nothing"), "cuModuleGetFunction");
    TRY(run, launch(run, NULL), "cuLaunchKernel");
    TRY(run, run->cuda.synchronize(), "cuCtxSynchronize");
    run->made->module_bytes = grown(before, used_bytes(run));
    return 0;
}

static int make_graph(struct run *run)
{
    enum { GLOBAL = 0 };
    void *stream, *graph, *exec;
    TRY(run, run->cuda.stream(&stream, 1), "cuStreamCreate");
    TRY(run, run->cuda.begin_capture(stream, GLOBAL), "cuStreamBeginCapture");
    for (int i = 0; i < NODES; i++)
        TRY(run, launch(run, stream), "cuLaunchKernel");
    TRY(run, run->cuda.end_capture(stream, &graph), "cuStreamEndCapture");
    uint64_t before = used_bytes(run);
    TRY(run, run->cuda.instantiate(&exec, graph, 0), "cuGraphInstantiate");
    TRY(run, run->cuda.launch_graph(exec, stream), "cuGraphLaunch");
    TRY(run, run->cuda.synchronize_stream(stream), "cuStreamSynchronize");
    run->made->graph_node_bytes = grown(before, used_bytes(run)) / NODES;
    return 0;
}

static void *open_blas(void)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"};
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
    return library;
}

/* A handle and a product, where the library is at hand; what fails leaves the figures unknown. */
static void multiply(struct run *run)
{
    int (*create)(void **handle) = NULL;
    int (*sgemm)(void *handle, int, int, int, int, int, const float *, unsigned long long, int,
                 unsigned long long, int, const float *, unsigned long long, int) = NULL;
    const struct wanted wanted[] = {{"cublasCreate_v2", &create}, {"cublasSgemm_v2", &sgemm}};
    const float one = 1, zero = 0;
    unsigned long long matrix;
    void *handle, *library = open_blas();
    if (!library || find(library, wanted, sizeof wanted / sizeof *wanted, "cuBLAS", NULL) < 0 ||
        run->cuda.allocate(&matrix, PAGE))
        return;
    uint64_t before = used_bytes(run);
    if (create(&handle))
        return;
    uint64_t with_handle = used_bytes(run);
    run->made->blas_bytes = grown(before, with_handle);
    if (sgemm(handle, 0, 0, MATRIX, MATRIX, MATRIX, &one, matrix, MATRIX, matrix, MATRIX, &zero,
              matrix, MATRIX) ||
        run->cuda.synchronize())
        return;
    run->made->blas_code_bytes = grown(with_handle, used_bytes(run));
}

int mt_calibrate(int index, struct mt_calibration *calibration, struct mt_error *error)
{
    struct mt_calibration made = {.module_bytes = MT_UNKNOWN,
                                  .blas_bytes = MT_UNKNOWN,
                                  .blas_code_bytes = MT_UNKNOWN,
                                  .graph_node_bytes = MT_UNKNOWN};
    struct run run = {.made = &made, .error = error};
    int device = 0;
    int result = find_cuda(&run);
    if (result == 0)
        result = identify(&run, index, &device);
    if (result == 0)
        result = find_nvml(&run);
    if (result == 0)
        result = open_nvml(&run);
    if (result == 0)
        result = make_context(&run, device);
    if (result == 0)
        result = run_kernel(&run);
    if (result == 0)
        result = make_graph(&run);
    if (result < 0)
        return result;
    multiply(&run);
    *calibration = made;
    return 0;
}
