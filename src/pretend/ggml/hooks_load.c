/* SPDX-License-Identifier: MIT */
/* Devices: programs that load none from outside are given the pretended ones when they first ask
 * what there is, and devices that are truly there are kept from all. */
#include "hooks.h"

#include <string.h>
#include <strings.h>

#include "rehearse/account_write.h"

#define COPIES_MAX 16u

/* Copies of ggml in this process, told apart by their ggml_backend_load(). */
static struct copy {
    void *load;
    uint32_t is_loaded;
} copies[COPIES_MAX];

static struct copy *copy_of(struct engine *engine)
{
    void *load = engine_find(engine, ENGINE_ggml_backend_load);
    for (uint32_t i = 0; i < COPIES_MAX; i++) {
        void *seen = __atomic_load_n(&copies[i].load, __ATOMIC_ACQUIRE);
        if (seen == load)
            return &copies[i];
        if (!seen && __atomic_compare_exchange_n(&copies[i].load, &seen, load, 0, __ATOMIC_ACQ_REL,
                                                 __ATOMIC_ACQUIRE))
            return &copies[i];
        if (seen == load)
            return &copies[i];
    }
    return NULL;
}

/* A registry begins with its version's number; functions follow. */
static int is_own_registry(const void *registry)
{
    return is_pretended((const char *)registry + sizeof(void *));
}

static void *own_registry(struct engine *engine, const char *name)
{
    if (!real_ggml_backend_reg_get(engine) || !real_ggml_backend_reg_name(engine))
        return NULL;
    size_t count = real_ggml_backend_reg_count(engine)();
    for (size_t i = 0; i < count; i++) {
        void *registry = real_ggml_backend_reg_get(engine)(i);
        if (registry && is_own_registry(registry) &&
            (!name || strcasecmp(real_ggml_backend_reg_name(engine)(registry), name) == 0))
            return registry;
    }
    return NULL;
}

static void stop_loading(struct hook_thread **thread)
{
    (*thread)->is_loading = 0;
}

/* Waits for the processor's own backend, which says what version this ggml has. */
static void load_devices(struct engine *engine)
{
    __attribute__((cleanup(stop_loading))) struct hook_thread *thread = hook_thread();
    thread->is_loading = 1;
    struct copy *copy = copy_of(engine);
    if (!copy || __atomic_load_n(&copy->is_loaded, __ATOMIC_ACQUIRE) ||
        !real_ggml_backend_reg_by_name(engine)("CPU"))
        return;
    if (__atomic_exchange_n(&copy->is_loaded, 1, __ATOMIC_ACQ_REL))
        return;
    note_version(engine);
    if (!own_registry(engine, NULL))
        real_ggml_backend_load(engine)(own_path());
}

static struct engine *with_devices(uintptr_t caller)
{
    struct engine *engine = engine_of(caller);
    if (rehearsal() && !hook_thread()->is_loading)
        load_devices(engine);
    return engine;
}

size_t ggml_backend_dev_count(void)
{
    return real_ggml_backend_dev_count(with_devices(CALLER))();
}

void *ggml_backend_dev_get(size_t index)
{
    return real_ggml_backend_dev_get(with_devices(CALLER))(index);
}

void *ggml_backend_dev_by_type(int type)
{
    return real_ggml_backend_dev_by_type(with_devices(CALLER))(type);
}

void *ggml_backend_dev_by_name(const char *name)
{
    return real_ggml_backend_dev_by_name(with_devices(CALLER))(name);
}

void *ggml_backend_init_by_type(int type, const char *parameters)
{
    return real_ggml_backend_init_by_type(with_devices(CALLER))(type, parameters);
}

void *ggml_backend_init_by_name(const char *name, const char *parameters)
{
    return real_ggml_backend_init_by_name(with_devices(CALLER))(name, parameters);
}

void *ggml_backend_init_best(void)
{
    return real_ggml_backend_init_best(with_devices(CALLER))();
}

size_t ggml_backend_reg_count(void)
{
    return real_ggml_backend_reg_count(with_devices(CALLER))();
}

/* The true backend of a kind may be there under the same name, with no devices. */
void *ggml_backend_reg_by_name(const char *name)
{
    struct engine *engine = with_devices(CALLER);
    void *own =
        rehearsal() && !hook_thread()->is_loading && name ? own_registry(engine, name) : NULL;
    return own ? own : real_ggml_backend_reg_by_name(engine)(name);
}

/* Loaded already: ggml would list it once or twice, as its version goes. */
void *ggml_backend_load(const char *path)
{
    struct engine *engine = engine_of(CALLER);
    if (rehearsal() && path && strcmp(path, own_path()) == 0 && !hook_thread()->is_loading) {
        load_devices(engine);
        void *own = own_registry(engine, NULL);
        if (own)
            return own;
    }
    return real_ggml_backend_load(engine)(path);
}

static int is_elsewhere(const char *registry)
{
    static uint32_t is_noted;
    if (strncasecmp(registry, "RPC", 3) != 0)
        return 0;
    if (!__atomic_exchange_n(&is_noted, 1, __ATOMIC_RELAXED))
        pretend_note("Devices of RPC servers are on other machines: they are left as they are.");
    return 1;
}

/* What an engine adds a server of RPC by; it takes nothing for one without devices. */
static void *add_no_server(const char *endpoint)
{
    char text[MT_ACCOUNT_NOTE_BYTES];
    snprintf(text, sizeof text,
             "The RPC server %.80s is another machine: it is not asked for its devices, and the "
             "rehearsal goes on without them.",
             endpoint ? endpoint : "");
    pretend_note(text);
    return NULL;
}

void *ggml_backend_reg_get_proc_address(void *registry, const char *name)
{
    struct engine *engine = engine_of(CALLER);
    void *found = real_ggml_backend_reg_get_proc_address(engine)(registry, name);
    void *(*replaced)(const char *endpoint) = add_no_server;
    if (found && rehearsal() && name && strcmp(name, "ggml_backend_rpc_add_server") == 0)
        memcpy(&found, &replaced, sizeof found);
    return found;
}

/* Shows only the processor's of the devices that are truly there. */
size_t ggml_backend_reg_dev_count(void *registry)
{
    static const char *const shown[] = {"CPU", "BLAS"};
    struct engine *engine = engine_of(CALLER);
    size_t count = real_ggml_backend_reg_dev_count(engine)(registry);
    if (!rehearsal() || !count || !registry || is_own_registry(registry) ||
        !real_ggml_backend_reg_name(engine))
        return count;
    const char *name = real_ggml_backend_reg_name(engine)(registry);
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (strcasecmp(name, shown[i]) == 0)
            return count;
    return is_elsewhere(name) ? count : 0;
}
