/* SPDX-License-Identifier: MIT */
/* memtally graphs: CUDA graphs of a run, or what one run has more than another. */
#include <errno.h>
#include <memtally/error.h>
#include <memtally/graphs.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/document/graphs.h"
#include "cli/shared_options.h"
#include "cli/vary.h"
#include "cli/words.h"

struct graphs_options {
    int format;
    int all;
    const char *vary;
    struct cli_texts devices;
    const char *folder;
    uint64_t timeout_s;
    const char *save;
    const char *output;
};

#define AT(member) offsetof(struct graphs_options, member)

enum { TABLE, JSON };
static const char *const formats[] = {"table", "json", NULL};

static const struct cli_option graphs_options[] = {
    CLI_OPTION_ALL(AT(all), "list each graph of both runs"),
    {.name = "vary",
     .kind = CLI_TEXT,
     .argument = "NAME=A,B",
     .offset = AT(vary),
     .help = "run CMD with each of the two values and compare: {NAME} in CMD becomes the value; "
             "without {NAME}, memtally adds --NAME VALUE at the end, and nothing for 'none'"},
    {.name = "device",
     .kind = CLI_TEXTS,
     .argument = "DEVICE[,DEVICE...]",
     .offset = AT(devices),
     .words = cli_words_gpus,
     .is_list = 1,
     .help = "with --vary, rehearse CMD on such devices, as H100-80GB or 2x24GiB; without it "
             "memtally records CMD on this machine's own, and CMD has to end by itself"},
    {.name = "folder",
     .kind = CLI_DIRECTORY,
     .argument = "DIR",
     .offset = AT(folder),
     .help = "with --vary, keep both runs, as DIR/A and DIR/B"},
    CLI_OPTION_TIMEOUT(AT(timeout_s), "600", 86400,
                       "with --vary and --device, how long CMD may take to be ready or to end"),
    {.name = "save",
     .kind = CLI_TEXT,
     .argument = "MODEL",
     .offset = AT(save),
     .help = "write the answer also to results/results_MODEL_YYYYMMDD_HHMMSS.json, by this "
             "machine's time; memtally makes the folder"},
    CLI_FORMAT_OPTIONS(AT(format), formats, JSON, "how to write the answer"),
    CLI_OPTION_OUTPUT(AT(output), "answer"),
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

static int compare(const struct cli_call *call, char *const *folders, size_t n,
                   const struct cli_vary *vary)
{
    const struct graphs_options *options = call->options;
    struct mt_graphs *runs[2] = {NULL, NULL};
    struct mt_graphs_difference difference;
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct cli_graphs_document document = {.show_all = options->all};
    int result = 0;
    for (size_t i = 0; !result && i < n; i++) {
        result = mt_graphs_read(folders[i], &runs[i], &error);
        document.directories[i] = folders[i];
        document.settings[i] = vary ? vary->labels[i] : NULL;
        document.was_cut[i] = vary && vary->was_cut[i];
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

static int run_varied(const struct cli_call *call)
{
    const struct graphs_options *options = call->options;
    const struct cli_vary_how how = {
        .devices = &options->devices, .folder = options->folder, .timeout_s = options->timeout_s};
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct cli_vary vary;
    if (cli_vary_read(options->vary, &vary, &error) < 0)
        return cli_fail(&error);
    int code = cli_vary_run(&vary, &how, (const char *const *)call->operands);
    char *const folders[] = {vary.folders[0], vary.folders[1]};
    if (code == CLI_EXIT_OK)
        code = compare(call, folders, CLI_VARY_RUNS, &vary);
    cli_vary_finish(&vary, &how);
    return code;
}

static int run_graphs(const struct cli_call *call)
{
    const struct graphs_options *options = call->options;
    const char *why = NULL;
    if (options->vary && (!call->has_dashes || call->n_plain))
        why = "--vary wants a command after --, and no folders";
    else if (!options->vary && call->has_dashes)
        why = "a command after -- is for --vary NAME=A,B";
    else if (!options->vary && (options->devices.n || options->folder))
        why = "--device and --folder are for --vary NAME=A,B";
    else if (!options->vary && call->n_operands > 2)
        why = "it compares two folders at most";
    if (why) {
        cli_complain("graphs: %s; see 'memtally help graphs'", why);
        return CLI_EXIT_USAGE;
    }
    return options->vary ? run_varied(call) : compare(call, call->operands, call->n_operands, NULL);
}

static const char *const description[] = {
    "Lists the CUDA graphs that a program on PyTorch captured: each one's batch, its number of "
    "nodes, and what its capture took. With A and B memtally says what B's graphs take more than "
    "A's, for each additional graph too, and whether that is worth optimising.",
    "A and B are folders of 'memtally run', or of 'memtally rehearse --folder'. The engine needs "
    "no patch.",
    "With --vary memtally runs a command twice, with one setting changed, and compares the two. It "
    "rehearses the command on --device, or records it on this machine.",
    "The bytes of a graph are what its capture took in addition to all before it, in the order "
    "of capture. A graph that finds room in the pool of an earlier one takes nothing. If the "
    "engine dropped a graph before it captured the last one, memtally counts only the driver's "
    "bytes of that graph.",
    NULL,
};

static const struct cli_example examples[] = {
    {"memtally graphs DIR", "Each graph of a run."},
    {"memtally graphs WITHOUT WITH --save Llama-8B",
     "What the second run's graphs take more, also in a file under results/."},
    {"memtally graphs --vary 'max_concurrency=none,16' --device H200 -- python3 serve.py",
     "Rehearses a program without and with --max_concurrency 16."},
    {0},
};

static const struct cli_status statuses[] = {
    {"0", "the graphs were listed or compared"},
    {"1", "a run of --vary did not end well"},
    {"2", "wrong usage, or a folder without anything of PyTorch"},
    {"3", "this machine does not permit it, or lacks memory"},
    {0},
};

const struct cmd_entry cmd_graphs = {
    .name = "graphs",
    .synopsis = "[options] A [B] | [options] --vary NAME=A,B -- CMD...",
    .summary = "list CUDA graphs and compare what they take",
    .description = description,
    .examples = examples,
    .statuses = statuses,
    .options = graphs_options,
    .options_size = sizeof(struct graphs_options),
    .operands = CLI_OPERANDS_FILES,
    .least_operands = 1,
    .run = run_graphs,
};
