/* SPDX-License-Identifier: MIT */
/* The object that is preloaded into a program of ggml, before an engine that is none. The program
 * is this one: it starts itself again with the object and an account. What is expected is what the
 * engine itself asked for, in bytes, and what ggml's headers say of each call. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_engine.h"
#include "fake_ggml.h"
#include "memtally/category.h"

#define MIB (UINT64_C(1) << 20)

static struct mt_account *account;

static struct host_type *type(int number)
{
    return &fake_engine()->type[number];
}

/* The first event of a kind from number `from` on. */
static const struct mt_account_event *event_from(uint64_t from, uint32_t kind)
{
    for (uint64_t i = from; i < account->n_events; i++)
        if (account->event[i].kind == kind)
            return &account->event[i];
    fail_msg("no event of kind %u", kind);
    return NULL;
}

static size_t count_from(uint64_t from, uint32_t kind)
{
    size_t n = 0;
    for (uint64_t i = from; i < account->n_events; i++)
        n += account->event[i].kind == kind;
    return n;
}

static void assert_event(const struct mt_account_event *event, enum mt_category category,
                         uint64_t bytes, const char *name, const char *detail)
{
    assert_int_equal(event->category, category);
    assert_int_equal(event->bytes, bytes);
    assert_string_equal(event->name, name);
    assert_string_equal(event->detail, detail);
}

static void assert_note(uint64_t from, const char *words)
{
    const struct mt_account_event *note = event_from(from, MT_ACCOUNT_NOTE);
    char text[sizeof note->name + sizeof note->detail];
    snprintf(text, sizeof text, "%s%s", note->name, note->detail);
    if (!strstr(text, words))
        fail_msg("'%s' is not in the note '%s'", words, text);
}

/* Room for so many bytes more on the host. */
static void leave_on_host(uint64_t bytes)
{
    account->host_bytes = account->host_used_bytes + bytes;
}

static int without_limit(void **state)
{
    (void)state;
    account->host_bytes = 0;
    return 0;
}

/* ---- buffers of the host ---- */

static size_t resident_pages(char *memory, size_t bytes)
{
    unsigned char pages[1024];
    size_t n = 0, page = (size_t)sysconf(_SC_PAGESIZE);
    assert_true(bytes / page <= sizeof pages);
    assert_int_equal(mincore(memory, bytes, pages), 0);
    for (size_t i = 0; i < bytes / page; i++)
        n += pages[i] & 1;
    return n;
}

static void test_a_host_buffer_counts_and_takes_no_memory(void **state)
{
    const int types[] = {FAKE_CPU, FAKE_CPU_OLD, FAKE_CPU_REPACK};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        uint64_t n = account->n_events, before = account->host_used_bytes;
        void *buffer = ggml_backend_buft_alloc_buffer(type(types[i]), 3 * MIB);
        char *memory = ggml_backend_buffer_get_base(buffer);
        assert_event(event_from(n, MT_ACCOUNT_ALLOC), MT_CATEGORY_ACTIVATIONS, 3 * MIB,
                     type(types[i])->name, "");
        assert_int_equal(event_from(n, MT_ACCOUNT_ALLOC)->place, MT_ACCOUNT_HOST);
        assert_int_equal(account->host_used_bytes, before + 3 * MIB);
        assert_int_equal(ggml_backend_buffer_get_size(buffer), 3 * MIB);
        assert_int_equal(resident_pages(memory, 3 * MIB), 0);
        ggml_backend_buffer_free(buffer);
        assert_int_equal(event_from(n, MT_ACCOUNT_FREE)->bytes, 3 * MIB);
        assert_int_equal(account->host_used_bytes, before);
    }
}

static void test_a_small_host_buffer_is_the_engines_own(void **state)
{
    (void)state;
    uint64_t n = account->n_events, before = account->host_used_bytes;
    void *buffer = ggml_backend_buft_alloc_buffer(type(FAKE_CPU), 5000);
    memset(ggml_backend_buffer_get_base(buffer), 7, 5000);
    assert_event(event_from(n, MT_ACCOUNT_ALLOC), MT_CATEGORY_ACTIVATIONS, 5000, "CPU", "");
    ggml_backend_buffer_free(buffer);
    assert_int_equal(account->host_used_bytes, before);
    /* Nothing is no buffer to count. */
    n = account->n_events;
    ggml_backend_buffer_free(ggml_backend_buft_alloc_buffer(type(FAKE_CPU), 0));
    assert_int_equal(account->n_events, n);
}

/* ggml-backend-impl.h: set and get move `size` bytes at `offset` of the tensor. */
static void test_small_data_is_kept_and_large_data_dropped(void **state)
{
    static char large[2 * 1024 * 1024];
    char small[8] = "", *memory;
    struct fake_tensor tensor = {.name = "t", .bytes = sizeof large};
    (void)state;
    void **buffer = ggml_backend_buft_alloc_buffer(type(FAKE_CPU), 4 * MIB);
    enum { MEMSET = 3, SET = 4, GET = 5, COPY = 8, CLEAR = 9 };
    void (*set)(void *, void *, const void *, size_t, size_t);
    void (*get)(void *, const void *, void *, size_t, size_t);
    void (*fill)(void *, void *, uint8_t, size_t, size_t);
    void (*clear)(void *, uint8_t);
    _Bool (*copy)(void *, const void *, void *);
    memcpy(&fill, &buffer[MEMSET], sizeof fill);
    memcpy(&set, &buffer[SET], sizeof set);
    memcpy(&get, &buffer[GET], sizeof get);
    memcpy(&copy, &buffer[COPY], sizeof copy);
    memcpy(&clear, &buffer[CLEAR], sizeof clear);
    tensor.data = memory = ggml_backend_buffer_get_base(buffer);
    set(buffer, &tensor, "position", 4096, 8);
    get(buffer, &tensor, small, 4096, sizeof small);
    assert_memory_equal(small, "position", 8);
    fill(buffer, &tensor, 'x', 4100, 2);
    get(buffer, &tensor, small, 4096, sizeof small);
    assert_memory_equal(small, "posixxon", 8);
    memset(large, 1, sizeof large);
    set(buffer, &tensor, large, 0, sizeof large);
    assert_int_equal(memory[MIB], 0);
    get(buffer, &tensor, large, 0, sizeof large);
    assert_int_equal(large[0], 0);
    assert_true(copy(buffer, &tensor, &tensor)); /* so much moves nowhere */
    tensor.bytes = 64;
    assert_false(copy(buffer, &tensor, &tensor)); /* the type has no function for it */
    clear(buffer, 0);
    assert_int_equal(resident_pages(memory, 4 * MIB), 0);
    ggml_backend_buffer_free(buffer);
}

static void test_a_host_without_room_refuses_a_buffer(void **state)
{
    (void)state;
    leave_on_host(2 * MIB);
    uint64_t n = account->n_events, before = account->host_used_bytes;
    assert_null(ggml_backend_buft_alloc_buffer(type(FAKE_CPU), 2 * MIB + 1));
    const struct mt_account_event *refused = event_from(n, MT_ACCOUNT_REFUSE);
    assert_event(refused, MT_CATEGORY_ACTIVATIONS, 2 * MIB + 1, "CPU", "");
    assert_int_equal(refused->free_bytes, 2 * MIB);
    assert_int_equal(account->host_used_bytes, before);
    void *buffer = ggml_backend_buft_alloc_buffer(type(FAKE_CPU), 2 * MIB);
    assert_non_null(buffer);
    ggml_backend_buffer_free(buffer);
}

static void test_a_buffer_of_another_device_is_noted_once_and_not_counted(void **state)
{
    (void)state;
    uint64_t n = account->n_events, before = account->host_used_bytes;
    void *first = ggml_backend_buft_alloc_buffer(type(FAKE_ELSEWHERE), 5000);
    void *other = ggml_backend_buft_alloc_buffer(type(FAKE_ELSEWHERE), 5000);
    assert_note(n, "Buffers of SYCL0 lie on no device of this rehearsal");
    assert_int_equal(count_from(n, MT_ACCOUNT_NOTE), 1);
    assert_int_equal(count_from(n, MT_ACCOUNT_ALLOC), 0);
    assert_int_equal(account->host_used_bytes, before);
    ggml_backend_buffer_free(first);
    ggml_backend_buffer_free(other);
}

static void test_a_mapped_file_counts_and_nothing_refuses_it(void **state)
{
    char bytes[64];
    (void)state;
    leave_on_host(MIB);
    uint64_t n = account->n_events, before = account->host_used_bytes;
    void *buffer = ggml_backend_dev_buffer_from_host_ptr((void *)(uintptr_t)type(FAKE_CPU)->device,
                                                         bytes, 9 * MIB, 0);
    const struct mt_account_event *mapped = event_from(n, MT_ACCOUNT_ALLOC);
    assert_event(mapped, MT_CATEGORY_WEIGHTS, 9 * MIB, "CPU", "mapped");
    assert_int_equal(mapped->flags, MT_ACCOUNT_MAPPED);
    assert_int_equal(account->host_used_bytes, before + 9 * MIB);
    assert_true(account->host_peak_bytes >= before + 9 * MIB);
    ggml_backend_buffer_free(buffer);
    assert_int_equal(account->host_used_bytes, before);
}

/* ---- what a buffer is for ---- */

static void assert_purpose(const char *name, enum mt_category category)
{
    struct fake_tensor second = {"the other", 100, NULL, NULL}, first = {name, 200, NULL, &second};
    struct fake_tensors tensors = {&first};
    char detail[96];
    uint64_t n = account->n_events;
    void *buffer = ggml_backend_alloc_ctx_tensors_from_buft(&tensors, type(FAKE_CPU));
    snprintf(detail, sizeof detail, "%s and 1 more tensors", name);
    assert_event(event_from(n, MT_ACCOUNT_ALLOC), category, 300, "CPU", detail);
    ggml_backend_buffer_free(buffer);
}

/* Names as llama.cpp's sources give them. */
static void test_names_of_tensors_say_what_a_buffer_is_for(void **state)
{
    (void)state;
    assert_purpose("cache_k_l0", MT_CATEGORY_KV_CACHE);
    assert_purpose("cache_idx_k_l12", MT_CATEGORY_KV_CACHE);
    assert_purpose("cache_v_l3", MT_CATEGORY_KV_CACHE);
    assert_purpose("cache_r_l0", MT_CATEGORY_RECURRENT_STATE);
    assert_purpose("cache_s_l0", MT_CATEGORY_RECURRENT_STATE);
    assert_purpose("dsv4_attn_state_kv_l0", MT_CATEGORY_RECURRENT_STATE);
    assert_purpose("blk.0.ffn_up.weight", MT_CATEGORY_WEIGHTS);
    assert_purpose("blk.0.attn_q.bias", MT_CATEGORY_WEIGHTS);
    assert_purpose("blk.0.attn_q.lora_a", MT_CATEGORY_WEIGHTS);
    assert_purpose("inp_tokens", MT_CATEGORY_ACTIVATIONS);
}

static void test_what_an_engine_says_of_a_buffer_is_an_event(void **state)
{
    enum { ANY, WEIGHTS, COMPUTE }; /* ggml-backend.h: enum ggml_backend_buffer_usage */
    (void)state;
    void *buffer = ggml_backend_buft_alloc_buffer(type(FAKE_CPU), 2 * MIB);
    uint64_t n = account->n_events;
    ggml_backend_buffer_set_usage(buffer, ANY);
    assert_int_equal(account->n_events, n);
    ggml_backend_buffer_set_usage(buffer, WEIGHTS);
    assert_int_equal(event_from(n, MT_ACCOUNT_USAGE)->category, MT_CATEGORY_WEIGHTS);
    assert_int_equal(event_from(n, MT_ACCOUNT_USAGE)->object, (uintptr_t)buffer);
    ggml_backend_buffer_set_usage(buffer, COMPUTE);
    assert_int_equal(event_from(n + 1, MT_ACCOUNT_USAGE)->category, MT_CATEGORY_ACTIVATIONS);
    ggml_backend_buffer_free(buffer);
}

/* ---- models, contexts and plans ---- */

static char model_path[] = "/tmp/memtally-tiny-XXXXXX.gguf";

static void *load(void)
{
    return llama_model_load_from_file(model_path, (struct by_value){0});
}

static void unload(struct fake_model *model)
{
    ggml_backend_buffer_free(model->buffer);
    free(model);
}

/* The name of the model's file, as the account has it. */
static const char *model_name(void)
{
    static char name[64];
    snprintf(name, sizeof name, "%.*s",
             (int)(strlen(model_path) - strlen("/tmp/") - strlen(".gguf")),
             model_path + strlen("/tmp/"));
    return name;
}

/* What is allocated outside of a call for a model belongs to the file that was opened last. */
static const char *of_file(const char *what)
{
    static char detail[96];
    snprintf(detail, sizeof detail, "%s, %s", what, model_name());
    return detail;
}

static void test_a_model_is_loaded_without_a_read_and_marked(void **state)
{
    (void)state;
    uint64_t n = account->n_events;
    struct fake_model *model = load();
    assert_event(event_from(n, MT_ACCOUNT_ALLOC), MT_CATEGORY_WEIGHTS, 3 * MIB, "CPU_REPACK",
                 of_file("blk.0.attn_q.weight"));
    /* The block that each tensor would be read into, which is as large, comes and goes. */
    assert_true(model->is_read_in_place);
    assert_event(event_from(n + 1, MT_ACCOUNT_ALLOC), MT_CATEGORY_WORKSPACE, 3 * MIB, "heap",
                 "staging of one tensor");
    assert_int_equal(event_from(n, MT_ACCOUNT_FREE)->bytes, 3 * MIB);
    assert_string_equal(event_from(n, MT_ACCOUNT_MARK)->name, "model");
    assert_string_equal(account->engine_version, "b4242");
    char *weights = ggml_backend_buffer_get_base(model->buffer);
    assert_int_equal(resident_pages(weights, 3 * MIB), 0);
    unload(model);
}

static void test_a_refused_model_is_not_marked(void **state)
{
    (void)state;
    leave_on_host(MIB);
    uint64_t n = account->n_events;
    assert_null(load());
    assert_int_equal(count_from(n, MT_ACCOUNT_REFUSE), 1);
    assert_int_equal(event_from(n, MT_ACCOUNT_REFUSE)->category, MT_CATEGORY_WEIGHTS);
    assert_int_equal(count_from(n, MT_ACCOUNT_MARK), 0);
}

static void assert_context_of(uint64_t from, const char *suffix)
{
    char detail[128];
    snprintf(detail, sizeof detail, "cache_k_l0, %s%s", model_name(), suffix);
    assert_event(event_from(from, MT_ACCOUNT_ALLOC), MT_CATEGORY_KV_CACHE, 2 * MIB, "CPU", detail);
    assert_string_equal(event_from(from, MT_ACCOUNT_MARK)->name, "context");
}

static void test_contexts_of_a_model_are_told_apart(void **state)
{
    const struct by_value none = {0};
    char detail[96];
    (void)state;
    struct fake_model *model = load();
    uint64_t n = account->n_events;
    void *first = llama_init_from_model(model, none);
    assert_context_of(n, "");
    n = account->n_events;
    void *second = llama_init_from_model(model, none);
    assert_context_of(n, " (context 2)");
    n = account->n_events;
    assert_int_equal(llama_decode(second, none), 0);
    snprintf(detail, sizeof detail, "outputs, %s (context 2)", model_name());
    assert_event(event_from(n, MT_ACCOUNT_ALLOC), MT_CATEGORY_ACTIVATIONS, MIB, "CPU", detail);
    llama_free(second);
    n = account->n_events;
    second = llama_init_from_model(model, none);
    assert_context_of(n, " (context 2)");
    llama_free(second);
    llama_free(first);
    unload(model);
}

/* A file whose name begins as the other's does. */
static void test_a_context_of_another_model_is_that_ones_first(void **state)
{
    const struct by_value none = {0};
    char path[96], detail[128];
    (void)state;
    struct fake_model *model = load();
    void *context = llama_init_from_model(model, none);
    snprintf(path, sizeof path, "/tmp/%s-large.gguf", model_name());
    assert_int_equal(link(model_path, path), 0);
    struct fake_model *large = llama_model_load_from_file(path, none);
    unlink(path);
    uint64_t n = account->n_events;
    void *first = llama_init_from_model(large, none);
    snprintf(detail, sizeof detail, "cache_k_l0, %s-large", model_name());
    assert_string_equal(event_from(n, MT_ACCOUNT_ALLOC)->detail, detail);
    n = account->n_events;
    void *other = llama_init_from_model(model, none);
    assert_context_of(n, " (context 2)");
    llama_free(other);
    llama_free(first);
    llama_free(context);
    unload(large);
    unload(model);
    unload(load()); /* the file that is opened last from here on */
}

/* Clients of llama.cpp may make schedulers themselves; then these calls say when what is there. */
static void test_a_scheduler_reserves_compute_buffers(void **state)
{
    void *types[] = {type(FAKE_CPU)};
    (void)state;
    fake_engine()->plan_bytes = 2 * MIB;
    uint64_t n = account->n_events;
    void *scheduler = ggml_backend_sched_new(NULL, types, 1, 2048, 0, 0);
    assert_string_equal(event_from(n, MT_ACCOUNT_MARK)->name, "model");
    n = account->n_events;
    assert_true(ggml_backend_sched_reserve(scheduler, NULL));
    assert_event(event_from(n, MT_ACCOUNT_ALLOC), MT_CATEGORY_ACTIVATIONS, 2 * MIB, "CPU",
                 of_file("compute buffer"));
    assert_string_equal(event_from(n, MT_ACCOUNT_MARK)->name, "context");
    n = account->n_events;
    leave_on_host(MIB);
    assert_false(ggml_backend_sched_reserve(scheduler, NULL));
    assert_event(event_from(n, MT_ACCOUNT_REFUSE), MT_CATEGORY_ACTIVATIONS, 2 * MIB, "CPU",
                 of_file("compute buffer"));
    ggml_backend_sched_free(scheduler);
}

static void test_a_dry_run_of_tensors_is_a_plan_until_it_is_freed(void **state)
{
    struct fake_tensor cache = {"cache_k_l0", 7 * MIB, NULL, NULL};
    struct fake_tensors *tensors = calloc(1, sizeof *tensors);
    (void)state;
    tensors->first = &cache;
    uint64_t n = account->n_events, before = account->host_used_bytes;
    assert_int_equal(ggml_backend_alloc_ctx_tensors_from_buft_size(tensors, type(FAKE_CPU)),
                     7 * MIB);
    ggml_backend_alloc_ctx_tensors_from_buft_size(tensors, type(FAKE_CPU));
    assert_int_equal(count_from(n, MT_ACCOUNT_ALLOC), 1);
    assert_event(event_from(n, MT_ACCOUNT_ALLOC), MT_CATEGORY_KV_CACHE, 7 * MIB, "CPU",
                 of_file("cache_k_l0"));
    assert_int_equal(event_from(n, MT_ACCOUNT_ALLOC)->flags, MT_ACCOUNT_PLANNED);
    assert_int_equal(account->host_used_bytes, before);
    ggml_free(tensors);
    assert_int_equal(event_from(n, MT_ACCOUNT_FREE)->bytes, 7 * MIB);
    /* Tensors with data are allocated already. */
    struct fake_tensor there = {"cache_k_l0", 7 * MIB, &cache, NULL};
    struct fake_tensors loaded = {&there};
    n = account->n_events;
    ggml_backend_alloc_ctx_tensors_from_buft_size(&loaded, type(FAKE_CPU));
    assert_int_equal(account->n_events, n);
}

static struct ggml_buffer_type *device_type(size_t index);

/* The dry run forgets where a graph's maker placed things; what really loads does not. llama.cpp
 * plans a copy of the first layer's output for each later device, in four places. */
static void test_a_dry_run_of_a_graph_keeps_its_placement(void **state)
{
    struct fake_tensor nodes[] = {{.name = "inp"}, {.name = "l_out-0", .bytes = MIB}};
    struct fake_graph graph = {2, nodes};
    void *types[] = {device_type(0), device_type(1), type(FAKE_CPU)};
    size_t sizes[3] = {0};
    (void)state;
    void *scheduler = ggml_backend_sched_new(NULL, types, 3, 2048, 0, 0);
    uint64_t n = account->n_events;
    int resets = fake_engine()->resets;
    fake_engine()->plan_bytes = 5 * MIB;
    ggml_backend_sched_reserve_size(scheduler, &graph, sizes);
    assert_int_equal(fake_engine()->resets, resets);
    assert_note(n, "plans 4.00 MiB more on each device but the first");
    assert_int_equal(count_from(n, MT_ACCOUNT_ALLOC), 3);
    assert_int_equal(event_from(n, MT_ACCOUNT_ALLOC)->bytes, 5 * MIB);
    assert_int_equal(event_from(n, MT_ACCOUNT_ALLOC)->place, 0);
    ggml_backend_sched_reset(scheduler);
    assert_int_equal(fake_engine()->resets, resets + 1);
    n = account->n_events;
    ggml_backend_sched_free(scheduler);
    assert_int_equal(count_from(n, MT_ACCOUNT_FREE), 3);
}

/* ---- the heap ---- */

static void test_a_large_block_of_the_heap_counts(void **state)
{
    (void)state;
    uint64_t n = account->n_events, before = account->host_used_bytes;
    free(malloc(MIB - 1));
    assert_int_equal(account->n_events, n);
    char *block = malloc(2 * MIB);
    assert_event(event_from(n, MT_ACCOUNT_ALLOC), MT_CATEGORY_RUNTIME, 2 * MIB, "heap",
                 "heap block");
    block = realloc(block, 3 * MIB);
    assert_int_equal(account->host_used_bytes, before + 3 * MIB);
    memset(block, 1, 3 * MIB);
    memset(block, 0, 3 * MIB);
    assert_int_equal(block[0] | block[2 * MIB] | block[3 * MIB - 1], 0);
    free(block);
    assert_int_equal(account->host_used_bytes, before);
    free(calloc(2, MIB));
    free(memalign(4096, 2 * MIB));
    free(aligned_alloc(4096, 2 * MIB));
    void *aligned;
    assert_int_equal(posix_memalign(&aligned, 4096, 2 * MIB), 0);
    free(aligned);
    assert_int_equal(account->host_used_bytes, before);
    assert_int_equal(count_from(n, MT_ACCOUNT_ALLOC), 6);
    assert_int_equal(count_from(n, MT_ACCOUNT_FREE), 6);
}

static void test_a_copy_of_a_state_is_told_by_its_size(void **state)
{
    (void)state;
    void *context = ggml_backend_buft_alloc_buffer(type(FAKE_CPU), 2 * MIB);
    size_t bytes = llama_state_get_size(context);
    uint64_t n = account->n_events;
    free(malloc(bytes));
    assert_event(event_from(n, MT_ACCOUNT_ALLOC), MT_CATEGORY_KV_CACHE, bytes, "heap",
                 "copy of a state");
    ggml_backend_buffer_free(context);
}

/* malloc(3) and posix_memalign(3): what is refused is NULL with ENOMEM, or ENOMEM with errno left
 * alone; realloc(3) leaves the old block as it is. */
static void test_the_heap_is_refused_where_the_host_has_no_room(void **state)
{
    void *aligned = &aligned;
    (void)state;
    unsigned char *kept = malloc(2 * MIB);
    kept[2 * MIB - 1] = 9;
    leave_on_host(MIB);
    uint64_t n = account->n_events, before = account->host_used_bytes;
    errno = 0;
    assert_null(malloc(MIB + 1));
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(event_from(n, MT_ACCOUNT_REFUSE)->free_bytes, MIB);
    assert_null(calloc(MIB + 1, 1));
    assert_null(memalign(64, MIB + 1));
    assert_null(aligned_alloc(64, MIB + 64));
    assert_null(realloc(kept, 4 * MIB));
    assert_int_equal(kept[2 * MIB - 1], 9);
    errno = EBADF;
    assert_int_equal(posix_memalign(&aligned, 64, MIB + 1), ENOMEM);
    assert_int_equal(errno, EBADF);
    assert_ptr_equal(aligned, &aligned);
    assert_int_equal(count_from(n, MT_ACCOUNT_REFUSE), 6);
    assert_int_equal(account->host_used_bytes, before);
    free(malloc(MIB));
    free(kept);
    assert_int_equal(account->host_used_bytes, before - 2 * MIB);
}

/* ---- files ---- */

#define FILE_BYTES (FAKE_DATA_OFFSET + 4 * MIB)

/* Weights are a pattern, so that a read of them would show. */
static void make_model_file(void)
{
    static char pattern[4 * MIB];
    int fd = mkstemps(model_path, (int)strlen(".gguf"));
    assert_true(fd >= 0);
    memset(pattern, 'w', sizeof pattern);
    assert_int_equal(pwrite(fd, "GGUF", 4, 0), 4);
    assert_int_equal(pwrite(fd, pattern, sizeof pattern, FAKE_DATA_OFFSET), sizeof pattern);
    close(fd);
}

static void test_weights_are_skipped_and_the_header_is_read(void **state)
{
    static char block[FILE_BYTES];
    (void)state;
    int fd = open(model_path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, block, MIB, FAKE_DATA_OFFSET), MIB);
    assert_int_equal(block[0], 0);
    assert_int_equal(pread(fd, block, MIB, FILE_BYTES - 100000), 100000);
    assert_int_equal(block[0], 0);
    assert_int_equal(pread(fd, block, 16, FAKE_DATA_OFFSET), 16); /* so few are read */
    assert_int_equal(block[0], 'w');
    block[0] = 0;
    assert_int_equal(lseek(fd, FAKE_DATA_OFFSET, SEEK_SET), FAKE_DATA_OFFSET);
    assert_int_equal(read(fd, block, MIB), MIB);
    assert_int_equal(block[0], 0);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), FAKE_DATA_OFFSET + MIB);
    assert_int_equal(pread(fd, block, FILE_BYTES, 0), FILE_BYTES); /* begins before the weights */
    assert_memory_equal(block, "GGUF", 4);
    assert_int_equal(block[FILE_BYTES - 1], 'w');
    close(fd);
}

static void test_a_stream_skips_whole_things_alone(void **state)
{
    static char block[MIB];
    (void)state;
    FILE *file = fopen(model_path, "re");
    assert_int_equal(fseeko(file, FAKE_DATA_OFFSET, SEEK_SET), 0);
    assert_int_equal(fread(block, MIB / 4, 4, file), 4);
    assert_int_equal(block[0], 0);
    assert_int_equal(ftello(file), FAKE_DATA_OFFSET + MIB);
    assert_int_equal(fseeko(file, -100000, SEEK_END), 0);
    assert_int_equal(fread(block, 1, MIB, file), 100000); /* cut by the end: read */
    assert_int_equal(block[0], 'w');
    fclose(file);
}

/* Calls that would bring weights into memory succeed and do nothing; this address is in no mapping.
 */
static void test_nothing_is_brought_into_memory(void **state)
{
    void *nowhere = (void *)(uintptr_t)4096;
    (void)state;
    assert_int_equal(madvise(nowhere, MIB, MADV_WILLNEED), 0);
    assert_int_equal(posix_madvise(nowhere, MIB, POSIX_MADV_WILLNEED), 0);
    assert_int_equal(mlock(nowhere, MIB), 0);
    assert_int_equal(munlock(nowhere, MIB), 0);
    assert_int_equal(mlockall(MCL_CURRENT), 0);
    assert_int_not_equal(madvise(nowhere, MIB, MADV_DONTNEED), 0);
    int fd = open(model_path, O_RDONLY | O_CLOEXEC);
    char *mapped = mmap(NULL, MIB, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    assert_true(mapped != MAP_FAILED);
    assert_int_equal(mapped[0], 'G');
    munmap(mapped, MIB);
    close(fd);
}

/* ---- devices and computing ---- */

static struct ggml_registry *own_registry(void)
{
    ggml_backend_dev_count();
    return ggml_backend_reg_by_name("cuda");
}

static struct ggml_buffer_type *device_type(size_t index)
{
    struct ggml_registry *registry = own_registry();
    struct ggml_device *device = registry->iface.get_device(registry, index);
    return device->iface.get_buffer_type(device);
}

/* The processor's device, two pretended ones, and those of the server; none of Vulkan's. */
static void test_a_program_is_given_the_pretended_devices_and_no_true_ones(void **state)
{
    (void)state;
    uint64_t n = account->n_events;
    assert_int_equal(ggml_backend_dev_count(), 1 + 2 + 1);
    assert_note(n, "Devices of RPC servers are on other machines");
    assert_non_null(own_registry());
    assert_int_equal(ggml_backend_reg_dev_count(ggml_backend_reg_by_name("Vulkan")), 0);
    assert_int_equal(ggml_backend_reg_dev_count(ggml_backend_reg_by_name("CPU")), 1);
    assert_int_equal(ggml_backend_reg_count(), 4);
    assert_ptr_equal(ggml_backend_load(PRETEND_PATH), own_registry()); /* and not listed twice */
    assert_int_equal(ggml_backend_reg_count(), 4);
}

static void test_a_server_on_another_machine_is_not_asked(void **state)
{
    void *(*add)(const char *endpoint);
    (void)state;
    uint64_t n = account->n_events;
    void *found = ggml_backend_reg_get_proc_address(NULL, "ggml_backend_rpc_add_server");
    memcpy(&add, &found, sizeof add);
    assert_null(add("box:50052"));
    assert_note(n, "The RPC server box:50052 is another machine");
}

static void test_a_buffer_of_a_device_is_its_own_and_not_the_hosts(void **state)
{
    (void)state;
    uint64_t n = account->n_events, before = account->host_used_bytes;
    struct ggml_buffer *buffer = ggml_backend_buft_alloc_buffer(device_type(1), 6 * MIB);
    assert_event(event_from(n, MT_ACCOUNT_ALLOC), MT_CATEGORY_ACTIVATIONS, 6 * MIB, "CUDA1", "");
    assert_int_equal(event_from(n, MT_ACCOUNT_ALLOC)->place, 1);
    assert_int_equal(account->device[1].used_bytes, 6 * MIB);
    assert_int_equal(account->host_used_bytes, before);
    buffer->iface.free_buffer(buffer);
    free(buffer);
    assert_int_equal(account->device[1].used_bytes, 0);
}

static void test_nothing_is_computed(void **state)
{
    static const int card = 1;
    (void)state;
    int computed = fake_engine()->computed;
    assert_int_equal(ggml_graph_compute(NULL, NULL), 0);
    assert_int_equal(ggml_backend_graph_compute((void *)(uintptr_t)&card, NULL), 0);
    assert_int_equal(fake_engine()->computed, computed);
    assert_true(ggml_validate_row_data(0, NULL, 16));
    assert_false(llama_vocab_is_eog(NULL, 2));
    /* One that stands for several devices divides the graph itself, and takes memory for the sums.
     */
    uint64_t n = account->n_events;
    assert_int_equal(ggml_backend_graph_compute((void *)(uintptr_t)fake_engine()->backend, NULL),
                     -1);
    assert_int_equal(fake_engine()->computed, computed + 1);
    assert_note(n, "Sums over devices");
}

/* A server is ready when it listens and has a context, whichever comes last. */
static void test_a_server_is_marked_when_it_listens_and_has_a_context(void **state)
{
    (void)state;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint64_t n = account->n_events;
    assert_int_not_equal(listen(-1, 1), 0);
    assert_int_equal(account->n_events, n);
    struct sockaddr address = {.sa_family = AF_UNIX}; /* a name that the kernel chooses */
    assert_int_equal(bind(fd, &address, sizeof address.sa_family), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_string_equal(event_from(n, MT_ACCOUNT_MARK)->name, "listen");
    assert_string_equal(event_from(n + 1, MT_ACCOUNT_MARK)->name, "serving");
    close(fd);
}

/* ---- the account ---- */

static int map_account(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    account = fd < 0 ? MAP_FAILED
                     : mmap(NULL, sizeof *account, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return account == MAP_FAILED ? -1 : 0;
}

static void fill_account(void)
{
    memcpy(account->magic, MT_ACCOUNT_MAGIC, sizeof account->magic);
    account->format = MT_ACCOUNT_FORMAT;
    account->n_devices = 2;
    strcpy(account->rules.kind, "cuda");
    strcpy(account->rules.registry, "CUDA");
    strcpy(account->rules.device_prefix, "CUDA");
    strcpy(account->rules.host_buffer, "CUDA_Host");
    account->rules.alignment = 128;
    for (size_t i = 0; i < account->n_devices; i++) {
        snprintf(account->device[i].name, sizeof account->device[i].name, "CUDA%zu", i);
        account->device[i].total_bytes = account->device[i].free_bytes = 1024 * MIB;
    }
}

/* Starts this program again with the account and the object. Returns where it cannot. */
static void start_rehearsed(char **argv)
{
    char path[] = "/tmp/memtally-hooks-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0 || ftruncate(fd, sizeof *account) != 0 || map_account(path) < 0)
        return;
    fill_account();
    setenv(MT_ACCOUNT_VARIABLE, path, 1);
    setenv("LD_PRELOAD", PRETEND_PATH, 1);
    execv("/proc/self/exe", argv);
    unlink(path);
}

static int forget_model_file(void **state)
{
    (void)state;
    return unlink(model_path);
}

int main(int argc, char **argv)
{
    const char *path = getenv(MT_ACCOUNT_VARIABLE);
    (void)argc;
    if (!path) {
        start_rehearsed(argv);
        return 99;
    }
    if (map_account(path) < 0 || unlink(path) < 0)
        return 99;
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* a page that is touched brings no others */
    make_model_file();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_host_buffer_counts_and_takes_no_memory),
        cmocka_unit_test(test_a_small_host_buffer_is_the_engines_own),
        cmocka_unit_test(test_small_data_is_kept_and_large_data_dropped),
        cmocka_unit_test_teardown(test_a_host_without_room_refuses_a_buffer, without_limit),
        cmocka_unit_test(test_a_buffer_of_another_device_is_noted_once_and_not_counted),
        cmocka_unit_test_teardown(test_a_mapped_file_counts_and_nothing_refuses_it, without_limit),
        cmocka_unit_test(test_names_of_tensors_say_what_a_buffer_is_for),
        cmocka_unit_test(test_what_an_engine_says_of_a_buffer_is_an_event),
        cmocka_unit_test(test_a_model_is_loaded_without_a_read_and_marked),
        cmocka_unit_test_teardown(test_a_refused_model_is_not_marked, without_limit),
        cmocka_unit_test(test_contexts_of_a_model_are_told_apart),
        cmocka_unit_test(test_a_context_of_another_model_is_that_ones_first),
        cmocka_unit_test_teardown(test_a_scheduler_reserves_compute_buffers, without_limit),
        cmocka_unit_test(test_a_dry_run_of_tensors_is_a_plan_until_it_is_freed),
        cmocka_unit_test(test_a_program_is_given_the_pretended_devices_and_no_true_ones),
        cmocka_unit_test(test_a_server_on_another_machine_is_not_asked),
        cmocka_unit_test(test_a_buffer_of_a_device_is_its_own_and_not_the_hosts),
        cmocka_unit_test(test_a_dry_run_of_a_graph_keeps_its_placement),
        cmocka_unit_test(test_a_large_block_of_the_heap_counts),
        cmocka_unit_test(test_a_copy_of_a_state_is_told_by_its_size),
        cmocka_unit_test_teardown(test_the_heap_is_refused_where_the_host_has_no_room,
                                  without_limit),
        cmocka_unit_test(test_weights_are_skipped_and_the_header_is_read),
        cmocka_unit_test(test_a_stream_skips_whole_things_alone),
        cmocka_unit_test(test_nothing_is_brought_into_memory),
        cmocka_unit_test(test_nothing_is_computed),
        cmocka_unit_test(test_a_server_is_marked_when_it_listens_and_has_a_context),
    };
    return cmocka_run_group_tests(tests, NULL, forget_model_file);
}
