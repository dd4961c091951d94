/* SPDX-License-Identifier: MIT */
/* cuFFT, cuSOLVER, cuSPARSE, cuSPARSELt, cuRAND, CUPTI and NVRTC as programs call them. Statuses
 * and sizes are those of their documentation. */
#include "look_alike.h"

enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 3 };

#define FUNCTION(library, name, ...)                                                               \
    int (*name)(__VA_ARGS__);                                                                      \
    *(void **)&name = find(library, #name)

static void *fft, *solver, *sparse, *sparselt, *rng, *cupti, *nvrtc;

static int set_up(void **state)
{
    (void)state;
    make_account();
    start_driver();
    fft = load(MATH_PATH "fft-11.so");
    solver = load(MATH_PATH "solver-11.so");
    sparse = load(MATH_PATH "sparse-12.so");
    sparselt = load(MATH_PATH "sparselt-0.so");
    rng = load(MATH_PATH "rand-10.so");
    cupti = load(OTHER_PATH "cupti-12.so");
    nvrtc = load(OTHER_PATH "nvrtc-12.so");
    return 0;
}

enum { C2C = 0x29, Z2Z = 0x69, INVALID_PLAN = 1, INVALID_SIZE = 8 };

static size_t work_area(int n, int type, int batch)
{
    FUNCTION(fft, cufftCreate, int *);
    FUNCTION(fft, cufftSetAutoAllocation, int, int);
    FUNCTION(fft, cufftMakePlan1d, int, int, int, int, size_t *);
    FUNCTION(fft, cufftDestroy, int);
    size_t bytes = 1;
    int plan;
    assert_int_equal(cufftCreate(&plan), SUCCESS);
    assert_int_equal(cufftSetAutoAllocation(plan, 0), SUCCESS);
    assert_int_equal(cufftMakePlan1d(plan, n, type, batch, &bytes), SUCCESS);
    assert_int_equal(cufftDestroy(plan), SUCCESS);
    return bytes;
}

static void test_a_transform_of_small_factors_works_in_an_area_of_its_size(void **state)
{
    (void)state;
    assert_int_equal(work_area(1024, C2C, 64), 1024 * 64 * 8);
    assert_int_equal(work_area(2 * 3 * 5 * 7, Z2Z, 1), 210 * 16);
}

static void test_a_large_prime_takes_the_worst_case(void **state)
{
    (void)state;
    assert_int_equal(work_area(1021, C2C, 3), 8 * 1021 * 3 * 8);
}

static void test_a_plan_is_made_once_and_gone_once(void **state)
{
    FUNCTION(fft, cufftCreate, int *);
    FUNCTION(fft, cufftSetAutoAllocation, int, int);
    FUNCTION(fft, cufftMakePlan1d, int, int, int, int, size_t *);
    FUNCTION(fft, cufftExecC2C, int, void *, void *, int);
    FUNCTION(fft, cufftDestroy, int);
    size_t bytes;
    int plan, data;
    (void)state;
    assert_int_equal(cufftCreate(&plan), SUCCESS);
    assert_int_equal(cufftSetAutoAllocation(plan, 0), SUCCESS);
    assert_int_equal(cufftExecC2C(plan, &data, &data, -1), INVALID_PLAN);
    assert_int_equal(cufftMakePlan1d(plan, 0, C2C, 1, &bytes), INVALID_SIZE);
    assert_int_equal(cufftMakePlan1d(plan, 8, C2C, 1, &bytes), SUCCESS);
    assert_int_equal(cufftMakePlan1d(plan, 8, C2C, 1, &bytes), INVALID_PLAN);
    assert_int_equal(cufftExecC2C(plan, &data, &data, -1), SUCCESS);
    assert_int_equal(cufftDestroy(plan), SUCCESS);
    assert_int_equal(cufftDestroy(plan), INVALID_PLAN);
}

/* cuFFT's documentation: an area as large as the data for factors of 2, 3, 5 and 7, eight times
 * that for large primes in any direction. Batches of several ranks by one call. */
static void test_every_way_to_plan_comes_to_one_size(void **state)
{
    FUNCTION(fft, cufftEstimate2d, int, int, int, size_t *);
    FUNCTION(fft, cufftEstimate3d, int, int, int, int, size_t *);
    FUNCTION(fft, cufftEstimateMany, int, int *, int *, int, int, int *, int, int, int, int,
             size_t *);
    FUNCTION(fft, cufftGetSizeMany64, int, int, int64_t *, int64_t *, int64_t, int64_t, int64_t *,
             int64_t, int64_t, int, int64_t, size_t *);
    size_t bytes = 0;
    int sizes[] = {15, 14};
    int64_t wide[] = {15, 14};
    (void)state;
    assert_int_equal(cufftEstimate2d(15, 14, C2C, &bytes), SUCCESS);
    assert_int_equal(bytes, 15 * 14 * 8);
    assert_int_equal(cufftEstimate2d(15, 1021, C2C, &bytes), SUCCESS);
    assert_int_equal(bytes, 8 * 15 * 1021 * 8);
    assert_int_equal(cufftEstimate3d(15, 14, 2, Z2Z, &bytes), SUCCESS);
    assert_int_equal(bytes, 15 * 14 * 2 * 16);
    assert_int_equal(cufftEstimateMany(2, sizes, NULL, 1, 0, NULL, 1, 0, C2C, 6, &bytes), SUCCESS);
    assert_int_equal(bytes, 15 * 14 * 6 * 8);
    assert_int_equal(cufftGetSizeMany64(0, 2, wide, NULL, 1, 0, NULL, 1, 0, C2C, 6, &bytes),
                     SUCCESS);
    assert_int_equal(bytes, 15 * 14 * 6 * 8);
}

static void test_sizes_that_no_transform_has_are_refused(void **state)
{
    enum { INVALID_TYPE = 3, INVALID_FFT_VALUE = 4 };
    FUNCTION(fft, cufftEstimate1d, int, int, int, size_t *);
    FUNCTION(fft, cufftEstimateMany, int, int *, int *, int, int, int *, int, int, int, int,
             size_t *);
    FUNCTION(fft, cufftGetSizeMany64, int, int, int64_t *, int64_t *, int64_t, int64_t, int64_t *,
             int64_t, int64_t, int, int64_t, size_t *);
    size_t bytes = 7;
    int sizes[] = {8, 8, 8, 8};
    int64_t wide[] = {INT64_C(1) << 40, INT64_C(1) << 40};
    int64_t prime = 1021;
    (void)state;
    assert_int_equal(cufftEstimate1d(8, 0x77, 1, &bytes), INVALID_TYPE);
    assert_int_equal(cufftEstimate1d(8, C2C, 0, &bytes), INVALID_SIZE);
    assert_int_equal(cufftEstimate1d(-8, C2C, 1, &bytes), INVALID_SIZE);
    assert_int_equal(cufftEstimate1d(8, C2C, 1, NULL), INVALID_FFT_VALUE);
    assert_int_equal(cufftEstimateMany(4, sizes, NULL, 1, 0, NULL, 1, 0, C2C, 1, &bytes),
                     INVALID_SIZE);
    assert_int_equal(cufftEstimateMany(0, sizes, NULL, 1, 0, NULL, 1, 0, C2C, 1, &bytes),
                     INVALID_SIZE);
    assert_int_equal(cufftEstimateMany(1, NULL, NULL, 1, 0, NULL, 1, 0, C2C, 1, &bytes),
                     INVALID_FFT_VALUE);
    assert_int_equal(cufftGetSizeMany64(0, 2, wide, NULL, 1, 0, NULL, 1, 0, C2C, 1, &bytes),
                     INVALID_SIZE);
    assert_int_equal(
        cufftGetSizeMany64(0, 1, &prime, NULL, 1, 0, NULL, 1, 0, C2C, INT64_C(1) << 61, &bytes),
        INVALID_SIZE);
    assert_int_equal(bytes, 7);
}

static void test_a_plan_keeps_its_size_its_stream_and_its_properties(void **state)
{
    FUNCTION(fft, cufftPlan1d, int *, int, int, int);
    FUNCTION(fft, cufftGetSize, int, size_t *);
    FUNCTION(fft, cufftSetStream, int, void *);
    FUNCTION(fft, cufftSetPlanPropertyInt64, int, unsigned, long long);
    FUNCTION(fft, cufftGetPlanPropertyInt64, int, unsigned, long long *);
    FUNCTION(fft, cufftResetPlanProperty, int, unsigned);
    FUNCTION(fft, cufftExecZ2Z, int, void *, void *, int);
    FUNCTION(fft, cufftDestroy, int);
    enum { INVALID_FFT_VALUE = 4 };
    size_t bytes = 0;
    long long value = 0;
    int plan, data;
    (void)state;
    assert_int_equal(cufftPlan1d(&plan, 64, Z2Z, 2), SUCCESS);
    assert_int_equal(cufftGetSize(plan, &bytes), SUCCESS);
    assert_int_equal(bytes, 64 * 2 * 16);
    assert_int_equal(cufftSetStream(plan, NULL), SUCCESS);
    assert_int_equal(cufftExecZ2Z(plan, &data, &data, 1), SUCCESS);
    assert_int_equal(cufftExecZ2Z(plan, NULL, &data, 1), INVALID_FFT_VALUE);
    assert_int_equal(cufftSetPlanPropertyInt64(plan, 1, 42), SUCCESS);
    assert_int_equal(cufftGetPlanPropertyInt64(plan, 1, &value), SUCCESS);
    assert_int_equal(value, 42);
    assert_int_equal(cufftResetPlanProperty(plan, 1), SUCCESS);
    assert_int_equal(cufftGetPlanPropertyInt64(plan, 1, &value), SUCCESS);
    assert_int_equal(value, 0);
    assert_int_equal(cufftSetPlanPropertyInt64(plan, 99, 1), INVALID_FFT_VALUE);
    assert_int_equal(cufftDestroy(plan), SUCCESS);
    assert_int_equal(cufftGetSize(plan, &bytes), INVALID_PLAN);
}

static void test_a_solver_tells_no_size_and_says_so(void **state)
{
    FUNCTION(solver, cusolverDnCreate, void **);
    FUNCTION(solver, cusolverDnSgetrf_bufferSize, void *, int, int, void *, int, int *);
    FUNCTION(solver, cusolverDnXgeqrf_bufferSize, void *, void *, int64_t, int64_t, int,
             const void *, int64_t, int, const void *, int, size_t *, size_t *);
    void *handle;
    size_t device = 99, host = 99;
    int floats = 99;
    (void)state;
    assert_int_equal(cusolverDnCreate(&handle), SUCCESS);
    assert_int_equal(cusolverDnSgetrf_bufferSize(handle, 64, 64, NULL, 64, &floats), SUCCESS);
    assert_int_equal(floats, 0);
    assert_int_equal(
        cusolverDnXgeqrf_bufferSize(handle, NULL, 64, 64, 0, NULL, 64, 0, NULL, 0, &device, &host),
        SUCCESS);
    assert_int_equal(device, 0);
    assert_int_equal(host, 0);
    assert_int_equal(cusolverDnSgetrf_bufferSize(NULL, 64, 64, NULL, 64, &floats), NOT_INITIALIZED);
    assert_int_equal(cusolverDnSgetrf_bufferSize(handle, 64, 64, NULL, 64, NULL), INVALID_VALUE);
}

/* The documentation's values of cusolverEigRange_t. */
enum { RANGE_ALL = 1001, RANGE_I, RANGE_V };

/* A matrix of 64 rows has 64 eigenvalues, and five from the 3rd to the 7th. How many lie in an
 * interval is for the device to say: at most 64. */
static void test_a_solver_says_on_the_host_how_many_eigenvalues_there_are(void **state)
{
    FUNCTION(solver, cusolverDnCreate, void **);
    FUNCTION(solver, cusolverDnSsyevdx, void *, int, int, int, int, float *, int, float, float, int,
             int, int *, float *, float *, int, int *);
    FUNCTION(solver, cusolverDnZhegvdx, void *, int, int, int, int, int, void *, int, void *, int,
             double, double, int, int, int *, double *, void *, int, int *);
    FUNCTION(solver, cusolverDnXsyevdx, void *, void *, int, int, int, int64_t, int, void *,
             int64_t, void *, void *, int64_t, int64_t, int64_t *, int, void *, int, void *, size_t,
             void *, size_t, int *);
    int *info = device_integers(3);
    uint32_t before = account->cuda.n_read_back;
    float a[1], w[1];
    void *handle;
    int found = 99;
    int64_t found_64 = -1;
    (void)state;
    assert_int_equal(cusolverDnCreate(&handle), SUCCESS);
    assert_int_equal(
        cusolverDnSsyevdx(handle, 1, RANGE_ALL, 0, 64, a, 64, 0, 0, 0, 0, &found, w, a, 0, info),
        SUCCESS);
    assert_int_equal(found, 64);
    assert_int_equal(cusolverDnZhegvdx(handle, 1, 1, RANGE_I, 0, 64, a, 64, a, 64, 0, 0, 3, 7,
                                       &found, NULL, a, 0, info + 1),
                     SUCCESS);
    assert_int_equal(found, 5);
    assert_int_equal(account->cuda.n_read_back, before);
    assert_int_equal(cusolverDnXsyevdx(handle, NULL, 1, RANGE_V, 0, 64, 0, a, 64, w, w, 0, 0,
                                       &found_64, 0, w, 0, NULL, 0, NULL, 0, info + 2),
                     SUCCESS);
    assert_int_equal(found_64, 64);
    assert_int_equal(account->cuda.n_read_back, before + 1);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(device_integer(info, i), 0);
    assert_int_equal(
        cusolverDnSsyevdx(handle, 1, RANGE_ALL, 0, 64, a, 64, 0, 0, 0, 0, NULL, w, a, 0, info),
        INVALID_VALUE);
}

/* Refinement ends after a step, which is success (a number below 0 is not); no matrix has a rest.
 */
static void test_a_solver_says_on_the_host_how_exact_it_is(void **state)
{
    FUNCTION(solver, cusolverDnCreate, void **);
    FUNCTION(solver, cusolverDnDSgesv, void *, int, int, void *, int, int *, void *, int, void *,
             int, void *, size_t, int *, int *);
    FUNCTION(solver, cusolverDnSgesvdaStridedBatched, void *, int, int, int, int, void *, int,
             long long, void *, long long, void *, int, long long, void *, int, long long, void *,
             int, int *, double *, int);
    int *info = device_integers(4);
    double a[1], rest[4] = {1, 2, 3, 4};
    void *handle;
    int steps = -99;
    (void)state;
    assert_int_equal(cusolverDnCreate(&handle), SUCCESS);
    assert_int_equal(cusolverDnDSgesv(handle, 8, 1, a, 8, info, a, 8, a, 8, NULL, 0, &steps, info),
                     SUCCESS);
    assert_int_equal(steps, 1);
    assert_int_equal(cusolverDnSgesvdaStridedBatched(handle, 1, 8, 8, 8, a, 8, 64, a, 8, a, 8, 64,
                                                     a, 8, 64, a, 0, info, rest, 3),
                     SUCCESS);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(device_integer(info, i), 0);
        assert_true(rest[i] == 0);
    }
    assert_int_equal(device_integer(info, 3), 77);
    assert_true(rest[3] == 4);
    assert_int_equal(cusolverDnSgesvdaStridedBatched(handle, 1, 8, 8, 8, a, 8, 64, a, 8, a, 8, 64,
                                                     a, 8, 64, a, 0, info, NULL, 3),
                     SUCCESS);
}

/* 1 is CUDA_R_64F: a product of vectors on the host has 8 bytes. */
static void test_a_product_of_vectors_for_the_host_is_zero_and_read_back(void **state)
{
    FUNCTION(sparse, cusparseCreate, void **);
    FUNCTION(sparse, cusparseCreateSpVec, void **, int64_t, int64_t, void *, void *, int, int, int);
    FUNCTION(sparse, cusparseCreateDnVec, void **, int64_t, void *, int);
    FUNCTION(sparse, cusparseSpVV, void *, int, void *, void *, void *, int, void *);
    FUNCTION(sparse, cusparseSetPointerMode, void *, int);
    uint32_t before = account->cuda.n_read_back;
    double product[2] = {5, 6};
    void *handle, *x, *y;
    (void)state;
    assert_int_equal(cusparseCreate(&handle), SUCCESS);
    assert_int_equal(cusparseCreateSpVec(&x, 8, 2, NULL, NULL, 2, 0, 1), SUCCESS);
    assert_int_equal(cusparseCreateDnVec(&y, 8, NULL, 1), SUCCESS);
    assert_int_equal(cusparseSpVV(handle, 0, x, y, product, 1, NULL), SUCCESS);
    assert_true(product[0] == 0 && product[1] == 6);
    assert_int_equal(account->cuda.n_read_back, before + 1);
    assert_int_equal(cusparseSetPointerMode(handle, 1), SUCCESS);
    assert_int_equal(cusparseSpVV(handle, 0, x, y, product + 1, 1, NULL), SUCCESS);
    assert_true(product[1] == 6);
}

static void test_what_was_pruned_is_found_to_have_the_structure(void **state)
{
    FUNCTION(sparselt, cusparseLtInit, void *);
    FUNCTION(sparselt, cusparseLtStructuredDescriptorInit, void *, void *, int64_t, int64_t,
             int64_t, uint32_t, int, int, int);
    FUNCTION(sparselt, cusparseLtSpMMAPruneCheck2, void *, void *, int, int, void *, int *, void *);
    char handle[512], matrix[512];
    int *valid = device_integers(1);
    (void)state;
    assert_int_equal(cusparseLtInit(handle), SUCCESS);
    assert_int_equal(cusparseLtStructuredDescriptorInit(handle, matrix, 128, 64, 64, 16, 2, 1, 0),
                     SUCCESS);
    assert_int_equal(cusparseLtSpMMAPruneCheck2(handle, matrix, 1, 0, NULL, valid, NULL), SUCCESS);
    assert_int_equal(device_integer(valid, 0), 0);
}

static void test_sparse_matrices_give_back_what_they_were_made_of(void **state)
{
    FUNCTION(sparse, cusparseCreateCsr, void **, int64_t, int64_t, int64_t, void *, void *, void *,
             int, int, int, int);
    FUNCTION(sparse, cusparseCsrGet, void *, int64_t *, int64_t *, int64_t *, void **, void **,
             void **, int *, int *, int *, int *);
    FUNCTION(sparse, cusparseCsrSetPointers, void *, void *, void *, void *);
    FUNCTION(sparse, cusparseSpMatGetFormat, void *, int *);
    void *matrix, *offsets, *columns, *values;
    int64_t rows, width, n;
    int format, offset_type, index_type, base, type;
    (void)state;
    assert_int_equal(
        cusparseCreateCsr(&matrix, 3, 4, 5, (void *)16, (void *)32, (void *)48, 2, 3, 1, 0),
        SUCCESS);
    assert_int_equal(cusparseCsrSetPointers(matrix, (void *)64, (void *)80, (void *)96), SUCCESS);
    assert_int_equal(cusparseCsrGet(matrix, &rows, &width, &n, &offsets, &columns, &values,
                                    &offset_type, &index_type, &base, &type),
                     SUCCESS);
    assert_int_equal(rows, 3);
    assert_int_equal(width, 4);
    assert_int_equal(n, 5);
    assert_ptr_equal(offsets, (void *)64);
    assert_ptr_equal(columns, (void *)80);
    assert_ptr_equal(values, (void *)96);
    assert_int_equal(offset_type, 2);
    assert_int_equal(index_type, 3);
    assert_int_equal(base, 1);
    assert_int_equal(cusparseSpMatGetFormat(matrix, &format), SUCCESS);
    assert_int_equal(format, 1); /* CUSPARSE_FORMAT_CSR */
    assert_int_equal(cusparseCreateCsr(&matrix, -1, 4, 5, NULL, NULL, NULL, 2, 3, 1, 0),
                     INVALID_VALUE);
}

/* The number of values of a product is known on the device alone: whoever asks is told none, and
 * the rehearsal that sizes came from there. */
static void test_the_size_of_a_product_is_read_back(void **state)
{
    FUNCTION(sparse, cusparseCreateCsr, void **, int64_t, int64_t, int64_t, void *, void *, void *,
             int, int, int, int);
    FUNCTION(sparse, cusparseSpMatGetSize, void *, int64_t *, int64_t *, int64_t *);
    uint32_t before = account->cuda.n_read_back;
    void *product;
    int64_t rows, columns, n;
    (void)state;
    assert_int_equal(cusparseCreateCsr(&product, 3, 4, 0, NULL, NULL, NULL, 2, 2, 0, 0), SUCCESS);
    assert_int_equal(cusparseSpMatGetSize(product, &rows, &columns, &n), SUCCESS);
    assert_int_equal(n, 0);
    assert_int_equal(account->cuda.n_read_back, before + 1);
}

/* So are the colours of a colouring, and the place of a zero pivot: -1 where there is none. */
static void test_numbers_for_the_host_are_answered_and_read_back(void **state)
{
    FUNCTION(sparse, cusparseCreate, void **);
    FUNCTION(sparse, cusparseScsrcolor, void *, int, int, void *, float *, int *, int *, float *,
             int *, int *, int *, void *);
    FUNCTION(sparse, cusparseXcsrilu02_zeroPivot, void *, void *, int *);
    FUNCTION(sparse, cusparseSnnz_compress, void *, int, void *, float *, int *, int *, int *,
             float);
    uint32_t before = account->cuda.n_read_back;
    int n_colours = 77, place = 77, n = 77, info, rows[2];
    float share = 1;
    void *handle;
    (void)state;
    assert_int_equal(cusparseCreate(&handle), SUCCESS);
    assert_int_equal(cusparseScsrcolor(handle, 1, 1, &info, &share, rows, rows, &share, &n_colours,
                                       rows, rows, &info),
                     SUCCESS);
    assert_int_equal(n_colours, 0);
    assert_int_equal(cusparseXcsrilu02_zeroPivot(handle, &info, &place), SUCCESS);
    assert_int_equal(place, -1);
    assert_int_equal(cusparseSnnz_compress(handle, 1, &info, &share, rows, rows, &n, 0), SUCCESS);
    assert_int_equal(n, 0);
    assert_int_equal(account->cuda.n_read_back, before + 3);
}

static void test_structured_matrices_are_compressed_by_half_and_their_places(void **state)
{
    FUNCTION(sparselt, cusparseLtInit, void *);
    FUNCTION(sparselt, cusparseLtStructuredDescriptorInit, void *, void *, int64_t, int64_t,
             int64_t, uint32_t, int, int, int);
    FUNCTION(sparselt, cusparseLtSpMMACompressedSize2, void *, void *, size_t *, size_t *);
    char handle[512], matrix[512];
    size_t bytes, buffer;
    (void)state;
    assert_int_equal(cusparseLtInit(handle), SUCCESS);
    /* 128 x 64 values of 16 bits: half of them, and two bits to place each. */
    assert_int_equal(cusparseLtStructuredDescriptorInit(handle, matrix, 128, 64, 64, 16, 2, 1, 0),
                     SUCCESS);
    assert_int_equal(cusparseLtSpMMACompressedSize2(handle, matrix, &bytes, &buffer), SUCCESS);
    assert_int_equal(bytes, 128 * 64 / 2 * 2 + 128 * 64 / 2 * 2 / 8);
}

static void test_a_generator_is_of_a_known_kind(void **state)
{
    FUNCTION(rng, curandCreateGenerator, void **, int);
    FUNCTION(rng, curandGenerateUniform, void *, float *, size_t);
    FUNCTION(rng, curandDestroyGenerator, void *);
    void *generator;
    float number;
    (void)state;
    assert_int_equal(curandCreateGenerator(&generator, 1), 103); /* TYPE_ERROR */
    assert_int_equal(curandCreateGenerator(&generator, 161), SUCCESS);
    assert_int_equal(curandGenerateUniform(generator, &number, 1), SUCCESS);
    assert_int_equal(curandGenerateUniform(NULL, &number, 1), 101); /* NOT_INITIALIZED */
    assert_int_equal(curandDestroyGenerator(generator), SUCCESS);
}

static void test_a_profiler_gets_no_events(void **state)
{
    FUNCTION(cupti, cuptiActivityEnable, int);
    FUNCTION(cupti, cuptiActivityGetNextRecord, void *, size_t, void **);
    FUNCTION(cupti, cuptiActivityGetNumDroppedRecords, void *, uint32_t, size_t *);
    FUNCTION(cupti, cuptiActivityPushExternalCorrelationId, int, uint64_t);
    FUNCTION(cupti, cuptiActivityPopExternalCorrelationId, int, uint64_t *);
    size_t dropped = 9;
    char buffer[64];
    void *record;
    uint64_t id = 0;
    (void)state;
    assert_int_equal(cuptiActivityEnable(3), SUCCESS);
    assert_int_equal(cuptiActivityGetNextRecord(buffer, sizeof buffer, &record), 12);
    assert_int_equal(cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped), SUCCESS);
    assert_int_equal(dropped, 0);
    assert_int_equal(cuptiActivityPushExternalCorrelationId(1, 42), SUCCESS);
    assert_int_equal(cuptiActivityPopExternalCorrelationId(1, &id), SUCCESS);
    assert_int_equal(id, 42);
    assert_int_equal(cuptiActivityPopExternalCorrelationId(1, &id), 18); /* QUEUE_EMPTY */
}

static void test_a_program_compiles_for_the_architecture_that_is_asked_for(void **state)
{
    FUNCTION(nvrtc, nvrtcCreateProgram, void **, const char *, const char *, int, void *, void *);
    FUNCTION(nvrtc, nvrtcCompileProgram, void *, int, const char *const *);
    FUNCTION(nvrtc, nvrtcGetPTXSize, void *, size_t *);
    FUNCTION(nvrtc, nvrtcGetPTX, void *, char *);
    FUNCTION(nvrtc, nvrtcDestroyProgram, void **);
    const char *options[] = {"--std=c++17", "--gpu-architecture=compute_90a"};
    char ptx[256];
    void *program;
    size_t bytes;
    (void)state;
    assert_int_equal(nvrtcCreateProgram(&program, "", NULL, 0, NULL, NULL), SUCCESS);
    assert_int_equal(nvrtcGetPTXSize(program, &bytes), 4); /* INVALID_PROGRAM: not compiled */
    assert_int_equal(nvrtcCompileProgram(program, 2, options), SUCCESS);
    assert_int_equal(nvrtcGetPTXSize(program, &bytes), SUCCESS);
    assert_in_range(bytes, 1, sizeof ptx);
    assert_int_equal(nvrtcGetPTX(program, ptx), SUCCESS);
    assert_int_equal(strlen(ptx) + 1, bytes);
    assert_non_null(strstr(ptx, ".target sm_90a\n"));
    assert_int_equal(nvrtcDestroyProgram(&program), SUCCESS);
    assert_null(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_transform_of_small_factors_works_in_an_area_of_its_size),
        cmocka_unit_test(test_a_large_prime_takes_the_worst_case),
        cmocka_unit_test(test_a_plan_is_made_once_and_gone_once),
        cmocka_unit_test(test_every_way_to_plan_comes_to_one_size),
        cmocka_unit_test(test_sizes_that_no_transform_has_are_refused),
        cmocka_unit_test(test_a_plan_keeps_its_size_its_stream_and_its_properties),
        cmocka_unit_test(test_a_solver_tells_no_size_and_says_so),
        cmocka_unit_test(test_a_solver_says_on_the_host_how_many_eigenvalues_there_are),
        cmocka_unit_test(test_a_solver_says_on_the_host_how_exact_it_is),
        cmocka_unit_test(test_a_product_of_vectors_for_the_host_is_zero_and_read_back),
        cmocka_unit_test(test_what_was_pruned_is_found_to_have_the_structure),
        cmocka_unit_test(test_sparse_matrices_give_back_what_they_were_made_of),
        cmocka_unit_test(test_the_size_of_a_product_is_read_back),
        cmocka_unit_test(test_numbers_for_the_host_are_answered_and_read_back),
        cmocka_unit_test(test_structured_matrices_are_compressed_by_half_and_their_places),
        cmocka_unit_test(test_a_generator_is_of_a_known_kind),
        cmocka_unit_test(test_a_profiler_gets_no_events),
        cmocka_unit_test(test_a_program_compiles_for_the_architecture_that_is_asked_for),
    };
    return cmocka_run_group_tests(tests, set_up, drop_account);
}
