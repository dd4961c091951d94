/* SPDX-License-Identifier: MIT */
/* A sweep as a table, CSV and JSON: every point that is done has its line, in the order of the
 * axes, and each way of failing is told once. */
#include "tests/support/unit.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include <memtally/units.h>

#include "cli/rehearse/sweep_output.h"

#define MIB (UINT64_C(1) << 20)

static const struct cli_terminal wide = {.columns = 160, .utf8 = 1};
static const struct cli_document_model model = {.path = "m.gguf", .architecture = "llama"};
static struct mt_advise_total totals[12][6];
static struct mt_advise_point points[12];

/* Contexts by types of the cache: so many points, of which all are done and fit. */
static struct mt_advise_sweep sweep_of(const char *axes, size_t n_devices)
{
    struct mt_advise_sweep sweep = {.settings = {.n_devices = n_devices}, .points = points};
    struct mt_error error = {0};
    if (mt_advise_axes_parse(&sweep.axes, axes, &error) != 0)
        fail_msg("%s", error.text);
    sweep.n_points = sweep.n_done = mt_advise_axes_points(&sweep.axes);
    assert_in_range(sweep.n_points, 1, 12);
    snprintf(sweep.stage.version, sizeof sweep.stage.version, "11434");
    snprintf(sweep.stage.program_path, sizeof sweep.stage.program_path, "/bin/llama-server");
    for (size_t i = 0; i < sweep.n_points; i++) {
        for (size_t k = 0; k <= n_devices; k++)
            totals[i][k] = (struct mt_advise_total){(100 * i + k + 1) * MIB, (100 * i + k) * MIB,
                                                    (100 * i + k + 2) * MIB};
        points[i] = (struct mt_advise_point){
            .is_done = 1, .verdict = MT_VERDICT_FITS, .totals = totals[i], .context_tokens = 4096};
    }
    return sweep;
}

static void fail_point(size_t i, char *reason)
{
    points[i].totals = NULL;
    points[i].reason = reason;
}

static struct mt_strbuf table_of(const struct mt_advise_sweep *sweep)
{
    struct mt_strbuf out = {0};
    rehearse_sweep_table(sweep, &model, &wide, &out);
    return out;
}

static size_t times(const struct mt_strbuf *text, const char *word)
{
    size_t n = 0;
    for (const char *at = mt_strbuf_text(text); (at = strstr(at, word)); at += strlen(word))
        n++;
    return n;
}

static void assert_times(const struct mt_strbuf *text, const char *word, size_t expected)
{
    if (times(text, word) != expected)
        fail_msg("'%s' is there %zu times, not %zu:\n%s", word, times(text, word), expected,
                 mt_strbuf_text(text));
}

static void test_a_line_for_each_point_that_is_done(void **state)
{
    struct mt_advise_sweep sweep = sweep_of("context=2048,4096,kv-type=f16,q8_0", 2);
    (void)state;
    points[3].is_done = 0;
    sweep.n_done = 3;
    struct mt_strbuf text = table_of(&sweep);
    assert_times(&text, "FITS", 3);
    assert_times(&text, "3 of 4: it was interrupted", 1);
    assert_times(&text, "gpu:0", 1);
    assert_times(&text, "gpu:1", 1);
    assert_times(&text, "llama.cpp 11434, rehearsed: /bin/llama-server", 1);
    assert_times(&text, "203.00", 1); /* gpu:1 of the third */
    assert_times(&text, "303.00", 0);
    mt_strbuf_finish(&text);
    mt_advise_axes_finish(&sweep.axes);
}

static void test_many_devices_are_shown_by_the_fullest(void **state)
{
    struct mt_advise_sweep sweep = sweep_of("context=2048", 5);
    (void)state;
    totals[0][2].bytes = 777 * MIB;
    struct mt_strbuf text = table_of(&sweep);
    assert_times(&text, "fullest gpu", 1);
    assert_times(&text, "777.00", 1);
    assert_times(&text, "gpu:0", 0);
    mt_strbuf_finish(&text);
    mt_advise_axes_finish(&sweep.axes);
}

/* A table has room for so many columns: more axes stand in one. */
static void test_many_axes_stand_together(void **state)
{
    struct mt_advise_sweep sweep =
        sweep_of("context=2048,batch=64,ubatch=32,sequences=1,kv-type=f16,flash-attn=on,"
                 "gpu-layers=3,cpu-moe=1",
                 3);
    (void)state;
    struct mt_strbuf text = table_of(&sweep);
    assert_times(&text, "settings", 1);
    assert_times(&text, "context 2048, batch 64, ubatch 32, sequences 1, kv-type f16", 1);
    assert_times(&text, "cpu-moe 1", 1);
    assert_times(&text, "FITS", 1);
    mt_strbuf_finish(&text);
    mt_advise_axes_finish(&sweep.axes);
}

static void test_each_way_of_failing_is_told_once(void **state)
{
    static char one[] = "the engine crashed", other[] = "it hung";
    struct mt_advise_sweep sweep = sweep_of("context=1024,2048,4096,8192,16384", 1);
    (void)state;
    fail_point(0, one);
    fail_point(1, other);
    fail_point(2, one);
    fail_point(4, other);
    struct mt_strbuf text = table_of(&sweep);
    assert_times(&text, "FAILED", 4);
    assert_times(&text, "context 1024: the engine crashed", 1);
    assert_times(&text, "context 2048: it hung", 1);
    assert_times(&text, one, 1);
    assert_times(&text, other, 1);
    mt_strbuf_finish(&text);
    mt_advise_axes_finish(&sweep.axes);
}

static void test_csv_has_a_column_for_each_bound_of_each_place(void **state)
{
    static char why[] = "no \"room\", it says";
    struct mt_advise_sweep sweep = sweep_of("context=2048,4096,8192", 1);
    struct mt_strbuf out = {0};
    (void)state;
    fail_point(1, why);
    points[2].is_done = 0;
    rehearse_sweep_csv(&sweep, &out);
    assert_string_equal(mt_strbuf_text(&out),
                        "context,host_bytes,host_low_bytes,host_high_bytes,gpu:0_bytes,"
                        "gpu:0_low_bytes,gpu:0_high_bytes,verdict,reason\n"
                        "2048,1048576,0,2097152,2097152,1048576,3145728,FITS,\n"
                        "4096,,,,,,,FAILED,\"no \"\"room\"\", it says\"\n");
    mt_strbuf_finish(&out);
    mt_advise_axes_finish(&sweep.axes);
}

static void test_json_has_every_point_with_its_values(void **state)
{
    static char why[] = "it hung";
    struct mt_advise_sweep sweep = sweep_of("context=2048,4096,kv-type=f16", 1);
    struct mt_strbuf out = {0};
    (void)state;
    fail_point(1, why);
    points[1].context_tokens = 0;
    rehearse_sweep_json(&sweep, &model, &out);
    json_t *document = json_loads(mt_strbuf_text(&out), 0, NULL);
    assert_non_null(document);
    assert_true(json_is_true(json_object_get(document, "complete")));
    json_t *all = json_object_get(document, "points");
    assert_int_equal(json_array_size(all), 2);
    json_t *first = json_array_get(all, 0), *second = json_array_get(all, 1);
    json_t *values = json_object_get(second, "values");
    assert_string_equal(json_string_value(json_object_get(values, "context")), "4096");
    assert_string_equal(json_string_value(json_object_get(values, "kv-type")), "f16");
    assert_int_equal(json_array_size(json_object_get(first, "places")), 2);
    json_t *device = json_array_get(json_object_get(first, "places"), 1);
    assert_string_equal(json_string_value(json_object_get(device, "place")), "gpu:0");
    assert_int_equal(json_integer_value(json_object_get(device, "total_high_bytes")), 3 * MIB);
    assert_string_equal(json_string_value(json_object_get(second, "verdict")), "FAILED");
    assert_string_equal(json_string_value(json_object_get(second, "reason")), why);
    assert_int_equal(json_array_size(json_object_get(second, "places")), 0);
    assert_false(json_is_integer(json_object_get(second, "context_tokens")));
    json_decref(document);
    mt_strbuf_finish(&out);
    mt_advise_axes_finish(&sweep.axes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_for_each_point_that_is_done),
        cmocka_unit_test(test_many_devices_are_shown_by_the_fullest),
        cmocka_unit_test(test_many_axes_stand_together),
        cmocka_unit_test(test_each_way_of_failing_is_told_once),
        cmocka_unit_test(test_csv_has_a_column_for_each_bound_of_each_place),
        cmocka_unit_test(test_json_has_every_point_with_its_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
