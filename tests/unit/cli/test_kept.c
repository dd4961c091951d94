/* SPDX-License-Identifier: MIT */
/* What a profile left in report.json, which anybody may have changed, and names of devices, which a
 * user types. */
#include "tests/support/unit.h"

#include <memtally/error.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/document/load.h"
#include "cli/rehearse/device_names.h"

static char folder[] = "/tmp/memtally-kept-XXXXXX";
static char file[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/memtally-kept-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(file, sizeof file, "%s/report.json", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    remove(file);
    return rmdir(folder);
}

/* What a document shows of a folder with such a file. */
static struct cli_document_kept *kept_of(const char *text, struct cli_document *document)
{
    struct cli_document_kept *kept = NULL;
    FILE *report = fopen(file, "w");
    assert_non_null(report);
    fputs(text, report);
    fclose(report);
    assert_int_equal(cli_document_kept_read(folder, &kept, NULL), 0);
    *document = (struct cli_document){0};
    cli_document_kept_use(kept, document);
    return kept;
}

static void assert_noted(const char *text, const char *words)
{
    struct cli_document document;
    struct cli_document_kept *kept = kept_of(text, &document);
    assert_int_equal(document.n_notes, 1);
    if (!strstr(document.notes[0], words))
        fail_msg("\"%s\" lacks \"%s\"", document.notes[0], words);
    assert_null(document.engine);
    assert_null(document.runs);
    cli_document_kept_destroy(kept);
}

#define OURS "\"schema\":\"memtally/1\",\"kind\":\"measurement\""

static void test_a_profile_is_read_back(void **state)
{
    struct cli_document document;
    (void)state;
    struct cli_document_kept *kept = kept_of(
        "{" OURS ",\"engine\":{\"name\":\"llama.cpp\",\"version\":\"11434\"},"
        "\"model\":{\"name\":\"small\",\"layers\":30},"
        "\"model_info\":{\"prompt_length\":512,\"generated_length\":640,"
        "\"total_sequence_length\":640,\"hf_device_map\":{\"lm_head\":\"cuda:1\"}},"
        "\"settings\":{\"context_tokens\":4096,\"kv_type_k\":\"q8_0\"},"
        "\"runs\":[{\"run\":1,\"warm_up\":true,\"latency_ms\":7.5},{\"run\":2,\"steps\":9}],"
        "\"phases\":[{\"name\":\"load\",\"start_ns\":1,\"end_ns\":5}]}",
        &document);
    assert_int_equal(document.n_notes, 0);
    assert_string_equal(document.engine->name, "llama.cpp");
    assert_null(document.engine->path);
    assert_int_equal(document.model->layers, 30);
    assert_true(document.model->parameters == MT_UNKNOWN);
    assert_non_null(document.model->device_map);
    assert_int_equal(document.settings->context_tokens, 4096);
    assert_true(document.settings->batch == MT_UNKNOWN);
    assert_int_equal(document.n_runs, 2);
    assert_true(document.runs[0].warm_up && document.runs[0].latency_ms == 7.5);
    assert_true(!document.runs[1].warm_up && document.runs[1].latency_ms < 0);
    assert_int_equal(document.runs[1].steps, 9);
    assert_int_equal(document.n_phases, 1);
    assert_int_equal(document.phases[0].end_ns, 5);
    cli_document_kept_destroy(kept);
}

/* Profilers count the prompt into what was generated; the total tells so. */
static void test_a_prompt_does_not_count_as_generated(void **state)
{
    static const struct {
        const char *info;
        uint64_t generated;
    } cases[] = {
        {"\"prompt_length\":512,\"generated_length\":640,\"total_sequence_length\":640", 128},
        {"\"prompt_length\":512,\"generated_length\":128,\"total_sequence_length\":640", 128},
        {"\"prompt_length\":700,\"generated_length\":640,\"total_sequence_length\":640", 640},
        {"\"generated_length\":640,\"total_sequence_length\":640", 640},
        {"\"prompt_length\":512,\"total_sequence_length\":640", MT_UNKNOWN},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        snprintf(text, sizeof text, "{\"model_info\":{%s}}", cases[i].info);
        json_t *root = json_loads(text, 0, NULL);
        assert_true(cli_document_settings_of(root).generated_tokens == cases[i].generated);
        json_decref(root);
    }
}

static void test_what_is_of_the_wrong_type_is_not_known(void **state)
{
    struct cli_document document;
    (void)state;
    struct cli_document_kept *kept = kept_of(
        "{" OURS ",\"engine\":7,\"model\":{\"name\":[],\"layers\":-3,\"weight_bytes\":\"9\"},"
        "\"model_info\":{\"hf_device_map\":\"auto\"},\"settings\":{\"context_tokens\":4096.5},"
        "\"runs\":[{},4,{\"run\":-1},{\"run\":3,\"latency_ms\":-2,\"warm_up\":1}],"
        "\"phases\":[{\"start_ns\":1},\"load\",{\"name\":\"decode\"}]}",
        &document);
    assert_null(document.engine->name);
    assert_null(document.model->name);
    assert_true(document.model->layers == MT_UNKNOWN);
    assert_true(document.model->weight_bytes == MT_UNKNOWN);
    assert_null(document.model->device_map);
    assert_true(document.settings->context_tokens == MT_UNKNOWN);
    assert_int_equal(document.n_runs, 1);
    assert_int_equal(document.runs[0].run, 3);
    assert_true(document.runs[0].latency_ms < 0 && !document.runs[0].warm_up);
    assert_int_equal(document.n_phases, 1);
    assert_string_equal(document.phases[0].name, "decode");
    cli_document_kept_destroy(kept);
}

/* A report of a plain recording has no runs, and nothing that the recording does not have. */
static void test_a_report_without_runs_is_of_no_profile(void **state)
{
    struct cli_document document;
    (void)state;
    struct cli_document_kept *kept = kept_of("{" OURS ",\"engine\":{\"name\":\"x\"}}", &document);
    assert_int_equal(document.n_notes, 0);
    assert_null(document.engine);
    cli_document_kept_destroy(kept);
}

static void test_a_report_that_cannot_be_read_is_said_to_be_so(void **state)
{
    (void)state;
    assert_noted("{\"schema\":\"memtally/2\",\"kind\":\"measurement\"}", "another version wrote");
    assert_noted("{\"schema\":\"memtally/1\",\"kind\":\"estimate\"}", "as a report of its own");
    assert_noted("{\"schema\":7}", "as a report of its own");
    assert_noted("[]", "as a report of its own");
    assert_noted("{", "as a report of its own");
    assert_noted("{\"schema\":\"x\"," OURS "}", "as a report of its own");
    assert_noted("", "as a report of its own");
}

static void test_what_is_no_file_is_no_report(void **state)
{
    struct cli_document_kept *kept = NULL;
    struct cli_document document = {0};
    char deep[64];
    (void)state;
    assert_int_equal(cli_document_kept_read(folder, &kept, NULL), 0);
    assert_null(kept);
    cli_document_kept_use(NULL, &document);
    cli_document_kept_destroy(NULL);
    assert_int_equal(document.n_notes, 0);
    /* A folder on the way is none. */
    snprintf(deep, sizeof deep, "%s/none", folder);
    assert_int_equal(cli_document_kept_read(deep, &kept, NULL), 0);
    assert_null(kept);
    /* A pipe would keep its reader waiting. */
    assert_int_equal(mkfifo(file, 0600), 0);
    assert_int_equal(cli_document_kept_read(folder, &kept, NULL), 0);
    cli_document_kept_use(kept, &document);
    assert_int_equal(document.n_notes, 1);
    cli_document_kept_destroy(kept);
}

static struct rehearse_device_names names;

static int name(const char *first, const char *second, size_t n_devices, struct mt_error *error)
{
    const struct cli_texts given = {{first, second}, second ? 2 : 1};
    return rehearse_name_devices(&given, n_devices, &names, error);
}

static void assert_no_name(const char *first, size_t n_devices, const char *words)
{
    struct mt_error error = {0};
    assert_int_equal(name(first, NULL, n_devices, &error), MT_EARG);
    if (!strstr(error.text, words))
        fail_msg("\"%s\" lacks \"%s\"", error.text, words);
}

static void test_devices_have_names_in_their_order(void **state)
{
    (void)state;
    assert_int_equal(name("A,B", "C", 3, NULL), 0);
    assert_string_equal(names.of[0], "A");
    assert_string_equal(names.of[1], "B");
    assert_string_equal(names.of[2], "C");
    /* One name is of all devices; of two, a third device has none. */
    assert_int_equal(name("A card", NULL, 3, NULL), 0);
    assert_string_equal(names.of[2], "A card");
    assert_null(names.of[3]);
    assert_int_equal(name("A", "B", 3, NULL), 0);
    assert_null(names.of[2]);
}

static void test_names_that_no_engine_would_show_are_refused(void **state)
{
    char long_name[65];
    char many[2 * REHEARSE_NAMED_MAX + 2];
    (void)state;
    assert_no_name("", 2, "no name of 1 to 63 bytes");
    assert_no_name("A,,B", 3, "no name of 1 to 63 bytes");
    assert_no_name("A,", 3, "no name of 1 to 63 bytes");
    assert_no_name("A\tB", 2, "control characters");
    assert_no_name("A\x7f", 2, "control characters");
    assert_no_name("A,B,C", 2, "3 names for 2 devices");
    assert_no_name("A,B", 1, "2 names for 1 device");
    memset(long_name, 'a', 64);
    long_name[64] = '\0';
    assert_no_name(long_name, 1, "no name of 1 to 63 bytes");
    assert_int_equal(name(long_name + 1, NULL, 1, NULL), 0);
    for (size_t i = 0; i <= REHEARSE_NAMED_MAX; i++)
        memcpy(many + 2 * i, "a,", 2);
    many[2 * REHEARSE_NAMED_MAX + 1] = '\0';
    assert_no_name(many, 100, "too many names");
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_profile_is_read_back),
        TEST(test_a_prompt_does_not_count_as_generated),
        TEST(test_what_is_of_the_wrong_type_is_not_known),
        TEST(test_a_report_without_runs_is_of_no_profile),
        TEST(test_a_report_that_cannot_be_read_is_said_to_be_so),
        TEST(test_what_is_no_file_is_no_report),
        cmocka_unit_test(test_devices_have_names_in_their_order),
        cmocka_unit_test(test_names_that_no_engine_would_show_are_refused),
    };
    return RUN_TESTS(tests);
}
