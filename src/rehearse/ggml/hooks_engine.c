/* SPDX-License-Identifier: MIT */
/* What llama.cpp's own calls tell: which model a buffer belongs to, when a model is there and when
 * a context is, what a copy of a state takes, and which build this is. Programs that reach these
 * functions past the loader's search (by dlsym) are understood by ggml's calls alone. */
#include <string.h>

#include "rehearse/ggml/account_write.h"
#include "rehearse/ggml/hooks.h"
#include "rehearse/ggml/purpose.h"

const char *current_owner(void)
{
    const struct hook_thread *thread = hook_thread();
    return thread->owner[0] ? thread->owner : thread->file;
}

/* "/models/qwen3-4b.gguf" is called qwen3-4b. */
static void remember_file(const char *path)
{
    struct hook_thread *thread = hook_thread();
    const char *slash = path ? strrchr(path, '/') : NULL;
    const char *base = slash ? slash + 1 : path;
    snprintf(thread->file, sizeof thread->file, "%s", base ? base : "");
    char *end = strstr(thread->file, ".gguf");
    if (end)
        *end = 0;
}

static void add_file(struct engine *engine, void *gguf, FILE *file)
{
    if (gguf && file && real_gguf_get_data_offset(engine))
        add_weights_file(fileno(file), real_gguf_get_data_offset(engine)(gguf));
}

void *gguf_init_from_file(const char *path, struct gguf_parameters parameters)
{
    struct engine *engine = engine_of(CALLER);
    if (rehearsal())
        remember_file(path);
    void *gguf = real_gguf_init_from_file(engine)(path, parameters);
    FILE *file = gguf && idle_rehearsal() ? fopen(path, "rbe") : NULL;
    add_file(engine, gguf, file);
    if (file)
        fclose(file);
    return gguf;
}

void *gguf_init_from_file_ptr(FILE *file, struct gguf_parameters parameters)
{
    struct engine *engine = engine_of(CALLER);
    void *gguf = real_gguf_init_from_file_ptr(engine)(file, parameters);
    if (idle_rehearsal())
        add_file(engine, gguf, file);
    return gguf;
}

/* A call of the engine's, from its begin to its end. */
struct scope {
    struct purpose purpose;
    unsigned n_buffers;
    unsigned n_plans;
    char owner[64];
};

static void scope_begin(struct scope *scope, enum mt_category category, const char *detail,
                        const void *owner)
{
    struct hook_thread *thread = hook_thread();
    const char *name = object_name(owner);
    memcpy(scope->owner, thread->owner, sizeof scope->owner);
    snprintf(thread->owner, sizeof thread->owner, "%s", name ? name : "");
    purpose_begin(&scope->purpose, category, detail, name);
    scope->n_buffers = thread->n_buffers;
    scope->n_plans = thread->n_plans;
    thread->is_in_engine++;
}

static void scope_end(struct scope *scope)
{
    struct hook_thread *thread = hook_thread();
    memcpy(thread->owner, scope->owner, sizeof thread->owner);
    thread->is_in_engine--;
    purpose_end(&scope->purpose);
}

#define SCOPE __attribute__((cleanup(scope_end))) struct scope

/* A dry run of a model has no buffers with memory, one of a context has plans. */
static int mark(const struct scope *scope, const char *name)
{
    const struct hook_thread *thread = hook_thread();
    if (!rehearsal() || thread->n_buffers == scope->n_buffers)
        return 0;
    int is_plan = thread->n_plans != scope->n_plans;
    pretend_note_mark(is_plan ? "plan" : name);
    return !is_plan;
}

static void *loaded(const struct scope *scope, struct engine *engine, void *model)
{
    if (!model || !rehearsal())
        return model;
    name_object(model, hook_thread()->file);
    note_version(engine);
    mark(scope, "model");
    return model;
}

void *llama_model_load_from_file(const char *path, struct by_value parameters)
{
    struct engine *engine = engine_of(CALLER);
    SCOPE scope;
    scope_begin(&scope, MT_CATEGORY_WORKSPACE, "staging", NULL);
    return loaded(&scope, engine, real_llama_model_load_from_file(engine)(path, parameters));
}

void *llama_load_model_from_file(const char *path, struct by_value parameters)
{
    struct engine *engine = engine_of(CALLER);
    SCOPE scope;
    scope_begin(&scope, MT_CATEGORY_WORKSPACE, "staging", NULL);
    return loaded(&scope, engine, real_llama_load_model_from_file(engine)(path, parameters));
}

void *llama_model_load_from_splits(const char **paths, size_t count, struct by_value parameters)
{
    struct engine *engine = engine_of(CALLER);
    SCOPE scope;
    scope_begin(&scope, MT_CATEGORY_WORKSPACE, "staging", NULL);
    return loaded(&scope, engine,
                  real_llama_model_load_from_splits(engine)(paths, count, parameters));
}

/* A server is ready when it takes connections and has a context, whichever comes last. */
static uint32_t is_listening;
static uint32_t has_context;

static void mark_ready(const uint32_t *other)
{
    if (__atomic_load_n(other, __ATOMIC_ACQUIRE))
        pretend_note_mark("ready");
}

void note_listening(void)
{
    pretend_note_mark("listen");
    __atomic_store_n(&is_listening, 1, __ATOMIC_RELEASE);
    mark_ready(&has_context);
}

static void *made(const struct scope *scope, void *context, const void *model)
{
    const char *name = object_name(model);
    if (context && rehearsal() && name)
        name_object(context, name);
    if (context && mark(scope, "context")) {
        __atomic_store_n(&has_context, 1, __ATOMIC_RELEASE);
        mark_ready(&is_listening);
    }
    return context;
}

void *llama_init_from_model(void *model, struct by_value parameters)
{
    struct engine *engine = engine_of(CALLER);
    SCOPE scope;
    scope_begin(&scope, MT_CATEGORY_ACTIVATIONS, "outputs", model);
    return made(&scope, real_llama_init_from_model(engine)(model, parameters), model);
}

void *llama_new_context_with_model(void *model, struct by_value parameters)
{
    struct engine *engine = engine_of(CALLER);
    SCOPE scope;
    scope_begin(&scope, MT_CATEGORY_ACTIVATIONS, "outputs", model);
    return made(&scope, real_llama_new_context_with_model(engine)(model, parameters), model);
}

int32_t llama_decode(void *context, struct by_value batch)
{
    struct engine *engine = engine_of(CALLER);
    SCOPE scope;
    scope_begin(&scope, MT_CATEGORY_ACTIVATIONS, "outputs", context);
    return real_llama_decode(engine)(context, batch);
}

int32_t llama_encode(void *context, struct by_value batch)
{
    struct engine *engine = engine_of(CALLER);
    SCOPE scope;
    scope_begin(&scope, MT_CATEGORY_ACTIVATIONS, "outputs", context);
    return real_llama_encode(engine)(context, batch);
}

void *llama_adapter_lora_init(void *model, const char *path)
{
    struct engine *engine = engine_of(CALLER);
    SCOPE scope;
    scope_begin(&scope, MT_CATEGORY_WORKSPACE, "staging", NULL);
    void *adapter = real_llama_adapter_lora_init(engine)(model, path);
    if (adapter)
        mark(&scope, "adapter");
    return adapter;
}

void *mtmd_init_from_file(const char *path, const void *model, struct by_value parameters)
{
    struct engine *engine = engine_of(CALLER);
    SCOPE scope;
    scope_begin(&scope, MT_CATEGORY_WORKSPACE, "staging", NULL);
    void *projector = real_mtmd_init_from_file(engine)(path, model, parameters);
    if (projector)
        mark(&scope, "projector");
    return projector;
}

/* Whoever asks allocates as much next. */
static size_t state(size_t bytes)
{
    hook_thread()->state_bytes = bytes;
    return bytes;
}

size_t llama_state_get_size(void *context)
{
    return state(real_llama_state_get_size(engine_of(CALLER))(context));
}

size_t llama_state_seq_get_size(void *context, int32_t sequence)
{
    return state(real_llama_state_seq_get_size(engine_of(CALLER))(context, sequence));
}

size_t llama_state_seq_get_size_ext(void *context, int32_t sequence, uint32_t flags)
{
    return state(real_llama_state_seq_get_size_ext(engine_of(CALLER))(context, sequence, flags));
}

/* How much a version says: rules go by a build's number, people by llama.cpp's own version. */
enum version_rank { VERSION_NONE, VERSION_OF_GGML, VERSION_OF_LLAMA, VERSION_BUILD };

static enum version_rank version_of(struct engine *engine, char *text, size_t size)
{
    int build = real__Z18llama_build_numberv(engine) ? real__Z18llama_build_numberv(engine)() : 0;
    if (build > 1) {
        snprintf(text, size, "b%d", build);
        return VERSION_BUILD;
    }
    if (real_llama_version(engine)) {
        snprintf(text, size, "%s", real_llama_version(engine)());
        return VERSION_OF_LLAMA;
    }
    if (!real_ggml_version(engine))
        return VERSION_NONE;
    snprintf(text, size, "ggml %s", real_ggml_version(engine)());
    return VERSION_OF_GGML;
}

/* A library that is loaded later may know better. */
void note_version(struct engine *engine)
{
    static uint32_t noted_rank;
    struct mt_account *account = rehearsal();
    char text[sizeof account->engine_version] = "";
    uint32_t noted = __atomic_load_n(&noted_rank, __ATOMIC_RELAXED);
    if (!account || noted == VERSION_BUILD)
        return;
    uint32_t rank = version_of(engine, text, sizeof text);
    while (rank > noted)
        if (__atomic_compare_exchange_n(&noted_rank, &noted, rank, 0, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
            memcpy(account->engine_version, text, sizeof text);
            return;
        }
}
