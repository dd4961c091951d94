/* SPDX-License-Identifier: MIT */
/* The equations that structs state: each holds for a sound one and is broken for one that is
 * spoiled in one place. */
#include "tests/support/unit.h"

#include <memtally/tally.h>
#include <memtally/units.h>
#include <stdlib.h>
#include <string.h>

#include "measure/call.h"
#include "model/model.h"
#include "place/internal.h"
#include "predict/graph/graph.h"
#include "predict/sheet.h"
#include "predict/sheet_internal.h"
#include "recording/reader.h"
#include "recording/writer.h"
#include "rehearse/breakdown.h"
#include "rehearse/rehearsal.h"
#include "tally/compare.h"
#include "tally/ranges.h"
#include "tally/table.h"

/* What spoils a struct, is refused, and is put right again. */
#define REFUSED(field, wrong, is_valid)                                                            \
    do {                                                                                           \
        __typeof__(field) right_ = (field);                                                        \
        assert_true(is_valid);                                                                     \
        (field) = (wrong);                                                                         \
        assert_false(is_valid);                                                                    \
        (field) = right_;                                                                          \
        assert_true(is_valid);                                                                     \
    } while (0)

static void test_a_tally_that_was_measured(void **state)
{
    struct mt_tally_detail detail = {.name = "heap", .resident_bytes = 300};
    struct mt_tally_row row = {
        .category = MT_CATEGORY_RUNTIME, .resident_bytes = 300, .n_details = 1, .details = &detail};
    struct mt_tally_place place = {.place = "host",
                                   .total_resident_bytes = 1000,
                                   .unattributed_bytes = 700,
                                   .n_rows = 1,
                                   .rows = &row};
    struct mt_tally tally = {.kind = MT_TALLY_MEASUREMENT, .n_places = 1, .places = &place};
    (void)state;
    REFUSED(place.unattributed_bytes, 699, mt_tally_adds_up(&tally));
    REFUSED(row.resident_bytes, 301, mt_tally_adds_up(&tally));
    REFUSED(detail.resident_bytes, 0, mt_tally_adds_up(&tally));
}

static void test_a_tally_that_was_estimated(void **state)
{
    struct mt_tally_detail details[] = {
        {.name = "a", .allocated_bytes = 300, .low_bytes = 200, .high_bytes = 400},
        {.name = "b", .allocated_bytes = 30, .low_bytes = 30, .high_bytes = 30}};
    struct mt_tally_row row = {.category = MT_CATEGORY_WEIGHTS,
                               .allocated_bytes = 330,
                               .low_bytes = 230,
                               .high_bytes = 430,
                               .n_details = 2,
                               .details = details};
    struct mt_tally_place place = {
        .place = "gpu:0", .total_allocated_bytes = 330, .n_rows = 1, .rows = &row};
    struct mt_tally tally = {.kind = MT_TALLY_ESTIMATE, .n_places = 1, .places = &place};
    (void)state;
    REFUSED(place.total_allocated_bytes, 331, mt_tally_adds_up(&tally));
    REFUSED(row.low_bytes, 0, mt_tally_adds_up(&tally));
    REFUSED(details[1].high_bytes, 31, mt_tally_adds_up(&tally));
}

static void test_a_sheet_its_pool_and_its_estimate(void **state)
{
    struct mt_sheet_line line = {.place = MT_HOST_PLACE,
                                 .term = {.place = "host",
                                          .category = MT_CATEGORY_WEIGHTS,
                                          .name = "weights",
                                          .rule = "llama.cpp/weights",
                                          .formula = "10",
                                          .bytes = 10,
                                          .low_bytes = 9,
                                          .high_bytes = 11,
                                          .kind = MT_TERM_RULE}};
    struct mt_sheet sheet = {.terms = &line, .n_terms = 1};
    struct mt_estimate estimate = {.terms = &line.term, .n_terms = 1};
    (void)state;
    REFUSED(line.term.low_bytes, 12, mt_sheet_is_valid(&sheet));
    REFUSED(line.term.kind, MT_TERM_NONE, mt_sheet_is_valid(&sheet));
    REFUSED(line.term.rule, NULL, mt_sheet_is_valid(&sheet));
    REFUSED(line.place, -2, mt_sheet_is_valid(&sheet));
    sheet.pool = (struct mt_estimate_pool){.present = 1,
                                           .requested_bytes = 100,
                                           .weights_bytes = 60,
                                           .activations_bytes = 50,
                                           .graphs_bytes = 5,
                                           .pool_bytes = -15};
    REFUSED(sheet.pool.pool_bytes, 15, mt_sheet_is_valid(&sheet));
    REFUSED(sheet.pool.pool_tokens_low, 1, mt_pool_is_valid(&sheet.pool));
    struct mt_tally_detail detail = {
        .name = "weights", .allocated_bytes = 10, .low_bytes = 9, .high_bytes = 11};
    struct mt_tally_row row = {.category = MT_CATEGORY_WEIGHTS,
                               .allocated_bytes = 10,
                               .low_bytes = 9,
                               .high_bytes = 11,
                               .n_details = 1,
                               .details = &detail};
    struct mt_tally_place place = {
        .place = "host", .total_allocated_bytes = 10, .n_rows = 1, .rows = &row};
    estimate.tally = (struct mt_tally){.kind = MT_TALLY_ESTIMATE, .n_places = 1, .places = &place};
    REFUSED(line.term.bytes, 8, mt_estimate_is_valid(&estimate));
    REFUSED(estimate.verdict, MT_VERDICT_COUNT, mt_estimate_is_valid(&estimate));
}

static const uint64_t tensor_bytes = 70;

static int one_tensor(const struct mt_model *model, uint64_t index, struct mt_model_tensor *tensor)
{
    (void)model;
    (void)index;
    *tensor = (struct mt_model_tensor){.name = "t", .type = "f16", .bytes = tensor_bytes};
    return 0;
}

static void test_a_models_description(void **state)
{
    struct mt_model_layer layers[2] = {
        {.heads = 8, .kv_heads = 2, .weight_bytes = 30, .expert_bytes = 20},
        {.heads = 8, .kv_heads = 2, .weight_bytes = 30, .cache_layer = 1}};
    struct mt_model model = {
        .tensor_at = one_tensor,
        .description = {.n_layers = 2, .layers = layers, .n_tensors = 1, .weight_bytes = 70}};
    (void)state;
    REFUSED(model.description.weight_bytes, 71, mt_model_is_valid(&model));
    REFUSED(layers[1].cache_layer, 2, mt_model_is_valid(&model));
    REFUSED(layers[0].expert_bytes, 31, mt_model_is_valid(&model));
    REFUSED(layers[0].weight_bytes, 41, mt_model_is_valid(&model));
    REFUSED(model.description.n_draft_layers, 3, mt_description_is_valid(&model.description));
}

static void test_a_plan_of_a_graph(void **state)
{
    struct mt_graph_buffer buffers[2] = {{.bytes = 10, .inputs = 4, .working = 6}, {.bytes = 0}};
    struct mt_graph_machine machine = {.n_devices = 1};
    int8_t backends[] = {0, 1};
    struct mt_schedule schedule = {.nodes = {.n = 2}, .node_backends = backends};
    (void)state;
    REFUSED(buffers[0].working, 7, mt_graph_buffers_are_valid(buffers, 2));
    REFUSED(buffers[1].inputs, 1, mt_graph_buffers_are_valid(buffers, 2));
    REFUSED(backends[1], 2, mt_schedule_is_valid(&schedule, &machine));
    REFUSED(backends[0], MT_UNPLACED, mt_schedule_is_valid(&schedule, &machine));
}

static void test_the_index_of_a_recording(void **state)
{
    struct mt_block blocks[] = {{.offset = 4096, .header = {.stream = 1, .sequence = 1}},
                                {.offset = 8192, .header = {.stream = 1, .sequence = 2}}};
    struct mt_frame_place frames[] = {{.offset = 4096}, {.offset = 5000}};
    struct mt_record_file raw = {.blocks = blocks, .n_blocks = 2, .file_bytes = 12288};
    struct mt_record_file packed = {.header = {.flags = MT_FILE_PACKED},
                                    .frames = frames,
                                    .n_frames = 2,
                                    .n_blocks = 7,
                                    .file_bytes = 12288};
    (void)state;
    REFUSED(blocks[1].header.sequence, 1, mt_record_file_is_valid(&raw));
    REFUSED(blocks[0].header.stream, 2, mt_record_file_is_valid(&raw));
    REFUSED(raw.file_bytes, 8192, mt_record_file_is_valid(&raw));
    REFUSED(raw.n_frames, 1, mt_record_file_is_valid(&raw));
    REFUSED(frames[1].offset, 4096, mt_record_file_is_valid(&packed));
    REFUSED(packed.blocks, blocks, mt_record_file_is_valid(&packed));
}

static void test_the_account_of_a_rehearsal(void **state)
{
    struct mt_account *account = calloc(1, sizeof *account);
    (void)state;
    assert_non_null(account);
    memcpy(account->magic, MT_ACCOUNT_MAGIC, sizeof account->magic);
    account->format = MT_ACCOUNT_FORMAT;
    account->n_devices = 1;
    account->n_preloaded = 1;
    account->device[0] = (struct mt_account_device){
        .total_bytes = 100, .free_bytes = 90, .used_bytes = 50, .held_bytes = 60, .peak_bytes = 55};
    account->process[3].pid = 7;
    account->process[3].used_bytes[0] = 40;
    account->shared[2] = (struct mt_account_shared){.bytes = 10, .holders = 2};
    REFUSED(account->process[3].used_bytes[0], 41, mt_account_is_valid(account));
    REFUSED(account->shared[2].holders, 0, mt_account_is_valid(account));
    REFUSED(account->device[0].peak_bytes, 49, mt_account_is_valid(account));
    REFUSED(account->device[0].held_bytes, 91, mt_account_is_valid(account));
    REFUSED(account->n_attached, 2, mt_account_is_valid(account));
    REFUSED(account->format, 1, mt_account_is_valid(account));
    free(account);
}

static void test_the_parts_of_a_place(void **state)
{
    struct mt_breakdown_part items[] = {{.category = MT_CATEGORY_WEIGHTS,
                                         .bytes = 10,
                                         .low_bytes = 9,
                                         .high_bytes = 11,
                                         .name = "a",
                                         .detail = ""},
                                        {.category = MT_CATEGORY_KV_CACHE,
                                         .bytes = 10,
                                         .low_bytes = 10,
                                         .high_bytes = 10,
                                         .name = "b",
                                         .detail = ""}};
    struct mt_breakdown parts = {.items = items, .n = 2, .capacity = 2};
    (void)state;
    REFUSED(items[0].low_bytes, 11, mt_breakdown_is_valid(&parts));
    REFUSED(items[1].name, NULL, mt_breakdown_is_valid(&parts));
    REFUSED(items[0].category, MT_CATEGORY_CONTEXT, mt_breakdown_is_valid(&parts));
}

static void test_what_a_measured_call_took(void **state)
{
    struct mt_measure_result result = {.baseline_bytes = 100,
                                       .peak_bytes = 130,
                                       .growth_bytes = 30,
                                       .device_baseline_bytes = 7,
                                       .device_peak_bytes = 7,
                                       .device_own_baseline_bytes = 5,
                                       .device_own_peak_bytes = MT_UNKNOWN,
                                       .device_own_growth_bytes = MT_UNKNOWN};
    (void)state;
    REFUSED(result.growth_bytes, 31, mt_measure_result_is_valid(&result));
    REFUSED(result.peak_bytes, 99, mt_measure_result_is_valid(&result));
    REFUSED(result.device_growth_bytes, MT_UNKNOWN, mt_measure_result_is_valid(&result));
    REFUSED(result.device_own_growth_bytes, 0, mt_measure_result_is_valid(&result));
    /* A peak below what was there before has no growth, in 64 bits neither. */
    result.baseline_bytes = 132;
    result.growth_bytes = (uint64_t)-2;
    assert_false(mt_measure_result_is_valid(&result));
}

static void test_a_placement(void **state)
{
    struct mt_place_unit units[] = {{.dense_bytes = 10, .cache_bytes = 4, .work_bytes = 1},
                                    {.dense_bytes = 20, .expert_bytes = 30, .experts = 2}};
    struct mt_place_problem problem = {.units = units, .n_units = 2, .each_bytes = 3};
    struct mt_placement_device devices[] = {{.dense_bytes = 13,
                                             .expert_bytes = 30,
                                             .cache_bytes = 4,
                                             .overhead_bytes = 6,
                                             .used_bytes = 53,
                                             .n_units = 1},
                                            {.n_units = 0}};
    int unit_device[] = {0, MT_PLACE_HOST};
    struct mt_placement placement = {.n_units = 2,
                                     .unit_device = unit_device,
                                     .n_devices = 2,
                                     .devices = devices,
                                     .host_bytes = 20};
    (void)state;
    REFUSED(devices[0].used_bytes, 52, mt_placement_is_valid(&problem, &placement));
    REFUSED(devices[1].n_units, 1, mt_placement_is_valid(&problem, &placement));
    REFUSED(placement.host_bytes, 19, mt_placement_is_valid(&problem, &placement));
    REFUSED(unit_device[0], MT_PLACE_ANY, mt_placement_is_valid(&problem, &placement));
    REFUSED(unit_device[0], 2, mt_placement_is_valid(&problem, &placement));
    REFUSED(units[1].expert_bytes, 31, mt_placement_is_valid(&problem, &placement));
}

static void test_a_comparison(void **state)
{
    struct mt_difference row = {
        .in_a = 1, .a_bytes = 50, .b_bytes = 0, .known = 1, .difference_bytes = -50};
    struct mt_comparison comparison = {.n_rows = 1, .rows = &row};
    struct mt_component_difference *weights = &comparison.components[MT_COMPONENT_WEIGHTS];
    (void)state;
    *weights = (struct mt_component_difference){.a = {.known = 1, .bytes = 100},
                                                .b = {.known = 1, .bytes = 120},
                                                .verdict = MT_COMPARE_OVER,
                                                .band_ratio = 0.1,
                                                .difference_bytes = 20,
                                                .ratio_known = 1,
                                                .accuracy_ratio = 0.8};
    REFUSED(weights->difference_bytes, -20, mt_comparison_is_valid(&comparison));
    REFUSED(weights->band_ratio, 0.2, mt_comparison_is_valid(&comparison));
    REFUSED(weights->verdict, MT_COMPARE_UNDER, mt_comparison_is_valid(&comparison));
    REFUSED(weights->b.known, 0, mt_comparison_is_valid(&comparison));
    REFUSED(comparison.all_within, 1, mt_comparison_is_valid(&comparison));
    REFUSED(row.a_bytes, MT_UNKNOWN, mt_comparison_is_valid(&comparison));
    REFUSED(row.in_a, 0, mt_comparison_is_valid(&comparison));
}

static void test_a_table_and_a_map_of_ranges(void **state)
{
    struct mt_table table = {.capacity = 64, .n = 32};
    struct mt_ranges ranges;
    (void)state;
    REFUSED(table.n, 33, mt_table_is_valid(&table));
    REFUSED(table.capacity, 65, mt_table_is_valid(&table));
    mt_ranges_init(&ranges);
    for (uint64_t at = 0; at < 100; at++)
        mt_ranges_set(&ranges, 16 * at, 16 * at + 8, at);
    mt_ranges_move(&ranges, 0, 800, 1 << 20);
    REFUSED(ranges.n, 99, mt_ranges_are_valid(&ranges));
    mt_ranges_finish(&ranges);
}

static void test_the_writer_of_a_stream(void **state)
{
    struct {
        struct mt_block_header header;
        uint8_t events[64];
    } block = {.header = {.used = 16}};
    struct mt_writer writer = {.block = &block.header,
                               .events = block.events,
                               .cursor = block.events + 16,
                               .limit = block.events + 64};
    (void)state;
    REFUSED(block.header.used, 15, mt_writer_is_valid(&writer));
    REFUSED(writer.limit, block.events + 8, mt_writer_is_valid(&writer));
    REFUSED(writer.block, NULL, mt_writer_is_valid(&writer));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_tally_that_was_measured),
        cmocka_unit_test(test_a_tally_that_was_estimated),
        cmocka_unit_test(test_a_sheet_its_pool_and_its_estimate),
        cmocka_unit_test(test_a_models_description),
        cmocka_unit_test(test_a_plan_of_a_graph),
        cmocka_unit_test(test_the_index_of_a_recording),
        cmocka_unit_test(test_the_account_of_a_rehearsal),
        cmocka_unit_test(test_the_parts_of_a_place),
        cmocka_unit_test(test_what_a_measured_call_took),
        cmocka_unit_test(test_a_placement),
        cmocka_unit_test(test_a_comparison),
        cmocka_unit_test(test_a_table_and_a_map_of_ranges),
        cmocka_unit_test(test_the_writer_of_a_stream),
    };
    return RUN_TESTS(tests);
}
