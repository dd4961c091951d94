/* SPDX-License-Identifier: MIT */
/* Physical memory and the addresses that it is mapped to; managed memory; copies of rows. What is
 * expected is what CUDA's documentation says of these calls. */
#include "driver_test.h"

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       int option);
CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment,
                             CUdeviceptr wanted, unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes);
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *prop, unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes);
CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *desc, size_t n);
CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                        CUdeviceptr pointer);
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle);
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address);
CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags);
CUresult cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                         size_t height);
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy);
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy);

static const CUmemAllocationProp on_device[2] = {
    {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
    {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}},
};
static const CUmemAccessDesc for_device[2] = {
    {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
    {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READ},
};

static CUmemGenericAllocationHandle make(size_t bytes)
{
    CUmemGenericAllocationHandle handle = 0;
    assert_int_equal(cuMemCreate(&handle, bytes, &on_device[0], 0), CUDA_SUCCESS);
    return handle;
}

static CUdeviceptr reserve(size_t bytes)
{
    CUdeviceptr pointer = 0;
    assert_int_equal(cuMemAddressReserve(&pointer, bytes, 0, 0, 0), CUDA_SUCCESS);
    return pointer;
}

static void test_the_device_is_charged_from_create_to_the_last_unmap(void **state)
{
    (void)state;
    uint64_t before = used_bytes(0);
    CUdeviceptr at = reserve(64 * GIB);
    assert_int_equal(used_bytes(0), before);
    CUmemGenericAllocationHandle handle = make(20 * MIB);
    assert_int_equal(used_bytes(0) - before, 20 * MIB);
    assert_int_equal(cuMemMap(at + 2 * MIB, 20 * MIB, 0, handle, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(used_bytes(0) - before, 20 * MIB);
    assert_int_equal(cuMemAddressFree(at, 64 * GIB), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemUnmap(at + 2 * MIB, 20 * MIB), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before);
    assert_int_equal(cuMemAddressFree(at, 32 * GIB), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAddressFree(at, 64 * GIB), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree(at, 64 * GIB), CUDA_ERROR_INVALID_VALUE);
}

static void test_memory_is_mapped_where_nothing_is_and_unmapped_whole(void **state)
{
    (void)state;
    CUdeviceptr at = reserve(16 * MIB);
    CUmemGenericAllocationHandle a = make(4 * MIB), b = make(4 * MIB);
    assert_int_equal(cuMemMap(at, 4 * MIB, 0, a, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemMap(at, 4 * MIB, 0, b, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemMap(at + 2 * MIB, 4 * MIB, 0, b, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemMap(at + 14 * MIB, 4 * MIB, 0, b, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemMap(at + 4 * MIB, 3 * MIB, 0, b, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemMap(at + 4 * MIB, 6 * MIB, 0, b, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemMap(at + MIB, 2 * MIB, 0, b, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemMap(at + 4 * MIB, 4 * MIB, 0, b + 1, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemMap(at + 4 * MIB, 4 * MIB, 0, b, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemUnmap(at, 6 * MIB), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemUnmap(at + 2 * MIB, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemUnmap(at, 10 * MIB), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemUnmap(at, 8 * MIB), CUDA_SUCCESS);
    assert_int_equal(cuMemUnmap(at, 8 * MIB), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAddressFree(at, 16 * MIB), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(a), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(b), CUDA_SUCCESS);
}

static void test_maps_are_used_as_far_as_access_was_given(void **state)
{
    (void)state;
    CUdeviceptr at = reserve(8 * MIB);
    CUmemGenericAllocationHandle a = make(4 * MIB), b = make(4 * MIB);
    unsigned long long flags;
    uint64_t sent[2] = {1, 2}, got[2] = {0};
    assert_int_equal(cuMemMap(at, 4 * MIB, 0, a, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemMap(at + 4 * MIB, 4 * MIB, 0, b, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyHtoD_v2(at, sent, 16), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemSetAccess(at, 8 * MIB, for_device, 2), CUDA_SUCCESS);
    assert_int_equal(cuMemGetAccess(&flags, &for_device[0].location, at), CUDA_SUCCESS);
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    assert_int_equal(cuMemGetAccess(&flags, &for_device[1].location, at + 5 * MIB), CUDA_SUCCESS);
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
    assert_int_equal(cuMemcpyHtoD_v2(at + 4 * MIB - 8, sent, 16), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH_v2(got, at + 4 * MIB - 8, 16), CUDA_SUCCESS);
    assert_memory_equal(got, sent, 16);
    assert_int_equal(cuMemUnmap(at, 8 * MIB), CUDA_SUCCESS);
    assert_int_equal(cuMemSetAccess(at, 8 * MIB, for_device, 2), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemRelease(a), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(b), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree(at, 8 * MIB), CUDA_SUCCESS);
}

static void test_a_handle_is_found_again_by_its_map(void **state)
{
    (void)state;
    uint64_t before = used_bytes(0);
    CUdeviceptr at = reserve(4 * MIB);
    CUmemGenericAllocationHandle a = make(4 * MIB), again;
    CUmemAllocationProp prop;
    assert_int_equal(cuMemMap(at, 4 * MIB, 0, a, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(a), CUDA_SUCCESS);
    assert_int_equal(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(at + 3 * MIB)),
                     CUDA_SUCCESS);
    assert_int_equal(cuMemUnmap(at, 4 * MIB), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0) - before, 4 * MIB);
    assert_int_equal(cuMemGetAllocationPropertiesFromHandle(&prop, again), CUDA_SUCCESS);
    assert_int_equal(prop.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    assert_int_equal(cuMemRelease(again), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before);
    assert_int_equal(cuMemAddressFree(at, 4 * MIB), CUDA_SUCCESS);
}

static void test_what_cannot_be_made_is_told(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = on_device[0];
    size_t granularity;
    uint64_t before = used_bytes(0);
    assert_int_equal(cuMemGetAllocationGranularity(&granularity, &prop, 1), CUDA_SUCCESS);
    assert_int_equal(granularity, 2 * MIB);
    assert_int_equal(cuMemCreate(&handle, 3 * MIB, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemCreate(&handle, 0, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemCreate(&handle, 26 * GIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    assert_int_equal(cuMemCreate(&handle, 2 * MIB, &prop, 0), CUDA_ERROR_NOT_SUPPORTED);
    prop = on_device[0];
    prop.location.id = 7;
    assert_int_equal(cuMemCreate(&handle, 2 * MIB, &prop, 0), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(used_bytes(0), before);
}

static void test_addresses_are_aligned_as_asked(void **state)
{
    (void)state;
    CUdeviceptr plain = reserve(2 * MIB), at, wanted, other;
    assert_int_equal(cuMemAddressReserve(&at, 4 * MIB, 1 * GIB, 0, 0), CUDA_SUCCESS);
    assert_int_equal(at % GIB, 0);
    assert_int_equal(cuMemAddressReserve(&wanted, 4 * MIB, 0, at + 100 * MIB, 0), CUDA_SUCCESS);
    assert_int_equal(wanted, at + 100 * MIB);
    assert_int_equal(cuMemAddressReserve(&other, 4 * MIB, 0, at + 201 * MIB, 0), CUDA_SUCCESS);
    assert_int_equal(other % (2 * MIB), 0); /* what is wanted is a hint */
    assert_int_equal(cuMemAddressFree(other, 4 * MIB), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressReserve(&wanted, 4 * MIB, 3 * MIB, 0, 0),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAddressFree(at + 100 * MIB, 4 * MIB), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree(at, 4 * MIB), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree(plain, 2 * MIB), CUDA_SUCCESS);
}

/* PyTorch's expandable segments reserve 9/8 of a device for each stream and pool: of 180 GiB on one
 * of 160, 12 streams have 24. A process has 128 TiB of addresses on a true device. */
static void test_many_streams_can_reserve_more_than_the_whole_device_each(void **state)
{
    (void)state;
    CUdeviceptr at[24];
    for (size_t i = 0; i < 24; i++)
        assert_int_equal(cuMemAddressReserve(&at[i], 180 * GIB, 0, 0, 0), CUDA_SUCCESS);
    for (size_t i = 0; i < 24; i++)
        assert_int_equal(cuMemAddressFree(at[i], 180 * GIB), CUDA_SUCCESS);
}

static void test_memory_of_another_device_is_charged_there(void **state)
{
    (void)state;
    uint64_t before = used_bytes(1);
    CUdeviceptr at = reserve(2 * MIB);
    CUmemGenericAllocationHandle handle;
    assert_int_equal(cuMemCreate(&handle, 2 * MIB, &on_device[1], 0), CUDA_SUCCESS);
    assert_int_equal(used_bytes(1) - before, 2 * MIB);
    assert_int_equal(cuMemMap(at, 2 * MIB, 0, handle, 0), CUDA_SUCCESS);
    assert_int_equal(device_of(at), 1);
    assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
    assert_int_equal(cuMemUnmap(at, 2 * MIB), CUDA_SUCCESS);
    assert_int_equal(used_bytes(1), before);
    assert_int_equal(cuMemAddressFree(at, 2 * MIB), CUDA_SUCCESS);
}

static void test_managed_memory_is_the_programs_own_and_counted_as_far_as_it_fits(void **state)
{
    (void)state;
    CUdeviceptr a, b;
    uint64_t before = used_bytes(0), number = 0;
    assert_int_equal(cuMemAllocManaged(&a, 10 * MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0) - before, 10 * MIB);
    *(volatile uint64_t *)(uintptr_t)a = 11;
    assert_int_equal(cuMemcpyDtoH_v2(&number, a, 8), CUDA_SUCCESS);
    assert_int_equal(number, 11);
    assert_int_equal(cuMemAllocManaged(&b, 100 * GIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), 24 * GIB);
    assert_int_equal(cuMemFree_v2(b), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(a), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before);
    assert_int_equal(cuMemAllocManaged(&a, 10 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
}

static void test_rows_are_copied_by_their_pitch(void **state)
{
    (void)state;
    unsigned char sent[4][8], got[4][3];
    CUdeviceptr at;
    for (int i = 0; i < 32; i++)
        sent[i / 8][i % 8] = (unsigned char)(i + 1);
    assert_int_equal(cuMemAlloc_v2(&at, 4096), CUDA_SUCCESS);
    CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = sent,
                        .srcPitch = 8,
                        .srcXInBytes = 2,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = at,
                        .dstPitch = 512,
                        .WidthInBytes = 3,
                        .Height = 4};
    assert_int_equal(cuMemcpy2D_v2(&in), CUDA_SUCCESS);
    CUDA_MEMCPY3D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = at,
                         .srcPitch = 512,
                         .srcHeight = 2,
                         .dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = got,
                         .dstPitch = 3,
                         .dstHeight = 2,
                         .WidthInBytes = 3,
                         .Height = 2,
                         .Depth = 2};
    assert_int_equal(cuMemcpy3D_v2(&out), CUDA_SUCCESS);
    for (int row = 0; row < 4; row++)
        for (int i = 0; i < 3; i++)
            assert_int_equal(got[row][i], row * 8 + 2 + i + 1);
    in.dstPitch = 2;
    assert_int_equal(cuMemcpy2D_v2(&in), CUDA_ERROR_INVALID_VALUE);
    in = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = at,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = at,
                         .WidthInBytes = 2,
                         .Height = SIZE_MAX / 2 + 1};
    assert_int_equal(cuMemcpy2D_v2(&in), CUDA_ERROR_INVALID_VALUE);
    in.WidthInBytes = 0; /* nothing, and at once */
    assert_int_equal(cuMemcpy2D_v2(&in), CUDA_SUCCESS);
    assert_int_equal(cuMemsetD2D8_v2(at, 1, 0, 0, SIZE_MAX), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(at), CUDA_SUCCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_device_is_charged_from_create_to_the_last_unmap),
        cmocka_unit_test(test_memory_is_mapped_where_nothing_is_and_unmapped_whole),
        cmocka_unit_test(test_maps_are_used_as_far_as_access_was_given),
        cmocka_unit_test(test_a_handle_is_found_again_by_its_map),
        cmocka_unit_test(test_what_cannot_be_made_is_told),
        cmocka_unit_test(test_addresses_are_aligned_as_asked),
        cmocka_unit_test(test_many_streams_can_reserve_more_than_the_whole_device_each),
        cmocka_unit_test(test_memory_of_another_device_is_charged_there),
        cmocka_unit_test(test_managed_memory_is_the_programs_own_and_counted_as_far_as_it_fits),
        cmocka_unit_test(test_rows_are_copied_by_their_pitch),
    };
    return cmocka_run_group_tests(tests, begin_rehearsal, end_rehearsal);
}
