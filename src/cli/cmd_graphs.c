/* SPDX-License-Identifier: MIT */
/* memtally graphs: CUDA graphs of a run, or what one run has more than another. */
#include <errno.h>
#include <memtally/graphs.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/error.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/document/graphs.h"

struct graphs_options {
    int format;
    int all;
    const char *save;
    const char *output;
};

#define AT(member) offsetof(struct graphs_options, member)

enum { TABLE, JSON };
static const char *const formats[] = {"table", "json", NULL};

static const struct cli_option graphs_options[] = {
    {.name = "all",
     .letter = 'a',
     .kind = CLI_FLAG,
     .offset = AT(all),
     .help = "list each graph of both runs"},
    {.name = "save",
     .kind = CLI_TEXT,
     .argument = "MODEL",
     .offset = AT(save),
     .help = "write the answer also to results/results_MODEL_YYYYMMDD_HHMMSS.json, by this "
             "machine's time; memtally makes the folder"},
    CLI_FORMAT_OPTIONS(AT(format), formats, JSON, "how to write the answer"),
    {.name = "output",
     .letter = 'o',
     .kind = CLI_FILE,
     .argument = "FILE",
     .offset = AT(output),
     .help = "write to FILE, and replace it only once the answer is complete"},
    {0},
};

/* Writes the file for 'graphs --save'. A name of a model on the hub has a slash. */
static int save(const struct cli_graphs_document *document, const char *model)
{
    struct mt_strbuf out = {0};
    char name[200], path[256], when[32];
    struct tm parts;
    time_t now = time(NULL);
    snprintf(name, sizeof name, "%s", model);
    for (char *at = name; *at; at++)
        if (*at == '/')
            *at = '_';
    if (!localtime_r(&now, &parts) || !strftime(when, sizeof when, "%Y%m%d_%H%M%S", &parts)) {
        cli_complain("graphs: this machine's clock says no time that could name a file");
        return CLI_EXIT_CANNOT;
    }
    if (mkdir("results", 0777) && errno != EEXIST) {
        cli_complain("graphs: cannot make the folder 'results': %s", strerror(errno));
        return CLI_EXIT_CANNOT;
    }
    snprintf(path, sizeof path, "results/results_%s_%s.json", name, when);
    cli_graphs_json(document, &out);
    int code = cli_write_output(&out, path);
    mt_strbuf_finish(&out);
    return code;
}

static int show(const struct cli_call *call, const struct cli_graphs_document *document)
{
    const struct graphs_options *options = call->options;
    struct cli_terminal terminal = cli_terminal_of_output(options->output);
    struct mt_strbuf out = {0};
    if (options->format == JSON)
        cli_graphs_json(document, &out);
    else
        cli_graphs_table(document, &terminal, &out);
    int code = cli_write_output(&out, options->output);
    mt_strbuf_finish(&out);
    return code == CLI_EXIT_OK && options->save ? save(document, options->save) : code;
}

static int run_graphs(const struct cli_call *call)
{
    const struct graphs_options *options = call->options;
    struct mt_graphs *runs[2] = {NULL, NULL};
    struct mt_graphs_difference difference;
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct cli_graphs_document document = {.show_all = options->all};
    int result = 0;
    for (size_t i = 0; !result && i < call->n_operands; i++) {
        result = mt_graphs_read(call->operands[i], &runs[i], &error);
        document.directories[i] = call->operands[i];
        document.runs[i] = runs[i];
    }
    if (!result && runs[1]) {
        difference = mt_graphs_compare(runs[0], runs[1]);
        document.difference = &difference;
    }
    int code = result ? cli_fail(&error) : show(call, &document);
    mt_graphs_destroy(runs[1]);
    mt_graphs_destroy(runs[0]);
    return code;
}

static const char *const description[] = {
    "Lists the CUDA graphs that a program on PyTorch captured: of which batch each one is, how "
    "many nodes it has, and what its capture took. With A and B memtally says what B's graphs "
    "take more than A's, for each additional graph too, and whether that is worth optimising.",
    "A and B are folders of 'memtally run', or of 'memtally rehearse --folder'. The engine needs "
    "no patch.",
    "The bytes of a graph are what its capture took in addition to all before it, in the order of "
    "capture. A graph that finds room in the pool of an earlier one takes nothing. Of graphs that "
    "the engine dropped before it captured the last one, memtally counts the driver's bytes alone.",
    NULL,
};

static const struct cli_example examples[] = {
    {"memtally graphs DIR", "Each graph of a run."},
    {"memtally graphs WITHOUT WITH --save Llama-8B",
     "What the second run's graphs take more, also in a file under results/."},
    {0},
};

static const struct cli_status statuses[] = {
    {"0", "the graphs were listed or compared"},
    {"2", "wrong usage, or a folder without anything of PyTorch"},
    {"3", "this machine does not permit it, or lacks memory"},
    {0},
};

const struct cmd_entry cmd_graphs = {
    .name = "graphs",
    .synopsis = "[options] A [B]",
    .summary = "list CUDA graphs and compare what they take",
    .description = description,
    .examples = examples,
    .statuses = statuses,
    .options = graphs_options,
    .options_size = sizeof(struct graphs_options),
    .operands = CLI_OPERANDS_FILES,
    .least_operands = 1,
    .most_operands = 2,
    .run = run_graphs,
};
