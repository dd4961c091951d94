/* SPDX-License-Identifier: MIT */
/* Every format of a document, against the files beside this one. With MEMTALLY_GOLDEN=rewrite in
 * the environment the files are written instead; look at what changed before you keep it. */
#include "tests/support/unit.h"

#include <memtally/units.h>

#include "cli/document/document.h"
#include "emit/text.h"
#include "sample_estimate.h"
#include "sample_tally.h"

#include <jansson.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct cli_terminal ascii = {.columns = 80};
static const struct cli_terminal unicode = {.columns = 80, .utf8 = 1};

static const struct cli_document_run runs[] = {
    {1, 1, 900, 300, 600, 523 * MIB, 16, 1, 16, MT_UNKNOWN},
    {2, 0, 812.5, 250, 562.5, 522 * MIB, 16, 1, 16, MT_UNKNOWN},
    {3, 0, 790, 245, 545, 521 * MIB, 16, 1, 16, MT_UNKNOWN},
    {4, 0, 850, -1, -1, MT_UNKNOWN, 16, 1, 16, MT_UNKNOWN},
};

static const struct cli_document_phase phases[] = {
    {"load", 0, 1500000000, 440 * MIB},
    {"prefill", 1500000000, 1750000000, 520 * MIB},
    {"decode", 1750000000, MT_UNKNOWN, MT_UNKNOWN},
};

static struct cli_document recorded(void)
{
    struct cli_document document = CLI_DOCUMENT_EMPTY;
    document.tally = &sample_tally;
    document.timeline = sample_timeline;
    document.n_timeline = sizeof sample_timeline / sizeof *sample_timeline;
    document.damage = &sample_damage;
    return document;
}

static struct cli_document profiled(void)
{
    struct cli_document document = recorded();
    document.runs = runs;
    document.n_runs = sizeof runs / sizeof *runs;
    document.phases = phases;
    document.n_phases = sizeof phases / sizeof *phases;
    return document;
}

static char *read_golden(const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("%s is not there; write it with MEMTALLY_GOLDEN=rewrite", path);
    char *text = calloc(1, 65536);
    assert_non_null(text);
    size_t length = fread(text, 1, 65535, file);
    assert_true(length < 65535);
    fclose(file);
    return text;
}

static void write_golden(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static void assert_golden(const struct mt_strbuf *out, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", GOLDEN_DIR, name);
    const char *golden = getenv("MEMTALLY_GOLDEN");
    if (golden && strcmp(golden, "rewrite") == 0)
        write_golden(path, mt_strbuf_text(out));
    char *expected = read_golden(path);
    assert_string_equal(mt_strbuf_text(out), expected);
    free(expected);
}

static void assert_renders(const struct cli_document *document, enum cli_format format,
                           const struct cli_terminal *terminal, const char *name)
{
    struct mt_strbuf out = {0};
    struct mt_error error;
    assert_int_equal(cli_document_render(document, format, terminal, &out, &error), 0);
    assert_golden(&out, name);
    mt_strbuf_finish(&out);
}

static void test_a_recording_in_every_format(void **state)
{
    (void)state;
    struct cli_document document = recorded();
    assert_renders(&document, CLI_FORMAT_TABLE, &ascii, "recording.table");
    assert_renders(&document, CLI_FORMAT_JSON, &ascii, "recording.json");
    assert_renders(&document, CLI_FORMAT_CSV, &ascii, "recording.csv");
    document.stacks = &sample_stacks;
    assert_renders(&document, CLI_FORMAT_TABLE, &unicode, "recording.utf8.table");
    assert_renders(&document, CLI_FORMAT_FOLDED, &ascii, "recording.folded");
}

/* What a program marked, with what was resident by the last look before; not what memtally marked
 * itself, which are phases. */
static void test_marks_of_a_program_are_in_the_table(void **state)
{
    (void)state;
    static const struct mt_timeline_point timeline[] = {{1000000000, 64 * MIB},
                                                        {2000000000, 96 * MIB}};
    static const struct mt_recording_mark marks[] = {
        {500000000, 41, "start"}, {1500000000, 41, "epoch 1"}, {1600000000, 0, "decode"}};
    struct cli_document document = recorded();
    struct mt_strbuf out = {0};
    document.timeline = timeline;
    document.n_timeline = 2;
    document.marks = marks;
    document.n_marks = 3;
    assert_int_equal(cli_document_render(&document, CLI_FORMAT_TABLE, &ascii, &out, NULL), 0);
    const char *text = mt_strbuf_text(&out);
    assert_non_null(strstr(text, "mark     process      at   resident\n"
                                 "start         41  500 ms          ?\n"
                                 "epoch 1       41  1.50 s  64.00 MiB\n"));
    assert_null(strstr(text, "decode"));
    mt_strbuf_finish(&out);
}

/* Threads that live when their process exits or calls exec leave a block open each. */
static void test_blocks_of_processes_that_exited_are_not_called_unfinished(void **state)
{
    (void)state;
    static const struct mt_recording_damage open_only = {.blocks_open = 3};
    struct mt_tally_process processes[] = {sample_processes[0], sample_processes[1]};
    struct mt_tally tally = sample_tally;
    struct cli_document document = recorded();
    tally.processes = &processes[0];
    tally.n_processes = 1;
    tally.other_processes = &processes[1];
    tally.n_other_processes = 1;
    document.tally = &tally;
    document.damage = &open_only;
    static const struct {
        const char *end;
        int is_unfinished;
    } cases[] = {{"exited 0", 0},          {"exited 3", 0}, {"replaced by exec", 0},
                 {"killed by SIGKILL", 1}, {"running", 1},  {"end not recorded", 1}};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        struct mt_strbuf out = {0};
        processes[0].end = i % 2 ? "exited 0" : cases[i / 2].end;
        processes[1].end = i % 2 ? cases[i / 2].end : "exited 0";
        assert_int_equal(cli_document_render(&document, CLI_FORMAT_TABLE, &ascii, &out, NULL), 0);
        int is_told = strstr(mt_strbuf_text(&out), "unfinished   3 blocks") != NULL;
        mt_strbuf_finish(&out);
        assert_int_equal(is_told, cases[i / 2].is_unfinished);
    }
}

static void test_a_profile_in_every_format(void **state)
{
    (void)state;
    struct cli_document document = profiled();
    struct cli_document_settings settings = CLI_SETTINGS_UNKNOWN;
    settings.context_tokens = 2048;
    settings.prompt_tokens = 64;
    settings.generated_tokens = 16;
    settings.kv_type_k = "f16";
    const struct cli_document_model model = {"m.gguf",  "smollm-135m", "llama", "f16",
                                             134515008, 240 * MIB,     30,      2048};
    document.settings = &settings;
    document.model = &model;
    assert_renders(&document, CLI_FORMAT_TABLE, &ascii, "profile.table");
    assert_renders(&document, CLI_FORMAT_JSON, &ascii, "profile.json");
    assert_renders(&document, CLI_FORMAT_CSV, &ascii, "profile.csv");
}

static struct cli_document planned(const struct mt_estimate *estimate)
{
    static const struct cli_document_model model = {"m.gguf",  "smollm-135m", "llama", "f16",
                                                    134515008, 240 * MIB,     30,      2048};
    struct cli_document document = CLI_DOCUMENT_EMPTY;
    document.tally = &estimate->tally;
    document.estimate = estimate;
    document.model = &model;
    return document;
}

static void test_an_estimate_in_every_format(void **state)
{
    (void)state;
    struct cli_document document = planned(&sample_estimate);
    assert_renders(&document, CLI_FORMAT_TABLE, &ascii, "estimate.table");
    document.explain = 1;
    assert_renders(&document, CLI_FORMAT_JSON, &ascii, "estimate.json");
    assert_renders(&document, CLI_FORMAT_CSV, &ascii, "estimate.csv");
    assert_renders(&document, CLI_FORMAT_TABLE, &unicode, "estimate.explained.table");
}

static void test_an_estimate_of_an_engine_with_a_budget(void **state)
{
    (void)state;
    struct mt_estimate estimate = sample_estimate;
    const struct cli_document_answer answer = {.goal = "max_context",
                                               .what = "tokens of context",
                                               .value = 4096,
                                               .limit = "the model was not trained for more"};
    struct cli_document document = planned(&estimate);
    document.answer = &answer;
    estimate.pool = sample_pool;
    assert_renders(&document, CLI_FORMAT_TABLE, &ascii, "estimate.pool.table");
    assert_renders(&document, CLI_FORMAT_JSON, &ascii, "estimate.pool.json");
}

/* The table of an estimate of `place` alone, with `pool`. */
static void assert_table_has(const struct mt_tally_place *place,
                             const struct mt_estimate_pool *pool, const char *has,
                             const char * not )
{
    struct mt_estimate estimate = sample_estimate;
    estimate.tally.places = place;
    estimate.tally.n_places = 1;
    estimate.pool = *pool;
    estimate.settings.sequences = 256;
    struct cli_document document = planned(&estimate);
    struct mt_strbuf out = {0};
    assert_int_equal(cli_document_render(&document, CLI_FORMAT_TABLE, &ascii, &out, NULL), 0);
    if (!strstr(mt_strbuf_text(&out), has))
        fail_msg("%s is not in: %s", has, mt_strbuf_text(&out));
    assert_null(strstr(mt_strbuf_text(&out), not ));
    mt_strbuf_finish(&out);
}

static void test_a_pool_of_states_has_no_tokens(void **state)
{
    (void)state;
    struct mt_tally_row row = {.category = MT_CATEGORY_RECURRENT_STATE,
                               .allocated_bytes = MIB,
                               .low_bytes = MIB,
                               .high_bytes = MIB};
    const struct mt_tally_place place = {
        .place = "gpu:0", .capacity_bytes = MT_UNKNOWN, .n_rows = 1, .rows = &row};
    struct mt_estimate_pool pool = sample_pool;
    pool.bytes_per_token = 0;
    pool.concurrency = 7944;
    assert_table_has(&place, &pool, "of 7944 sequences, however long they are; 256 are run at once",
                     "tokens at once");
    pool.concurrency = 100;
    assert_table_has(&place, &pool, "of 100 sequences, however long they are\n", "each 0 B");
}

/* 1.125 and 1.375 GiB are 1.12 and 1.38 in the table, not 1.13. Rows of several units are added up
 * in MiB. */
static void test_the_sum_is_in_the_unit_of_its_rows_and_contradicts_none(void **state)
{
    (void)state;
    struct mt_tally_row rows[] = {
        {.category = MT_CATEGORY_WEIGHTS, .allocated_bytes = 1152 * MIB},
        {.category = MT_CATEGORY_KV_CACHE, .allocated_bytes = 1408 * MIB},
    };
    struct mt_tally_place place = {.place = "gpu:0",
                                   .capacity_bytes = MT_UNKNOWN,
                                   .total_allocated_bytes = 2560 * MIB,
                                   .n_rows = 2,
                                   .rows = rows};
    const struct mt_estimate_pool none = {.present = 0};
    assert_table_has(&place, &none, "weights 1.12 + kv_cache 1.38 = 2.50 (", "1.13");
    rows[0].allocated_bytes -= 1000 * MIB;
    place.total_allocated_bytes -= 1000 * MIB;
    assert_table_has(&place, &none, "weights 152.00 + kv_cache 1408.00 = 1560.00 (", "GiB)");
}

/* 0.125 KiB thrice: each row is shown as 0.12 more than a whole number, and the total as 0.38. */
static void test_what_rounding_leaves_is_a_term_of_the_sum(void **state)
{
    (void)state;
    struct mt_tally_row rows[] = {
        {.category = MT_CATEGORY_WEIGHTS, .allocated_bytes = 8 * 1024 + 128},
        {.category = MT_CATEGORY_KV_CACHE, .allocated_bytes = 4 * 1024 + 128},
        {.category = MT_CATEGORY_ACTIVATIONS, .allocated_bytes = 2 * 1024 + 128},
    };
    const struct mt_tally_place place = {.place = "gpu:0",
                                         .capacity_bytes = MT_UNKNOWN,
                                         .total_allocated_bytes = 14 * 1024 + 384,
                                         .n_rows = 3,
                                         .rows = rows};
    const struct mt_estimate_pool none = {.present = 0};
    assert_table_has(&place, &none,
                     "weights 8.12 + kv_cache 4.12 + activations 2.12 + rounding 0.02 =\n"
                     "             14.38 (",
                     "14.36");
}

/* How many digits stand before `at`. */
static size_t strspn_back(const char *first, const char *at)
{
    size_t n = 0;
    while (at - n > first && at[-(ptrdiff_t)n - 1] >= '0' && at[-(ptrdiff_t)n - 1] <= '9')
        n++;
    return n;
}

/* Reads the printed equation of a place as a reader would, with the figures of its terms. */
static void assert_equation_adds_up(const char *text)
{
    const char *at = strstr(text, "\nsum ");
    while (at) {
        double sum = 0;
        const char *end = strchr(at, '=');
        assert_non_null(end);
        for (const char *c = at; c < end; c++)
            if (*c == '.')
                sum += strtod(c - strspn_back(at, c), NULL);
        assert_true(sum - strtod(end + 1, NULL) < 0.001 && strtod(end + 1, NULL) - sum < 0.001);
        at = strstr(end, "\nsum ");
    }
}

static void test_the_printed_sum_of_an_estimate_adds_up(void **state)
{
    (void)state;
    struct cli_document document = planned(&sample_estimate);
    struct mt_strbuf out = {0};
    assert_int_equal(cli_document_render(&document, CLI_FORMAT_TABLE, &ascii, &out, NULL), 0);
    assert_equation_adds_up(mt_strbuf_text(&out));
    mt_strbuf_finish(&out);
}

static void test_a_summary_has_categories_only(void **state)
{
    (void)state;
    struct cli_document document = recorded();
    struct mt_strbuf out = {0};
    cli_document_summary(&document, &ascii, &out);
    assert_golden(&out, "recording.summary");
    mt_strbuf_finish(&out);
}

static void test_all_details_of_a_row_can_be_shown(void **state)
{
    (void)state;
    struct cli_document document = recorded();
    struct mt_strbuf out = {0};
    document.details_shown = 0;
    assert_int_equal(cli_document_render(&document, CLI_FORMAT_TABLE, &ascii, &out, NULL), 0);
    for (size_t i = 4; i < sizeof sample_runtime / sizeof *sample_runtime; i++)
        assert_non_null(strstr(mt_strbuf_text(&out), sample_runtime[i].name));
    assert_null(strstr(mt_strbuf_text(&out), " more "));
    mt_strbuf_finish(&out);
}

static void assert_no_line_is_wider_than(const char *text, size_t columns)
{
    while (*text) {
        size_t length = strcspn(text, "\n");
        char line[1024];
        assert_true(length < sizeof line);
        memcpy(line, text, length);
        line[length] = '\0';
        if (mt_text_columns(line) > columns)
            fail_msg("%zu columns: %s", mt_text_columns(line), line);
        text += length + 1;
    }
}

static void test_no_estimate_is_wider_than_the_terminal(void **state)
{
    (void)state;
    struct mt_estimate estimate = sample_estimate;
    struct cli_document document = planned(&estimate);
    estimate.pool = sample_pool;
    document.explain = 1;
    for (int columns = 56; columns <= 80; columns += 4) {
        struct mt_strbuf out = {0};
        const struct cli_terminal terminal = {.columns = columns, .utf8 = columns == 80};
        assert_int_equal(cli_document_render(&document, CLI_FORMAT_TABLE, &terminal, &out, NULL),
                         0);
        assert_no_line_is_wider_than(mt_strbuf_text(&out), (size_t)columns);
        mt_strbuf_finish(&out);
    }
}

static void test_nothing_is_wider_than_the_terminal(void **state)
{
    (void)state;
    struct cli_document document = profiled();
    for (int columns = 40; columns <= 80; columns += 4) {
        document.stacks = columns < 72 ? NULL : &sample_stacks;
        struct mt_strbuf out = {0};
        const struct cli_terminal terminal = {.columns = columns, .utf8 = columns == 80};
        assert_int_equal(cli_document_render(&document, CLI_FORMAT_TABLE, &terminal, &out, NULL),
                         0);
        assert_no_line_is_wider_than(mt_strbuf_text(&out), (size_t)columns);
        mt_strbuf_finish(&out);
    }
}

static void test_a_narrow_table_keeps_its_names(void **state)
{
    (void)state;
    struct cli_document document = recorded();
    struct mt_strbuf out = {0};
    const struct cli_terminal terminal = {.columns = 42};
    cli_document_summary(&document, &terminal, &out);
    assert_non_null(strstr(mt_strbuf_text(&out), "\nhost           allocated    resident\n"
                                                 "weights       440.00 MiB  440.00 MiB\n"));
    assert_non_null(strstr(mt_strbuf_text(&out), "\nunattributed                1.00 MiB\n"));
    mt_strbuf_finish(&out);
}

/* The document as a reader of JSON sees it. */
static json_t *as_json(const struct cli_document *document)
{
    struct mt_strbuf out = {0};
    assert_int_equal(cli_document_render(document, CLI_FORMAT_JSON, &ascii, &out, NULL), 0);
    json_t *root = json_loads(mt_strbuf_text(&out), JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    mt_strbuf_finish(&out);
    return root;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void test_rows_and_unattributed_add_up_in_the_json(void **state)
{
    (void)state;
    struct cli_document document = recorded();
    json_t *root = as_json(&document);
    const json_t *place = json_array_get(json_object_get(root, "places"), 0);
    const json_t *row;
    size_t index;
    double sum = number(place, "unattributed_bytes");
    json_array_foreach(json_object_get(place, "rows"), index, row) sum +=
        number(row, "resident_bytes");
    assert_true(sum == number(place, "total_resident_bytes"));
    assert_true(sum == 545259520);
    json_decref(root);
}

static void test_the_profilers_breakdown_adds_up_to_its_total(void **state)
{
    (void)state;
    struct cli_document document = recorded();
    json_t *root = as_json(&document);
    const json_t *breakdown = json_object_get(root, "memory_breakdown");
    double parts = number(breakdown, "model_weights_gb") + number(breakdown, "kv_cache_gb") +
                   number(breakdown, "activations_gb") + number(breakdown, "framework_overhead_gb");
    assert_true(number(breakdown, "model_weights_gb") == 0.46137344);
    assert_true(parts > 0.545259519 && parts < 0.545259521);
    assert_true(number(breakdown, "total_gb") == 0.54525952);
    json_decref(root);
}

static void test_unknown_is_null_and_never_zero(void **state)
{
    (void)state;
    struct cli_document document = recorded();
    json_t *root = as_json(&document);
    const json_t *child = json_array_get(json_object_get(root, "processes"), 1);
    assert_true(json_is_null(json_object_get(child, "swap_bytes")));
    assert_true(json_is_null(json_object_get(child, "peak_caught_bytes")));
    assert_true(json_is_null(json_object_get(json_object_get(root, "settings"), "batch")));
    const json_t *machine = json_object_get(root, "machine");
    assert_true(json_is_null(json_object_get(machine, "pressure_full_avg10_percent")));
    assert_true(number(machine, "swap_used_bytes") == 0);
    json_decref(root);
}

static void test_the_spread_leaves_warm_ups_and_unknowns_out(void **state)
{
    (void)state;
    struct cli_document document = profiled();
    struct cli_spread latency = cli_document_spread(&document, CLI_FIGURE_LATENCY);
    assert_int_equal(latency.n, 3);
    assert_true(latency.least == 790 && latency.median == 812.5 && latency.most == 850);
    struct cli_spread prefill = cli_document_spread(&document, CLI_FIGURE_PREFILL);
    assert_int_equal(prefill.n, 2);
    assert_true(prefill.median == 247.5);
    document.n_runs = 1;
    struct cli_spread none = cli_document_spread(&document, CLI_FIGURE_PEAK);
    assert_int_equal(none.n, 0);
    assert_true(none.median < 0);
}

static void test_folded_needs_stacks(void **state)
{
    (void)state;
    struct cli_document document = recorded();
    struct mt_strbuf out = {0};
    struct mt_error error;
    assert_int_equal(cli_document_render(&document, CLI_FORMAT_FOLDED, &ascii, &out, &error),
                     MT_ENOTFOUND);
    assert_non_null(strstr(error.text, "--stacks"));
    assert_int_equal(out.length, 0);
    mt_strbuf_finish(&out);
}

static const char *const no_stack_frame[] = {"[no stack]"};
static const struct mt_stack_entry no_stack_entries[] = {
    {200 * MIB, 1, 1, 3, sample_frames, NULL},
    {3 * MIB, 77, 0, 1, no_stack_frame, NULL},
};

static char *as_text(const struct cli_document *document, enum cli_format format)
{
    struct mt_strbuf out = {0};
    assert_int_equal(cli_document_render(document, format, &ascii, &out, NULL), 0);
    return mt_strbuf_take(&out);
}

static void test_stacks_that_were_not_taken_are_not_called_broken(void **state)
{
    (void)state;
    struct cli_document document = recorded();
    const struct mt_stack_list none = {0, 1, &no_stack_entries[1]};
    struct mt_strbuf out = {0};
    document.stacks = &none;
    char *table = as_text(&document, CLI_FORMAT_TABLE);
    assert_non_null(strstr(table, "the recording has no call stacks; record with --stacks fp\n"));
    assert_null(strstr(table, "could not be followed"));
    assert_int_equal(cli_document_render(&document, CLI_FORMAT_FOLDED, &ascii, &out, NULL),
                     MT_ENOTFOUND);
    free(table);
    mt_strbuf_finish(&out);
}

static void test_a_stack_that_was_not_taken_stands_beside_others(void **state)
{
    (void)state;
    struct cli_document document = recorded();
    const struct mt_stack_list some = {0, 2, no_stack_entries};
    document.stacks = &some;
    char *table = as_text(&document, CLI_FORMAT_TABLE);
    char *folded = as_text(&document, CLI_FORMAT_FOLDED);
    assert_non_null(strstr(table, "3.00 MiB in 77 blocks (without call stacks)\n"));
    assert_non_null(strstr(folded, "\n[no stack] 3145728\n"));
    free(table);
    free(folded);
}

static void test_bytes_are_whole_in_the_json(void **state)
{
    (void)state;
    struct cli_document document = profiled();
    json_t *root = as_json(&document);
    const json_t *spread = json_object_get(json_object_get(root, "spread"), "peak_memory_bytes");
    assert_int_equal(json_integer_value(json_object_get(spread, "least")), 521 * MIB);
    assert_int_equal(json_integer_value(json_object_get(spread, "median")), 521 * MIB + MIB / 2);
    assert_int_equal(json_integer_value(json_object_get(spread, "most")), 522 * MIB);
    json_decref(root);
}

static void test_the_tallys_engine_and_model_stand_in_for_a_profiles(void **state)
{
    (void)state;
    struct cli_document document = recorded();
    json_t *root = as_json(&document);
    const json_t *engine = json_object_get(root, "engine");
    const json_t *model = json_object_get(root, "model_info");
    assert_string_equal(json_string_value(json_object_get(engine, "name")), "llama.cpp");
    assert_string_equal(json_string_value(json_object_get(engine, "version")), "b11434");
    assert_true(json_is_null(json_object_get(engine, "table")));
    assert_string_equal(json_string_value(json_object_get(model, "model_name")),
                        sample_tally.model_path);
    json_decref(root);
}

static void test_several_processes_have_no_share_that_was_missed(void **state)
{
    (void)state;
    struct cli_document document = recorded();
    struct mt_tally one = sample_tally;
    char *several = as_text(&document, CLI_FORMAT_TABLE);
    assert_non_null(
        strstr(several, "520.00 MiB shown, shared pages once; 521.00 MiB the largest "));
    assert_null(strstr(several, "missed"));
    one.n_processes = 1;
    document.tally = &one;
    char *alone = as_text(&document, CLI_FORMAT_TABLE);
    assert_non_null(strstr(alone, "520.00 MiB caught of 521.00 MiB (VmHWM), 0.19 % missed"));
    free(several);
    free(alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_recording_in_every_format),
        cmocka_unit_test(test_marks_of_a_program_are_in_the_table),
        cmocka_unit_test(test_blocks_of_processes_that_exited_are_not_called_unfinished),
        cmocka_unit_test(test_a_profile_in_every_format),
        cmocka_unit_test(test_an_estimate_in_every_format),
        cmocka_unit_test(test_an_estimate_of_an_engine_with_a_budget),
        cmocka_unit_test(test_a_pool_of_states_has_no_tokens),
        cmocka_unit_test(test_the_sum_is_in_the_unit_of_its_rows_and_contradicts_none),
        cmocka_unit_test(test_what_rounding_leaves_is_a_term_of_the_sum),
        cmocka_unit_test(test_the_printed_sum_of_an_estimate_adds_up),
        cmocka_unit_test(test_a_summary_has_categories_only),
        cmocka_unit_test(test_all_details_of_a_row_can_be_shown),
        cmocka_unit_test(test_no_estimate_is_wider_than_the_terminal),
        cmocka_unit_test(test_nothing_is_wider_than_the_terminal),
        cmocka_unit_test(test_a_narrow_table_keeps_its_names),
        cmocka_unit_test(test_rows_and_unattributed_add_up_in_the_json),
        cmocka_unit_test(test_the_profilers_breakdown_adds_up_to_its_total),
        cmocka_unit_test(test_unknown_is_null_and_never_zero),
        cmocka_unit_test(test_the_spread_leaves_warm_ups_and_unknowns_out),
        cmocka_unit_test(test_folded_needs_stacks),
        cmocka_unit_test(test_stacks_that_were_not_taken_are_not_called_broken),
        cmocka_unit_test(test_a_stack_that_was_not_taken_stands_beside_others),
        cmocka_unit_test(test_bytes_are_whole_in_the_json),
        cmocka_unit_test(test_the_tallys_engine_and_model_stand_in_for_a_profiles),
        cmocka_unit_test(test_several_processes_have_no_share_that_was_missed),
    };
    setlocale(LC_CTYPE, "C.UTF-8");
    return RUN_TESTS(tests);
}
