/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include <string.h>

#include "drive/running.h"

/* Arguments are written with '|' behind each. */
static const char *engine_of(const char *arguments)
{
    static char name[32];
    char bytes[256];
    size_t n = strlen(arguments);
    memcpy(bytes, arguments, n);
    for (size_t i = 0; i < n; i++)
        if (bytes[i] == '|')
            bytes[i] = '\0';
    mt_drive_running_engine(bytes, n, name);
    return name;
}

static void test_engines_are_known_by_program_script_module_and_title(void **state)
{
    (void)state;
    assert_string_equal(engine_of("/usr/bin/llama-server|-m|x.gguf|"), "llama.cpp");
    assert_string_equal(engine_of("/usr/bin/python3|/opt/bin/vllm|serve|m|"), "vllm");
    assert_string_equal(engine_of("python|-m|vllm.entrypoints.openai.api_server|"), "vllm");
    assert_string_equal(engine_of("VLLM::EngineCore|"), "vllm");
    assert_string_equal(engine_of("python|-m|sglang.launch_server|--model-path|m|"), "sglang");
    assert_string_equal(engine_of("sglang::scheduler_TP0|"), "sglang");
    assert_string_equal(engine_of("/usr/local/bin/ollama|serve"), "ollama");
}

static void test_others_are_not(void **state)
{
    (void)state;
    assert_string_equal(engine_of(""), "");
    assert_string_equal(engine_of("||||"), "");
    assert_string_equal(engine_of("vim|llama-server.c|"), "");
    assert_string_equal(engine_of("my-llama-server|"), "");
    assert_string_equal(engine_of("sglang:|"), "");
    assert_string_equal(engine_of("a|b|c|d|e|f|g|llama-server|"), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engines_are_known_by_program_script_module_and_title),
        cmocka_unit_test(test_others_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
