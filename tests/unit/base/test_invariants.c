/* SPDX-License-Identifier: MIT */
/* The equations that structs state: each holds for a sound one and is broken for one that is
 * spoiled in one place. */
#include "tests/support/unit.h"

#include <memtally/tally.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "predict/graph/graph.h"
#include "predict/sheet_internal.h"
#include "recording/reader.h"
#include "rehearse/breakdown.h"
#include "rehearse/rehearsal.h"

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
    };
    return RUN_TESTS(tests);
}
