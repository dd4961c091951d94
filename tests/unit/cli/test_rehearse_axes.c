/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "advise/sweep.h"

#include <stdio.h>
#include <string.h>

static void assert_words(const struct mt_advise_axis *axis, const char *const *words, size_t n)
{
    assert_int_equal(axis->n, n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(axis->words[i], words[i]);
}

static void assert_refused(const char *text, const char *words)
{
    struct mt_advise_axes axes = {0};
    struct mt_error error = {0};
    assert_int_equal(mt_advise_axes_parse(&axes, text, &error), MT_EARG);
    if (!strstr(error.text, words))
        fail_msg("'%s' is not in '%s'", words, error.text);
    mt_advise_axes_finish(&axes);
}

static void test_a_range_doubles_up_to_its_end(void **state)
{
    (void)state;
    static const char *const contexts[] = {"2048", "4096", "8192", "16384"};
    static const char *const odd[] = {"3", "6", "12", "20"};
    struct mt_advise_axes axes = {0};
    assert_int_equal(mt_advise_axes_parse(&axes, "context=2k..16k,ubatch=3..20", NULL), 0);
    assert_int_equal(axes.n, 2);
    assert_words(&axes.items[0], contexts, 4);
    assert_words(&axes.items[1], odd, 4);
    mt_advise_axes_finish(&axes);
}

static void test_values_belong_to_the_key_before_them(void **state)
{
    (void)state;
    static const char *const batches[] = {"512", "2048", "1024"};
    static const char *const types[] = {"f16", "q8_0"};
    struct mt_advise_axes axes = {0};
    assert_int_equal(mt_advise_axes_parse(&axes, "ubatch=512,2048,kv-type=f16,q8_0", NULL), 0);
    assert_int_equal(mt_advise_axes_parse(&axes, "ubatch=1k", NULL), 0);
    assert_int_equal(axes.n, 2);
    assert_words(&axes.items[0], batches, 3);
    assert_words(&axes.items[1], types, 2);
    mt_advise_axes_finish(&axes);
}

static void test_every_combination_comes_once_and_the_last_key_changes_fastest(void **state)
{
    (void)state;
    struct mt_advise_axes axes = {0};
    int seen[2][3] = {{0}};
    assert_int_equal(mt_advise_axes_parse(&axes, "sequences=1,4,context=1k,2k,4k", NULL), 0);
    assert_int_equal(mt_advise_axes_points(&axes), 6);
    for (size_t i = 0; i < 6; i++)
        seen[mt_advise_axes_value(&axes, i, 0)][mt_advise_axes_value(&axes, i, 1)]++;
    for (size_t a = 0; a < 2; a++)
        for (size_t b = 0; b < 3; b++)
            assert_int_equal(seen[a][b], 1);
    assert_int_equal(mt_advise_axes_value(&axes, 1, 0), 0);
    assert_int_equal(mt_advise_axes_value(&axes, 1, 1), 1);
    mt_advise_axes_finish(&axes);
}

static void test_a_combination_becomes_settings(void **state)
{
    (void)state;
    struct mt_advise_axes axes = {0};
    struct mt_predict_settings s = {.batch = 77};
    assert_int_equal(mt_advise_axes_parse(&axes,
                                          "context=8k,ubatch=64,sequences=3,kv-type=q8_0,"
                                          "flash-attn=off,gpu-layers=0,all,cpu-moe=5",
                                          NULL),
                     0);
    mt_advise_axes_apply(&axes, 1, &s);
    assert_int_equal(s.context_tokens, 8192);
    assert_int_equal(s.ubatch, 64);
    assert_int_equal(s.sequences, 3);
    assert_string_equal(s.kv_type_k, "q8_0");
    assert_string_equal(s.kv_type_v, "q8_0");
    assert_int_equal(s.flash_attention, MT_SWITCH_OFF);
    assert_int_equal(s.has_gpu_layers, 1);
    assert_true(s.gpu_layers == MT_ALL);
    assert_int_equal(s.cpu_moe_layers, 5);
    assert_int_equal(s.batch, 77);
    mt_advise_axes_apply(&axes, 0, &s);
    assert_int_equal(s.gpu_layers, 0);
    mt_advise_axes_finish(&axes);
    assert_int_equal(mt_advise_axes_parse(&axes, "batch=256,512", NULL), 0);
    mt_advise_axes_apply(&axes, 1, &s);
    assert_int_equal(s.batch, 512);
    assert_int_equal(s.ubatch, 64);
    mt_advise_axes_finish(&axes);
}

static void test_nonsense_is_refused(void **state)
{
    (void)state;
    assert_refused("", "settings with values");
    assert_refused("2k", "settings with values");
    assert_refused("contxt=2k", "not 'contxt'");
    assert_refused("context=", "values");
    assert_refused("context=2k,", "values");
    assert_refused("context=0", "above 0");
    assert_refused("context=0..8", "ranges");
    assert_refused("context=8k..2k", "ranges");
    assert_refused("context=2k..", "ranges");
    assert_refused("context=..2k", "ranges");
    assert_refused("context=2k...4k", "ranges");
    assert_refused("context=-1", "numbers");
    assert_refused("context=99999999999999999999", "numbers");
    assert_refused("context=4096m", "numbers");
    assert_refused("flash-attn=maybe", "auto, on or off");
    assert_refused("gpu-layers=some", "numbers");
}

static void test_too_many_combinations_are_refused(void **state)
{
    (void)state;
    char text[8192] = "context=1";
    for (int i = 2; i <= 200; i++)
        sprintf(text + strlen(text), ",%d", i);
    strcat(text, ",ubatch=1");
    for (int i = 2; i <= 200; i++)
        sprintf(text + strlen(text), ",%d", i);
    assert_refused(text, "more than 20000 combinations");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_range_doubles_up_to_its_end),
        cmocka_unit_test(test_values_belong_to_the_key_before_them),
        cmocka_unit_test(test_every_combination_comes_once_and_the_last_key_changes_fastest),
        cmocka_unit_test(test_a_combination_becomes_settings),
        cmocka_unit_test(test_nonsense_is_refused),
        cmocka_unit_test(test_too_many_combinations_are_refused),
    };
    return RUN_TESTS(tests);
}
