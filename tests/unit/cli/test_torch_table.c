/* SPDX-License-Identifier: MIT */
/* Layers and operators of a recording as table, JSON and CSV. The files are written here as FORMATS
 * describes them; a program may also have written anything else into them. */
#include "tests/support/unit.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/document/torch_table.h"

#define OPERATIONS                                                                                 \
    "memtally-operations 1\n"                                                                      \
    "operation\tshapes\tcount\town_host_bytes\ttotal_host_bytes\town_device_bytes\t"               \
    "total_device_bytes\n"
#define LAYERS                                                                                     \
    "memtally-layers 1\n"                                                                          \
    "root\tmodule\tclass\tkind\tdepth\tcalls\tweights_host_bytes\tweights_device_bytes\t"          \
    "cache_host_bytes\tcache_device_bytes\tforward_peak_host_bytes\tforward_peak_device_bytes\t"   \
    "backward_peak_host_bytes\tbackward_peak_device_bytes\n"

static const struct cli_terminal wide = {.columns = 200, .utf8 = 1};
static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/memtally-tables-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static void path_of(const char *name, char path[128])
{
    snprintf(path, 128, "%s/%s", folder, name);
}

static void put_file(const char *name, const char *text)
{
    char path[128];
    path_of(name, path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"operations-7.tsv", "operations-12.tsv", "layers-7.tsv"};
    char path[128];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        path_of(names[i], path);
        unlink(path);
    }
    return rmdir(folder);
}

static struct mt_strbuf document(enum mt_torch_table_kind kind, enum cli_format format, size_t most)
{
    struct mt_strbuf out = {0};
    struct mt_error error = {0};
    if (cli_document_torch_table(folder, kind, format, most, &wide, &out, &error) != 0)
        fail_msg("%s", error.text);
    return out;
}

static void assert_has(const struct mt_strbuf *text, const char *words, int is_there)
{
    if ((strstr(mt_strbuf_text(text), words) != NULL) != is_there)
        fail_msg("'%s' is %sthere:\n%s", words, is_there ? "not " : "", mt_strbuf_text(text));
}

static void test_what_an_operator_gave_back_is_negative_and_what_is_unknown_is_empty(void **state)
{
    (void)state;
    put_file("operations-7.tsv", OPERATIONS "aten::mm\t[2, 3]\t4\t-\t0\t-1048576\t3145728\n");
    struct mt_strbuf text = document(MT_TORCH_TABLE_OPERATIONS, CLI_FORMAT_TABLE, 0);
    assert_has(&text, "aten::mm [2, 3]", 1);
    assert_has(&text, "-1.00 MiB", 1);
    assert_has(&text, "3.00 MiB", 1);
    mt_strbuf_finish(&text);
    text = document(MT_TORCH_TABLE_OPERATIONS, CLI_FORMAT_CSV, 0);
    assert_string_equal(mt_strbuf_text(&text),
                        "pid,operation,shapes,count,own_host_bytes,total_host_bytes,"
                        "own_device_bytes,total_device_bytes\n"
                        "7,aten::mm,\"[2, 3]\",4,,0,-1048576,3145728\n");
    mt_strbuf_finish(&text);
    text = document(MT_TORCH_TABLE_OPERATIONS, CLI_FORMAT_JSON, 0);
    json_t *json = json_loads(mt_strbuf_text(&text), 0, NULL);
    assert_non_null(json);
    json_t *row = json_array_get(json_object_get(json, "operations"), 0);
    assert_true(json_is_null(json_object_get(row, "own_host_bytes")));
    assert_int_equal(json_integer_value(json_object_get(row, "own_device_bytes")), -1048576);
    assert_int_equal(json_integer_value(json_object_get(row, "pid")), 7);
    json_decref(json);
    mt_strbuf_finish(&text);
}

/* A cut line, a figure that is none, a negative count, too few fields, another file's words. */
static void test_lines_that_make_no_sense_are_left_out(void **state)
{
    (void)state;
    put_file("operations-7.tsv", OPERATIONS "good\t\t1\t1\t1\t1\t1\n"
                                            "word\t\tmany\t1\t1\t1\t1\n"
                                            "below\t\t-1\t1\t1\t1\t1\n"
                                            "few\t\t1\n"
                                            "much\t\t99999999999999999999\t1\t1\t1\t1\n"
                                            "cut\t\t1\t1\t1\t1\t1");
    put_file("operations-12.tsv", "memtally-operations 2\nx\nlater\t\t1\t1\t1\t1\t1\n");
    struct mt_strbuf text = document(MT_TORCH_TABLE_OPERATIONS, CLI_FORMAT_CSV, 0);
    assert_has(&text, "\n7,good,,1,1,1,1,1\n", 1);
    assert_has(&text, "word", 0);
    assert_has(&text, "below", 0);
    assert_has(&text, "few", 0);
    assert_has(&text, "much", 0);
    assert_has(&text, "cut", 0);
    assert_has(&text, "later", 0);
    mt_strbuf_finish(&text);
}

/* By process, and what moves a terminal's cursor does not reach it. */
static void test_processes_stand_in_their_order_and_names_are_escaped(void **state)
{
    (void)state;
    put_file("operations-7.tsv", OPERATIONS "a\x1b[2Jb\t\t1\t1\t1\t1\t1\n");
    put_file("operations-12.tsv", OPERATIONS "second\t\t1\t1\t1\t1\t1\n");
    struct mt_strbuf text = document(MT_TORCH_TABLE_OPERATIONS, CLI_FORMAT_TABLE, 0);
    const char *second = strstr(mt_strbuf_text(&text), "second");
    assert_non_null(second);
    assert_null(strstr(second, "[2Jb"));
    assert_has(&text, "\x1b", 0);
    assert_has(&text, "more", 0);
    mt_strbuf_finish(&text);
    text = document(MT_TORCH_TABLE_OPERATIONS, CLI_FORMAT_TABLE, 1);
    assert_has(&text, "second", 0);
    assert_has(&text, "and 1 more; --all shows them\n", 1);
    mt_strbuf_finish(&text);
}

static void test_what_a_layer_holds_is_the_sum_of_host_and_device(void **state)
{
    (void)state;
    put_file("layers-7.tsv",
             LAYERS "0\tmodel\tLlama\t\t0\t1\t1048576\t2097152\t-\t4194304\t-\t5242880\t-\t-\n"
                    "0\tmodel.layers.0\tBlock\t\t1\t1\t0\t0\t-\t-\t0\t0\t-\t-\n");
    struct mt_strbuf text = document(MT_TORCH_TABLE_LAYERS, CLI_FORMAT_TABLE, 0);
    assert_has(&text, "model Llama", 1);
    assert_has(&text, "3.00 MiB", 1); /* 1 on the host, 2 on the device */
    assert_has(&text, "4.00 MiB", 1); /* what is not known on the host is left out */
    assert_has(&text, "5.00 MiB", 1);
    assert_has(&text, "\n  model.layers.0 Block", 1);
    mt_strbuf_finish(&text);
}

static void test_a_recording_without_them_says_how_to_record_them(void **state)
{
    struct mt_strbuf out = {0};
    struct mt_error error = {0};
    (void)state;
    assert_int_equal(cli_document_torch_table(folder, MT_TORCH_TABLE_LAYERS, CLI_FORMAT_JSON, 0,
                                              &wide, &out, &error),
                     MT_ENOTFOUND);
    assert_non_null(strstr(error.text, "has no layers; record with 'memtally run --layers'"));
    assert_int_equal(out.length, 0);
    mt_strbuf_finish(&out);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_an_operator_gave_back_is_negative_and_what_is_unknown_is_empty),
        TEST(test_lines_that_make_no_sense_are_left_out),
        TEST(test_processes_stand_in_their_order_and_names_are_escaped),
        TEST(test_what_a_layer_holds_is_the_sum_of_host_and_device),
        TEST(test_a_recording_without_them_says_how_to_record_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
