/* SPDX-License-Identifier: MIT */
/* Converting and copying while memory runs out: an error each time, nothing lost, nothing left. */
#include "tests/support/unit.h"

#include <memtally/model_file.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/failing_allocations.h"

#define MOST_ALLOCATIONS 2000

static char directory[64];
static char config[96], first[96], copy[96];

static int setup(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/memtally-convert-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(config, sizeof config, "%s/config.json", directory);
    snprintf(first, sizeof first, "%s/first.gguf", directory);
    snprintf(copy, sizeof copy, "%s/copy.gguf", directory);
    FILE *stream = fopen(config, "w");
    if (!stream)
        return -1;
    fputs("{\"model_type\": \"qwen3\", \"num_hidden_layers\": 4, \"vocab_size\": 1000}", stream);
    return fclose(stream);
}

static int teardown(void **state)
{
    (void)state;
    unlink(config);
    unlink(first);
    unlink(copy);
    return rmdir(directory);
}

static int write_once(const char *from, const char *to, struct mt_error *error)
{
    const struct mt_sparse_options options = {.type = MT_FILE_Q4_K_M};
    struct mt_model *model = NULL;
    int code = mt_model_open(from, NULL, &model, error);
    if (!code)
        code = mt_model_write_sparse(model, to, &options, error);
    mt_model_close(model);
    return code;
}

static void assert_survives(const char *from, const char *to)
{
    int code = MT_ENOMEM;
    for (failing_allocation = 1; code == MT_ENOMEM; failing_allocation++) {
        struct mt_error error = {0};
        assert_true(failing_allocation < MOST_ALLOCATIONS);
        allocations = 0;
        code = write_once(from, to, &error);
        if (code)
            assert_int_not_equal(access(to, F_OK), 0);
        if (code)
            assert_string_not_equal(error.text, "");
    }
    failing_allocation = 0;
    assert_int_equal(code, 0);
    assert_int_equal(access(to, F_OK), 0);
}

static void test_running_out_of_memory_leaves_nothing(void **state)
{
    (void)state;
    assert_survives(config, first);
    assert_survives(first, copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_running_out_of_memory_leaves_nothing, setup, teardown),
    };
    return RUN_TESTS(tests);
}
