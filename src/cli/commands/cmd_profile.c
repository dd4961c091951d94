/* SPDX-License-Identifier: MIT */
/* profile: runs a model with an engine under the recorder and says where the memory went. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/document/torch_table.h"
#include "cli/profile/contained.h"
#include "cli/profile/result.h"
#include "cli/profile/signals.h"
#include "cli/profile/verdict.h"
#include "cli/program.h"
#include "cli/rehearse/recorded.h"
#include "cli/shared_options.h"
#include "cli/teller.h"
#include "cli/words.h"
#include "drive/contained.h"
#include "drive/engine_version.h"
#include "drive/find.h"
#include "drive/layer.h"
#include "drive/model_file.h"
#include "drive/objects.h"
#include "drive/python.h"
#include "drive/session.h"
#include "drive/stage.h"
#include "net/http_client.h"

struct profile_options {
    int engine;
    const char *engine_path;
    const char *output;
    uint64_t repeats;
    const char *prompt;
    uint64_t prompt_tokens;
    uint64_t max_tokens;
    uint64_t batch_size;
    uint64_t context;
    int kv_type;
    const char *dtype;
    const char *device_map;
    uint64_t tensor_parallel;
    struct cli_texts devices;
    uint64_t threads;
    uint64_t timeout;
    int depth;
    int stacks;
    double picture_share;
    int layers;
    int operations;
    int format;
    int json;
    const char *container;
};

#define AT(member) offsetof(struct profile_options, member)

static const char *const engine_names[] = {
    "auto",         "node-llama-cpp", "llama-server", "llama-bench",
    "transformers", "vllm",           "sglang",       NULL};
static const char *const kv_types[] = {"default", "f32",    "f16",  "bf16", "q8_0", "q4_0",
                                       "q4_1",    "iq4_nl", "q5_0", "q5_1", "fp8",  NULL};
static const char *const formats[] = {"table", "json", "csv", NULL};

static const struct cli_option options[] = {
    {.name = "engine",
     .kind = CLI_CHOICE,
     .argument = "NAME",
     .fallback = "auto",
     .choices = engine_names,
     .offset = AT(engine),
     .help = "the engine; auto takes the first of llama.cpp that is found, in this order, and "
             "transformers for a folder"},
    {.name = "engine-path",
     .kind = CLI_FILE,
     .argument = "PATH",
     .offset = AT(engine_path),
     .help = "a folder with node_modules or with llama.cpp's programs, or one of these programs; "
             "for Python packages, a Python or the folder of a virtual environment"},
    {.name = "output",
     .letter = 'o',
     .kind = CLI_DIRECTORY,
     .argument = "DIR",
     .offset = AT(output),
     .help = "keep the recording, report.json, report.csv and engine.log in DIR"},
    {.name = "repeats",
     .kind = CLI_COUNT,
     .argument = "N",
     .fallback = "3",
     .least = 1,
     .most = MT_PROFILE_REPEATS_MAX,
     .offset = AT(repeats),
     .help = "measured runs, after one to warm up"},
    {.name = "prompt",
     .kind = CLI_TEXT,
     .argument = "TEXT",
     .offset = AT(prompt),
     .help = "the prompt"},
    {.name = "prompt-tokens",
     .kind = CLI_COUNT,
     .argument = "N",
     .least = 1,
     .most = 1UL << 24,
     .offset = AT(prompt_tokens),
     .help = "make up a prompt of N tokens (128 where no prompt is given)"},
    {.name = "max-tokens",
     .kind = CLI_COUNT,
     .argument = "N",
     .fallback = "32",
     .least = 1,
     .most = 1UL << 24,
     .offset = AT(max_tokens),
     .help = "generate N tokens in each sequence; ends of text are ignored"},
    {.name = "batch-size",
     .kind = CLI_COUNT,
     .argument = "N",
     .fallback = "1",
     .least = 1,
     .most = MT_PROFILE_BATCH_MAX,
     .offset = AT(batch_size),
     .help = "sequences that the engine generates side by side"},
    {.name = "context",
     .kind = CLI_COUNT,
     .argument = "N",
     .least = 1,
     .most = 1UL << 28,
     .offset = AT(context),
     .help = "tokens of context of each sequence (2048, or more where prompt and output need it)"},
    {.name = "kv-type",
     .kind = CLI_CHOICE,
     .argument = "TYPE",
     .fallback = "default",
     .choices = kv_types,
     .offset = AT(kv_type),
     .help = "type of the KV cache's keys and values; default is the engine's own"},
    {.name = "dtype",
     .kind = CLI_TEXT,
     .argument = "TYPE",
     .offset = AT(dtype),
     .help = "type of the weights, as bf16, f16 or f32 (the model's own); for Python packages"},
    {.name = "device-map",
     .kind = CLI_FILE,
     .argument = "auto|FILE",
     .offset = AT(device_map),
     .help = "where transformers puts each module: auto divides the model over all devices, a JSON "
             "file names modules and devices (all of it on the first device)"},
    {.name = "tensor-parallel",
     .kind = CLI_COUNT,
     .argument = "N",
     .least = 1,
     .most = 64,
     .offset = AT(tensor_parallel),
     .help = "devices that share each layer; for Python packages"},
    CLI_OPTION_ON(
        AT(devices),
        "profile on devices that are not there, which compute nothing, as memtally run does; "
        "for Python packages"),
    {.name = "threads",
     .kind = CLI_COUNT,
     .argument = "N",
     .least = 1,
     .most = 4096,
     .offset = AT(threads),
     .help = "threads that compute (the engine's own choice)"},
    CLI_OPTION_TIMEOUT(AT(timeout), "300", 1000000,
                       "give up if the engine makes no progress for this time"),
    CLI_OPTION_DEPTH(
        AT(depth), "record large allocations exactly and sample small ones, or record all in full"),
    CLI_OPTION_STACKS(AT(stacks),
                      "take call stacks by frame pointers, by unwinding, or not at all"),
    CLI_OPTION_PICTURE_SHARE(
        AT(picture_share),
        "how much of the run's time pictures of the resident pages may take; measured runs take "
        "that much longer; 20 ms are always allowed"),
    {.name = "layers",
     .kind = CLI_FLAG,
     .offset = AT(layers),
     .help = "for an engine on PyTorch: what each layer holds and takes, below the table and in "
             "layers.json and layers.csv of -o DIR"},
    {.name = "operations",
     .kind = CLI_FLAG,
     .offset = AT(operations),
     .help = "for an engine on PyTorch: what each operator takes, likewise in operations.json "
             "and operations.csv"},
    {.name = "format",
     .kind = CLI_CHOICE,
     .argument = "FORMAT",
     .fallback = "table",
     .choices = formats,
     .offset = AT(format),
     .help = "what to print; csv is one line for each run"},
    {.name = "json", .kind = CLI_FLAG, .offset = AT(json), .help = "the same as --format json"},
    {.name = "container",
     .kind = CLI_TEXT,
     .argument = "NAME",
     .offset = AT(container),
     .help = "profile the engine and the model of this container of Docker or Podman, in it and "
             "beside its own; give no MODEL then"},
    {0},
};

static int settings_of(const struct profile_options *given, const char *model_path,
                       struct mt_profile_settings *settings, struct mt_error *error)
{
    if (given->prompt && given->prompt_tokens)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "give either --prompt or --prompt-tokens, not both");
    if (given->prompt && !*given->prompt)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "--prompt is empty");
    *settings = (struct mt_profile_settings){
        .model_path = model_path,
        .prompt = given->prompt,
        .prompt_tokens =
            given->prompt_tokens ? given->prompt_tokens : MT_PROFILE_DEFAULT_PROMPT_TOKENS,
        .max_tokens = given->max_tokens,
        .batch_size = given->batch_size,
        .context_tokens = given->context,
        .threads = given->threads,
        .repeats = given->repeats,
        .kv_type = given->kv_type ? kv_types[given->kv_type] : NULL,
        .dtype = given->dtype,
        .device_map = given->device_map,
        .tensor_parallel = given->tensor_parallel,
        .is_pretended = given->devices.n > 0,
        .timeout_ns = given->timeout * 1000000000,
    };
    uint64_t unused;
    return given->prompt
               ? MT_OK
               : mt_profile_context_tokens(settings, settings->prompt_tokens, &unused, error);
}

/* memtally sees layers and operations in PyTorch alone. JSON and CSV of a profile have no key for
 * them. */
static int check_told(const struct profile_options *given, const char *engine,
                      struct mt_error *error)
{
    if (!given->layers && !given->operations)
        return MT_OK;
    if (!mt_drive_is_python_engine(engine))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "--layers and --operations are of engines on PyTorch (transformers, vllm, "
                       "sglang); %s is none: leave them out",
                       strcmp(engine, "auto") == 0 ? "what reads a GGUF file" : engine);
    if ((given->json || given->format != CLI_FORMAT_TABLE) && !given->output)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "--layers and --operations are files of their own beside the report in this "
                       "format; say where with -o DIR");
    return MT_OK;
}

/* A folder is what Python packages read. */
static const char *engine_name_for(const struct profile_options *given, const char *model)
{
    struct stat status;
    char config[PATH_MAX];
    int is_folder = snprintf(config, sizeof config, "%s/config.json", model) < PATH_MAX &&
                    stat(config, &status) == 0;
    return given->engine == 0 && is_folder ? "transformers" : engine_names[given->engine];
}

static int find_engine(const struct profile_options *given, const char *name,
                       struct mt_profile_engine *engine, struct mt_error *error)
{
    char engines[PATH_MAX];
    char scripts[PATH_MAX];
    mt_profile_engines_folder(environ, engines, sizeof engines);
    mt_profile_scripts_folder(scripts, sizeof scripts);
    const struct mt_profile_places places = {.engines = engines,
                                             .path = getenv("PATH"),
                                             .scripts = scripts,
                                             .virtual_env = getenv("VIRTUAL_ENV")};
    return mt_profile_find_engine(name, given->engine_path, &places, engine, error);
}

static int render(const struct cli_document *document, enum cli_format format, const char *path)
{
    struct mt_strbuf out = {0};
    struct mt_error error = {0};
    struct cli_terminal terminal = cli_terminal_of(STDOUT_FILENO);
    int code = cli_document_render(document, format, &terminal, &out, &error);
    code = code == MT_OK ? cli_write_output(&out, path) : cli_fail(&error);
    mt_strbuf_finish(&out);
    return code;
}

static int keep_report(const struct cli_document *document, const char *folder, const char *name,
                       enum cli_format format)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return CLI_EXIT_USAGE;
    return render(document, format, path);
}

/* As a document of its own beside the report. Of what was not seen there is none. */
static int keep_told(const char *folder, enum mt_torch_table_kind kind, const char *name,
                     enum cli_format format)
{
    char path[PATH_MAX];
    struct mt_strbuf out = {0};
    struct cli_terminal terminal = cli_terminal_of(STDOUT_FILENO);
    int code = CLI_EXIT_OK;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return CLI_EXIT_USAGE;
    if (cli_document_torch_table(folder, kind, format, 0, &terminal, &out, NULL) == MT_OK)
        code = cli_write_output(&out, path);
    mt_strbuf_finish(&out);
    return code;
}

static int tell(const struct profile_options *given, const char *folder,
                enum mt_torch_table_kind kind)
{
    int is_layers = kind == MT_TORCH_TABLE_LAYERS;
    int is_table = !given->json && given->format == CLI_FORMAT_TABLE;
    int code = CLI_EXIT_OK;
    if (!(is_layers ? given->layers : given->operations))
        return code;
    if (is_table)
        cli_print_torch_table("profile", folder, kind, stdout);
    if (given->output)
        code =
            keep_told(folder, kind, is_layers ? "layers.json" : "operations.json", CLI_FORMAT_JSON);
    if (given->output && code == CLI_EXIT_OK)
        code = keep_told(folder, kind, is_layers ? "layers.csv" : "operations.csv", CLI_FORMAT_CSV);
    return code;
}

/* What the command has while it runs, all zero at first. */
struct work {
    struct mt_profile_engine engine;
    struct mt_profile_job job;
    char model_path[PATH_MAX];
    char folder[PATH_MAX];
    struct profile_contained contained; /* of a profile in a container */
};

/* What a container adds. */
static void describe_container(struct work *work, struct profile_result *result)
{
    struct cli_document *document = &result->loaded.document;
    const char *note = profile_contained_note(&work->contained);
    document->container = work->contained.container;
    if (note)
        result->notes[document->n_notes++] = note;
}

static int report(struct work *work, const struct profile_options *given, const char *folder,
                  uint64_t start_ns)
{
    struct mt_profile_job *job = &work->job;
    struct profile_result result = {0};
    struct mt_error error = {0};
    int code = CLI_EXIT_OK;
    if (profile_result_make(job, folder, start_ns, &result, &error) != MT_OK)
        code = cli_fail(&error);
    if (!given->output)
        result.loaded.document.recording = NULL;
    if (code == CLI_EXIT_OK)
        describe_container(work, &result);
    if (code == CLI_EXIT_OK && given->output)
        code = keep_report(&result.loaded.document, folder, "report.json", CLI_FORMAT_JSON);
    if (code == CLI_EXIT_OK && given->output)
        code = keep_report(&result.loaded.document, folder, "report.csv", CLI_FORMAT_CSV);
    if (code == CLI_EXIT_OK)
        code = render(&result.loaded.document,
                      given->json ? CLI_FORMAT_JSON : (enum cli_format)given->format, NULL);
    if (code == CLI_EXIT_OK && given->container)
        code = profile_contained_keep(&work->contained, &result.loaded.document);
    profile_result_finish(&result);
    if (code == CLI_EXIT_OK)
        code = tell(given, folder, MT_TORCH_TABLE_LAYERS);
    return code == CLI_EXIT_OK ? tell(given, folder, MT_TORCH_TABLE_OPERATIONS) : code;
}

/* llama.cpp's programs know their build, but a build out of a source archive does not know its
 * number. */
static void complete_version(struct mt_profile_job *job, const struct profile_options *given)
{
    if (given->container)
        return; /* its program is not one of this machine's */
    struct mt_profile_facts *facts = mt_profile_journal_lock_facts(&job->journal);
    if (!*facts->engine_version)
        mt_profile_ask_version(job->engine->program, environ, facts->engine_version,
                               sizeof facts->engine_version);
    mt_profile_journal_unlock_facts(&job->journal);
}

/* Devices that are not there, while the engine runs. */
struct devices {
    struct rehearse_recorded *pretended; /* NULL where there are none */
    char *const *environment;            /* of the engine */
};

static int open_devices(struct mt_profile_job *job, const struct profile_options *given,
                        struct devices *devices)
{
    char *argv[] = {(char *)(uintptr_t)job->engine->program, NULL};
    *devices = (struct devices){NULL, environ};
    return given->devices.n
               ? rehearse_open_recorded("profile", &given->devices, NULL, argv, environ,
                                        &devices->pretended, &devices->environment)
               : CLI_EXIT_OK;
}

static void poll_devices(void *context)
{
    struct devices *devices = context;
    if (devices->pretended)
        rehearse_poll_recorded(devices->pretended);
}

static int run_session(struct work *work, const struct profile_options *given, char *folder,
                       struct devices *devices, struct mt_profile_outcome *outcome)
{
    struct mt_profile_job *job = &work->job;
    struct mt_contained *contained = work->contained.contained;
    char recorder[PATH_MAX];
    char site[PATH_MAX] = "";
    struct mt_error error = {0};
    double share = given->picture_share / 100;
    struct cli_teller teller;
    struct sigaction before[CLI_WATCHED_SIGNALS];
    cli_teller_init(&teller, 1, 0);
    if (job->engine->driver->package)
        mt_drive_find_site(site, sizeof site);
    struct mt_profile_session_options session = {
        .directory = folder,
        .environment = devices->environment,
        .recorder_path = recorder,
        .runner = contained ? mt_contained_runner(contained) : NULL,
        .depth = (enum mt_depth)given->depth,
        .stacks = (enum mt_stacks)given->stacks,
        .picture_share = share > 0 ? share : 1e-9, /* 0 would ask for the default */
        .python_site = *site ? site : NULL,
        .tells_layers = given->layers,
        .tells_operations = given->operations,
        .keep = given->output != NULL,
        .poll = poll_devices,
        .poll_context = devices,
        .listener = &teller.listener,
        .signals = cli_watch_signals(before)};
    int code = mt_drive_find_recorder(environ, recorder, sizeof recorder, &error);
    if (code == MT_OK)
        code = mt_profile_session_run(job, &session, outcome, &error);
    cli_restore_signals(before);
    return code == MT_OK ? CLI_EXIT_OK : cli_fail(&error);
}

static int run_job(struct work *work, const struct profile_options *given, char *folder)
{
    struct mt_profile_job *job = &work->job;
    struct mt_profile_outcome outcome = {0};
    struct devices devices;
    int code = open_devices(job, given, &devices);
    if (code != CLI_EXIT_OK)
        return code;
    code = run_session(work, given, folder, &devices, &outcome);
    rehearse_close_recorded(devices.pretended);
    if (code != CLI_EXIT_OK)
        return code;
    code = profile_verdict(job, &outcome, given->output ? folder : NULL);
    if (code != CLI_EXIT_OK)
        return code;
    complete_version(job, given);
    return report(work, given, folder, outcome.start_ns);
}

static int profile_in_folder(const struct mt_profile_settings *settings,
                             const struct profile_options *given, struct work *work)
{
    struct mt_error error = {0};
    struct mt_profile_job *job = &work->job;
    job->settings = settings;
    job->engine = &work->engine;
    if (cli_choose_folder(given->output, "profile", work->folder, &error) != MT_OK)
        return cli_fail(&error);
    mt_profile_journal_init(&job->journal);
    int code = run_job(work, given, work->folder);
    mt_profile_journal_finish(&job->journal);
    mt_strbuf_finish(&job->output);
    if (!given->output)
        mt_drive_folder_remove(work->folder);
    return code;
}

static int profile_found(const struct profile_options *given, struct work *work)
{
    struct mt_profile_settings settings;
    struct mt_error error = {0};
    int code = settings_of(given, work->model_path, &settings, &error);
    if (code == MT_OK && !work->engine.driver)
        code = find_engine(given, engine_name_for(given, work->model_path), &work->engine, &error);
    if (code == MT_OK)
        code = work->engine.driver->check(&settings, &error);
    return code == MT_OK ? profile_in_folder(&settings, given, work) : cli_fail(&error);
}

static int profile_here(const struct cli_call *call, struct work *work)
{
    struct mt_error error = {0};
    const char *model = call->operands[0];
    const char *engine = engine_name_for(call->options, model);
    int code = check_told(call->options, engine, &error);
    if (code == MT_OK)
        code = mt_drive_is_python_engine(engine)
                   ? mt_profile_model_folder(model, engine, work->model_path, &error)
                   : mt_profile_model_file(model, work->model_path, &error);
    return code == MT_OK ? profile_found(call->options, work) : cli_fail(&error);
}

/* memtally removes what it copied in before it says how the profile went. */
static int profile_container(const struct profile_options *given, struct work *work)
{
    struct mt_error error = {0};
    int code = profile_contained_find(given->container, &work->contained);
    if (code == CLI_EXIT_OK)
        code = profile_contained_open(&work->contained);
    if (code == CLI_EXIT_OK &&
        check_told(given, work->contained.found.engine.driver->name, &error) != MT_OK)
        code = cli_fail(&error);
    if (code == CLI_EXIT_OK) {
        work->engine = work->contained.found.engine;
        memcpy(work->model_path, work->contained.found.model_path, sizeof work->model_path);
        code = profile_found(given, work);
    }
    return profile_contained_close(&work->contained, code);
}

static int profile(const struct cli_call *call, struct work *work)
{
    const struct profile_options *given = call->options;
    struct mt_error error = {0};
    if (!call->operands[0] == !given->container) {
        cli_complain(given->container ? "profile: give either MODEL or --container, not both"
                                      : "profile: give a MODEL, or --container NAME; see "
                                        "'memtally help profile'");
        return CLI_EXIT_USAGE;
    }
    if (mt_http_start(&error) != MT_OK)
        return cli_fail(&error);
    int code = given->container ? profile_container(given, work) : profile_here(call, work);
    mt_http_stop();
    return code;
}

static int run(const struct cli_call *call)
{
    struct work *work = calloc(1, sizeof *work);
    if (!work) {
        cli_complain("profile: out of memory");
        return CLI_EXIT_CANNOT;
    }
    int code = profile(call, work);
    free(work);
    return code;
}

static const char *const description[] = {
    "Loads a model with an engine under the recorder. The engine reads a prompt and "
    "generates, once to warm up and then as often as --repeats says. memtally prints which memory "
    "went where at the peak, with the time and the peak of every run.",
    "Engines are node-llama-cpp (npm), llama-server and llama-bench (llama.cpp), which read a GGUF "
    "file, and the Python packages transformers, vllm and sglang, which read a folder with a "
    "config.json. memtally looks for them at --engine-path, in the cache that scripts/engine "
    "fills, "
    "and in PATH; for a package first in the virtual environment that is active.",
    "transformers computes on the first device that it finds, else on the CPU; vllm and sglang "
    "need devices. With --on the engine takes memory as on such a device and computes nothing: "
    "times and generated text then mean nothing.",
    "With --container memtally finds engine and model by the container's processes and starts the "
    "engine once more in it, beside its own, which so far must be llama-server. What memtally "
    "copies into the container it removes, whatever way the profile ends. The figures are also "
    "kept in results/memory-profiles/NAME_YYYYMMDD_HHMMSS.json.",
    "llama-bench makes up its own prompt and context and generates one sequence; it takes no "
    "--prompt, --context or --batch-size.",
    NULL,
};

static const struct cli_example examples[] = {
    {"memtally profile model.gguf", "Profile a model with the first engine that is found."},
    {"memtally profile model.gguf --context 8192 --kv-type q8_0 -o profile/",
     "See what a long context with a quantised cache takes, and keep everything."},
    {"memtally profile m.gguf --engine llama-server --batch-size 4 --format csv",
     "Four sequences side by side; times and peaks for a spreadsheet."},
    {"memtally profile --container chat --max-tokens 200 --batch-size 2",
     "What a container serves, measured in it; the result is kept in results/memory-profiles."},
    {"memtally profile MODEL_DIR --engine transformers --on H100-80GB",
     "A model in transformers, on a device that this machine need not have."},
    {"memtally profile MODEL_DIR --layers -o profile/",
     "Which layers of it hold and take how much."},
    {0},
};

static const struct cli_status statuses[] = {
    {"0", "the profile was made"},
    {"1", "the engine hung, or what it printed makes no sense"},
    {"2", "wrong usage, or a model or an engine path that is of no use"},
    {"3", "no engine on this machine, or no permission"},
    {"other", "the status of the engine if it failed, 128+n if signal n killed it"},
    {0},
};

const struct cmd_entry cmd_profile = {
    .name = "profile",
    .synopsis = "[options] MODEL|--container NAME",
    .summary = "run a model with an engine and say where the memory went",
    .description = description,
    .examples = examples,
    .statuses = statuses,
    .options = options,
    .options_size = sizeof(struct profile_options),
    .operands = CLI_OPERANDS_FILES,
    .least_operands = 0,
    .most_operands = 1,
    .run = run,
};
