/* SPDX-License-Identifier: MIT */
/* Pretended devices, as a ggml of API version 2 and one of version 3 meet them. The numbers that
 * are expected follow from ggml-cuda's source: 128 bytes, rows of 512 elements, blocks of the
 * types. */
#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/fused.h"
#include "fake_ggml.h"
#include "rehearse/account.h"
#include "rehearse/rules.h"

#define MIB           (UINT64_C(1) << 20)
#define GIB           (UINT64_C(1) << 30)
#define CARD_BYTES    (24 * GIB)
#define TAKEN_BYTES   (512 * MIB)
#define N_DEVICES     3
#define OBJECTS_UNDER 2 /* of ggml that the tests run with */

static struct mt_account *account;

/* A ggml with the devices that it was given. */
struct meeting {
    const struct fake *fake;
    struct ggml_registry *registry;
    int version;
};

static struct meeting meetings[OBJECTS_UNDER] = {{.version = 2}, {.version = 3}};

static struct ggml_device *device(const struct meeting *m, size_t index)
{
    return m->registry->iface.get_device(m->registry, index);
}

/* The table of a type in the shape that version 3 has. */
static struct ggml_type_functions_3 table(const struct meeting *m, struct ggml_buffer_type *type)
{
    if (m->version == 3)
        return type->v3.iface;
    struct ggml_type_functions_2 old = type->v2.iface;
    return (struct ggml_type_functions_3){.get_name = old.get_name,
                                          .alloc_buffer = old.alloc_buffer,
                                          .get_alignment = old.get_alignment,
                                          .get_max_size = old.get_max_size,
                                          .get_alloc_size = old.get_alloc_size,
                                          .is_host = old.is_host};
}

static struct ggml_buffer_type *type_of(const struct meeting *m, size_t index)
{
    return device(m, index)->iface.get_buffer_type(device(m, index));
}

static size_t alloc_size(const struct meeting *m, const struct ggml_tensor *tensor)
{
    return table(m, type_of(m, 0)).get_alloc_size(type_of(m, 0), tensor);
}

static struct ggml_buffer *alloc(const struct meeting *m, struct ggml_buffer_type *type,
                                 size_t size)
{
    return table(m, type).alloc_buffer(type, size);
}

static void drop(struct ggml_buffer *buffer)
{
    buffer->iface.free_buffer(buffer);
    free(buffer);
}

static uint64_t free_of(const struct meeting *m, size_t index)
{
    size_t free_bytes, total_bytes;
    device(m, index)->iface.get_memory(device(m, index), &free_bytes, &total_bytes);
    assert_int_equal(total_bytes, CARD_BYTES);
    return free_bytes;
}

static const struct mt_account_event *last_event(void)
{
    return &account->event[account->n_events - 1];
}

static void test_devices_are_those_of_the_account(void **state)
{
    const struct meeting *m = *state;
    struct ggml_properties properties = {0};
    assert_int_equal(m->registry->api_version, m->version);
    assert_string_equal(m->registry->iface.get_name(m->registry), "CUDA");
    assert_int_equal(m->registry->iface.get_device_count(m->registry), N_DEVICES);
    device(m, 2)->iface.get_props(device(m, 2), &properties);
    assert_string_equal(properties.name, "CUDA2");
    assert_string_equal(properties.description, "a card");
    assert_true(properties.caps.async && properties.caps.events && properties.caps.host_buffer);
    /* Builds of version 2 from 10331 or so on have it too, and do not map weights without. */
    assert_true(properties.caps.mmap_support);
    assert_int_equal(properties.memory_free, CARD_BYTES - TAKEN_BYTES);
}

static void test_a_ggml_that_asks_twice_gets_the_same_devices(void **state)
{
    const struct meeting *m = *state;
    assert_ptr_equal(m->fake->load(PRETEND_PATH), m->registry);
}

static void test_rows_of_quantised_tensors_are_padded_to_512_elements(void **state)
{
    const struct meeting *m = *state;
    struct ggml_tensor whole = tensor_of(FAKE_Q8_0, 1024, 10, 1);
    struct ggml_tensor ragged = tensor_of(FAKE_Q8_0, 1536 - 96, 10, 1);
    struct ggml_tensor plain = tensor_of(FAKE_F16, 1440, 10, 1);
    assert_int_equal(alloc_size(m, &whole), 10 * 1024 / 32 * 34);
    assert_int_equal(alloc_size(m, &ragged), 10 * 1440 / 32 * 34 + 96 / 32 * 34);
    assert_int_equal(alloc_size(m, &plain), 10 * 1440 * 2);
    assert_int_equal(table(m, type_of(m, 0)).get_alignment(type_of(m, 0)), 128);
}

/* 2 sequences of 512 tokens, 32 heads of 128 on 8 key heads, 1024 cells of cache. */
struct attention {
    struct ggml_tensor q, k, v, mask, out;
};

static void make_attention(const struct meeting *m, struct attention *a, enum fake_type type,
                           int64_t tokens)
{
    a->q = tensor_of(FAKE_F32, 128, tokens, 32);
    a->k = tensor_of(type, 128, 1024, 8);
    a->v = tensor_of(type, 128, 1024, 8);
    a->mask = tensor_of(FAKE_F16, 1024, tokens, 1);
    a->out = tensor_of(FAKE_F32, 128, 32, tokens);
    a->out.op = m->fake->op("FLASH_ATTN_EXT");
    a->out.src[0] = &a->q;
    a->out.src[1] = &a->k;
    a->out.src[2] = &a->v;
    a->out.src[3] = &a->mask;
}

static void test_a_quantised_cache_is_copied_behind_the_output(void **state)
{
    const struct meeting *m = *state;
    struct attention a;
    const size_t out = 128 * 32 * 512 * 4, copy = 128 * 1024 * 8 * 2;
    make_attention(m, &a, FAKE_F16, 512);
    assert_int_equal(alloc_size(m, &a.out), out);
    make_attention(m, &a, FAKE_Q8_0, 512);
    assert_int_equal(alloc_size(m, &a.out), out + 2 * copy);
}

static void test_values_that_are_a_view_of_keys_are_copied_once(void **state)
{
    const struct meeting *m = *state;
    struct attention a;
    make_attention(m, &a, FAKE_Q8_0, 512);
    a.v.view_src = &a.k;
    assert_int_equal(alloc_size(m, &a.out), 128 * 32 * 512 * 4 + 128 * 1024 * 8 * 2);
}

static void test_a_single_token_reads_a_quantised_cache_as_it_is(void **state)
{
    const struct meeting *m = *state;
    struct attention a;
    make_attention(m, &a, FAKE_Q8_0, 1);
    assert_int_equal(alloc_size(m, &a.out), 128 * 32 * 4);
    /* Two tokens: from Ada on the vector kernel takes them, before it does not. */
    make_attention(m, &a, FAKE_Q8_0, 2);
    assert_int_equal(alloc_size(m, &a.out), 128 * 32 * 2 * 4 + 2 * 128 * 1024 * 8 * 2);
    account->rules.capability = 890;
    assert_int_equal(alloc_size(m, &a.out), 128 * 32 * 2 * 4);
    account->rules.capability = 800;
}

static void test_copies_start_at_multiples_of_128(void **state)
{
    const struct meeting *m = *state;
    struct attention a;
    make_attention(m, &a, FAKE_Q8_0, 512);
    a.out.ne[2] = 511;
    a.out.ne[0] = 127; /* 127 * 32 * 511 * 4 = 8,306,816 - 128 * 64: 0 over 128 */
    a.out.nb[1] = 508;
    a.out.nb[2] = 508 * 32;
    a.out.ne[1] = 31;
    const size_t out = 4 + 126 * 4 + 30 * 508 + (size_t)510 * 508 * 32;
    assert_int_not_equal(out % 128, 0);
    assert_int_equal(alloc_size(m, &a.out),
                     (out + 127) / 128 * 128 + (size_t)2 * 128 * 1024 * 8 * 2);
}

static bool takes(const struct meeting *m, const struct ggml_tensor *op)
{
    return device(m, 0)->iface.supports_op(device(m, 0), op);
}

static void test_heads_that_no_kernel_has_are_left_to_the_host(void **state)
{
    const struct meeting *m = *state;
    struct attention a;
    make_attention(m, &a, FAKE_F16, 512);
    assert_true(takes(m, &a.out));
    a.q.ne[0] = a.k.ne[0] = a.v.ne[0] = 160;
    assert_false(takes(m, &a.out));
}

static void test_work_of_32_rows_is_taken_over(void **state)
{
    const struct meeting *m = *state;
    struct ggml_tensor product = tensor_of(FAKE_F32, 4096, 31, 64);
    struct ggml_device *first = device(m, 0);
    product.op = m->fake->op("MUL_MAT");
    assert_false(first->iface.offload_op(first, &product));
    product.ne[1] = 32;
    assert_true(first->iface.offload_op(first, &product));
    product.op = m->fake->op("GET_ROWS");
    assert_false(first->iface.offload_op(first, &product));
    product.op = m->fake->op("MUL_MAT_ID"); /* its rows are the third dimension */
    product.ne[2] = 31;
    assert_false(first->iface.offload_op(first, &product));
    product.op = m->fake->op("RMS_NORM");
    assert_true(first->iface.offload_op(first, &product));
}

static void test_an_operation_that_is_not_known_is_not_taken(void **state)
{
    const struct meeting *m = *state;
    struct ggml_tensor op = tensor_of(FAKE_F32, 64, 1, 1);
    op.op = m->fake->op("CUSTOM");
    assert_false(takes(m, &op));
    op.op = m->fake->op("VIEW");
    assert_true(takes(m, &op));
}

static void test_rows_of_k_quants_are_got_from_a_later_build_on(void **state)
{
    const struct meeting *m = *state;
    struct ggml_tensor table_of_tokens = tensor_of(FAKE_Q6_K, 4096, 100, 1);
    struct ggml_tensor rows = tensor_of(FAKE_F32, 4096, 8, 1);
    rows.op = m->fake->op("GET_ROWS");
    rows.src[0] = &table_of_tokens;
    assert_true(takes(m, &rows));
    account->rules.build = 9840;
    assert_false(takes(m, &rows));
    account->rules.build = 11434;
}

static void test_buffers_have_addresses_of_their_own_and_no_memory(void **state)
{
    const struct meeting *m = *state;
    struct ggml_buffer *a = alloc(m, type_of(m, 0), 5 * GIB), *b = alloc(m, type_of(m, 1), 5 * GIB);
    assert_non_null(a);
    assert_non_null(b);
    uintptr_t at = (uintptr_t)a->iface.get_base(a), bt = (uintptr_t)b->iface.get_base(b);
    assert_int_equal(at % 128, 0);
    assert_true(bt >= at + 5 * GIB || at >= bt + 5 * GIB);
    struct ggml_tensor tensor = tensor_of(FAKE_F32, 16, 1, 1);
    float values[16];
    memset(values, 0xFF, sizeof values);
    tensor.data = (void *)at;
    tensor.buffer = a;
    a->iface.set_tensor(a, &tensor, values, 0, sizeof values);
    a->iface.clear(a, 1);
    a->iface.get_tensor(a, &tensor, values, 0, sizeof values);
    for (size_t i = 0; i < 16; i++)
        assert_true(values[i] == 0.0f);
    drop(a);
    drop(b);
}

static void test_capacity_is_enforced_and_the_refusal_is_noted(void **state)
{
    const struct meeting *m = *state;
    const uint64_t room = CARD_BYTES - TAKEN_BYTES;
    struct ggml_buffer *most = alloc(m, type_of(m, 0), room - 4 * MIB);
    assert_non_null(most);
    assert_int_equal(free_of(m, 0), 4 * MIB);
    assert_null(alloc(m, type_of(m, 0), 4 * MIB + 1));
    assert_int_equal(last_event()->kind, MT_ACCOUNT_REFUSE);
    assert_int_equal(last_event()->place, 0);
    assert_int_equal(last_event()->bytes, 4 * MIB + 1);
    assert_int_equal(last_event()->free_bytes, 4 * MIB);
    struct ggml_buffer *rest = alloc(m, type_of(m, 0), 4 * MIB);
    assert_non_null(rest);
    assert_int_equal(account->device[0].used_bytes, room);
    drop(rest);
    drop(most);
    assert_int_equal(account->device[0].used_bytes, 0);
    assert_int_equal(account->device[0].held_bytes, 0);
    assert_int_equal(account->device[0].peak_bytes, room);
    assert_int_equal(free_of(m, 1), room);
}

/* A card gives out whole pages of 2 MiB; the account keeps the bytes. */
static void test_free_memory_shrinks_by_whole_pages(void **state)
{
    const struct meeting *m = *state;
    uint64_t before = free_of(m, 2);
    struct ggml_buffer *buffer = alloc(m, type_of(m, 2), 3 * MIB);
    assert_int_equal(before - free_of(m, 2), 4 * MIB);
    assert_int_equal(account->device[2].used_bytes, 3 * MIB);
    drop(buffer);
    assert_int_equal(free_of(m, 2), before);
}

static void test_every_buffer_is_in_the_account(void **state)
{
    const struct meeting *m = *state;
    uint64_t n = account->n_events;
    struct ggml_buffer *buffer = alloc(m, type_of(m, 1), 7777);
    assert_int_equal(account->event[n].kind, MT_ACCOUNT_ALLOC);
    assert_int_equal(account->event[n].place, 1);
    assert_int_equal(account->event[n].bytes, 7777);
    assert_int_equal(account->event[n].object, (uintptr_t)buffer);
    assert_int_equal(account->event[n].pid, (uint32_t)getpid());
    assert_string_equal(account->event[n].name, "CUDA1");
    drop(buffer);
    assert_int_equal(account->event[n + 1].kind, MT_ACCOUNT_FREE);
    assert_int_equal(account->event[n + 1].object, account->event[n].object);
    assert_int_equal(account->n_events, n + 2);
}

static void test_pinned_memory_is_real_zeroed_and_of_the_host(void **state)
{
    const struct meeting *m = *state;
    struct ggml_buffer_type *pinned = device(m, 0)->iface.get_host_buffer_type(device(m, 0));
    assert_string_equal(table(m, pinned).get_name(pinned), "CUDA_Host");
    assert_true(table(m, pinned).is_host(pinned));
    assert_int_equal(table(m, pinned).get_alignment(pinned), 32);
    uint64_t before = account->host_used_bytes;
    struct ggml_buffer *buffer = alloc(m, pinned, 100000);
    assert_int_equal(account->host_used_bytes - before, 100000);
    unsigned char *bytes = buffer->iface.get_base(buffer);
    assert_int_equal(bytes[99999], 0);
    memset(bytes, 7, 100000);
    buffer->iface.clear(buffer, 0);
    for (size_t i = 0; i < 100000; i++)
        assert_int_equal(bytes[i], 0);
    drop(buffer);
    assert_int_equal(account->host_used_bytes, before);
    account->host_bytes = before + 99999;
    assert_null(alloc(m, pinned, 100000));
    account->host_bytes = 0;
}

static struct ggml_buffer_type *split_of(const struct meeting *m, const float *share)
{
    struct ggml_buffer_type *(*make)(int main_device, const float *share);
    *(void **)&make =
        m->registry->iface.get_proc_address(m->registry, "ggml_backend_split_buffer_type");
    return make ? make(0, share) : NULL;
}

/* 1000 rows of 4000 q8_0 over shares of 1, 1 and 2: rows start at 250 and 500, rounded down to
 * multiples of 128, so 128, 256 and 616 rows; each part's last row is padded by 96 elements. */
static void test_split_rows_are_rounded_and_each_part_padded(void **state)
{
    const struct meeting *m = *state;
    const float share[16] = {1, 1, 2};
    account->rules.has_split_buffers = 1;
    struct ggml_buffer_type *type = split_of(m, share);
    struct ggml_tensor weight = tensor_of(FAKE_Q8_0, 4000, 1000, 1);
    const uint64_t row = 4000 / 32 * 34, padding = 96 / 32 * 34;
    assert_non_null(type);
    assert_ptr_equal(split_of(m, share), type);
    assert_string_equal(table(m, type).get_name(type), "CUDA0_Split");
    assert_int_equal(table(m, type).get_alloc_size(type, &weight), 1000 * row + 3 * padding);
    struct ggml_buffer *buffer = alloc(m, type, 1000 * row + 3 * padding);
    assert_int_equal(buffer->iface.init_tensor(buffer, &weight), 0);
    assert_int_equal(account->device[0].used_bytes, 128 * row + padding);
    assert_int_equal(account->device[1].used_bytes, 256 * row + padding);
    assert_int_equal(account->device[2].used_bytes, 616 * row + padding);
    drop(buffer);
    for (size_t i = 0; i < N_DEVICES; i++)
        assert_int_equal(account->device[i].used_bytes, 0);
    account->rules.has_split_buffers = 0;
    assert_null(split_of(m, share));
}

static void test_a_backend_computes_at_once_and_reads_zeros(void **state)
{
    const struct meeting *m = *state;
    struct ggml_backend *backend = device(m, 0)->iface.init_backend(device(m, 0), NULL);
    struct ggml_graph graph = {0};
    char bytes[8] = "non-zero";
    assert_string_equal(backend->iface.get_name(backend), "CUDA0");
    assert_int_equal(backend->iface.graph_compute(backend, &graph), 0);
    backend->iface.get_tensor_async(backend, NULL, bytes, 0, sizeof bytes);
    assert_memory_equal(bytes, "\0\0\0\0\0\0\0\0", 8);
    struct ggml_event *event = device(m, 0)->iface.event_new(device(m, 0));
    backend->iface.event_record(backend, event);
    device(m, 0)->iface.event_free(device(m, 0), event);
    backend->iface.free(backend);
}

/* ggml-backend.h: a strided get writes `n_copies` rows of `size` bytes, and nothing between them.
 */
static void test_a_strided_get_writes_its_rows_and_nothing_between(void **state)
{
    static const char expected[16] = "\0\0\0\0----\0\0\0\0----";
    const struct meeting *m = *state;
    struct ggml_backend *backend = device(m, 0)->iface.init_backend(device(m, 0), NULL);
    struct ggml_buffer *buffer = alloc(m, type_of(m, 0), MIB);
    struct ggml_tensor tensor = tensor_of(FAKE_F32, 16, 1, 1);
    char bytes[16];
    tensor.buffer = buffer;
    memset(bytes, '-', sizeof bytes);
    if (buffer->iface.get_tensor_2d) {
        buffer->iface.set_tensor_2d(buffer, &tensor, bytes, 0, 4, 2, 64, 8);
        buffer->iface.get_tensor_2d(buffer, &tensor, bytes, 0, 4, 2, 64, 8);
        assert_memory_equal(bytes, expected, sizeof bytes);
    }
    memset(bytes, '-', sizeof bytes);
    if (backend->iface.get_tensor_2d_async) {
        backend->iface.set_tensor_2d_async(backend, &tensor, bytes, 0, 4, 2, 64, 8);
        backend->iface.get_tensor_2d_async(backend, &tensor, bytes, 0, 4, 2, 64, 8);
        assert_memory_equal(bytes, expected, sizeof bytes);
    }
    assert_true(m->version < 3 || backend->iface.get_tensor_2d_async);
    drop(buffer);
    backend->iface.free(backend);
}

/* What cpy_tensor() refuses, ggml copies through the host by get and set. */
static void test_only_what_lies_on_devices_is_copied_without_the_host(void **state)
{
    const struct meeting *m = *state;
    struct ggml_buffer_type *pinned = device(m, 0)->iface.get_host_buffer_type(device(m, 0));
    struct ggml_buffer *first = alloc(m, type_of(m, 0), MIB), *other = alloc(m, type_of(m, 1), MIB),
                       *host = alloc(m, pinned, MIB);
    struct ggml_tensor here = tensor_of(FAKE_F32, 16, 1, 1), there = here, there_too = here,
                       nowhere = here, view = here;
    here.buffer = first;
    there.buffer = other;
    there_too.buffer = host;
    view.view_src = &there;
    assert_true(first->iface.cpy_tensor(first, &there, &here));
    assert_false(first->iface.cpy_tensor(first, &there_too, &here));
    assert_false(first->iface.cpy_tensor(first, &nowhere, &here));
    assert_false(host->iface.cpy_tensor(host, &here, &there_too));

    struct ggml_backend *a = device(m, 0)->iface.init_backend(device(m, 0), NULL),
                        *b = device(m, 1)->iface.init_backend(device(m, 1), NULL);
    assert_true(a->iface.cpy_tensor_async(b, a, &there, &here));
    assert_true(a->iface.cpy_tensor_async(b, a, &view, &here));
    assert_false(a->iface.cpy_tensor_async(a, b, &there_too, &there));
    struct ggml_backend foreign = *b;
    foreign.iface.free = NULL;
    assert_false(a->iface.cpy_tensor_async(&foreign, a, &there, &here));
    a->iface.synchronize(a);
    a->iface.free(a);
    b->iface.free(b);
    drop(host);
    drop(other);
    drop(first);
}

/* Pinned memory is the host's: what is written there is read there. */
static void test_pinned_tensors_keep_what_they_are_given(void **state)
{
    const struct meeting *m = *state;
    struct ggml_buffer_type *pinned = device(m, 0)->iface.get_host_buffer_type(device(m, 0));
    struct ggml_buffer *buffer = alloc(m, pinned, 4096);
    struct ggml_tensor tensor = tensor_of(FAKE_F32, 64, 1, 1);
    char got[8];
    tensor.buffer = buffer;
    tensor.data = (char *)buffer->iface.get_base(buffer) + 64;
    buffer->iface.set_tensor(buffer, &tensor, "seen here", 16, 8);
    buffer->iface.get_tensor(buffer, &tensor, got, 16, sizeof got);
    assert_memory_equal(got, "seen her", sizeof got);
    assert_memory_equal((char *)tensor.data + 16, got, sizeof got);
    buffer->iface.memset_tensor(buffer, &tensor, 'x', 18, 2);
    buffer->iface.memset_tensor(buffer, &tensor, 0, 22, 1);
    buffer->iface.get_tensor(buffer, &tensor, got, 16, sizeof got);
    assert_memory_equal(got, "sexx h\0r", sizeof got);
    buffer->iface.clear(buffer, 0xAB);
    assert_int_equal(*(unsigned char *)buffer->iface.get_base(buffer), 0xAB);
    assert_int_equal(((unsigned char *)buffer->iface.get_base(buffer))[4095], 0xAB);
    drop(buffer);
}

static void test_types_say_where_their_memory_is(void **state)
{
    const struct meeting *m = *state;
    struct ggml_buffer_type *type = type_of(m, 2),
                            *pinned = device(m, 0)->iface.get_host_buffer_type(device(m, 0));
    struct ggml_tensor tensor = tensor_of(FAKE_F16, 33, 3, 1);
    assert_string_equal(table(m, type).get_name(type), "CUDA2");
    assert_false(table(m, type).is_host && table(m, type).is_host(type));
    assert_true(table(m, pinned).get_max_size(pinned) == SIZE_MAX);
    assert_int_equal(table(m, pinned).get_alloc_size(pinned, &tensor), 2 * 33 * 3);
    account->rules.buffer_bytes_max = GIB;
    assert_int_equal(table(m, type).get_max_size(type), GIB);
    assert_int_equal(table(m, pinned).get_max_size(pinned), GIB);
    account->rules.buffer_bytes_max = 0;
    assert_true(table(m, type).get_max_size(type) == SIZE_MAX);
    assert_string_equal(device(m, 1)->iface.get_name(device(m, 1)), "CUDA1");
    assert_string_equal(device(m, 1)->iface.get_description(device(m, 1)), "a card");
    struct ggml_properties properties = {0};
    device(m, 1)->iface.get_props(device(m, 1), &properties);
    assert_int_equal(device(m, 1)->iface.get_type(device(m, 1)), properties.type);
}

static void test_a_type_of_another_device_is_not_supported(void **state)
{
    const struct meeting *m = *state;
    struct ggml_device *first = device(m, 0);
    assert_true(first->iface.supports_buft(first, type_of(m, 0)));
    assert_false(first->iface.supports_buft(first, type_of(m, 1)));
    assert_false(first->iface.supports_buft(first, first->iface.get_host_buffer_type(first)));
}

/* Two experts of 64 for 6 tokens, weighed and added up: a product, two views, a sum. */
struct reduction {
    struct ggml_tensor experts, weights, weighed, view[2], sum, *nodes[4];
    struct ggml_graph graph;
};

static void make_reduction(const struct meeting *m, struct reduction *r)
{
    r->experts = r->weighed = tensor_of(FAKE_F32, 64, 2, 6);
    r->weights = tensor_of(FAKE_F32, 1, 2, 6);
    r->sum = tensor_of(FAKE_F32, 64, 6, 1);
    r->weighed.op = m->fake->op("MUL");
    r->weighed.src[0] = &r->experts;
    r->weighed.src[1] = &r->weights;
    for (size_t i = 0; i < 2; i++) {
        r->view[i] = r->sum;
        r->view[i].op = m->fake->op("VIEW");
        r->view[i].nb[1] = r->weighed.nb[2];
        r->view[i].src[0] = r->view[i].view_src = &r->weighed;
        r->view[i].view_offs = i * r->weighed.nb[1];
        r->sum.src[i] = &r->view[i];
    }
    r->sum.op = m->fake->op("ADD");
    r->nodes[0] = &r->weighed;
    r->nodes[1] = &r->view[0];
    r->nodes[2] = &r->view[1];
    r->nodes[3] = &r->sum;
    r->graph = (struct ggml_graph){.n_nodes = 4, .nodes = r->nodes};
}

static void optimize(const struct meeting *m, struct reduction *r,
                     const struct ggml_optimize *given)
{
    struct ggml_backend *backend = device(m, 0)->iface.init_backend(device(m, 0), NULL);
    m->fake->kept->count = 0;
    backend->iface.graph_optimize(backend, &r->graph, (struct ggml_optimize *)(uintptr_t)given);
    backend->iface.free(backend);
}

/* Whether ours can look at what it was given: emulators have no such call. */
static int can_look(void)
{
    int from = 1, to = 0;
    struct iovec there = {&from, sizeof from}, here = {&to, sizeof to};
    if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)sizeof to)
        return 1;
    print_message("# not run: there is no process_vm_readv() here\n");
    return 0;
}

static void test_a_fused_sum_of_experts_keeps_what_it_reads(void **state)
{
    const struct meeting *m = *state;
    struct reduction r;
    if (!can_look())
        return;
    make_reduction(m, &r);
    optimize(m, &r, m->fake->optimize);
    assert_int_equal(m->fake->kept->count, 2);
    assert_ptr_equal(m->fake->kept->each[0].tensor, &r.experts);
    assert_ptr_equal(m->fake->kept->each[1].tensor, &r.weights);
    assert_ptr_equal(m->fake->kept->each[0].until, &r.sum);
    r.view[1].view_offs = 0; /* twice the same expert is no sum of them */
    optimize(m, &r, m->fake->optimize);
    assert_int_equal(m->fake->kept->count, 0);
}

static void test_what_builds_may_keep_or_not_is_noted_and_not_kept(void **state)
{
    const struct meeting *m = *state;
    const uint32_t kept = account->rules.graph_dependencies;
    struct reduction r;
    if (!can_look())
        return;
    make_reduction(m, &r);
    account->rules.graph_dependencies = 0;
    account->builds.doubts = MT_KEEP_TOPK | MT_KEEP_REDUCTION;
    account->builds.doubts_met = 0;
    optimize(m, &r, m->fake->optimize);
    assert_int_equal(m->fake->kept->count, 0);
    assert_int_equal(account->builds.doubts_met, MT_KEEP_REDUCTION);
    account->rules.graph_dependencies = kept;
    account->builds.doubts = account->builds.doubts_met = 0;
}

static void test_types_that_builds_may_take_or_not_are_noted(void **state)
{
    const struct meeting *m = *state;
    struct ggml_device *first = device(m, 0);
    struct attention a;
    account->builds.doubts = MT_PRETEND_DOUBT_FLASH_TYPES;
    account->builds.doubts_met = 0;
    make_attention(m, &a, FAKE_Q8_0, 512);
    assert_true(first->iface.supports_op(first, &a.out));
    assert_int_equal(account->builds.doubts_met, 0);
    a.v = tensor_of(FAKE_Q4_0, 128, 1024, 8);
    assert_true(first->iface.supports_op(first, &a.out));
    assert_int_equal(account->builds.doubts_met, MT_PRETEND_DOUBT_FLASH_TYPES);
    account->builds.doubts = account->builds.doubts_met = 0;
}

/* Before graph_optimize had a third argument, whatever was in its register came along. */
static void test_an_argument_that_is_none_is_not_followed(void **state)
{
    const struct meeting *m = *state;
    const struct ggml_optimize stranger = {NULL, NULL};
    struct reduction r;
    make_reduction(m, &r);
    optimize(m, &r, NULL);
    optimize(m, &r, (const struct ggml_optimize *)(uintptr_t)0x77);
    optimize(m, &r, &stranger);
    assert_int_equal(m->fake->kept->count, 0);
}

static void fill_account(void)
{
    memcpy(account->magic, MT_ACCOUNT_MAGIC, sizeof account->magic);
    account->format = MT_ACCOUNT_FORMAT;
    account->n_devices = N_DEVICES;
    assert_int_equal(mt_pretend_rules_choose("cuda", "ampere", "11434", &account->rules, NULL), 0);
    for (size_t i = 0; i < N_DEVICES; i++) {
        snprintf(account->device[i].name, sizeof account->device[i].name, "CUDA%zu", i);
        strcpy(account->device[i].description, "a card");
        account->device[i].total_bytes = CARD_BYTES;
        account->device[i].free_bytes = CARD_BYTES - TAKEN_BYTES;
    }
}

static const struct fake *open_fake(const char *path)
{
    const struct fake *(*get)(void);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    *(void **)&get = dlsym(library, "fake_ggml");
    return get();
}

/* An unknown version first: it is refused by its number, and asking again may succeed. */
static int meet(void **state)
{
    char path[] = "/tmp/memtally-pretend-XXXXXX";
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, sizeof *account), 0);
    account = mmap(NULL, sizeof *account, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    fill_account();
    setenv(MT_ACCOUNT_VARIABLE, path, 1);
    meetings[0].fake = open_fake(FAKE_2_PATH);
    meetings[1].fake = open_fake(FAKE_3_PATH);
    meetings[1].fake->set_version(4);
    assert_null(meetings[1].fake->load(PRETEND_PATH));
    meetings[1].fake->set_version(3);
    unlink(path);
    return 0;
}

static void test_an_unknown_version_is_refused_by_name(void **state)
{
    (void)state;
    assert_int_equal(account->is_refused, 1);
    assert_int_equal(account->api_version, 4);
    assert_int_equal(account->n_attached, 0);
    assert_int_equal(account->event[0].kind, MT_ACCOUNT_NOTE);
    char text[sizeof account->event[0].name + sizeof account->event[0].detail];
    snprintf(text, sizeof text, "%s%s", account->event[0].name, account->event[0].detail);
    assert_non_null(strstr(text, "version 4"));
}

static void test_both_versions_take_the_devices(void **state)
{
    (void)state;
    for (size_t i = 0; i < OBJECTS_UNDER; i++) {
        meetings[i].registry = meetings[i].fake->load(PRETEND_PATH);
        assert_non_null(meetings[i].registry);
    }
    assert_int_equal(account->n_attached, 2);
    assert_string_equal(account->builds.ggml_version, "0.25.3");
}

#define BOTH(test)                                                                                 \
    {#test " (version 2)", test, NULL, NULL, &meetings[0]},                                        \
    {                                                                                              \
#test " (version 3)", test, NULL, NULL, &meetings[1]                                       \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_unknown_version_is_refused_by_name),
        cmocka_unit_test(test_both_versions_take_the_devices),
        BOTH(test_devices_are_those_of_the_account),
        BOTH(test_a_ggml_that_asks_twice_gets_the_same_devices),
        BOTH(test_rows_of_quantised_tensors_are_padded_to_512_elements),
        BOTH(test_a_quantised_cache_is_copied_behind_the_output),
        BOTH(test_values_that_are_a_view_of_keys_are_copied_once),
        BOTH(test_a_single_token_reads_a_quantised_cache_as_it_is),
        BOTH(test_copies_start_at_multiples_of_128),
        BOTH(test_heads_that_no_kernel_has_are_left_to_the_host),
        BOTH(test_work_of_32_rows_is_taken_over),
        BOTH(test_an_operation_that_is_not_known_is_not_taken),
        BOTH(test_rows_of_k_quants_are_got_from_a_later_build_on),
        BOTH(test_buffers_have_addresses_of_their_own_and_no_memory),
        BOTH(test_capacity_is_enforced_and_the_refusal_is_noted),
        BOTH(test_free_memory_shrinks_by_whole_pages),
        BOTH(test_every_buffer_is_in_the_account),
        BOTH(test_pinned_memory_is_real_zeroed_and_of_the_host),
        BOTH(test_split_rows_are_rounded_and_each_part_padded),
        BOTH(test_a_backend_computes_at_once_and_reads_zeros),
        BOTH(test_a_strided_get_writes_its_rows_and_nothing_between),
        BOTH(test_only_what_lies_on_devices_is_copied_without_the_host),
        BOTH(test_pinned_tensors_keep_what_they_are_given),
        BOTH(test_types_say_where_their_memory_is),
        BOTH(test_a_type_of_another_device_is_not_supported),
        BOTH(test_a_fused_sum_of_experts_keeps_what_it_reads),
        BOTH(test_what_builds_may_keep_or_not_is_noted_and_not_kept),
        BOTH(test_types_that_builds_may_take_or_not_are_noted),
        BOTH(test_an_argument_that_is_none_is_not_followed),
    };
    return cmocka_run_group_tests(tests, meet, NULL);
}
