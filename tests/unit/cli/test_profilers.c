/* SPDX-License-Identifier: MIT */
/* What LLM profilers call their fields: lengths with the prompt, and what devices hold beyond one
 * copy. */
#include "tests/support/unit.h"

#include <jansson.h>
#include <string.h>

#include <memtally/tally.h>
#include <memtally/units.h>

#include "cli/document/document.h"
#include "cli/document/load.h"

#define MIB ((uint64_t)1 << 20)

static uint64_t generated(const char *info)
{
    char text[256];
    snprintf(text, sizeof text, "{\"model_info\":%s}", info);
    json_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    uint64_t tokens = cli_document_settings_of(root).generated_tokens;
    json_decref(root);
    return tokens;
}

/* 8 tokens of a prompt and 100 new ones. */
static void test_a_generated_length_is_read_with_and_without_the_prompt(void **state)
{
    (void)state;
    assert_int_equal(generated("{\"prompt_length\":8,\"generated_length\":108,"
                               "\"total_sequence_length\":108}"),
                     100);
    assert_int_equal(generated("{\"prompt_length\":8,\"generated_length\":100,"
                               "\"total_sequence_length\":108}"),
                     100);
    assert_int_equal(generated("{\"generated_length\":100}"), 100);
    assert_true(generated("{\"prompt_length\":8}") == MT_UNKNOWN);
    assert_int_equal(generated("{\"prompt_length\":9,\"generated_length\":5,"
                               "\"total_sequence_length\":5}"),
                     5);
}

/* A device with weights, a context and buffers for communication. */
struct device {
    struct mt_tally_row rows[3];
    struct mt_tally_place place;
};

static void fill(struct device *device, uint64_t weights, uint64_t context, uint64_t communication)
{
    const uint64_t bytes[] = {weights, context, communication};
    static const enum mt_category categories[] = {MT_CATEGORY_WEIGHTS, MT_CATEGORY_CONTEXT,
                                                  MT_CATEGORY_COMMUNICATION};
    *device = (struct device){.place = {.place = "gpu:0", .n_rows = 3, .rows = device->rows}};
    for (size_t i = 0; i < 3; i++) {
        device->rows[i] =
            (struct mt_tally_row){.category = categories[i], .resident_bytes = bytes[i] * MIB};
        device->place.total_resident_bytes += bytes[i] * MIB;
    }
}

static double overhead_gb(const struct cli_document *document)
{
    struct mt_strbuf out = {0};
    assert_int_equal(cli_document_render(document, CLI_FORMAT_JSON, NULL, &out, NULL), 0);
    json_t *root = json_loads(mt_strbuf_text(&out), 0, NULL);
    const json_t *info = json_object_get(root, "gpu_info");
    double gb = json_number_value(json_object_get(info, "multi_gpu_overhead_gb"));
    json_decref(root);
    mt_strbuf_finish(&out);
    return gb;
}

static void expect(struct device *devices, size_t n, uint64_t beyond, int is_on_one)
{
    struct mt_tally_place places[2];
    const struct cli_document_model model = {.weight_bytes = 100 * MIB};
    for (size_t i = 0; i < n; i++)
        places[i] = devices[i].place;
    const struct mt_tally tally = {.kind = MT_TALLY_MEASUREMENT, .n_places = n, .places = places};
    struct cli_document document = CLI_DOCUMENT_EMPTY;
    document.tally = &tally;
    document.model = &model;
    double differs = overhead_gb(&document) - (double)(beyond * MIB) / 1e9;
    assert_true(differs < 1e-9 && differs > -1e-9);
    assert_int_equal(cli_document_is_on_one_device(&document), is_on_one);
}

static void test_devices_hold_more_than_one_copy(void **state)
{
    (void)state;
    struct device devices[2];
    fill(&devices[0], 100, 500, 0);
    expect(devices, 1, 0, 1);
    fill(&devices[1], 0, 0, 0); /* there, and not used */
    expect(devices, 2, 0, 1);
    fill(&devices[1], 0, 400, 0); /* the smaller of two contexts */
    expect(devices, 2, 400, 0);
    fill(&devices[0], 60, 500, 0); /* half of the layers on each */
    fill(&devices[1], 40, 500, 0);
    expect(devices, 2, 500, 0);
    fill(&devices[1], 70, 500, 16); /* 30 of the weights are on both */
    expect(devices, 2, 30 + 500 + 16, 0);
    fill(&devices[0], 30, 500, 0); /* the rest is on the host */
    fill(&devices[1], 30, 500, 0);
    expect(devices, 2, 500, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_generated_length_is_read_with_and_without_the_prompt),
        cmocka_unit_test(test_devices_hold_more_than_one_copy),
    };
    return RUN_TESTS(tests);
}
