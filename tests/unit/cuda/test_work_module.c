/* SPDX-License-Identifier: MIT */
/* Images, functions, launches and occupancy. What runs where is by "Application Compatibility" of
 * the CUDA programming guide; occupancy was worked out by hand from its table of capabilities. */
#include "driver_test.h"

#include <elf.h>

#include "pretend/cuda/abi/driver_calls.h"
#include "pretend/cuda/driver/module/image.h"

#define PTX  1
#define CODE 2

/* A container with entries of the kinds and architectures given, without payloads. */
struct entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t payload_bytes;
    uint32_t rest[3];
    uint32_t arch;
    uint32_t more[8];
};
static struct {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
    struct entry entry[4];
} container;

static const void *make_container(int n, const int (*entries)[2])
{
    memset(&container, 0, sizeof container);
    container.magic = 0xBA55ED50u;
    container.header_bytes = 16;
    container.bytes = (uint64_t)n * sizeof(struct entry);
    for (int i = 0; i < n; i++)
        container.entry[i] = (struct entry){.kind = (uint16_t)entries[i][0],
                                            .header_bytes = sizeof(struct entry),
                                            .arch = (uint32_t)entries[i][1]};
    return &container;
}

static enum pretend_image_result choose(uint32_t capability, struct pretend_image *chosen)
{
    return pretend_cuda_image_choose(&container, sizeof container, capability, chosen);
}

static void test_machine_code_of_the_same_major_revision_goes_before_ptx(void **state)
{
    struct pretend_image image;
    (void)state;
    make_container(4, (const int[][2]){{CODE, 80}, {CODE, 86}, {PTX, 80}, {CODE, 90}});
    assert_int_equal(choose(89, &image), PRETEND_IMAGE_CHOSEN);
    assert_int_equal(image.binary, 86);
    assert_int_equal(choose(80, &image), PRETEND_IMAGE_CHOSEN);
    assert_int_equal(image.binary, 80);
    assert_int_equal(choose(100, &image), PRETEND_IMAGE_CHOSEN);
    assert_int_equal(image.binary, 100); /* compiled from the PTX */
    assert_int_equal(image.ptx, 80);
    assert_int_equal(choose(75, &image), PRETEND_IMAGE_NONE);
    make_container(2, (const int[][2]){{CODE, 86}, {CODE, 80}});
    assert_int_equal(choose(89, &image), PRETEND_IMAGE_CHOSEN);
    assert_int_equal(image.binary, 86); /* in whatever order they stand */
}

static void test_the_newest_ptx_that_is_not_too_new_is_compiled(void **state)
{
    struct pretend_image image;
    (void)state;
    make_container(3, (const int[][2]){{PTX, 70}, {PTX, 80}, {PTX, 120}});
    assert_int_equal(choose(90, &image), PRETEND_IMAGE_CHOSEN);
    assert_int_equal(image.ptx, 80);
}

static void test_lengths_that_do_not_fit_end_the_search(void **state)
{
    struct pretend_image image;
    (void)state;
    make_container(2, (const int[][2]){{CODE, 80}, {CODE, 90}});
    container.entry[0].payload_bytes = UINT64_MAX;
    assert_int_equal(choose(90, &image), PRETEND_IMAGE_NONE);
    container.bytes = UINT64_MAX;
    container.entry[0].payload_bytes = 0;
    assert_int_equal(choose(90, &image), PRETEND_IMAGE_UNKNOWN);
    assert_int_equal(pretend_cuda_image_choose(NULL, 0, 90, &image), PRETEND_IMAGE_UNKNOWN);
}

static void test_ptx_as_text_names_its_target(void **state)
{
    static const char ptx[] = "//\n.version 8.3\n.target sm_90a\n.address_size 64\n";
    struct pretend_image image;
    (void)state;
    assert_int_equal(pretend_cuda_image_choose(ptx, sizeof ptx, 90, &image), PRETEND_IMAGE_CHOSEN);
    assert_int_equal(image.ptx, 90);
    assert_int_equal(pretend_cuda_image_choose(ptx, sizeof ptx, 89, &image), PRETEND_IMAGE_NONE);
}

static void test_a_function_says_the_versions_of_the_code_that_would_run(void **state)
{
    struct {
        uint32_t magic, version;
        const void *data;
    } wrapper = {0x466243b1u, 1, &container};
    CUlibrary library;
    CUkernel kernel;
    CUmodule module;
    int value;
    (void)state;
    make_container(2, (const int[][2]){{CODE, 80}, {PTX, 75}});
    assert_int_equal(cuLibraryLoadData(&library, &wrapper, NULL, NULL, 0, NULL, NULL, 0),
                     CUDA_SUCCESS);
    assert_int_equal(cuLibraryGetKernel(&kernel, library, "kernel"), CUDA_SUCCESS);
    assert_int_equal(cuKernelGetAttribute(&value, 6, kernel, 0), CUDA_SUCCESS);
    assert_int_equal(value, 90);
    assert_int_equal(cuKernelGetAttribute(&value, 5, kernel, 0), CUDA_SUCCESS);
    assert_int_equal(value, 75);
    assert_int_equal(cuKernelGetAttribute(&value, 5, kernel, 1), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(cuLibraryUnload(library), CUDA_SUCCESS);
    assert_int_equal(cuKernelGetAttribute(&value, 5, kernel, 0), CUDA_ERROR_INVALID_HANDLE);
    make_container(1, (const int[][2]){{CODE, 80}});
    assert_int_equal(cuModuleLoadData(&module, &wrapper), CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_int_equal(cuModuleLoadData(&module, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuModuleLoad(&module, "/nowhere"), CUDA_ERROR_FILE_NOT_FOUND);
}

/* Machine code of sm_90 with two kernels and a function of the device, by its sections' names
 * alone. */
static struct {
    Elf64_Ehdr head;
    Elf64_Shdr section[5];
    char names[96];
} code;

static void make_code(void)
{
    static const char names[] =
        "\0.nv.constant0.second\0.nv.constant0.first\0.text.helper\0.shstrtab";
    memset(&code, 0, sizeof code);
    memcpy(code.head.e_ident, ELFMAG, SELFMAG);
    code.head.e_ident[EI_CLASS] = ELFCLASS64;
    code.head.e_ident[EI_ABIVERSION] = 8;
    code.head.e_machine = EM_CUDA;
    code.head.e_flags = 90 << 8;
    code.head.e_shoff = offsetof(typeof(code), section);
    code.head.e_shentsize = sizeof(Elf64_Shdr);
    code.head.e_shnum = 5;
    code.head.e_shstrndx = 4;
    memcpy(code.names, names, sizeof names);
    code.section[1].sh_name = 1;
    code.section[2].sh_name = 22;
    code.section[3].sh_name = 42;
    code.section[4].sh_name = 55;
    code.section[4].sh_offset = offsetof(typeof(code), names);
    code.section[4].sh_size = sizeof code.names;
}

static void test_machine_code_says_which_kernels_it_has(void **state)
{
    CUlibrary library;
    CUmodule module;
    CUkernel kernels[3] = {0}, other;
    CUfunction functions[1];
    const char *name;
    unsigned n;
    (void)state;
    make_code();
    assert_int_equal(cuLibraryLoadData(&library, &code, NULL, NULL, 0, NULL, NULL, 0),
                     CUDA_SUCCESS);
    assert_int_equal(cuLibraryGetKernel(&other, library, "another"), CUDA_SUCCESS);
    assert_int_equal(cuLibraryGetKernelCount(&n, library), CUDA_SUCCESS);
    assert_int_equal(n, 2);
    assert_int_equal(cuLibraryEnumerateKernels(kernels, 3, library), CUDA_SUCCESS);
    assert_int_equal(cuKernelGetName(&name, kernels[0]), CUDA_SUCCESS);
    assert_string_equal(name, "first");
    assert_int_equal(cuKernelGetName(&name, kernels[1]), CUDA_SUCCESS);
    assert_string_equal(name, "second");
    assert_null(kernels[2]);
    assert_int_equal(cuLibraryGetKernel(&other, library, "second"), CUDA_SUCCESS);
    assert_ptr_equal(other, kernels[1]);
    assert_int_equal(cuLibraryUnload(library), CUDA_SUCCESS);
    assert_int_equal(cuLibraryGetKernelCount(&n, library), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuModuleLoadData(&module, &code), CUDA_SUCCESS);
    assert_int_equal(cuModuleGetFunctionCount(&n, module), CUDA_SUCCESS);
    assert_int_equal(n, 2);
    assert_int_equal(cuModuleEnumerateFunctions(functions, 1, module), CUDA_SUCCESS);
    assert_int_equal(cuFuncGetName(&name, functions[0]), CUDA_SUCCESS);
    assert_string_equal(name, "first");
    assert_int_equal(cuModuleUnload(module), CUDA_SUCCESS);
}

static void test_a_name_that_stands_twice_is_one_kernel(void **state)
{
    CUmodule module;
    unsigned n;
    (void)state;
    make_code();
    code.section[3].sh_name = code.section[1].sh_name;
    assert_int_equal(cuModuleLoadData(&module, &code), CUDA_SUCCESS);
    assert_int_equal(cuModuleGetFunctionCount(&n, module), CUDA_SUCCESS);
    assert_int_equal(n, 2);
    assert_int_equal(cuModuleUnload(module), CUDA_SUCCESS);
}

static void test_kernels_of_an_image_that_does_not_tell_them_are_not_listed(void **state)
{
    CUmodule module;
    CUfunction function;
    unsigned n = 7;
    (void)state;
    assert_int_equal(cuModuleLoadData(&module, "no image that is known"), CUDA_SUCCESS);
    assert_int_equal(cuModuleGetFunction(&function, module, "any"), CUDA_SUCCESS);
    assert_int_equal(cuModuleGetFunctionCount(&n, module), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(cuModuleEnumerateFunctions(&function, 1, module), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(n, 7);
    assert_int_equal(cuModuleUnload(module), CUDA_SUCCESS);
}

static int count_name(void *context, const char *name)
{
    *(int *)context += name[0] != '\0';
    return 0;
}

static void test_sections_outside_of_the_image_are_not_read(void **state)
{
    int n = 0;
    (void)state;
    make_code();
    assert_int_equal(pretend_cuda_image_kernels(&code, sizeof code, count_name, &n), 0);
    assert_int_equal(n, 2);
    assert_int_equal(pretend_cuda_image_kernels(&code, sizeof code - 1, count_name, &n), -1);
    code.section[2].sh_name = sizeof code.names;
    assert_int_equal(pretend_cuda_image_kernels(&code, sizeof code, count_name, &n), -1);
    make_code();
    code.head.e_shoff = UINT64_MAX;
    assert_int_equal(pretend_cuda_image_kernels(&code, sizeof code, count_name, &n), -1);
    make_code();
    code.section[4].sh_size = UINT64_MAX;
    assert_int_equal(pretend_cuda_image_kernels(&code, sizeof code, count_name, &n), -1);
}

static CUfunction any_function(void)
{
    static CUfunction function;
    CUmodule module;
    if (!function) {
        assert_int_equal(cuModuleLoadData(&module, "no image that is known"), CUDA_SUCCESS);
        assert_int_equal(cuModuleGetFunction(&function, module, "f"), CUDA_SUCCESS);
    }
    return function;
}

static CUresult launch(unsigned grid, unsigned block, unsigned shared_bytes)
{
    return cuLaunchKernel(any_function(), grid, 1, 1, block, 1, 1, shared_bytes, NULL, NULL, NULL);
}

/* The 40 MiB of the device's row come in 64 equal shares of 0.625 MiB, in pieces of 2 MiB: the
 * first kernel takes 2 MiB, the fourth is the first that is past these. */
static void test_each_kernel_that_runs_for_the_first_time_loads_its_share_of_code(void **state)
{
    uint64_t before = used_bytes(0);
    CUmodule module;
    CUfunction function;
    (void)state;
    assert_int_equal(launch(1, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(used_bytes(0), before);
    assert_int_equal(launch(1, 32, 0), CUDA_SUCCESS);
    assert_int_equal(launch(1, 32, 0), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before + 2 * MIB);
    assert_int_equal(last_event(MT_ACCOUNT_ALLOC)->category, MT_CATEGORY_CONTEXT);
    assert_int_equal(cuModuleLoadData(&module, "no image that is known"), CUDA_SUCCESS);
    for (int n = 2; n <= 70; n++) {
        char name[16];
        snprintf(name, sizeof name, "kernel_%d", n);
        assert_int_equal(cuModuleGetFunction(&function, module, name), CUDA_SUCCESS);
        assert_int_equal(cuFuncLoad(function), CUDA_SUCCESS);
        uint64_t pieces = n < 64 ? (5 * (uint64_t)n + 15) / 16 : 20;
        assert_int_equal(used_bytes(0) - before, pieces * 2 * MIB);
    }
}

static void test_what_kernels_loaded_goes_with_their_context(void **state)
{
    CUcontext context;
    uint64_t before = used_bytes(0);
    (void)state;
    assert_int_equal(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
    assert_int_equal(cuFuncLoad(any_function()), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before + 2 * MIB);
    assert_int_equal(cuCtxDestroy_v2(context), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before);
}

static void test_launches_are_checked_against_the_limits_of_the_device(void **state)
{
    (void)state;
    assert_int_equal(launch(0, 32, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(launch(1, 1025, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(launch(1, 32, 49153), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuFuncSetAttribute(any_function(), 8, 232449), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuFuncSetAttribute(any_function(), 8, 232448), CUDA_SUCCESS);
    assert_int_equal(launch(1, 32, 232448), CUDA_SUCCESS);
    assert_int_equal(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
                     CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuLaunchKernelEx(NULL, any_function(), NULL, NULL), CUDA_ERROR_INVALID_VALUE);
}

/* 1024 threads: two blocks of the 2048 that a multiprocessor of 9.0 holds, on 132 of them. */
static void test_a_cooperative_launch_must_fit_at_once(void **state)
{
    (void)state;
    assert_int_equal(
        cuLaunchCooperativeKernel(any_function(), 264, 1, 1, 1024, 1, 1, 0, NULL, NULL),
        CUDA_SUCCESS);
    assert_int_equal(
        cuLaunchCooperativeKernel(any_function(), 265, 1, 1, 1024, 1, 1, 0, NULL, NULL),
        CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    assert_int_equal(
        cuLaunchCooperativeKernel(any_function(), 11, 2, 12, 1024, 1, 1, 0, NULL, NULL),
        CUDA_SUCCESS);
    assert_int_equal(
        cuLaunchCooperativeKernel(any_function(), 11, 2, 13, 1024, 1, 1, 0, NULL, NULL),
        CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

/* 228 KiB of shared memory, 1 KiB more for each block: of 113 KiB two fit, of 114 one. */
static void test_occupancy_is_what_the_scarcest_resource_allows(void **state)
{
    int blocks;
    (void)state;
    assert_int_equal(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, any_function(), 32, 0),
                     CUDA_SUCCESS);
    assert_int_equal(blocks, 32);
    assert_int_equal(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, any_function(), 256, 0),
                     CUDA_SUCCESS);
    assert_int_equal(blocks, 8);
    assert_int_equal(
        cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, any_function(), 32, 113 * KIB),
        CUDA_SUCCESS);
    assert_int_equal(blocks, 2);
    assert_int_equal(
        cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, any_function(), 32, 114 * KIB),
        CUDA_SUCCESS);
    assert_int_equal(blocks, 1);
    assert_int_equal(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, any_function(), 0, 0),
                     CUDA_ERROR_INVALID_VALUE);
}

/* A block of 9.0 has 1 KiB that the system keeps; of 228 KiB two blocks have 114 each. */
static void test_what_blocks_leave_of_shared_memory_can_be_asked(void **state)
{
    size_t bytes;
    (void)state;
    assert_int_equal(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, any_function(), 2, 128),
                     CUDA_SUCCESS);
    assert_int_equal(bytes, 113 * KIB);
    assert_int_equal(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, any_function(), 1, 128),
                     CUDA_SUCCESS);
    assert_int_equal(bytes, 227 * KIB); /* the most that one block may have */
    assert_int_equal(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, any_function(), 0, 128),
                     CUDA_ERROR_INVALID_VALUE);
}

/* The programming guide: 8 blocks in a cluster are portable; clusters come with 9.0. */
static void test_clusters_come_with_capability_9(void **state)
{
    const CUlaunchConfig launch = {1, 1, 1, 32, 1, 1, 0, NULL, NULL, 0};
    int blocks;
    (void)state;
    assert_int_equal(cuOccupancyMaxPotentialClusterSize(&blocks, any_function(), &launch),
                     CUDA_SUCCESS);
    assert_int_equal(blocks, 8);
    driver_account->device[0].gpu.capability = 89;
    assert_int_equal(cuOccupancyMaxPotentialClusterSize(&blocks, any_function(), &launch),
                     CUDA_SUCCESS);
    assert_int_equal(blocks, 1);
    driver_account->device[0].gpu.capability = 90;
}

/* A library is loaded for whatever device; that it has nothing for this one shows at the launch. */
static void test_a_kernel_without_code_for_the_device_is_not_launched(void **state)
{
    struct {
        uint32_t magic, version;
        const void *data;
    } wrapper = {0x466243b1u, 1, &container};
    CUlibrary library;
    CUkernel kernel;
    (void)state;
    make_container(1, (const int[][2]){{CODE, 80}});
    assert_int_equal(cuLibraryLoadData(&library, &wrapper, NULL, NULL, 0, NULL, NULL, 0),
                     CUDA_SUCCESS);
    assert_int_equal(cuLibraryGetKernel(&kernel, library, "kernel"), CUDA_SUCCESS);
    assert_int_equal(
        cuLaunchKernel((CUfunction)(void *)kernel, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL),
        CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_int_equal(cuLibraryUnload(library), CUDA_SUCCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_machine_code_of_the_same_major_revision_goes_before_ptx),
        cmocka_unit_test(test_the_newest_ptx_that_is_not_too_new_is_compiled),
        cmocka_unit_test(test_lengths_that_do_not_fit_end_the_search),
        cmocka_unit_test(test_ptx_as_text_names_its_target),
        cmocka_unit_test(test_a_function_says_the_versions_of_the_code_that_would_run),
        cmocka_unit_test(test_machine_code_says_which_kernels_it_has),
        cmocka_unit_test(test_a_name_that_stands_twice_is_one_kernel),
        cmocka_unit_test(test_kernels_of_an_image_that_does_not_tell_them_are_not_listed),
        cmocka_unit_test(test_sections_outside_of_the_image_are_not_read),
        cmocka_unit_test(test_each_kernel_that_runs_for_the_first_time_loads_its_share_of_code),
        cmocka_unit_test(test_what_kernels_loaded_goes_with_their_context),
        cmocka_unit_test(test_launches_are_checked_against_the_limits_of_the_device),
        cmocka_unit_test(test_a_cooperative_launch_must_fit_at_once),
        cmocka_unit_test(test_occupancy_is_what_the_scarcest_resource_allows),
        cmocka_unit_test(test_what_blocks_leave_of_shared_memory_can_be_asked),
        cmocka_unit_test(test_clusters_come_with_capability_9),
        cmocka_unit_test(test_a_kernel_without_code_for_the_device_is_not_launched),
    };
    make_rehearsal(1, 8 * GIB);
    struct mt_gpu_spec *gpu = &driver_account->device[0].gpu;
    gpu->capability = 90;
    gpu->multiprocessors = 132;
    gpu->shared_bytes = 233472;
    gpu->shared_block_bytes = 232448;
    gpu->threads_most = 2048;
    gpu->blocks_most = 32;
    gpu->module_bytes = 40 * MIB;
    use_device(0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    drop_rehearsal();
    return failed;
}
