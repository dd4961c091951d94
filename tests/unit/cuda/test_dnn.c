/* SPDX-License-Identifier: MIT */
/* cuDNN as programs call it. Statuses, numbers of attributes and types of values are those of
 * cuDNN's documentation (version 9). */
#include "look_alike.h"

enum {
    SUCCESS = 0,
    NOT_INITIALIZED = 1001,
    BAD_PARAM = 2000,
    NULL_POINTER = 2002,
    NOT_FINALIZED = 2004,
    ATTRIBUTE_TYPE = 2010
};
enum { FLOAT = 0, HALF = 2 };

static void *dnn;
static void *handle;

#define FUNCTION(name, ...)                                                                        \
    int (*name)(__VA_ARGS__);                                                                      \
    *(void **)&name = find(dnn, #name)

static int set_up(void **state)
{
    (void)state;
    make_account();
    account->device[0].gpu.threads_most = 2048;
    start_driver();
    dnn = load(DNN_PATH);
    FUNCTION(cudnnCreate, void **);
    return cudnnCreate(&handle);
}

static void *made(const char *name)
{
    int (*create)(void **);
    void *descriptor = NULL;
    *(void **)&create = find(dnn, name);
    assert_int_equal(create(&descriptor), SUCCESS);
    assert_non_null(descriptor);
    return descriptor;
}

static void test_a_tensor_gives_back_its_dimensions_and_strides(void **state)
{
    FUNCTION(cudnnSetTensorNdDescriptor, void *, int, int, const int *, const int *);
    FUNCTION(cudnnGetTensorNdDescriptor, void *, int, int *, int *, int *, int *);
    FUNCTION(cudnnGetTensorSizeInBytes, void *, size_t *);
    void *tensor = made("cudnnCreateTensorDescriptor");
    int type, n, dims[4], strides[4];
    size_t bytes;
    (void)state;
    /* 2 samples, 3 channels of 4 by 5, each row of 5 in 8 places. */
    assert_int_equal(
        cudnnSetTensorNdDescriptor(tensor, HALF, 4, (int[]){2, 3, 4, 5}, (int[]){96, 32, 8, 1}),
        SUCCESS);
    assert_int_equal(cudnnGetTensorNdDescriptor(tensor, 4, &type, &n, dims, strides), SUCCESS);
    assert_int_equal(type, HALF);
    assert_int_equal(n, 4);
    assert_memory_equal(dims, ((int[]){2, 3, 4, 5}), sizeof dims);
    assert_memory_equal(strides, ((int[]){96, 32, 8, 1}), sizeof strides);
    assert_int_equal(cudnnGetTensorSizeInBytes(tensor, &bytes), SUCCESS);
    assert_int_equal(bytes, (96 + 2 * 32 + 3 * 8 + 4 + 1) * 2);
    assert_int_equal(cudnnSetTensorNdDescriptor(tensor, HALF, 9, (int[]){1}, NULL), BAD_PARAM);
    assert_int_equal(cudnnSetTensorNdDescriptor(NULL, HALF, 1, (int[]){1}, NULL), BAD_PARAM);
}

static void test_a_convolution_has_the_documented_output(void **state)
{
    FUNCTION(cudnnSetTensor4dDescriptor, void *, int, int, int, int, int, int);
    FUNCTION(cudnnSetFilter4dDescriptor, void *, int, int, int, int, int, int);
    FUNCTION(cudnnSetConvolution2dDescriptor, void *, int, int, int, int, int, int, int, int);
    FUNCTION(cudnnGetConvolution2dForwardOutputDim, void *, void *, void *, int *, int *, int *,
             int *);
    void *x = made("cudnnCreateTensorDescriptor");
    void *w = made("cudnnCreateFilterDescriptor");
    void *convolution = made("cudnnCreateConvolutionDescriptor");
    int n, c, h, wide;
    (void)state;
    assert_int_equal(cudnnSetTensor4dDescriptor(x, 0, FLOAT, 8, 3, 224, 224), SUCCESS);
    assert_int_equal(cudnnSetFilter4dDescriptor(w, FLOAT, 0, 64, 3, 7, 7), SUCCESS);
    assert_int_equal(cudnnSetConvolution2dDescriptor(convolution, 3, 3, 2, 2, 1, 1, 1, FLOAT),
                     SUCCESS);
    /* The first layer of a residual network: 224 becomes 112. */
    assert_int_equal(cudnnGetConvolution2dForwardOutputDim(convolution, x, w, &n, &c, &h, &wide),
                     SUCCESS);
    assert_int_equal(n, 8);
    assert_int_equal(c, 64);
    assert_int_equal(h, 112);
    assert_int_equal(wide, 112);
}

static void test_a_network_has_as_many_weights_as_its_cells(void **state)
{
    FUNCTION(cudnnSetRNNDescriptor_v8, void *, int, int, int, int, int, int, int, int, int, int,
             int, int, void *, unsigned);
    FUNCTION(cudnnGetRNNWeightSpaceSize, void *, void *, size_t *);
    FUNCTION(cudnnGetRNNWeightParams, void *, void *, int, size_t, const void *, int, void *,
             void **, void *, void **);
    void *rnn = made("cudnnCreateRNNDescriptor");
    void *matrix = made("cudnnCreateTensorDescriptor");
    void *at = NULL, *bias_at = NULL;
    size_t bytes;
    (void)state;
    /* A long short-term memory of two layers both ways: input 10, hidden 20, both biases. */
    assert_int_equal(
        cudnnSetRNNDescriptor_v8(rnn, 0, 2, 2, 1, 0, FLOAT, FLOAT, 0, 10, 20, 0, 2, NULL, 0),
        SUCCESS);
    assert_int_equal(cudnnGetRNNWeightSpaceSize(handle, rnn, &bytes), SUCCESS);
    size_t first = 4 * 20 * (10 + 20), second = 4 * 20 * (40 + 20), biases = 2 * 4 * 20;
    assert_int_equal(bytes, (2 * first + 2 * second + 4 * biases) * sizeof(float));
    /* The recurrent matrix of the third gate of the second layer's first direction. */
    assert_int_equal(cudnnGetRNNWeightParams(handle, rnn, 2, bytes, (void *)0x10000, 4 + 2, matrix,
                                             &at, NULL, &bias_at),
                     SUCCESS);
    assert_int_equal((uintptr_t)at - 0x10000,
                     (2 * first + 4 * 20 * 40 + 2 * 20 * 20) * sizeof(float));
    assert_int_equal((uintptr_t)bias_at - 0x10000,
                     (2 * first + 2 * second + 2 * biases + 6 * 20) * sizeof(float));
    assert_int_equal(
        cudnnSetRNNDescriptor_v8(rnn, 0, 9, 2, 1, 0, FLOAT, FLOAT, 0, 10, 20, 0, 2, NULL, 0),
        BAD_PARAM);
}

static void test_dropout_keeps_a_generator_for_each_thread(void **state)
{
    FUNCTION(cudnnDropoutGetStatesSize, void *, size_t *);
    size_t bytes;
    (void)state;
    assert_int_equal(cudnnDropoutGetStatesSize(handle, &bytes), SUCCESS);
    assert_int_equal(bytes, 132 * 2048 * 24);
    assert_int_equal(cudnnDropoutGetStatesSize(NULL, &bytes), BAD_PARAM);
}

/* The graph interface: values of cudnnBackendAttributeName_t and …AttributeType_t. */
enum { TYPE_INT64 = 3, TYPE_DESCRIPTOR = 15, TYPE_DATA = 1 };
static int (*set)(void *, int, int, int64_t, const void *);
static int (*get)(void *, int, int, int64_t, int64_t *, void *);
static int (*create)(int, void **);
static int (*finalize)(void *);

static void *backend(int type)
{
    void *descriptor;
    assert_int_equal(create(type, &descriptor), SUCCESS);
    return descriptor;
}

static void put(void *into, int name, int type, int64_t count, const void *values)
{
    assert_int_equal(set(into, name, type, count, values), SUCCESS);
}

static void *tensor(int64_t id, const int64_t dims[4])
{
    void *t = backend(17);
    int64_t strides[] = {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
    put(t, 906, TYPE_INT64, 1, &id);
    put(t, 901, TYPE_DATA, 1, &(int){FLOAT});
    put(t, 902, TYPE_INT64, 4, dims);
    put(t, 903, TYPE_INT64, 4, strides);
    assert_int_equal(finalize(t), SUCCESS);
    return t;
}

static void *convolution_graph(void)
{
    void *operation = backend(10), *graph = backend(15);
    void *x = tensor('x', (int64_t[]){8, 64, 56, 56});
    void *w = tensor('w', (int64_t[]){128, 64, 3, 3});
    put(operation, 704, TYPE_DESCRIPTOR, 1, &x);
    put(operation, 703, TYPE_DESCRIPTOR, 1, &w);
    assert_int_equal(finalize(operation), SUCCESS);
    put(graph, 801, TYPE_DESCRIPTOR, 1, &operation);
    assert_int_equal(finalize(graph), SUCCESS);
    return graph;
}

static int start_graphs(void **state)
{
    (void)state;
    *(void **)&set = find(dnn, "cudnnBackendSetAttribute");
    *(void **)&get = find(dnn, "cudnnBackendGetAttribute");
    *(void **)&create = find(dnn, "cudnnBackendCreateDescriptor");
    *(void **)&finalize = find(dnn, "cudnnBackendFinalize");
    return 0;
}

static void test_a_graph_has_one_engine_and_a_plan_of_it_runs(void **state)
{
    FUNCTION(cudnnBackendExecute, void *, void *, void *);
    void *graph = convolution_graph(), *heuristics = backend(4), *config = backend(3);
    void *engine = backend(2), *plan = backend(5), *pack = backend(16);
    int64_t count = -1, index = -1, workspace = -1;
    (void)state;
    put(heuristics, 201, TYPE_DESCRIPTOR, 1, &graph);
    assert_int_equal(get(heuristics, 202, TYPE_DESCRIPTOR, 0, &count, NULL), NOT_FINALIZED);
    assert_int_equal(finalize(heuristics), SUCCESS);
    assert_int_equal(get(heuristics, 202, TYPE_DESCRIPTOR, 0, &count, NULL), SUCCESS);
    assert_int_equal(count, 1);
    assert_int_equal(get(heuristics, 202, TYPE_DESCRIPTOR, 1, &count, &config), SUCCESS);
    assert_int_equal(get(config, 300, TYPE_DESCRIPTOR, 1, &count, &engine), SUCCESS);
    assert_int_equal(get(engine, 1301, TYPE_INT64, 1, &count, &index), SUCCESS);
    assert_int_equal(index, 0);
    put(plan, 401, TYPE_DESCRIPTOR, 1, &config);
    assert_int_equal(cudnnBackendExecute(handle, plan, pack), BAD_PARAM);
    assert_int_equal(finalize(plan), SUCCESS);
    assert_int_equal(get(plan, 402, TYPE_INT64, 1, NULL, &workspace), SUCCESS);
    assert_int_equal(workspace, 0);
    assert_int_equal(finalize(pack), SUCCESS);
    assert_int_equal(cudnnBackendExecute(handle, plan, pack), SUCCESS);
}

static void test_attributes_are_of_their_type_and_fixed_when_final(void **state)
{
    void *t = tensor('t', (int64_t[]){1, 2, 3, 4});
    int64_t dims[4] = {0}, count = 0;
    (void)state;
    assert_int_equal(get(t, 902, TYPE_INT64, 2, &count, dims), SUCCESS);
    assert_int_equal(count, 4);
    assert_memory_equal(dims, ((int64_t[]){1, 2, 0, 0}), sizeof dims);
    assert_int_equal(get(t, 902, TYPE_DATA, 4, &count, dims), ATTRIBUTE_TYPE);
    assert_int_equal(set(t, 902, TYPE_INT64, 4, dims), NOT_INITIALIZED);
    assert_int_equal(set(backend(17), 902, 77, 1, dims), ATTRIBUTE_TYPE);
    assert_int_equal(set(NULL, 902, TYPE_INT64, 1, dims), NULL_POINTER);
    assert_int_equal(finalize(NULL), NULL_POINTER);
}

/* What an attribute holds stays when the program is done with it. */
static void test_a_child_outlives_its_destruction(void **state)
{
    FUNCTION(cudnnBackendDestroyDescriptor, void *);
    void *graph = convolution_graph(), *engine = backend(2), *config = backend(3);
    void *read = backend(2);
    int64_t count, index = -1;
    (void)state;
    put(engine, 1300, TYPE_DESCRIPTOR, 1, &graph);
    put(engine, 1301, TYPE_INT64, 1, &(int64_t){7});
    assert_int_equal(cudnnBackendDestroyDescriptor(graph), SUCCESS);
    assert_int_equal(finalize(engine), SUCCESS);
    put(config, 300, TYPE_DESCRIPTOR, 1, &engine);
    assert_int_equal(cudnnBackendDestroyDescriptor(engine), SUCCESS);
    for (int i = 0; i < 64; i++) /* takes the memory of what is gone */
        put(backend(2), 1301, TYPE_INT64, 1, &(int64_t){9});
    assert_int_equal(finalize(config), SUCCESS);
    assert_int_equal(get(config, 300, TYPE_DESCRIPTOR, 1, &count, &read), SUCCESS);
    assert_int_equal(get(read, 1301, TYPE_INT64, 1, &count, &index), SUCCESS);
    assert_int_equal(index, 7);
}

static void test_sizes_that_are_not_known_are_said_to_be(void **state)
{
    FUNCTION(cudnnGetBatchNormalizationTrainingExReserveSpaceSize, void *, int, int, void *, void *,
             size_t *);
    size_t bytes = 99;
    int said = 0;
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(
            cudnnGetBatchNormalizationTrainingExReserveSpaceSize(handle, 1, 0, NULL, NULL, &bytes),
            SUCCESS);
    assert_int_equal(bytes, 0);
    for (uint64_t i = 0; i < account->n_events; i++)
        if (account->event[i].kind == MT_ACCOUNT_NOTE &&
            strstr(account->event[i].name, "cudnnGetBatchNorm"))
            said++;
    assert_int_equal(said, 1);
}

/* Puts a library in the place of a package's, with what the package says it goes with. Returns the
 * version that cuDNN passes for while it is loaded. */
static size_t version_beside(const char *library, const char *package, const char *wish)
{
    char folder[] = "/tmp/memtally-dnn-XXXXXX";
    char command[1024], path[256];
    size_t (*version)(void);
    *(void **)&version = find(dnn, "cudnnGetVersion");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/%s", folder, library);
    snprintf(command, sizeof command,
             "mkdir -p $(dirname %s) %s/%s && ln -s %s %s && printf '%%s\\n' '%s' > %s/%s/METADATA",
             path, folder, package, NEEDS_RUNTIME_PATH, path, wish, folder, package);
    assert_int_equal(system(command), 0);
    void *runtime = load(RUNTIME_PATH "13.so"); /* which it needs, by its soname */
    void *asker = load(path);
    size_t found = version();
    dlclose(asker);
    dlclose(runtime);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    return found;
}

/* A line of jax-cuda13-plugin 0.10.2, whose jaxlib refuses an older one than it was built with.
 * What is asked first, before there is such a library, is the usual one, and stays open. */
static void test_the_version_is_one_that_jax_takes(void **state)
{
    size_t (*version)(void);
    (void)state;
    *(void **)&version = find(dnn, "cudnnGetVersion");
    assert_int_equal(version(), 91002);
    assert_int_equal(version_beside("jax_plugins/xla_cuda13/xla_cuda_plugin.so",
                                    "jax_cuda13_plugin-0.10.2.dist-info",
                                    "Requires-Dist: nvidia-cudnn-cu13<10.0,>=9.12.0.46; "
                                    "sys_platform == \"linux\" and extra == \"with-cuda\""),
                     91200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_tensor_gives_back_its_dimensions_and_strides),
        cmocka_unit_test(test_a_convolution_has_the_documented_output),
        cmocka_unit_test(test_a_network_has_as_many_weights_as_its_cells),
        cmocka_unit_test(test_dropout_keeps_a_generator_for_each_thread),
        cmocka_unit_test_setup(test_a_graph_has_one_engine_and_a_plan_of_it_runs, start_graphs),
        cmocka_unit_test_setup(test_attributes_are_of_their_type_and_fixed_when_final,
                               start_graphs),
        cmocka_unit_test_setup(test_a_child_outlives_its_destruction, start_graphs),
        cmocka_unit_test(test_sizes_that_are_not_known_are_said_to_be),
        cmocka_unit_test(test_the_version_is_one_that_jax_takes),
    };
    return cmocka_run_group_tests(tests, set_up, drop_account);
}
