/* SPDX-License-Identifier: MIT */
/* A rehearsal as people read it. What is expected are the sentences of memtally-rehearse(1): which
 * lines stand together, what is one sum, and what a program that goes on or ends looks like. */
#include "drive/rehearsed.h"
#include "tests/support/unit.h"

#include <memtally/rehearsal_events.h>
#include <memtally/tally.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <memtally/units.h>

#include "cli/document/internal.h"

#define MIB    (UINT64_C(1) << 20)
#define GIB    (UINT64_C(1) << 30)
#define SECOND UINT64_C(1000000000)

static const struct cli_terminal wide = {.columns = 200, .utf8 = 1};
static char program[] = "llama-server", flag[] = "-m", model[] = "a model.gguf";
static char *const argv[] = {program, flag, model, NULL};

static const struct mt_tally_row rows[] = {
    {.category = MT_CATEGORY_WEIGHTS, .allocated_bytes = 3 * GIB},
    {.category = MT_CATEGORY_KV_CACHE, .allocated_bytes = 512 * MIB},
};
static const struct mt_tally_place places[] = {
    {.place = "host", .capacity_bytes = MT_UNKNOWN},
    {.place = "gpu:0", .capacity_bytes = 4 * GIB, .n_rows = 2, .rows = rows},
    {.place = "gpu:1", .capacity_bytes = 100 * MIB},
};
static const struct mt_tally tally = {.n_places = 3, .places = places};
static const struct mt_rehearsal_event refusal = {.place = "gpu:0",
                                                  .category = MT_CATEGORY_ACTIVATIONS,
                                                  .bytes = 600 * MIB,
                                                  .free_bytes = 512 * MIB,
                                                  .name = "CUDA0",
                                                  .detail = ""};

static struct mt_rehearsed rehearsed(void)
{
    return (struct mt_rehearsed){.argv = argv,
                                 .outcome = "ran",
                                 .ran = 1,
                                 .complaint = "",
                                 .words = "",
                                 .exit_code = -1,
                                 .elapsed_ns = 12 * SECOND};
}

/* The text that a function writes of a rehearsal; the caller finishes it. */
static struct mt_strbuf told(const struct mt_rehearsed *rehearsal,
                             void (*tell)(const struct cli_document *document,
                                          const struct cli_terminal *terminal,
                                          struct mt_strbuf *out))
{
    struct cli_document document = CLI_DOCUMENT_EMPTY;
    struct mt_strbuf out = {0};
    document.tally = &tally;
    document.rehearsal = rehearsal;
    tell(&document, &wide, &out);
    return out;
}

static int lines_with(const struct mt_strbuf *text, const char *word)
{
    int n = 0;
    for (const char *at = strstr(mt_strbuf_text(text), word); at; at = strstr(at, word)) {
        n++;
        at += strcspn(at, "\n");
    }
    return n;
}

static void assert_has(const struct mt_strbuf *text, const char *words)
{
    if (!strstr(mt_strbuf_text(text), words))
        fail_msg("no '%s' in:\n%s", words, mt_strbuf_text(text));
}

static void assert_has_not(const struct mt_strbuf *text, const char *words)
{
    if (strstr(mt_strbuf_text(text), words))
        fail_msg("'%s' in:\n%s", words, mt_strbuf_text(text));
}

static void test_the_command_is_what_a_shell_would_take(void **state)
{
    struct mt_rehearsed it = rehearsed();
    struct mt_strbuf text = told(&it, cli_table_rehearsal);
    (void)state;
    assert_has(&text, "llama-server -m 'a model.gguf'");
    assert_has(&text, "ended by memtally after 12");
    assert_has_not(&text, "served");
    assert_has_not(&text, "coped");
    assert_has_not(&text, "would fit");
    mt_strbuf_finish(&text);
}

static void test_how_a_program_ended_is_said(void **state)
{
    struct mt_rehearsed it = rehearsed();
    (void)state;
    it.ran = 0;
    it.exit_code = 3;
    struct mt_strbuf text = told(&it, cli_table_rehearsal);
    assert_has(&text, "exited with status 3");
    mt_strbuf_finish(&text);
    it.signal = SIGSEGV;
    text = told(&it, cli_table_rehearsal);
    assert_has(&text, "killed by signal 11");
    assert_has(&text, strsignal(SIGSEGV));
    mt_strbuf_finish(&text);
}

static void test_requests_are_counted_and_what_failed_is_shown(void **state)
{
    struct mt_rehearsed it = rehearsed();
    (void)state;
    it.is_ready = 1;
    it.n_requests = 1;
    struct mt_strbuf text = told(&it, cli_table_rehearsal);
    assert_has(&text, "ready; 1 request\n");
    mt_strbuf_finish(&text);
    it.n_requests = 9;
    it.n_requests_refused = 2;
    it.prompt_tokens = 32768;
    it.complaint = "the context is full";
    text = told(&it, cli_table_rehearsal);
    assert_has(&text, "ready; 9 requests, the longest prompt of 32768 tokens; 2 answered");
    assert_has(&text, "context is full\n");
    mt_strbuf_finish(&text);
}

static void test_a_program_that_went_on_with_less_coped(void **state)
{
    struct mt_rehearsed it = rehearsed();
    (void)state;
    it.refusal = &refusal;
    it.n_refusals = 3;
    it.held = &tally;
    it.stack = "forward < generate";
    struct mt_strbuf text = told(&it, cli_table_rehearsal);
    assert_has(&text, "3 allocations did not fit, the last of 600.00 MiB at gpu:0 (CUDA0)");
    assert_has_not(&text, "held then");
    assert_has_not(&text, "asked by");
    mt_strbuf_finish(&text);
    it.ran = 0;
    text = told(&it, cli_table_rehearsal);
    assert_has_not(&text, "coped");
    assert_has(&text, "weights 3.00 GiB, kv_cache 512.00 MiB, 512.00 MiB free");
    assert_has(&text, "forward < generate");
    mt_strbuf_finish(&text);
}

static void test_changes_say_what_they_cost_and_what_would_be_held(void **state)
{
    const struct mt_rehearsed_change changes[] = {
        {.flags = "-ctk q8_0",
         .instead_of = "-ctk f16",
         .costs = "a less exact cache",
         .options = "--kv-type q8_0",
         .held_bytes = 3 * GIB,
         .capacity_bytes = 4 * GIB},
        {.flags = "-ngl 20", .instead_of = "", .held_bytes = MT_UNKNOWN},
    };
    struct mt_rehearsed it = rehearsed();
    (void)state;
    it.ran = 0;
    it.changes = changes;
    it.n_changes = 2;
    it.n_tried = 1;
    struct mt_strbuf text = told(&it, cli_table_rehearsal);
    assert_has(&text, "-ctk q8_0 (--kv-type q8_0) instead of -ctk f16: a less exact cache; would");
    assert_has(&text, "hold 3.00 GiB");
    assert_has(&text, "of 4.00 GiB\n");
    assert_has(&text, "-ngl 20\n");
    assert_int_equal(lines_with(&text, "would fit"), 1);
    assert_has(&text, "1 change of flags was rehearsed");
    mt_strbuf_finish(&text);
}

/* Twelve lines of output at the most, without what moves a terminal's cursor. */
static void test_a_program_that_failed_has_its_last_output_shown(void **state)
{
    struct mt_rehearsed it = rehearsed();
    struct mt_strbuf words = {0};
    (void)state;
    for (int i = 0; i < 30; i++)
        mt_strbuf_printf(&words, "line %02d\x1b[2J\n", i);
    it.words = mt_strbuf_text(&words);
    struct mt_strbuf text = told(&it, cli_table_rehearsal);
    assert_has_not(&text, "line ");
    mt_strbuf_finish(&text);
    it.ran = 0;
    text = told(&it, cli_table_rehearsal);
    assert_has(&text, "line 29");
    assert_has(&text, "line 18");
    assert_has_not(&text, "line 17");
    assert_has_not(&text, "\x1b");
    assert_int_equal(lines_with(&text, "line "), 12);
    mt_strbuf_finish(&text);
    mt_strbuf_finish(&words);
}

static struct mt_rehearsed_late late_of(uint64_t bytes, const char *place, const char *step)
{
    return (struct mt_rehearsed_late){.time_ns = 5 * SECOND,
                                      .step = step,
                                      .place = place,
                                      .category = MT_CATEGORY_ACTIVATIONS,
                                      .name = "CUDA0",
                                      .detail = "",
                                      .bytes = bytes};
}

static void test_what_follows_and_is_alike_is_one_line(void **state)
{
    const struct mt_rehearsed_late late[] = {
        late_of(20 * MIB, "gpu:0", "request 1: long"),
        late_of(30 * MIB, "gpu:0", "request 1: long"),
        late_of(40 * MIB, "gpu:0", "request 2: many"),
        late_of(50 * MIB, "gpu:0", "request 1: long"),
    };
    struct mt_rehearsed it = rehearsed();
    (void)state;
    it.late = late;
    it.n_late = 4;
    struct mt_strbuf text = told(&it, cli_table_rehearsal_late);
    assert_has(&text, "2 times activations CUDA0");
    assert_has(&text, "+50.00 MiB");
    assert_has(&text, "+40.00 MiB");
    assert_int_equal(lines_with(&text, "+50.00 MiB"), 2);
    assert_has_not(&text, "3 times");
    assert_has(&text, "many");
    assert_has_not(&text, "request 2:");
    mt_strbuf_finish(&text);
}

/* Below 16 MiB, or below 1 % of a small place; gpu:1 has 100 MiB. */
static void test_what_is_small_is_one_sum(void **state)
{
    struct mt_rehearsed_late late[] = {
        late_of(16 * MIB - 1, "gpu:0", "a"), late_of(MIB - 1, "gpu:1", "b"),
        late_of(MIB, "gpu:1", "c"),          late_of(16 * MIB, "host", "d"),
        late_of(16 * MIB - 1, "host", "e"),
    };
    struct mt_rehearsed it = rehearsed();
    (void)state;
    it.late = late;
    it.n_late = 5;
    struct mt_strbuf text = told(&it, cli_table_rehearsal_late);
    assert_int_equal(lines_with(&text, "activations CUDA0"), 2);
    assert_has(&text, "+1.00 MiB");
    assert_has(&text, "+16.00 MiB");
    assert_has(&text, "3 small blocks of 33.00 MiB together");
    mt_strbuf_finish(&text);
    it.n_late = 1;
    text = told(&it, cli_table_rehearsal_late);
    assert_has(&text, "taken late");
    assert_has(&text, "1 small block of 16.00 MiB together");
    mt_strbuf_finish(&text);
}

/* What was freed again is for JSON; of what grew counts the growth; a refusal is always shown. */
static void test_only_growth_that_stayed_and_refusals_are_shown(void **state)
{
    struct mt_rehearsed_late late[] = {
        late_of(900 * MIB, "gpu:0", "freed"),
        late_of(700 * MIB, "gpu:0", "grew"),
        late_of(500 * MIB, "gpu:0", "shrank"),
        late_of(4096, "gpu:0", "refused"),
    };
    struct mt_rehearsed it = rehearsed();
    (void)state;
    late[0].was_freed = 1;
    late[1].ready_bytes = 400 * MIB;
    late[2].ready_bytes = 600 * MIB;
    late[3].was_refused = 1;
    it.late = late;
    it.n_late = 4;
    struct mt_strbuf text = told(&it, cli_table_rehearsal_late);
    assert_int_equal(lines_with(&text, "activations CUDA0"), 2);
    assert_has(&text, "+300.00 MiB");
    assert_has(&text, "refused 4.00 KiB");
    assert_has_not(&text, "900.00 MiB");
    assert_has_not(&text, "shrank");
    mt_strbuf_finish(&text);
}

static void test_twenty_lines_are_shown_and_the_rest_is_counted(void **state)
{
    static char steps[25][16];
    struct mt_rehearsed_late late[25];
    struct mt_rehearsed it = rehearsed();
    (void)state;
    for (int i = 0; i < 25; i++) {
        snprintf(steps[i], sizeof steps[i], "step %d", i);
        late[i] = late_of(20 * MIB, "gpu:0", steps[i]);
    }
    it.late = late;
    it.n_late = 25;
    struct mt_strbuf text = told(&it, cli_table_rehearsal_late);
    assert_int_equal(lines_with(&text, "+20.00 MiB"), 20);
    assert_has(&text, "and 5 more; --json has them all");
    mt_strbuf_finish(&text);
}

#define PHASE(NAME, DEVICE, BEGIN, PEAK, END)                                                      \
    {                                                                                              \
        .device = DEVICE, .name = NAME, .begin_ns = 2 * SECOND, .begin_bytes = BEGIN,              \
        .peak_bytes = PEAK, .end_bytes = END                                                       \
    }

/* For each name and device the most that one of them kept, and that one of them had over what was
 * there when it began. */
static void test_phases_of_a_name_are_one_line_for_each_device(void **state)
{
    const struct mt_rehearsal_phase phases[] = {
        PHASE("load_model", 0, 10 * MIB, 40 * MIB, 30 * MIB),
        PHASE("load_model", 0, 100 * MIB, 105 * MIB, 104 * MIB),
        PHASE("load_model", 1, 0, 7 * MIB, 6 * MIB),
        PHASE("profile", 0, 50 * MIB, 50 * MIB, 20 * MIB),
    };
    struct mt_rehearsed it = rehearsed();
    (void)state;
    it.phases = phases;
    it.n_phases = 4;
    struct mt_strbuf text = told(&it, cli_table_rehearsal_phases);
    assert_int_equal(lines_with(&text, "load_model"), 2);
    assert_int_equal(lines_with(&text, "load_model (2 times)"), 1);
    assert_has(&text, "30.00 MiB"); /* 40 over 10 */
    assert_has(&text, "20.00 MiB"); /* 30 over 10 */
    assert_has(&text, "7.00 MiB");
    assert_int_equal(lines_with(&text, "profile"), 1);
    assert_int_equal(lines_with(&text, " 0 B"), 1); /* what is given back is nothing that is kept */
    assert_has_not(&text, "PyTorch counts");
    assert_has_not(&text, "more");
    mt_strbuf_finish(&text);
}

static void test_what_pytorch_counts_is_told_to_the_byte(void **state)
{
    const struct mt_rehearsal_allocator allocators[] = {
        {.pid = 4711,
         .place = "gpu:0",
         .max_allocated_bytes = 1234567891,
         .max_reserved_bytes = GIB + 1},
    };
    const struct mt_rehearsal_figure figures[] = {
        {.name = "weights", .value = 14.99, .unit = "GiB"},
        {.name = "KV cache", .value = 1234567, .unit = "tokens"},
    };
    struct mt_rehearsed it = rehearsed();
    (void)state;
    it.allocators = allocators;
    it.n_allocators = 1;
    it.figures = figures;
    it.n_figures = 2;
    struct mt_strbuf text = told(&it, cli_table_rehearsal_phases);
    assert_has(&text, "gpu:0, process 4711");
    assert_has(&text, "1234567891 (1.15 GiB)");
    assert_has(&text, "1073741825 (1.00 GiB)");
    assert_has(&text, "weights 14.99 GiB\n");
    assert_has(&text, "KV cache 1234567 tokens\n");
    assert_int_equal(lines_with(&text, "engine said"), 1);
    mt_strbuf_finish(&text);
}

static void test_phases_and_figures_past_the_24th_are_counted(void **state)
{
    static char names[30][16];
    struct mt_rehearsal_phase phases[31] = {{0}};
    struct mt_rehearsal_figure figures[25] = {{0}};
    struct mt_rehearsed it = rehearsed();
    (void)state;
    for (unsigned i = 0; i < 31; i++) {
        snprintf(names[i % 30], sizeof names[0], "phase-%02u", i % 30);
        phases[i].name = names[i % 30];
    }
    for (size_t i = 0; i < 25; i++)
        figures[i] = (struct mt_rehearsal_figure){.name = "figure", .unit = "GiB"};
    it.phases = phases;
    it.n_phases = 31;
    it.figures = figures;
    it.n_figures = 25;
    struct mt_strbuf text = told(&it, cli_table_rehearsal_phases);
    assert_int_equal(lines_with(&text, "phase-"), 24);
    assert_has(&text, "phase-00 (2 times)");
    assert_has(&text, "and 6 more phases; --json has them all");
    assert_has(&text, "and 1 more figure; --json has them all");
    mt_strbuf_finish(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_command_is_what_a_shell_would_take),
        cmocka_unit_test(test_how_a_program_ended_is_said),
        cmocka_unit_test(test_requests_are_counted_and_what_failed_is_shown),
        cmocka_unit_test(test_a_program_that_went_on_with_less_coped),
        cmocka_unit_test(test_changes_say_what_they_cost_and_what_would_be_held),
        cmocka_unit_test(test_a_program_that_failed_has_its_last_output_shown),
        cmocka_unit_test(test_what_follows_and_is_alike_is_one_line),
        cmocka_unit_test(test_what_is_small_is_one_sum),
        cmocka_unit_test(test_only_growth_that_stayed_and_refusals_are_shown),
        cmocka_unit_test(test_twenty_lines_are_shown_and_the_rest_is_counted),
        cmocka_unit_test(test_phases_of_a_name_are_one_line_for_each_device),
        cmocka_unit_test(test_what_pytorch_counts_is_told_to_the_byte),
        cmocka_unit_test(test_phases_and_figures_past_the_24th_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
