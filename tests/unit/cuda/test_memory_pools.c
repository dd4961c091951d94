/* SPDX-License-Identifier: MIT */
/* Stream-ordered memory. What is expected is what CUDA's documentation says of pools; that a pool
 * takes at least 32 MiB of a device is a property of the driver that is pretended. */
#include "driver_test.h"
#include "pretend/cuda/take.h"

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                 CUstream stream);
CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream);
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device);
CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device);
CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool);
CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props);
CUresult cuMemPoolDestroy(CUmemoryPool pool);
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep);
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer);

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);
CUresult cuGraphExecDestroy(CUgraphExec exec);
CUresult cuGraphDestroy(CUgraph graph);

static CUmemoryPool make_pool(size_t bytes_max)
{
    CUmemoryPool pool = NULL;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                            .maxSize = bytes_max};
    assert_int_equal(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
    return pool;
}

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which)
{
    uint64_t value = 0;
    assert_int_equal(cuMemPoolGetAttribute(pool, which, &value), CUDA_SUCCESS);
    return value;
}

static CUdeviceptr take(CUmemoryPool pool, size_t bytes)
{
    CUdeviceptr pointer = 0;
    assert_int_equal(cuMemAllocFromPoolAsync(&pointer, bytes, pool, NULL), CUDA_SUCCESS);
    return pointer;
}

static void test_what_was_freed_is_used_again_by_the_same_pool(void **state)
{
    (void)state;
    uint64_t before = used_bytes(0);
    CUmemoryPool pool = make_pool(0);
    CUdeviceptr a = take(pool, 10 * MIB);
    assert_int_equal(used_bytes(0) - before, 32 * MIB);
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 10 * MIB);
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
    assert_int_equal(cuMemFreeAsync(a, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemFreeAsync(a, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    assert_int_equal(used_bytes(0) - before, 32 * MIB);
    CUdeviceptr b = take(pool, 32 * MIB);
    assert_int_equal(b, a);
    assert_int_equal(used_bytes(0) - before, 32 * MIB);
    CUdeviceptr c = take(pool, 100 * MIB);
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 160 * MIB);
    assert_int_equal(cuMemFreeAsync(b, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(c), CUDA_SUCCESS);
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 132 * MIB);
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before);
}

/* The account sees what a pool takes, and not what it gives out: of parts that a library was told
 * of it hears when they were taken and when they are given back. */
static void test_what_was_told_of_a_part_ends_when_it_is_given_back(void **state)
{
    (void)state;
    uint64_t threshold = UINT64_MAX;
    CUmemoryPool pool = make_pool(0);
    assert_int_equal(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold),
                     CUDA_SUCCESS);
    CUdeviceptr a = take(pool, 20 * MIB);
    uint64_t taken_ns = last_event(MT_ACCOUNT_ALLOC)->time_ns;
    CUdeviceptr b = take(pool, 4 * MIB);
    size_t n = count_events(MT_ACCOUNT_USAGE);
    pretend_cuda_usage(a, 20 * MIB, MT_CATEGORY_WORKSPACE, "a workspace");
    assert_true(last_event(MT_ACCOUNT_USAGE)->time_ns <= taken_ns);
    assert_int_equal(cuMemFreeAsync(b, NULL), CUDA_SUCCESS);
    assert_int_equal(count_events(MT_ACCOUNT_USAGE), n + 1);
    assert_int_equal(cuMemFreeAsync(a, NULL), CUDA_SUCCESS);
    assert_int_equal(count_events(MT_ACCOUNT_USAGE), n + 2);
    const struct mt_account_event *event = last_event(MT_ACCOUNT_USAGE);
    assert_int_equal(event->object, a);
    assert_int_equal(event->category, MT_CATEGORY_NONE);
    assert_true(event->time_ns > taken_ns);
    a = take(pool, 20 * MIB);
    assert_int_equal(cuMemFreeAsync(a, NULL), CUDA_SUCCESS);
    assert_int_equal(count_events(MT_ACCOUNT_USAGE), n + 2);
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

static void test_waiting_gives_back_what_is_over_the_threshold(void **state)
{
    (void)state;
    uint64_t before = used_bytes(0), threshold = UINT64_MAX;
    CUmemoryPool pool = make_pool(0);
    assert_int_equal(cuMemFreeAsync(take(pool, MIB), NULL), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0) - before, 32 * MIB);
    pretend_pools_settle();
    assert_int_equal(used_bytes(0), before);
    assert_int_equal(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold),
                     CUDA_SUCCESS);
    assert_int_equal(cuMemFreeAsync(take(pool, MIB), NULL), CUDA_SUCCESS);
    pretend_pools_settle();
    assert_int_equal(used_bytes(0) - before, 32 * MIB);
    assert_int_equal(cuMemPoolTrimTo(pool, 32 * MIB), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0) - before, 32 * MIB);
    assert_int_equal(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before);
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 32 * MIB);
    threshold = 0;
    assert_int_equal(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &threshold),
                     CUDA_SUCCESS);
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 0);
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

static void test_what_a_pool_keeps_is_given_to_who_needs_it(void **state)
{
    (void)state;
    uint64_t before = used_bytes(0), threshold = UINT64_MAX;
    size_t free_bytes, total_bytes, refused = count_events(MT_ACCOUNT_REFUSE);
    CUmemoryPool pool = make_pool(0);
    CUdeviceptr pointer;
    assert_int_equal(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold),
                     CUDA_SUCCESS);
    assert_int_equal(cuMemFreeAsync(take(pool, 8 * GIB), NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
    assert_int_equal(cuMemAlloc_v2(&pointer, free_bytes + GIB), CUDA_SUCCESS);
    assert_int_equal(count_events(MT_ACCOUNT_REFUSE), refused);
    assert_int_equal(cuMemFree_v2(pointer), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before);
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

/* 8 TiB are more addresses than a device has left, 9 more than it ever had. */
static void test_what_finds_no_addresses_is_refused_and_told(void **state)
{
    (void)state;
    CUmemoryPool pool = make_pool(0);
    const uint64_t asked[] = {UINT64_C(1) << 43, UINT64_C(9) << 40};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        CUdeviceptr pointer;
        assert_int_equal(cuMemAllocFromPoolAsync(&pointer, asked[i], pool, NULL),
                         CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(last_event(MT_ACCOUNT_REFUSE)->bytes, asked[i]);
    }
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

static void test_a_pool_has_its_own_limit(void **state)
{
    (void)state;
    CUmemoryPool pool = make_pool(64 * MIB);
    CUdeviceptr a = take(pool, 60 * MIB), b;
    assert_int_equal(cuMemAllocFromPoolAsync(&b, 60 * MIB, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocFromPoolAsync(&b, MIB, pool, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemFreeAsync(a, NULL), CUDA_SUCCESS);
}

/* What a pool takes at once may be more than its limit leaves. */
static void test_a_pool_with_a_small_limit_takes_no_more(void **state)
{
    (void)state;
    uint64_t before = used_bytes(0);
    CUmemoryPool pool = make_pool(3 * MIB);
    CUdeviceptr a = take(pool, 1), b;
    assert_true(used_bytes(0) - before <= 4 * MIB);
    assert_int_equal(cuMemAllocFromPoolAsync(&b, 60 * MIB, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemFreeAsync(a, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before);
}

static void test_a_device_has_a_pool_which_the_program_may_change(void **state)
{
    (void)state;
    CUmemoryPool own, now, pool = make_pool(0);
    CUdeviceptr a, base;
    size_t bytes;
    assert_int_equal(cuDeviceGetDefaultMemPool(&own, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolDestroy(own), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuDeviceSetMemPool(0, pool), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGetMemPool(&now, 0), CUDA_SUCCESS);
    assert_ptr_equal(now, pool);
    assert_int_equal(cuMemAllocAsync(&a, 1000, NULL), CUDA_SUCCESS);
    assert_int_equal(cuPointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a + 999),
                     CUDA_SUCCESS);
    assert_ptr_equal(now, pool);
    assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, a + 500), CUDA_SUCCESS);
    assert_int_equal(base, a);
    assert_int_equal(bytes, 1000);
    assert_int_equal(cuMemFreeAsync(a, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGetMemPool(&now, 0), CUDA_SUCCESS);
    assert_ptr_equal(now, own);
    assert_int_equal(cuDeviceSetMemPool(1, own), CUDA_ERROR_INVALID_VALUE);
}

static void test_parts_of_a_pool_never_overlap_and_join_again(void **state)
{
    (void)state;
    enum { N = 200 };
    static struct {
        CUdeviceptr at;
        size_t bytes;
    } held[N];
    CUmemoryPool pool = make_pool(0);
    uint64_t sum = 0;
    uint32_t seed = 7;
    for (int round = 0; round < 20000; round++) {
        seed = seed * 1664525u + 1013904223u;
        int i = (int)(seed >> 8) % N;
        if (held[i].at) {
            sum -= pretend_round_up(held[i].bytes, 512);
            assert_int_equal(cuMemFreeAsync(held[i].at, NULL), CUDA_SUCCESS);
        }
        held[i].bytes = seed % 5 ? (seed >> 12) % 90000 + 1 : (seed >> 10) % (8 * MIB) + 1;
        held[i].at = take(pool, held[i].bytes);
        sum += pretend_round_up(held[i].bytes, 512);
        assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), sum);
    }
    for (int i = 0; i < N; i++)
        for (int k = 0; held[i].at && k < i; k++)
            assert_true(!held[k].at || held[k].at + held[k].bytes <= held[i].at ||
                        held[i].at + held[i].bytes <= held[k].at);
    for (int i = 0; i < N; i++)
        if (held[i].at)
            assert_int_equal(cuMemFreeAsync(held[i].at, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

static void test_memory_of_graphs_takes_of_the_device_while_it_is_attached(void **state)
{
    (void)state;
    CUdeviceptr pointer;
    uint64_t before = used_bytes(0);
    assert_int_equal(pretend_graph_memory_make(0, 3 * MIB, &pointer), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before);
    assert_int_equal(pretend_graph_memory_attach(pointer), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0) - before, 4 * MIB);
    assert_int_equal(cuMemFreeAsync(pointer, NULL), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before);
    assert_int_equal(pretend_graph_memory_attach(pointer), CUDA_SUCCESS);
    pretend_graph_memory_drop(pointer);
    assert_int_equal(used_bytes(0), before);
    assert_int_equal(pretend_graph_memory_attach(pointer), CUDA_ERROR_INVALID_VALUE);
}

static void test_a_captured_allocation_takes_of_the_device_when_it_is_launched(void **state)
{
    (void)state;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr pointer, kept;
    uint64_t number = 6;
    assert_int_equal(cuMemAlloc_v2(&kept, 4096), CUDA_SUCCESS);
    assert_int_equal(cuStreamCreate(&stream, 1), CUDA_SUCCESS);
    uint64_t before = used_bytes(0);
    assert_int_equal(cuStreamBeginCapture_v2(stream, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocAsync(&pointer, 10 * MIB, stream), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyHtoDAsync_v2(pointer, &number, 8, stream), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoDAsync_v2(kept, pointer, 8, stream), CUDA_SUCCESS);
    assert_int_equal(cuMemFreeAsync(pointer, stream), CUDA_SUCCESS);
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before);
    assert_int_equal(cuMemcpyDtoH_v2(&number, kept, 8), CUDA_SUCCESS);
    assert_int_equal(number, 0);
    number = 7;
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    driver_account->device[0].peak_bytes = 0;
    assert_int_equal(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    number = 0;
    assert_int_equal(cuMemcpyDtoH_v2(&number, kept, 8), CUDA_SUCCESS);
    assert_int_equal(number, 7);
    assert_int_equal(used_bytes(0), before);
    assert_int_equal(driver_account->device[0].peak_bytes, before + 10 * MIB);
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(kept), CUDA_SUCCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_freed_is_used_again_by_the_same_pool),
        cmocka_unit_test(test_what_was_told_of_a_part_ends_when_it_is_given_back),
        cmocka_unit_test(test_waiting_gives_back_what_is_over_the_threshold),
        cmocka_unit_test(test_what_a_pool_keeps_is_given_to_who_needs_it),
        cmocka_unit_test(test_what_finds_no_addresses_is_refused_and_told),
        cmocka_unit_test(test_a_pool_has_its_own_limit),
        cmocka_unit_test(test_a_pool_with_a_small_limit_takes_no_more),
        cmocka_unit_test(test_a_device_has_a_pool_which_the_program_may_change),
        cmocka_unit_test(test_parts_of_a_pool_never_overlap_and_join_again),
        cmocka_unit_test(test_memory_of_graphs_takes_of_the_device_while_it_is_attached),
        cmocka_unit_test(test_a_captured_allocation_takes_of_the_device_when_it_is_launched),
    };
    return cmocka_run_group_tests(tests, begin_rehearsal, end_rehearsal);
}
