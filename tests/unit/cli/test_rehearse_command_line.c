/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include <memtally/settings.h>

#include "drive/command_line.h"

#include <stdlib.h>
#include <string.h>

/* As the rules of a build spell a run of which every setting has its default put in. */
#define ALL_FLAGS                                                                                  \
    "-c 4096 -b 2048 -ub 512 -np 4 --kv-unified -ctk f16 -ctv f16 -fa on -ngl 33 -sm layer "       \
    "-ts 3,1 --load-mode none -ot 'a b=CPU'"

static const uint64_t device_bytes[2] = {1u << 30, 1u << 30};

static struct mt_drive_line line_of(const struct mt_predict_settings *settings)
{
    return (struct mt_drive_line){.program = "/bin/llama-server",
                                  .model_path = "/m.gguf",
                                  .settings = settings,
                                  .flags = ALL_FLAGS,
                                  .port = 4321,
                                  .places_itself = 1};
}

static void assert_flags(const struct mt_predict_settings *settings, const char *expected)
{
    struct mt_drive_line line = line_of(settings);
    char *text = mt_drive_asked_flags(&line);
    assert_non_null(text);
    assert_string_equal(text, expected);
    free(text);
}

/* The words behind the model, joined by '|'. */
static void assert_words(const struct mt_predict_settings *settings, const char *expected)
{
    struct mt_drive_line line = line_of(settings);
    struct mt_profile_command command = {0};
    char joined[1024] = "";
    assert_int_equal(mt_drive_command_line(&line, &command, NULL), 0);
    assert_string_equal(command.words[0], "/bin/llama-server");
    assert_string_equal(command.words[1], "-m");
    assert_string_equal(command.words[2], "/m.gguf");
    for (size_t i = 3; i < command.n_words; i++) {
        strcat(joined, i > 3 ? "|" : "");
        strcat(joined, command.words[i]);
    }
    assert_string_equal(joined, expected);
    assert_null(command.words[command.n_words]);
    mt_profile_command_finish(&command);
}

static void test_what_was_left_open_is_left_to_the_engine(void **state)
{
    (void)state;
    const struct mt_predict_settings s = {.n_devices = 2, .device_bytes = device_bytes};
    assert_flags(&s, "-ts 3,1 --load-mode none");
}

static void test_what_was_asked_for_is_said(void **state)
{
    (void)state;
    const struct mt_predict_settings s = {.context_tokens = 4096,
                                          .batch = 2048,
                                          .ubatch = 512,
                                          .sequences = 4,
                                          .unified_kv = MT_SWITCH_ON,
                                          .kv_type_k = "f16",
                                          .kv_type_v = "f16",
                                          .flash_attention = MT_SWITCH_ON,
                                          .has_gpu_layers = 1,
                                          .n_devices = 2,
                                          .device_bytes = device_bytes};
    assert_flags(&s, "-c 4096 -b 2048 -ub 512 -np 4 --kv-unified -ctk f16 -ctv f16 -fa on -ngl 33 "
                     "-ts 3,1 --load-mode none");
}

static void test_overrides_are_one_word_and_name_devices_as_the_engine_does(void **state)
{
    (void)state;
    const struct mt_tensor_override overrides[] = {{"blk\\.[0-9] x", "CPU"}, {"exps", "1"}};
    const struct mt_predict_settings s = {.n_devices = 2,
                                          .device_bytes = device_bytes,
                                          .device_kind = "vulkan",
                                          .overrides = overrides,
                                          .n_overrides = 2};
    assert_words(&s, "--host|127.0.0.1|--no-webui|--no-warmup|-lv|4|--port|4321|-ts|3,1|"
                     "--load-mode|none|-ot|blk\\.[0-9] x=CPU,exps=Vulkan1");
}

static void test_the_fit_is_left_out_where_nothing_is_left_to_fit(void **state)
{
    (void)state;
    const struct mt_predict_settings fixed = {
        .context_tokens = 4096, .has_gpu_layers = 1, .n_devices = 2, .device_bytes = device_bytes};
    assert_words(&fixed,
                 "--host|127.0.0.1|--no-webui|--no-warmup|-lv|4|--port|4321|-c|4096|-ngl|33|"
                 "-ts|3,1|--load-mode|none|-fit|off");
}

static void test_bench_has_words_of_its_own(void **state)
{
    (void)state;
    const struct mt_predict_settings s = {.program = MT_PROGRAM_BENCH,
                                          .context_tokens = 8192,
                                          .sequences = 1,
                                          .has_gpu_layers = 1,
                                          .n_devices = 2,
                                          .device_bytes = device_bytes};
    assert_words(&s, "-r|1|-p|0|-n|0|--no-warmup|-v|-o|json|-pg|8064,128|-ngl|33|-ts|3,1|-lm|none");
}

/* Settings go to our program for it as JSON; layers that were left open are its own choice. */
static void test_node_is_told_by_our_program(void **state)
{
    static const uint64_t devices[] = {UINT64_C(1) << 30};
    struct mt_predict_settings s = {.program = MT_PROGRAM_NODE,
                                    .n_devices = 1,
                                    .device_bytes = devices,
                                    .context_tokens = 2048};
    (void)state;
    for (int all = 0; all < 2; all++) {
        struct mt_profile_command command = {0};
        struct mt_drive_line line = line_of(&s);
        line.script = "drive.mjs";
        line.modules = "/engines";
        s.has_gpu_layers = all;
        s.gpu_layers = MT_ALL;
        assert_int_equal(mt_drive_command_line(&line, &command, NULL), MT_OK);
        assert_int_equal(command.n_words, 3);
        assert_string_equal(command.words[1], "drive.mjs");
        assert_non_null(strstr(command.words[2], "\"modules\":\"/engines\""));
        assert_non_null(strstr(command.words[2], "\"context\":2048"));
        assert_non_null(
            strstr(command.words[2], all ? "\"gpu_layers\":\"max\"" : "\"gpu_layers\":\"auto\""));
        mt_profile_command_finish(&command);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_left_open_is_left_to_the_engine),
        cmocka_unit_test(test_what_was_asked_for_is_said),
        cmocka_unit_test(test_overrides_are_one_word_and_name_devices_as_the_engine_does),
        cmocka_unit_test(test_the_fit_is_left_out_where_nothing_is_left_to_fit),
        cmocka_unit_test(test_bench_has_words_of_its_own),
        cmocka_unit_test(test_node_is_told_by_our_program),
    };
    return RUN_TESTS(tests);
}
