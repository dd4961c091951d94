/* SPDX-License-Identifier: MIT */
/* Which operations devices of Vulkan, Metal and CUDA take, as a ggml of API version 3 asks them.
 * Rows of `recorded` are answers that true devices gave; what is expected elsewhere is what
 * supports_op() of ggml-vulkan.cpp, ggml-metal-device.m and ggml-cuda.cu says. */
#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_ggml.h"
#include "rehearse/account.h"
#include "rehearse/rules.h"

#define GIB (UINT64_C(1) << 30)

static struct mt_account *account;
static const struct fake *fake;
static struct ggml_device *device;

static int meet(void **state)
{
    char path[] = "/tmp/memtally-kinds-XXXXXX";
    const struct fake *(*get)(void);
    int fd = mkstemp(path);
    (void)state;
    assert_int_equal(ftruncate(fd, sizeof *account), 0);
    account = mmap(NULL, sizeof *account, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    memcpy(account->magic, MT_ACCOUNT_MAGIC, sizeof account->magic);
    account->format = MT_ACCOUNT_FORMAT;
    account->n_devices = 1;
    strcpy(account->device[0].name, "Vulkan0");
    account->device[0].total_bytes = account->device[0].free_bytes = 24 * GIB;
    assert_int_equal(mt_pretend_rules_choose("vulkan", NULL, "11434", &account->rules, NULL), 0);
    setenv(MT_ACCOUNT_VARIABLE, path, 1);
    void *library = dlopen(FAKE_3_PATH, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    *(void **)&get = dlsym(library, "fake_ggml");
    fake = get();
    struct ggml_registry *registry = fake->load(PRETEND_PATH);
    assert_non_null(registry);
    device = registry->iface.get_device(registry, 0);
    unlink(path);
    return 0;
}

/* The same device by the rules of another kind. */
static void become(const char *kind)
{
    const char *generation = strcmp(kind, "cuda") == 0 ? "ampere" : NULL;
    assert_int_equal(mt_pretend_rules_choose(kind, generation, "11434", &account->rules, NULL), 0);
}

static bool takes(const struct ggml_tensor *op)
{
    return device->iface.supports_op(device, op);
}

/* Whether an operation of such types is taken. */
static bool takes_types(const char *name, enum fake_type a, enum fake_type b, enum fake_type result)
{
    struct ggml_tensor first = tensor_of(a, 256, 64, 1);
    struct ggml_tensor second = tensor_of(b, 256, 64, 1);
    struct ggml_tensor op = tensor_of(result, 256, 64, 1);
    op.op = fake->op(name);
    op.src[0] = &first;
    op.src[1] = &second;
    return takes(&op);
}

struct answer {
    const char *op;
    enum fake_type a, b, result;
    bool is_taken;
};

static void assert_answers(const char *kind, const struct answer *answers, size_t n)
{
    become(kind);
    for (size_t i = 0; i < n; i++) {
        const struct answer *each = &answers[i];
        if (takes_types(each->op, each->a, each->b, each->result) != each->is_taken)
            fail_msg("%s of %d and %d to %d on %s", each->op, each->a, each->b, each->result, kind);
    }
}

#define F32  FAKE_F32
#define F16  FAKE_F16
#define BF16 FAKE_BF16
#define Q8   FAKE_Q8_0
#define Q6   FAKE_Q6_K
#define I32  FAKE_I32

static void test_vulkan_takes_what_it_has_shaders_for(void **state)
{
    static const struct answer answers[] = {
        {"MUL_MAT", Q6, F32, F32, true},    {"MUL_MAT", BF16, F32, F32, true},
        {"MUL_MAT", BF16, F16, F32, false}, {"MUL_MAT", F32, BF16, F32, false},
        {"MUL_MAT", I32, F32, F32, false},  {"GET_ROWS", Q6, I32, F32, true},
        {"GET_ROWS", I32, I32, I32, true},  {"SET_ROWS", F32, I32, Q8, true},
        {"SET_ROWS", F32, F32, F16, false}, {"SET_ROWS", F32, I32, Q6, false},
        {"CPY", F32, Q8, Q8, true},         {"CPY", Q8, F32, F32, true},
        {"CPY", Q8, F16, F16, false},       {"CPY", Q8, Q8, Q8, true},
        {"CPY", F32, I32, I32, true},       {"ADD", F16, F32, F32, true},
        {"ADD", BF16, F32, F32, false},     {"SOFT_MAX", F32, F16, F32, true},
        {"SOFT_MAX", F16, F16, F32, false}, {"SCALE", F16, F16, F16, false},
        {"UNARY", F16, F16, F16, true},     {"UNARY", F16, F16, F32, false},
        {"CONCAT", F32, F16, F32, false},   {"CONCAT", Q8, Q8, Q8, true},
        {"NORM", F16, F32, F32, false},     {"CUSTOM", F32, F32, F32, false},
    };
    (void)state;
    assert_answers("vulkan", answers, sizeof answers / sizeof *answers);
}

static void test_metal_takes_what_it_has_kernels_for(void **state)
{
    static const struct answer answers[] = {
        {"MUL_MAT", Q6, F32, F32, true},    {"MUL_MAT", BF16, F32, F32, true},
        {"MUL_MAT", BF16, F16, F32, false}, {"GET_ROWS", Q6, I32, F32, true},
        {"SET_ROWS", F32, I32, Q8, true},   {"SET_ROWS", F16, I32, F16, true},
        {"SET_ROWS", F16, I32, F32, false}, {"SET_ROWS", F32, I32, Q6, false},
        {"CPY", F32, Q8, Q8, true},         {"CPY", Q8, F16, F16, true},
        {"CPY", Q8, Q8, Q8, false},         {"CPY", F16, BF16, BF16, false},
        {"CPY", BF16, F16, F16, false},     {"CPY", F32, BF16, BF16, true},
        {"CPY", I32, F32, F32, true},       {"ADD", F16, F32, F32, false},
        {"ADD", F16, F16, F16, true},       {"ADD", F32, F32, F32, true},
        {"ADD", BF16, F32, F32, false},     {"UNARY", BF16, F32, F32, false},
        {"ACC", F16, F16, F16, false},      {"ACC", F32, F32, F32, true},
        {"CONCAT", Q8, Q8, Q8, true},       {"CONCAT", F32, F16, F32, false},
        {"CUSTOM", F32, F32, F32, false},
    };
    (void)state;
    assert_answers("metal", answers, sizeof answers / sizeof *answers);
}

/* Copies as llama.cpp's test-backend-ops asks for them, and what a true device answered: rows of
 * docs/ops/Vulkan.csv and Metal.csv in llama.cpp's own repository, in its words. A source or a
 * result that is permuted 0,0,0,0 is not permuted. */
static const struct recorded {
    const char *kind;
    const char *types;
    const char *ne;
    const char *source;
    const char *result;
    bool is_taken;
} recorded[] = {
    {"vulkan", "bf16 bf16", "2,2,3,4", "0,0,0,0", "0,0,0,0", true},
    {"vulkan", "q4_0 q4_0", "32,2,3,4", "0,0,0,0", "0,0,0,0", true},
    {"vulkan", "q4_0 q4_0", "32,2,3,4", "0,2,1,3", "0,0,0,0", false},
    {"vulkan", "q4_0 q4_0", "32,2,3,4", "0,3,1,2", "0,2,1,3", false},
    {"vulkan", "q4_0 q4_0", "96,2,3,4", "0,0,0,0", "0,0,0,0", true},
    {"vulkan", "q4_0 q4_0", "96,2,3,4", "0,2,1,3", "0,0,0,0", false},
    {"vulkan", "q8_0 q8_0", "32,2,3,4", "0,0,0,0", "0,0,0,0", true},
    {"vulkan", "q8_0 q8_0", "64,2,3,4", "0,2,1,3", "0,0,0,0", false},
    {"vulkan", "q8_0 q8_0", "64,2,3,4", "0,3,1,2", "0,2,1,3", false},
    {"vulkan", "q6_K q6_K", "256,2,3,4", "0,0,0,0", "0,0,0,0", true},
    {"vulkan", "q6_K q6_K", "512,2,3,4", "0,2,1,3", "0,0,0,0", false},
    {"vulkan", "q6_K q6_K", "768,2,3,4", "0,3,1,2", "0,2,1,3", false},
    {"metal", "q8_0 f32", "256,4,4,4", "0,0,0,0", "0,0,0,0", true},
    {"metal", "q8_0 f32", "256,2,3,4", "0,2,1,3", "0,0,0,0", true},
    {"metal", "q6_K f32", "256,4,4,4", "0,0,0,0", "0,0,0,0", false},
    {"metal", "q6_K f32", "256,2,3,4", "0,2,1,3", "0,0,0,0", false},
    {"metal", "f16 f16", "256,2,3,4", "1,0,2,3", "0,0,0,0", true},
    {"metal", "f16 f32", "256,2,3,4", "1,0,2,3", "0,0,0,0", true},
    {"metal", "f32 f16", "256,2,3,4", "1,0,2,3", "0,0,0,0", true},
    {"metal", "f32 f32", "256,2,3,4", "1,0,2,3", "0,0,0,0", true},
    {"metal", "f32 i32", "256,2,3,4", "0,0,0,0", "0,0,0,0", true},
    {"metal", "f32 i32", "256,2,3,4", "1,0,2,3", "0,0,0,0", true},
    {"metal", "i32 f32", "256,2,3,4", "1,0,2,3", "0,0,0,0", true},
    {"metal", "i32 i32", "256,1,4,1", "1,2,0,3", "0,0,0,0", true},
    {"metal", "f32 f32", "256,1,4,1", "1,2,0,3", "0,0,0,0", true},
};

static enum fake_type type_named(const char *name, size_t length)
{
    static const char *const names[] = {
        [FAKE_F32] = "f32",   [FAKE_F16] = "f16",   [FAKE_Q8_0] = "q8_0", [FAKE_Q4_0] = "q4_0",
        [FAKE_Q6_K] = "q6_K", [FAKE_BF16] = "bf16", [FAKE_I32] = "i32"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == length && strncmp(names[i], name, length) == 0)
            return (enum fake_type)i;
    fail_msg("no type %s", name);
    return FAKE_F32;
}

static void read_four(const char *text, int64_t four[4])
{
    assert_int_equal(sscanf(text, "%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64, &four[0],
                            &four[1], &four[2], &four[3]),
                     4);
}

/* Dimension i of the tensor comes to stand at axis[i], as ggml's permutation has it. */
static struct ggml_tensor permuted(struct ggml_tensor tensor, const char *axes)
{
    int64_t axis[4];
    struct ggml_tensor result = tensor;
    read_four(axes, axis);
    if (axis[0] + axis[1] + axis[2] + axis[3] == 0)
        return tensor;
    for (int i = 0; i < 4; i++) {
        result.ne[axis[i]] = tensor.ne[i];
        result.nb[axis[i]] = tensor.nb[i];
    }
    return result;
}

static struct ggml_tensor tensor_of_four(enum fake_type type, const int64_t ne[4])
{
    struct ggml_tensor tensor = tensor_of(type, ne[0], ne[1], ne[2]);
    tensor.ne[3] = ne[3];
    return tensor;
}

static void test_copies_are_taken_as_true_devices_took_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof recorded / sizeof *recorded; i++) {
        const struct recorded *row = &recorded[i];
        const char *space = strchr(row->types, ' ');
        int64_t ne[4];
        read_four(row->ne, ne);
        struct ggml_tensor source = permuted(
            tensor_of_four(type_named(row->types, (size_t)(space - row->types)), ne), row->source);
        enum fake_type to = type_named(space + 1, strlen(space + 1));
        struct ggml_tensor result = permuted(tensor_of_four(to, source.ne), row->result);
        struct ggml_tensor op = result;
        op.op = fake->op("CPY");
        op.src[0] = &source;
        op.src[1] = &result;
        become(row->kind);
        if (takes(&op) != row->is_taken)
            fail_msg("CPY %s of %s, permuted %s to %s, on %s", row->types, row->ne, row->source,
                     row->result, row->kind);
    }
}

/* Whether attention with heads of such a size is taken, over a cache of a type. */
static bool attends(int64_t head, int64_t value, enum fake_type keys, enum fake_type values)
{
    struct ggml_tensor q = tensor_of(FAKE_F32, head, 64, 8);
    struct ggml_tensor k = tensor_of(FAKE_F16, head, 256, 8);
    struct ggml_tensor v = tensor_of(FAKE_F16, value, 256, 8);
    struct ggml_tensor op = tensor_of(FAKE_F32, value, 8, 64);
    k.type = (int)keys;
    v.type = (int)values;
    op.op = fake->op("FLASH_ATTN_EXT");
    op.src[0] = &q;
    op.src[1] = &k;
    op.src[2] = &v;
    return takes(&op);
}

static void test_vulkan_attends_with_heads_of_whole_eights(void **state)
{
    (void)state;
    become("vulkan");
    assert_true(attends(128, 128, F16, F16));
    assert_true(attends(160, 160, F16, F16));
    assert_true(attends(192, 128, Q8, Q8));
    assert_true(attends(128, 128, F16, Q8));
    assert_false(attends(84, 84, F16, F16));
    assert_false(attends(128, 100, F16, F16));
    assert_false(attends(128, 128, BF16, F16));
    assert_false(attends(128, 128, Q6, Q6));
}

static void test_metal_attends_with_heads_that_it_has_a_kernel_for(void **state)
{
    static const int64_t with[] = {32, 64, 72, 80, 96, 112, 128, 192, 256, 512, 576};
    static const int64_t without[] = {16, 100, 160, 384, 1024};
    (void)state;
    become("metal");
    for (size_t i = 0; i < sizeof with / sizeof *with; i++)
        assert_true(attends(with[i], with[i], F16, F16));
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        assert_false(attends(without[i], without[i], F16, F16));
    assert_true(attends(576, 512, F16, F16)); /* latent attention */
    assert_true(attends(192, 128, F16, F16));
    assert_true(attends(128, 128, Q8, Q8));
    assert_false(attends(128, 128, F16, Q8)); /* keys and values of one type */
}

/* maxStorageBufferRange is 4 GiB less a byte. */
static void test_vulkan_leaves_tensors_that_no_binding_spans(void **state)
{
    struct ggml_tensor source = tensor_of(FAKE_F32, 1 << 15, 1 << 15, 1);
    struct ggml_tensor op = tensor_of(FAKE_F32, 1 << 15, 1 << 15, 1);
    (void)state;
    op.op = fake->op("UNARY");
    op.src[0] = &source;
    become("metal");
    assert_true(takes(&op));
    become("vulkan");
    assert_false(takes(&op)); /* 2^30 elements of four bytes */
    source.ne[1] = op.ne[1] = (1 << 15) - 1;
    assert_true(takes(&op));
}

/* A recurrent state of Mamba-2: Vulkan's shader has states of 128 and 256, CUDA's one of 16 for
 * Mamba-1 too. */
static void test_states_are_scanned_where_there_is_a_kernel(void **state)
{
    struct ggml_tensor states = tensor_of(FAKE_F32, 128, 64, 8);
    struct ggml_tensor rates = tensor_of(FAKE_F32, 1, 8, 1);
    struct ggml_tensor op = tensor_of(FAKE_F32, 128, 64, 8);
    (void)state;
    op.op = fake->op("SSM_SCAN");
    op.src[0] = &states;
    op.src[3] = &rates;
    become("vulkan");
    assert_true(takes(&op));
    states.ne[0] = 64;
    assert_false(takes(&op));
    states.ne[0] = 256;
    assert_true(takes(&op));
    states.ne[1] = 24;
    assert_false(takes(&op));
    become("metal");
    assert_true(takes(&op));
}

/* Weights in views and other shapes cost nothing and are taken by all. */
static void test_views_are_taken_by_every_kind(void **state)
{
    static const char *const kinds[] = {"cuda", "vulkan", "metal"};
    static const char *const views[] = {"NONE", "VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        become(kinds[i]);
        for (size_t j = 0; j < 5; j++)
            assert_true(takes_types(views[j], Q6, Q6, Q6));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vulkan_takes_what_it_has_shaders_for),
        cmocka_unit_test(test_metal_takes_what_it_has_kernels_for),
        cmocka_unit_test(test_copies_are_taken_as_true_devices_took_them),
        cmocka_unit_test(test_vulkan_attends_with_heads_of_whole_eights),
        cmocka_unit_test(test_metal_attends_with_heads_that_it_has_a_kernel_for),
        cmocka_unit_test(test_vulkan_leaves_tensors_that_no_binding_spans),
        cmocka_unit_test(test_states_are_scanned_where_there_is_a_kernel),
        cmocka_unit_test(test_views_are_taken_by_every_kind),
    };
    return cmocka_run_group_tests(tests, meet, NULL);
}
