/* SPDX-License-Identifier: MIT */
/* memtally report: a recording in any format. */
#include <memtally/error.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <memtally/recording.h>

#include "base/error.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/document/document.h"
#include "cli/document/load.h"
#include "cli/document/loaded.h"
#include "cli/document/torch_table.h"
#include "cli/moment.h"
#include "cli/shared_options.h"
#include "cli/words.h"

struct report_options {
    int format;
    const char *at;
    uint64_t top;
    int all;
    int layers;
    int operations;
    const char *output;
};

#define AT(member) offsetof(struct report_options, member)

static const struct cli_option report_options[] = {
    CLI_FORMAT_OPTIONS(
        AT(format), cli_format_names, CLI_FORMAT_JSON,
        "how to write the report; folded are call stacks for flame graph tools, speedscope the "
        "same for speedscope; perfetto are sizes over time for Perfetto, memory-viz blocks of "
        "devices for PyTorch's pytorch.org/memory_viz; these two are binary"),
    CLI_OPTION_AT(
        AT(at),
        "the moment to show: peak (of resident memory; if that stood still, when the heap was "
        "fullest), heap-peak, weights-peak, kv_cache-peak or another category's peak, steady, "
        "exit, or a time since the start such as 3.5s or 800ms, which must lie within the "
        "recording"),
    {.name = "top",
     .kind = CLI_COUNT,
     .argument = "N",
     .least = 1,
     .most = 1000000,
     .offset = AT(top),
     .help = "also show the N call stacks that hold most, of the host and of devices"},
    {.name = "layers",
     .kind = CLI_FLAG,
     .offset = AT(layers),
     .help = "show instead what each layer of PyTorch's models held and took; needs a recording "
             "of run --layers"},
    {.name = "operations",
     .kind = CLI_FLAG,
     .offset = AT(operations),
     .help = "show instead what each operator of PyTorch took; needs a recording of run "
             "--operations"},
    CLI_OPTION_ALL(AT(all), "in a table: every detail and process, not the first few only"),
    CLI_OPTION_OUTPUT(AT(output), "report"),
    {0},
};

static int render(struct cli_loaded *loaded, const struct report_options *options,
                  struct mt_strbuf *out, struct mt_error *error)
{
    struct cli_terminal terminal = cli_terminal_of_output(options->output);
    if (options->all)
        loaded->document.details_shown = 0;
    return cli_document_render(&loaded->document, (enum cli_format)options->format, &terminal, out,
                               error);
}

/* Formats without a place for it have it said beside them. */
static void complain_of_damage(const char *path, const struct cli_loaded *loaded, int format)
{
    const struct mt_recording_damage *damage = &loaded->damage;
    int has_place = format == CLI_FORMAT_TABLE || format == CLI_FORMAT_JSON;
    if (!has_place && (damage->files_unreadable || damage->blocks_bad || damage->events_lost))
        cli_complain("%s: part of the recording could not be read and is missing here", path);
}

#define TOLD_SHOWN 60

static int report_told(const char *path, const struct report_options *options,
                       struct mt_strbuf *out, struct mt_error *error)
{
    struct cli_terminal terminal = cli_terminal_of_output(options->output);
    enum mt_torch_table_kind kind =
        options->layers ? MT_TORCH_TABLE_LAYERS : MT_TORCH_TABLE_OPERATIONS;
    return cli_document_torch_table(path, kind, (enum cli_format)options->format,
                                    options->all ? 0 : TOLD_SHOWN, &terminal, out, error);
}

static int report_one(const char *path, const struct report_options *options,
                      const struct mt_moment *moment, int first, struct mt_strbuf *out,
                      struct mt_error *error)
{
    struct cli_loaded loaded = {0};
    struct cli_document_kept *kept = NULL;
    const struct cli_load_options load = {
        .moment = *moment,
        .stacks = options->top || options->format == CLI_FORMAT_FOLDED ||
                  options->format == CLI_FORMAT_SPEEDSCOPE,
        .stacks_limit = options->top,
        .histories = options->format == CLI_FORMAT_MEMORY_VIZ,
    };
    if (!*path)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "report: the name of the folder is empty");
    if (options->layers || options->operations)
        return report_told(path, options, out, error);
    int result = cli_load(&loaded, path, &load, error);
    if (result == 0)
        result = cli_document_kept_read(path, &kept, error);
    if (result == 0) {
        cli_document_kept_use(kept, &loaded.document);
        complain_of_damage(path, &loaded, options->format);
        loaded.document.follows_another = !first;
        result = render(&loaded, options, out, error);
    }
    cli_document_kept_destroy(kept);
    cli_unload(&loaded);
    return result;
}

/* What stands between two documents of a format. */
static const char *separator(int format)
{
    if (format == CLI_FORMAT_TABLE)
        return "\n";
    return format == CLI_FORMAT_JSON ? "," : "";
}

static int report_all(const struct cli_call *call, const struct mt_moment *moment,
                      struct mt_strbuf *out, struct mt_error *error)
{
    const struct report_options *options = call->options;
    int is_list = call->n_operands > 1 && options->format == CLI_FORMAT_JSON;
    if (is_list)
        mt_strbuf_puts(out, "[\n");
    for (size_t i = 0; i < call->n_operands; i++) {
        if (i)
            mt_strbuf_puts(out, separator(options->format));
        int result = report_one(call->operands[i], options, moment, i == 0, out, error);
        if (result)
            return result;
    }
    if (is_list)
        mt_strbuf_puts(out, "]\n");
    return 0;
}

/* Complains and returns 1 if options exclude each other. */
static int refuse(const struct report_options *options, size_t n_operands)
{
    int is_moment = strcmp(options->at, "peak") != 0;
    int is_told = options->layers || options->operations;
    const char *format = cli_format_names[options->format];
    if (options->layers && options->operations)
        cli_complain("report: --layers and --operations are two tables; give one of them");
    else if (is_told && (is_moment || options->top))
        cli_complain("report: --layers and --operations are of the whole run; leave --at and --top "
                     "out");
    else if (is_told && options->format >= CLI_FORMAT_FOLDED)
        cli_complain(
            "report: --layers and --operations are rows; choose --format table, json or csv");
    else if (is_told && options->format == CLI_FORMAT_CSV && n_operands > 1)
        cli_complain("report: as CSV, --layers and --operations write one recording; name one");
    else if (options->format >= CLI_FORMAT_SPEEDSCOPE && n_operands > 1)
        cli_complain("report: --format %s writes one recording; name one", format);
    else if (options->format >= CLI_FORMAT_PERFETTO && (is_moment || options->top))
        cli_complain("report: --format %s shows all moments; leave --at and --top out", format);
    else
        return 0;
    return 1;
}

static int run_report(const struct cli_call *call)
{
    const struct report_options *options = call->options;
    struct mt_moment moment;
    struct mt_strbuf out = {0};
    struct mt_error error = {.offset = MT_NO_OFFSET};
    if (refuse(options, call->n_operands))
        return CLI_EXIT_USAGE;
    int result = cli_parse_moment(options->at, &moment, &error);
    if (result == 0)
        result = report_all(call, &moment, &out, &error);
    int code = result ? cli_fail(&error) : cli_write_output(&out, options->output);
    mt_strbuf_finish(&out);
    return code;
}

static const char *const description[] = {
    "Shows what a recording holds: where every resident byte of the program was at one moment, by "
    "category. The categories add up to what the kernel says. Bytes that belong to nothing known "
    "are unattributed.",
    "DIR is the folder that 'memtally run' or 'memtally profile' wrote, or a file that PyTorch's "
    "torch.cuda.memory._dump_snapshot() wrote; nothing in it is executed. With several, one "
    "table follows the other, JSON is a list, and the first column of CSV tells them apart.",
    "If 'memtally profile' left a DIR/report.json, memtally also shows its engine, model, "
    "settings, runs and phases.",
    NULL,
};

static const struct cli_example examples[] = {
    {"memtally report memtally-llama-bench-20260102-030405", "The breakdown at the peak."},
    {"memtally report DIR --at 3.5s --json --output report.json",
     "The moment 3.5 s after the start, for a program to read."},
    {"memtally report DIR --format folded | flamegraph.pl > heap.svg",
     "A flame graph of the heap at its peak."},
    {"memtally report snapshot.pickle --top 5",
     "What PyTorch's allocator held, and who asked for it."},
    {"memtally report DIR --format perfetto --output trace.pftrace",
     "Sizes over time, to open at ui.perfetto.dev."},
    {0},
};

const struct cmd_entry cmd_report = {
    .name = "report",
    .synopsis = "[options] DIR|FILE...",
    .summary = "show a recording, or a snapshot of PyTorch's",
    .description = description,
    .examples = examples,
    .options = report_options,
    .options_size = sizeof(struct report_options),
    .operands = CLI_OPERANDS_FILES,
    .least_operands = 1,
    .run = run_report,
};
