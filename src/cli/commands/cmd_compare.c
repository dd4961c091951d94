/* SPDX-License-Identifier: MIT */
/* memtally compare: two tallies, or a tally and a calculator's figures, against bands. */
#include <inttypes.h>
#include <memtally/error.h>
#include <memtally/model_file.h>
#include <memtally/predict.h>
#include <memtally/recording.h>
#include <memtally/residue.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/command.h"
#include "cli/compare/bands.h"
#include "cli/compare/output.h"
#include "cli/compare/side.h"
#include "cli/console.h"
#include "cli/cpu.h"
#include "cli/moment.h"
#include "cli/residue_store.h"
#include "cli/shared_options.h"
#include "cli/words.h"

struct compare_options {
    int format;
    const char *at;
    const char *band;
    int basis;
    int fail_over;
    int estimate;
    const char *model;
    const char *engine;
    int cpu;
    struct compare_figures calc;
    int calc_unit;
    int gb_is;
    int learn;
    int forget;
    int all;
    const char *output;
};

#define AT(member) offsetof(struct compare_options, member)

static const char *const basis_names[] = {"reserved", "resident", NULL};

static const struct cli_option compare_options[] = {
    {.name = "calc-weights",
     .kind = CLI_TEXT,
     .argument = "GB",
     .offset = AT(calc.text[MT_COMPONENT_WEIGHTS]),
     .help = "a calculator's figure for the weights, in the unit of --calc-unit"},
    {.name = "calc-kv",
     .kind = CLI_TEXT,
     .argument = "GB",
     .offset = AT(calc.text[MT_COMPONENT_KV_CACHE]),
     .help = "the same for the KV cache, with recurrent state"},
    {.name = "calc-activations",
     .kind = CLI_TEXT,
     .argument = "GB",
     .offset = AT(calc.text[MT_COMPONENT_ACTIVATIONS]),
     .help = "the same for activations"},
    {.name = "calc-overhead",
     .kind = CLI_TEXT,
     .argument = "GB",
     .offset = AT(calc.text[MT_COMPONENT_OVERHEAD]),
     .help = "the same for the framework's overhead; without it, the total less the other three"},
    {.name = "calc-total",
     .kind = CLI_TEXT,
     .argument = "GB",
     .offset = AT(calc.text[MT_COMPONENT_TOTAL]),
     .help = "the same for the total; without it, the sum of the four"},
    {.name = "calc-unit",
     .kind = CLI_CHOICE,
     .argument = "UNIT",
     .choices = compare_unit_names,
     .fallback = "GB",
     .offset = AT(calc_unit),
     .help = "what the figures of --calc are: GB are 10^9 bytes, GiB are 2^30"},
    {.name = "gb-is",
     .kind = CLI_CHOICE,
     .argument = "UNIT",
     .choices = compare_unit_names,
     .fallback = "GB",
     .offset = AT(gb_is),
     .help = "what the _gb figures in another profiler's file are"},
    {.name = "estimate",
     .letter = 'e',
     .kind = CLI_FLAG,
     .offset = AT(estimate),
     .help = "compare with an estimate made now, with the model, engine and settings of the "
             "recording; if there are two operands, the first is the model"},
    {.name = "model",
     .letter = 'm',
     .kind = CLI_FILE,
     .argument = "MODEL",
     .offset = AT(model),
     .help = "the model to estimate, if it has moved"},
    {.name = "engine",
     .kind = CLI_TEXT,
     .argument = "NAME[@VERSION]",
     .offset = AT(engine),
     .words = cli_words_engines,
     .help = "the engine to estimate, if the recording does not name it or its version"},
    {.name = "cpu",
     .kind = CLI_CHOICE,
     .argument = "KIND",
     .choices = cli_cpus,
     .fallback = "here",
     .offset = AT(cpu),
     .help = "the processor to estimate for, if it is not this machine's and the recording's "
             "buffers do not tell"},
    CLI_OPTION_AT(AT(at), "the moment of a recording, as report --at takes it: peak, heap-peak, "
                          "weights-peak and the like, steady, exit, or a time since its start"),
    {.name = "basis",
     .kind = CLI_CHOICE,
     .argument = "BASIS",
     .choices = basis_names,
     .fallback = "reserved",
     .offset = AT(basis),
     .help = "compare what the engine reserved, or what is resident"},
    {.name = "band",
     .letter = 'b',
     .kind = CLI_TEXT,
     .argument = "LIST",
     .offset = AT(band),
     .help = "other bands than weights=2%,kv=15%,activations=30%,overhead=40%,total=10%; those not "
             "named stay"},
    {.name = "fail-over",
     .kind = CLI_FLAG,
     .offset = AT(fail_over),
     .help = "exit with 1 unless every component that can be compared is within its band"},
    {.name = "learn",
     .kind = CLI_FLAG,
     .offset = AT(learn),
     .help = "keep what the recording held beyond the rules, for estimates on this machine"},
    {.name = "forget",
     .kind = CLI_FLAG,
     .offset = AT(forget),
     .help = "forget what --learn kept: for the engine that is the operand, or everything"},
    CLI_FORMAT_OPTIONS(AT(format), compare_format_names, COMPARE_JSON,
                       "how to write the comparison"),
    CLI_OPTION_ALL(AT(all),
                   "in a table: every category and part, not only the largest differences"),
    CLI_OPTION_OUTPUT(AT(output), "comparison"),
    {0},
};

/* A comparison with what it is made of. A is what B is judged by. */
struct comparing {
    const struct compare_options *options;
    struct compare_loaded loaded[2];
    struct compare_loaded *a;
    struct compare_loaded *b;
    struct mt_model *model; /* opened for the advice alone */
    struct mt_comparison *comparison;
    struct mt_residue *learnt;
    struct compare_view view;
};

/* ---- the two sides ---- */

static int has_figures(const struct compare_options *options)
{
    for (int i = 0; i < MT_COMPONENT_COUNT; i++)
        if (options->calc.text[i])
            return 1;
    return 0;
}

static int check_usage(const struct cli_call *call, struct mt_error *error)
{
    const struct compare_options *options = call->options;
    int figures = has_figures(options);
    size_t n = call->n_operands;
    if (options->estimate && figures)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "compare: give either --estimate or figures of --calc, not both");
    if ((figures && n == 1) || (options->estimate && (n == 1 || n == 2)) ||
        (!figures && !options->estimate && n == 2))
        return 0;
    return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                   "compare: give two things to compare, or one with --estimate or with figures "
                   "(--calc-weights and the like); see 'memtally compare --help'");
}

static int load_estimate(struct comparing *comparing, const struct cli_call *call,
                         const struct mt_moment *moment, struct mt_error *error)
{
    const struct compare_options *options = comparing->options;
    const struct compare_estimate_options how = {
        .model_path = options->model          ? options->model
                      : call->n_operands == 2 ? call->operands[0]
                                              : NULL,
        .engine = options->engine,
        .cpu = options->cpu,
        .use_learnt = 1,
    };
    struct compare_loaded *recording = &comparing->loaded[0];
    int result = compare_load(recording, call->operands[call->n_operands - 1], moment,
                              (enum compare_unit)options->gb_is, error);
    if (result)
        return result;
    if (!recording->side.tally)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "compare: %s does not say the settings of the run; estimate them with "
                       "'memtally estimate --json' and compare with that",
                       recording->path);
    return compare_load_estimate(&comparing->loaded[1], recording, &how, error);
}

static int load_sides(struct comparing *comparing, const struct cli_call *call,
                      const struct mt_moment *moment, struct mt_error *error)
{
    const struct compare_options *options = comparing->options;
    enum compare_unit unit = (enum compare_unit)options->gb_is;
    if (options->estimate)
        return load_estimate(comparing, call, moment, error);
    int result = compare_load(&comparing->loaded[0], call->operands[0], moment, unit, error);
    if (result)
        return result;
    if (call->n_operands == 2)
        return compare_load(&comparing->loaded[1], call->operands[1], moment, unit, error);
    return compare_load_figures(&comparing->loaded[1], &options->calc,
                                (enum compare_unit)options->calc_unit, error);
}

/* How well a side is known: measured by us, by another profiler, estimated, given by hand. */
static int rank(const struct compare_loaded *side)
{
    if (side->side.kind == MT_SIDE_MEASUREMENT)
        return 0;
    if (side->side.kind == MT_SIDE_ESTIMATE)
        return 2;
    return side->path ? 1 : 3;
}

/* What is known better is A, whatever the order of the operands. */
static void order_sides(struct comparing *comparing)
{
    int turned = rank(&comparing->loaded[0]) > rank(&comparing->loaded[1]);
    comparing->a = &comparing->loaded[turned];
    comparing->b = &comparing->loaded[!turned];
}

/* ---- comparing ---- */

static uint64_t known_of(uint64_t a, uint64_t b)
{
    return a != MT_UNKNOWN ? a : b;
}

/* The model helps to say why; where it cannot be read, less can be said. */
static const struct mt_model *model_of(struct comparing *comparing)
{
    const char *path =
        comparing->a->model_path ? comparing->a->model_path : comparing->b->model_path;
    if (comparing->options->model)
        path = comparing->options->model;
    if (comparing->b->model)
        return comparing->b->model;
    if (path && mt_model_open(path, NULL, &comparing->model, NULL) != 0)
        comparing->model = NULL;
    return comparing->model;
}

static int compare_sides(struct comparing *comparing, struct mt_error *error)
{
    const struct cli_document_settings *a = &comparing->a->settings;
    const struct cli_document_settings *b = &comparing->b->settings;
    struct mt_compare_settings settings;
    mt_compare_settings_init(&settings);
    settings.basis = comparing->options->basis ? MT_BASIS_RESIDENT : MT_BASIS_RESERVED;
    settings.model = model_of(comparing);
    settings.context_tokens = a->context_tokens; /* what an estimate took says nothing of A */
    settings.ubatch = a->ubatch;
    if (!comparing->b->estimate) {
        settings.context_tokens = known_of(a->context_tokens, b->context_tokens);
        settings.ubatch = known_of(a->ubatch, b->ubatch);
    }
    if (a->prompt_tokens != MT_UNKNOWN && a->generated_tokens != MT_UNKNOWN)
        settings.sequence_tokens = a->prompt_tokens + a->generated_tokens;
    int result = comparing->options->band
                     ? compare_parse_bands(comparing->options->band, settings.band_ratio, error)
                     : 0;
    if (result)
        return result;
    return mt_compare(&comparing->a->side, &comparing->b->side, &settings, &comparing->comparison,
                      error);
}

static void add_note(struct compare_view *view, const char *note)
{
    if (view->n_notes < COMPARE_NOTES_MAX)
        view->notes[view->n_notes++] = note;
}

/* A file that others wrote may state a total that its categories do not add up to. Those that are
 * unknown lie in other rows. */
static int adds_up(const struct mt_tally *tally)
{
    struct mt_components components;
    const struct mt_component_figure *total = &components.of[MT_COMPONENT_TOTAL];
    for (size_t i = 0; i < tally->n_places; i++) {
        mt_components_of_place(&tally->places[i], tally->kind, MT_BASIS_RESIDENT, &components);
        uint64_t stated = tally->places[i].total_resident_bytes;
        if (stated != MT_UNKNOWN && total->known && (uint64_t)total->bytes != stated)
            return 0;
    }
    return 1;
}

static void note_side(struct compare_view *view, const struct compare_loaded *side, int is_a)
{
    const struct mt_recording_damage *damage = &side->recording.damage;
    if (damage->files_unreadable || damage->blocks_bad || damage->events_lost)
        add_note(view, is_a ? "Part of A could not be read and is missing here; 'memtally report' "
                              "says which."
                            : "Part of B could not be read and is missing here; 'memtally report' "
                              "says which.");
    if (side->side.kind == MT_SIDE_MEASUREMENT && !adds_up(side->side.tally))
        add_note(view, is_a ? "A's categories do not add up to the total that it states."
                            : "B's categories do not add up to the total that it states.");
}

static void take_notes(struct comparing *comparing)
{
    struct compare_view *view = &comparing->view;
    const struct mt_component_difference *of = comparing->comparison->components;
    note_side(view, comparing->a, 1);
    note_side(view, comparing->b, 0);
    if (comparing->b->estimate && comparing->a->settings.context_tokens == MT_UNKNOWN &&
        compare_context_of(comparing->a))
        add_note(view, "llama-bench has a context for each of its tests: the estimate is of the "
                       "prompt's, if there is one.");
    if (comparing->b->estimate && !compare_context_of(comparing->a))
        add_note(view, "A does not say its context and batches: the estimate takes the engine's "
                       "own. 'memtally profile' keeps them; or compare with a file of 'memtally "
                       "estimate --json' made with them.");
    int is_guessed = comparing->options->estimate && !comparing->options->engine &&
                     comparing->b->estimate && !comparing->a->engine_name;
    if (is_guessed)
        add_note(view, "The recording does not name its engine: the rules are those of the engine "
                       "that its processes look like; name another with --engine NAME@VERSION.");
    if (!is_guessed && comparing->options->estimate && !comparing->options->engine &&
        comparing->b->estimate && !strchr(comparing->b->estimate->settings.engine, '@'))
        add_note(view, "The rules are not of the recorded version of the engine; name its build "
                       "with --engine NAME@VERSION.");
    if (comparing->comparison->basis == MT_BASIS_RESIDENT &&
        comparing->b->side.kind == MT_SIDE_ESTIMATE)
        add_note(view, "An estimate does not say how much of it will be resident: on that basis "
                       "only the overhead can be compared.");
    for (int i = 0; i < MT_COMPONENT_OVERHEAD; i++)
        if (comparing->comparison->basis == MT_BASIS_RESERVED && of[i].a.known &&
            of[i].a.basis == MT_BASIS_RESIDENT) {
            add_note(view, "A does not say for all its parts what was reserved: resident bytes "
                           "stand for it there.");
            return;
        }
}

/* ---- learning ---- */

/* What tells one run from another. */
static void name_run(const struct mt_tally *tally, char *text, size_t size)
{
    struct mt_components components;
    mt_components_of_tally(tally, MT_BASIS_RESIDENT, &components);
    snprintf(text, size, "%" PRIu64 "-%" PRId64 "-%" PRIu64, tally->moment_ns,
             components.of[MT_COMPONENT_TOTAL].bytes,
             tally->n_processes ? tally->processes[0].start_ns : 0);
}

static const char *device_of(const struct mt_tally *tally)
{
    for (size_t i = 0; i < tally->n_places; i++)
        if (strncmp(tally->places[i].place, "gpu:", 4) == 0)
            return "gpu";
    return "cpu";
}

static int learn(struct comparing *comparing, struct mt_error *error)
{
    const struct compare_loaded *a = comparing->a;
    const struct compare_loaded *b = comparing->b;
    struct mt_residue residues[MT_RESIDUES_MAX];
    char run[96];
    int is_new;
    if (a->side.kind != MT_SIDE_MEASUREMENT || b->side.kind != MT_SIDE_ESTIMATE)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "compare: --learn takes a recording and an estimate of it (--estimate)");
    if (!b->engine_name || !b->engine_version || !b->architecture)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "compare: the estimate does not say its engine, version and model: there is "
                       "nothing to learn it for");
    const struct cli_residue_key key = {b->engine_name, b->engine_version, device_of(a->side.tally),
                                        b->architecture};
    size_t n = mt_residues_of(a->side.tally, b->side.tally, residues);
    name_run(a->side.tally, run, sizeof run);
    int result = cli_residues_learn(&key, residues, n, run, &is_new, &comparing->learnt,
                                    &comparing->view.n_learnt, error);
    if (result)
        return result;
    comparing->view.learnt = comparing->learnt;
    if (!is_new)
        add_note(&comparing->view, "This run was learnt before; nothing was added.");
    return 0;
}

static int run_forget(const struct cli_call *call)
{
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct mt_strbuf out = {0};
    size_t n;
    if (call->n_operands > 1) {
        mt_fail(&error, MT_EARG, MT_NO_OFFSET, "compare: --forget takes one engine, or none");
        return cli_fail(&error);
    }
    if (cli_residues_forget(call->n_operands ? call->operands[0] : NULL, &n, &error))
        return cli_fail(&error);
    mt_strbuf_printf(&out, "%zu learnt %s forgotten\n", n, n == 1 ? "figure" : "figures");
    int code = cli_print(&out);
    mt_strbuf_finish(&out);
    return code;
}

/* ---- the command ---- */

static int render(struct comparing *comparing, struct mt_strbuf *out, struct mt_error *error)
{
    const struct compare_options *options = comparing->options;
    struct cli_terminal terminal = cli_terminal_of_output(options->output);
    comparing->view.a = comparing->a;
    comparing->view.b = comparing->b;
    comparing->view.comparison = comparing->comparison;
    comparing->view.show_all = options->all;
    compare_write(&comparing->view, (enum compare_format)options->format, &terminal, out);
    if (mt_strbuf_failed(out))
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory while writing");
    return 0;
}

static int make(struct comparing *comparing, const struct cli_call *call, struct mt_strbuf *out,
                struct mt_error *error)
{
    struct mt_moment moment;
    int result = check_usage(call, error);
    if (result == 0)
        result = cli_parse_moment(comparing->options->at, &moment, error);
    if (result == 0)
        result = load_sides(comparing, call, &moment, error);
    if (result)
        return result;
    order_sides(comparing);
    result = compare_sides(comparing, error);
    if (result)
        return result;
    take_notes(comparing);
    if (comparing->options->learn)
        result = learn(comparing, error);
    return result ? result : render(comparing, out, error);
}

static void finish(struct comparing *comparing)
{
    mt_comparison_destroy(comparing->comparison);
    mt_model_close(comparing->model);
    free(comparing->learnt);
    compare_unload(&comparing->loaded[1]);
    compare_unload(&comparing->loaded[0]);
}

static int run_compare(const struct cli_call *call)
{
    const struct compare_options *options = call->options;
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct comparing comparing = {.options = options};
    struct mt_strbuf out = {0};
    if (options->forget)
        return run_forget(call);
    int result = make(&comparing, call, &out, &error);
    int code = result ? cli_fail(&error) : cli_write_output(&out, options->output);
    if (code == CLI_EXIT_OK && options->fail_over && !comparing.comparison->all_within)
        code = CLI_EXIT_NO;
    finish(&comparing);
    mt_strbuf_finish(&out);
    return code;
}

static const char *const description[] = {
    "Compares two recordings, a recording with an estimate, or a recording with the figures of a "
    "calculator or of another profiler. It shows the difference of each component, whether the "
    "difference is within the component's band, and what to adjust if it is not.",
    "A and B are each a folder that 'memtally run' or 'memtally profile' wrote, a JSON file of "
    "memtally (report, profile or estimate with --json), or another profiler's JSON file with a "
    "memory_breakdown. memtally takes the better known one as A and judges B by it: a "
    "measurement before an estimate, an estimate before figures.",
    NULL,
};

static const struct cli_example examples[] = {
    {"memtally compare DIR --estimate", "A profile with an estimate of what it ran."},
    {"memtally compare DIR --calc-weights 13.5 --calc-kv 0.4 --calc-total 15.4",
     "A profile with what a calculator says, in GB of 10^9 bytes."},
    {"memtally compare BEFORE AFTER --all", "Two recordings, with every category and part."},
    {"memtally compare DIR --estimate --learn",
     "Keep what this engine's process holds beside the model, for later estimates."},
    {0},
};

static const struct cli_status statuses[] = {
    {"0", "the comparison was made"},
    {"1", "with --fail-over: a component is outside its band"},
    {"2", "wrong usage or bad input"},
    {"3", "this machine does not permit it, or lacks memory"},
    {0},
};

const struct cmd_entry cmd_compare = {
    .name = "compare",
    .synopsis = "[options] A [B]",
    .summary = "compare recordings, estimates and calculators' figures",
    .description = description,
    .examples = examples,
    .statuses = statuses,
    .options = compare_options,
    .options_size = sizeof(struct compare_options),
    .operands = CLI_OPERANDS_FILES,
    .most_operands = 2,
    .run = run_compare,
};
