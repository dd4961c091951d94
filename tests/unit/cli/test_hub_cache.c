/* SPDX-License-Identifier: MIT */
/* What the cache of Hugging Face has of a model, among files that are made up. */
#include "tests/support/unit.h"

#include <limits.h>
#include <string.h>

#include <memtally/error.h>

#include "cli/hub_cache.h"

static int code; /* that opening a file gives */

static int open_made(void *argument, const char *path, struct mt_model_source *source,
                     struct mt_error *error)
{
    (void)argument;
    (void)path;
    (void)source;
    (void)error;
    return code;
}

static int is_folder_made(void *argument, const char *path)
{
    (void)argument;
    return !strstr(path, ".gguf");
}

static const struct mt_model_files made = {.open = open_made, .is_folder = is_folder_made};

/* So that the user hears of the rights, and not that there is no such model. */
static void test_a_file_that_may_not_be_read_is_there(void **state)
{
    char cache[] = "HF_HUB_CACHE=/cache";
    char *environment[] = {cache, NULL};
    char path[PATH_MAX] = "";
    (void)state;
    code = MT_ENOTFOUND;
    assert_false(cli_hub_cache_find(&made, "org/m/x.gguf", environment, path, sizeof path));
    code = MT_EARG; /* a device */
    assert_false(cli_hub_cache_find(&made, "org/m/x.gguf", environment, path, sizeof path));
    code = MT_EPERM;
    assert_true(cli_hub_cache_find(&made, "org/m/x.gguf", environment, path, sizeof path));
    assert_string_equal(path, "/cache/models--org--m/snapshots/main/x.gguf");
}

static void test_the_older_variable_comes_after_the_newer_one(void **state)
{
    char home[] = "HF_HOME=/home";
    char older[] = "HUGGINGFACE_HUB_CACHE=/older";
    char newer[] = "HF_HUB_CACHE=/newer";
    char empty[] = "HF_HUB_CACHE=";
    char *environment[] = {home, older, empty, NULL};
    char path[PATH_MAX] = "";
    (void)state;
    assert_true(cli_hub_cache_find(&made, "org/m", environment, path, sizeof path));
    assert_string_equal(path, "/older/models--org--m");
    environment[2] = newer;
    assert_true(cli_hub_cache_find(&made, "org/m", environment, path, sizeof path));
    assert_string_equal(path, "/newer/models--org--m");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_that_may_not_be_read_is_there),
        cmocka_unit_test(test_the_older_variable_comes_after_the_newer_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
