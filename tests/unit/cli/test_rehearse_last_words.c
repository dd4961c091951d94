/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "drive/last_words.h"

#include <string.h>

static void assert_last(const char *said, const char *expected)
{
    char text[320];
    assert_int_equal(mt_drive_last_line(said, text, sizeof text), *expected != '\0');
    assert_string_equal(text, expected);
}

/* As vLLM 0.11 to 0.19 ends where a worker fails: the worker's traceback, marked by the process and
 * the logger, then two processes that only point to it. */
static void test_the_cause_stands_behind_the_marks_of_a_worker(void **state)
{
    (void)state;
    assert_last(
        "(Worker_TP0 pid=71) ERROR 11-14 09:28:21 [multiproc_executor.py:600] WorkerProc failed to "
        "start.\n"
        "(Worker_TP0 pid=71) ERROR 11-14 09:28:21 [multiproc_executor.py:600] Traceback (most "
        "recent call last):\n"
        "(Worker_TP0 pid=71) ERROR 11-14 09:28:21 [multiproc_executor.py:600]   File \"w.py\", "
        "line 1, in init\n"
        "(Worker_TP0 pid=71) ERROR 11-14 09:28:21 [multiproc_executor.py:600] ValueError: heads "
        "are not divisible\n"
        "(EngineCore_DP0 pid=21) Exception: WorkerProc initialization failed due to an exception "
        "in a background process. See stack trace for root cause.\n"
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core "
        "proc(s): {}\n",
        "ValueError: heads are not divisible");
}

static void test_what_only_follows_serves_where_there_is_nothing_else(void **state)
{
    (void)state;
    assert_last("starting\nBrokenPipeError: [Errno 32] Broken pipe\nbye\n",
                "BrokenPipeError: [Errno 32] Broken pipe");
    assert_last("[rank0]: ValueError: first\nConnectionResetError: later\n", "ValueError: first");
    assert_last("[2026-11-02 12:00:01 TP0] Scheduler hit an exception\n\n",
                "Scheduler hit an exception");
    assert_last("", "");
}

static void test_a_bar_of_progress_is_no_last_word(void **state)
{
    (void)state;
    assert_last("cannot go on\nLoading shards:   0% Completed | 0/2 [00:00<?, ?it/s]\r"
                "Loading shards:  50% Completed | 1/2 [00:00<00:00,  3.10it/s]\n",
                "cannot go on");
    assert_last("  0%|          | 0/3\r100%|####| 3/3 [00:01]\rOSError: disk\n", "OSError: disk");
}

static void test_pydantic_says_it_in_the_next_line(void **state)
{
    (void)state;
    assert_last("pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
                "  Value error, the model has no tokenizer\n    For further information\n",
                "pydantic_core.ValidationError: 1 validation error for ModelConfig: Value error, "
                "the model has no tokenizer");
}

static void test_frames_of_memtally_and_bars_are_left_out(void **state)
{
    (void)state;
    char text[] = "Traceback (most recent call last):\n"
                  "  File \"/x/engines/rehearse_vllm.py\", line 9, in main\n"
                  "    run()\n"
                  "    ^^^^^\n"
                  "  File \"/x/site-packages/vllm/llm.py\", line 5, in generate\n"
                  "    step()\n"
                  "  File \"/x/memtally/pretend/integers.py\", line 7, in dispatch\n"
                  "    return f(*a)\n"
                  "  File \"/x/site-packages/torch/op.py\", line 3, in call\n"
                  "    raise ValueError\n"
                  " 10%|#   | 1/9\r 20%|##  | 2/9\n"
                  "ValueError: no\n";
    mt_drive_clean_words(text);
    assert_string_equal(text, "Traceback (most recent call last):\n"
                              "  File \"/x/site-packages/vllm/llm.py\", line 5, in generate\n"
                              "    step()\n"
                              "  File \"/x/site-packages/torch/op.py\", line 3, in call\n"
                              "    raise ValueError\n"
                              "ValueError: no\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_cause_stands_behind_the_marks_of_a_worker),
        cmocka_unit_test(test_what_only_follows_serves_where_there_is_nothing_else),
        cmocka_unit_test(test_a_bar_of_progress_is_no_last_word),
        cmocka_unit_test(test_pydantic_says_it_in_the_next_line),
        cmocka_unit_test(test_frames_of_memtally_and_bars_are_left_out),
    };
    return RUN_TESTS(tests);
}
