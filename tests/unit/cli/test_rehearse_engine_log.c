/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "drive/engine_log.h"

#include <memtally/settings.h>
#include <memtally/units.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Lines of llama-server of build 11434, with and without its marks. */
static const char start[] = "0.00.101.000 I load_tensors: offloaded 20/33 layers to GPU\n"
                            "0.00.102.000 I llama_context: n_ctx                 = 4096\n"
                            "0.00.947.111 I load_tensors: offloaded 33/33 layers to GPU\n"
                            "0.00.949.480 I llama_context: n_seq_max             = 4\n"
                            "0.00.949.495 I llama_context: n_ctx                 = 8192\n"
                            "0.00.949.508 I llama_context: n_ctx_seq             = 2048\n"
                            "llama_context: n_batch               = 2048\n"
                            "llama_context: n_ubatch              = 512\n"
                            "0.00.949.564 I llama_context: flash_attn            = auto\n"
                            "0.00.949.578 I llama_context: kv_unified            = false\n"
                            "0.00.951.908 I resolve_fused_ops: Flash Attention enabled\n"
                            "0.09.960.968 I srv  llama_server: list";

static FILE *file_of(const char *text)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    fputs(text, file);
    fflush(file);
    return file;
}

static void test_decisions_are_read_and_the_last_counts(void **state)
{
    (void)state;
    struct mt_drive_log log;
    FILE *file = file_of(start);
    mt_drive_log_init(&log, fileno(file));
    mt_drive_log_read(&log);
    assert_int_equal(log.context_tokens, 8192);
    assert_int_equal(log.sequences, 4);
    assert_int_equal(log.batch, 2048);
    assert_int_equal(log.ubatch, 512);
    assert_int_equal(log.layers_on_devices, 33);
    assert_int_equal(log.layers, 33);
    assert_int_equal(log.flash_attention, MT_SWITCH_ON);
    assert_int_equal(log.unified, MT_SWITCH_OFF);
    assert_int_equal(log.is_ready, 0);
    fclose(file);
}

static void test_a_line_may_come_in_pieces(void **state)
{
    (void)state;
    struct mt_drive_log log;
    FILE *file = file_of(start);
    mt_drive_log_init(&log, fileno(file));
    mt_drive_log_read(&log);
    fputs("ening on http://127.0.0.1:18371\n", file);
    fflush(file);
    mt_drive_log_read(&log);
    assert_int_equal(log.is_ready, 1);
    fclose(file);
}

static void test_nonsense_says_nothing(void **state)
{
    (void)state;
    struct mt_drive_log log;
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    FILE *file = file_of("llama_context: n_ctx = many\noffloaded 3 layers to GPU\n n_ctx = 7\n");
    fputs(text, file);
    fputs("\nllama_context: n_batch =\n", file);
    fflush(file);
    mt_drive_log_init(&log, fileno(file));
    mt_drive_log_read(&log);
    assert_true(log.context_tokens == MT_UNKNOWN);
    assert_true(log.batch == MT_UNKNOWN);
    assert_true(log.layers == MT_UNKNOWN);
    fclose(file);
}

static void test_complaints_are_the_last_words(void **state)
{
    (void)state;
    struct mt_drive_log log;
    char words[256];
    FILE *file = file_of("0.01.517.550 E llama_model_load: error loading model: no such tensor\n"
                         "0.01.517.600 I srv: cleaning up\n"
                         "ggml-impl.h:330: fatal error\n"
                         "#0 0x00007 in wait4 ()\n");
    mt_drive_log_init(&log, fileno(file));
    mt_drive_log_read(&log);
    mt_drive_log_last_words(&log, words, sizeof words);
    assert_string_equal(words, "llama_model_load: error loading model: no such tensor / "
                               "ggml-impl.h:330: fatal error");
    fclose(file);
}

static void test_without_complaints_the_last_lines_are(void **state)
{
    (void)state;
    struct mt_drive_log log;
    char words[256];
    FILE *file = file_of("0.01.517.600 I one\ntwo\n");
    mt_drive_log_init(&log, fileno(file));
    mt_drive_log_read(&log);
    mt_drive_log_last_words(&log, words, sizeof words);
    assert_string_equal(words, "one / two");
    fclose(file);
}

/* 24 MiB at once, of which the end is read, and then 12 times 1 MiB, of which all is. */
static void test_a_flood_takes_little_of_the_disk_and_its_end_is_read(void **state)
{
    (void)state;
    static const char noise[] = "0.00.949.480 I words that nobody wants to read, over and over\n";
    struct mt_drive_log log;
    struct stat status;
    FILE *file = tmpfile();
    assert_non_null(file);
    mt_drive_log_init(&log, fileno(file));
    for (size_t written = 0; written < 24u << 20; written += sizeof noise - 1)
        fputs(noise, file);
    fputs("0.00.949.495 I llama_context: n_ctx = 8192\n", file);
    fflush(file);
    mt_drive_log_read(&log);
    assert_int_equal(log.context_tokens, 8192);
    assert_int_equal(fstat(fileno(file), &status), 0);
    assert_true(status.st_blocks * 512 < 1 << 20);
    for (int i = 0; i < 12; i++) {
        fputs("0.00.949.495 I llama_context: n_batch = 512\n", file);
        for (size_t written = 0; written < 1u << 20; written += sizeof noise - 1)
            fputs(noise, file);
        fflush(file);
        mt_drive_log_read(&log);
        assert_int_equal(log.batch, 512);
    }
    assert_int_equal(fstat(fileno(file), &status), 0);
    assert_true(status.st_blocks * 512 < 10 << 20);
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decisions_are_read_and_the_last_counts),
        cmocka_unit_test(test_a_line_may_come_in_pieces),
        cmocka_unit_test(test_nonsense_says_nothing),
        cmocka_unit_test(test_complaints_are_the_last_words),
        cmocka_unit_test(test_without_complaints_the_last_lines_are),
        cmocka_unit_test(test_a_flood_takes_little_of_the_disk_and_its_end_is_read),
    };
    return RUN_TESTS(tests);
}
