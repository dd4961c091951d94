/* SPDX-License-Identifier: MIT */
/* Memory that processes share: handles by file descriptor, handles of 64 bytes. The other process
 * is this program again, started anew as CUDA wants it; it is told what to do by its arguments and
 * answers with its exit code. */
#include "driver_test.h"

#include <fcntl.h>
#include <sys/wait.h>

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *prop, unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment,
                             CUdeviceptr wanted, unsigned long long flags);
CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes);
CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *desc, size_t n);
CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      int type, unsigned long long flags);
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        int type);
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle given, unsigned flags);
CUresult cuIpcCloseMemHandle(CUdeviceptr pointer);

#define SHARED_BYTES (20 * MIB)

static const char *program;
static const CUmemAllocationProp shareable_prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                   .requestedHandleTypes =
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                                   .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUmemAccessDesc access_desc = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                            CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static CUdeviceptr map(CUmemGenericAllocationHandle handle)
{
    CUdeviceptr at = 0;
    assert_int_equal(cuMemAddressReserve(&at, SHARED_BYTES, 0, 0, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemMap(at, SHARED_BYTES, 0, handle, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemSetAccess(at, SHARED_BYTES, &access_desc, 1), CUDA_SUCCESS);
    return at;
}

/* Runs the program again; its answer is its exit code, `pid` is whose it was. */
static int ask_another(const char *what, const char *argument, pid_t *pid)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        execl(program, program, what, argument, (char *)NULL);
        _exit(99);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (pid)
        *pid = child;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Memory of which another process may get the descriptor that is returned: mapped here, and with 41
 * in it. */
static int share(CUmemGenericAllocationHandle *handle, CUdeviceptr *at)
{
    uint64_t number = 41;
    int fd;
    assert_int_equal(cuMemCreate(handle, SHARED_BYTES, &shareable_prop, 0), CUDA_SUCCESS);
    *at = map(*handle);
    assert_int_equal(cuMemcpyHtoD_v2(*at + 8 * MIB, &number, 8), CUDA_SUCCESS);
    assert_int_equal(cuMemExportToShareableHandle(&fd, *handle, 1, 0), CUDA_SUCCESS);
    return fd;
}

/* Has another process do so with a descriptor; returns whose it was. */
static pid_t hand_over(const char *what, int fd)
{
    char text[16];
    pid_t pid;
    fcntl(fd, F_SETFD, 0);
    snprintf(text, sizeof text, "%d", fd);
    assert_int_equal(ask_another(what, text, &pid), 0);
    return pid;
}

/* The other process: imports a descriptor, reads 41 there and writes 42; then it ends in one way or
 * the other. */
static int import(int fd, int releases)
{
    CUmemGenericAllocationHandle handle;
    uint64_t number = 0;
    if (cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, 1) != CUDA_SUCCESS)
        return 1;
    CUdeviceptr at = map(handle);
    if (cuMemcpyDtoH_v2(&number, at + 8 * MIB, 8) != CUDA_SUCCESS || number != 41)
        return 2;
    number = 42;
    if (cuMemcpyHtoD_v2(at + 8 * MIB, &number, 8) != CUDA_SUCCESS)
        return 3;
    if (releases && (cuMemUnmap(at, SHARED_BYTES) || cuMemRelease(handle)))
        return 4;
    return 0;
}

static int open_handle(const char *text)
{
    CUipcMemHandle handle;
    CUdeviceptr pointer, again;
    uint64_t number = 0;
    for (size_t i = 0; i < sizeof handle; i++)
        handle.reserved[i] =
            (unsigned char)strtoul((char[]){text[2 * i], text[2 * i + 1], 0}, NULL, 16);
    if (cuIpcOpenMemHandle_v2(&pointer, handle, 1) != CUDA_SUCCESS)
        return 1;
    if (cuIpcOpenMemHandle_v2(&again, handle, 1) != CUDA_SUCCESS || again != pointer)
        return 2;
    if (cuMemcpyDtoH_v2(&number, pointer, 8) != CUDA_SUCCESS || number != 41)
        return 3;
    number = 42;
    if (cuMemcpyHtoD_v2(pointer, &number, 8) != CUDA_SUCCESS)
        return 4;
    if (cuMemFree_v2(pointer) != CUDA_ERROR_INVALID_VALUE)
        return 5;
    if (cuIpcCloseMemHandle(pointer) || cuIpcCloseMemHandle(pointer) ||
        cuIpcCloseMemHandle(pointer) != CUDA_ERROR_INVALID_VALUE)
        return 6;
    handle.reserved[0] ^= 1;
    return cuIpcOpenMemHandle_v2(&pointer, handle, 1) == CUDA_ERROR_INVALID_HANDLE ? 0 : 7;
}

static int be_another(const char *what, const char *argument)
{
    use_device(0);
    if (strcmp(what, "import") == 0)
        return import(atoi(argument), 1);
    if (strcmp(what, "import-and-die") == 0)
        return import(atoi(argument), 0);
    return open_handle(argument);
}

/* What the processes of a rehearsal hold at gpu:0, by the account's events. */
static uint64_t held_by_events(struct mt_account_reader *reader)
{
    uint64_t sum = 0;
    mt_account_reader_read(reader, UINT64_MAX, 1);
    for (size_t i = 0; mt_account_reader_at(reader, i); i++) {
        const struct mt_rehearsal_event *event = &mt_account_reader_at(reader, i)->event;
        if (strcmp(event->place, "gpu:0") != 0)
            continue;
        if (event->kind == MT_REHEARSAL_ALLOC)
            sum += event->bytes;
        if (event->kind == MT_REHEARSAL_FREE)
            sum -= event->bytes;
    }
    return sum;
}

static struct mt_account_reader reader;

/* What the rehearsal does when a process is gone. */
static void bury(pid_t pid)
{
    mt_account_reader_read(&reader, UINT64_MAX, 1);
    uint64_t bytes = mt_account_reader_held(&reader, (uint32_t)pid, "gpu:0", NULL);
    mt_account_give_back(driver_account, 0, bytes, bytes);
    mt_account_reader_release_shared(&reader, (uint32_t)pid);
    mt_account_note(driver_account, MT_ACCOUNT_END, (uint32_t)pid, "process ended");
}

static void test_memory_by_descriptor_is_counted_once(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    uint64_t before = used_bytes(0), number = 0;
    int fd = share(&handle, &at);
    pid_t pid = hand_over("import", fd);
    assert_int_equal(cuMemcpyDtoH_v2(&number, at + 8 * MIB, 8), CUDA_SUCCESS);
    assert_int_equal(number, 42);
    bury(pid);
    assert_int_equal(used_bytes(0) - before, SHARED_BYTES);
    assert_int_equal(held_by_events(&reader), used_bytes(0));
    assert_int_equal(driver_account->device[0].peak_bytes <
                         before + 2 * SHARED_BYTES + GIB /* of contexts */,
                     1);
    close(fd);
    assert_int_equal(cuMemUnmap(at, SHARED_BYTES), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before);
    assert_int_equal(held_by_events(&reader), used_bytes(0));
}

static void test_a_process_that_dies_gives_back_its_part(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    uint64_t before = used_bytes(0);
    int fd = share(&handle, &at);
    assert_int_equal(mt_account_of_process(driver_account, (uint32_t)getpid(), 0, 0), before);
    pid_t pid = hand_over("import-and-die", fd);
    assert_int_equal(cuMemUnmap(at, SHARED_BYTES), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
    assert_true(used_bytes(0) - before >= SHARED_BYTES);
    bury(pid);
    assert_int_equal(used_bytes(0), before);
    assert_int_equal(held_by_events(&reader), used_bytes(0));

    /* Only the descriptor is left; who imports it takes the memory anew. */
    assert_int_equal(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, 1),
                     CUDA_SUCCESS);
    assert_int_equal(used_bytes(0) - before, SHARED_BYTES);
    assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before);
    assert_int_equal(mt_account_of_process(driver_account, (uint32_t)getpid(), 0, 0), before);
    close(fd);
}

static void test_what_cannot_be_shared_is_refused(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle, other;
    CUmemAllocationProp prop = shareable_prop;
    int fd = open("/dev/null", O_RDWR);
    prop.requestedHandleTypes = 0;
    assert_int_equal(cuMemCreate(&handle, 2 * MIB, &prop, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemExportToShareableHandle(&other, handle, 8, 0), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(cuMemExportToShareableHandle(&other, handle, 1, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemImportFromShareableHandle(&other, (void *)(intptr_t)fd, 1),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemImportFromShareableHandle(&other, (void *)(intptr_t)-1, 1),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
    close(fd);
}

static void share_by_handle(size_t bytes)
{
    CUipcMemHandle handle;
    CUdeviceptr pointer, opened;
    uint64_t before = used_bytes(0), number = 41;
    char text[2 * sizeof handle + 1];
    pid_t pid;
    assert_int_equal(cuMemAlloc_v2(&pointer, bytes), CUDA_SUCCESS);
    uint64_t held = used_bytes(0);
    assert_int_equal(cuMemcpyHtoD_v2(pointer, &number, 8), CUDA_SUCCESS);
    assert_int_equal(cuIpcGetMemHandle(&handle, pointer), CUDA_SUCCESS);
    assert_int_equal(cuIpcOpenMemHandle_v2(&opened, handle, 1), CUDA_ERROR_INVALID_CONTEXT);
    for (size_t i = 0; i < sizeof handle; i++)
        snprintf(text + 2 * i, 3, "%02x", handle.reserved[i]);
    assert_int_equal(ask_another("open", text, &pid), 0);
    assert_int_equal(cuMemcpyDtoH_v2(&number, pointer, 8), CUDA_SUCCESS);
    assert_int_equal(number, 42);
    bury(pid);
    assert_int_equal(used_bytes(0), held);
    assert_int_equal(cuMemFree_v2(pointer), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before);
    assert_int_equal(cuIpcGetMemHandle(&handle, pointer), CUDA_ERROR_INVALID_VALUE);
}

static void test_a_handle_opens_memory_without_taking_more(void **state)
{
    (void)state;
    share_by_handle(30 * MIB);
}

static void test_a_handle_of_a_small_allocation_opens_it_in_its_page(void **state)
{
    (void)state;
    CUdeviceptr other;
    assert_int_equal(cuMemAlloc_v2(&other, 700), CUDA_SUCCESS);
    share_by_handle(1000);
    assert_int_equal(cuMemFree_v2(other), CUDA_SUCCESS);
}

static int begin(void **state)
{
    (void)state;
    make_rehearsal(1, 24 * GIB);
    reader.account = driver_account;
    use_device(0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    mt_account_reader_finish(&reader);
    drop_rehearsal();
    return 0;
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc == 3)
        return be_another(argv[1], argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_by_descriptor_is_counted_once),
        cmocka_unit_test(test_a_process_that_dies_gives_back_its_part),
        cmocka_unit_test(test_what_cannot_be_shared_is_refused),
        cmocka_unit_test(test_a_handle_opens_memory_without_taking_more),
        cmocka_unit_test(test_a_handle_of_a_small_allocation_opens_it_in_its_page),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
