/* SPDX-License-Identifier: MIT */
/* Words for a shell, which a real one is asked about, and the command lines of engines by their
 * manuals. */
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

#include <memtally/predict.h>

#include "cli/document/document.h"
#include "cli/document/shell.h"

/* What sh makes of the quoted word. */
static void assert_shell_reads_back(const char *word)
{
    struct mt_strbuf out = {0};
    char read[256];
    mt_strbuf_puts(&out, "printf %s ");
    cli_put_shell_word(&out, word);
    FILE *shell = popen(mt_strbuf_text(&out), "r");
    assert_non_null(shell);
    size_t n = fread(read, 1, sizeof read - 1, shell);
    read[n] = '\0';
    assert_int_equal(pclose(shell), 0);
    assert_string_equal(read, word);
    mt_strbuf_finish(&out);
}

static void test_a_shell_reads_every_word_back(void **state)
{
    (void)state;
    assert_shell_reads_back("");
    assert_shell_reads_back("it's");
    assert_shell_reads_back("'''");
    assert_shell_reads_back("$HOME `id` \"x\" \\ ; rm -r * #");
    assert_shell_reads_back("two\nlines");
    assert_shell_reads_back("~/a&b|c<d>e(f){g}[h]!");
}

static void test_plain_words_stay_as_they_are(void **state)
{
    struct mt_strbuf out = {0};
    (void)state;
    cli_put_shell_word(&out, "/models/a-b_c.Q4_K_M.gguf:0,1=x@y+z%");
    assert_string_equal(mt_strbuf_text(&out), "/models/a-b_c.Q4_K_M.gguf:0,1=x@y+z%");
    mt_strbuf_finish(&out);
}

/* The command of an engine for a model at `path`. */
static const char *command_of(const char *engine, const char *path, const char *flags,
                              enum mt_program program, int is_converted)
{
    static struct mt_strbuf out;
    struct mt_estimate estimate = {
        .tally = {.engine_name = engine}, .settings = {.program = program}, .flags = flags};
    struct cli_document_model model = {.path = path, .is_converted = is_converted};
    struct cli_document document = {.estimate = &estimate, .model = &model};
    mt_strbuf_finish(&out);
    out = (struct mt_strbuf){0};
    cli_put_engine_command(&out, &document);
    return mt_strbuf_text(&out);
}

static void test_programs_of_llama_cpp_take_the_file(void **state)
{
    (void)state;
    assert_string_equal(command_of("llama.cpp", "m.gguf", "-ngl 99", MT_PROGRAM_SERVER, 0),
                        "llama-server -m m.gguf -ngl 99");
    assert_string_equal(command_of("llama.cpp", "a b/m.gguf", "-ngl 99", MT_PROGRAM_BENCH, 0),
                        "llama-bench -m 'a b/m.gguf' -ngl 99");
    /* A folder of safetensors is no file that llama.cpp loads. */
    assert_string_equal(command_of("llama.cpp", "m/", "-ngl 99", MT_PROGRAM_SERVER, 1),
                        "llama-server -m MODEL.gguf -ngl 99");
    assert_string_equal(
        command_of("llama.cpp", "q\"\\.gguf", "createContext()", MT_PROGRAM_NODE, 0),
        "const model = await llama.loadModel({modelPath: \"q\\\"\\\\.gguf\"}); "
        "const context = await model.createContext()");
}

static void test_engines_on_pytorch_take_the_folder(void **state)
{
    static const char flags[] = "--max-model-len 4096";
    (void)state;
    assert_string_equal(command_of("vllm", "org/model/config.json", flags, MT_PROGRAM_SERVER, 0),
                        "vllm serve org/model --max-model-len 4096");
    assert_string_equal(command_of("vllm", "config.json", flags, MT_PROGRAM_SERVER, 0),
                        "vllm serve . --max-model-len 4096");
    assert_string_equal(command_of("sglang", "org/model", flags, MT_PROGRAM_SERVER, 0),
                        "python -m sglang.launch_server --model-path org/model "
                        "--max-model-len 4096");
    assert_string_equal(command_of("transformers", "my \"model\"/model.safetensors",
                                   "device_map=auto dtype=float16", MT_PROGRAM_SERVER, 0),
                        "AutoModelForCausalLM.from_pretrained(\"my \\\"model\\\"\", "
                        "device_map=auto, dtype=float16)");
}

/* TabbyAPI is told the folder that models lie in, and the model's name there. */
static void test_exllamav3_takes_the_folder_above_and_the_name(void **state)
{
    (void)state;
    assert_string_equal(
        command_of("exllamav3", "/models/a/config.json", "-x", MT_PROGRAM_SERVER, 0),
        "python main.py --model-dir /models --model-name a -x");
    assert_string_equal(command_of("exllamav3", "a", "-x", MT_PROGRAM_SERVER, 0),
                        "python main.py --model-dir . --model-name a -x");
}

static void test_without_flags_there_is_no_command(void **state)
{
    (void)state;
    assert_string_equal(command_of("vllm", "m", "", MT_PROGRAM_SERVER, 0), "");
    assert_string_equal(command_of("vllm", "m", NULL, MT_PROGRAM_SERVER, 0), "");
}

static void test_lines_of_a_shell_go_on_after_a_backslash(void **state)
{
    struct mt_estimate estimate = {.tally = {.engine_name = "llama.cpp"}};
    struct cli_document document = {.estimate = &estimate};
    (void)state;
    assert_string_equal(cli_engine_command_goes_on(&document), " \\");
    estimate.settings.program = MT_PROGRAM_NODE;
    assert_string_equal(cli_engine_command_goes_on(&document), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_shell_reads_every_word_back),
        cmocka_unit_test(test_plain_words_stay_as_they_are),
        cmocka_unit_test(test_programs_of_llama_cpp_take_the_file),
        cmocka_unit_test(test_engines_on_pytorch_take_the_folder),
        cmocka_unit_test(test_exllamav3_takes_the_folder_above_and_the_name),
        cmocka_unit_test(test_without_flags_there_is_no_command),
        cmocka_unit_test(test_lines_of_a_shell_go_on_after_a_backslash),
    };
    return RUN_TESTS(tests);
}
