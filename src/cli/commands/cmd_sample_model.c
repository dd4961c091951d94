/* SPDX-License-Identifier: MIT */
/* memtally sample-model: a model file of a given shape, so that everything can be tried without a
 * download. */
#include <inttypes.h>
#include <memtally/error.h>
#include <memtally/model.h>
#include <memtally/units.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/model/sample_from.h"
#include "cli/progress.h"
#include "cli/shared_options.h"
#include "cli/suggest.h"
#include "emit/json.h"
#include "emit/text_table.h"

enum mode { MODE_DEFAULT, MODE_SPARSE, MODE_RANDOM };

/* A number of 0 leaves what the shape says. */
struct sample_options {
    int mode;
    int type;
    uint64_t seed;
    int list;
    int json;
    int quiet;
    const char *architecture;
    uint64_t layers;
    uint64_t embedding_length;
    uint64_t ff_length;
    uint64_t heads;
    uint64_t kv_heads;
    uint64_t head_size;
    uint64_t vocabulary;
    uint64_t context_length;
    uint64_t sliding_window;
    uint64_t experts;
    uint64_t experts_used;
    uint64_t expert_ff_length;
    int tied_embeddings;
    const char *from;
    int remote;
    int drop_vocabulary;
};

#define TYPE_NAME(NAME, name) name,
static const char *const type_names[] = {MT_FILE_TYPE_LIST(TYPE_NAME) NULL};
#undef TYPE_NAME

#define AT(member) offsetof(struct sample_options, member)
#define NUMBER(option, member, text)                                                               \
    {                                                                                              \
        .name = option, .kind = CLI_COUNT, .argument = "N", .least = 1, .offset = AT(member),      \
        .help = text                                                                               \
    }

static const struct cli_option sample_options[] = {
    {.name = "random",
     .kind = CLI_FLAG,
     .offset = AT(mode),
     .value = MODE_RANDOM,
     .help = "write random weights: an engine loads and runs the model, its text means nothing "
             "(this is the default)"},
    {.name = "sparse",
     .kind = CLI_FLAG,
     .offset = AT(mode),
     .value = MODE_SPARSE,
     .help = "write the header and leave a hole in place of the weights: takes no room on disk"},
    {.name = "type",
     .letter = 't',
     .kind = CLI_CHOICE,
     .argument = "TYPE",
     .choices = type_names,
     .fallback = "f16",
     .offset = AT(type),
     .help =
         "how the matrices are stored; q4_k_m and its like are mixtures as llama.cpp's quantiser "
         "makes them; mxfp4 is only for --from"},
    {.name = "from",
     .kind = CLI_FILE,
     .argument = "MODEL",
     .offset = AT(from),
     .help = "write the header of an existing model, with a hole for its weights: a copy of a "
             "GGUF file's, or what llama.cpp's converter would make of a config.json or a folder "
             "of safetensors"},
    {.name = "remote",
     .kind = CLI_FLAG,
     .offset = AT(remote),
     .help = "the model of --from may be a URL or a name on huggingface.co; memtally reads headers "
             "only"},
    {.name = "drop-vocabulary",
     .kind = CLI_FLAG,
     .offset = AT(drop_vocabulary),
     .help = "with --from: leave the tokens out and say only how many there are; engines start "
             "faster and take no text"},
    {.name = "seed",
     .kind = CLI_COUNT,
     .argument = "N",
     .fallback = "1",
     .offset = AT(seed),
     .help = "of the random weights; the same seed gives the same bytes"},
    {.name = "list",
     .letter = 'l',
     .kind = CLI_FLAG,
     .offset = AT(list),
     .help = "list the named shapes with their sizes for --type, and write nothing"},
    {.name = "json",
     .kind = CLI_FLAG,
     .offset = AT(json),
     .help = "print what memtally wrote, or the list, as JSON"},
    CLI_OPTION_QUIET(AT(quiet), "print nothing but errors"),
    {.name = "architecture",
     .kind = CLI_TEXT,
     .argument = "NAME",
     .offset = AT(architecture),
     .help = "llama, qwen2, qwen3, qwen3moe, gemma3 or deepseek2; llama for a custom shape"},
    NUMBER("layers", layers, "number of layers"),
    NUMBER("embedding-length", embedding_length, "width of the residual stream"),
    NUMBER("ff-length", ff_length, "width of the feed-forward layers"),
    NUMBER("heads", heads, "attention heads"),
    NUMBER("kv-heads", kv_heads, "heads that have keys and values (default: all)"),
    NUMBER("head-size", head_size, "width of a head (default: embedding length / heads)"),
    NUMBER("vocabulary", vocabulary, "number of tokens"),
    NUMBER("context-length", context_length, "tokens that the model says it was trained for"),
    NUMBER("sliding-window", sliding_window, "tokens that a local layer looks back"),
    NUMBER("experts", experts, "experts in each layer"),
    NUMBER("experts-used", experts_used, "experts that a token uses"),
    NUMBER("expert-ff-length", expert_ff_length, "width of an expert"),
    {.name = "tied-embeddings",
     .kind = CLI_FLAG,
     .offset = AT(tied_embeddings),
     .help = "the output matrix is the token embedding"},
    {0},
};

static void replace(uint64_t *number, uint64_t by)
{
    if (by)
        *number = by;
}

/* What the options say goes over what the named shape says. */
static void apply(const struct sample_options *options, struct mt_model_shape *shape)
{
    if (options->architecture)
        shape->architecture = options->architecture;
    replace(&shape->layers, options->layers);
    replace(&shape->embedding_length, options->embedding_length);
    replace(&shape->ff_length, options->ff_length);
    replace(&shape->heads, options->heads);
    replace(&shape->kv_heads, options->kv_heads);
    replace(&shape->head_size, options->head_size);
    replace(&shape->vocabulary, options->vocabulary);
    replace(&shape->context_length, options->context_length);
    replace(&shape->sliding_window, options->sliding_window);
    replace(&shape->experts, options->experts);
    replace(&shape->experts_used, options->experts_used);
    replace(&shape->expert_ff_length, options->expert_ff_length);
    if (options->tied_embeddings)
        shape->tied_embeddings = 1;
}

static int complain_unknown_shape(const char *name)
{
    struct cli_suggestion suggestion = {.wanted = name};
    const struct mt_model_shape *shape;
    for (size_t i = 0; (shape = mt_model_shape_at(i)); i++)
        cli_suggestion_offer(&suggestion, shape->name);
    if (suggestion.best)
        cli_complain("sample-model: no shape is called '%.80s' (did you mean '%s'?)", name,
                     suggestion.best);
    else
        cli_complain("sample-model: no shape is called '%.80s'; see 'memtally sample-model --list',"
                     " or give 'custom' and its numbers",
                     name);
    return CLI_EXIT_USAGE;
}

static int find_shape(const char *name, struct mt_model_shape *shape)
{
    const struct mt_model_shape *known = mt_model_shape_by_name(name);
    if (!known && strcmp(name, "custom") != 0)
        return complain_unknown_shape(name);
    *shape = known ? *known : (struct mt_model_shape){.name = "custom"};
    return CLI_EXIT_OK;
}

static enum mt_weight_type type_of(const struct sample_options *options)
{
    enum mt_weight_type type = MT_WEIGHT_F16;
    mt_weight_type_by_name(type_names[options->type], &type);
    return type;
}

/* A mixture that a shape can have, or NULL. */
static const char *mixture_of(const struct sample_options *options)
{
    static const char *const names[] = {"q4_k_s", "q4_k_m", "q5_k_m"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(type_names[options->type], names[i]) == 0)
            return names[i];
    return NULL;
}

/* Set when the user wants to stop; the writer then takes its unfinished file away. */
static volatile sig_atomic_t stop_signal;

static void ask_to_stop(int signal)
{
    stop_signal = signal;
}

static void catch_stops(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = ask_to_stop};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction old;
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
    }
}

static int show_progress(void *argument, double share)
{
    struct cli_progress *progress = argument;
    cli_progress_show(progress, "memtally: writing the model, %.0f %%", share * 100);
    return stop_signal != 0;
}

static void put_facts(struct mt_json *json, const struct mt_model_shape *shape, const char *type,
                      const struct mt_sample_facts *facts)
{
    mt_json_begin_object(json, NULL);
    mt_json_text(json, "shape", shape->name);
    mt_json_text(json, "architecture", shape->architecture ? shape->architecture : "llama");
    mt_json_text(json, "type", type);
    mt_json_count(json, "layers", shape->layers);
    mt_json_count(json, "parameters", facts->parameters);
    mt_json_count(json, "tensors", facts->n_tensors);
    mt_json_count(json, "tensor_bytes", facts->tensor_bytes);
    mt_json_count(json, "header_bytes", facts->header_bytes);
    mt_json_count(json, "file_bytes", facts->file_bytes);
    mt_json_end(json);
}

static int print_written(const struct sample_options *options, const struct mt_model_shape *shape,
                         const char *path, const struct mt_sample_facts *facts)
{
    struct mt_strbuf out = {0};
    struct mt_json json = {0};
    char size[MT_SIZE_TEXT];
    char parameters[32];
    if (options->json) {
        put_facts(&json, shape, type_names[options->type], facts);
        mt_json_finish(&json, &out);
    } else {
        mt_strbuf_printf(&out, "%s: %s as %s, %s parameters in %" PRIu64 " tensors, %s%s\n", path,
                         shape->name, type_names[options->type],
                         cli_format_parameters(facts->parameters, parameters), facts->n_tensors,
                         mt_format_size(facts->file_bytes, size),
                         options->mode == MODE_SPARSE ? " with a hole for the weights" : "");
    }
    int code = cli_print(&out);
    mt_strbuf_finish(&out);
    return code;
}

static int write_sample(const struct sample_options *options, const struct mt_model_shape *shape,
                        const char *path)
{
    struct cli_progress progress;
    struct mt_sample_facts facts;
    struct mt_error error = {.offset = MT_NO_OFFSET};
    const struct mt_sample_options sample = {
        .type = type_of(options),
        .mixture = mixture_of(options),
        .mode = options->mode == MODE_SPARSE ? MT_SAMPLE_SPARSE : MT_SAMPLE_RANDOM,
        .seed = options->seed,
        .progress = show_progress,
        .progress_argument = &progress,
    };
    cli_progress_init(&progress, !options->quiet);
    catch_stops();
    int failed = mt_sample_model_write(path, shape, &sample, &facts, &error);
    cli_progress_clear(&progress);
    if (failed && stop_signal)
        return 128 + stop_signal;
    if (failed) {
        int code = cli_fail(&error);
        return error.code == MT_ELIMIT ? CLI_EXIT_USAGE : code; /* a number that is too large */
    }
    return options->quiet ? CLI_EXIT_OK : print_written(options, shape, path, &facts);
}

/* The figures of a named shape; unknown ones where it cannot be had in this type. */
static struct mt_sample_facts plan(const struct mt_model_shape *shape,
                                   const struct sample_options *options)
{
    const struct mt_sample_options sample = {
        .type = type_of(options), .mixture = mixture_of(options), .mode = MT_SAMPLE_SPARSE};
    struct mt_sample_facts facts = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    mt_sample_model_plan(shape, &sample, &facts, NULL);
    return facts;
}

static void list_json(const struct sample_options *options, struct mt_strbuf *out)
{
    struct mt_json json = {0};
    const struct mt_model_shape *shape;
    mt_json_begin_array(&json, NULL);
    for (size_t i = 0; (shape = mt_model_shape_at(i)); i++) {
        struct mt_sample_facts facts = plan(shape, options);
        put_facts(&json, shape, type_names[options->type], &facts);
    }
    mt_json_end(&json);
    mt_json_finish(&json, out);
}

static void list_table(const struct sample_options *options, struct mt_strbuf *out)
{
    static const struct mt_text_table_column columns[] = {
        {"shape", MT_CELL_TEXT},   {"architecture", MT_CELL_TEXT},
        {"layers", MT_CELL_COUNT}, {"parameters", MT_CELL_TEXT_RIGHT},
        {"file", MT_CELL_SIZE},
    };
    const struct cli_terminal terminal = cli_terminal_of(STDOUT_FILENO);
    const struct mt_text_table_look look = {(size_t)terminal.columns, cli_bold(&terminal),
                                            cli_faint(&terminal), cli_plain(&terminal)};
    const struct mt_model_shape *shape;
    struct mt_text_table table;
    mt_text_table_init(&table, columns, 5, terminal.utf8);
    for (size_t i = 0; (shape = mt_model_shape_at(i)); i++) {
        struct mt_sample_facts facts = plan(shape, options);
        char parameters[32];
        const struct mt_cell cells[] = {
            {.text = shape->name},
            {.text = shape->architecture},
            {.number = shape->layers},
            {.text = cli_format_parameters(facts.parameters, parameters)},
            {.number = facts.file_bytes},
        };
        mt_text_table_add(&table, 0, MT_ROW_PLAIN, cells);
    }
    mt_text_table_draw(&table, &look, out);
    mt_text_table_finish(&table);
}

static int print_list(const struct sample_options *options)
{
    struct mt_strbuf out = {0};
    if (options->json)
        list_json(options, &out);
    else
        list_table(options, &out);
    int code = cli_print(&out);
    mt_strbuf_finish(&out);
    return code;
}

/* Nothing that makes a shape goes with a model that has its own. */
static int is_about_shapes(const struct sample_options *o)
{
    return o->mode == MODE_RANDOM || o->architecture || o->layers || o->embedding_length ||
           o->ff_length || o->heads || o->kv_heads || o->head_size || o->vocabulary ||
           o->context_length || o->sliding_window || o->experts || o->experts_used ||
           o->expert_ff_length || o->tied_embeddings;
}

static int run_from(const struct cli_call *call, const struct sample_options *options)
{
    const struct cli_sample_from from = {.model = options->from,
                                         .path = call->n_operands ? call->operands[0] : NULL,
                                         .type = type_names[options->type],
                                         .remote = options->remote,
                                         .drop_vocabulary = options->drop_vocabulary,
                                         .json = options->json,
                                         .quiet = options->quiet};
    if (call->n_operands != 1) {
        cli_complain("sample-model: with --from give the file to write and nothing else");
        return CLI_EXIT_USAGE;
    }
    if (is_about_shapes(options)) {
        cli_complain("sample-model: --from takes the model as it is; it has no random weights and "
                     "no other numbers");
        return CLI_EXIT_USAGE;
    }
    return cli_sample_from(&from);
}

static int check_type(const struct sample_options *options)
{
    enum mt_weight_type type;
    if (mixture_of(options) || mt_weight_type_by_name(type_names[options->type], &type) == 0)
        return CLI_EXIT_OK;
    cli_complain("sample-model: %s is a mixture, which only --from makes; a shape takes one of "
                 "f32, f16, bf16, q8_0, q6_k, q5_k_m, q4_k_m, q4_k_s, q4_k, q4_0",
                 type_names[options->type]);
    return CLI_EXIT_USAGE;
}

static int run_sample_model(const struct cli_call *call)
{
    const struct sample_options *options = call->options;
    struct mt_model_shape shape;
    if (options->from)
        return run_from(call, options);
    int code = check_type(options);
    if (code)
        return code;
    if (options->list)
        return print_list(options);
    if (call->n_operands != 2) {
        cli_complain("sample-model: give a shape and a file; see 'memtally help sample-model'");
        return CLI_EXIT_USAGE;
    }
    code = find_shape(call->operands[0], &shape);
    if (code)
        return code;
    apply(options, &shape);
    return write_sample(options, &shape, call->operands[1]);
}

static const char *word_at(size_t index)
{
    const struct mt_model_shape *shape = mt_model_shape_at(index);
    if (shape)
        return shape->name;
    return index && !mt_model_shape_at(index - 1) ? NULL : "custom";
}

static const char *const description[] = {
    "Writes a GGUF file with the shape of a known model, or of numbers given as options, which "
    "llama.cpp loads and runs. Memory is the same as with the real model of that shape and type.",
    "With --from it takes the header of an existing model. An engine plans memory for it as for "
    "the model itself. memtally reads, copies and downloads no weights.",
    "SHAPE is a name that --list shows, or 'custom'. Numbers given as options replace those of the "
    "shape. memtally replaces FILE only once the model is complete.",
    NULL,
};

static const struct cli_example examples[] = {
    {"memtally sample-model smollm-135m model.gguf", "A small model to try everything with."},
    {"memtally sample-model deepseek-v3 big.gguf --sparse --type q4_k",
     "For planning: 380 GB that take no room on disk."},
    {"memtally sample-model llama-3.1-8b model.gguf --layers 4",
     "A known shape with fewer layers."},
    {"memtally sample-model --from config.json big.gguf --type q4_k_m",
     "For planning, from nothing but a config.json."},
    {"memtally sample-model --from org/model/m-q8_0.gguf copy.gguf --remote",
     "The header of a file on a hub."},
    {0},
};

const struct cmd_entry cmd_sample_model = {
    .name = "sample-model",
    .synopsis = "[options] SHAPE FILE | --from MODEL FILE | --list",
    .summary = "write a model file of a given shape, to try things with",
    .description = description,
    .examples = examples,
    .options = sample_options,
    .options_size = sizeof(struct sample_options),
    .operands = CLI_OPERANDS_FILES,
    .operand_word = word_at,
    .most_operands = 2,
    .run = run_sample_model,
};
