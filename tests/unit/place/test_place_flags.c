/* SPDX-License-Identifier: MIT */
/* Placements in the words of engines, by their manuals, and what links and cards are worth. */
#include "tests/support/unit.h"

#include <memtally/memtally.h>
#include <stdlib.h>
#include <string.h>

#include "place/flags.h"
#include "place/machine.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* Eight layers of a mixture and an output, placed by hand. */
#define UNITS 9

static struct mt_place_unit units[UNITS];
static int unit_device[UNITS];
static int expert_device[UNITS];
static struct mt_placement_device devices[3];
static struct mt_placement placement;
static struct mt_placed placed;
static struct mt_strbuf environment;
static struct mt_strbuf flags;

/* Layers go to the devices in stretches of so many units; 0: not in use. `starts` are the first
 * units. */
static void place(size_t n_devices, const size_t *n_units, const size_t *starts)
{
    for (uint32_t i = 0; i < UNITS; i++)
        units[i] =
            (struct mt_place_unit){.layer = i < 8 ? i : MT_NO_LAYER, .experts = i < 8 ? 4 : 0};
    memset(devices, 0, sizeof devices);
    for (size_t d = 0; d < n_devices; d++) {
        devices[d].n_units = n_units[d];
        devices[d].first_unit = starts[d];
        for (size_t i = starts[d]; i < starts[d] + n_units[d]; i++) {
            unit_device[i] = expert_device[i] = (int)d;
            devices[d].layers += i < 8;
        }
    }
    placement = (struct mt_placement){.n_units = UNITS,
                                      .unit_device = unit_device,
                                      .expert_device = expert_device,
                                      .n_devices = n_devices,
                                      .devices = devices};
    placed =
        (struct mt_placed){.placement = &placement, .problem = {.units = units, .n_units = UNITS}};
}

static void assert_flags(const char *engine_name, enum mt_place_way way, const char *before,
                         const char *after)
{
    struct mt_engine engine;
    assert_int_equal(mt_engine_find(engine_name, &engine, NULL), 0);
    environment = flags = (struct mt_strbuf){0};
    mt_place_flags(&placed, way, &engine, &environment, &flags);
    assert_string_equal(mt_strbuf_text(&environment), before);
    assert_string_equal(mt_strbuf_text(&flags), after);
    mt_strbuf_finish(&environment);
    mt_strbuf_finish(&flags);
}

static void test_llama_cpp_is_told_units_and_their_split(void **state)
{
    (void)state;
    place(2, (size_t[]){5, 4}, (size_t[]){0, 5});
    assert_flags("llama.cpp", MT_PLACE_TENSOR_SPLIT, "", "-ngl 9 -sm layer -ts 5,4");
    place(1, (size_t[]){9}, (size_t[]){0});
    assert_flags("llama.cpp", MT_PLACE_TENSOR_SPLIT, "", "-ngl 9");
}

/* --device names the order; -ts goes by it. */
static void test_devices_in_another_order_are_named(void **state)
{
    (void)state;
    place(2, (size_t[]){4, 5}, (size_t[]){5, 0});
    assert_flags("llama.cpp", MT_PLACE_TENSOR_SPLIT, "",
                 "-ngl 9 --device CUDA1,CUDA0 -sm layer -ts 5,4");
}

/* A card that the engine sees gets a context; those that remain count from 0 again. */
static void test_a_card_that_is_not_in_use_is_hidden(void **state)
{
    (void)state;
    place(3, (size_t[]){4, 0, 5}, (size_t[]){5, 0, 0});
    assert_flags("llama.cpp", MT_PLACE_TENSOR_SPLIT, "CUDA_VISIBLE_DEVICES=2,0",
                 "-ngl 9 -sm layer -ts 5,4");
    assert_flags("exllamav3", MT_PLACE_GPU_SPLIT, "CUDA_VISIBLE_DEVICES=2,0", "-gs 0.0,0.0");
}

/* The first layers' experts have a flag of their own, which counts layers on the host too; others
 * need a pattern. */
static void test_experts_on_the_host_are_counted_or_named(void **state)
{
    (void)state;
    place(2, (size_t[]){5, 4}, (size_t[]){0, 5});
    expert_device[0] = expert_device[1] = MT_PLACE_HOST;
    assert_flags("llama.cpp", MT_PLACE_TENSOR_SPLIT, "", "-ngl 9 -sm layer -ts 5,4 --n-cpu-moe 2");
    expert_device[0] = 0;
    assert_flags("llama.cpp", MT_PLACE_TENSOR_SPLIT, "",
                 "-ngl 9 -sm layer -ts 5,4 -ot 'blk\\.(1)\\.ffn_.*_exps\\.=CPU'");
    expert_device[6] = MT_PLACE_DISK;
    assert_flags("llama.cpp", MT_PLACE_TENSOR_SPLIT, "",
                 "-ngl 9 -sm layer -ts 5,4 -ot 'blk\\.(1|6)\\.ffn_.*_exps\\.=CPU'");
    place(1, (size_t[]){7}, (size_t[]){2});
    unit_device[0] = unit_device[1] = expert_device[0] = expert_device[1] = MT_PLACE_HOST;
    expert_device[2] = MT_PLACE_HOST;
    placement.host_layers = 2;
    assert_flags("llama.cpp", MT_PLACE_TENSOR_SPLIT, "", "-ngl 7 --n-cpu-moe 3");
}

/* llama.cpp keeps copies of its inputs only where no tensor was placed by hand: a pattern that
 * matches none is enough. */
static void test_a_pattern_without_a_match_drops_the_copies(void **state)
{
    (void)state;
    place(2, (size_t[]){5, 4}, (size_t[]){0, 5});
    placed.drops_copies = 1;
    assert_flags("llama.cpp", MT_PLACE_TENSOR_SPLIT, "", "-ngl 9 -sm layer -ts 5,4 -ot '^$=CPU'");
}

static void test_ollama_is_told_how_many_layers(void **state)
{
    (void)state;
    place(2, (size_t[]){3, 0}, (size_t[]){6, 0});
    assert_flags("ollama", MT_PLACE_LAYERS, "", "PARAMETER num_gpu 3");
}

/* VLLM_PP_LAYER_PARTITION and SGLANG_PP_LAYER_PARTITION have the layers of each stage. */
static void test_stages_have_their_layers_in_the_engines_variable(void **state)
{
    (void)state;
    place(2, (size_t[]){5, 4}, (size_t[]){0, 5});
    assert_flags("vllm", MT_PLACE_STAGES, "VLLM_PP_LAYER_PARTITION=5,3",
                 "--pipeline-parallel-size 2");
    placed.memory_share = 0.857;
    assert_flags("vllm", MT_PLACE_STAGES, "VLLM_PP_LAYER_PARTITION=5,3",
                 "--pipeline-parallel-size 2 --gpu-memory-utilization 0.86");
    place(2, (size_t[]){4, 5}, (size_t[]){5, 0});
    assert_flags("sglang", MT_PLACE_STAGES,
                 "CUDA_VISIBLE_DEVICES=1,0 SGLANG_PP_LAYER_PARTITION=5,3", "--pp-size 2");
}

/* exllamav3 fills devices in their order, up to so many gigabytes. */
static void test_gigabytes_are_rounded_up_to_a_tenth(void **state)
{
    (void)state;
    place(3, (size_t[]){4, 3, 2}, (size_t[]){0, 4, 7});
    devices[0].dense_bytes = GIB;
    devices[1].expert_bytes = GIB;
    devices[1].cache_bytes = 1;
    devices[2].dense_bytes = 12 * GIB + 700 * MIB;
    devices[2].overhead_bytes = 5 * GIB; /* is not what it fills */
    assert_flags("exllamav3", MT_PLACE_GPU_SPLIT, "", "-gs 1.0,1.1,12.7");
}

static void test_transformers_gets_a_device_for_each_module(void **state)
{
    static const struct mt_place_module modules[] = {{"model.embed_tokens", 0},
                                                     {"model.layers.0", 1},
                                                     {"model.layers.1", MT_PLACE_HOST},
                                                     {"lm_head", MT_PLACE_DISK}};
    (void)state;
    place(2, (size_t[]){5, 4}, (size_t[]){0, 5});
    placed.modules = modules;
    placed.n_modules = 4;
    assert_flags("transformers", MT_PLACE_DEVICE_MAP, "",
                 "dtype=\"auto\", device_map={\"model.embed_tokens\": 0, \"model.layers.0\": 1, "
                 "\"model.layers.1\": \"cpu\", \"lm_head\": \"disk\"}");
}

/* ---- links and cards ---- */

/* 4096 numbers of four bytes are 16 KiB: over PCIe 15 us and 16384 / 20e9 s, over NVLink 3 us and
 * 16384 / 300e9 s, each of them in both directions. */
static void test_a_crossing_takes_a_links_time_and_its_bytes(void **state)
{
    const struct mt_model_description d = {.embedding_length = 4096};
    const struct mt_place_link link = {1, 0, MT_PLACE_LINK_NVLINK};
    const struct mt_place_options options = {.links = &link, .n_links = 1};
    struct mt_place_problem problem = {.n_devices = 3};
    double *seconds = NULL;
    const double pcie = 15e-6 + 16384 / 20e9;
    const double nvlink = 3e-6 + 16384 / 300e9;
    (void)state;
    assert_int_equal(mt_place_links(&d, &options, &problem, &seconds, NULL), 0);
    assert_true(problem.crossing_seconds == pcie);
    assert_ptr_equal(problem.link_seconds, seconds);
    assert_true(seconds[0 * 3 + 1] == nvlink && seconds[1 * 3 + 0] == nvlink);
    assert_true(seconds[0 * 3 + 2] == pcie && seconds[2 * 3 + 1] == pcie);
    free(seconds);
}

static void test_without_links_all_devices_are_alike(void **state)
{
    const struct mt_model_description d = {.embedding_length = 0};
    const struct mt_place_options options = {.n_links = 0};
    struct mt_place_problem problem = {.n_devices = 2};
    double *seconds = NULL;
    (void)state;
    assert_int_equal(mt_place_links(&d, &options, &problem, &seconds, NULL), 0);
    assert_true(problem.crossing_seconds == 15e-6);
    assert_null(seconds);
}

static void test_a_link_joins_two_devices_that_are_there(void **state)
{
    static const struct mt_place_link wrong[] = {
        {0, 2, MT_PLACE_LINK_PCIE}, {2, 0, MT_PLACE_LINK_PCIE}, {1, 1, MT_PLACE_LINK_NVLINK}};
    const struct mt_model_description d = {.embedding_length = 64};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        const struct mt_place_options options = {.links = &wrong[i], .n_links = 1};
        struct mt_place_problem problem = {.n_devices = 2};
        struct mt_error error = {0};
        double *seconds = NULL;
        assert_int_equal(mt_place_links(&d, &options, &problem, &seconds, &error), MT_EARG);
        assert_non_null(strstr(error.text, "name two different ones of 0 to 1"));
        free(seconds);
    }
}

static void test_links_and_policies_have_names(void **state)
{
    (void)state;
    assert_string_equal(mt_place_link_name(MT_PLACE_LINK_NETWORK), "network");
    assert_string_equal(mt_place_link_name(MT_PLACE_LINK_COUNT), "?");
    assert_string_equal(mt_place_policy_name(MT_PLACE_POLICY_BALANCED_EXPERTS), "balanced-experts");
}

/* An H100 of 80 GB reads 3.35 TB/s by NVIDIA's data sheet, an L4 300 GB/s. */
static void test_known_cards_read_as_fast_as_their_data_sheets_say(void **state)
{
    static const struct mt_device_known known[] = {
        {.gpu = "H100-80GB"}, {.gpu = "L4"}, {.gpu = ""}};
    const struct mt_predict_settings settings = {.n_devices = 3, .device_known = known};
    struct mt_place_device cards[3] = {
        {.bytes_per_second = 7}, {.bytes_per_second = 7}, {.bytes_per_second = 7}};
    (void)state;
    mt_place_speeds(&settings, cards);
    assert_true(cards[0].bytes_per_second > 3.3e12 && cards[0].bytes_per_second < 3.4e12);
    assert_true(cards[1].bytes_per_second > 0.29e12 && cards[1].bytes_per_second < 0.31e12);
    assert_true(cards[2].bytes_per_second == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama_cpp_is_told_units_and_their_split),
        cmocka_unit_test(test_devices_in_another_order_are_named),
        cmocka_unit_test(test_a_card_that_is_not_in_use_is_hidden),
        cmocka_unit_test(test_experts_on_the_host_are_counted_or_named),
        cmocka_unit_test(test_a_pattern_without_a_match_drops_the_copies),
        cmocka_unit_test(test_ollama_is_told_how_many_layers),
        cmocka_unit_test(test_stages_have_their_layers_in_the_engines_variable),
        cmocka_unit_test(test_gigabytes_are_rounded_up_to_a_tenth),
        cmocka_unit_test(test_transformers_gets_a_device_for_each_module),
        cmocka_unit_test(test_a_crossing_takes_a_links_time_and_its_bytes),
        cmocka_unit_test(test_without_links_all_devices_are_alike),
        cmocka_unit_test(test_a_link_joins_two_devices_that_are_there),
        cmocka_unit_test(test_links_and_policies_have_names),
        cmocka_unit_test(test_known_cards_read_as_fast_as_their_data_sheets_say),
    };
    return RUN_TESTS(tests);
}
