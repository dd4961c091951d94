/* SPDX-License-Identifier: MIT */
/* Linear memory of pretended devices, copies and pointers. Expected sizes follow from the driver's
 * page of 2 MiB and its unit of 512 bytes for what is smaller than 1 MiB. */
#include "driver_test.h"
#include "pretend/cuda/take.h"

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                            unsigned element_bytes);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer);
CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags);
CUresult cuMemFreeHost(void *pointer);
CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags);
CUresult cuMemHostUnregister(void *pointer);
CUresult cuMemHostGetFlags(unsigned *flags, void *pointer);
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device_pointer, void *pointer, unsigned flags);
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer);
CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr pointer);

static CUdeviceptr take(size_t bytes)
{
    CUdeviceptr pointer = 0;
    assert_int_equal(cuMemAlloc_v2(&pointer, bytes), CUDA_SUCCESS);
    return pointer;
}

static void give(CUdeviceptr pointer)
{
    assert_int_equal(cuMemFree_v2(pointer), CUDA_SUCCESS);
}

static void test_memory_is_given_out_in_pages_of_two_mebibytes(void **state)
{
    (void)state;
    uint64_t before = used_bytes(0);
    CUdeviceptr a = take(3 * MIB);
    assert_int_equal(used_bytes(0) - before, 4 * MIB);
    CUdeviceptr b = take(MIB);
    assert_int_equal(used_bytes(0) - before, 6 * MIB);
    assert_int_equal(a % (2 * MIB), 0);
    give(a);
    give(b);
    assert_int_equal(used_bytes(0), before);
}

static void test_small_allocations_share_a_page(void **state)
{
    (void)state;
    uint64_t before = used_bytes(0);
    CUdeviceptr small[4096];
    for (int i = 0; i < 4096; i++) {
        small[i] = take(1);
        assert_int_equal(small[i] % 512, 0);
    }
    assert_int_equal(used_bytes(0) - before, 2 * MIB);
    CUdeviceptr another = take(512);
    assert_int_equal(used_bytes(0) - before, 4 * MIB);
    for (int i = 0; i < 4096; i++)
        give(small[i]);
    assert_int_equal(used_bytes(0) - before, 2 * MIB);
    give(another);
    assert_int_equal(used_bytes(0), before);
}

/* Half of the page is free, and no two units of it lie side by side. */
static void test_what_no_gap_of_a_page_holds_begins_a_page_of_its_own(void **state)
{
    (void)state;
    enum { N = 4096 };
    uint64_t before = used_bytes(0);
    static CUdeviceptr unit[N];
    for (int i = 0; i < N; i++)
        unit[i] = take(512);
    for (int i = 0; i < N; i += 2)
        give(unit[i]);
    CUdeviceptr pair = take(1024);
    assert_int_equal(used_bytes(0) - before, 4 * MIB);
    assert_int_equal(pair % (2 * MIB), 0);
    for (int i = 1; i < N; i += 2)
        give(unit[i]);
    give(pair);
    assert_int_equal(used_bytes(0), before);
}

static void test_room_that_small_allocations_left_in_a_page_is_used_again(void **state)
{
    (void)state;
    uint64_t before = used_bytes(0);
    CUdeviceptr small[4096];
    for (int i = 0; i < 4096; i++)
        small[i] = take(512);
    for (int i = 0; i < 4096; i += 2)
        give(small[i]);
    for (int i = 0; i < 4096; i += 2)
        small[i] = take(512);
    assert_int_equal(used_bytes(0) - before, 2 * MIB);
    for (int i = 0; i < 4096; i++)
        give(small[i]);
    assert_int_equal(used_bytes(0), before);
}

static void test_small_allocations_do_not_overlap_whatever_was_freed_between(void **state)
{
    (void)state;
    enum { N = 300 };
    static struct {
        CUdeviceptr at;
        size_t bytes;
    } held[N];
    uint64_t before = used_bytes(0);
    uint32_t seed = 1;
    for (int round = 0; round < 20000; round++) {
        seed = seed * 1664525u + 1013904223u;
        int i = (int)(seed >> 8) % N;
        if (held[i].at)
            give(held[i].at);
        held[i].bytes = (seed >> 16) % 9000 + 1;
        held[i].at = take(held[i].bytes);
    }
    for (int i = 0; i < N; i++)
        for (int k = 0; held[i].at && k < i; k++)
            assert_true(!held[k].at || held[k].at + held[k].bytes <= held[i].at ||
                        held[i].at + held[i].bytes <= held[k].at);
    for (int i = 0; i < N; i++)
        if (held[i].at)
            give(held[i].at);
    assert_int_equal(used_bytes(0), before);
}

static void test_an_allocation_that_does_not_fit_is_refused_with_what_is_free(void **state)
{
    (void)state;
    size_t free_bytes, total_bytes;
    CUdeviceptr pointer = 77;
    CUdeviceptr most = take(20 * GIB);
    assert_int_equal(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
    assert_int_equal(total_bytes, 24 * GIB);
    assert_int_equal(free_bytes, 24 * GIB - used_bytes(0));
    uint64_t before = used_bytes(0);
    assert_int_equal(cuMemAlloc_v2(&pointer, 5 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(pointer, 77);
    assert_int_equal(used_bytes(0), before);
    const struct mt_account_event *refused = last_event(MT_ACCOUNT_REFUSE);
    assert_int_equal(refused->bytes, 5 * GIB);
    assert_int_equal(refused->free_bytes, free_bytes);
    CUdeviceptr rest = take(free_bytes);
    assert_int_equal(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
    assert_int_equal(free_bytes, 0);
    give(rest);
    give(most);
}

static void test_wrong_calls_are_told_so(void **state)
{
    (void)state;
    CUdeviceptr pointer;
    assert_int_equal(cuMemAlloc_v2(&pointer, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAlloc_v2(NULL, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAlloc_v2(&pointer, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemAlloc_v2(&pointer, SIZE_MAX / 2), CUDA_ERROR_OUT_OF_MEMORY);
    pointer = take(8 * MIB);
    assert_int_equal(cuMemFree_v2(pointer + 512), CUDA_ERROR_INVALID_VALUE);
    give(pointer);
    assert_int_equal(cuMemFree_v2(pointer), CUDA_ERROR_INVALID_VALUE);
    pointer = take(100);
    CUdeviceptr other = take(100);
    give(pointer);
    assert_int_equal(cuMemFree_v2(pointer), CUDA_ERROR_INVALID_VALUE);
    give(other);
    assert_int_equal(cuMemFree_v2(12345), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemFree_v2(0), CUDA_SUCCESS);
}

static void test_a_pitch_is_a_multiple_of_512(void **state)
{
    (void)state;
    CUdeviceptr pointer;
    size_t pitch;
    uint64_t before = used_bytes(0);
    assert_int_equal(cuMemAllocPitch_v2(&pointer, &pitch, 1000, 4096, 4), CUDA_SUCCESS);
    assert_int_equal(pitch, 1024);
    assert_int_equal(used_bytes(0) - before, 4 * MIB);
    give(pointer);
    assert_int_equal(cuMemAllocPitch_v2(&pointer, &pitch, 1000, 4096, 3), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAllocPitch_v2(&pointer, &pitch, SIZE_MAX / 4, SIZE_MAX / 4, 4),
                     CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemAllocPitch_v2(&pointer, &pitch, 512, (SIZE_MAX >> 9) + 2, 4),
                     CUDA_ERROR_OUT_OF_MEMORY); /* 512 bytes more than a number can hold */
    assert_int_equal(used_bytes(0), before);
}

static void test_small_numbers_survive_a_round_trip(void **state)
{
    (void)state;
    int64_t sent[3] = {7, -1, INT64_MIN}, got[3] = {0};
    CUdeviceptr a = take(sizeof sent), b = take(40 * MIB);
    assert_int_equal(cuMemcpyHtoD_v2(a, sent, sizeof sent), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoD_v2(b + 2 * MIB - 8, a, sizeof sent), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH_v2(got, b + 2 * MIB - 8, sizeof got), CUDA_SUCCESS);
    assert_memory_equal(got, sent, sizeof sent);
    assert_int_equal(cuMemsetD32_v2(b + 2 * MIB, 0x01020304, 2), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH_v2(got, b + 2 * MIB - 8, sizeof got), CUDA_SUCCESS);
    assert_int_equal(got[0], 7);
    assert_int_equal(got[1], 0x0102030401020304);
    assert_int_equal(got[2], INT64_MIN);
    give(a);
    give(b);
}

static void test_memory_that_nothing_was_copied_to_reads_as_zeros(void **state)
{
    (void)state;
    int64_t value = 5;
    CUdeviceptr a = take(16 * MIB);
    assert_int_equal(cuMemcpyHtoD_v2(a, &value, 8), CUDA_SUCCESS);
    give(a);
    CUdeviceptr b = take(16 * MIB);
    assert_int_equal(b, a);
    assert_int_equal(cuMemcpyDtoH_v2(&value, b, 8), CUDA_SUCCESS);
    assert_int_equal(value, 0);
    give(b);
}

static void test_a_small_allocation_does_not_have_the_numbers_of_the_one_before_it(void **state)
{
    (void)state;
    int64_t value = 5;
    CUdeviceptr neighbour = take(512), a = take(512);
    assert_int_equal(cuMemcpyHtoD_v2(a, &value, 8), CUDA_SUCCESS);
    give(a);
    CUdeviceptr b = take(512);
    assert_int_equal(b, a);
    assert_int_equal(cuMemcpyDtoH_v2(&value, b, 8), CUDA_SUCCESS);
    assert_int_equal(value, 0);
    give(b);
    give(neighbour);
}

/* A count that no kernel computed must not be the 5 that an earlier tenant of the memory left;
 * where a single byte is asked for it may be the answer to whether all is well. Other copies go on.
 */
static void test_what_kernels_would_have_computed_is_hidden_on_demand(void **state)
{
    (void)state;
    const int64_t five = 5;
    int64_t value = 7;
    unsigned char answer = 9;
    CUdeviceptr a = take(512), b = take(512);
    assert_int_equal(cuMemcpyHtoD_v2(a, &five, 8), CUDA_SUCCESS);
    pretend_cuda_hide(PRETEND_HIDDEN);
    assert_int_equal(cuMemcpyDtoH_v2(&value, a, 8), CUDA_SUCCESS);
    assert_int_equal(value, 0);
    assert_int_equal(cuMemcpyDtoH_v2(&answer, a, 1), CUDA_SUCCESS);
    assert_int_equal(answer, 0);
    assert_int_equal(cuMemcpyDtoD_v2(b, a, 8), CUDA_SUCCESS);
    pretend_cuda_hide(PRETEND_HIDDEN_BUT_TRUE);
    assert_int_equal(cuMemcpyDtoH_v2(&answer, a, 1), CUDA_SUCCESS);
    assert_int_equal(answer, 1);
    assert_int_equal(cuMemcpyDtoH_v2(&answer, a, 1), CUDA_SUCCESS);
    assert_int_equal(answer, 0);
    value = 7;
    assert_int_equal(cuMemcpyDtoH_v2(&value, a, 8), CUDA_SUCCESS);
    assert_int_equal(value, 0);
    pretend_cuda_hide(0);
    assert_int_equal(cuMemcpyDtoH_v2(&value, b, 8), CUDA_SUCCESS);
    assert_int_equal(value, 5);
    give(a);
    give(b);
}

/* As integers of a program are stored that a helper computes in place of a kernel. */
static void test_what_a_helper_has_stored_is_copied_and_gone_with_the_memory(void **state)
{
    (void)state;
    const uint64_t bytes = 4 * MIB;
    int64_t value = 0;
    CUdeviceptr a = take(bytes);
    *(volatile int64_t *)(uintptr_t)(a + 3 * MIB) = 5;
    pretend_cuda_wrote(a, bytes);
    assert_int_equal(cuMemcpyDtoH_v2(&value, a + 3 * MIB, 8), CUDA_SUCCESS);
    assert_int_equal(value, 5);
    give(a);
    pretend_cuda_wrote(a, bytes);
    CUdeviceptr b = take(bytes);
    assert_int_equal(b, a);
    assert_int_equal(*(volatile int64_t *)(uintptr_t)(a + 3 * MIB), 0);
    give(b);
}

/* What a library says of its workspace, which may be a part of what the program gave it. */
static void test_what_memory_is_for_is_told_to_the_account(void **state)
{
    (void)state;
    size_t told = count_events(MT_ACCOUNT_USAGE);
    CUdeviceptr a = take(8 * MIB);
    pretend_cuda_usage(a + MIB, 4 * MIB, MT_CATEGORY_WORKSPACE, "a workspace");
    const struct mt_account_event *event = last_event(MT_ACCOUNT_USAGE);
    assert_int_equal(event->object, a + MIB);
    assert_int_equal(event->bytes, 4 * MIB);
    assert_int_equal(event->category, MT_CATEGORY_WORKSPACE);
    assert_int_equal(event->place, 0);
    give(a);
    pretend_cuda_usage(a, 4 * MIB, MT_CATEGORY_WORKSPACE, "gone");
    assert_int_equal(count_events(MT_ACCOUNT_USAGE), told + 1);
}

static void test_a_large_copy_leaves_zeros_where_small_numbers_were(void **state)
{
    (void)state;
    const size_t bytes = 5 * MIB;
    char *host = malloc(bytes);
    CUdeviceptr a = take(16 * MIB);
    uint64_t mark = 9, got;
    memset(host, 1, bytes);
    for (CUdeviceptr at = a; at < a + 8 * MIB; at += MIB / 2)
        assert_int_equal(cuMemcpyHtoD_v2(at, &mark, 8), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyHtoD_v2(a + MIB / 2 + 8, host, bytes), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH_v2(&got, a + MIB / 2, 8), CUDA_SUCCESS);
    assert_int_equal(got, 9);
    assert_int_equal(cuMemcpyDtoH_v2(&got, a + MIB, 8), CUDA_SUCCESS);
    assert_int_equal(got, 0);
    assert_int_equal(cuMemcpyDtoH_v2(&got, a + 4 * MIB, 8), CUDA_SUCCESS);
    assert_int_equal(got, 0);
    assert_int_equal(cuMemcpyDtoH_v2(&got, a + 6 * MIB, 8), CUDA_SUCCESS);
    assert_int_equal(got, 9);
    assert_int_equal(cuMemcpyDtoH_v2(host, a, bytes), CUDA_SUCCESS);
    for (size_t i = 0; i < bytes; i += 997)
        assert_int_equal(host[i], 0);
    give(a);
    free(host);
}

/* A device has addresses for 8 TiB: what finds none there is refused as well, and told. */
static void test_an_allocation_past_all_addresses_is_refused_and_told(void **state)
{
    (void)state;
    const uint64_t asked[] = {1100 * GIB, 9000 * GIB, UINT64_MAX - 1};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        CUdeviceptr pointer = 77;
        uint64_t before = used_bytes(0);
        assert_int_equal(cuMemAlloc_v2(&pointer, asked[i]), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(pointer, 77);
        assert_int_equal(last_event(MT_ACCOUNT_REFUSE)->bytes, asked[i]);
        assert_int_equal(last_event(MT_ACCOUNT_REFUSE)->free_bytes, 24 * GIB - before);
    }
}

static void test_a_copy_past_an_allocation_is_refused(void **state)
{
    (void)state;
    static char host[4096];
    CUdeviceptr a = take(2 * MIB);
    assert_int_equal(cuMemcpyHtoD_v2(a + 2 * MIB - 4095, host, 4096), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyHtoD_v2(a, host, 4096), CUDA_SUCCESS);
    give(a);
    assert_int_equal(cuMemcpyHtoD_v2(a, host, 4096), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemsetD8_v2(a, 1, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyHtoD_v2(0, host, 4096), CUDA_ERROR_INVALID_VALUE);
}

static void test_pinned_memory_is_true_memory_that_the_host_account_counts(void **state)
{
    (void)state;
    void *pointer;
    unsigned flags;
    CUdeviceptr seen;
    uint64_t before = driver_account->host_used_bytes;
    assert_int_equal(cuMemHostAlloc(&pointer, 10000, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
    memset(pointer, 1, 10000);
    assert_int_equal(driver_account->host_used_bytes - before, 12288);
    const struct mt_account_event *told = last_event(MT_ACCOUNT_ALLOC);
    assert_int_equal(told->place, MT_ACCOUNT_HOST);
    assert_int_equal(told->flags, MT_ACCOUNT_PINNED);
    assert_int_equal(cuMemHostGetFlags(&flags, pointer), CUDA_SUCCESS);
    assert_int_equal(flags & CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
    assert_int_equal(cuMemHostGetDevicePointer_v2(&seen, pointer, 0), CUDA_SUCCESS);
    assert_int_equal(seen, (uintptr_t)pointer);
    assert_int_equal(cuMemFreeHost(pointer), CUDA_SUCCESS);
    assert_int_equal(driver_account->host_used_bytes, before);
    assert_int_equal(cuMemFreeHost(pointer), CUDA_ERROR_INVALID_VALUE);
}

static void test_memory_is_registered_once(void **state)
{
    (void)state;
    static char memory[3 * 4096] __attribute__((aligned(4096)));
    uint64_t before = driver_account->host_used_bytes;
    assert_int_equal(cuMemHostRegister_v2(memory, 8192, 0), CUDA_SUCCESS);
    assert_int_equal(driver_account->host_used_bytes - before, 8192);
    assert_int_equal(cuMemHostRegister_v2(memory + 4096, 8192, 0),
                     CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    assert_int_equal(cuMemHostRegister_v2(memory + 8192, 4096, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemHostUnregister(memory + 4096), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    assert_int_equal(cuMemHostUnregister(memory), CUDA_SUCCESS);
    assert_int_equal(cuMemHostUnregister(memory + 8192), CUDA_SUCCESS);
    assert_int_equal(driver_account->host_used_bytes, before);
}

static void test_a_pointer_says_what_it_is_of(void **state)
{
    (void)state;
    CUdeviceptr a = take(4 * MIB), base;
    size_t bytes;
    unsigned type, ordinal;
    CUdeviceptr start;
    void *host;
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    void *into[] = {&type, &ordinal, &start};
    assert_int_equal(cuPointerGetAttributes(3, asked, into, a + 3 * MIB), CUDA_SUCCESS);
    assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
    assert_int_equal(ordinal, 0);
    assert_int_equal(start, a);
    assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, a + 5), CUDA_SUCCESS);
    assert_int_equal(base, a);
    assert_int_equal(bytes, 4 * MIB);
    assert_int_equal(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, a),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                           (CUdeviceptr)(uintptr_t)&type),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuPointerGetAttributes(3, asked, into, (CUdeviceptr)(uintptr_t)&type),
                     CUDA_SUCCESS);
    assert_int_equal(type, 0);
    assert_int_equal((int)ordinal, -2);
    give(a);
    assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, a + 5), CUDA_ERROR_NOT_FOUND);
}

/* A program that takes and gives back more than its addresses, with others in between. */
static void test_addresses_are_used_again(void **state)
{
    (void)state;
    CUdeviceptr kept[8];
    uint64_t before = used_bytes(0);
    for (int i = 0; i < 300; i++) {
        CUdeviceptr a = take(10 * GIB);
        CUdeviceptr b = take(2 * MIB);
        give(a);
        if (i >= 8)
            give(kept[i % 8]);
        kept[i % 8] = b;
    }
    for (int i = 0; i < 8; i++)
        give(kept[i]);
    assert_int_equal(used_bytes(0), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_given_out_in_pages_of_two_mebibytes),
        cmocka_unit_test(test_small_allocations_share_a_page),
        cmocka_unit_test(test_what_no_gap_of_a_page_holds_begins_a_page_of_its_own),
        cmocka_unit_test(test_room_that_small_allocations_left_in_a_page_is_used_again),
        cmocka_unit_test(test_small_allocations_do_not_overlap_whatever_was_freed_between),
        cmocka_unit_test(test_an_allocation_that_does_not_fit_is_refused_with_what_is_free),
        cmocka_unit_test(test_wrong_calls_are_told_so),
        cmocka_unit_test(test_a_pitch_is_a_multiple_of_512),
        cmocka_unit_test(test_small_numbers_survive_a_round_trip),
        cmocka_unit_test(test_memory_that_nothing_was_copied_to_reads_as_zeros),
        cmocka_unit_test(test_a_small_allocation_does_not_have_the_numbers_of_the_one_before_it),
        cmocka_unit_test(test_what_memory_is_for_is_told_to_the_account),
        cmocka_unit_test(test_what_kernels_would_have_computed_is_hidden_on_demand),
        cmocka_unit_test(test_what_a_helper_has_stored_is_copied_and_gone_with_the_memory),
        cmocka_unit_test(test_a_large_copy_leaves_zeros_where_small_numbers_were),
        cmocka_unit_test(test_an_allocation_past_all_addresses_is_refused_and_told),
        cmocka_unit_test(test_a_copy_past_an_allocation_is_refused),
        cmocka_unit_test(test_pinned_memory_is_true_memory_that_the_host_account_counts),
        cmocka_unit_test(test_memory_is_registered_once),
        cmocka_unit_test(test_a_pointer_says_what_it_is_of),
        cmocka_unit_test(test_addresses_are_used_again),
    };
    return cmocka_run_group_tests(tests, begin_rehearsal, end_rehearsal);
}
