/* SPDX-License-Identifier: MIT */
/* Finding a process's ggml, and reading its tensors. It knows nothing of devices.
 *
 * ggml's libraries are often loaded so that the global scope does not have them, and a process may
 * have two copies: so functions are looked up in the module that called, with what it depends on,
 * and only then in every module that is loaded. */
#include "ggml.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#define MODULES_BYTES 262144u

/* The paths of the loaded modules, each with its zero. The loader must not be asked for a symbol
 * while it walks its list. */
struct modules {
    size_t used;
    char paths[MODULES_BYTES];
};

static int copy_path(struct dl_phdr_info *info, size_t size, void *context)
{
    struct modules *modules = context;
    size_t length = info->dlpi_name ? strlen(info->dlpi_name) : 0;
    (void)size;
    if (length && length < sizeof modules->paths - modules->used) {
        memcpy(modules->paths + modules->used, info->dlpi_name, length + 1);
        modules->used += length + 1;
    }
    return 0;
}

static int is_own(const void *address)
{
    Dl_info own, other;
    static const char within;
    return dladdr(&within, &own) && dladdr(address, &other) && own.dli_fbase == other.dli_fbase;
}

/* `path` NULL is the program with what it was started with. */
static void *find_in(const char *path, const char *name)
{
    void *module = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!module)
        return NULL;
    void *found = dlsym(module, name);
    dlclose(module);
    return found && !is_own(found) ? found : NULL;
}

static void *find_anywhere(const char *name)
{
    struct modules *modules = malloc(sizeof *modules);
    void *found = find_in(NULL, name);
    if (!modules)
        return found;
    modules->used = 0;
    dl_iterate_phdr(copy_path, modules);
    for (size_t at = 0; !found && at < modules->used; at += strlen(modules->paths + at) + 1)
        found = find_in(modules->paths + at, name);
    free(modules);
    return found;
}

void *pretend_find(const void *caller, const char *name)
{
    Dl_info around;
    void *found = NULL;
    if (dladdr(caller, &around) && around.dli_fname)
        found = find_in(around.dli_fname, name);
    return found ? found : find_anywhere(name);
}

static int find_all(struct pretend_ggml *ggml, const void *caller, const char **missing)
{
    const struct {
        const char *name;
        size_t offset;
    } needed[] = {
        {"ggml_backend_buffer_init", offsetof(struct pretend_ggml, buffer_init)},
        {"ggml_op_name", offsetof(struct pretend_ggml, op_name)},
        {"ggml_op_desc", offsetof(struct pretend_ggml, op_desc)},
        {"ggml_type_name", offsetof(struct pretend_ggml, type_name)},
        {"ggml_blck_size", offsetof(struct pretend_ggml, blck_size)},
        {"ggml_type_size", offsetof(struct pretend_ggml, type_size)},
        {"ggml_is_quantized", offsetof(struct pretend_ggml, is_quantized)},
    };
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        void *found = pretend_find(caller, needed[i].name);
        if (!found) {
            *missing = needed[i].name;
            return 0;
        }
        memcpy((char *)ggml + needed[i].offset, &found, sizeof found);
    }
    return 1;
}

int pretend_ggml_find(struct pretend_ggml *ggml, const void *caller, const char **missing)
{
    int found = find_all(ggml, caller, missing);
    *(void **)&ggml->can_fuse = pretend_find(caller, "ggml_can_fuse_subgraph_ext");
    dlerror(); /* of the modules that lack a name */
    return found;
}

int pretend_ggml_version(const void *caller)
{
    struct ggml_registry *(*by_name)(const char *name);
    struct ggml_registry *(*get)(size_t index);
    size_t (*count)(void);
    *(void **)&by_name = pretend_find(caller, "ggml_backend_reg_by_name");
    *(void **)&get = pretend_find(caller, "ggml_backend_reg_get");
    *(void **)&count = pretend_find(caller, "ggml_backend_reg_count");
    struct ggml_registry *registry = by_name ? by_name("CPU") : NULL;
    if (!registry && get && count && count())
        registry = get(0);
    if (registry)
        return registry->api_version;
    /* No backend is there yet: the functions that a version brought tell it. */
    if (pretend_find(caller, "ggml_backend_buft_alloc_buffer_n"))
        return 3;
    return pretend_find(caller, "ggml_backend_tensor_set_2d") ? 2 : 0;
}

/* A view of a product, made by ggml itself and read back. */
struct sample {
    void *(*init)(struct ggml_init parameters);
    void (*drop)(void *context);
    struct ggml_tensor *(*new_2d)(void *context, int type, int64_t ne0, int64_t ne1);
    struct ggml_tensor *(*mul_mat)(void *context, struct ggml_tensor *a, struct ggml_tensor *b);
    struct ggml_tensor *(*view_1d)(void *context, struct ggml_tensor *a, int64_t ne0, size_t at);
};

static int find_sample(struct sample *sample, const void *caller)
{
    *(void **)&sample->init = pretend_find(caller, "ggml_init");
    *(void **)&sample->drop = pretend_find(caller, "ggml_free");
    *(void **)&sample->new_2d = pretend_find(caller, "ggml_new_tensor_2d");
    *(void **)&sample->mul_mat = pretend_find(caller, "ggml_mul_mat");
    *(void **)&sample->view_1d = pretend_find(caller, "ggml_view_1d");
    return sample->init && sample->drop && sample->new_2d && sample->mul_mat && sample->view_1d;
}

static int is_as_made(const struct pretend_ggml *ggml, const struct ggml_tensor *weight,
                      const struct ggml_tensor *product, const struct ggml_tensor *view)
{
    const size_t bytes = ggml->type_size(weight->type);
    return weight->ne[0] == 64 && weight->ne[1] == 40 && weight->ne[3] == 1 &&
           weight->nb[0] == bytes && weight->nb[1] == 64 * bytes && weight->nb[3] == 2560 * bytes &&
           strcmp(ggml->op_name(weight->op), "NONE") == 0 &&
           strcmp(ggml->op_name(product->op), "MUL_MAT") == 0 && product->ne[0] == 40 &&
           product->ne[1] == 6 && product->src[0] == weight && !product->src[2] &&
           strcmp(ggml->op_name(view->op), "VIEW") == 0 && view->view_src == product &&
           view->view_offs == 32 && view->ne[0] == 24 && !view->buffer;
}

int pretend_ggml_fits(const struct pretend_ggml *ggml, const void *caller)
{
    struct sample sample;
    if (!find_sample(&sample, caller))
        return 0;
    struct ggml_init parameters = {.mem_size = 65536, .no_alloc = true};
    void *context = sample.init(parameters);
    if (!context)
        return 0;
    /* Type 0 has been f32 since there is a ggml. */
    struct ggml_tensor *weight = sample.new_2d(context, 0, 64, 40);
    struct ggml_tensor *product = sample.mul_mat(context, weight, sample.new_2d(context, 0, 64, 6));
    struct ggml_tensor *view = sample.view_1d(context, product, 24, 32);
    int fits = is_as_made(ggml, weight, product, view);
    sample.drop(context);
    return fits;
}

enum pretend_op pretend_op_of(struct pretend_ggml *ggml, const struct ggml_tensor *tensor)
{
    static const char *const names[] = {
#define PRETEND_OP(name) [OP_##name] = #name,
        PRETEND_OPS(PRETEND_OP)
#undef PRETEND_OP
    };
    if (tensor->op < 0 || tensor->op >= GGML_OPS_MAX)
        return OP_OTHER;
    uint8_t *known = &ggml->op[tensor->op];
    uint8_t op = __atomic_load_n(known, __ATOMIC_RELAXED);
    if (op != OP_UNKNOWN)
        return op;
    const char *name = ggml->op_name(tensor->op);
    for (op = OP_UNKNOWN + 1; op < OP_OTHER; op++)
        if (name && strcmp(name, names[op]) == 0)
            break;
    __atomic_store_n(known, op, __ATOMIC_RELAXED);
    return op;
}

static uint8_t type_by_name(const char *name)
{
    static const char *const names[] = {
#define PRETEND_TYPE(id, name) [TYPE_##id] = name,
        PRETEND_TYPES(PRETEND_TYPE)
#undef PRETEND_TYPE
    };
    uint8_t id = TYPE_UNKNOWN + 1;
    while (id < TYPE_OTHER && (!name || strcmp(name, names[id]) != 0))
        id++;
    return id;
}

struct pretend_type_info pretend_type_of(struct pretend_ggml *ggml, int type)
{
    struct pretend_type_info info = {.id = TYPE_OTHER, .block = 1, .bytes = 1};
    if (type < 0 || type >= GGML_TYPES_MAX)
        return info;
    struct pretend_type_info *known = &ggml->type[type];
    if (__atomic_load_n(&known->id, __ATOMIC_ACQUIRE) != TYPE_UNKNOWN)
        return *known;
    info.block = (uint16_t)ggml->blck_size(type);
    info.bytes = (uint32_t)ggml->type_size(type);
    info.is_quantized = ggml->is_quantized(type);
    info.id = type_by_name(ggml->type_name(type));
    if (!info.block)
        info.block = 1;
    known->block = info.block;
    known->bytes = info.bytes;
    known->is_quantized = info.is_quantized;
    __atomic_store_n(&known->id, info.id, __ATOMIC_RELEASE);
    return info;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

uint64_t pretend_rows(const struct ggml_tensor *tensor)
{
    uint64_t rows = 1;
    for (int i = 1; i < GGML_DIMS; i++)
        rows = times(rows, tensor->ne[i] > 0 ? (uint64_t)tensor->ne[i] : 0);
    return rows;
}

uint64_t pretend_elements(const struct ggml_tensor *tensor)
{
    return times(pretend_rows(tensor), tensor->ne[0] > 0 ? (uint64_t)tensor->ne[0] : 0);
}

uint64_t pretend_row_bytes(struct pretend_ggml *ggml, int type, uint64_t elements)
{
    struct pretend_type_info info = pretend_type_of(ggml, type);
    return times(info.bytes, elements) / info.block;
}

uint64_t pretend_bytes(struct pretend_ggml *ggml, const struct ggml_tensor *tensor)
{
    struct pretend_type_info info = pretend_type_of(ggml, tensor->type);
    if (!pretend_elements(tensor))
        return 0;
    uint64_t bytes = info.block == 1
                         ? plus(info.bytes, times((uint64_t)tensor->ne[0] - 1, tensor->nb[0]))
                         : times((uint64_t)tensor->ne[0], tensor->nb[0]) / info.block;
    for (int i = 1; i < GGML_DIMS; i++)
        bytes = plus(bytes, times((uint64_t)tensor->ne[i] - 1, tensor->nb[i]));
    return bytes;
}

int pretend_is_whole_from(struct pretend_ggml *ggml, const struct ggml_tensor *tensor, int n)
{
    struct pretend_type_info info = pretend_type_of(ggml, tensor->type);
    if (!pretend_elements(tensor))
        return 1;
    size_t next = info.bytes;
    if (tensor->ne[0] != info.block && tensor->nb[0] != next)
        return 0;
    next *= (size_t)tensor->ne[0] / info.block;
    for (int i = 1; i < GGML_DIMS; i++) {
        if (i > n && tensor->ne[i] != 1 && tensor->nb[i] != next)
            return 0;
        next = (i > n ? next : tensor->nb[i]) * (size_t)tensor->ne[i];
    }
    return 1;
}

int pretend_is_contiguous_rows(struct pretend_ggml *ggml, const struct ggml_tensor *tensor)
{
    struct pretend_type_info info = pretend_type_of(ggml, tensor->type);
    return tensor->ne[0] == info.block || tensor->nb[0] == info.bytes;
}
