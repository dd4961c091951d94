/* SPDX-License-Identifier: MIT */
/* The pretended backend as ggml loads it: a registry of as many devices as the account has. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "build.h"
#include "rehearse/account_write.h"
#include "world.h"

#define EXPORTED __attribute__((visibility("default")))
#define CALLER   __builtin_return_address(0)

EXPORTED struct ggml_registry *ggml_backend_init(void);
EXPORTED int ggml_backend_score(void);

static struct pretend_world *first_world;
static pthread_mutex_t worlds_lock = PTHREAD_MUTEX_INITIALIZER;

struct pretend_world *pretend_worlds(void)
{
    return __atomic_load_n(&first_world, __ATOMIC_ACQUIRE);
}

static const struct mt_account_device *facts_of(struct ggml_device *abi)
{
    const struct pretend_device *device = device_of(abi);
    return &device->world->account->device[device->number];
}

static const char *get_name(struct ggml_device *device)
{
    return facts_of(device)->name;
}

static const char *get_description(struct ggml_device *device)
{
    return facts_of(device)->description;
}

static void get_memory(struct ggml_device *device, size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = pretend_free_bytes(device_of(device)->number);
    *total_bytes = facts_of(device)->total_bytes;
}

static int get_kind(struct ggml_device *device)
{
    (void)device;
    return GGML_DEVICE_GPU;
}

static void get_props(struct ggml_device *device, struct ggml_properties *properties)
{
    const struct pretend_world *world = device_of(device)->world;
    const struct mt_pretend_rules *rules = rules_of(world);
    properties->name = get_name(device);
    properties->description = get_description(device);
    get_memory(device, &properties->memory_free, &properties->memory_total);
    properties->type = GGML_DEVICE_GPU;
    properties->device_id = rules->is_unified ? NULL : device_of(device)->id;
    properties->caps.async = rules->has_async;
    properties->caps.host_buffer = rules->host_buffer[0] != 0;
    properties->caps.buffer_from_host_ptr = rules->is_unified;
    properties->caps.events = rules->has_events;
    properties->caps.mmap_support = true;
}

static struct ggml_backend *init_backend(struct ggml_device *device, const char *parameters)
{
    (void)parameters;
    return pretend_backend_new(device_of(device));
}

static struct ggml_buffer_type *get_buffer_type(struct ggml_device *device)
{
    return &device_of(device)->type.abi;
}

static struct ggml_buffer_type *get_host_buffer_type(struct ggml_device *device)
{
    return &device_of(device)->world->pinned.abi;
}

static struct ggml_buffer *buffer_from_host_ptr(struct ggml_device *device, void *address,
                                                size_t size, size_t max_tensor_size)
{
    (void)max_tensor_size;
    return pretend_buffer_from_host(device_of(device), address, size);
}

static bool supports_op(struct ggml_device *device, const struct ggml_tensor *op)
{
    return pretend_takes(device_of(device), op);
}

static bool supports_buft(struct ggml_device *device, struct ggml_buffer_type *type)
{
    const struct pretend_buffer_type *own = pretend_own_type(device_of(device)->world, type);
    return own && own->memory != PRETEND_PINNED && &own->device->abi == device;
}

static bool offload_op(struct ggml_device *device, const struct ggml_tensor *op)
{
    return pretend_takes_over(device_of(device), op);
}

static const char *registry_name(struct ggml_registry *registry)
{
    return rules_of((struct pretend_world *)registry)->registry;
}

static size_t get_device_count(struct ggml_registry *registry)
{
    return ((struct pretend_world *)registry)->n_devices;
}

static struct ggml_device *get_device(struct ggml_registry *registry, size_t index)
{
    struct pretend_world *world = (struct pretend_world *)registry;
    return index < world->n_devices ? &world->device[index].abi : NULL;
}

/* An engine asks for the type by main device and shares alone: so each of the first worlds has a
 * function of its own. */
#define SPLIT_WORLDS(X) X(0) X(1) X(2) X(3)

static struct ggml_buffer_type *split_of_world(uint32_t number, int main_device, const float *share)
{
    struct pretend_world *world = pretend_worlds();
    while (world && world->number != number)
        world = world->next;
    struct pretend_buffer_type *type = world ? pretend_split_type(world, main_device, share) : NULL;
    return type ? &type->abi : NULL;
}

#define SPLIT_OF(number)                                                                           \
    static struct ggml_buffer_type *split_of_##number(int main_device, const float *share)         \
    {                                                                                              \
        return split_of_world(number, main_device, share);                                         \
    }
SPLIT_WORLDS(SPLIT_OF)

static void *get_proc_address(struct ggml_registry *registry, const char *name)
{
    static struct ggml_buffer_type *(*const functions[])(int, const float *) = {
#define SPLIT_NAME(number) split_of_##number,
        SPLIT_WORLDS(SPLIT_NAME)};
    const struct pretend_world *world = (const struct pretend_world *)registry;
    void *found = NULL;
    if (rules_of(world)->has_split_buffers &&
        world->number < sizeof functions / sizeof *functions &&
        strcmp(name, "ggml_backend_split_buffer_type") == 0)
        memcpy(&found, &functions[world->number], sizeof found);
    return found;
}

static void make_device(struct pretend_world *world, uint32_t number)
{
    const struct mt_pretend_rules *rules = rules_of(world);
    struct pretend_device *device = &world->device[number];
    device->world = world;
    device->number = number;
    snprintf(device->id, sizeof device->id, "0000:%02x:00.0", number + 1);
    device->abi.registry = &world->registry;
    device->abi.iface = (struct ggml_device_functions){.get_name = get_name,
                                                       .get_description = get_description,
                                                       .get_memory = get_memory,
                                                       .get_type = get_kind,
                                                       .get_props = get_props,
                                                       .init_backend = init_backend,
                                                       .get_buffer_type = get_buffer_type,
                                                       .supports_op = supports_op,
                                                       .supports_buft = supports_buft,
                                                       .offload_op = offload_op};
    if (rules->host_buffer[0])
        device->abi.iface.get_host_buffer_type = get_host_buffer_type;
    if (rules->is_unified)
        device->abi.iface.buffer_from_host_ptr = buffer_from_host_ptr;
    if (rules->has_events)
        pretend_fill_events(&device->abi.iface);
    pretend_make_device_type(&device->type, device);
}

static uint64_t batch_of_offload(const struct mt_pretend_rules *rules)
{
    const char *given = getenv("GGML_OP_OFFLOAD_MIN_BATCH");
    return given && rules->offload_batch ? strtoull(given, NULL, 10) : rules->offload_batch;
}

static void make_devices(struct pretend_world *world)
{
    world->n_devices = world->account->n_devices;
    if (world->n_devices > PRETEND_DEVICES_MAX) {
        world->n_devices = PRETEND_DEVICES_MAX;
        pretend_note("ggml takes 16 devices: those past the 16th are left out.");
    }
    if (rules_of(world)->is_reordered)
        pretend_note("Such a device computes a graph in an order of its own, which is not "
                     "rehearsed: compute buffers have a band of 10 %, which is a guess.");
    world->offload_batch = batch_of_offload(rules_of(world));
    for (uint32_t i = 0; i < world->n_devices; i++)
        make_device(world, i);
    pretend_make_pinned_type(&world->pinned, world);
}

static void refuse(struct mt_account *account, const char *text)
{
    snprintf(account->refusal, sizeof account->refusal, "%s", text);
    __atomic_store_n(&account->is_refused, 1, __ATOMIC_RELEASE);
    pretend_note(text);
}

/* Builds of one's own have the number 0 or 1, which is none. */
static void note_build(struct pretend_world *world, const void *caller)
{
    int (*build_number)(void);
    const char *(*version)(void);
    *(void **)&build_number = pretend_find(caller, "_Z18llama_build_numberv");
    *(void **)&version = pretend_find(caller, "ggml_version");
    int build = build_number ? build_number() : 0;
    pretend_choose_build(world->account, version ? version() : NULL,
                         (uint32_t)world->ggml.api_version, build > 1 ? (uint32_t)build : 0);
    dlerror();
}

/* Whether this ggml is one that we know how to talk to. */
static int meet(struct pretend_world *world, const void *caller)
{
    char text[144];
    const char *missing = NULL;
    if (!pretend_ggml_find(&world->ggml, caller, &missing)) {
        snprintf(text, sizeof text,
                 "this ggml does not export %s; a rehearsal needs an engine built with shared "
                 "libraries",
                 missing);
        refuse(world->account, text);
        return 0;
    }
    int version = pretend_ggml_version(caller);
    if (version < GGML_API_OLDEST || version > GGML_API_NEWEST) {
        snprintf(text, sizeof text,
                 "ggml's backends have API version %d; versions %d to %d are known", version,
                 GGML_API_OLDEST, GGML_API_NEWEST);
        __atomic_store_n(&world->account->api_version, (uint32_t)version, __ATOMIC_RELAXED);
        refuse(world->account, text);
        return 0;
    }
    world->ggml.api_version = version;
    if (pretend_ggml_fits(&world->ggml, caller)) {
        note_build(world, caller);
        return 1;
    }
    refuse(world->account, "the tensors of this ggml are laid out in a way that is not known");
    return 0;
}

static const void *module_of(const void *address)
{
    Dl_info info;
    return dladdr(address, &info) ? info.dli_fbase : NULL;
}

static struct pretend_world *make_world(struct mt_account *account, const void *caller)
{
    struct pretend_world *world = calloc(1, sizeof *world);
    if (!world)
        return NULL;
    world->module = module_of(caller);
    world->account = account;
    world->number = first_world ? first_world->number + 1 : 0;
    if (!meet(world, caller)) {
        free(world);
        return NULL;
    }
    world->registry.api_version = world->ggml.api_version;
    world->registry.iface.get_name = registry_name;
    world->registry.iface.get_device_count = get_device_count;
    world->registry.iface.get_device = get_device;
    world->registry.iface.get_proc_address = get_proc_address;
    make_devices(world);
    world->next = first_world;
    __atomic_store_n(&first_world, world, __ATOMIC_RELEASE);
    __atomic_store_n(&account->api_version, (uint32_t)world->ggml.api_version, __ATOMIC_RELAXED);
    __atomic_fetch_add(&account->n_attached, 1, __ATOMIC_RELAXED);
    return world;
}

/* A ggml that asks again gets the same devices: it knows then that it has them. */
struct ggml_registry *ggml_backend_init(void)
{
    const void *caller = CALLER;
    struct mt_account *account = pretend_account();
    if (account && !account->n_devices)
        __atomic_store_n(&account->api_version, (uint32_t)pretend_ggml_version(caller),
                         __ATOMIC_RELAXED);
    if (!account || !account->n_devices)
        return NULL;
    const void *module = module_of(caller);
    pthread_mutex_lock(&worlds_lock);
    struct pretend_world *world = first_world;
    while (world && world->module != module)
        world = world->next;
    if (!world)
        world = make_world(account, caller);
    pthread_mutex_unlock(&worlds_lock);
    return world ? &world->registry : NULL;
}

int ggml_backend_score(void)
{
    return pretend_account() ? 100 : 0;
}
