/* SPDX-License-Identifier: MIT */
/* memtally rehearse: an engine's own plan on devices that are not there. */
#include <inttypes.h>
#include <memtally/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/cpu.h"
#include "cli/interrupt.h"
#include "cli/model/model.h"
#include "cli/rehearse/command.h"
#include "cli/rehearse/device_names.h"
#include "cli/rehearse/devices.h"
#include "cli/rehearse/model_command.h"
#include "cli/rehearse/placed.h"
#include "cli/rehearse/python_request.h"
#include "cli/shared_options.h"
#include "cli/teller.h"
#include "cli/words.h"
#include "drive/flags.h"
#include "drive/serve.h"
#include "drive/stage.h"

struct rehearse_options {
    struct estimate_options estimate;
    const char *generation;
    int layer;
    struct cli_texts device_names;
    uint64_t reserved_bytes;
    uint64_t limit_bytes;
    const char *baseline;
    double tolerance;
    const char *requests; /* a number; how many without one depends on what is rehearsed */
    uint64_t timeout_s;
    int no_suggest;
    struct cli_texts sweep;
    const char *folder;
    const char *placed;
    int quiet;
};

#define SECOND_NS 1000000000u

static const char *const layers[] = {"auto", "ggml", "cuda", NULL}; /* enum mt_drive_layer */
static const char *const formats[] = {"table", "json", "csv", NULL};

#define AT(member)  offsetof(struct rehearse_options, estimate.member)
#define OWN(member) offsetof(struct rehearse_options, member)

static const struct cli_option rehearse_options[] = {
    CLI_OPTION_ENGINE(
        AT(engine), cli_words_rehearsed_engines,
        "devices behave as this build expects, as llama.cpp@11434; without a version memtally "
        "asks the program, or takes the newest known; vllm, sglang or transformers: the "
        "Python package that loads MODEL"),
#include "cli/model/options.def"
    {.name = "weight-type",
     .kind = CLI_TEXT,
     .argument = "TYPE",
     .offset = AT(weight_type),
     .words = cli_words_weight_types,
     .help = "for a model that is no GGUF file, the type to convert it to: f16, q8_0, q4_k_m; with "
             "vllm, sglang and transformers f16, bf16 or f32, with the first two also fp8"},
    {.name = "engine-path",
     .kind = CLI_FILE,
     .argument = "PATH",
     .offset = AT(engine_path),
     .help = "the engine to rehearse MODEL with: a program of llama.cpp, or its folder; with vllm, "
             "sglang and transformers a virtual environment or its Python, by default the active "
             "one or the first in PATH"},
    FLAG("remote", remote,
         "MODEL may be a URL or a name on huggingface.co; memtally reads headers only"),
    {.name = "sweep",
     .kind = CLI_TEXTS,
     .argument = "KEY=VALUES[,KEY=VALUES...]",
     .offset = OWN(sweep),
     .help = "rehearse MODEL with every combination of these settings, as "
             "context=2k..128k,ubatch=512,2048; a range doubles; there are context, batch, ubatch, "
             "sequences, kv-type, flash-attn, gpu-layers, cpu-moe"},
    {.name = "generation",
     .kind = CLI_TEXT,
     .argument = "NAME",
     .offset = OWN(generation),
     .words = cli_words_generations,
     .help = "generation of devices that --device gives by size, as ampere or 8.6, rdna3 or "
             "gfx942; without it, NVIDIA's are usual cards of that size, and others are of the "
             "newest known generation, with no exact figure for what depends on it"},
    {.name = "layer",
     .kind = CLI_CHOICE,
     .argument = "LAYER",
     .choices = layers,
     .fallback = "auto",
     .offset = OWN(layer),
     .help = "which devices to pretend: ggml's alone, or CUDA's as well; auto decides by CMD"},
    {.name = "device-name",
     .kind = CLI_TEXTS,
     .argument = "NAME[,NAME...]",
     .offset = OWN(device_names),
     .help = "names of the devices, in their order, as \"RTX 3090\"; one name is for all of them"},
    {.name = "reserved",
     .kind = CLI_SIZE,
     .argument = "SIZE",
     .offset = OWN(reserved_bytes),
     .help = "how much of each device the driver's context and other programs have; without it, "
             "the context by rules"},
    {.name = "limit",
     .kind = CLI_SIZE,
     .argument = "SIZE",
     .offset = OWN(limit_bytes),
     .help =
         "the verdict is EXCEEDS if CMD takes more of a device, although the device has more; a "
         "note says what for, and, of a program on CUDA, which call stack passes the limit"},
    {.name = "baseline",
     .kind = CLI_FILE,
     .argument = "FILE",
     .offset = OWN(baseline),
     .help = "likewise if CMD takes more of a device than FILE keeps of this command line; adds a "
             "command line that is not in FILE once it ran; pytest's --memory-baseline has the "
             "same file"},
    {.name = "tolerance",
     .kind = CLI_REAL,
     .argument = "PERCENT",
     .fallback = "2",
     .most = 1000,
     .offset = OWN(tolerance),
     .help = "how much more than in FILE of --baseline CMD may take"},
    {.name = "requests",
     .kind = CLI_TEXT,
     .argument = "N",
     .offset = OWN(requests),
     .help = "how many requests to send a server at most once it is ready; without it CMD gets 32 "
             "and MODEL none; 0 sends none, and CMD is ended once it is ready"},
    CLI_OPTION_TIMEOUT(OWN(timeout_s), "600", 86400,
                       "how long the program may take to be ready or to end"),
    {.name = "no-suggest",
     .kind = CLI_FLAG,
     .offset = OWN(no_suggest),
     .help = "if it runs out, do not look for flags with which it would fit"},
    {.name = "placed",
     .kind = CLI_FILE,
     .argument = "FILE",
     .offset = OWN(placed),
     .help = "rehearse a placement that 'memtally place --json' wrote: its devices, flags and "
             "environment, with its own model and engine or with CMD"},
    {.name = "folder",
     .kind = CLI_DIRECTORY,
     .argument = "DIR",
     .offset = OWN(folder),
     .help = "keep the account and the program's output in DIR, which must hold no account"},
    {.name = "explain",
     .kind = CLI_FLAG,
     .offset = AT(explain),
     .help = "show where each figure comes from"},
    CLI_FORMAT_OPTIONS(AT(format), formats, CLI_FORMAT_JSON, "how to write the answer"),
    CLI_OPTION_OUTPUT(AT(output), "rehearsal"),
    CLI_OPTION_QUIET(OWN(quiet), "draw no line of progress, and do not show what CMD writes"),
    {0},
};

#define REQUESTS_MAX 100000

static int read_requests(const char *text, uint64_t otherwise, uint64_t *n, struct mt_error *error)
{
    char *end;
    *n = otherwise;
    if (!text)
        return 0;
    *n = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || *n > REQUESTS_MAX)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "rehearse: option '--requests' wants a whole number from 0 to %d, not "
                       "'%.40s'; see 'memtally help rehearse'",
                       REQUESTS_MAX, text);
    return 0;
}

/* How the model is run is said by the program's own flags. */
static int check_settings(const struct estimate_options *options, const struct cli_texts *sweep,
                          struct mt_error *error)
{
    static const struct estimate_options nothing;
    struct estimate_options rest = *options;
    rest.engine = NULL;
    rest.devices = nothing.devices;
    rest.device_kind = 0;
    rest.host_bytes = 0;
    rest.program = 0;
    rest.no_fusion = 0;
    rest.explain = 0;
    rest.format = 0;
    rest.output = NULL;
    if (memcmp(&rest, &nothing, sizeof rest) == 0 && !sweep->n)
        return 0;
    return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                   "rehearse: give the program's own flags after --, and only --device, --host and "
                   "the like before it");
}

/* The options' own complaints begin with the command that they were first made for. */
static int fail(const struct mt_error *error)
{
    return estimate_fail_as("rehearse", error);
}

/* Which of the programs that are known it is most like: they hold heaps of different size. It may
 * stand behind what starts it, as in `memtally run -- llama-bench`. */
static enum mt_program program_of(char *const *argv)
{
    struct mt_drive_command command;
    enum mt_program program = MT_PROGRAM_SERVER;
    mt_drive_command_copy(argv, &command);
    size_t index = command.failed ? 0 : command.program_index;
    mt_drive_command_finish(&command);
    const char *slash = strrchr(argv[index], '/');
    const char *name = slash ? slash + 1 : argv[index];
    if (strstr(name, "bench"))
        program = MT_PROGRAM_BENCH;
    else if (strstr(name, "fit-params"))
        program = MT_PROGRAM_FIT_PARAMS;
    else if (strncmp(name, "node", 4) == 0)
        program = MT_PROGRAM_NODE;
    return program;
}

/* The build that devices behave by: the one that was asked for, else the program's own. */
static const char *build_of(const char *engine, char *const *argv, char build[64])
{
    const char *at = engine ? strchr(engine, '@') : NULL;
    struct mt_drive_command command;
    build[0] = '\0';
    if (at)
        return at + 1;
    mt_drive_command_copy(argv, &command);
    if (!command.failed && mt_drive_command_is(&command, "devices", "ggml"))
        mt_drive_ask_build(command.words[command.program_index], environ, build);
    mt_drive_command_finish(&command);
    return *build ? build : NULL;
}

/* Devices that are no NVIDIA GPUs are ggml's alone. */
static enum mt_drive_layer layer_of(const struct rehearse_options *options, char *const *argv)
{
    if (options->estimate.device_kind || !options->estimate.devices.n)
        return MT_DRIVE_LAYER_GGML;
    return options->layer ? (enum mt_drive_layer)options->layer : mt_drive_layer_of(argv, environ);
}

/* A command line, with nothing said of how it runs its model but what is in it. */
static int rehearse_with(const struct rehearse_options *options, char *const *argv,
                         enum mt_drive_layer layer, int shows_output,
                         const struct rehearse_placed *placed, struct estimate_request *request)
{
    struct mt_rehearsal_device devices[ESTIMATE_DEVICES_MAX];
    struct rehearse_device_names names;
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct cli_teller teller;
    char build[64];
    uint64_t n_requests = 0;
    int result = read_requests(options->requests, MT_DRIVE_DEFAULT_REQUESTS, &n_requests, &error);
    if (result == 0)
        result = estimate_request_init(request, &options->estimate, &error);
    if (result == 0)
        result = estimate_choose_cards(request, options->generation, layer == MT_DRIVE_LAYER_CUDA,
                                       &error);
    if (result == 0 && layer == MT_DRIVE_LAYER_GGML)
        result = mt_drive_check_devices(request->settings.n_devices, &error);
    if (result == 0)
        result = rehearse_name_devices(&options->device_names, request->settings.n_devices, &names,
                                       &error);
    if (result == 0)
        result = rehearse_fill_devices(request, layer == MT_DRIVE_LAYER_CUDA,
                                       options->reserved_bytes, names.of, devices, &error);
    if (result < 0) {
        estimate_request_finish(request);
        return fail(&error);
    }
    request->settings.program = program_of(argv);
    cli_teller_init(&teller, !options->quiet, shows_output && !options->quiet);
    struct mt_drive_job job = {
        .argv = argv,
        .environment = environ,
        .devices = devices,
        .n_devices = request->settings.n_devices,
        .host_bytes = request->settings.host_bytes,
        .device_kind = request->settings.device_kind,
        .generation = options->generation,
        .layer = layer,
        .engine_version = build_of(options->estimate.engine, argv, build),
        .folder = options->folder,
        .n_requests = n_requests,
        .timeout_ns = options->timeout_s * SECOND_NS,
        .listener = &teller.listener,
        .interrupted = cli_catch_signals(),
    };
    struct rehearse_bounds bounds = {.limit_bytes = options->limit_bytes,
                                     .path = options->baseline,
                                     .tolerance_ratio = options->tolerance / 100};
    const struct rehearse_output output = {
        .format = (enum cli_format)options->estimate.format,
        .path = options->estimate.output,
        .explain = options->estimate.explain,
        .with_changes = !options->no_suggest,
        .bounds = &bounds,
        .placed = placed,
    };
    int code = rehearse_baseline_read(&bounds, argv, &error)
                   ? fail(&error)
                   : rehearse_answer_command(&job, &request->settings, &output);
    rehearse_bounds_finish(&bounds);
    estimate_request_finish(request);
    return *job.interrupted ? 128 + *job.interrupted : code;
}

static int rehearse_words(const struct rehearse_options *options, char *const *argv,
                          enum mt_drive_layer layer, int shows_output,
                          const struct rehearse_placed *placed)
{
    struct estimate_request *request = calloc(1, sizeof *request);
    if (!request) {
        cli_complain("rehearse: out of memory");
        return CLI_EXIT_CANNOT;
    }
    int code = rehearse_with(options, argv, layer, shows_output, placed, request);
    free(request);
    return code;
}

static int mt_drive_program(const struct cli_call *call)
{
    const struct rehearse_options *options = call->options;
    struct mt_error error = {.offset = MT_NO_OFFSET};
    if (check_settings(&options->estimate, &options->sweep, &error) < 0)
        return fail(&error);
    return rehearse_words(options, call->operands, layer_of(options, call->operands), 1, NULL);
}

/* A model in an engine that is a Python package: our program for it is rehearsed. */
static int rehearse_python(const struct rehearse_options *options, const char *model,
                           const struct rehearse_placed *placed)
{
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct mt_drive_python_command command;
    struct rehearse_options plain = *options;
    if (options->sweep.n) {
        cli_complain("rehearse: '--sweep' works with programs of llama.cpp only");
        return CLI_EXIT_USAGE;
    }
    plain.estimate = (struct estimate_options){.devices = options->estimate.devices,
                                               .host_bytes = options->estimate.host_bytes,
                                               .explain = options->estimate.explain,
                                               .format = options->estimate.format,
                                               .output = options->estimate.output};
    struct estimate_request *request = calloc(1, sizeof *request);
    int result = request ? estimate_request_init(request, &plain.estimate, &error)
                         : mt_out_of_memory(&error);
    if (result == 0)
        result = rehearse_python_request(&options->estimate, model, request->settings.n_devices,
                                         placed ? placed->device_map : NULL, &command, &error);
    if (request)
        estimate_request_finish(request);
    free(request);
    if (result < 0)
        return fail(&error);
    int code = rehearse_words(&plain, command.argv, MT_DRIVE_LAYER_CUDA, 0, placed);
    mt_drive_python_command_finish(&command);
    return code;
}

static int rehearse_model_of(const struct cli_call *call)
{
    const struct rehearse_options *options = call->options;
    struct mt_error error = {.offset = MT_NO_OFFSET};
    uint64_t n_requests;
    if (mt_drive_is_python_engine(options->estimate.engine))
        return rehearse_python(options, call->operands[0], NULL);
    if (read_requests(options->requests, 0, &n_requests, &error) < 0)
        return cli_fail(&error);
    const struct rehearse_model_options model = {.estimate = &options->estimate,
                                                 .sweep = &options->sweep,
                                                 .generation = options->generation,
                                                 .reserved_bytes = options->reserved_bytes,
                                                 .device_names = &options->device_names,
                                                 .timeout_ns = options->timeout_s * SECOND_NS,
                                                 .folder = options->folder,
                                                 .n_requests = n_requests,
                                                 .no_suggest = options->no_suggest,
                                                 .quiet = options->quiet};
    return rehearse_model_command(call->operands[0], &model);
}

/* ---- placements ---- */

#define PLACED_WORDS_MAX (REHEARSE_PLACED_WORDS_MAX + 8)

static void take_devices(const struct rehearse_placed *placed, struct estimate_options *options)
{
    options->devices.n = placed->n_devices;
    for (size_t i = 0; i < placed->n_devices; i++)
        options->devices.items[i] = placed->sizes[i];
}

/* The words of `begin` and those of the placement. The caller frees the answer. */
static char **with_flags(char *const *begin, const struct rehearse_placed *placed)
{
    size_t n = 0;
    while (begin[n])
        n++;
    char **words = calloc(n + placed->n_words + 1, sizeof *words);
    if (!words)
        return NULL;
    memcpy(words, begin, n * sizeof *words);
    memcpy(words + n, placed->words, placed->n_words * sizeof *words);
    return words;
}

static int rehearse_command_as_placed(struct rehearse_options *options, char *const *begin,
                                      const struct rehearse_placed *placed, int shows_output)
{
    struct mt_error error = {.offset = MT_NO_OFFSET};
    if (check_settings(&options->estimate, &options->sweep, &error) < 0)
        return fail(&error);
    take_devices(placed, &options->estimate);
    char **words = with_flags(begin, placed);
    if (!words) {
        cli_complain("rehearse: out of memory");
        return CLI_EXIT_CANNOT;
    }
    /* Sizes alone do not make them ggml's. */
    enum mt_drive_layer layer =
        options->layer ? (enum mt_drive_layer)options->layer : mt_drive_layer_of(words, environ);
    int code = rehearse_words(options, words, layer, shows_output, placed);
    free(words);
    return code;
}

/* A server of llama.cpp, which is also what Ollama starts. */
static int rehearse_server_as_placed(struct rehearse_options *options,
                                     struct rehearse_placed *placed)
{
    char program[PATH_MAX], tokens[24];
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct mt_drive_command command;
    if (mt_drive_find_program(MT_PROGRAM_SERVER, options->estimate.engine_path, environ, program,
                              &error))
        return fail(&error);
    options->estimate.engine_path = NULL;
    char *const alone[] = {program, NULL};
    mt_drive_command_copy(alone, &command);
    mt_drive_flag_set(&command, MT_DRIVE_MODEL, placed->model);
    snprintf(tokens, sizeof tokens, "%" PRIu64, placed->context_tokens);
    mt_drive_flag_set(&command, MT_DRIVE_CONTEXT, tokens);
    /* The last word of "PARAMETER num_gpu 33". */
    if (!strcmp(placed->way, "layers") && placed->n_words) {
        mt_drive_flag_set(&command, MT_DRIVE_GPU_LAYERS, placed->words[placed->n_words - 1]);
        placed->n_words = 0;
    }
    char **begin = mt_drive_command_take(&command);
    int code = CLI_EXIT_CANNOT;
    if (begin)
        code = rehearse_command_as_placed(options, begin, placed, 0);
    else
        cli_complain("rehearse: out of memory");
    mt_drive_argv_free(begin);
    return code;
}

/* Its own model and engine. */
static int rehearse_as_placed(struct rehearse_options *options, struct rehearse_placed *placed)
{
    if (mt_drive_is_python_engine(placed->engine)) {
        options->estimate.engine = placed->engine;
        options->estimate.context = placed->context_tokens;
        options->estimate.pipeline_parallel = placed->stages;
        options->estimate.memory_share = placed->memory_share > 0 ? placed->memory_share : 0;
        options->estimate.tensor_parallel = placed->stages ? 1 : 0;
        take_devices(placed, &options->estimate);
        return rehearse_python(options, placed->model, placed);
    }
    if (!strcmp(placed->way, "tensor-split") || !strcmp(placed->way, "layers"))
        return rehearse_server_as_placed(options, placed);
    cli_complain("rehearse: memtally cannot start %s; give its command after --", placed->engine);
    return CLI_EXIT_USAGE;
}

static int rehearse_placement(const struct cli_call *call)
{
    struct rehearse_options options = *(const struct rehearse_options *)call->options;
    struct rehearse_placed placed;
    struct mt_error error = {.offset = MT_NO_OFFSET};
    int code = CLI_EXIT_USAGE;
    if (call->n_plain || options.estimate.devices.n)
        cli_complain("rehearse: '--placed' brings the model and the devices; give neither");
    else if (rehearse_placed_read(options.placed, &placed, &error))
        code = fail(&error);
    else if (call->has_dashes)
        code = rehearse_command_as_placed(&options, call->operands, &placed, 1);
    else
        code = rehearse_as_placed(&options, &placed);
    if (!call->n_plain && !options.estimate.devices.n)
        rehearse_placed_finish(&placed);
    return code;
}

static int run_rehearse(const struct cli_call *call)
{
    const struct rehearse_options *options = call->options;
    const char *bound = options->limit_bytes ? "limit" : options->baseline ? "baseline" : NULL;
    if (bound && (!call->has_dashes || !options->estimate.devices.n)) {
        cli_complain("rehearse: '--%s' wants --device, and -- with the program to rehearse", bound);
        return CLI_EXIT_USAGE;
    }
    if (options->placed)
        return rehearse_placement(call);
    if (!call->has_dashes && call->n_operands == 1)
        return rehearse_model_of(call);
    if (call->has_dashes && call->n_plain == 0)
        return mt_drive_program(call);
    cli_complain("rehearse: give one MODEL, or -- and the program to rehearse");
    return CLI_EXIT_USAGE;
}

static const char *const description[] = {
    "Runs CMD, a program that uses ggml or CUDA, on devices that are not there. They have the "
    "sizes that --device gives. They give out addresses without memory, compute nothing, and "
    "refuse an allocation where such a device would. memtally hides the machine's real devices "
    "from CMD. What CMD allocates is exact for its build and its flags. It reads no weights, so a "
    "model file with a hole in their place will do. Without --device CMD runs on the CPU alone, "
    "and memtally counts the host.",
    "memtally shows on standard error what CMD writes, unless --quiet is given.",
    "Programs of llama.cpp, and others with ggml in shared libraries, get devices of ggml. Any "
    "other CMD gets devices of CUDA: PyTorch, transformers, vLLM, SGLang and whatever links "
    "CUDA's libraries dynamically run unmodified, on GPUs by name (H100-80GB, L40S) or by size. "
    "memtally splits what they hold into weights, cache, activations, what training keeps and the "
    "rest.",
    "With MODEL, as 'memtally estimate' takes it, memtally starts an engine of this machine with "
    "the given settings and ends it once it is ready. The engine is a program of llama.cpp from "
    "--engine-path, the cache of engines or PATH; else it is node-llama-cpp, if neither --program "
    "nor --requests asks for a server. The engine decides open settings itself, also what goes to "
    "the devices. If MODEL is no local GGUF file, memtally makes a header with a hole of it. "
    "MODEL gets no request unless --requests says how many.",
    "With --engine vllm, sglang or transformers, MODEL is a folder with a config.json, that file, "
    "or a name in the hub's cache. Weights have the right shapes and no values; they need not be "
    "there, and memtally fetches nothing. vLLM and SGLang get one batch as large as they take, "
    "and transformers writes a few tokens. Layers or ranks are divided over all devices. vLLM and "
    "SGLang take --context, --sequences, --weight-type, --kv-type, --memory-share, "
    "--batched-tokens, --tensor-parallel, --pipeline-parallel and --eager. transformers takes the "
    "first three and --no-kv-offload.",
    "With --placed memtally rehearses what 'memtally place --json' wrote. llama.cpp, vLLM, SGLang "
    "and transformers are started with the placement's model; CMD gets its flags behind its own. A "
    "note says what each device was expected to hold, and what it holds.",
    "memtally ends a server once it is ready and has answered some requests, which make it take "
    "what it takes late. Other programs run to their end. The answer is an estimate as of "
    "'memtally estimate', with what the driver takes; it lists what the server took after it was "
    "ready.",
    "The verdict is SPILLS and the exit status 1 if weights or a cache lie on the host that were "
    "meant for devices, whoever started the engine. What the flags themselves put there (-ngl N, "
    "--cpu-moe, -ot) does not spill. memtally does not judge this if it does not know the "
    "program's flags or model file.",
    "If the program runs out of memory, memtally says which allocation failed, what it was for, "
    "when, and by how much. It rehearses changes of flags and shows those that fit: for programs "
    "of llama.cpp, for vLLM and SGLang, and for MODEL in transformers. For other programs on CUDA "
    "it shows the device that would do. If the program crashes or hangs, memtally says so and "
    "shows its last output.",
    NULL,
};

static const struct cli_example examples[] = {
    {"memtally rehearse model.gguf --device 24GiB,24GiB --context 32768",
     "What llama-server itself would take on two cards."},
    {"memtally rehearse model.gguf -d 24GiB --sweep context=2k..128k,ubatch=512,2k",
     "A table of fourteen rehearsals."},
    {"memtally rehearse --device 16GiB -- llama-server -m model.gguf -c 32768",
     "Would this server start on a card of 16 GiB?"},
    {"memtally rehearse --device 2x24GiB --host 64GiB -- llama-bench -m model.gguf",
     "Two cards and a host with 64 GiB."},
    {"memtally rehearse --host 16GiB -- llama-server -m model.gguf -c 8192",
     "No device: what it takes of the host where it computes on the CPU."},
    {"memtally rehearse --device H100-80GB,H100-80GB -- vllm serve model -tp 2",
     "What vLLM would hold on each of two H100s."},
    {"memtally rehearse Qwen3-32B -e vllm --engine-path venv -d H100-80GB",
     "The same of a model's folder, without a server and without weights."},
    {"memtally rehearse Qwen3-32B -e transformers -d 24GiB,24GiB,24GiB,24GiB",
     "Its layers divided over four cards, with the Python that is active."},
    {"memtally rehearse --device H100-80GB --limit 60GiB -- python train.py",
     "Fails where it takes more than 60 GiB of a card that has 80."},
    {"memtally rehearse --device H100-80GB --baseline memory.txt -- python train.py",
     "Fails where it takes more than when memory.txt was written, which it writes the first time."},
    {"memtally rehearse --device 24GiB -- python train.py",
     "Would this training run on a card of 24 GiB?"},
    {"memtally rehearse --device 24GiB --reserved 2GiB --json -- node chat.mjs",
     "A program of one's own, on a card of which 2 GiB are taken."},
    {0},
};

static const struct cli_status statuses[] = {
    {"0", "it runs, and fits or is tight; also if it was refused memory and went on with less"},
    {"1", "it runs out of memory, fails by itself, hangs, spills, memory pages, or it takes more "
          "than --limit or --baseline allow"},
    {"2", "wrong usage, or devices that cannot be pretended"},
    {"3", "memtally cannot rehearse it: it takes no device of ggml or CUDA or ends before it does, "
          "is static or setuid, or brings NVIDIA's own libraries; or there is no engine or model"},
    {0},
};

const struct cmd_entry cmd_rehearse = {
    .name = "rehearse",
    .synopsis = "[options] MODEL | [options] -- CMD [ARGUMENT...] | --placed FILE [-- CMD]",
    .summary = "run an engine on devices that are not there",
    .description = description,
    .examples = examples,
    .statuses = statuses,
    .options = rehearse_options,
    .options_size = sizeof(struct rehearse_options),
    .operands = CLI_OPERANDS_FILES,
    .least_operands = 0,
    .run = run_rehearse,
};
