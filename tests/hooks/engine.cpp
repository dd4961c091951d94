// SPDX-License-Identifier: MIT
#include "hooks/engine.h"

#include <cstdlib>
#include <cstring>
#include <new>

extern "C" {
buffer *ggml_backend_buft_alloc_buffer(buffer_type *type, std::size_t size);
buffer *ggml_backend_alloc_ctx_tensors_from_buft(context *context, buffer_type *type);
void ggml_backend_buffer_set_usage(buffer *buffer, int usage);
void ggml_backend_buffer_free(buffer *buffer);
void *ggml_backend_buffer_get_base(buffer *buffer);
std::size_t ggml_backend_buffer_get_size(buffer *buffer);
buffer_type *ggml_backend_buffer_get_type(buffer *buffer);
const char *ggml_backend_buft_name(buffer_type *type);
bool ggml_backend_buft_is_host(buffer_type *type);
tensor *ggml_get_first_tensor(const context *context);
tensor *ggml_get_next_tensor(const context *context, tensor *tensor);
const char *ggml_get_name(const tensor *tensor);
void *ggml_get_data(const tensor *tensor);
std::size_t ggml_nbytes(const tensor *tensor);
void *gguf_init_from_file(const char *path, gguf_parameters parameters);
std::size_t gguf_get_data_offset(const void *gguf);
void ggml_backend_sched_reset(void *scheduler);
void ggml_backend_sched_reserve_size(void *scheduler, void *graph, std::size_t *sizes);
int ggml_backend_graph_compute(void *backend, void *graph);
void *ggml_backend_reg_get_proc_address(void *registry, const char *name);
}

struct llama_ubatch;

class llm_graph_result
{
  public:
    void set_inputs(const llama_ubatch *batch);
};

static int n_resets;
static int n_computed;
static int n_inputs;
static int n_servers;

static void must_be_ours(int copy)
{
    if (copy != COPY)
        std::abort();
}

static void *base(buffer *buffer)
{
    return buffer->memory;
}

static void set(buffer *, tensor *tensor, const void *data, std::size_t offset, std::size_t size)
{
    std::memcpy(static_cast<char *>(tensor->data) + offset, data, size);
}

static void get(buffer *, const tensor *tensor, void *data, std::size_t offset, std::size_t size)
{
    std::memcpy(data, static_cast<char *>(tensor->data) + offset, size);
}

static void clear(buffer *buffer, std::uint8_t value)
{
    std::memset(buffer->memory, value, buffer->size);
}

static void release(buffer *buffer)
{
    must_be_ours(buffer->type->copy);
    std::free(buffer->memory);
}

static buffer *allocate(buffer_type *type, std::size_t size)
{
    must_be_ours(type->copy);
    void *memory = nullptr;
    if (posix_memalign(&memory, 64, size) != 0)
        return nullptr;
    return new buffer{release, base,  nullptr, nullptr, set,    get,  {nullptr, nullptr},
                      nullptr, clear, nullptr, type,    memory, size, 0};
}

static buffer *allocate_and_throw(buffer_type *, std::size_t)
{
    throw std::bad_alloc();
}

static const char *name(buffer_type *)
{
    return "CPU";
}

static buffer_type host = {name, allocate, COPY};
static buffer_type throwing = {name, allocate_and_throw, COPY};

buffer *ggml_backend_buft_alloc_buffer(buffer_type *type, std::size_t size)
{
    return type->alloc(type, size);
}

buffer *ggml_backend_alloc_ctx_tensors_from_buft(context *context, buffer_type *type)
{
    buffer *made = ggml_backend_buft_alloc_buffer(type, context->size);
    for (tensor *t = context->first; made && t; t = t->next)
        t->data = ggml_backend_buffer_get_base(made);
    return made;
}

void ggml_backend_buffer_set_usage(buffer *buffer, int usage)
{
    buffer->usage = usage;
}

void ggml_backend_buffer_free(buffer *buffer)
{
    buffer->free(buffer);
    delete buffer;
}

void *ggml_backend_buffer_get_base(buffer *buffer)
{
    return buffer->get_base(buffer);
}

std::size_t ggml_backend_buffer_get_size(buffer *buffer)
{
    return buffer->size;
}

buffer_type *ggml_backend_buffer_get_type(buffer *buffer)
{
    return buffer->type;
}

const char *ggml_backend_buft_name(buffer_type *type)
{
    return type->get_name(type);
}

bool ggml_backend_buft_is_host(buffer_type *)
{
    return true;
}

tensor *ggml_get_first_tensor(const context *context)
{
    return context->first;
}

tensor *ggml_get_next_tensor(const context *, tensor *tensor)
{
    return tensor->next;
}

const char *ggml_get_name(const tensor *tensor)
{
    return tensor->name;
}

void *ggml_get_data(const tensor *tensor)
{
    return tensor->data;
}

std::size_t ggml_nbytes(const tensor *)
{
    return 0;
}

// A model file of this engine has a header of 4096 bytes.
void *gguf_init_from_file(const char *, gguf_parameters)
{
    return &n_resets;
}

std::size_t gguf_get_data_offset(const void *)
{
    return 4096;
}

void ggml_backend_sched_reset(void *)
{
    n_resets++;
}

void ggml_backend_sched_reserve_size(void *scheduler, void *, std::size_t *)
{
    ggml_backend_sched_reset(scheduler);
}

int ggml_backend_graph_compute(void *, void *)
{
    n_computed++;
    return 0;
}

void llm_graph_result::set_inputs(const llama_ubatch *)
{
    n_inputs++;
}

static bool throws()
{
    try {
        ggml_backend_buft_alloc_buffer(&throwing, 1 << 20);
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

static void open_file(const char *path)
{
    gguf_init_from_file(path, {true, nullptr});
}

static int resets_of_dry_run()
{
    std::size_t sizes[1] = {};
    n_resets = 0;
    ggml_backend_sched_reserve_size(&n_resets, &n_resets, sizes);
    int during = n_resets;
    ggml_backend_sched_reset(&n_resets);
    return during * 10 + n_resets;
}

static int graphs_computed()
{
    llm_graph_result result;
    n_computed = n_inputs = 0;
    result.set_inputs(nullptr);
    ggml_backend_graph_compute(nullptr, nullptr);
    return n_inputs * 10 + n_computed;
}

static void *add_server(const char *)
{
    n_servers++;
    return &n_servers;
}

void *ggml_backend_reg_get_proc_address(void *, const char *name)
{
    bool is_known = std::strcmp(name, "ggml_backend_rpc_add_server") == 0;
    return is_known ? reinterpret_cast<void *>(add_server) : nullptr;
}

// As llama.cpp does with what follows --rpc. What is returned is registered, unless it is null.
static int servers_added()
{
    void *found = ggml_backend_reg_get_proc_address(nullptr, "ggml_backend_rpc_add_server");
    void *registry = reinterpret_cast<void *(*)(const char *)>(found)("10.0.0.7:50052");
    return n_servers + 10 * (registry != nullptr);
}

const engine *the_engine()
{
    static const engine functions = {
        [](std::size_t size) { return ggml_backend_buft_alloc_buffer(&host, size); },
        [](context *context) { return ggml_backend_alloc_ctx_tensors_from_buft(context, &host); },
        throws,
        ggml_backend_buffer_set_usage,
        ggml_backend_buffer_free,
        open_file,
        resets_of_dry_run,
        graphs_computed,
        servers_added,
    };
    return &functions;
}
