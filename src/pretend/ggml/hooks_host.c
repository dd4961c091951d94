/* SPDX-License-Identifier: MIT */
/* Buffers of the host that take address space and no memory.
 *
 * The type's own function makes a small buffer; then its memory and size are replaced, and so are
 * the functions that would fill it. How many functions a buffer has differs between versions: the
 * type, the memory and the size lie behind them, in this order, and are known. */
#include "hooks_host.h"

#include <string.h>

#include "host_memory.h"

#define HEAD_BYTES  65536u /* before the memory: what was replaced; a page of any size */
#define SMALL_BYTES 4096u

/* A buffer, as all versions since the first with these functions lay it out. */
enum buffer_word {
    FREE_BUFFER,
    GET_BASE,
    INIT_TENSOR,
    MEMSET_TENSOR,
    SET_TENSOR,
    GET_TENSOR,
    FEWEST_FUNCTIONS = 9, /* cpy_tensor, clear and reset are the last; two more may be between */
    MOST_FUNCTIONS = 11
};

struct head {
    void *small_memory; /* as the type's own function made it */
    void (*free_buffer)(void **buffer);
    size_t functions;
    size_t size;
    void *(*get_data)(const void *tensor);
    _Bool (*copy_tensor)(void **buffer, const void *from, void *to);
    size_t (*n_bytes)(const void *tensor);
};

static struct head *head_of(void *memory)
{
    return (struct head *)((char *)memory - HEAD_BYTES);
}

static size_t functions_of(void *const *buffer, const void *type, size_t size)
{
    for (size_t n = FEWEST_FUNCTIONS; n <= MOST_FUNCTIONS; n += 2)
        if (buffer[n] == type && buffer[n + 2] == (void *)size)
            return n;
    return 0;
}

/* Where the buffer keeps its memory: behind the functions and the type. */
static struct head *head_of_buffer(void *const *buffer)
{
    for (size_t n = FEWEST_FUNCTIONS; n <= MOST_FUNCTIONS; n += 2) {
        char *memory = buffer[n + 1];
        size_t size = (size_t)buffer[n + 2];
        if (host_memory_owns(memory - HEAD_BYTES, HEAD_BYTES) && head_of(memory)->functions == n &&
            head_of(memory)->size == size)
            return head_of(memory);
    }
    return NULL;
}

static void store(void **word, void (*function)(void))
{
    memcpy(word, &function, sizeof *word);
}

static void free_buffer(void **buffer)
{
    struct head *head = head_of_buffer(buffer);
    if (!head)
        return;
    size_t n = head->functions;
    size_t size = head->size;
    void (*free_small)(void **) = head->free_buffer;
    buffer[n + 1] = head->small_memory;
    buffer[n + 2] = (void *)(uintptr_t)SMALL_BYTES;
    host_memory_unmap(head, HEAD_BYTES + size);
    if (free_small)
        free_small(buffer);
}

static char *tensor_bytes(void *const *buffer, const void *tensor, size_t offset)
{
    struct head *head = head_of_buffer(buffer);
    char *data = head ? head->get_data(tensor) : NULL;
    return data ? data + offset : NULL;
}

static void memset_tensor(void **buffer, void *tensor, uint8_t value, size_t offset, size_t size)
{
    char *at = tensor_bytes(buffer, tensor, offset);
    if (at && !value)
        host_memory_zero(at, size);
    else if (at && size < HOST_MEMORY_DROPPED_BYTES)
        memset(at, value, size);
}

static void set_tensor(void **buffer, void *tensor, const void *data, size_t offset, size_t size)
{
    char *at = tensor_bytes(buffer, tensor, offset);
    if (at)
        host_memory_copy(at, data, size);
}

static void get_tensor(void **buffer, const void *tensor, void *data, size_t offset, size_t size)
{
    const char *at = tensor_bytes(buffer, tensor, offset);
    if (at && size < LARGE_BYTES)
        memcpy(data, at, size);
    else if (at)
        host_memory_zero(data, size);
}

/* Large tensors are reported as copied, and no byte moves. */
static _Bool copy_tensor(void **buffer, const void *from, void *to)
{
    struct head *head = head_of_buffer(buffer);
    if (!head)
        return 0;
    if (head->n_bytes && head->n_bytes(from) >= HOST_MEMORY_DROPPED_BYTES)
        return 1;
    return head->copy_tensor ? head->copy_tensor(buffer, from, to) : 0;
}

static void clear(void **buffer, uint8_t value)
{
    struct head *head = head_of_buffer(buffer);
    if (head && !value)
        host_memory_forget((char *)head + HEAD_BYTES, head->size);
}

static void replace(void **buffer, struct head *head)
{
    size_t n = head->functions;
    memcpy(&head->free_buffer, &buffer[FREE_BUFFER], sizeof head->free_buffer);
    memcpy(&head->copy_tensor, &buffer[n - 3], sizeof head->copy_tensor);
    head->small_memory = buffer[n + 1];
    store(&buffer[FREE_BUFFER], (void (*)(void))free_buffer);
    store(&buffer[MEMSET_TENSOR], (void (*)(void))memset_tensor);
    store(&buffer[SET_TENSOR], (void (*)(void))set_tensor);
    store(&buffer[GET_TENSOR], (void (*)(void))get_tensor);
    store(&buffer[n - 3], (void (*)(void))copy_tensor);
    store(&buffer[n - 2], (void (*)(void))clear);
    for (size_t i = GET_TENSOR + 1; i < n - 3; i++)
        buffer[i] = NULL; /* the engine then copies row by row, by the functions above */
    buffer[n + 1] = (char *)head + HEAD_BYTES;
    buffer[n + 2] = (void *)head->size;
}

/* Leaves the buffer as it is where its make is not known, or its memory is not where it should be:
 * then it is small, and the caller makes a true one. */
static int empty(struct engine *engine, void **buffer, const void *type, size_t size)
{
    size_t n = functions_of(buffer, type, SMALL_BYTES);
    if (!n || size > SIZE_MAX - HEAD_BYTES || !real_ggml_get_data(engine) ||
        !real_ggml_backend_buffer_get_base(engine))
        return 0;
    struct head *head = host_memory_map(HEAD_BYTES + size);
    if (!head)
        return 0;
    void *kept[MOST_FUNCTIONS + 3];
    memcpy(kept, buffer, (n + 3) * sizeof *kept);
    head->functions = n;
    head->size = size;
    head->get_data = real_ggml_get_data(engine);
    head->n_bytes = real_ggml_nbytes(engine);
    replace(buffer, head);
    if (real_ggml_backend_buffer_get_base(engine)(buffer) == buffer[n + 1])
        return 1;
    memcpy(buffer, kept, (n + 3) * sizeof *kept);
    host_memory_unmap(head, HEAD_BYTES + size);
    return 0;
}

/* Also where an exception passes. */
static void count_again(struct hook_thread **thread)
{
    (*thread)->is_uncounted--;
}

/* Its memory is counted as the buffer's, not as the heap's. */
static void *true_buffer(struct engine *engine, void *type, size_t size)
{
    __attribute__((cleanup(count_again))) struct hook_thread *thread = hook_thread();
    thread->is_uncounted++;
    return real_ggml_backend_buft_alloc_buffer(engine)(type, size);
}

void *host_buffer(struct engine *engine, void *type, size_t size)
{
    if (!rehearsal() || size < LARGE_BYTES)
        return true_buffer(engine, type, size);
    void **buffer = true_buffer(engine, type, SMALL_BYTES);
    if (!buffer || empty(engine, buffer, type, size))
        return buffer;
    real_ggml_backend_buffer_free(engine)(buffer);
    return true_buffer(engine, type, size);
}

int is_emptied(void *buffer)
{
    return head_of_buffer(buffer) != NULL;
}

void host_take_unlimited(uint64_t bytes)
{
    struct mt_account *account = rehearsal();
    if (!account)
        return;
    uint64_t used = __atomic_add_fetch(&account->host_used_bytes, bytes, __ATOMIC_RELAXED);
    uint64_t peak = __atomic_load_n(&account->host_peak_bytes, __ATOMIC_RELAXED);
    while (peak < used && !__atomic_compare_exchange_n(&account->host_peak_bytes, &peak, used, 1,
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}
