/* SPDX-License-Identifier: MIT */
/* Compute buffers of ik_llama.cpp and of older llama.cpp, against arithmetic. Published logs stand
 * in the conformance tests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "hand_model.h"

#define GIB (UINT64_C(1) << 30)

static const uint64_t two_cards[2] = {24 * GIB, 24 * GIB};

static void init_llama_8b(struct hand_model *hand)
{
    hand_model_init(hand, "llama", 32, 32, 8, 128);
    struct mt_model_description *d = &hand->model.description;
    d->embedding_length = 4096;
    d->vocabulary = 128256;
    for (int i = 0; i < 32; i++)
        hand->layers[i].ff_length = 14336;
    hand_model_tensor(hand, "output.weight", "q8_0", 4096, 128256, 0, MT_NO_LAYER,
                      MT_TENSOR_OUTPUT);
}

static struct mt_predict_settings server_of(const char *engine, size_t n_devices, uint64_t layers)
{
    return (struct mt_predict_settings){.engine = engine,
                                        .program = MT_PROGRAM_SERVER,
                                        .context_tokens = 4096,
                                        .batch = 2048,
                                        .ubatch = 512,
                                        .sequences = 1,
                                        .flash_attention = MT_SWITCH_ON,
                                        .has_gpu_layers = 1,
                                        .gpu_layers = layers,
                                        .mla_mode = MT_UNKNOWN,
                                        .device_bytes = two_cards,
                                        .n_devices = n_devices};
}

static struct mt_estimate_term buffer_at(const struct mt_estimate *estimate, const char *place)
{
    for (size_t i = 0; i < estimate->n_terms; i++)
        if (strstr(estimate->terms[i].rule, "compute_buffer") &&
            strcmp(estimate->terms[i].place, place) == 0)
            return estimate->terms[i];
    fail_msg("no compute buffer at %s", place);
    return estimate->terms[0];
}

/* From 32 rows on, work on a matrix in host memory is done on the first device: the matrix and what
 * it gives lie there for that time. */
static void test_logits_of_an_output_on_the_host_lie_on_the_device(void **state)
{
    (void)state;
    static struct hand_model hand;
    init_llama_8b(&hand);
    const uint64_t logits = UINT64_C(512) * 128256 * 4;
    const uint64_t matrix = UINT64_C(128256) * 4096 / 32 * 34;
    struct mt_predict_settings settings = server_of("ik_llama.cpp@3772", 1, 8);
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    assert_true(buffer_at(estimate, "gpu:0").bytes >= logits + matrix);
    assert_true(buffer_at(estimate, "host").bytes < logits);
    mt_estimate_destroy(estimate);
}

/* Where such a batch is too small nothing moves. */
static void test_logits_of_a_small_batch_stay_on_the_host(void **state)
{
    (void)state;
    static struct hand_model hand;
    init_llama_8b(&hand);
    struct mt_predict_settings settings = server_of("ik_llama.cpp@3772", 1, 8);
    settings.ubatch = 16;
    struct mt_estimate *estimate = hand_model_estimate(&hand, &settings);
    assert_true(buffer_at(estimate, "gpu:0").bytes < UINT64_C(16) * 128256 * 4);
    assert_true(buffer_at(estimate, "host").bytes >= UINT64_C(16) * 128256 * 4);
    mt_estimate_destroy(estimate);
}

/* A build with one copy of each input and one with four differ in nothing that a log shows: each
 * one's band holds the other. */
static void test_band_holds_either_number_of_copies(void **state)
{
    (void)state;
    static struct hand_model hand;
    init_llama_8b(&hand);
    struct mt_predict_settings settings = server_of("ik_llama.cpp@3872", 2, MT_ALL);
    struct mt_estimate *four = hand_model_estimate(&hand, &settings);
    settings.engine = "ik_llama.cpp@3873";
    struct mt_estimate *one = hand_model_estimate(&hand, &settings);
    assert_true(buffer_at(one, "host").bytes < buffer_at(four, "host").bytes);
    assert_true(buffer_at(one, "host").high_bytes >= buffer_at(four, "host").bytes);
    assert_true(buffer_at(four, "host").low_bytes <= buffer_at(one, "host").bytes);
    mt_estimate_destroy(four);
    mt_estimate_destroy(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_of_an_output_on_the_host_lie_on_the_device),
        cmocka_unit_test(test_logits_of_a_small_batch_stay_on_the_host),
        cmocka_unit_test(test_band_holds_either_number_of_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
