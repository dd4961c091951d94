/* SPDX-License-Identifier: MIT */
/* What a rehearsal takes from a placement's document: the engine's words as a shell would read
 * them, and devices in the order in which the engine sees them. */
#include "tests/support/unit.h"

#include <memtally/predict.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/rehearse/placed.h"

static char path[] = "/tmp/memtally-placed-XXXXXX";
static struct rehearse_placed placed;

static int make_file(void **state)
{
    int fd = mkstemp(path);
    (void)state;
    close(fd);
    return fd < 0;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static int finish(void **state)
{
    (void)state;
    rehearse_placed_finish(&placed);
    return 0;
}

static int read_text(const char *text, struct mt_error *error)
{
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    fputs(text, stream);
    fclose(stream);
    return rehearse_placed_read(path, &placed, error);
}

#define HEAD                                                                                       \
    "{\"kind\": \"placement\", \"model\": \"m.gguf\", \"engine\": \"llama.cpp\", "                 \
    "\"context_tokens\": 4096, "
#define VLLM_HEAD                                                                                  \
    "{\"kind\": \"placement\", \"model\": \"m\", \"engine\": \"vllm@0.33.0\", "                    \
    "\"context_tokens\": 1, "
#define DEVICES                                                                                    \
    "\"devices\": [{\"capacity_bytes\": 100, \"expected_bytes\": 10, \"dense_bytes\": 5, "         \
    "\"expert_bytes\": 2},"                                                                        \
    " {\"capacity_bytes\": 200, \"expected_bytes\": 20, \"dense_bytes\": 6, \"expert_bytes\": 0, " \
    "\"card\": \"L4\"}]}"

static void assert_words(const char *flags, const char *const *words, size_t n)
{
    char text[512];
    snprintf(text, sizeof text, HEAD "\"way\": \"tensor-split\", \"flags\": \"%s\", " DEVICES,
             flags);
    assert_int_equal(read_text(text, NULL), 0);
    assert_int_equal(placed.n_words, n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(placed.words[i], words[i]);
    rehearse_placed_finish(&placed);
}

static void test_flags_are_cut_as_a_shell_cuts_them(void **state)
{
    (void)state;
    assert_words("-ngl 33 -sm layer", (const char *const[]){"-ngl", "33", "-sm", "layer"}, 4);
    assert_words("-ot 'blk\\\\.(1|2)=CPU' -x",
                 (const char *const[]){"-ot", "blk\\.(1|2)=CPU", "-x"}, 3);
    assert_words("  a   'b c'd  ", (const char *const[]){"a", "b cd"}, 2);
    assert_words("", NULL, 0);
}

static void test_devices_are_all_in_their_order(void **state)
{
    (void)state;
    assert_int_equal(
        read_text(HEAD "\"way\": \"tensor-split\", \"flags\": \"-ngl 3\", " DEVICES, NULL), 0);
    assert_string_equal(placed.model, "m.gguf");
    assert_string_equal(placed.engine, "llama.cpp");
    assert_int_equal(placed.context_tokens, 4096);
    assert_int_equal(placed.n_devices, 2);
    assert_string_equal(placed.sizes[0], "100B");
    assert_string_equal(placed.sizes[1], "L4");
    assert_int_equal(placed.expected_bytes[1], 20);
    assert_int_equal(placed.stages, 0);
}

static void
test_hidden_devices_are_left_out_and_others_are_in_the_order_of_the_variable(void **state)
{
    (void)state;
    assert_int_equal(read_text(HEAD "\"way\": \"tensor-split\", \"flags\": \"-ngl 3\", "
                                    "\"environment\": \"CUDA_VISIBLE_DEVICES=1\", " DEVICES,
                               NULL),
                     0);
    assert_int_equal(placed.n_devices, 1);
    assert_int_equal(placed.device[0], 1);
    rehearse_placed_finish(&placed);
    assert_int_equal(read_text(HEAD "\"way\": \"tensor-split\", \"flags\": \"-ngl 3\", "
                                    "\"environment\": \"CUDA_VISIBLE_DEVICES=1,0\", " DEVICES,
                               NULL),
                     0);
    assert_int_equal(placed.n_devices, 2);
    assert_int_equal(placed.device[0], 1);
    assert_int_equal(placed.device[1], 0);
    assert_int_equal(placed.expected_bytes[0], 20);
}

/* A share of the device is the cache's with engines that have stages: only weights can be held
 * against what the placement expects. */
static void test_stages_are_counted_and_weights_alone_expected(void **state)
{
    (void)state;
    unsetenv("VLLM_PP_LAYER_PARTITION");
    assert_int_equal(read_text(VLLM_HEAD
                               "\"way\": \"stages\", \"flags\": \"--pp 2\", "
                               "\"memory_share\": 0.85, "
                               "\"environment\": \"VLLM_PP_LAYER_PARTITION=15,17\", " DEVICES,
                               NULL),
                     0);
    assert_true(placed.is_of_weights);
    assert_int_equal(placed.stages, 2);
    assert_string_equal(getenv("VLLM_PP_LAYER_PARTITION"), "15,17");
    assert_true(placed.memory_share == 0.85);
    assert_int_equal(placed.expected_bytes[0], 7);
    assert_int_equal(placed.expected_bytes[1], 6);
    unsetenv("VLLM_PP_LAYER_PARTITION");
}

/* Its flags are a line of Python, which is not cut. */
static void test_a_device_map_is_handed_on_as_it_is(void **state)
{
    (void)state;
    assert_int_equal(read_text(HEAD "\"way\": \"device-map\", \"flags\": \"device_map={}\", "
                                    "\"device_map\": {\"a\": 0, \"b\": \"cpu\"}, " DEVICES,
                               NULL),
                     0);
    assert_string_equal(placed.device_map, "{\"a\":0,\"b\":\"cpu\"}");
    assert_int_equal(placed.n_words, 0);
}

static void test_the_expectation_stands_beside_what_was_rehearsed(void **state)
{
    const struct mt_estimate_term terms[] = {
        {.place = "gpu:0", .category = MT_CATEGORY_WEIGHTS, .bytes = 4},
        {.place = "gpu:0", .category = MT_CATEGORY_KV_CACHE, .bytes = 8},
        {.place = "host", .category = MT_CATEGORY_WEIGHTS, .bytes = 100},
        {.place = "gpu:1", .category = MT_CATEGORY_WEIGHTS, .bytes = 16}};
    const struct mt_estimate estimate = {.terms = terms, .n_terms = 4};
    struct mt_strbuf out = {0};
    (void)state;
    placed.n_devices = 2;
    placed.device[0] = 1;
    placed.expected_bytes[0] = 11;
    placed.expected_bytes[1] = 17;
    rehearse_placed_tell(&placed, &estimate, &out);
    assert_string_equal(mt_strbuf_text(&out), "The placement expected 11 B on gpu:1 (rehearsed 12 "
                                              "B), 17 B on gpu:0 (rehearsed 16 B).");
    mt_strbuf_finish(&out);
    out = (struct mt_strbuf){0};
    placed.is_of_weights = 1;
    rehearse_placed_tell(&placed, &estimate, &out);
    assert_string_equal(mt_strbuf_text(&out),
                        "The placement expected weights of 11 B on gpu:1 (rehearsed 4 B), 17 B on "
                        "gpu:0 (rehearsed 16 B).");
    mt_strbuf_finish(&out);
}

static void test_what_is_no_placement_is_refused_in_words(void **state)
{
    static const struct {
        const char *text;
        const char *words;
    } cases[] = {
        {"{", "line 1"},
        {"[]", "is no placement; 'memtally place --json -o FILE' writes one"},
        {"{\"kind\": \"report\"}", "is no placement"},
        {"{\"kind\": \"placement\", \"model\": \"m\", \"engine\": \"e\", \"way\": \"w\", "
         "\"context_tokens\": 1}",
         "has no flags for an engine; only the policy 'best' has"},
        {HEAD "\"way\": \"x\", \"flags\": \"\", \"devices\": [{\"capacity_bytes\": 1}]}",
         "the placement has no device 0"},
        {HEAD
         "\"way\": \"x\", \"flags\": \"\", \"environment\": \"CUDA_VISIBLE_DEVICES=2\", " DEVICES,
         "the placement has no device 2"},
        {HEAD
         "\"way\": \"x\", \"flags\": \"\", \"environment\": \"CUDA_VISIBLE_DEVICES=\", " DEVICES,
         "the placement's environment names no device"},
        {HEAD
         "\"way\": \"x\", \"flags\": \"\", \"environment\": \"CUDA_VISIBLE_DEVICES=1,x\", " DEVICES,
         "the placement's environment names no device"},
        {HEAD "\"way\": \"x\", \"flags\": \"\", \"environment\": \"nothing\", " DEVICES,
         "the placement's environment cannot be read"},
        {HEAD "\"way\": \"x\", \"flags\": \"\", \"environment\": \"LD_PRELOAD=/x\", " DEVICES,
         "the placement sets LD_PRELOAD, which is no variable of llama.cpp for layers"},
        {VLLM_HEAD "\"way\": \"stages\", \"flags\": \"\", \"environment\": "
                   "\"CUDA_VISIBLE_DEVICES=0 SGLANG_PP_LAYER_PARTITION=1\", " DEVICES,
         "no variable of vllm@0.33.0"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mt_error error = {0};
        assert_int_equal(read_text(cases[i].text, &error), MT_EFORMAT);
        if (!strstr(error.text, cases[i].words))
            fail_msg("'%s' does not say '%s'", error.text, cases[i].words);
        rehearse_placed_finish(&placed);
    }
    struct mt_error error = {0};
    assert_int_equal(rehearse_placed_read("/nowhere/placement.json", &placed, &error), MT_EIO);
}

static void test_so_many_flags_and_no_more(void **state)
{
    static char text[4 * (REHEARSE_PLACED_WORDS_MAX + 2) + 1024];
    struct mt_error error = {0};
    (void)state;
    for (int more = 0; more < 2; more++) {
        size_t length = (size_t)sprintf(text, HEAD "\"way\": \"x\", \"flags\": \"");
        for (size_t i = 0; i < REHEARSE_PLACED_WORDS_MAX + (size_t)more; i++)
            length += (size_t)sprintf(text + length, "a ");
        sprintf(text + length, "\", " DEVICES);
        assert_int_equal(read_text(text, &error), more ? MT_ELIMIT : 0);
        rehearse_placed_finish(&placed);
    }
}

#define TEST(name) cmocka_unit_test_teardown(name, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_flags_are_cut_as_a_shell_cuts_them),
        TEST(test_devices_are_all_in_their_order),
        TEST(test_hidden_devices_are_left_out_and_others_are_in_the_order_of_the_variable),
        TEST(test_stages_are_counted_and_weights_alone_expected),
        TEST(test_a_device_map_is_handed_on_as_it_is),
        TEST(test_the_expectation_stands_beside_what_was_rehearsed),
        TEST(test_what_is_no_placement_is_refused_in_words),
        TEST(test_so_many_flags_and_no_more),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
