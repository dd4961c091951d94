/* SPDX-License-Identifier: MIT */
/* What llama.cpp's own calls tell: which model a buffer belongs to, when a model is there and when
 * a context is, what a copy of a state takes, and which build this is. Programs that reach these
 * functions past the loader's search (by dlsym) are understood by ggml's calls alone. */
#include <string.h>

#include "hooks.h"
#include "purpose.h"
#include "rehearse/account_write.h"

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
    FILE *file = gguf && rehearsal() ? fopen(path, "rbe") : NULL;
    add_file(engine, gguf, file);
    if (file)
        fclose(file);
    return gguf;
}

void *gguf_init_from_file_ptr(FILE *file, struct gguf_parameters parameters)
{
    struct engine *engine = engine_of(CALLER);
    void *gguf = real_gguf_init_from_file_ptr(engine)(file, parameters);
    if (rehearsal())
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
                        const char *name)
{
    struct hook_thread *thread = hook_thread();
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

/* A server may be ready when it takes connections and has a context, whichever comes last; what it
 * loads beside its model it may load then. */
static uint32_t is_listening;
static uint32_t has_context;

static void mark_serving(const uint32_t *other)
{
    if (__atomic_load_n(other, __ATOMIC_ACQUIRE))
        pretend_note_mark("serving");
}

void note_listening(void)
{
    pretend_note_mark("listen");
    __atomic_store_n(&is_listening, 1, __ATOMIC_RELEASE);
    mark_serving(&has_context);
}

#define CONTEXTS_MAX 16u

/* The contexts that there are; made and freed seldom. */
static const void *contexts[CONTEXTS_MAX];

static void add_context(const void *context)
{
    for (uint32_t i = 0; i < CONTEXTS_MAX; i++) {
        const void *empty = NULL;
        if (__atomic_compare_exchange_n(&contexts[i], &empty, context, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return;
    }
}

static int is_context_of(const char *of, const char *model)
{
    size_t length = strlen(model);
    return strncmp(of, model, length) == 0 && (!of[length] || strncmp(of + length, " (", 2) == 0);
}

/* A model may have several contexts at a time, such as one that drafts for the other: the second
 * one of "qwen3" is called "qwen3 (context 2)". */
static const char *name_context(const void *model, char *name, size_t size)
{
    const char *of = object_name(model);
    unsigned count = 1;
    for (uint32_t i = 0; of && i < CONTEXTS_MAX; i++) {
        const void *context = __atomic_load_n(&contexts[i], __ATOMIC_ACQUIRE);
        const char *called = object_name(context);
        count += called && is_context_of(called, of);
    }
    if (count > 1)
        snprintf(name, size, "%s (context %u)", of, count);
    else
        snprintf(name, size, "%s", of ? of : "");
    return name;
}

static void *made(const struct scope *scope, void *context, const char *name)
{
    if (context && rehearsal() && *name) {
        name_object(context, name);
        add_context(context);
    }
    if (context && mark(scope, "context")) {
        __atomic_store_n(&has_context, 1, __ATOMIC_RELEASE);
        mark_serving(&is_listening);
    }
    return context;
}

void *llama_init_from_model(void *model, struct by_value parameters)
{
    struct engine *engine = engine_of(CALLER);
    SCOPE scope;
    char name[64];
    scope_begin(&scope, MT_CATEGORY_ACTIVATIONS, "outputs", name_context(model, name, sizeof name));
    return made(&scope, real_llama_init_from_model(engine)(model, parameters), name);
}

void *llama_new_context_with_model(void *model, struct by_value parameters)
{
    struct engine *engine = engine_of(CALLER);
    SCOPE scope;
    char name[64];
    scope_begin(&scope, MT_CATEGORY_ACTIVATIONS, "outputs", name_context(model, name, sizeof name));
    return made(&scope, real_llama_new_context_with_model(engine)(model, parameters), name);
}

int32_t llama_decode(void *context, struct by_value batch)
{
    struct engine *engine = engine_of(CALLER);
    SCOPE scope;
    scope_begin(&scope, MT_CATEGORY_ACTIVATIONS, "outputs", object_name(context));
    return real_llama_decode(engine)(context, batch);
}

int32_t llama_encode(void *context, struct by_value batch)
{
    struct engine *engine = engine_of(CALLER);
    SCOPE scope;
    scope_begin(&scope, MT_CATEGORY_ACTIVATIONS, "outputs", object_name(context));
    return real_llama_encode(engine)(context, batch);
}

int32_t llama_process(void *context, int type, void *batch)
{
    struct engine *engine = engine_of(CALLER);
    SCOPE scope;
    scope_begin(&scope, MT_CATEGORY_ACTIVATIONS, "outputs", object_name(context));
    return real_llama_process(engine)(context, type, batch);
}

void llama_free(void *context)
{
    struct engine *engine = engine_of(CALLER);
    for (uint32_t i = 0; context && i < CONTEXTS_MAX; i++) {
        const void *known = context;
        if (__atomic_compare_exchange_n(&contexts[i], &known, NULL, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            forget_object(context);
    }
    real_llama_free(engine)(context);
}

void *llama_adapter_lora_init(void *model, const char *path)
{
    struct engine *engine = engine_of(CALLER);
    SCOPE scope;
    scope_begin(&scope, MT_CATEGORY_WORKSPACE, "staging", NULL);
    remember_file(path);
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

/* Whoever asks allocates as much next: a copy of each context's state, and of the checkpoints that
 * go with it. */
static size_t state(size_t bytes)
{
    struct hook_thread *thread = hook_thread();
    for (unsigned i = 0; i < STATES_MAX; i++)
        if (thread->state_bytes[i] == bytes)
            return bytes;
    thread->state_bytes[thread->n_states++ % STATES_MAX] = bytes;
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
