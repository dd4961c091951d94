/* SPDX-License-Identifier: MIT */
/* Systems and devices that grant little: strict overcommit, a limit on address space, a device
 * without memory, the most devices there can be; and what ends with its context. */
#include "driver_test.h"

#include <sys/mman.h>
#include <sys/wait.h>

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext context);
CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags);
CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags);

enum { PLAIN, STRICT, LIMITED, EMPTY, LAST = 63 };

static int system_is;

static void *map(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    int is_large = bytes >= GIB;
    if (system_is == LIMITED && is_large)
        return MAP_FAILED;
    if (system_is == STRICT && is_large && protection & PROT_WRITE)
        return MAP_FAILED;
    return mmap(at, bytes, protection, flags, fd, offset);
}

static CUdeviceptr take(size_t bytes)
{
    CUdeviceptr pointer = 0;
    assert_int_equal(cuMemAlloc_v2(&pointer, bytes), CUDA_SUCCESS);
    return pointer;
}

static void test_strict_overcommit_keeps_small_numbers(void **state)
{
    (void)state;
    uint64_t sent[2] = {3, 4}, got[2] = {0};
    system_is = STRICT;
    use_device(STRICT);
    CUdeviceptr a = take(8 * GIB), b = take(8 * GIB);
    assert_int_equal(cuMemcpyDtoH_v2(got, a, 16), CUDA_SUCCESS);
    assert_int_equal(got[0], 0);
    assert_int_equal(cuMemcpyHtoD_v2(a + 2 * MIB - 8, sent, 16), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoD_v2(b + 5 * MIB, a + 2 * MIB - 8, 16), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH_v2(got, b + 5 * MIB, 16), CUDA_SUCCESS);
    assert_int_equal(got[0], 3);
    assert_int_equal(got[1], 4);
    assert_int_equal(cuMemcpyDtoD_v2(b, a, 60000), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoD_v2(b + 5 * MIB + 60000, b + 5 * MIB + 300000, 60000),
                     CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(a), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(b), CUDA_SUCCESS);
    assert_int_equal(used_bytes(STRICT), 0);
    system_is = PLAIN;
}

/* The list of events is full: what a process took is known from its row. */
static void test_a_full_list_of_events_loses_no_bytes(void **state)
{
    (void)state;
    uint64_t events = driver_account->n_events, before = used_bytes(PLAIN), free_bytes;
    uint64_t own = mt_account_of_process(driver_account, (uint32_t)getpid(), PLAIN, 0);
    assert_int_equal(own, before);
    driver_account->n_events = MT_ACCOUNT_EVENTS_MAX + 5;
    use_device(PLAIN);
    CUdeviceptr a = take(3 * MIB);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(!pretend_take(PLAIN, 5 * GIB, &free_bytes)); /* and gives nothing back */
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    own = mt_account_of_process(driver_account, (uint32_t)getpid(), PLAIN, 0);
    assert_int_equal(mt_account_of_process(driver_account, (uint32_t)child, PLAIN, 0), 5 * GIB);
    assert_int_equal(own + 5 * GIB, used_bytes(PLAIN));
    mt_account_give_back(driver_account, PLAIN, 5 * GIB, 5 * GIB);
    mt_account_drop_process(driver_account, (uint32_t)child);
    assert_int_equal(mt_account_of_process(driver_account, (uint32_t)child, PLAIN, 0), 0);
    assert_int_equal(cuMemFree_v2(a), CUDA_SUCCESS);
    assert_int_equal(own - mt_account_of_process(driver_account, (uint32_t)getpid(), PLAIN, 0),
                     4 * MIB);
    driver_account->n_events = events;
}

/* What a rehearsal does in its own time when a process is gone. */
static void *bury(void *child)
{
    uint32_t pid = (uint32_t)(uintptr_t)child;
    usleep(30000);
    mt_account_give_back(driver_account, PLAIN, 20 * GIB, 20 * GIB);
    mt_account_drop_process(driver_account, pid);
    return NULL;
}

static void test_what_an_ended_process_held_is_waited_for_before_memory_is_refused(void **state)
{
    (void)state;
    uint64_t free_bytes, before = used_bytes(PLAIN);
    pthread_t thread;
    siginfo_t info;
    use_device(PLAIN);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(!pretend_take(PLAIN, 20 * GIB, &free_bytes));
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(info.si_status, 0);
    assert_int_equal(pthread_create(&thread, NULL, bury, (void *)(uintptr_t)child), 0);
    CUdeviceptr a = take(20 * GIB);
    pthread_join(thread, NULL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(cuMemFree_v2(a), CUDA_SUCCESS);
    assert_true(used_bytes(PLAIN) - before < 20 * GIB);
}

static void test_without_address_space_the_account_is_kept(void **state)
{
    (void)state;
    uint64_t number = 3;
    void *host;
    CUdeviceptr managed;
    size_t notes = count_events(MT_ACCOUNT_NOTE);
    system_is = LIMITED;
    use_device(LIMITED);
    CUdeviceptr a = take(8 * GIB);
    assert_int_equal(used_bytes(LIMITED), 8 * GIB);
    assert_int_equal(cuMemcpyHtoD_v2(a, &number, 8), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH_v2(&number, a, 8), CUDA_SUCCESS);
    assert_int_equal(number, 0);
    assert_int_equal(cuMemsetD8_v2(a, 1, 100), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL),
                     CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemHostAlloc(&host, 2 * GIB, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemFree_v2(a), CUDA_SUCCESS);
    assert_int_equal(used_bytes(LIMITED), 0);
    assert_int_equal(count_events(MT_ACCOUNT_NOTE), notes + 1);
    system_is = PLAIN;
}

static void test_a_device_without_memory_refuses_all(void **state)
{
    (void)state;
    CUdeviceptr pointer;
    size_t free_bytes, total_bytes;
    use_device(EMPTY);
    assert_int_equal(cuMemAlloc_v2(&pointer, 1), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemAlloc_v2(&pointer, GIB), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
    assert_int_equal(free_bytes, 0);
    assert_int_equal(cuMemAllocManaged(&pointer, MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    *(volatile char *)(uintptr_t)pointer = 1;
    assert_int_equal(cuMemFree_v2(pointer), CUDA_SUCCESS);
}

static void test_sixty_four_devices_have_addresses_of_their_own(void **state)
{
    (void)state;
    CUdeviceptr pointer[64];
    for (int i = 0; i < 64; i++) {
        if (i == EMPTY)
            continue;
        use_device(i);
        pointer[i] = take(8 * GIB);
        assert_int_equal(device_of(pointer[i] + 8 * GIB - 1), i);
        assert_int_equal(used_bytes((unsigned)i), 8 * GIB);
    }
    for (int i = 0; i < 64; i++)
        if (i != EMPTY)
            assert_int_equal(cuMemFree_v2(pointer[i]), CUDA_SUCCESS);
}

static void test_memory_goes_with_the_context_that_it_was_taken_in(void **state)
{
    (void)state;
    CUcontext context;
    use_device(LAST);
    CUdeviceptr stays = take(100);
    uint64_t before = used_bytes(LAST);
    assert_int_equal(cuCtxCreate_v2(&context, 0, LAST), CUDA_SUCCESS);
    for (int i = 0; i < 20; i++)
        take(i % 2 ? 200 : 3 * MIB);
    assert_int_equal(used_bytes(LAST) - before, 40 * MIB);
    assert_int_equal(cuCtxDestroy_v2(context), CUDA_SUCCESS);
    assert_int_equal(used_bytes(LAST), before);
    use_device(LAST);
    assert_int_equal(cuMemFree_v2(stays), CUDA_SUCCESS);
}

static int begin(void **state)
{
    (void)state;
    make_rehearsal(64, 24 * GIB);
    driver_account->device[EMPTY].free_bytes = 0;
    pretend_system.map = map;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strict_overcommit_keeps_small_numbers),
        cmocka_unit_test(test_a_full_list_of_events_loses_no_bytes),
        cmocka_unit_test(test_what_an_ended_process_held_is_waited_for_before_memory_is_refused),
        cmocka_unit_test(test_without_address_space_the_account_is_kept),
        cmocka_unit_test(test_a_device_without_memory_refuses_all),
        cmocka_unit_test(test_sixty_four_devices_have_addresses_of_their_own),
        cmocka_unit_test(test_memory_goes_with_the_context_that_it_was_taken_in),
    };
    return cmocka_run_group_tests(tests, begin, end_rehearsal);
}
