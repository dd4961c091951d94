/* SPDX-License-Identifier: MIT */
/* Which buffer is for what, and the buffers of the host's memory, which the engine makes itself.
 * The pretended devices note their own buffers; from here they learn what for. */
#include "hooks_buffers.h"

#include <string.h>
#include <unistd.h>

#include "hooks_host.h"
#include "purpose.h"
#include "rehearse/account_note.h"
#include "rehearse/account_write.h"

#define BUFFERS_MAX 4096u

/* Buffers of the host that are counted, by address: a thread's own process only, see fork_owner.
 * Linear probing over a fixed table; a buffer that finds no room is counted and never given back.
 */
struct held {
    void *buffer;
    uint64_t bytes;
    uint32_t pid;
};

static struct held held[BUFFERS_MAX];
static uint32_t n_probed; /* slots from a buffer's first to its own, at most */

static uint32_t first_slot(const void *buffer)
{
    return (uint32_t)(((uintptr_t)buffer >> 4) * 2654435761u) % BUFFERS_MAX;
}

static void hold(void *buffer, uint64_t bytes)
{
    uint32_t at = first_slot(buffer);
    for (uint32_t i = 0; i < BUFFERS_MAX; i++, at = (at + 1) % BUFFERS_MAX) {
        void *empty = NULL;
        if (!__atomic_compare_exchange_n(&held[at].buffer, &empty, buffer, 0, __ATOMIC_ACQ_REL,
                                         __ATOMIC_RELAXED))
            continue;
        held[at].bytes = bytes;
        held[at].pid = (uint32_t)getpid();
        uint32_t most = __atomic_load_n(&n_probed, __ATOMIC_RELAXED);
        while (most < i + 1 && !__atomic_compare_exchange_n(&n_probed, &most, i + 1, 1,
                                                            __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
        }
        return;
    }
}

/* Slots are never marked as once used: as many are looked at as any buffer was put behind its
 * first. Engines make and free many that are not counted, one for each tensor that they place. A
 * child that lets go of what it inherited says nothing: its parent still holds it. */
static uint64_t let_go(const void *buffer)
{
    uint32_t at = first_slot(buffer);
    uint32_t most = __atomic_load_n(&n_probed, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < most; i++, at = (at + 1) % BUFFERS_MAX) {
        if (__atomic_load_n(&held[at].buffer, __ATOMIC_ACQUIRE) != buffer)
            continue;
        uint64_t bytes = held[at].pid == (uint32_t)getpid() ? held[at].bytes : 0;
        __atomic_store_n(&held[at].buffer, NULL, __ATOMIC_RELEASE);
        return bytes;
    }
    return 0;
}

static void note_host_buffer(void *buffer, uint64_t bytes, uint32_t flags, const char *name)
{
    const char *detail;
    enum mt_category category = current_purpose(&detail);
    pretend_note_alloc(MT_ACCOUNT_HOST, category, flags, buffer, bytes, name, detail);
    hold(buffer, bytes);
}

static void forget_type(struct hook_thread **thread)
{
    (*thread)->type = NULL;
}

/* What was taken for a buffer that is not made yet; given back also where an exception passes. */
static void give_back(const uint64_t *bytes)
{
    if (*bytes)
        pretend_give_back(MT_ACCOUNT_HOST, *bytes);
}

/* The innermost of several calls for one buffer makes it, under the outermost one's name. */
static void *allocate_host(struct engine *engine, void *type, size_t size)
{
    __attribute__((cleanup(forget_type))) struct hook_thread *thread = hook_thread();
    const char *name =
        real_ggml_backend_buft_name(engine) ? real_ggml_backend_buft_name(engine)(type) : "host";
    uint64_t free_bytes = 0;
    if (!pretend_take(MT_ACCOUNT_HOST, size, &free_bytes)) {
        const char *detail;
        enum mt_category category = current_purpose(&detail);
        pretend_note_refuse(MT_ACCOUNT_HOST, category, size, free_bytes, name, detail);
        return NULL;
    }
    __attribute__((cleanup(give_back))) uint64_t taken = size;
    thread->type = name;
    void *buffer = host_buffer(engine, type, size);
    if (!buffer)
        return NULL;
    note_host_buffer(buffer, size, 0, name);
    taken = 0;
    return buffer;
}

static void note_foreign(struct engine *engine, void *type)
{
    static uint32_t is_noted;
    if (__atomic_exchange_n(&is_noted, 1, __ATOMIC_RELAXED))
        return;
    char text[128];
    snprintf(text, sizeof text,
             "Buffers of %s lie on no device of this rehearsal and are not counted.",
             real_ggml_backend_buft_name(engine) ? real_ggml_backend_buft_name(engine)(type)
                                                 : "another device");
    pretend_note(text);
}

/* What is allocated by itself is for outputs, unless a call around it says otherwise. */
static void keep_purpose(struct purpose *purpose)
{
    const char *detail;
    enum mt_category category = current_purpose(&detail);
    char kept[sizeof purpose->detail];
    snprintf(kept, sizeof kept, "%s", detail);
    purpose_begin(purpose, category ? category : MT_CATEGORY_ACTIVATIONS, kept, NULL);
}

void *ggml_backend_buft_alloc_buffer(void *type, size_t size)
{
    struct engine *engine = engine_of(CALLER);
    struct hook_thread *thread = hook_thread();
    if (!rehearsal() || !size || thread->type)
        return real_ggml_backend_buft_alloc_buffer(engine)(type, size);
    PURPOSE purpose;
    keep_purpose(&purpose);
    unsigned before = thread->n_buffers;
    enum memory_place place = memory_of_type(engine, type);
    void *buffer = place == MEMORY_HOST ? allocate_host(engine, type, size)
                                        : real_ggml_backend_buft_alloc_buffer(engine)(type, size);
    /* One that is made of others is counted by them. */
    if (buffer && place == MEMORY_FOREIGN && thread->n_buffers == before)
        note_foreign(engine, type);
    thread->n_buffers += buffer != NULL;
    return buffer;
}

/* llama.cpp names the tensors of its caches cache_k_l0, cache_v_l0, cache_idx_k_l0 … for attention
 * and cache_r_l0, cache_s_l0, cache_ple_r_l0, dsv4_…_state_… for recurrent layers. */
static enum mt_category category_of_tensor(const char *name)
{
    size_t length = strlen(name);
    if (strncmp(name, "dsv4_", 5) == 0 && strstr(name, "_state_"))
        return MT_CATEGORY_RECURRENT_STATE;
    if (strncmp(name, "cache_", 6) == 0 && (strstr(name, "k_l") || strstr(name, "v_l")))
        return MT_CATEGORY_KV_CACHE;
    if (strncmp(name, "cache_", 6) == 0 && (strstr(name, "r_l") || strstr(name, "s_l")))
        return MT_CATEGORY_RECURRENT_STATE;
    if ((length > 7 && strcmp(name + length - 7, ".weight") == 0) ||
        (length > 5 && strcmp(name + length - 5, ".bias") == 0) || strstr(name, ".lora_"))
        return MT_CATEGORY_WEIGHTS;
    return MT_CATEGORY_NONE;
}

static size_t count_tensors(struct engine *engine, void *context, void *tensor)
{
    size_t count = 0;
    for (; tensor; count++)
        tensor = real_ggml_get_next_tensor(engine)(context, tensor);
    return count;
}

/* While a model is loaded, whatever has no telling name is weights too. */
void tensors_purpose(struct engine *engine, void *context, struct purpose *purpose)
{
    char text[sizeof purpose->detail] = "";
    enum mt_category category = current_purpose(NULL);
    void *tensor = real_ggml_get_first_tensor(engine) && real_ggml_get_next_tensor(engine) &&
                           real_ggml_get_name(engine)
                       ? real_ggml_get_first_tensor(engine)(context)
                       : NULL;
    category = category == MT_CATEGORY_WORKSPACE ? MT_CATEGORY_WEIGHTS : category;
    if (tensor) {
        const char *name = real_ggml_get_name(engine)(tensor);
        enum mt_category of_name = category_of_tensor(name);
        size_t count = count_tensors(engine, context, tensor);
        category = of_name ? of_name : category;
        if (count > 1)
            snprintf(text, sizeof text, "%s and %zu more tensors", name, count - 1);
        else
            snprintf(text, sizeof text, "%s", name);
    }
    purpose_begin(purpose, category, text, current_owner());
}

void *ggml_backend_alloc_ctx_tensors_from_buft(void *context, void *type)
{
    struct engine *engine = engine_of(CALLER);
    if (!rehearsal())
        return real_ggml_backend_alloc_ctx_tensors_from_buft(engine)(context, type);
    PURPOSE purpose;
    tensors_purpose(engine, context, &purpose);
    return real_ggml_backend_alloc_ctx_tensors_from_buft(engine)(context, type);
}

void *ggml_backend_dev_buffer_from_host_ptr(void *device, void *address, size_t size,
                                            size_t max_tensor_size)
{
    struct engine *engine = engine_of(CALLER);
    if (!rehearsal())
        return real_ggml_backend_dev_buffer_from_host_ptr(engine)(device, address, size,
                                                                  max_tensor_size);
    PURPOSE purpose;
    purpose_begin(&purpose, MT_CATEGORY_WEIGHTS, "mapped", current_owner());
    void *buffer =
        real_ggml_backend_dev_buffer_from_host_ptr(engine)(device, address, size, max_tensor_size);
    hook_thread()->n_buffers += buffer != NULL;
    if (!buffer || is_pretended(device))
        return buffer;
    /* What is mapped is the kernel's to drop: it counts, and nothing refuses it. */
    void *type = real_ggml_backend_buffer_get_type(engine)
                     ? real_ggml_backend_buffer_get_type(engine)(buffer)
                     : NULL;
    host_take_unlimited(size);
    note_host_buffer(buffer, size, MT_ACCOUNT_MAPPED,
                     type && real_ggml_backend_buft_name(engine)
                         ? real_ggml_backend_buft_name(engine)(type)
                         : "CPU_Mapped");
    return buffer;
}

static enum mt_category category_of_usage(int usage)
{
    enum { USAGE_WEIGHTS = 1, USAGE_COMPUTE = 2 };
    if (usage == USAGE_WEIGHTS)
        return MT_CATEGORY_WEIGHTS;
    return usage == USAGE_COMPUTE ? MT_CATEGORY_ACTIVATIONS : MT_CATEGORY_NONE;
}

void ggml_backend_buffer_set_usage(void *buffer, int usage)
{
    struct engine *engine = engine_of(CALLER);
    enum mt_category category = category_of_usage(usage);
    if (rehearsal() && buffer && category && real_ggml_backend_buffer_get_size(engine) &&
        real_ggml_backend_buffer_get_type(engine)) {
        size_t size = real_ggml_backend_buffer_get_size(engine)(buffer);
        uint32_t place = place_of_type(engine, real_ggml_backend_buffer_get_type(engine)(buffer));
        if (size)
            pretend_note_usage(place, category, buffer, size, NULL);
    }
    real_ggml_backend_buffer_set_usage(engine)(buffer, usage);
}

/* Weights for the processor's own layouts are read into a block as large as the tensor, which the
 * engine clears by itself, and are then set from there. For a rehearsal they are read in place, see
 * note_staging(); what is mapped is set from the mapping and never asked for here. */
_Bool ggml_backend_buffer_is_host(void *buffer)
{
    struct engine *engine = engine_of(CALLER);
    _Bool is_host = real_ggml_backend_buffer_is_host(engine)(buffer);
    hook_thread()->is_staged = !is_host && buffer && rehearsal() &&
                               current_purpose(NULL) == MT_CATEGORY_WORKSPACE && is_emptied(buffer);
    return is_host || hook_thread()->is_staged;
}

void note_staging(void *to, size_t size)
{
    static const char name[] = "heap", detail[] = "staging of one tensor";
    uint64_t free_bytes;
    if (!hook_thread()->is_staged || size < LARGE_BYTES)
        return;
    hook_thread()->is_staged = 0;
    if (!pretend_take(MT_ACCOUNT_HOST, size, &free_bytes)) {
        pretend_note_refuse(MT_ACCOUNT_HOST, MT_CATEGORY_WORKSPACE, size, free_bytes, name, detail);
        return;
    }
    pretend_note_alloc(MT_ACCOUNT_HOST, MT_CATEGORY_WORKSPACE, 0, to, size, name, detail);
    pretend_note_free(MT_ACCOUNT_HOST, to, size);
    pretend_give_back(MT_ACCOUNT_HOST, size);
}

void ggml_backend_buffer_free(void *buffer)
{
    struct engine *engine = engine_of(CALLER);
    uint64_t bytes = rehearsal() && buffer ? let_go(buffer) : 0;
    if (bytes) {
        pretend_note_free(MT_ACCOUNT_HOST, buffer, bytes);
        pretend_give_back(MT_ACCOUNT_HOST, bytes);
    }
    real_ggml_backend_buffer_free(engine)(buffer);
}
