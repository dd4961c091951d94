/* SPDX-License-Identifier: MIT */
/* Flags in command lines: found as llama.cpp finds them, changed where they stand. */
#include "tests/support/unit.h"

#include "drive/flags.h"

#include <stdio.h>
#include <string.h>

/* The words with blanks between them. */
static const char *line_of(const struct mt_drive_command *command)
{
    static char line[512];
    line[0] = '\0';
    for (size_t i = 0; i < command->n_words; i++)
        snprintf(line + strlen(line), sizeof line - strlen(line), "%s%s", i ? " " : "",
                 command->words[i]);
    assert_null(command->words[command->n_words]);
    return line;
}

/* A command line of words without blanks in them. */
static struct mt_drive_command parse(const char *line)
{
    char text[512];
    char *words[64] = {0};
    size_t n = 0;
    struct mt_drive_command command;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        words[n++] = word;
    mt_drive_command_copy(words, &command);
    return command;
}

static void assert_value(const char *line, enum mt_drive_flag flag, const char *value)
{
    struct mt_drive_command command = parse(line);
    const char *found = mt_drive_flag_value(&command, NULL, flag);
    if (value)
        assert_string_equal(found, value);
    else
        assert_null(found);
    mt_drive_command_finish(&command);
}

static void assert_set(const char *line, enum mt_drive_flag flag, const char *value,
                       const char *after)
{
    struct mt_drive_command command = parse(line);
    mt_drive_flag_set(&command, flag, value);
    assert_int_equal(command.failed, 0);
    assert_string_equal(line_of(&command), after);
    mt_drive_command_finish(&command);
}

static void assert_dropped(const char *line, enum mt_drive_flag flag, const char *after)
{
    struct mt_drive_command command = parse(line);
    mt_drive_flag_drop(&command, flag);
    assert_string_equal(line_of(&command), after);
    mt_drive_command_finish(&command);
}

static void test_values_are_found_in_every_spelling(void **state)
{
    (void)state;
    assert_value("llama-server -c 4096", MT_DRIVE_CONTEXT, "4096");
    assert_value("llama-server --ctx-size 4096", MT_DRIVE_CONTEXT, "4096");
    assert_value("llama-server --ctx_size 4096", MT_DRIVE_CONTEXT, "4096");
    assert_value("llama-server --ctx-size=4096", MT_DRIVE_CONTEXT, "4096");
    assert_value("llama-server --gpu-layers 9", MT_DRIVE_GPU_LAYERS, "9");
    assert_value("llama-server -ngl -1", MT_DRIVE_GPU_LAYERS, "-1");
    assert_value("llama-server -cmoe -c 1", MT_DRIVE_ALL_CPU_EXPERTS, "1");
}

static void test_the_last_value_counts(void **state)
{
    (void)state;
    assert_value("llama-server -c 1 --ctx-size 2 -ub 3", MT_DRIVE_CONTEXT, "2");
}

static void test_a_flag_that_only_begins_alike_is_another(void **state)
{
    (void)state;
    assert_value("llama-server -ctk q8_0 -cram 5", MT_DRIVE_CONTEXT, NULL);
    assert_value("llama-server --ctx-size-draft 5", MT_DRIVE_CONTEXT, NULL);
    assert_value("llama-server -c=5", MT_DRIVE_CONTEXT, NULL);
}

static void test_a_value_is_no_flag(void **state)
{
    (void)state;
    assert_value("llama-server -m -c", MT_DRIVE_CONTEXT, NULL);
    assert_value("llama-server -ctk f16 -c 7", MT_DRIVE_CONTEXT, "7");
    assert_value("llama-server -fa -c 7", MT_DRIVE_CONTEXT, "7");
    assert_value("llama-server -fa -c 7", MT_DRIVE_FLASH_ATTENTION, NULL);
}

static void test_variables_count_where_no_flag_is_given(void **state)
{
    char context[] = "LLAMA_ARG_CTX_SIZE=2048";
    char other[] = "LLAMA_ARG_CTX_SIZE_DRAFT=1";
    char *environment[] = {other, context, NULL};
    struct mt_drive_command without = parse("llama-server -m x");
    struct mt_drive_command with = parse("llama-server -c 512");
    struct mt_drive_command bench = parse("llama-bench -m x");
    (void)state;
    assert_string_equal(mt_drive_flag_value(&without, environment, MT_DRIVE_CONTEXT), "2048");
    assert_string_equal(mt_drive_flag_value(&with, environment, MT_DRIVE_CONTEXT), "512");
    assert_null(mt_drive_flag_value(&bench, environment, MT_DRIVE_CONTEXT));
    mt_drive_command_finish(&without);
    mt_drive_command_finish(&with);
    mt_drive_command_finish(&bench);
}

static void test_a_changed_flag_keeps_its_place_and_spelling(void **state)
{
    (void)state;
    assert_set("llama-server -c 4096 -m x", MT_DRIVE_CONTEXT, "99", "llama-server -c 99 -m x");
    assert_set("llama-server --ctx-size=4096 -m x", MT_DRIVE_CONTEXT, "99",
               "llama-server --ctx-size=99 -m x");
    assert_set("llama-server --ctx_size 4096", MT_DRIVE_CONTEXT, "99",
               "llama-server --ctx_size 99");
    assert_set("llama-server -c 1 -c 2", MT_DRIVE_CONTEXT, "3", "llama-server -c 1 -c 3");
}

static void test_a_new_flag_comes_last_by_its_short_name(void **state)
{
    (void)state;
    assert_set("llama-server -m x", MT_DRIVE_GPU_LAYERS, "20", "llama-server -m x -ngl 20");
    assert_set("llama-server -fa -m x", MT_DRIVE_FLASH_ATTENTION, "on", "llama-server -fa on -m x");
}

static void test_dropped_flags_go_wherever_they_stand(void **state)
{
    (void)state;
    assert_dropped("llama-server --api-key a -m x --api-key=b", MT_DRIVE_API_KEY,
                   "llama-server -m x");
    assert_dropped("llama-server --reuse-port -m x", MT_DRIVE_REUSE_PORT, "llama-server -m x");
    assert_dropped("vllm serve m --api-key a b --port 1", MT_DRIVE_API_KEY,
                   "vllm serve m --port 1");
    assert_dropped("vllm serve m --api-key a b", MT_DRIVE_API_KEY, "vllm serve m");
    assert_dropped("llama-server --api-key a b", MT_DRIVE_API_KEY, "llama-server b");
    assert_dropped("llama-cli --api-key a", MT_DRIVE_API_KEY, "llama-cli --api-key a");
}

static void test_the_program_is_found_behind_what_starts_it(void **state)
{
    struct mt_drive_command plain = parse("/opt/bin/llama-bench -m x");
    struct mt_drive_command behind = parse("env A=b nice -n 5 /opt/llama-server -m x");
    struct mt_drive_command unknown = parse("python3 -c pass");
    (void)state;
    assert_int_equal(plain.program, MT_DRIVE_BENCH);
    assert_int_equal(behind.program, MT_DRIVE_SERVER);
    assert_int_equal(behind.program_index, 5);
    assert_int_equal(unknown.program, MT_DRIVE_UNKNOWN_PROGRAM);
    assert_null(mt_drive_flag_value(&unknown, NULL, MT_DRIVE_CONTEXT));
    mt_drive_command_finish(&plain);
    mt_drive_command_finish(&behind);
    mt_drive_command_finish(&unknown);
}

static void test_flags_of_what_starts_it_are_not_the_programs(void **state)
{
    (void)state;
    assert_value("bash -c 7 llama-server -m x", MT_DRIVE_CONTEXT, NULL);
    assert_set("taskset -c 3 llama-server -c 1", MT_DRIVE_CONTEXT, "9",
               "taskset -c 3 llama-server -c 9");
}

static void test_numbers_are_whole_and_alone(void **state)
{
    (void)state;
    assert_int_equal(mt_drive_flag_number("512", 7), 512);
    assert_int_equal(mt_drive_flag_number("auto", 7), 7);
    assert_int_equal(mt_drive_flag_number("1,2", 7), 7);
    assert_int_equal(mt_drive_flag_number("-1", 7), 7);
    assert_int_equal(mt_drive_flag_number("99999999999999999999", 7), 7);
    assert_int_equal(mt_drive_flag_number(NULL, 7), 7);
}

/* docs.vllm.ai and docs.sglang.ai: how each starts its server, and how each spells its settings. */
static void test_engines_have_flags_of_their_own(void **state)
{
    static const struct {
        const char *line;
        const char *engine;
        const char *context;
    } servers[] = {{"vllm serve m --max-model-len 9", "vllm", "9"},
                   {"python -m vllm.entrypoints.openai.api_server --max-model-len=8", "vllm", "8"},
                   {"python -m sglang.launch_server --context-length 7", "sglang", "7"},
                   {"sglang serve --max-model-len 7", "sglang", NULL},
                   {"llama-server --context-length 7", "llama.cpp", NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof servers / sizeof *servers; i++) {
        struct mt_drive_command command = parse(servers[i].line);
        assert_string_equal(command.engine, servers[i].engine);
        assert_int_equal(command.program, MT_DRIVE_SERVER);
        mt_drive_command_finish(&command);
        assert_value(servers[i].line, MT_DRIVE_CONTEXT, servers[i].context);
    }
}

static void test_a_script_of_ours_needs_a_model_and_settings(void **state)
{
    struct mt_drive_command whole = parse("python /x/rehearse_vllm.py m {}");
    struct mt_drive_command cut = parse("python /x/rehearse_vllm.py m");
    (void)state;
    assert_int_equal(whole.program, MT_DRIVE_SCRIPT);
    assert_int_equal(whole.program_index, 1);
    assert_int_equal(cut.program, MT_DRIVE_UNKNOWN_PROGRAM);
    mt_drive_command_finish(&whole);
    mt_drive_command_finish(&cut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_found_in_every_spelling),
        cmocka_unit_test(test_the_last_value_counts),
        cmocka_unit_test(test_a_flag_that_only_begins_alike_is_another),
        cmocka_unit_test(test_a_value_is_no_flag),
        cmocka_unit_test(test_variables_count_where_no_flag_is_given),
        cmocka_unit_test(test_a_changed_flag_keeps_its_place_and_spelling),
        cmocka_unit_test(test_a_new_flag_comes_last_by_its_short_name),
        cmocka_unit_test(test_dropped_flags_go_wherever_they_stand),
        cmocka_unit_test(test_the_program_is_found_behind_what_starts_it),
        cmocka_unit_test(test_flags_of_what_starts_it_are_not_the_programs),
        cmocka_unit_test(test_numbers_are_whole_and_alone),
        cmocka_unit_test(test_engines_have_flags_of_their_own),
        cmocka_unit_test(test_a_script_of_ours_needs_a_model_and_settings),
    };
    return RUN_TESTS(tests);
}
