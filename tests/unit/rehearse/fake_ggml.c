/* SPDX-License-Identifier: MIT */
/* A stand-in for a ggml of API version API. */
#include "fake_ggml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

struct ggml_buffer *ggml_backend_buffer_init(struct ggml_buffer_type *type,
                                             struct ggml_buffer_functions iface, void *context,
                                             size_t size);
const char *ggml_op_name(int op);
const char *ggml_op_desc(const struct ggml_tensor *tensor);
const char *ggml_type_name(int type);
int64_t ggml_blck_size(int type);
size_t ggml_type_size(int type);
bool ggml_is_quantized(int type);
struct ggml_registry *ggml_backend_reg_by_name(const char *name);
void *ggml_init(struct ggml_init parameters);
void ggml_free(void *context);
struct ggml_tensor *ggml_new_tensor_2d(void *context, int type, int64_t ne0, int64_t ne1);
struct ggml_tensor *ggml_mul_mat(void *context, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_view_1d(void *context, struct ggml_tensor *a, int64_t ne0, size_t at);
bool ggml_can_fuse_subgraph_ext(const struct ggml_graph *graph, const int *nodes, int count,
                                const int *numbers, const int *outputs, int n_outputs);

static const struct {
    const char *name;
    int64_t block;
    size_t bytes;
} types[] = {
    [FAKE_F32] = {"f32", 1, 4},       [FAKE_F16] = {"f16", 1, 2},
    [FAKE_Q8_0] = {"q8_0", 32, 34},   [FAKE_Q4_0] = {"q4_0", 32, 18},
    [FAKE_Q6_K] = {"q6_K", 256, 210}, [FAKE_BF16] = {"bf16", 1, 2},
    [FAKE_I32] = {"i32", 1, 4},
};

/* Every version has its own order. */
static const char *const ops[] = {
#if API == 2
    "NONE", "VIEW",       "MUL_MAT", "FLASH_ATTN_EXT", "GET_ROWS", "RMS_NORM",
    "ROPE", "MUL_MAT_ID", "CUSTOM",  "RESHAPE",        "ADD",      "MUL",
#else
    "NONE",    "RESHAPE", "CUSTOM",         "ROPE",     "RMS_NORM",  "GET_ROWS",
    "MUL",     "ADD",     "FLASH_ATTN_EXT", "NEWCOMER", "VIEW",      "MUL_MAT_ID",
    "MUL_MAT", "CPY",     "SET_ROWS",       "SOFT_MAX", "SCALE",     "UNARY",
    "CONCAT",  "NORM",    "SSM_SCAN",       "PERMUTE",  "TRANSPOSE", "ACC",
#endif
};

static struct ggml_registry cpu = {.api_version = API};

struct ggml_buffer *ggml_backend_buffer_init(struct ggml_buffer_type *type,
                                             struct ggml_buffer_functions iface, void *context,
                                             size_t size)
{
    struct ggml_buffer *buffer = malloc(sizeof *buffer);
    if (buffer)
        *buffer = (struct ggml_buffer){iface, type, context, size, 0};
    return buffer;
}

const char *ggml_op_name(int op)
{
    return ops[op];
}

const char *ggml_op_desc(const struct ggml_tensor *tensor)
{
    return ops[tensor->op];
}

const char *ggml_type_name(int type)
{
    return types[type].name;
}

int64_t ggml_blck_size(int type)
{
    return types[type].block;
}

size_t ggml_type_size(int type)
{
    return types[type].bytes;
}

bool ggml_is_quantized(int type)
{
    return types[type].block > 1;
}

struct ggml_registry *ggml_backend_reg_by_name(const char *name)
{
    return strcmp(name, "CPU") == 0 ? &cpu : NULL;
}

void *ggml_init(struct ggml_init parameters)
{
    (void)parameters;
    return calloc(4, sizeof(struct ggml_tensor));
}

void ggml_free(void *context)
{
    free(context);
}

static int find_op(const char *name)
{
    for (size_t i = 0; i < COUNT(ops); i++)
        if (strcmp(ops[i], name) == 0)
            return (int)i;
    fprintf(stderr, "the fake has no operation %s\n", name);
    abort(); /* the test is wrong */
}

static struct ggml_tensor *next_tensor(struct ggml_tensor *tensor)
{
    while (tensor->ne[0])
        tensor++;
    return tensor;
}

struct ggml_tensor *ggml_new_tensor_2d(void *context, int type, int64_t ne0, int64_t ne1)
{
    struct ggml_tensor *tensor = next_tensor(context);
    size_t row = (size_t)ne0 * types[type].bytes / (size_t)types[type].block;
    *tensor =
        (struct ggml_tensor){.type = type,
                             .ne = {ne0, ne1, 1, 1},
                             .nb = {types[type].bytes, row, row * (size_t)ne1, row * (size_t)ne1}};
    return tensor;
}

struct ggml_tensor *ggml_mul_mat(void *context, struct ggml_tensor *a, struct ggml_tensor *b)
{
    struct ggml_tensor *tensor = ggml_new_tensor_2d(context, FAKE_F32, a->ne[1], b->ne[1]);
    tensor->op = find_op("MUL_MAT");
    tensor->src[0] = a;
    tensor->src[1] = b;
    return tensor;
}

struct ggml_tensor *ggml_view_1d(void *context, struct ggml_tensor *a, int64_t ne0, size_t at)
{
    struct ggml_tensor *tensor = ggml_new_tensor_2d(context, a->type, ne0, 1);
    tensor->op = find_op("VIEW");
    tensor->src[0] = tensor->view_src = a;
    tensor->view_offs = at;
    return tensor;
}

static struct ggml_registry *load(const char *path)
{
    struct ggml_registry *(*init)(void);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object)
        return NULL;
    *(void **)&init = dlsym(object, "ggml_backend_init");
    struct ggml_registry *registry = init ? init() : NULL;
    return registry && registry->api_version == cpu.api_version ? registry : NULL;
}

const char *ggml_version(void);
const char *ggml_version(void)
{
    return "0.25.3";
}

static void set_version(int version)
{
    cpu.api_version = version;
}

bool ggml_can_fuse_subgraph_ext(const struct ggml_graph *graph, const int *nodes, int count,
                                const int *numbers, const int *outputs, int n_outputs)
{
    (void)graph, (void)nodes, (void)count, (void)numbers, (void)outputs, (void)n_outputs;
    return true;
}

static void add_alloc_dep(void *context, struct ggml_tensor *tensor, struct ggml_tensor *until)
{
    struct fake_kept *kept = context;
    kept->each[kept->count].tensor = tensor;
    kept->each[kept->count++].until = until;
}

const struct fake *fake_ggml(void)
{
    static struct fake_kept kept;
    static const struct ggml_optimize optimize = {add_alloc_dep, &kept};
    static const struct fake fake = {load, find_op, set_version, &optimize, &kept};
    return &fake;
}
