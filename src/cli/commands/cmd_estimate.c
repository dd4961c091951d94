/* SPDX-License-Identifier: MIT */
/* memtally estimate: the tally of a model before it is loaded. */
#include <malloc.h>
#include <memtally/error.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/cpu.h"
#include "cli/document/document.h"
#include "cli/estimate/estimate.h"
#include "cli/interrupt.h"
#include "cli/shared_options.h"
#include "cli/words.h"

/* An engine that takes longer is not waited for: rules answer. */
#define REHEARSAL_NS (UINT64_C(120) * 1000 * 1000 * 1000)

#define AT(member) offsetof(struct estimate_options, member)

static const char *const formats[] = {"table", "json", "csv", NULL};
static const struct cli_option estimate_options[] = {
    CLI_OPTION_ENGINE(
        AT(engine), cli_words_engines,
        "llama.cpp, ik_llama.cpp, ollama, vllm, sglang, trt-llm, tgi, transformers or exllamav3; "
        "the version chooses the rules, without it memtally takes the newest known"),
#include "cli/model/options.def"
    TEXT("mla", "MODE", mla, "ik_llama.cpp's -mla: 0 to 3"),
    NUMBER("amb", amb, "ik_llama.cpp's -amb, in MiB"),
    {.name = "weight-type",
     .kind = CLI_TEXT,
     .argument = "TYPE",
     .offset = AT(weight_type),
     .words = cli_words_weight_types,
     .help = "that weights are converted to when loaded: bf16, fp8 and so on"},
    FLAG("max-context", max_context, "find the largest context that fits"),
    FLAG("max-sequences", max_sequences,
         "find the largest number of sequences that fits, each of --context tokens"),
    FLAG("max-batch", max_batch, "find the largest ubatch that fits"),
    FLAG("smallest-device", smallest_device,
         "find the least memory that each of as many equal devices as --device names must have"),
    FLAG("best-quant", best_quant, "of several files, find the largest that fits"),
    FLAG("matrix", matrix,
         "a table of types by contexts, by rules alone: a row for each of several files; for a "
         "model that is no GGUF file, the types to convert it to; else the types of the cache"),
    TEXT(
        "changes", "ENGINE@FROM..TO", changes,
        "which rules differ between two versions of an engine, and what each does to the model, by "
        "rules alone"),
    FLAG("no-rehearse", no_rehearse, "by rules alone, even where the engine is on this machine"),
    {.name = "engine-path",
     .kind = CLI_FILE,
     .argument = "PATH",
     .offset = AT(engine_path),
     .help = "the engine to rehearse with: a program of llama.cpp, or the folder it lies in"},
    FLAG("remote", remote,
         "MODEL may be a URL or a name on huggingface.co; memtally reads headers only"),
    FLAG("explain", explain, "show each term's formula with its numbers, and its source"),
    CLI_FORMAT_OPTIONS(AT(format), formats, CLI_FORMAT_JSON, "how to write the estimate"),
    CLI_OPTION_OUTPUT(AT(output), "estimate"),
    {0},
};

static int make(const struct cli_call *call, struct estimate_request *request, int goal,
                struct estimate_result *made, struct mt_error *error)
{
    const struct estimate_options *options = call->options;
    int result =
        estimate_make(made, call->operands[0], options->remote, &request->settings, goal, error);
    return result ? result : estimate_confirm(made, call->operands[0], request, options, error);
}

static int estimate_one(const struct cli_call *call, struct estimate_request *request, int goal,
                        struct mt_strbuf *out, int *code, struct mt_error *error)
{
    const struct estimate_options *options = call->options;
    struct cli_terminal terminal = cli_terminal_of_output(options->output);
    struct estimate_result made = {0};
    int result = make(call, request, goal, &made, error);
    if (!result) {
        struct cli_document document = estimate_document(&made, request, options);
        result =
            cli_document_render(&document, (enum cli_format)options->format, &terminal, out, error);
        *code = estimate_exit_of(&made);
    }
    estimate_result_finish(&made);
    return result;
}

static int estimate(const struct cli_call *call, struct estimate_request *request,
                    struct mt_strbuf *out, int *code, struct mt_error *error)
{
    const struct estimate_options *options = call->options;
    int goal;
    int found;
    int result = estimate_goal(options, &goal, error);
    if (!result)
        result = estimate_request_init(request, options, error);
    if (result)
        return result;
    if (options->matrix) {
        result = estimate_matrix(call, request, out, &found, error);
        *code = !result && found ? CLI_EXIT_OK : CLI_EXIT_NO;
        return result;
    }
    if (options->changes && call->n_operands == 1 && goal < 0 && !options->best_quant)
        return estimate_changes(call, request, out, error);
    if (options->changes)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "estimate: '--changes' takes one model and no search");
    if (!options->best_quant && call->n_operands > 1)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "estimate: several models are compared only with --best-quant or --matrix");
    if (!options->best_quant)
        return estimate_one(call, request, goal, out, code, error);
    result = estimate_best(call, request, out, &found, error);
    *code = !result && found ? CLI_EXIT_OK : CLI_EXIT_NO;
    return result;
}

/* What the library calls not found or not supported is about the input here; a disk that cannot be
 * read or a server that cannot be reached is about this machine. */
static int fail(const struct mt_error *error)
{
    int code = cli_fail(error);
    if (error->code == MT_EIO || error->code == MT_ETIMEOUT)
        return CLI_EXIT_CANNOT;
    return code == CLI_EXIT_NO || error->code == MT_EUNSUPPORTED ? CLI_EXIT_USAGE : code;
}

/* A search makes an estimate a hundred times, each with some megabytes for a graph. Kept by the
 * allocator and not given back in between, they save a third of the time. */
static void keep_freed_memory(void)
{
    const int most_bytes = 1 << 26;
    mallopt(M_MMAP_THRESHOLD, most_bytes);
    mallopt(M_TRIM_THRESHOLD, most_bytes);
}

static int run_estimate(const struct cli_call *call)
{
    const struct estimate_options *options = call->options;
    struct estimate_request *request = calloc(1, sizeof *request);
    struct mt_strbuf out = {0};
    struct mt_error error = {.offset = MT_NO_OFFSET};
    int code = CLI_EXIT_OK;
    if (!request) {
        cli_complain("estimate: out of memory");
        return CLI_EXIT_CANNOT;
    }
    keep_freed_memory();
    if (estimate_may_rehearse(options))
        request->interrupted = cli_catch_signals();
    request->timeout_ns = REHEARSAL_NS;
    if (estimate(call, request, &out, &code, &error)) {
        code = fail(&error);
    } else {
        int written = cli_write_output(&out, options->output);
        code = written ? written : code;
    }
    if (request->interrupted && *request->interrupted)
        code = 128 + *request->interrupted;
    estimate_request_finish(request);
    free(request);
    mt_strbuf_finish(&out);
    return code;
}

static const char *const description[] = {
    "Says what a model will take before it is loaded: for each device and the host, the bytes of "
    "weights, KV cache, recurrent state, activations and so on. Each figure has a low and a high "
    "bound, the rule that gave it, and how sure it is. memtally reads headers only, never weights.",
    "MODEL is a GGUF file (any part of a split one), a folder of safetensors, a config.json, a "
    "Modelfile, ollama:NAME[:TAG] in Ollama's own store, or org/name in the cache of Hugging Face.",
    "If this machine has llama.cpp in the asked version (in the cache of engines, in PATH or at "
    "--engine-path), memtally rehearses it: it starts llama.cpp on devices that are not there, so "
    "the figures are the engine's own (see 'memtally help rehearse'). The same holds for "
    "node-llama-cpp with --program node-llama-cpp. Searches use rules, and memtally rehearses "
    "their answer. --matrix and --changes use rules alone. So does everything with --no-rehearse, "
    "with "
    "MEMTALLY_NO_REHEARSE in the environment, or with --cpu and another processor than this one's.",
    "With --device, --host or --here the first line is a verdict: FITS, TIGHT, SPILLS, PAGES or "
    "CANNOT. Below the tables are the engine's command line, ready to paste, and notes.",
    NULL,
};

static const struct cli_example examples[] = {
    {"memtally estimate model.gguf", "What it takes on the CPU."},
    {"memtally estimate model.gguf --here", "Whether this machine has room for it now."},
    {"memtally estimate model.gguf --device 2x24GiB --context 32768 --kv-type q8_0",
     "Two cards, a long context and a quantised cache."},
    {"memtally estimate model.gguf --device 16GiB --max-context --explain",
     "The longest context that fits, and every figure's formula."},
    {"memtally estimate config.json --engine vllm@0.11.0 --device 80GiB -c 32768",
     "How many tokens vLLM will have room for."},
    {"memtally estimate config.json --device 24GiB --matrix",
     "Which types fit a card at which contexts."},
    {"memtally estimate config.json --changes vllm@0.19..0.33 --device H100-80GB",
     "Why a model has more or less room after an upgrade."},
    {"memtally estimate --best-quant model-q*.gguf --device 12GiB", "The best file for a card."},
    {0},
};

static const struct cli_status statuses[] = {
    {"0", "it fits or is tight, an answer was found, or no capacity was given"},
    {"1", "it spills, pages or cannot; nothing fits"},
    {"2", "wrong usage, or a model or setting that cannot be used"},
    {"3", "this machine cannot: no permission, no memory, no network for --remote"},
    {0},
};

const struct cmd_entry cmd_estimate = {
    .name = "estimate",
    .synopsis = "[options] MODEL | --best-quant|--matrix [options] FILE...",
    .summary = "predict the memory that a model takes, before it is loaded",
    .description = description,
    .examples = examples,
    .statuses = statuses,
    .options = estimate_options,
    .options_size = sizeof(struct estimate_options),
    .operands = CLI_OPERANDS_FILES,
    .least_operands = 1,
    .run = run_estimate,
};
