/* SPDX-License-Identifier: MIT */
/* Devices, contexts, streams, events and functions of the pretended driver. Expected errors are
 * those of the CUDA driver API reference. */
#include "driver_test.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

#include "pretend/cuda/abi/driver_calls.h"

#define CONTEXT_BYTES (300 * MIB)
#define MODULE_BYTES  (40 * MIB)

static void test_nothing_goes_before_the_driver_is_initialised(void **state)
{
    int count;
    CUcontext context;
    (void)state;
    assert_int_equal(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(cuInit(1), CUDA_ERROR_INVALID_VALUE);
}

/* How many devices a program sees that is told `visible`, and which bus the first is on. */
static int count_seen(const char *visible)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int count = 0;
        char bus[16] = "0000:00";
        setenv("CUDA_VISIBLE_DEVICES", visible, 1);
        if (cuInit(0) == CUDA_SUCCESS && cuDeviceGetCount(&count) == CUDA_SUCCESS)
            cuDeviceGetPCIBusId(bus, sizeof bus, 0);
        _exit(count * 16 + (bus[6] - '0'));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* PyTorch counts devices by the same rules; see its torch.cuda._parse_visible_devices(). */
static void test_every_form_of_visible_devices_is_read_as_pytorch_reads_it(void **state)
{
    static const struct {
        const char *visible;
        int n, bus;
    } rows[] = {
        {"", 0, 0},
        {"-1", 0, 0},
        {"1", 1, 2},
        {"1,0", 2, 2},
        {" 2, 1", 2, 3},
        {"0,-1,1", 1, 1},
        {"0,0", 0, 0},
        {"2,1,2", 0, 0},
        {"x", 0, 0},
        {"GPU-", 0, 0},
        {"GPU-6d656d74", 0, 0}, /* of all of them */
        {"GPU-6d656d74-616c-6c79-4070-726580746501,0", 2, 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(count_seen(rows[i].visible), rows[i].n * 16 + rows[i].bus);
}

/* The program sees the third device and then the first; the fourth entry names none. */
static void test_visible_devices_are_those_named_up_to_the_first_bad_one(void **state)
{
    CUuuid uuid[2];
    char bus[16];
    int count, device;
    (void)state;
    setenv("CUDA_VISIBLE_DEVICES", "2,0,7,1", 1);
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGetCount(&count), CUDA_SUCCESS);
    assert_int_equal(count, 2);
    assert_int_equal(cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(cuDeviceGetPCIBusId(bus, sizeof bus, 0), CUDA_SUCCESS);
    assert_string_equal(bus, "0000:03:00.0");
    assert_int_equal(cuDeviceGetByPCIBusId(&device, "0000:01:00.0"), CUDA_SUCCESS);
    assert_int_equal(device, 1);
    assert_int_equal(cuDeviceGetByPCIBusId(&device, "02:00"), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(cuDeviceGetUuid_v2(&uuid[0], 0), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGetUuid_v2(&uuid[1], 1), CUDA_SUCCESS);
    assert_memory_not_equal(&uuid[0], &uuid[1], sizeof uuid[0]);
}

static void test_a_device_answers_what_its_row_of_the_table_says(void **state)
{
    int value;
    char name[8];
    (void)state;
    assert_int_equal(cuDeviceGetAttribute(&value, 75, 0), CUDA_SUCCESS);
    assert_int_equal(value, 9);
    assert_int_equal(cuDeviceGetAttribute(&value, 16, 0), CUDA_SUCCESS);
    assert_int_equal(value, 132);
    assert_int_equal(cuDeviceGetAttribute(&value, 97, 0), CUDA_SUCCESS);
    assert_int_equal(value, 232448);
    assert_int_equal(cuDeviceGetAttribute(&value, 120, 0), CUDA_SUCCESS);
    assert_int_equal(value, 1);
    assert_int_equal(cuDeviceGetAttribute(&value, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuDeviceGetAttribute(&value, 16, 2), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(cuDeviceGetAttribute(NULL, 16, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuDeviceGetName(name, sizeof name, 0), CUDA_SUCCESS);
    assert_string_equal(name, "NVIDIA ");
}

static void test_a_primary_context_takes_memory_once_and_gives_it_back(void **state)
{
    CUcontext one, same;
    unsigned flags;
    int is_active;
    (void)state;
    assert_int_equal(used_bytes(2), 0);
    assert_int_equal(cuDevicePrimaryCtxRetain(&one, 0), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRetain(&same, 0), CUDA_SUCCESS);
    assert_ptr_equal(one, same);
    assert_int_equal(used_bytes(2), CONTEXT_BYTES);
    assert_int_equal(last_event(MT_ACCOUNT_ALLOC)->category, MT_CATEGORY_CONTEXT);
    assert_int_equal(cuDevicePrimaryCtxGetState(0, &flags, &is_active), CUDA_SUCCESS);
    assert_int_equal(is_active, 1);
    assert_int_equal(cuCtxDestroy_v2(one), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    assert_int_equal(used_bytes(2), CONTEXT_BYTES);
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    assert_int_equal(used_bytes(2), 0);
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
}

static void test_made_contexts_stack_up_and_are_known_when_destroyed(void **state)
{
    CUcontext one, other, current;
    CUdevice device;
    (void)state;
    assert_int_equal(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuCtxCreate_v2(&one, 0, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxCreate_v2(&other, 0, 1), CUDA_SUCCESS);
    assert_int_equal(cuCtxGetDevice(&device), CUDA_SUCCESS);
    assert_int_equal(device, 1);
    assert_int_equal(cuCtxPopCurrent_v2(&current), CUDA_SUCCESS);
    assert_ptr_equal(current, other);
    assert_int_equal(cuCtxDestroy_v2(other), CUDA_SUCCESS);
    assert_int_equal(cuCtxDestroy_v2(other), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(cuCtxPushCurrent_v2(other), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuCtxDestroy_v2(one), CUDA_SUCCESS);
    assert_int_equal(cuCtxGetCurrent(&current), CUDA_SUCCESS);
    assert_null(current);
    assert_int_equal(cuCtxPopCurrent_v2(NULL), CUDA_ERROR_INVALID_CONTEXT);
}

static void test_a_made_context_that_does_not_fit_is_refused(void **state)
{
    CUcontext context;
    (void)state;
    driver_account->device[2].gpu.context_bytes = 9 * GIB;
    assert_int_equal(cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    driver_account->device[2].gpu.context_bytes = CONTEXT_BYTES;
}

static void *no_context(void *data)
{
    CUcontext context = (void *)1;
    (void)data;
    assert_int_equal(cuCtxGetCurrent(&context), CUDA_SUCCESS);
    return context;
}

static void test_each_thread_has_a_context_of_its_own(void **state)
{
    pthread_t thread;
    void *seen = (void *)1;
    (void)state;
    use_device(0);
    assert_int_equal(pthread_create(&thread, NULL, no_context, NULL), 0);
    pthread_join(thread, &seen);
    assert_null(seen);
}

static void test_peer_access_is_enabled_once_and_disabled_once(void **state)
{
    CUcontext peer, current;
    int can;
    (void)state;
    assert_int_equal(cuDeviceCanAccessPeer(&can, 0, 1), CUDA_SUCCESS);
    assert_int_equal(can, 1);
    assert_int_equal(cuDeviceCanAccessPeer(&can, 0, 0), CUDA_SUCCESS);
    assert_int_equal(can, 0);
    assert_int_equal(cuDevicePrimaryCtxRetain(&peer, 1), CUDA_SUCCESS);
    assert_int_equal(cuCtxGetCurrent(&current), CUDA_SUCCESS);
    assert_int_equal(cuCtxDisablePeerAccess(peer), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    assert_int_equal(cuCtxEnablePeerAccess(peer, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxEnablePeerAccess(peer, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    assert_int_equal(cuCtxEnablePeerAccess(current, 0), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuCtxDisablePeerAccess(peer), CUDA_SUCCESS);
    assert_int_equal(cuCtxEnablePeerAccess(peer, 0), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    assert_int_equal(cuCtxEnablePeerAccess(peer, 0), CUDA_SUCCESS); /* of it nothing was left */
    assert_int_equal(cuCtxDisablePeerAccess(peer), CUDA_SUCCESS);
}

/* CU_CTX_SCHED_SPIN is 1, CU_CTX_SCHED_YIELD is 2: a context has one way to wait. */
static void test_flags_of_contexts_are_checked(void **state)
{
    CUcontext context;
    (void)state;
    assert_int_equal(cuCtxCreate_v2(&context, 1u << 30, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCtxCreate_v2(&context, 1 | 2, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuDevicePrimaryCtxSetFlags_v2(0, 1u << 30), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCtxCreate_v2(&context, 2, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxDestroy_v2(context), CUDA_SUCCESS);
}

static void test_destroyed_streams_and_events_are_invalid_handles(void **state)
{
    CUstream stream;
    CUevent event;
    (void)state;
    assert_int_equal(cuStreamCreate(&stream, 8), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuStreamCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuEventCreate(&event, 0), CUDA_SUCCESS);
    assert_int_equal(cuEventDestroy_v2(event), CUDA_SUCCESS);
    assert_int_equal(cuEventRecord(event, NULL), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuEventDestroy_v2(NULL), CUDA_ERROR_INVALID_HANDLE);
}

static void test_priorities_are_clamped_to_the_range_of_the_device(void **state)
{
    CUstream stream;
    int lowest, highest, priority;
    (void)state;
    assert_int_equal(cuCtxGetStreamPriorityRange(&lowest, &highest), CUDA_SUCCESS);
    assert_int_equal(cuStreamCreateWithPriority(&stream, 1, highest - 7), CUDA_SUCCESS);
    assert_int_equal(cuStreamGetPriority(stream, &priority), CUDA_SUCCESS);
    assert_int_equal(priority, highest);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

static void test_elapsed_time_wants_two_recorded_events_with_timing(void **state)
{
    CUevent start, end, untimed;
    float milliseconds = 0;
    (void)state;
    assert_int_equal(cuEventCreate(&start, 0), CUDA_SUCCESS);
    assert_int_equal(cuEventCreate(&end, 0), CUDA_SUCCESS);
    assert_int_equal(cuEventCreate(&untimed, 2), CUDA_SUCCESS);
    assert_int_equal(cuEventQuery(start), CUDA_SUCCESS);
    assert_int_equal(cuEventRecord(start, NULL), CUDA_SUCCESS);
    assert_int_equal(cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuEventRecord(end, NULL), CUDA_SUCCESS);
    assert_int_equal(cuEventRecord(untimed, NULL), CUDA_SUCCESS);
    assert_int_equal(cuEventElapsedTime(&milliseconds, start, end), CUDA_SUCCESS);
    assert_true(milliseconds > 0);
    assert_int_equal(cuEventElapsedTime(&milliseconds, start, untimed), CUDA_ERROR_INVALID_HANDLE);
    cuEventDestroy_v2(start);
    cuEventDestroy_v2(end);
    cuEventDestroy_v2(untimed);
}

/* Only an event that was made for it has a handle: with CU_EVENT_INTERPROCESS and …DISABLE_TIMING.
 */
static void test_an_event_that_was_made_for_it_is_opened_by_its_handle(void **state)
{
    CUipcEventHandle handle, nothing = {{0}};
    CUevent plain, shared, opened;
    float milliseconds;
    (void)state;
    assert_int_equal(cuEventCreate(&plain, 2), CUDA_SUCCESS);
    assert_int_equal(cuEventCreate(&shared, 4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuEventCreate(&shared, 4 | 2), CUDA_SUCCESS);
    assert_int_equal(cuIpcGetEventHandle(&handle, plain), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuIpcGetEventHandle(&handle, NULL), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuIpcGetEventHandle(NULL, shared), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuIpcGetEventHandle(&handle, shared), CUDA_SUCCESS);
    assert_int_equal(cuIpcOpenEventHandle(&opened, nothing), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuIpcOpenEventHandle(&opened, handle), CUDA_SUCCESS);
    assert_int_equal(cuEventQuery(opened), CUDA_SUCCESS);
    assert_int_equal(cuStreamWaitEvent(NULL, opened, 0), CUDA_SUCCESS);
    assert_int_equal(cuEventElapsedTime(&milliseconds, opened, opened), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuEventDestroy_v2(opened), CUDA_SUCCESS);
    assert_int_equal(cuEventDestroy_v2(shared), CUDA_SUCCESS);
    assert_int_equal(cuEventDestroy_v2(plain), CUDA_SUCCESS);
}

static void hear(void *data, int level, char *message, size_t length)
{
    (void)data, (void)level, (void)message, (void)length;
}

static void test_the_log_is_empty_and_forgets_who_listened(void **state)
{
    char text[8] = "?";
    size_t bytes = sizeof text;
    unsigned iterator;
    void *listener;
    (void)state;
    assert_int_equal(cuLogsRegisterCallback(NULL, NULL, &listener), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLogsRegisterCallback(hear, NULL, &listener), CUDA_SUCCESS);
    assert_int_equal(cuLogsRegisterCallback(hear, NULL, NULL), CUDA_SUCCESS);
    assert_int_equal(cuLogsUnregisterCallback(listener), CUDA_SUCCESS);
    assert_int_equal(cuLogsUnregisterCallback(listener), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLogsCurrent(&iterator, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLogsCurrent(&iterator, 0), CUDA_SUCCESS);
    assert_int_equal(cuLogsDumpToMemory(&iterator, text, &bytes, 0), CUDA_SUCCESS);
    assert_string_equal(text, "");
    assert_int_equal(bytes, 0);
}

/* The account's events say who made them, over a fork and in a new thread. */
static void *note_thread(void *data)
{
    pretend_note_mark("thread");
    *(uint32_t *)data = (uint32_t)gettid();
    return NULL;
}

static void test_events_are_of_the_process_and_thread_that_made_them(void **state)
{
    const struct mt_account_event *event;
    pthread_t thread;
    uint32_t tid = 0;
    int status;
    (void)state;
    pretend_note_mark("here");
    event = last_event(MT_ACCOUNT_MARK);
    assert_int_equal(event->pid, getpid());
    assert_int_equal(event->tid, gettid());
    assert_int_equal(pthread_create(&thread, NULL, note_thread, &tid), 0);
    pthread_join(thread, NULL);
    event = last_event(MT_ACCOUNT_MARK);
    assert_int_equal(event->pid, getpid());
    assert_int_equal(event->tid, tid);
    pid_t child = fork();
    if (child == 0) {
        pretend_note_mark("child");
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    event = last_event(MT_ACCOUNT_MARK);
    assert_string_equal(event->name, "child");
    assert_int_equal(event->pid, child);
    assert_int_equal(event->tid, child);
}

static void *find(const char *name, int version, CUresult expected)
{
    void *function = (void *)1;
    int query;
    assert_int_equal(cuGetProcAddress_v2(name, &function, version, 0, &query), expected);
    return function;
}

/* Versions are those of cudaTypedefs.h. */
static void test_a_name_and_a_version_give_the_form_of_that_time(void **state)
{
    void *function;
    int query;
    (void)state;
    assert_ptr_equal(find("cuInit", 12000, CUDA_SUCCESS), (void *)(uintptr_t)cuInit);
    assert_ptr_equal(find("cuCtxCreate", 3020, CUDA_SUCCESS), (void *)(uintptr_t)cuCtxCreate_v2);
    assert_ptr_equal(find("cuCtxCreate", 11050, CUDA_SUCCESS), (void *)(uintptr_t)cuCtxCreate_v3);
    assert_ptr_equal(find("cuCtxCreate", 13000, CUDA_SUCCESS), (void *)(uintptr_t)cuCtxCreate_v4);
    assert_ptr_equal(find("cuGraphInstantiate", 11080, CUDA_SUCCESS),
                     (void *)(uintptr_t)cuGraphInstantiate_v2);
    assert_ptr_equal(find("cuGraphInstantiate", 12000, CUDA_SUCCESS),
                     (void *)(uintptr_t)cuGraphInstantiateWithFlags);
    assert_ptr_equal(find("cuStreamGetCaptureInfo", 12020, CUDA_SUCCESS),
                     (void *)(uintptr_t)cuStreamGetCaptureInfo_v2);
    assert_ptr_equal(find("cuStreamGetCaptureInfo", 12030, CUDA_SUCCESS),
                     (void *)(uintptr_t)cuStreamGetCaptureInfo_v3);
    assert_null(find("", 12000, CUDA_ERROR_NOT_FOUND));
    assert_null(find("cuLibraryLoadData", 11080, CUDA_ERROR_NOT_FOUND));
    assert_int_equal(cuGetProcAddress_v2("cuLibraryLoadData", &function, 11080, 0, &query),
                     CUDA_ERROR_NOT_FOUND);
    assert_int_equal(query, 2); /* the version is not sufficient */
    assert_int_equal(cuGetProcAddress_v2("cuNever", &function, 13000, 0, &query),
                     CUDA_ERROR_NOT_FOUND);
    assert_int_equal(query, 1); /* not found */
    assert_int_equal(cuGetProcAddress(NULL, &function, 13000, 0), CUDA_ERROR_INVALID_VALUE);
}

static void test_a_driver_does_not_know_what_is_newer_than_it(void **state)
{
    (void)state;
    driver_account->cuda.driver_version = 12040;
    assert_ptr_equal(find("cuCtxCreate", 13000, CUDA_SUCCESS), (void *)(uintptr_t)cuCtxCreate_v3);
    assert_null(find("cuStreamGetDevice", 13000, CUDA_ERROR_NOT_FOUND));
    driver_account->cuda.driver_version = 13000;
}

static void test_the_other_default_stream_has_forms_of_its_own(void **state)
{
    void *plain, *own;
    CUresult (*query)(CUstream);
    (void)state;
    assert_int_equal(cuGetProcAddress("cuStreamQuery", &plain, 12000, 1), CUDA_SUCCESS);
    assert_int_equal(cuGetProcAddress("cuStreamQuery", &own, 12000, 2), CUDA_SUCCESS);
    assert_ptr_not_equal(plain, own);
    memcpy(&query, &own, sizeof query);
    assert_int_equal(query(NULL), CUDA_SUCCESS);
    assert_int_equal(cuGetProcAddress("cuInit", &own, 12000, 2), CUDA_SUCCESS);
    assert_ptr_equal(own, (void *)(uintptr_t)cuInit);
    assert_int_equal(cuGetProcAddress("cuInit", &own, 12000, 5), CUDA_ERROR_INVALID_VALUE);
}

static void test_private_tables_are_not_answered_and_counted(void **state)
{
    const void *table = (void *)1;
    CUuuid id = {{1}};
    uint32_t before = driver_account->cuda.n_private;
    (void)state;
    assert_int_equal(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_FOUND);
    assert_null(table);
    assert_int_equal(driver_account->cuda.n_private, before + 1);
}

static void test_a_function_that_does_not_exist_is_reported_by_name_once(void **state)
{
    int (*missing)(void);
    void *function = find("cuTexObjectCreate", 12000, CUDA_SUCCESS);
    uint32_t before = driver_account->cuda.n_missing;
    (void)state;
    memcpy(&missing, &function, sizeof missing);
    assert_int_equal(missing(), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(missing(), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(driver_account->cuda.n_missing, before + 1);
    assert_non_null(strstr(last_event(MT_ACCOUNT_NOTE)->name, "cuTexObjectCreate"));
}

static void test_errors_have_names_and_words(void **state)
{
    const char *text;
    (void)state;
    assert_int_equal(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
    assert_string_equal(text, "CUDA_ERROR_OUT_OF_MEMORY");
    assert_int_equal(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
    assert_string_equal(text, "out of memory");
    assert_int_equal(cuGetErrorString((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
    assert_null(text);
}

/* A thread that takes and drops the driver's lock all the time while others fork. */
static int is_over;
static void *keep_busy(void *data)
{
    CUstream stream;
    use_device(0);
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED))
        if (cuStreamCreate(&stream, 0) == CUDA_SUCCESS)
            cuStreamDestroy_v2(stream);
    return data;
}

static void test_a_forked_child_is_told_that_nothing_is_initialised(void **state)
{
    pthread_t thread;
    int status;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, keep_busy, NULL), 0);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            CUstream stream;
            CUdeviceptr pointer;
            alarm(60);
            int is_right = cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                           cuStreamCreate(&stream, 0) == CUDA_ERROR_NOT_INITIALIZED &&
                           cuMemAlloc_v2(&pointer, 512) == CUDA_ERROR_NOT_INITIALIZED;
            _exit(is_right ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
}

static void fill_gpu(struct mt_gpu_spec *gpu)
{
    *gpu = (struct mt_gpu_spec){.name = "NVIDIA H100 80GB HBM3",
                                .capability = 90,
                                .multiprocessors = 132,
                                .shared_bytes = 233472,
                                .shared_block_bytes = 232448,
                                .threads_most = 2048,
                                .blocks_most = 32,
                                .link = MT_GPU_LINK_NVLINK,
                                .context_bytes = CONTEXT_BYTES,
                                .module_bytes = MODULE_BYTES};
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_goes_before_the_driver_is_initialised),
        cmocka_unit_test(test_every_form_of_visible_devices_is_read_as_pytorch_reads_it),
        cmocka_unit_test(test_visible_devices_are_those_named_up_to_the_first_bad_one),
        cmocka_unit_test(test_a_device_answers_what_its_row_of_the_table_says),
        cmocka_unit_test(test_a_primary_context_takes_memory_once_and_gives_it_back),
        cmocka_unit_test(test_made_contexts_stack_up_and_are_known_when_destroyed),
        cmocka_unit_test(test_a_made_context_that_does_not_fit_is_refused),
        cmocka_unit_test(test_each_thread_has_a_context_of_its_own),
        cmocka_unit_test(test_flags_of_contexts_are_checked),
        cmocka_unit_test(test_peer_access_is_enabled_once_and_disabled_once),
        cmocka_unit_test(test_destroyed_streams_and_events_are_invalid_handles),
        cmocka_unit_test(test_priorities_are_clamped_to_the_range_of_the_device),
        cmocka_unit_test(test_elapsed_time_wants_two_recorded_events_with_timing),
        cmocka_unit_test(test_an_event_that_was_made_for_it_is_opened_by_its_handle),
        cmocka_unit_test(test_the_log_is_empty_and_forgets_who_listened),
        cmocka_unit_test(test_events_are_of_the_process_and_thread_that_made_them),
        cmocka_unit_test(test_a_name_and_a_version_give_the_form_of_that_time),
        cmocka_unit_test(test_a_driver_does_not_know_what_is_newer_than_it),
        cmocka_unit_test(test_the_other_default_stream_has_forms_of_its_own),
        cmocka_unit_test(test_private_tables_are_not_answered_and_counted),
        cmocka_unit_test(test_a_function_that_does_not_exist_is_reported_by_name_once),
        cmocka_unit_test(test_errors_have_names_and_words),
        cmocka_unit_test(test_a_forked_child_is_told_that_nothing_is_initialised),
    };
    make_rehearsal(3, 8 * GIB);
    for (int i = 0; i < 3; i++)
        fill_gpu(&driver_account->device[i].gpu);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    drop_rehearsal();
    return failed;
}
