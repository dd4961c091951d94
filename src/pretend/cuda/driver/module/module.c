/* SPDX-License-Identifier: MIT */
/* Modules and libraries: any image is taken, and any name found in it. What plain machine code has
 * is listed. Their code takes what the GPU table says, once, when the first kernel of a context
 * runs. */
#include "module.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bisect.h"
#include "pretend/cuda/abi/driver_calls.h"
#include "pretend/cuda/driver/memory/linear.h"
#include "pretend/cuda/driver/memory/memory.h"

#define GLOBAL_BYTES 65536u /* of a variable whose size only the image knows */
#define LAZY_LOADING 2

struct pretend_function *pretend_function_of(const void *handle)
{
    union {
        const void *from;
        struct pretend_function *to;
    } function = {.from = handle};
    return pretend_is(PRETEND_A_FUNCTION, handle) ? function.to : NULL;
}

static struct pretend_module *module_of(const void *handle)
{
    union {
        const void *from;
        struct pretend_module *to;
    } module = {.from = handle};
    return pretend_is(PRETEND_A_MODULE, handle) ? module.to : NULL;
}

/* What each device would run of the image. We cannot judge an unknown image; it passes for one that
 * was made for the device. */
static CUresult look(const void *image, size_t bytes, struct pretend_image *chosen, CUdevice only)
{
    for (int i = 0; i < pretend_device_count(); i++) {
        uint32_t capability = pretend_device(i)->gpu->capability;
        enum pretend_image_result result =
            pretend_cuda_image_choose(image, bytes, capability, &chosen[i]);
        if (result == PRETEND_IMAGE_UNKNOWN)
            chosen[i] = (struct pretend_image){capability, capability};
        if (result != PRETEND_IMAGE_NONE)
            continue;
        if (i == only)
            return CUDA_ERROR_NO_BINARY_FOR_GPU;
        chosen[i] = (struct pretend_image){PRETEND_NO_CODE, PRETEND_NO_CODE};
    }
    return CUDA_SUCCESS;
}

/* Functions. */

static struct pretend_function *new_function(struct pretend_module *module, const char *name)
{
    struct pretend_function *function = pretend_new(PRETEND_A_FUNCTION, sizeof *function);
    if (!function)
        return NULL;
    function->name = strdup(name);
    function->module = module;
    function->attribute[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
    function->attribute[CU_FUNC_ATTRIBUTE_NUM_REGS] = PRETEND_REGISTERS;
    function->attribute[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 49152;
    function->attribute[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
    if (function->name)
        return function;
    pretend_delete(PRETEND_A_FUNCTION, function);
    return NULL;
}

static size_t place_of(const struct pretend_module *module, const char *name)
{
    struct mt_bisect place = {.end = module->n};
    while (mt_bisect_next(&place))
        mt_bisect_turn(&place, strcmp(module->function[place.middle]->name, name) < 0);
    return place.first;
}

/* With the lock held; made when it is first asked for. */
static struct pretend_function *find_function(struct pretend_module *module, const char *name)
{
    size_t at = place_of(module, name);
    if (at < module->n && strcmp(module->function[at]->name, name) == 0)
        return module->function[at];
    if (module->n == module->room) {
        size_t room = module->room ? 2 * module->room : 8;
        struct pretend_function **more = realloc(module->function, room * sizeof(void *));
        if (!more)
            return NULL;
        module->function = more;
        module->room = room;
    }
    struct pretend_function *function = new_function(module, name);
    if (!function)
        return NULL;
    memmove(&module->function[at + 1], &module->function[at], (module->n++ - at) * sizeof(void *));
    return module->function[at] = function;
}

static int take_kernel(void *context, const char *name)
{
    struct pretend_module *module = context;
    struct pretend_function *function = find_function(module, name);
    if (!function)
        return CUDA_ERROR_OUT_OF_MEMORY;
    module->n_kernels += !function->is_kernel;
    function->is_kernel = 1;
    return CUDA_SUCCESS;
}

/* With the lock held. Names that an image does not tell are taken as they come. */
static void find_kernels(struct pretend_module *module, const void *image, size_t bytes)
{
    if (pretend_cuda_image_kernels(image, bytes, take_kernel, module) != 0)
        module->n_kernels = SIZE_MAX;
}

static CUresult load(const void *image, size_t bytes, struct pretend_context *context,
                     struct pretend_module **made)
{
    struct pretend_image chosen[MT_ACCOUNT_DEVICES_MAX] = {0};
    CUresult result = look(image, bytes, chosen, context ? context->device : -1);
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    struct pretend_module *module = pretend_new(PRETEND_A_MODULE, sizeof *module);
    if (module) {
        module->context = context;
        memcpy(module->image, chosen, sizeof chosen);
        find_kernels(module, image, bytes);
        *made = module;
    }
    pretend_unlock();
    return module ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult load_module(CUmodule *handle, const void *image, size_t bytes)
{
    struct pretend_context *context;
    struct pretend_module *module;
    CUresult result = pretend_context_of(NULL, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!handle || !image)
        return CUDA_ERROR_INVALID_VALUE;
    result = load(image, bytes, context, &module);
    if (result == CUDA_SUCCESS)
        *handle = (void *)module;
    return result;
}

PRETEND_CALL CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    return load_module(module, image, SIZE_MAX);
}

PRETEND_CALL CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n,
                                         const int *options, void **values)
{
    (void)n, (void)options, (void)values;
    return load_module(module, image, SIZE_MAX);
}

PRETEND_CALL CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    return load_module(module, image, SIZE_MAX);
}

/* An image in a file, mapped; *bytes is 0 where there is no such file. */
static void *map_file(const char *path, size_t *bytes)
{
    struct stat status;
    void *image = MAP_FAILED;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    *bytes = 0;
    if (file < 0)
        return NULL;
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0)
        image = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (image == MAP_FAILED)
        return NULL;
    *bytes = (size_t)status.st_size;
    return image;
}

PRETEND_CALL CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    size_t bytes;
    if (!path)
        return CUDA_ERROR_INVALID_VALUE;
    void *image = map_file(path, &bytes);
    if (!image)
        return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult result = load_module(module, image, bytes);
    munmap(image, bytes);
    return result;
}

static CUresult load_library(CUlibrary *handle, const void *image, size_t bytes)
{
    struct pretend_module *module;
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!handle || !image)
        return CUDA_ERROR_INVALID_VALUE;
    result = load(image, bytes, NULL, &module);
    if (result == CUDA_SUCCESS)
        *handle = (void *)module;
    return result;
}

PRETEND_CALL CUresult cuLibraryLoadData(CUlibrary *library, const void *image, const int *jit,
                                        void **jit_values, unsigned n_jit, const int *options,
                                        void **values, unsigned n)
{
    (void)jit, (void)jit_values, (void)n_jit, (void)options, (void)values, (void)n;
    return load_library(library, image, SIZE_MAX);
}

PRETEND_CALL CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, const int *jit,
                                            void **jit_values, unsigned n_jit, const int *options,
                                            void **values, unsigned n)
{
    size_t bytes;
    (void)jit, (void)jit_values, (void)n_jit, (void)options, (void)values, (void)n;
    if (!path)
        return CUDA_ERROR_INVALID_VALUE;
    void *image = map_file(path, &bytes);
    if (!image)
        return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult result = load_library(library, image, bytes);
    munmap(image, bytes);
    return result;
}

/* Variables give back their memory without the lock. */
static void free_globals(struct pretend_global *global)
{
    while (global) {
        struct pretend_global *next = global->next;
        for (int i = 0; i < pretend_device_count(); i++)
            if (global->address[i])
                pretend_memory_give(global->address[i]);
        free(global);
        global = next;
    }
}

static CUresult unload(const void *handle)
{
    struct pretend_global *globals = NULL;
    CUresult result = pretend_enter();
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    struct pretend_module *module = module_of(handle);
    if (module) {
        for (size_t i = 0; i < module->n; i++) {
            free(module->function[i]->name);
            pretend_delete(PRETEND_A_FUNCTION, module->function[i]);
        }
        free(module->function);
        globals = module->globals;
        pretend_delete(PRETEND_A_MODULE, module);
    } else {
        result = CUDA_ERROR_INVALID_HANDLE;
    }
    pretend_unlock();
    free_globals(globals);
    return result;
}

PRETEND_CALL CUresult cuModuleUnload(CUmodule module)
{
    return unload(module);
}

PRETEND_CALL CUresult cuLibraryUnload(CUlibrary library)
{
    return unload(library);
}

PRETEND_CALL CUresult cuModuleGetLoadingMode(int *mode)
{
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = LAZY_LOADING;
    return pretend_enter();
}

PRETEND_CALL CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    if (!module)
        return CUDA_ERROR_INVALID_VALUE;
    if (!module_of(library))
        return CUDA_ERROR_INVALID_HANDLE;
    *module = (void *)library;
    return CUDA_SUCCESS;
}

static CUresult get_function(const void *handle, const char *name, void *found)
{
    CUresult result = CUDA_SUCCESS;
    if (!found || !name || !*name)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    struct pretend_module *module = module_of(handle);
    struct pretend_function *function = module ? find_function(module, name) : NULL;
    if (!module)
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (!function)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else
        memcpy(found, &function, sizeof function);
    pretend_unlock();
    return result;
}

PRETEND_CALL CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    return get_function(module, name, function);
}

PRETEND_CALL CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    return get_function(library, name, kernel);
}

static CUresult count_kernels(const void *handle, unsigned *n)
{
    CUresult result = CUDA_SUCCESS;
    if (!n)
        return CUDA_ERROR_INVALID_VALUE;
    pretend_lock();
    const struct pretend_module *module = module_of(handle);
    if (!module)
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (module->n_kernels == SIZE_MAX)
        result = CUDA_ERROR_NOT_SUPPORTED;
    else
        *n = (unsigned)module->n_kernels;
    pretend_unlock();
    return result;
}

/* Up to `most` handles, in the order of their names. */
static CUresult list_kernels(const void *handle, void *found, unsigned most)
{
    unsigned n;
    CUresult result = found ? count_kernels(handle, &n) : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    const struct pretend_module *module = module_of(handle);
    char *at = found;
    for (size_t i = 0; module && i < module->n && most; i++) {
        if (!module->function[i]->is_kernel)
            continue;
        memcpy(at, &module->function[i], sizeof module->function[i]);
        at += sizeof module->function[i];
        most--;
    }
    pretend_unlock();
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuModuleGetFunctionCount(unsigned *n, CUmodule module)
{
    return count_kernels(module, n);
}

PRETEND_CALL CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned most,
                                                 CUmodule module)
{
    return list_kernels(module, functions, most);
}

PRETEND_CALL CUresult cuLibraryGetKernelCount(unsigned *n, CUlibrary library)
{
    return count_kernels(library, n);
}

PRETEND_CALL CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned most, CUlibrary library)
{
    return list_kernels(library, kernels, most);
}

/* Variables. */

static struct pretend_global *find_global(struct pretend_module *module, const char *name)
{
    struct pretend_global *global = module->globals;
    while (global && strcmp(global->name, name) != 0)
        global = global->next;
    if (global)
        return global;
    global = calloc(1, sizeof *global + strlen(name) + 1);
    if (global) {
        strcpy(global->name, name);
        global->next = module->globals;
        module->globals = global;
    }
    return global;
}

static CUresult get_global(CUdeviceptr *address, size_t *bytes, const void *handle,
                           const char *name)
{
    CUdevice device = pretend_current_device();
    CUdeviceptr fresh = 0;
    CUresult result = CUDA_SUCCESS;
    if (!name || !module_of(handle))
        return name ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    if (device < 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    pretend_lock();
    struct pretend_global *global = find_global(module_of(handle), name);
    CUdeviceptr known = global ? global->address[device] : 0;
    pretend_unlock();
    if (!global)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!known)
        result = pretend_memory_take(device, GLOBAL_BYTES, MT_CATEGORY_CONTEXT, "variable", &fresh);
    if (result != CUDA_SUCCESS)
        return result;
    pretend_lock();
    if (!global->address[device]) {
        global->address[device] = fresh;
        fresh = 0;
    }
    known = global->address[device];
    pretend_unlock();
    if (fresh)
        pretend_memory_give(fresh);
    if (address)
        *address = known;
    if (bytes)
        *bytes = GLOBAL_BYTES;
    return CUDA_SUCCESS;
}

PRETEND_CALL CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module,
                                           const char *name)
{
    return get_global(address, bytes, module, name);
}

PRETEND_CALL CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                                         const char *name)
{
    return get_global(address, bytes, library, name);
}

PRETEND_CALL CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                                          const char *name)
{
    return get_global(address, bytes, library, name);
}
