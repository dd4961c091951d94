/* SPDX-License-Identifier: MIT */
/* The ggml adapter: where llama.cpp and what is built on it say which buffer is for what.
 *
 * ggml's libraries are often loaded so that RTLD_NEXT cannot see them, and there may be two copies
 * of them in a process. So the real function is looked up from the caller's own library and what it
 * depends on, as the loader would have bound it. These functions are called by an engine and never
 * from inside an allocator, so that asking the loader is safe here. They are compiled with unwind
 * tables: C++ exceptions pass through them. */
#include "recorder/recorder.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "recorder/ggml.h"
#include "recorder/real.h"
#include "recorder/sys.h"

#define FRAME         __builtin_frame_address(0)
#define CALLER        ((uintptr_t)__builtin_return_address(0))
#define CACHE_ENTRIES 16u

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
            MEMBER(ggml_backend_buft_is_host) MEMBER(ggml_get_first_tensor)
                MEMBER(ggml_get_next_tensor) MEMBER(ggml_get_name)};

/* What a caller's module is bound to. `state`: 0 empty, 1 being filled, 2 valid. */
struct ggml_entry {
    uint32_t state;
    uint32_t generation;
    uintptr_t low;
    uintptr_t high;
    struct ggml ggml;
};

struct ggml_cache {
    struct ggml_entry entry[CACHE_ENTRIES];
};

void *ggml_hook_by_name(const char *name)
{
    void *address = NULL;
#define HOOK_GGML(result, hook, parameters)                                                        \
    if (strcmp(name, #hook) == 0) {                                                                \
        result(*function) parameters = hook;                                                       \
        memcpy(&address, &function, sizeof address);                                               \
    }
#include "recorder/hooks.def"
#undef HOOK_GGML
    return address;
}

/* A search over the loaded modules: for the one that an address lies in, or for a symbol. */
struct search {
    uintptr_t address;  /* 0: any module */
    const char *symbol; /* NULL: the module alone is wanted */
    void *hook;         /* not to be taken for the symbol */
    const char *name;   /* of the module found */
    int is_main;
    uintptr_t low;
    uintptr_t high;
    void *found;
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

static void *symbol_of(const char *library, const char *symbol, const void *hook)
{
    void *handle = memtally_real.dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle)
        return NULL;
    void *found = memtally_real.dlsym(handle, symbol);
    dlclose(handle);
    return found == hook ? NULL : found;
}

static int match(struct dl_phdr_info *info, size_t size, void *context)
{
    struct search *search = context;
    uintptr_t low, high;
    (void)size;
    extent_of(info, &low, &high);
    int is_main = !info->dlpi_name || !*info->dlpi_name;
    if (search->address && (search->address < low || search->address >= high))
        return 0;
    if (search->symbol) {
        search->found = is_main ? NULL : symbol_of(info->dlpi_name, search->symbol, search->hook);
        if (!search->found)
            return 0;
    }
    search->name = info->dlpi_name;
    search->is_main = is_main;
    search->low = low;
    search->high = high;
    return 1;
}

void *ggml_find_anywhere(const char *name)
{
    struct search search = {.symbol = name, .hook = ggml_hook_by_name(name)};
    uint32_t busy = memtally_tls.busy;
    memtally_tls.busy = 1;
    dl_iterate_phdr(match, &search);
    memtally_tls.busy = busy;
    return search.found;
}

/* As the loader would bind `name` for `caller`'s module. */
static void *bound_for(const struct search *caller, const char *name)
{
    void *found = NULL;
    if (caller->name && !caller->is_main)
        found = symbol_of(caller->name, name, ggml_hook_by_name(name));
    return found ? found : ggml_find_anywhere(name);
}

static void fill(struct ggml_entry *entry, uintptr_t caller)
{
    struct search search = {.address = caller};
    dl_iterate_phdr(match, &search);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        void *found = bound_for(&search, members[i].name);
        memcpy((char *)&entry->ggml + members[i].offset, &found, sizeof found);
    }
    entry->low = search.low;
    entry->high = search.high;
}

static struct ggml_entry *cached(struct ggml_cache *cache, uintptr_t caller, uint32_t generation)
{
    for (uint32_t i = 0; i < CACHE_ENTRIES; i++) {
        struct ggml_entry *entry = &cache->entry[i];
        if (__atomic_load_n(&entry->state, __ATOMIC_ACQUIRE) == 2 &&
            entry->generation == generation && caller >= entry->low && caller < entry->high)
            return entry;
    }
    return NULL;
}

static struct ggml_entry *claim(struct ggml_cache *cache, uint32_t generation)
{
    for (uint32_t i = 0; i < CACHE_ENTRIES; i++) {
        struct ggml_entry *entry = &cache->entry[i];
        uint32_t state = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
        if (state == 1 || (state == 2 && entry->generation == generation))
            continue;
        if (__atomic_compare_exchange_n(&entry->state, &state, 1, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            return entry;
    }
    return NULL;
}

static struct ggml_cache *the_cache(void)
{
    struct ggml_cache *cache = __atomic_load_n(&memtally_recorder.ggml, __ATOMIC_ACQUIRE);
    if (cache)
        return cache;
    struct ggml_cache *made = mt_sys_map(sizeof *made);
    if (__atomic_compare_exchange_n(&memtally_recorder.ggml, &cache, made, 0, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return made;
    return cache;
}

/* The library behind a call; `own` is for the case that the cache has no room. */
static const struct ggml *library_of(uintptr_t caller, struct ggml_entry *own)
{
    real_ready();
    uint32_t generation = __atomic_load_n(&memtally_recorder.generation, __ATOMIC_RELAXED);
    struct ggml_cache *cache = the_cache();
    struct ggml_entry *entry = cache ? cached(cache, caller, generation) : NULL;
    if (entry)
        return &entry->ggml;
    entry = cache ? claim(cache, generation) : NULL;
    if (!entry)
        entry = own;
    uint32_t busy = memtally_tls.busy;
    memtally_tls.busy = 1;
    fill(entry, caller);
    memtally_tls.busy = busy;
    entry->generation = generation;
    __atomic_store_n(&entry->state, 2, __ATOMIC_RELEASE);
    return &entry->ggml;
}

static const char *type_name(const struct ggml *ggml, void *type)
{
    return ggml->ggml_backend_buft_name ? ggml->ggml_backend_buft_name(type) : "buffer";
}

static void note_buffer(const struct ggml *ggml, void *buffer, void *type, uint32_t flags,
                        const void *frame)
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
    if (type && ggml->ggml_backend_buft_is_host && ggml->ggml_backend_buft_is_host(type))
        flags |= MT_BUFFER_HOST;
    struct thread *thread = enter();
    if (!thread)
        return;
    thread->ggml_recorded++;
    thread->ggml_last = (uint64_t)(uintptr_t)buffer;
    if (thread->ggml_category)
        flags |= MT_BUFFER_TENSORS;
    uint64_t fields[] = {(uint64_t)(uintptr_t)buffer,
                         base,
                         size,
                         flags,
                         thread->ggml_category & 0xff,
                         thread_name(thread, name),
                         stack_number(thread, frame)};
    mt_write_event(&thread->writer, MT_EVENT_BUFFER_ALLOC, now_ticks(), fields, 7);
    leave();
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
    struct ggml_entry own = {0};
    const struct ggml *ggml = library_of(CALLER, &own);
    uint64_t last = 0;
    uint32_t before = recorded(&last);
    if (!ggml->ggml_backend_buft_alloc_buffer)
        return NULL;
    void *buffer = ggml->ggml_backend_buft_alloc_buffer(type, size);
    uint32_t after = recorded(&last);
    if (after == before || last == (uint64_t)(uintptr_t)buffer)
        note_buffer(ggml, buffer, type, 0, FRAME);
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

/* 256 marks tensors of no known category: the bit says that tensors were what it was for. */
static uint32_t category_of_context(const struct ggml *ggml, void *context)
{
    if (!ggml->ggml_get_first_tensor || !ggml->ggml_get_name)
        return 256;
    void *tensor = ggml->ggml_get_first_tensor(context);
    return 256 | (tensor ? category_of_tensor(ggml->ggml_get_name(tensor)) : 0);
}

static uint32_t swap_category(uint32_t category)
{
    struct thread *thread = enter();
    if (!thread)
        return 0;
    uint32_t before = thread->ggml_category;
    thread->ggml_category = category;
    leave();
    return before;
}

void *ggml_backend_alloc_ctx_tensors_from_buft(void *context, void *type)
{
    struct ggml_entry own = {0};
    const struct ggml *ggml = library_of(CALLER, &own);
    uint64_t last = 0;
    if (!ggml->ggml_backend_alloc_ctx_tensors_from_buft)
        return NULL;
    uint32_t outer = swap_category(category_of_context(ggml, context));
    uint32_t before = recorded(&last);
    void *buffer = ggml->ggml_backend_alloc_ctx_tensors_from_buft(context, type);
    if (recorded(&last) == before)
        note_buffer(ggml, buffer, type, 0, FRAME);
    swap_category(outer);
    return buffer;
}

size_t ggml_backend_alloc_ctx_tensors_from_buft_size(void *context, void *type)
{
    struct ggml_entry own = {0};
    const struct ggml *ggml = library_of(CALLER, &own);
    if (!ggml->ggml_backend_alloc_ctx_tensors_from_buft_size)
        return 0;
    return ggml->ggml_backend_alloc_ctx_tensors_from_buft_size(context, type);
}

void *ggml_backend_dev_buffer_from_host_ptr(void *device, void *address, size_t size,
                                            size_t max_tensor_size)
{
    struct ggml_entry own = {0};
    const struct ggml *ggml = library_of(CALLER, &own);
    if (!ggml->ggml_backend_dev_buffer_from_host_ptr)
        return NULL;
    void *buffer =
        ggml->ggml_backend_dev_buffer_from_host_ptr(device, address, size, max_tensor_size);
    note_buffer(ggml, buffer, NULL, MT_BUFFER_HOST | MT_BUFFER_HOST_PTR, FRAME);
    return buffer;
}

void ggml_backend_buffer_set_usage(void *buffer, int usage)
{
    struct ggml_entry own = {0};
    const struct ggml *ggml = library_of(CALLER, &own);
    struct thread *thread = enter();
    if (thread) {
        uint64_t fields[] = {(uint64_t)(uintptr_t)buffer, (uint64_t)(uint32_t)usage};
        mt_write_event(&thread->writer, MT_EVENT_BUFFER_USAGE, now_ticks(), fields, 2);
        leave();
    }
    if (ggml->ggml_backend_buffer_set_usage)
        ggml->ggml_backend_buffer_set_usage(buffer, usage);
}

void ggml_backend_buffer_free(void *buffer)
{
    struct ggml_entry own = {0};
    const struct ggml *ggml = library_of(CALLER, &own);
    struct thread *thread = buffer ? enter() : NULL;
    if (thread) {
        uint64_t field = (uint64_t)(uintptr_t)buffer;
        look_before_buffer_goes(thread);
        mt_write_event(&thread->writer, MT_EVENT_BUFFER_FREE, now_ticks(), &field, 1);
        leave();
    }
    if (ggml->ggml_backend_buffer_free)
        ggml->ggml_backend_buffer_free(buffer);
}
