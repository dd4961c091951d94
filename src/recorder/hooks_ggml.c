/* SPDX-License-Identifier: MIT */
/* The ggml adapter: where llama.cpp and what is built on it say which buffer is for what.
 *
 * ggml's libraries are often loaded so that RTLD_NEXT cannot see them, and there may be two copies
 * of them in a process. So the real function is looked up from the caller's own library and what it
 * depends on, as the loader would have bound it. These functions are called by an engine and never
 * from inside an allocator, so that asking the loader is safe here. They are compiled with unwind
 * tables: C++ exceptions pass through them, and nothing of theirs runs when one does. */
#include "recorder/recorder.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include <memtally/category.h>

#include "recorder/ggml.h"
#include "recorder/modules.h"
#include "recorder/real.h"
#include "recorder/sys.h"

#define FRAME              __builtin_frame_address(0)
#define CALLER             ((uintptr_t)__builtin_return_address(0))
#define CACHE_ENTRIES      16u
#define MODULE_NAMES_BYTES 262144u

#define HOOK(result, name, parameters)
#define HOOK_GGML(result, name, parameters) EXPORTED result name parameters;
#define HOOK_JUMP(name)
#define HOOK_OWN(result, name, parameters)
#include "recorder/hooks.def"
#undef HOOK_GGML

/* The real functions and the questions that the adapter asks of the same library. Any may be NULL
 * where a version lacks it. */
struct ggml {
#define HOOK_GGML(result, name, parameters) result(*name) parameters;
#include "recorder/hooks.def"
#undef HOOK_GGML
    void *(*ggml_backend_buffer_get_base)(void *buffer);
    size_t (*ggml_backend_buffer_get_size)(void *buffer);
    void *(*ggml_backend_buffer_get_type)(void *buffer);
    const char *(*ggml_backend_buft_name)(void *type);
    _Bool (*ggml_backend_buft_is_host)(void *type);
    void *(*ggml_backend_buft_get_device)(void *type);
    int (*ggml_backend_dev_type)(void *device);
    void *(*ggml_get_first_tensor)(const void *context);
    void *(*ggml_get_next_tensor)(const void *context, void *tensor);
    const char *(*ggml_get_name)(const void *tensor);
};

static const struct {
    const char *name;
    size_t offset;
} members[] = {
#define MEMBER(name)                        {#name, offsetof(struct ggml, name)},
#define HOOK_GGML(result, name, parameters) MEMBER(name)
#include "recorder/hooks.def"
#undef HOOK_GGML
    MEMBER(ggml_backend_buffer_get_base) MEMBER(ggml_backend_buffer_get_size)
        MEMBER(ggml_backend_buffer_get_type) MEMBER(ggml_backend_buft_name)
            MEMBER(ggml_backend_buft_is_host) MEMBER(ggml_backend_buft_get_device)
                MEMBER(ggml_backend_dev_type) MEMBER(ggml_get_first_tensor)
                    MEMBER(ggml_get_next_tensor) MEMBER(ggml_get_name)};

/* What a caller's module is bound to. `sequence` is odd while the entry is being written. */
struct ggml_entry {
    uint32_t sequence;
    uint64_t generation; /* of the list of modules that it was looked up in; 0: empty */
    uintptr_t low;
    uintptr_t high;
    struct ggml ggml;
};

struct ggml_cache {
    struct ggml_entry entry[CACHE_ENTRIES];
};

void *ggml_hook_by_name(const char *name, const char **unfindable)
{
    void *address = NULL;
#define HOOK_GGML(result, hook, parameters)                                                        \
    if (strcmp(name, #hook) == 0) {                                                                \
        result(*function) parameters = hook;                                                       \
        memcpy(&address, &function, sizeof address);                                               \
        if (unfindable)                                                                            \
            *unfindable = #hook " ";                                                               \
    }
#include "recorder/hooks.def"
#undef HOOK_GGML
    return address;
}

/* The names of the loaded modules, copied: the loader must not be asked for a symbol while it holds
 * the lock of its list, since it takes its locks in the other order when it loads. */
struct modules {
    size_t used;
    size_t caller_name; /* of the module that an address lies in; SIZE_MAX: the program itself */
    uintptr_t caller;
    uintptr_t low;
    uintptr_t high;
    char names[MODULE_NAMES_BYTES]; /* each with its zero */
};

static void extent_of(const struct dl_phdr_info *info, uintptr_t *low, uintptr_t *high)
{
    *low = UINTPTR_MAX;
    *high = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type != PT_LOAD)
            continue;
        if (start < *low)
            *low = start;
        if (start + segment->p_memsz > *high)
            *high = start + segment->p_memsz;
    }
}

static int copy_module(struct dl_phdr_info *info, size_t size, void *context)
{
    struct modules *modules = context;
    const char *name = info->dlpi_name ? info->dlpi_name : "";
    size_t length = strlen(name);
    uintptr_t low, high;
    (void)size;
    extent_of(info, &low, &high);
    if (modules->caller >= low && modules->caller < high) {
        modules->low = low;
        modules->high = high;
        modules->caller_name = length ? modules->used : SIZE_MAX;
    }
    if (!length || length >= sizeof modules->names - modules->used)
        return 0;
    memcpy(modules->names + modules->used, name, length + 1);
    modules->used += length + 1;
    return 0;
}

static struct modules *copy_modules(uintptr_t caller)
{
    struct modules *modules = mt_sys_map(sizeof *modules);
    if (!modules)
        return NULL;
    modules->caller = caller;
    modules->caller_name = SIZE_MAX;
    dl_iterate_phdr(copy_module, modules);
    return modules;
}

static void drop_modules(struct modules *modules)
{
    if (modules)
        MT_SYS2(SYS_munmap, modules, sizeof *modules);
}

static void *symbol_of(const char *library, const char *symbol)
{
    void *handle = memtally_real.dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle)
        return NULL;
    void *found = memtally_real.dlsym(handle, symbol);
    dlclose(handle);
    return is_own(found) ? NULL : found;
}

static void *find_in(const struct modules *modules, const char *symbol)
{
    void *found = NULL;
    for (size_t at = 0; !found && at < modules->used; at += strlen(modules->names + at) + 1)
        found = symbol_of(modules->names + at, symbol);
    return found;
}

void *find_anywhere(const char *name)
{
    struct modules *modules = copy_modules(0);
    void *found = modules ? find_in(modules, name) : NULL;
    drop_modules(modules);
    return found;
}

/* As the loader would bind `name` for the caller's module. */
static void *bound_for(const struct modules *modules, const char *name)
{
    void *found = NULL;
    if (modules->caller_name != SIZE_MAX)
        found = symbol_of(modules->names + modules->caller_name, name);
    return found ? found : find_in(modules, name);
}

static int count_changes(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size;
    *(uint64_t *)context = (uint64_t)info->dlpi_adds << 32 | (uint32_t)info->dlpi_subs;
    return 1;
}

uint64_t loader_generation(void)
{
    uint64_t generation = 0;
    dl_iterate_phdr(count_changes, &generation);
    return generation;
}

void *find_bound(const char *name, uintptr_t caller, uintptr_t *low, uintptr_t *high)
{
    struct modules *modules = copy_modules(caller);
    if (!modules)
        return NULL;
    loader_errors_aside();
    void *found = bound_for(modules, name);
    loader_errors_back();
    *low = modules->low;
    *high = modules->high;
    drop_modules(modules);
    return found;
}

static int copy_entry(const struct ggml_entry *entry, uintptr_t caller, uint64_t generation,
                      struct ggml *ggml)
{
    uint32_t sequence = __atomic_load_n(&entry->sequence, __ATOMIC_ACQUIRE);
    if (sequence & 1 || entry->generation != generation || caller < entry->low ||
        caller >= entry->high)
        return 0;
    *ggml = entry->ggml;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&entry->sequence, __ATOMIC_RELAXED) == sequence;
}

static void keep_entry(struct ggml_entry *entry, const struct ggml_entry *made)
{
    if (!entry_claim(&entry->sequence))
        return;
    entry->generation = made->generation;
    entry->low = made->low;
    entry->high = made->high;
    entry->ggml = made->ggml;
    entry_release(&entry->sequence);
}

static struct ggml_cache *the_cache(void)
{
    struct ggml_cache *cache = __atomic_load_n(&memtally_recorder.ggml, __ATOMIC_ACQUIRE);
    if (cache)
        return cache;
    struct ggml_cache *made = mt_sys_map(sizeof *made);
    if (__atomic_compare_exchange_n(&memtally_recorder.ggml, &cache, made, 0, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
        struct thread *thread = made ? enter() : NULL;
        if (thread) {
            write_self(thread, made, sizeof *made);
            leave();
        }
        return made;
    }
    if (made)
        MT_SYS2(SYS_munmap, made, sizeof *made);
    return cache;
}

static void look_up(uintptr_t caller, struct ggml_entry *made)
{
    struct modules *modules = copy_modules(caller);
    if (!modules)
        return;
    loader_errors_aside(); /* some names a library may lack */
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        void *found = bound_for(modules, members[i].name);
        memcpy((char *)&made->ggml + members[i].offset, &found, sizeof found);
    }
    made->low = modules->low;
    made->high = modules->high;
    loader_errors_back();
    drop_modules(modules);
}

/* A ggml function that ends by jumping to another seems to call from the hook that called it. */
static uintptr_t true_caller(uintptr_t caller)
{
    struct tls *tls = &memtally_tls;
    if (caller < memtally_real.own_low || caller >= memtally_real.own_high)
        tls->ggml_caller = caller;
    return tls->ggml_caller;
}

/* The library behind a call. */
static void library_of(uintptr_t address, struct ggml *ggml)
{
    struct ggml_entry made = {0};
    real_ready();
    uintptr_t caller = true_caller(address);
    made.generation = loader_generation();
    struct ggml_cache *cache = the_cache();
    for (uint32_t i = 0; cache && i < CACHE_ENTRIES; i++)
        if (copy_entry(&cache->entry[i], caller, made.generation, ggml))
            return;
    look_up(caller, &made);
    *ggml = made.ggml;
    if (cache && made.high)
        keep_entry(&cache->entry[(made.low >> 12) % CACHE_ENTRIES], &made);
}

/* A call that allocates for the tensors of a context, in the caller's stack frame. It is over when
 * it says so, or when an exception has passed it: then newer frames lie over it, or none does. */
struct ggml_call {
    uint64_t ticket;
    uint32_t category;
    const struct ggml_call *outer;
    uint64_t outer_ticket;
};

static int is_on_stack(const struct ggml_call *call, const void *frame)
{
    const struct tls *tls = &memtally_tls;
    return (uintptr_t)call > (uintptr_t)frame && (uintptr_t)frame >= tls->stack_low &&
           (uintptr_t)(call + 1) <= tls->stack_high;
}

static const struct ggml_call *current_call(const struct thread *thread, const void *frame)
{
    const struct ggml_call *call = thread->ggml_call;
    if (!call || !is_on_stack(call, frame) || call->ticket != thread->ggml_ticket)
        return NULL;
    return call;
}

static const char *type_name(const struct ggml *ggml, void *type)
{
    return ggml->ggml_backend_buft_name ? ggml->ggml_backend_buft_name(type) : "buffer";
}

/* Whether a type's memory is the host's. ggml calls only memory "host" that any code may read: the
 * processor's own layouts (CPU_REPACK, AMX) are not that, but their device is the processor. */
static int is_host_memory(const struct ggml *ggml, void *type)
{
    enum { DEVICE_IS_CPU = 0 };
    if (ggml->ggml_backend_buft_is_host && ggml->ggml_backend_buft_is_host(type))
        return 1;
    if (!ggml->ggml_backend_buft_get_device || !ggml->ggml_backend_dev_type)
        return 0;
    void *device = ggml->ggml_backend_buft_get_device(type);
    return device && ggml->ggml_backend_dev_type(device) == DEVICE_IS_CPU;
}

static void note_buffer(const struct ggml *ggml, void *buffer, void *type, uint32_t flags,
                        const struct ggml_call *call, const void *frame)
{
    if (!buffer || !ggml->ggml_backend_buffer_get_size || !ggml->ggml_backend_buffer_get_base)
        return;
    uint64_t size = ggml->ggml_backend_buffer_get_size(buffer);
    if (!size)
        return;
    uint64_t base = (uint64_t)(uintptr_t)ggml->ggml_backend_buffer_get_base(buffer);
    if (!type && ggml->ggml_backend_buffer_get_type)
        type = ggml->ggml_backend_buffer_get_type(buffer);
    const char *name = type ? type_name(ggml, type) : "buffer";
    if (type && is_host_memory(ggml, type))
        flags |= MT_BUFFER_HOST;
    struct thread *thread = enter();
    if (!thread)
        return;
    thread->ggml_recorded++;
    thread->ggml_last = (uint64_t)(uintptr_t)buffer;
    if (call)
        flags |= MT_BUFFER_TENSORS;
    uint64_t fields[] = {(uint64_t)(uintptr_t)buffer,
                         base,
                         size,
                         flags,
                         call ? call->category : MT_CATEGORY_NONE,
                         thread_name(thread, name),
                         stack_number(thread, frame, now_ticks())};
    mt_write_event(&thread->writer, MT_EVENT_BUFFER_ALLOC, now_ticks(), fields, 7);
    leave();
}

/* The call that the frame of a hook is part of. */
static const struct ggml_call *call_around(const void *frame)
{
    struct thread *thread = enter();
    if (!thread)
        return NULL;
    const struct ggml_call *call = current_call(thread, frame);
    leave();
    return call;
}

/* How many buffers this thread has recorded, and the last of them. */
static uint32_t recorded(uint64_t *last)
{
    struct thread *thread = enter();
    if (!thread)
        return 0;
    uint32_t count = thread->ggml_recorded;
    *last = thread->ggml_last;
    leave();
    return count;
}

/* A type may take its memory from another type (CPU_REPACK from CPU: the same buffer then gets its
 * new name) or put several buffers into one (then the parts are recorded and the whole is not). */
void *ggml_backend_buft_alloc_buffer(void *type, size_t size)
{
    struct ggml ggml;
    library_of(CALLER, &ggml);
    uint64_t last = 0;
    uint32_t before = recorded(&last);
    if (!ggml.ggml_backend_buft_alloc_buffer)
        return NULL;
    void *buffer = ggml.ggml_backend_buft_alloc_buffer(type, size);
    uint32_t after = recorded(&last);
    if (after == before || last == (uint64_t)(uintptr_t)buffer)
        note_buffer(&ggml, buffer, type, 0, call_around(FRAME), FRAME);
    return buffer;
}

/* llama.cpp names the tensors of its caches cache_k_l0, cache_v_l0, cache_idx_k_l0 … for attention
 * and cache_r_l0, cache_s_l0, cache_ple_r_l0, dsv4_…_state_… for recurrent layers. */
static uint32_t category_of_tensor(const char *name)
{
    if (strncmp(name, "dsv4_", 5) == 0 && strstr(name, "_state_"))
        return MT_CATEGORY_RECURRENT_STATE;
    if (strncmp(name, "cache_", 6) != 0)
        return MT_CATEGORY_NONE;
    if (strstr(name, "k_l") || strstr(name, "v_l"))
        return MT_CATEGORY_KV_CACHE;
    if (strstr(name, "r_l") || strstr(name, "s_l"))
        return MT_CATEGORY_RECURRENT_STATE;
    return MT_CATEGORY_NONE;
}

static uint32_t category_of_context(const struct ggml *ggml, void *context)
{
    if (!ggml->ggml_get_first_tensor || !ggml->ggml_get_name)
        return MT_CATEGORY_NONE;
    void *tensor = ggml->ggml_get_first_tensor(context);
    return tensor ? category_of_tensor(ggml->ggml_get_name(tensor)) : MT_CATEGORY_NONE;
}

static void call_begin(struct ggml_call *call, uint32_t category, const void *frame)
{
    struct thread *thread = enter();
    if (!thread)
        return;
    call->outer = current_call(thread, frame);
    call->outer_ticket = call->outer ? call->outer->ticket : 0;
    call->category = category;
    call->ticket = ++thread->ggml_next_ticket;
    thread->ggml_call = call;
    thread->ggml_ticket = call->ticket;
    leave();
}

static void call_end(struct ggml_call *call)
{
    struct thread *thread = enter();
    if (!thread)
        return;
    thread->ggml_call = call->outer;
    thread->ggml_ticket = call->outer_ticket;
    *(volatile uint64_t *)&call->ticket = 0;
    leave();
}

void *ggml_backend_alloc_ctx_tensors_from_buft(void *context, void *type)
{
    struct ggml ggml;
    struct ggml_call call = {0};
    uint64_t last = 0;
    library_of(CALLER, &ggml);
    if (!ggml.ggml_backend_alloc_ctx_tensors_from_buft)
        return NULL;
    call_begin(&call, category_of_context(&ggml, context), FRAME);
    uint32_t before = recorded(&last);
    void *buffer = ggml.ggml_backend_alloc_ctx_tensors_from_buft(context, type);
    if (recorded(&last) == before)
        note_buffer(&ggml, buffer, type, 0, &call, FRAME);
    call_end(&call);
    return buffer;
}

size_t ggml_backend_alloc_ctx_tensors_from_buft_size(void *context, void *type)
{
    struct ggml ggml;
    library_of(CALLER, &ggml);
    if (!ggml.ggml_backend_alloc_ctx_tensors_from_buft_size)
        return 0;
    return ggml.ggml_backend_alloc_ctx_tensors_from_buft_size(context, type);
}

void *ggml_backend_dev_buffer_from_host_ptr(void *device, void *address, size_t size,
                                            size_t max_tensor_size)
{
    struct ggml ggml;
    library_of(CALLER, &ggml);
    if (!ggml.ggml_backend_dev_buffer_from_host_ptr)
        return NULL;
    void *buffer =
        ggml.ggml_backend_dev_buffer_from_host_ptr(device, address, size, max_tensor_size);
    note_buffer(&ggml, buffer, NULL, MT_BUFFER_HOST | MT_BUFFER_HOST_PTR, NULL, FRAME);
    return buffer;
}

void ggml_backend_buffer_set_usage(void *buffer, int usage)
{
    struct ggml ggml;
    library_of(CALLER, &ggml);
    struct thread *thread = enter();
    if (thread) {
        uint64_t fields[] = {(uint64_t)(uintptr_t)buffer, (uint64_t)(uint32_t)usage};
        mt_write_event(&thread->writer, MT_EVENT_BUFFER_USAGE, now_ticks(), fields, 2);
        leave();
    }
    if (ggml.ggml_backend_buffer_set_usage)
        ggml.ggml_backend_buffer_set_usage(buffer, usage);
}

void ggml_backend_buffer_free(void *buffer)
{
    struct ggml ggml;
    library_of(CALLER, &ggml);
    struct thread *thread = buffer ? enter() : NULL;
    if (thread) {
        uint64_t field = (uint64_t)(uintptr_t)buffer;
        look_before_buffer_goes(thread);
        mt_write_event(&thread->writer, MT_EVENT_BUFFER_FREE, now_ticks(), &field, 1);
        leave();
    }
    if (ggml.ggml_backend_buffer_free)
        ggml.ggml_backend_buffer_free(buffer);
}
