/* SPDX-License-Identifier: MIT */
/* What a path to a CUDA library leads to. The look-alike is loaded first, as a rehearsal does by
 * preloading, and its own dlopen is asked. */
#include "look_alike.h"

static char stage[] = "/tmp/memtally-stage-XXXXXX";
static void *driver;
static void *(*open_it)(const char *path, int flags);

static void test_a_path_to_the_driver_leads_to_the_look_alike(void **state)
{
    (void)state;
    assert_ptr_equal(open_it("/nowhere/lib/libcuda.so.1", RTLD_NOW), driver);
    assert_ptr_equal(open_it("/nowhere/lib/libcuda.so", RTLD_NOW), driver);
    assert_ptr_equal(open_it("libcuda.so.1", RTLD_NOW), driver);
}

static void test_other_paths_go_to_the_real_function(void **state)
{
    (void)state;
    assert_null(open_it("/nowhere/lib/libother.so.1", RTLD_NOW));
    assert_non_null(strstr(dlerror(), "/nowhere/lib/libother.so.1"));
    assert_non_null(open_it(NULL, RTLD_NOW));
    void *self = dlopen("libc.so.6", RTLD_NOW);
    assert_ptr_equal(open_it("libc.so.6", RTLD_NOW), self);
}

static void test_a_look_alike_that_is_not_loaded_is_not_made_up(void **state)
{
    (void)state;
    assert_null(open_it("/nowhere/lib/libnccl.so.2", RTLD_NOW));
    assert_non_null(strstr(dlerror(), "/nowhere/lib/libnccl.so.2"));
}

static int is_loaded(const char *soname)
{
    void *library = dlopen(soname, RTLD_LAZY | RTLD_NOLOAD);
    if (library)
        dlclose(library);
    return library != NULL;
}

/* The object names libcudart.so.13, and its own search path is of no use: the whole version comes
 * from beside the driver, and no other version does. */
static void test_what_needs_a_version_that_is_not_there_brings_that_version(void **state)
{
    int (*ask)(int *version);
    int version = 0;
    (void)state;
    assert_false(is_loaded("libcudart.so.13"));
    void *library = open_it(NEEDS_RUNTIME_PATH, RTLD_NOW);
    if (!library)
        fail_msg("%s", dlerror());
    assert_true(is_loaded("libcudart.so.13"));
    assert_true(is_loaded("libcublas.so.13"));
    assert_false(is_loaded("libcudart.so.12"));
    *(void **)&ask = find(library, "needs_runtime");
    assert_int_equal(ask(&version), 0);
    assert_int_equal(version, 12080);
}

static void test_a_name_of_another_version_leads_to_its_look_alike(void **state)
{
    (void)state;
    assert_false(is_loaded("libcudart.so.12"));
    void *runtime = open_it("/nowhere/lib/libcudart.so.12", RTLD_NOW);
    assert_non_null(runtime);
    assert_ptr_equal(open_it("libcudart.so.12", RTLD_NOW), runtime);
}

/* The driver and what is of one version, under their sonames as a rehearsal has them. */
static void make_stage(void)
{
    static const char *const links[][2] = {{DRIVER_PATH, "libcuda.so.1"},
                                           {RUNTIME_PATH "12.so", "libcudart.so.12"},
                                           {RUNTIME_PATH "13.so", "libcudart.so.13"},
                                           {BLAS_13_PATH, "libcublas.so.13"}};
    char path[64];
    assert_non_null(mkdtemp(stage));
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        snprintf(path, sizeof path, "%s/%s", stage, links[i][1]);
        assert_int_equal(symlink(links[i][0], path), 0);
    }
}

static int set_up(void **state)
{
    char path[64];
    int (*init)(unsigned);
    (void)state;
    make_account();
    make_stage();
    snprintf(path, sizeof path, "%s/libcuda.so.1", stage);
    driver = load(path);
    *(void **)&init = find(driver, "cuInit");
    assert_int_equal(init(0), 0);
    *(void **)&open_it = find(driver, "dlopen");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", stage);
    return unlink(account_path) || system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_path_to_the_driver_leads_to_the_look_alike),
        cmocka_unit_test(test_other_paths_go_to_the_real_function),
        cmocka_unit_test(test_a_look_alike_that_is_not_loaded_is_not_made_up),
        cmocka_unit_test(test_what_needs_a_version_that_is_not_there_brings_that_version),
        cmocka_unit_test(test_a_name_of_another_version_leads_to_its_look_alike),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
