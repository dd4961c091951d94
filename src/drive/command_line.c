/* SPDX-License-Identifier: MIT */
/* The command line of a program of llama.cpp. How a version spells a flag is known to the rules of
 * that version alone: their flags are taken, less those that were left open. */
#include "command_line.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/strbuf.h"

#define WORD_BYTES 4096

static int is_always(const struct mt_predict_settings *s)
{
    (void)s;
    return 1;
}
static int is_never(const struct mt_predict_settings *s)
{
    (void)s;
    return 0;
}
static int has_context(const struct mt_predict_settings *s)
{
    return s->context_tokens != 0;
}
static int has_batch(const struct mt_predict_settings *s)
{
    return s->batch != 0;
}
static int has_ubatch(const struct mt_predict_settings *s)
{
    return s->ubatch != 0;
}
static int has_sequences(const struct mt_predict_settings *s)
{
    return s->sequences != 0;
}
static int has_unified(const struct mt_predict_settings *s)
{
    return s->unified_kv == MT_SWITCH_ON;
}
static int has_type_k(const struct mt_predict_settings *s)
{
    return s->kv_type_k != NULL;
}
static int has_type_v(const struct mt_predict_settings *s)
{
    return s->kv_type_v != NULL;
}
static int has_flash_attention(const struct mt_predict_settings *s)
{
    return s->flash_attention != MT_SWITCH_AUTO;
}
static int has_gpu_layers(const struct mt_predict_settings *s)
{
    return s->has_gpu_layers && s->n_devices;
}
static int has_split(const struct mt_predict_settings *s)
{
    return s->split != MT_SPLIT_LAYER;
}
static int has_cpu_moe(const struct mt_predict_settings *s)
{
    return s->cpu_moe_layers != 0;
}

/* Flags that stand for a setting that may be left open. Others are spelled only where they were
 * asked for. Overrides are written anew, since their patterns may hold anything. */
static const struct flag {
    const char *word;
    int (*is_asked)(const struct mt_predict_settings *settings);
    const char *bench; /* how llama-bench calls it; NULL: the same */
} flags[] = {
    {"-c", has_context, ""},
    {"-b", has_batch, NULL},
    {"-ub", has_ubatch, NULL},
    {"-np", has_sequences, ""},
    {"--kv-unified", has_unified, ""},
    {"-ctk", has_type_k, NULL},
    {"-ctv", has_type_v, NULL},
    {"-fa", has_flash_attention, NULL},
    {"-ngl", has_gpu_layers, NULL},
    {"-sm", has_split, NULL},
    {"-ot", is_never, NULL},
    {"--cpu-moe", has_cpu_moe, "-ncmoe 999"},
    {"--n-cpu-moe", has_cpu_moe, "-ncmoe"},
    {"--load-mode", is_always, "-lm"},
    {"--no-mmap", is_always, "-mmp 0"},
    {"--no-repack", is_always, "--repack 0"},
    {"--no-kv-offload", is_always, "-nkvo 1"},
    {"--swa-full", is_always, ""},
};

static const struct flag *flag_of(const char *word, size_t length)
{
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (strlen(flags[i].word) == length && !strncmp(flags[i].word, word, length))
            return &flags[i];
    return NULL;
}

/* The length of a word of `text`, in which only values are quoted. */
static size_t word_length(const char *text)
{
    size_t i = 0;
    for (char quote = '\0'; text[i] && (quote || text[i] != ' '); i++)
        if (text[i] == '\'')
            quote = quote ? '\0' : '\'';
    return i;
}

/* Appends a flag with its value as llama-bench or the others spell it. */
static void put_flag(const struct mt_drive_line *line, const struct flag *flag, const char *text,
                     size_t length, size_t value_length, struct mt_strbuf *out)
{
    const char *bench = line->settings->program == MT_PROGRAM_BENCH && flag ? flag->bench : NULL;
    if (bench && !*bench)
        return;
    if (out->length)
        mt_strbuf_puts(out, " ");
    if (bench)
        mt_strbuf_puts(out, bench);
    else
        mt_strbuf_append(out, text, length);
    if (value_length)
        mt_strbuf_printf(out, " %.*s", (int)value_length, text + length + 1);
}

/* The flags that were asked for, out of those that the rules spell. */
static void put_asked(const struct mt_drive_line *line, struct mt_strbuf *out)
{
    const char *text = line->flags;
    while (*text) {
        size_t length = word_length(text);
        const char *next = text + length + (text[length] == ' ');
        size_t value_length = *next && *next != '-' ? word_length(next) : 0;
        const struct flag *flag = flag_of(text, length);
        if (!flag || flag->is_asked(line->settings))
            put_flag(line, flag, text, length, value_length, out);
        text = next + value_length;
        text += strspn(text, " ");
    }
}

/* Devices are called by the engine's backend, which the rules' flags do too. */
static const char *device_prefix(const struct mt_predict_settings *s, const char *buffer)
{
    const char *kind = s->device_kind ? s->device_kind : "cuda";
    if (buffer[strspn(buffer, "0123456789")])
        return "";
    return !strcmp(kind, "rocm")     ? "ROCm"
           : !strcmp(kind, "vulkan") ? "Vulkan"
           : !strcmp(kind, "metal")  ? "MTL"
                                     : "CUDA";
}

static void put_overrides(const struct mt_predict_settings *s, const char *separator,
                          struct mt_strbuf *out)
{
    for (size_t i = 0; i < s->n_overrides; i++)
        mt_strbuf_printf(out, "%s%s=%s%s", i ? separator : "", s->overrides[i].pattern,
                         device_prefix(s, s->overrides[i].buffer), s->overrides[i].buffer);
}

char *mt_drive_asked_flags(const struct mt_drive_line *line)
{
    const struct mt_predict_settings *s = line->settings;
    struct mt_strbuf text = {0};
    put_asked(line, &text);
    if (s->unified_kv == MT_SWITCH_OFF && s->program == MT_PROGRAM_SERVER)
        mt_strbuf_puts(&text, " --no-kv-unified");
    if (s->draft_tokens && line->drafts)
        mt_strbuf_printf(&text, " --spec-type draft-mtp --spec-draft-n-max %" PRIu64,
                         s->draft_tokens);
    if (s->n_overrides) {
        mt_strbuf_puts(&text, " -ot '");
        put_overrides(s, ",", &text);
        mt_strbuf_puts(&text, "'");
    }
    char *flags_text = strdup(mt_strbuf_text(&text));
    mt_strbuf_finish(&text);
    return flags_text;
}

/* Adds each word of flags that hold no quotes. */
static void add_words(struct mt_profile_command *command, const char *text)
{
    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        size_t length = strcspn(text, " ");
        mt_profile_command_addf(command, "%.*s", (int)length, text);
        text += length;
    }
}

/* Overrides are left out here: they are one word, whatever they hold. */
static void add_flags(const struct mt_drive_line *line, struct mt_profile_command *command)
{
    const struct mt_predict_settings *s = line->settings;
    struct mt_predict_settings plain = *s;
    struct mt_drive_line rest = *line;
    plain.n_overrides = 0;
    rest.settings = &plain;
    char *text = mt_drive_asked_flags(&rest);
    command->failed |= !text;
    if (text)
        add_words(command, text);
    free(text);
    if (!s->n_overrides)
        return;
    struct mt_strbuf overrides = {0};
    put_overrides(s, s->program == MT_PROGRAM_BENCH ? ";" : ",", &overrides);
    mt_profile_command_add(command, "-ot");
    mt_profile_command_add(command, mt_strbuf_text(&overrides));
    mt_strbuf_finish(&overrides);
}

static void add_server(const struct mt_drive_line *line, struct mt_profile_command *command)
{
    add_words(command, "--host 127.0.0.1 --no-webui --no-warmup -lv 4 --port");
    mt_profile_command_addf(command, "%d", line->port);
}

/* One test of the whole context, once. */
static void add_bench(const struct mt_drive_line *line, struct mt_profile_command *command)
{
    const uint64_t generated = 128;
    uint64_t context = line->settings->context_tokens;
    add_words(command, "-r 1 -p 0 -n 0 --no-warmup -v -o json -pg");
    mt_profile_command_addf(command, "%" PRIu64 ",%" PRIu64,
                            context > generated ? context - generated : 512,
                            context && context <= generated ? context : generated);
}

/* Our program for node-llama-cpp, which takes a model through a short prompt. */
static int node_line(const struct mt_drive_line *line, struct mt_profile_command *command,
                     struct mt_error *error)
{
    const struct mt_predict_settings *s = line->settings;
    char layers[24];
    struct mt_profile_engine engine = {.driver = &mt_profile_node_llama_cpp};
    const struct mt_profile_settings settings = {
        .model_path = line->model_path,
        .prompt_tokens = 16,
        .max_tokens = 2,
        .batch_size = s->sequences ? s->sequences : 1,
        .context_tokens = s->context_tokens,
        .threads = 1,
        .kv_type = s->kv_type_k,
        .gpu_layers = !s->n_devices             ? NULL
                      : !s->has_gpu_layers      ? "auto"
                      : s->gpu_layers == MT_ALL ? "max"
                                                : layers,
    };
    struct mt_profile_job job = {.settings = &settings, .engine = &engine};
    snprintf(layers, sizeof layers, "%" PRIu64, s->gpu_layers);
    snprintf(engine.program, sizeof engine.program, "%s", line->program);
    snprintf(engine.script, sizeof engine.script, "%s", line->script);
    snprintf(engine.modules, sizeof engine.modules, "%s", line->modules);
    return engine.driver->command(&job, command, error);
}

int mt_drive_command_line(const struct mt_drive_line *line, struct mt_profile_command *command,
                          struct mt_error *error)
{
    const struct mt_predict_settings *s = line->settings;
    if (s->program == MT_PROGRAM_NODE)
        return node_line(line, command, error);
    mt_profile_command_add(command, line->program);
    mt_profile_command_add(command, "-m");
    mt_profile_command_add(command, line->model_path);
    if (s->program == MT_PROGRAM_SERVER)
        add_server(line, command);
    else if (s->program == MT_PROGRAM_BENCH)
        add_bench(line, command);
    else
        add_words(command, "--fit-print on -lv 4");
    add_flags(line, command);
    /* Nothing is left to fit, and to look for it takes time. */
    if (line->places_itself && s->program == MT_PROGRAM_SERVER && s->context_tokens &&
        (s->has_gpu_layers || !s->n_devices))
        add_words(command, "-fit off");
    return command->failed ? mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory") : 0;
}
