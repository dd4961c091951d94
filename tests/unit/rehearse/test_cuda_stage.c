/* SPDX-License-Identifier: MIT */
/* What a rehearsal prepares for CUDA programs: files under the sonames that programs look for, and
 * devices of the account with a row of the table of GPUs each. The look-alikes are empty files. */
#include <memtally/error.h>
#include <memtally/rehearsal.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rehearse/account_file.h"
#include "rehearse/program.h"

#define GIB (UINT64_C(1) << 30)

static const struct {
    const char *file;
    const char *soname;
} libraries[] = {
#define LIBRARY(file, soname, major) {file, soname},
#define FALLBACK(file, soname)       {file, soname},
#include "rehearse/cuda_libraries.def"
};

#define N_LIBRARIES (sizeof libraries / sizeof *libraries)

struct folders {
    char root[64];
    char from[80];
    char to[80];
    struct mt_cuda_stage stage;
    struct mt_error error;
};

static void put(const char *folder, const char *begin, const char *name, const char *end)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s%s%s", folder, begin, name, end);
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, name, strlen(name)), strlen(name));
    close(fd);
}

static int set_up(void **state)
{
    struct folders *folders = calloc(1, sizeof *folders);
    strcpy(folders->root, "/tmp/memtally-stage-XXXXXX");
    assert_non_null(mkdtemp(folders->root));
    snprintf(folders->from, sizeof folders->from, "%s/from", folders->root);
    snprintf(folders->to, sizeof folders->to, "%s/to", folders->root);
    assert_int_equal(mkdir(folders->from, 0755), 0);
    assert_int_equal(mkdir(folders->to, 0755), 0);
    for (size_t i = 0; i < N_LIBRARIES; i++)
        put(folders->from, "libmemtally-pretend-cuda-", libraries[i].file, ".so");
    put(folders->from, "memtally-pretend-", "nvidia-smi", "");
    *state = folders;
    return 0;
}

static int tear_down(void **state)
{
    struct folders *folders = *state;
    char command[96];
    mt_cuda_stage_finish(&folders->stage);
    snprintf(command, sizeof command, "rm -r %s", folders->root);
    int result = system(command);
    free(folders);
    return result;
}

static int stage(struct folders *folders, const char *to, int major)
{
    const struct mt_rehearsal_options options = {.cuda_directory = folders->from};
    return mt_cuda_stage(&options, to, major, &folders->stage, &folders->error);
}

static void assert_content(const struct folders *folders, const char *name, const char *content)
{
    char path[256], text[64] = "";
    snprintf(path, sizeof path, "%s/cuda/%s", folders->to, name);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, text, sizeof text - 1), strlen(content));
    assert_string_equal(text, content);
    close(fd);
}

static void test_each_library_is_there_under_its_soname(void **state)
{
    struct folders *folders = *state;
    assert_int_equal(stage(folders, folders->to, 0), 0);
    for (size_t i = 0; i < N_LIBRARIES; i++)
        assert_content(folders, libraries[i].soname, libraries[i].file);
    assert_content(folders, "libcuda.so", "driver"); /* Triton asks for it so */
    assert_content(folders, "libnvidia-ml.so", "nvml");
}

/* NVIDIA's own would say what is really there. */
static void test_a_program_that_tells_of_gpus_is_there_to_be_run(void **state)
{
    struct folders *folders = *state;
    char path[256];
    assert_int_equal(stage(folders, folders->to, 0), 0);
    assert_content(folders, "bin/nvidia-smi", "nvidia-smi");
    snprintf(path, sizeof path, "%s/nvidia-smi", folders->stage.programs);
    assert_int_equal(access(path, X_OK), 0);
}

/* A linker looks for -lcudart, whatever its version. */
static void test_a_linker_finds_the_runtime_of_the_programs_version(void **state)
{
    struct folders *folders = *state;
    assert_int_equal(stage(folders, folders->to, 13), 0);
    assert_content(folders, "libcudart.so", "runtime-13");
}

static void test_the_driver_is_preloaded_first_and_a_fallback_is_not(void **state)
{
    struct folders *folders = *state;
    char first[128];
    assert_int_equal(stage(folders, folders->to, 0), 0);
    snprintf(first, sizeof first, "%s/cuda/libcuda.so.1:", folders->to);
    assert_memory_equal(folders->stage.preload, first, strlen(first));
    assert_non_null(strstr(folders->stage.preload, "/libcudart.so.12:"));
    assert_null(strstr(folders->stage.preload, "nvrtc"));
    assert_null(folders->stage.helper);
}

static void test_of_two_versions_that_of_the_program_is_preloaded(void **state)
{
    struct folders *folders = *state;
    assert_int_equal(stage(folders, folders->to, 13), 0);
    assert_non_null(strstr(folders->stage.preload, "/libcudart.so.13"));
    assert_null(strstr(folders->stage.preload, "/libcudart.so.12"));
    assert_non_null(strstr(folders->stage.preload, "/libnccl.so.2")); /* it is of no version */
    assert_content(folders, "libcudart.so.12", "runtime-12");
}

static void test_a_library_that_is_missing_is_named(void **state)
{
    struct folders *folders = *state;
    char path[256];
    snprintf(path, sizeof path, "%s/libmemtally-pretend-cuda-nccl.so", folders->from);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(stage(folders, folders->to, 0), MT_ENOTFOUND);
    assert_non_null(strstr(folders->error.text, "libmemtally-pretend-cuda-nccl.so"));
    assert_null(folders->stage.preload);
}

static void test_a_folder_that_cannot_be_preloaded_from_is_refused(void **state)
{
    struct folders *folders = *state;
    char spaced[128], parted[128];
    snprintf(spaced, sizeof spaced, "%s/a folder", folders->root);
    snprintf(parted, sizeof parted, "%s/a:folder", folders->root);
    assert_int_equal(mkdir(spaced, 0755), 0);
    assert_int_equal(mkdir(parted, 0755), 0);
    assert_int_equal(stage(folders, spaced, 0), MT_EARG);
    assert_int_equal(stage(folders, parted, 0), MT_EARG);
}

static struct mt_account *make_account(struct folders *folders,
                                       const struct mt_rehearsal_options *options)
{
    struct mt_account *account = NULL;
    char path[96];
    snprintf(path, sizeof path, "%s/account", folders->root);
    assert_int_equal(mt_account_create(options, path, &account, &folders->error), 0);
    return account;
}

/* An RTX 4090 has capability 8.9; of all cards an H100 is nearest to 80 GiB. */
static void test_a_device_is_the_gpu_of_its_name_or_the_nearest_in_size(void **state)
{
    struct folders *folders = *state;
    const struct mt_rehearsal_device devices[] = {{.bytes = 8 * GIB, .gpu = "RTX4090"},
                                                  {.bytes = 80 * GIB}};
    const struct mt_rehearsal_options options = {.cuda_directory = folders->from,
                                                 .cuda_driver_version = 12080,
                                                 .devices = devices,
                                                 .n_devices = 2};
    struct mt_account *account = make_account(folders, &options);
    assert_string_equal(account->device[0].gpu.name, "NVIDIA GeForce RTX 4090");
    assert_int_equal(account->device[0].gpu.capability, 89);
    assert_int_equal(account->device[0].total_bytes, 8 * GIB);
    assert_int_equal(account->device[1].gpu.capability, 90);
    assert_int_equal(account->cuda.driver_version, 12080);
    mt_account_unmap(account);
}

static void test_without_look_alikes_the_account_has_no_cuda(void **state)
{
    struct folders *folders = *state;
    const struct mt_rehearsal_device device = {.bytes = 8 * GIB};
    const struct mt_rehearsal_options options = {
        .cuda_driver_version = 12080, .devices = &device, .n_devices = 1};
    struct mt_account *account = make_account(folders, &options);
    assert_int_equal(account->cuda.driver_version, 0);
    assert_string_equal(account->device[0].gpu.name, "");
    assert_int_equal(account->device[0].gpu.capability, 86); /* 8 GiB are taken for an RTX 3070 */
    mt_account_unmap(account);
}

static void test_a_gpu_that_is_none_makes_no_account(void **state)
{
    struct folders *folders = *state;
    const struct mt_rehearsal_device device = {.bytes = 8 * GIB, .gpu = "RTX 9999"};
    const struct mt_rehearsal_options options = {
        .cuda_directory = folders->from, .devices = &device, .n_devices = 1};
    struct mt_account *account = NULL;
    char path[96];
    snprintf(path, sizeof path, "%s/account", folders->root);
    assert_int_equal(mt_account_create(&options, path, &account, &folders->error), MT_EARG);
    assert_null(account);
    assert_int_equal(access(path, F_OK), -1);
}

static void unlink_account(struct folders *folders)
{
    char path[96];
    snprintf(path, sizeof path, "%s/account", folders->root);
    assert_int_equal(unlink(path), 0);
}

static struct mt_pretend_rules rules_of(struct folders *folders, const char *first,
                                        const char *second, const char *kind)
{
    const struct mt_rehearsal_device devices[] = {{.bytes = 24 * GIB, .gpu = first},
                                                  {.bytes = 24 * GIB, .gpu = second}};
    const struct mt_rehearsal_options options = {.kind = kind, .devices = devices, .n_devices = 2};
    struct mt_account *account = make_account(folders, &options);
    struct mt_pretend_rules rules = account->rules;
    mt_account_unmap(account);
    unlink_account(folders);
    return rules;
}

/* NVIDIA: a P40 has capability 6.1, an RTX 3090, which a card of 24 GiB mostly is, 8.6. */
static void test_devices_of_ggml_are_of_the_generation_of_their_cards(void **state)
{
    struct folders *folders = *state;
    assert_int_equal(rules_of(folders, "RTX4090", "RTX4090", "cuda").capability, 890);
    assert_int_equal(rules_of(folders, "RTX4090", "P40", NULL).capability, 610);
    assert_string_equal(rules_of(folders, "RTX4090", "P40", NULL).generation, "pascal");
    assert_int_equal(rules_of(folders, NULL, NULL, "cuda").capability, 860);
    assert_false(rules_of(folders, NULL, NULL, "cuda").is_generation_assumed);
}

/* AMD's: an MI300X is gfx942, which is CDNA 3, an MI50 gfx906. Of a size alone it is not known. */
static void test_devices_of_other_kinds_are_of_the_generation_of_their_cards(void **state)
{
    struct folders *folders = *state;
    struct mt_pretend_rules rules = rules_of(folders, "MI300X", "MI300X", "rocm");
    assert_string_equal(rules.generation, "cdna3");
    assert_int_equal(rules.capability, 0x1000942);
    assert_false(rules.is_generation_assumed);
    assert_string_equal(rules_of(folders, "MI300X", "MI50", "rocm").generation, "vega20");
    rules = rules_of(folders, NULL, NULL, "rocm");
    assert_string_equal(rules.generation, "rdna4");
    assert_true(rules.is_generation_assumed);
    assert_true(rules_of(folders, "MI300X", NULL, "rocm").is_generation_assumed);
    assert_string_equal(rules_of(folders, "RX6800", "RX6800", "vulkan").generation, "amd");
    assert_string_equal(rules_of(folders, "RTX3090", "RTX3090", "vulkan").generation, "nvidia");
    assert_true(rules_of(folders, "Apple-48GB", "Apple-48GB", "metal").is_generation_assumed);
}

/* Each of AMD's devices is its own card. */
static void test_cards_of_amd_are_each_of_their_own_generation(void **state)
{
    struct folders *folders = *state;
    const struct mt_rehearsal_device devices[] = {{.bytes = 24 * GIB, .gpu = "RX7900XTX"},
                                                  {.bytes = 16 * GIB, .gpu = "RX6800"}};
    const struct mt_rehearsal_options options = {
        .kind = "rocm", .devices = devices, .n_devices = 2};
    struct mt_account *account = make_account(folders, &options);
    assert_int_equal(account->device[0].gpu.capability, 0x1001100);
    assert_int_equal(account->device[1].gpu.capability, 0x1001030);
    mt_account_unmap(account);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_each_library_is_there_under_its_soname),
        TEST(test_a_program_that_tells_of_gpus_is_there_to_be_run),
        TEST(test_a_linker_finds_the_runtime_of_the_programs_version),
        TEST(test_the_driver_is_preloaded_first_and_a_fallback_is_not),
        TEST(test_of_two_versions_that_of_the_program_is_preloaded),
        TEST(test_a_library_that_is_missing_is_named),
        TEST(test_a_folder_that_cannot_be_preloaded_from_is_refused),
        TEST(test_a_device_is_the_gpu_of_its_name_or_the_nearest_in_size),
        TEST(test_without_look_alikes_the_account_has_no_cuda),
        TEST(test_a_gpu_that_is_none_makes_no_account),
        TEST(test_devices_of_ggml_are_of_the_generation_of_their_cards),
        TEST(test_devices_of_other_kinds_are_of_the_generation_of_their_cards),
        TEST(test_cards_of_amd_are_each_of_their_own_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
