/* SPDX-License-Identifier: MIT */
/* What a rehearsed program finds in its environment, with look-alikes of CUDA's libraries and
 * without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/environment.h"
#include "rehearse/program.h"

#define VARIABLES(X)                                                                               \
    X(path, "PATH=/bin")                                                                           \
    X(ld_preload, "LD_PRELOAD=/own.so")                                                            \
    X(ld_library_path, "LD_LIBRARY_PATH=/own/lib")                                                 \
    X(pythonpath, "PYTHONPATH=/own/python")                                                        \
    X(cuda_visible_devices, "CUDA_VISIBLE_DEVICES=1")                                              \
    X(hip_visible_devices, "HIP_VISIBLE_DEVICES=0")                                                \
    X(triton_cache_dir, "TRITON_CACHE_DIR=/var/triton")                                            \
    X(tmpdir, "TMPDIR=/var/tmp")                                                                   \
    X(hf_home, "HF_HOME=/var/models")

/* The program's own, as execve(2) has them. */
#define TEXT(name, text) static char name[] = text;
VARIABLES(TEXT)
#define ENTRY(name, text) name,
static char *given[] = {VARIABLES(ENTRY) NULL};
static char directory[] = "/r/cuda";
static char preload[] = "/r/cuda/libcuda.so.1:/r/cuda/libcudart.so.12";
static char helper[] = "/helper";
static char caches[] = "/r/caches";
static char programs[] = "/r/cuda/bin";
static char temporary[] = "/r/tmp";
static struct mt_cuda_stage stage = {.directory = directory,
                                     .preload = preload,
                                     .helper = helper,
                                     .caches = caches,
                                     .programs = programs,
                                     .temporary = temporary};

static size_t count(char **environment, const char *name)
{
    size_t n = 0;
    for (; *environment; environment++)
        n += !strncmp(*environment, name, strlen(name)) && (*environment)[strlen(name)] == '=';
    return n;
}

static void expect(char **environment, const char *name, const char *value)
{
    const char *found = mt_environment_get(environment, name);
    assert_non_null(found);
    assert_string_equal(found, value);
    assert_int_equal(count(environment, name), 1);
}

static void test_a_program_on_cuda_finds_the_look_alikes_first(void **state)
{
    (void)state;
    char **made = mt_environment_make(given, "/ggml.so", "/r/account", &stage);
    expect(made, "LD_PRELOAD", "/ggml.so:/r/cuda/libcuda.so.1:/r/cuda/libcudart.so.12:/own.so");
    expect(made, "LD_LIBRARY_PATH", "/r/cuda:/own/lib");
    expect(made, "LIBRARY_PATH", "/r/cuda");
    expect(made, "TRITON_LIBCUDA_PATH", "/r/cuda");
    expect(made, "PYTHONPATH", "/helper:/own/python");
    expect(made, "PATH", "/r/cuda/bin:/bin");
    expect(made, "MEMTALLY_REHEARSAL", "/r/account");
    mt_environment_free(made);
}

static void test_a_program_on_cuda_keeps_its_own_choice_of_devices(void **state)
{
    (void)state;
    char **made = mt_environment_make(given, "/ggml.so", "/r/account", &stage);
    expect(made, "CUDA_VISIBLE_DEVICES", "1");
    expect(made, "HIP_VISIBLE_DEVICES", "-1");
    mt_environment_free(made);
}

static void test_what_compilers_keep_goes_to_the_rehearsal_and_models_stay(void **state)
{
    (void)state;
    static const char *const moved[] = {"TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR",
                                        "VLLM_CACHE_ROOT", "FLASHINFER_WORKSPACE_BASE"};
    char **made = mt_environment_make(given, "/ggml.so", "/r/account", &stage);
    for (size_t i = 0; i < sizeof moved / sizeof *moved; i++)
        assert_non_null(strstr(mt_environment_get(made, moved[i]), "/r/caches/"));
    expect(made, "HF_HOME", "/var/models");
    assert_null(mt_environment_get(made, "XDG_CACHE_HOME"));
    assert_null(mt_environment_get(made, "HF_HUB_OFFLINE"));
    mt_environment_free(made);
}

/* A socket's path has room for 107 bytes, and for 42 beside a folder of 65. */
static void test_temporary_files_go_to_the_rehearsal_unless_sockets_would_not_fit(void **state)
{
    (void)state;
    char longest[] = "/0123456789012345678901234567890123456789012345678901234567890123";
    char **made = mt_environment_make(given, "/ggml.so", "/r/account", &stage);
    expect(made, "TMPDIR", "/r/tmp");
    mt_environment_free(made);
    struct mt_cuda_stage deep = stage;
    deep.temporary = longest;
    made = mt_environment_make(given, "/ggml.so", "/r/account", &deep);
    expect(made, "TMPDIR", "/var/tmp");
    mt_environment_free(made);
    longest[64] = '\0';
    made = mt_environment_make(given, "/ggml.so", "/r/account", &deep);
    expect(made, "TMPDIR", longest);
    mt_environment_free(made);
    made = mt_environment_make(given, "/ggml.so", "/r/account", NULL);
    expect(made, "TMPDIR", "/var/tmp");
    mt_environment_free(made);
}

static void test_a_program_on_ggml_sees_no_device_of_cudas(void **state)
{
    (void)state;
    char **made = mt_environment_make(given, "/ggml.so", "/r/account", NULL);
    expect(made, "LD_PRELOAD", "/ggml.so:/own.so");
    expect(made, "CUDA_VISIBLE_DEVICES", "-1");
    expect(made, "LD_LIBRARY_PATH", "/own/lib");
    expect(made, "PYTHONPATH", "/own/python");
    expect(made, "TRITON_CACHE_DIR", "/var/triton");
    mt_environment_free(made);
}

static void test_without_a_helper_pythons_path_is_left_alone(void **state)
{
    (void)state;
    struct mt_cuda_stage bare = stage;
    bare.helper = NULL;
    char **made = mt_environment_make(given, "/ggml.so", "/r/account", &bare);
    expect(made, "PYTHONPATH", "/own/python");
    mt_environment_free(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_program_on_cuda_finds_the_look_alikes_first),
        cmocka_unit_test(test_a_program_on_cuda_keeps_its_own_choice_of_devices),
        cmocka_unit_test(test_what_compilers_keep_goes_to_the_rehearsal_and_models_stay),
        cmocka_unit_test(test_temporary_files_go_to_the_rehearsal_unless_sockets_would_not_fit),
        cmocka_unit_test(test_a_program_on_ggml_sees_no_device_of_cudas),
        cmocka_unit_test(test_without_a_helper_pythons_path_is_left_alone),
    };
    return cmocka_run_group_tests_name("environment", tests, NULL, NULL);
}
