/* SPDX-License-Identifier: MIT */
/* cuBLAS and cuBLASLt as programs see them. Status codes, sizes of workspaces and of attributes are
 * those of the documentation of cuBLAS 12 and 13. */
#include "look_alike.h"

#include <math.h>

enum { SUCCESS, NOT_INITIALIZED, ALLOC_FAILED = 3, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };

static void *blas, *lt;

struct handle;
static int (*create)(struct handle **);
static int (*destroy)(struct handle *);
static int (*set_stream)(struct handle *, void *);
static int (*set_workspace)(struct handle *, void *, size_t);
static int (*sgemm)(struct handle *, int, int, int, int, int, const float *, const void *, int,
                    const void *, int, const float *, void *, int);

static const float one = 1, zero = 0;

static int multiply(struct handle *handle)
{
    return sgemm(handle, 0, 0, 8, 8, 8, &one, NULL, 8, NULL, 8, &zero, NULL, 8);
}

static int set_up(void **state)
{
    (void)state;
    make_account();
    start_driver();
    lt = load(BLASLT_PATH);
    blas = load(BLAS_PATH);
    *(void **)&create = find(blas, "cublasCreate_v2");
    *(void **)&destroy = find(blas, "cublasDestroy_v2");
    *(void **)&set_stream = find(blas, "cublasSetStream_v2");
    *(void **)&set_workspace = find(blas, "cublasSetWorkspace_v2");
    *(void **)&sgemm = find(blas, "cublasSgemm_v2");
    return 0;
}

static void test_no_handle_is_not_initialised(void **state)
{
    (void)state;
    assert_int_equal(multiply(NULL), NOT_INITIALIZED);
    assert_int_equal(destroy(NULL), NOT_INITIALIZED);
    assert_int_equal(set_stream(NULL, NULL), NOT_INITIALIZED);
    assert_int_equal(create(NULL), INVALID_VALUE);
}

static void test_what_is_set_of_a_handle_is_what_it_has(void **state)
{
    struct handle *handle;
    int (*set_mode)(struct handle *, int);
    int (*get_mode)(struct handle *, int *);
    int (*get_stream)(struct handle *, void **);
    int mode = -1;
    void *stream = NULL;
    (void)state;
    *(void **)&set_mode = find(blas, "cublasSetPointerMode_v2");
    *(void **)&get_mode = find(blas, "cublasGetPointerMode_v2");
    *(void **)&get_stream = find(blas, "cublasGetStream_v2");
    assert_int_equal(create(&handle), SUCCESS);
    assert_int_equal(get_mode(handle, &mode), SUCCESS);
    assert_int_equal(mode, 0); /* CUBLAS_POINTER_MODE_HOST is the default */
    assert_int_equal(set_mode(handle, 1), SUCCESS);
    assert_int_equal(get_mode(handle, &mode), SUCCESS);
    assert_int_equal(mode, 1);
    assert_int_equal(set_mode(handle, 2), INVALID_VALUE);
    assert_int_equal(set_stream(handle, (void *)2), SUCCESS); /* cudaStreamPerThread */
    assert_int_equal(get_stream(handle, &stream), SUCCESS);
    assert_ptr_equal(stream, (void *)2);
    assert_int_equal(destroy(handle), SUCCESS);
}

static void test_default_workspace_is_taken_once_and_given_back(void **state)
{
    struct handle *handle;
    uint64_t before = account->device[0].used_bytes;
    (void)state;
    assert_int_equal(create(&handle), SUCCESS);
    assert_int_equal(account->device[0].used_bytes, before);
    assert_int_equal(multiply(handle), SUCCESS);
    assert_int_equal(account->device[0].used_bytes - before, 32 * MIB); /* Hopper's */
    assert_int_equal(held_as(0, MT_CATEGORY_WORKSPACE), 32 * MIB);
    assert_int_equal(multiply(handle), SUCCESS);
    assert_int_equal(account->device[0].used_bytes - before, 32 * MIB);
    assert_int_equal(destroy(handle), SUCCESS);
    assert_int_equal(account->device[0].used_bytes, before);
}

static void test_default_workspace_goes_by_capability_and_by_configuration(void **state)
{
    static const struct {
        uint32_t capability;
        const char *configuration;
        uint64_t bytes;
    } cases[] = {{75, NULL, 4 * MIB},
                 {80, NULL, 4 * MIB},
                 {89, NULL, 4 * MIB},
                 {100, NULL, 32 * MIB},
                 {120, NULL, 12 * MIB},
                 {90, ":4096:8", 32 * MIB},
                 {80, ":4096:2:2048:2", 12 * MIB}, /* two of 4 MiB and two of 2 MiB */
                 {80, "nonsense", 4 * MIB}};
    uint64_t before = account->device[0].used_bytes;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct handle *handle;
        account->device[0].gpu.capability = cases[i].capability;
        if (cases[i].configuration)
            setenv("CUBLAS_WORKSPACE_CONFIG", cases[i].configuration, 1);
        assert_int_equal(create(&handle), SUCCESS);
        assert_int_equal(multiply(handle), SUCCESS);
        assert_int_equal(account->device[0].used_bytes - before, cases[i].bytes);
        assert_int_equal(destroy(handle), SUCCESS);
        unsetenv("CUBLAS_WORKSPACE_CONFIG");
    }
    account->device[0].gpu.capability = 90;
}

static void test_own_workspace_stands_for_the_default_until_the_stream_changes(void **state)
{
    struct handle *handle;
    uint64_t before = account->device[0].used_bytes;
    (void)state;
    assert_int_equal(create(&handle), SUCCESS);
    assert_int_equal(set_workspace(handle, (void *)0x1001, 4096), INVALID_VALUE); /* not aligned */
    assert_int_equal(set_workspace(handle, (void *)0x10000, 4096), SUCCESS);
    assert_int_equal(multiply(handle), SUCCESS);
    assert_int_equal(account->device[0].used_bytes, before);
    assert_int_equal(set_stream(handle, NULL), SUCCESS);
    assert_int_equal(multiply(handle), SUCCESS);
    assert_int_equal(account->device[0].used_bytes - before, 32 * MIB);
    assert_int_equal(destroy(handle), SUCCESS);
}

/* The account has room for 262,144 events in all, and PyTorch sets a workspace for each product. */
static void test_workspace_that_is_set_again_and_again_leaves_room_in_the_account(void **state)
{
    struct handle *handle;
    uint64_t before = account->n_events;
    int *workspaces[2] = {device_integers(MIB), device_integers(MIB)};
    (void)state;
    assert_int_equal(create(&handle), SUCCESS);
    for (int i = 0; i < 300000; i++)
        assert_int_equal(set_workspace(handle, workspaces[i % 2], 4096), SUCCESS);
    uint64_t n_told = account->n_events - before;
    assert_in_range(n_told, 2, 10000);
    assert_int_equal(set_workspace(handle, workspaces[0], 8192), SUCCESS); /* this is news */
    assert_int_equal(account->n_events - before, n_told + 1);
    assert_int_equal(destroy(handle), SUCCESS);
}

static void test_workspace_that_does_not_fit_fails_to_be_allocated(void **state)
{
    struct handle *handle;
    uint64_t room = account->device[0].free_bytes;
    (void)state;
    assert_int_equal(create(&handle), SUCCESS);
    account->device[0].free_bytes = account->device[0].used_bytes + 16 * MIB;
    assert_int_equal(multiply(handle), ALLOC_FAILED);
    account->device[0].free_bytes = room;
    assert_int_equal(multiply(handle), SUCCESS);
    assert_int_equal(destroy(handle), SUCCESS);
}

static void test_result_for_the_host_is_zero_and_counted(void **state)
{
    struct handle *handle;
    int (*dot)(struct handle *, int, const void *, int, const void *, int, void *);
    int (*norm_64)(struct handle *, int64_t, const void *, int64_t, void *);
    int (*largest_64)(struct handle *, int64_t, const void *, int64_t, int64_t *);
    int (*set_mode)(struct handle *, int);
    double result[3] = {7, 7, 7};
    int64_t index = -1;
    uint32_t before = account->cuda.n_read_back;
    (void)state;
    *(void **)&dot = find(blas, "cublasZdotc_v2");
    *(void **)&norm_64 = find(blas, "cublasDnrm2_v2_64");
    *(void **)&largest_64 = find(blas, "cublasIdamax_v2_64");
    *(void **)&set_mode = find(blas, "cublasSetPointerMode_v2");
    assert_int_equal(create(&handle), SUCCESS);
    assert_int_equal(dot(handle, 4, NULL, 1, NULL, 1, result), SUCCESS);
    assert_true(fabs(result[0]) + fabs(result[1]) == 0);
    assert_true(result[2] == 7);
    assert_int_equal(norm_64(handle, 4, NULL, 1, &result[2]), SUCCESS);
    assert_true(result[2] == 0);
    assert_int_equal(largest_64(handle, 4, NULL, 1, &index), SUCCESS);
    assert_int_equal(index, 0);
    assert_int_equal(account->cuda.n_read_back - before, 3);
    assert_int_equal(set_mode(handle, 1), SUCCESS);
    result[0] = 7;
    assert_int_equal(dot(handle, 4, NULL, 1, NULL, 1, result), SUCCESS);
    assert_true(result[0] == 7); /* a result on the device is the device's */
    assert_int_equal(account->cuda.n_read_back - before, 3);
    assert_int_equal(destroy(handle), SUCCESS);
}

static void test_function_without_code_says_so_once(void **state)
{
    int (*rotate)(void);
    uint32_t before = account->cuda.n_missing;
    (void)state;
    *(void **)&rotate = find(blas, "cublasSrotg_v2");
    assert_int_equal(rotate(), NOT_SUPPORTED);
    assert_int_equal(rotate(), NOT_SUPPORTED);
    assert_int_equal(account->cuda.n_missing - before, 1);
    assert_non_null(strstr(account->event[account->n_events - 1].name, "cublasSrotg_v2"));
}

static void test_versions_and_words(void **state)
{
    int (*version)(void *, int *);
    int (*property)(int, int *);
    size_t (*lt_version)(void);
    const char *(*name)(int), *(*words)(int);
    int value = 0, major = 0;
    (void)state;
    *(void **)&version = find(blas, "cublasGetVersion_v2");
    *(void **)&property = find(blas, "cublasGetProperty");
    *(void **)&lt_version = find(lt, "cublasLtGetVersion");
    *(void **)&name = find(blas, "cublasGetStatusName");
    *(void **)&words = find(lt, "cublasLtGetStatusString");
    assert_int_equal(version(NULL, &value), SUCCESS);
    assert_int_equal(value / 10000, BLAS_VERSION);
    assert_int_equal(property(0, &major), SUCCESS);
    assert_int_equal(major, BLAS_VERSION);
    assert_int_equal(lt_version(), value);
    assert_string_equal(name(ALLOC_FAILED), "CUBLAS_STATUS_ALLOC_FAILED");
    assert_string_equal(words(INVALID_VALUE),
                        "an unsupported value or parameter was passed to the function");
}

/* cublasLtMatmulHeuristicResult_t, the algorithm in it eight words. */
struct heuristic {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
};

/* All that a multiplication of 64 by 64 half floats is described by. */
struct description {
    struct handle *handle;
    void *matmul, *layout, *preference;
};

static void describe(struct description *d)
{
    int (*make_handle)(struct handle **), (*make_matmul)(void **, int, int);
    int (*make_layout)(void **, int, uint64_t, uint64_t, int64_t), (*make_preference)(void **);
    *(void **)&make_handle = find(lt, "cublasLtCreate");
    *(void **)&make_matmul = find(lt, "cublasLtMatmulDescCreate");
    *(void **)&make_layout = find(lt, "cublasLtMatrixLayoutCreate");
    *(void **)&make_preference = find(lt, "cublasLtMatmulPreferenceCreate");
    assert_int_equal(make_handle(&d->handle), SUCCESS);
    assert_int_equal(make_matmul(&d->matmul, 68, 0), SUCCESS); /* CUBLAS_COMPUTE_32F, CUDA_R_32F */
    assert_int_equal(make_layout(&d->layout, 2, 64, 64, 64), SUCCESS); /* CUDA_R_16F */
    assert_int_equal(make_preference(&d->preference), SUCCESS);
}

static void drop(const struct description *d)
{
    static const char *const names[] = {"cublasLtMatmulDescDestroy", "cublasLtMatrixLayoutDestroy",
                                        "cublasLtMatmulPreferenceDestroy", "cublasLtDestroy"};
    void *objects[] = {d->matmul, d->layout, d->preference, d->handle};
    for (int i = 0; i < 4; i++) {
        int (*drop_one)(void *);
        *(void **)&drop_one = find(lt, names[i]);
        assert_int_equal(drop_one(objects[i]), SUCCESS);
    }
}

static void test_heuristics_give_one_algorithm_within_the_preference_each_time(void **state)
{
    int (*ask)(void *, void *, void *, void *, void *, void *, void *, int, struct heuristic *,
               int *);
    int (*matmul)(void *, void *, const void *, const void *, void *, const void *, void *,
                  const void *, const void *, void *, void *, void *, const void *, void *, size_t,
                  void *);
    struct heuristic first[2], second[2];
    struct description d;
    int n = 0;
    (void)state;
    *(void **)&ask = find(lt, "cublasLtMatmulAlgoGetHeuristic");
    *(void **)&matmul = find(lt, "cublasLtMatmul");
    describe(&d);
    assert_int_equal(
        ask(d.handle, d.matmul, d.layout, d.layout, d.layout, d.layout, d.preference, 2, first, &n),
        SUCCESS);
    assert_int_equal(n, 1);
    assert_int_equal(first[0].status, SUCCESS);
    assert_int_equal(first[0].workspace_bytes, 0); /* no workspace is the default preference */
    assert_int_equal(ask(d.handle, d.matmul, d.layout, d.layout, d.layout, d.layout, d.preference,
                         1, second, &n),
                     SUCCESS);
    assert_memory_equal(&first[0], &second[0], sizeof first[0]);
    assert_int_equal(
        ask(d.handle, d.matmul, d.layout, d.layout, d.layout, d.layout, d.preference, 0, first, &n),
        INVALID_VALUE);
    assert_int_equal(
        ask(NULL, d.matmul, d.layout, d.layout, d.layout, d.layout, d.preference, 1, first, &n),
        NOT_INITIALIZED);
    assert_int_equal(matmul(d.handle, d.matmul, &one, NULL, d.layout, NULL, d.layout, &zero, NULL,
                            d.layout, NULL, d.layout, second[0].algorithm, NULL, 0, NULL),
                     SUCCESS);
    assert_int_equal(matmul(d.handle, d.layout, &one, NULL, d.layout, NULL, d.layout, &zero, NULL,
                            d.layout, NULL, d.layout, NULL, NULL, 0, NULL),
                     INVALID_VALUE);
    drop(&d);
}

static void test_float8_wants_a_device_that_has_it(void **state)
{
    int (*ask)(void *, void *, void *, void *, void *, void *, void *, int, struct heuristic *,
               int *);
    int (*set)(void *, int, const void *, size_t);
    struct heuristic result;
    struct description d;
    uint32_t type = 28; /* CUDA_R_8F_E4M3 */
    int n = 7;
    (void)state;
    *(void **)&ask = find(lt, "cublasLtMatmulAlgoGetHeuristic");
    *(void **)&set = find(lt, "cublasLtMatrixLayoutSetAttribute");
    describe(&d);
    assert_int_equal(set(d.layout, 0, &type, sizeof type), SUCCESS);
    assert_int_equal(ask(d.handle, d.matmul, d.layout, d.layout, d.layout, d.layout, d.preference,
                         1, &result, &n),
                     SUCCESS);
    account->device[0].gpu.capability = 80; /* float8 is from 8.9 on */
    assert_int_equal(ask(d.handle, d.matmul, d.layout, d.layout, d.layout, d.layout, d.preference,
                         1, &result, &n),
                     NOT_SUPPORTED);
    assert_int_equal(n, 0);
    account->device[0].gpu.capability = 90;
    drop(&d);
}

static void test_attributes_come_back_and_their_sizes_are_checked(void **state)
{
    int (*set)(void *, int, const void *, size_t);
    int (*get)(void *, int, void *, size_t, size_t *);
    struct description d;
    uint64_t bias = 0x7f0000001000, read = 0;
    int32_t transposed = -1, small = 1;
    size_t written = 0;
    (void)state;
    *(void **)&set = find(lt, "cublasLtMatmulDescSetAttribute");
    *(void **)&get = find(lt, "cublasLtMatmulDescGetAttribute");
    describe(&d);
    assert_int_equal(get(d.matmul, 3, &transposed, 4, &written), SUCCESS); /* TRANSA */
    assert_int_equal(transposed, 0);                                       /* CUBLAS_OP_N */
    assert_int_equal(set(d.matmul, 8, &bias, sizeof bias), SUCCESS);       /* BIAS_POINTER */
    assert_int_equal(get(d.matmul, 8, &read, sizeof read, &written), SUCCESS);
    assert_int_equal(read, bias);
    assert_int_equal(written, 8);
    assert_int_equal(set(d.matmul, 8, &small, sizeof small), INVALID_VALUE);
    assert_int_equal(set(d.matmul, 8, NULL, 8), INVALID_VALUE);
    assert_int_equal(get(d.matmul, 8, NULL, 0, &written), SUCCESS); /* how large it is */
    assert_int_equal(written, 8);
    assert_int_equal(get(d.matmul, 8, NULL, 0, NULL), INVALID_VALUE);
    assert_int_equal(set(d.matmul, 9999, &bias, 8), INVALID_VALUE);
    drop(&d);
}

static void test_descriptor_fits_the_programs_own_memory(void **state)
{
    int (*init)(void *, size_t, int, int),
        (*layout)(void *, size_t, int, uint64_t, uint64_t, int64_t);
    int (*get)(void *, int, void *, size_t, size_t *);
    uint64_t matmul[32], matrix[BLAS_VERSION == 12 ? 8 : 14], rows = 0;
    (void)state;
    *(void **)&init = find(lt, "cublasLtMatmulDescInit_internal");
    *(void **)&layout = find(lt, "cublasLtMatrixLayoutInit_internal");
    *(void **)&get = find(lt, "cublasLtMatrixLayoutGetAttribute");
    assert_int_equal(init(matmul, sizeof matmul, 68, 0), SUCCESS);
    assert_int_equal(init(matmul, 8, 68, 0), ALLOC_FAILED);
    assert_int_equal(layout(matrix, sizeof matrix, 0, 96, 32, 128), SUCCESS);
    assert_int_equal(get(matrix, 2, &rows, sizeof rows, NULL), SUCCESS); /* ROWS */
    assert_int_equal(rows, 96);
}

/* Four matrices: each of them had no zero pivot, whatever was there before. */
static void test_each_matrix_of_a_batch_is_said_to_be_invertible(void **state)
{
    int (*factor)(struct handle *, int, void *, int, int *, int *, int);
    int (*invert)(struct handle *, int, void *, int, int *, void *, int, int *, int);
    int *info = device_integers(5);
    struct handle *handle;
    (void)state;
    *(void **)&factor = find(blas, "cublasSgetrfBatched");
    *(void **)&invert = find(blas, "cublasZgetriBatched");
    assert_int_equal(create(&handle), SUCCESS);
    assert_int_equal(factor(handle, 8, NULL, 8, NULL, info, 2), SUCCESS);
    assert_int_equal(invert(handle, 8, NULL, 8, NULL, NULL, 8, info + 2, 2), SUCCESS);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(device_integer(info, i), 0);
    assert_int_equal(device_integer(info, 4), 77);
    assert_int_equal(factor(handle, 8, NULL, 8, NULL, NULL, 2), INVALID_VALUE);
    assert_int_equal(factor(NULL, 8, NULL, 8, NULL, info, 2), NOT_INITIALIZED);
    assert_int_equal(destroy(handle), SUCCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_handle_is_not_initialised),
        cmocka_unit_test(test_what_is_set_of_a_handle_is_what_it_has),
        cmocka_unit_test(test_default_workspace_is_taken_once_and_given_back),
        cmocka_unit_test(test_default_workspace_goes_by_capability_and_by_configuration),
        cmocka_unit_test(test_own_workspace_stands_for_the_default_until_the_stream_changes),
        cmocka_unit_test(test_workspace_that_is_set_again_and_again_leaves_room_in_the_account),
        cmocka_unit_test(test_workspace_that_does_not_fit_fails_to_be_allocated),
        cmocka_unit_test(test_result_for_the_host_is_zero_and_counted),
        cmocka_unit_test(test_each_matrix_of_a_batch_is_said_to_be_invertible),
        cmocka_unit_test(test_function_without_code_says_so_once),
        cmocka_unit_test(test_versions_and_words),
        cmocka_unit_test(test_heuristics_give_one_algorithm_within_the_preference_each_time),
        cmocka_unit_test(test_float8_wants_a_device_that_has_it),
        cmocka_unit_test(test_attributes_come_back_and_their_sizes_are_checked),
        cmocka_unit_test(test_descriptor_fits_the_programs_own_memory),
    };
    return cmocka_run_group_tests(tests, set_up, drop_account);
}
