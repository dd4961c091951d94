/* SPDX-License-Identifier: MIT */
/* What is said of a program of which no process took the pretended devices. */
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

#include "drive/job.h"

#define S UINT64_C(1000000000)

struct unseen {
    struct mt_rehearsal_status status;
    int has_bare_ggml;
    int has_cuda;
    const char *words;
    const char *said;
};

static const struct unseen programs[] = {
    {{.refusal = "its backends have API version 9"},
     0,
     0,
     "",
     "the ggml of engine takes no pretended devices: its backends have API version 9; known are"},
    {{.n_preloaded = 1}, 1, 0, "", "something took LD_PRELOAD or MEMTALLY_REHEARSAL out"},
    {{.exit_code = 1},
     0,
     0,
     "==1==ASan runtime does not come first in initial library list",
     "set ASAN_OPTIONS=verify_asan_link_order=0"},
    {{.exit_code = 0}, 0, 0, "", "the pretended devices could not be loaded into engine"},
    {{.n_preloaded = 1, .api_version = 2, .exit_code = 3},
     0,
     0,
     "",
     "engine has ggml in it and ended with status 3 before it took a device"},
    {{.n_preloaded = 1, .api_version = 2, .exit_code = 139, .signal = 11},
     0,
     0,
     "",
     "engine has ggml in it and was killed by signal 11 before it took a device"},
    {{.n_preloaded = 1, .api_version = 2}, 0, 0, "", "rehearse a build with shared libraries"},
    {{.n_preloaded = 1, .exit_code = 1},
     0,
     0,
     "first\nno model\n",
     "engine ended with status 1 before it loaded ggml; it said: no model"},
    {{.n_preloaded = 1, .running = 1, .elapsed_ns = 90 * S},
     0,
     0,
     "",
     "engine was stopped by memtally after 90 s (--timeout, or a minute without a sign of work), "
     "and no process of it had loaded ggml by then"},
    {{.n_preloaded = 1}, 0, 0, "", "no process of engine loaded ggml: it is not built on it"},
    {{.n_preloaded = 1}, 0, 1, "", "no process of engine took a device, of CUDA or of ggml"},
};

/* What is said of a program, into `why`. */
static void explain(const struct unseen *program, size_t n_devices, char why[MT_DRIVE_WHY_BYTES])
{
    const char *const argv[] = {"engine", NULL};
    const char *const environment[] = {"PATH=/nonexistent", NULL};
    const struct mt_drive_job job = {.argv = (char *const *)argv,
                                     .environment = (char *const *)environment,
                                     .n_devices = n_devices};
    struct mt_drive_result *result = calloc(1, sizeof *result);
    assert_non_null(result);
    result->status = program->status;
    result->has_bare_ggml = program->has_bare_ggml;
    result->has_cuda = program->has_cuda;
    strcpy(result->words, program->words);
    mt_drive_explain_no_devices(&job, result);
    strcpy(why, result->why);
    free(result);
}

static void test_each_reason_has_its_sentence_and_what_to_do(void **state)
{
    char why[MT_DRIVE_WHY_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        explain(&programs[i], 1, why);
        if (!strstr(why, programs[i].said))
            fail_msg("%zu: '%s' is not in '%s'", i, programs[i].said, why);
        assert_null(strstr(why, "without --device"));
    }
}

static void test_a_program_that_was_given_no_device_is_told_how_to_name_one(void **state)
{
    const struct unseen program = {.status.n_preloaded = 1, .words = ""};
    char why[MT_DRIVE_WHY_BYTES];
    (void)state;
    explain(&program, 0, why);
    assert_non_null(strstr(why, "name them, as --device 24GiB"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_reason_has_its_sentence_and_what_to_do),
        cmocka_unit_test(test_a_program_that_was_given_no_device_is_told_how_to_name_one),
    };
    return RUN_TESTS(tests);
}
