/* SPDX-License-Identifier: MIT */
/* The records of families: found by name, and each fact that two parts of a record state is one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "model/architecture.h"
#include "model/families.h"
#include "model/gguf/family.h"
#include "model/hf/config.h"

static void test_a_family_is_found_by_its_whole_name(void **state)
{
    (void)state;
    for (int arch = 0; arch < MT_ARCH_UNKNOWN; arch++)
        assert_int_equal(mt_arch_of(mt_arch_name((enum mt_arch)arch)), arch);
    assert_int_equal(mt_arch_of("gemma3"), MT_ARCH_GEMMA3);
    assert_int_equal(mt_arch_of("gemma33"), MT_ARCH_UNKNOWN);
    assert_int_equal(mt_arch_of("gemm"), MT_ARCH_UNKNOWN);
    assert_int_equal(mt_arch_of(NULL), MT_ARCH_UNKNOWN);
    assert_null(mt_arch_name(MT_ARCH_UNKNOWN));
}

static void test_a_family_without_a_record_has_its_lineage(void **state)
{
    (void)state;
    assert_true(mt_is_of_lineage("gemma3n", MT_LINEAGE_GEMMA3));
    assert_true(mt_is_of_lineage("gemma17", MT_LINEAGE_GEMMA));
    assert_false(mt_is_of_lineage("gemma", MT_LINEAGE_GEMMA3));
    assert_false(mt_is_of_lineage("codegemma", MT_LINEAGE_GEMMA));
    assert_false(mt_is_of_lineage(NULL, MT_LINEAGE_GEMMA));
}

/* What files of GGUF do not say is not made up for a family that only another engine has. */
static void test_a_record_without_an_entry_knows_nothing_there(void **state)
{
    (void)state;
    assert_non_null(mt_family_of_gguf("llama"));
    assert_null(mt_family_of_gguf("bitnet-25"));
    assert_null(mt_family_of_gguf("clip"));
    assert_null(mt_family_of_gguf("no such family"));
}

/* The layers of a model are the same ones in config.json and in GGUF: where both readers say that
 * one of so many layers is global, they say the same of it. */
static void test_readers_agree_which_layers_have_windows(void **state)
{
    (void)state;
    static const char *const model_types[] = {
#define HF(id, model_type, norms, period, traits, defaults) model_type,
#include "model/families.def"
    };
    size_t compared = 0;
    for (size_t i = 0; i < sizeof model_types / sizeof *model_types; i++) {
        const struct mt_hf_family *hf = mt_hf_family_find(model_types[i], strlen(model_types[i]));
        assert_non_null(hf);
        const struct mt_family *gguf = mt_family_of_gguf(mt_arch_name(hf->arch));
        if (hf->period < 2 || !gguf || !gguf->period)
            continue;
        if (hf->period != gguf->period ||
            !(hf->traits & MT_HF_FIRST_IS_GLOBAL) != (gguf->window != MT_WINDOW_GLOBAL_FIRST))
            fail_msg("%s is not as %s is", model_types[i], mt_arch_name(hf->arch));
        compared++;
    }
    assert_true(compared > 8);
}

/* Norms and biases that a made model has are those that a published one of its family has. */
static void test_made_models_have_the_norms_of_published_ones(void **state)
{
    (void)state;
    static const struct {
        const char *model_type;
        enum mt_arch arch;
    } made[] = {
        {"llama", MT_ARCH_LLAMA},        {"qwen2", MT_ARCH_QWEN2},        {"qwen3", MT_ARCH_QWEN3},
        {"qwen3_moe", MT_ARCH_QWEN3MOE}, {"gemma3_text", MT_ARCH_GEMMA3},
    };
    static const unsigned traits[MT_ARCH_UNKNOWN] = {
#define SAMPLE(id, traits) [MT_ARCH_##id] = traits,
#include "model/families.def"
    };
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        const struct mt_hf_family *hf =
            mt_hf_family_find(made[i].model_type, strlen(made[i].model_type));
        unsigned own = traits[made[i].arch];
        assert_int_equal(!!(own & MT_TRAIT_QK_NORM), !!(hf->traits & MT_HF_QK_NORM));
        assert_int_equal(!!(own & MT_TRAIT_QKV_BIAS), !!(hf->traits & MT_HF_QKV_BIAS));
        assert_int_equal(own & MT_TRAIT_POST_NORMS ? 4 : 2, hf->norms);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_family_is_found_by_its_whole_name),
        cmocka_unit_test(test_a_family_without_a_record_has_its_lineage),
        cmocka_unit_test(test_a_record_without_an_entry_knows_nothing_there),
        cmocka_unit_test(test_readers_agree_which_layers_have_windows),
        cmocka_unit_test(test_made_models_have_the_norms_of_published_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
