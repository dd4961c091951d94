/* SPDX-License-Identifier: MIT */
/* The command line of a program of llama.cpp. How a version spells a flag is known to the rules of
 * that version alone: their flags are taken, less those that were left open. */
#include "command_line.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/settings.h>

#include "base/out_of_memory.h"
#include "base/strbuf.h"
#include "dialect.h"
#include "engine/engine.h"
#include "engines.h"

#define WORD_BYTES 4096

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

/* Whether a flag was asked for that stands for a setting which may be left open; others are spelled
 * only where they were asked for. Overrides are written anew, since their patterns may hold
 * anything. */
static int (*const is_asked[MT_DRIVE_FLAGS])(const struct mt_predict_settings *settings) = {
    [MT_DRIVE_CONTEXT] = has_context,       [MT_DRIVE_BATCH] = has_batch,
    [MT_DRIVE_UBATCH] = has_ubatch,         [MT_DRIVE_SEQUENCES] = has_sequences,
    [MT_DRIVE_UNIFIED_KV] = has_unified,    [MT_DRIVE_KV_TYPE_K] = has_type_k,
    [MT_DRIVE_KV_TYPE_V] = has_type_v,      [MT_DRIVE_FLASH_ATTENTION] = has_flash_attention,
    [MT_DRIVE_GPU_LAYERS] = has_gpu_layers, [MT_DRIVE_SPLIT] = has_split,
    [MT_DRIVE_OVERRIDE_TENSOR] = is_never,  [MT_DRIVE_ALL_CPU_EXPERTS] = has_cpu_moe,
    [MT_DRIVE_CPU_EXPERTS] = has_cpu_moe,
};

/* The table of llama.cpp, whose programs memtally starts, and how they spell flags. */
struct speech {
    struct mt_engine engine;
    struct mt_drive_dialect dialect;
};

static void learn(struct speech *speech)
{
    if (mt_engine_find(NULL, &speech->engine, NULL) < 0)
        speech->engine = (struct mt_engine){.text = ""};
    mt_drive_dialect_load(mt_engine_name_at(0), MT_DRIVE_TOOL, &speech->dialect);
}

/* Whether a word is a flag that nobody asked for. */
static int is_left_open(const struct speech *speech, const struct mt_predict_settings *settings,
                        const char *word)
{
    for (enum mt_drive_flag flag = 0; flag < MT_DRIVE_FLAGS; flag++)
        for (size_t i = 0; is_asked[flag] && i < MT_DRIVE_SPELLINGS; i++)
            if (strcmp(speech->dialect.flags[flag].names[i], word) == 0)
                return !is_asked[flag](settings);
    return 0;
}

/* The length of a word of `text`, in which only values have quotes. */
static size_t word_length(const char *text)
{
    size_t i = 0;
    for (char quote = '\0'; text[i] && (quote || text[i] != ' '); i++)
        if (text[i] == '\'')
            quote = quote ? '\0' : '\'';
    return i;
}

/* Appends a flag with its value as the program spells it, which may be otherwise than the rules do.
 */
static void put_flag(const struct mt_drive_line *line, const struct speech *speech,
                     const char *word, const char *value, size_t value_length,
                     struct mt_strbuf *out)
{
    char renamed[MT_DRIVE_SPELLING_BYTES];
    int is_bench = line->settings->program == MT_PROGRAM_BENCH;
    if (is_bench && mt_engine_word(&speech->engine, "flags.renamed.bench", word, renamed,
                                   sizeof renamed) == 0) {
        for (char *plus = renamed; (plus = strchr(plus, '+')) != NULL;)
            *plus = ' ';
        word = renamed;
    }
    if (!*word)
        return;
    mt_strbuf_printf(out, "%s%s", out->length ? " " : "", word);
    if (value_length)
        mt_strbuf_printf(out, " %.*s", (int)value_length, value);
}

/* The flags that the user asked for, out of those that the rules spell. */
static void put_asked(const struct mt_drive_line *line, const struct speech *speech,
                      struct mt_strbuf *out)
{
    const char *text = line->flags;
    while (*text) {
        char word[WORD_BYTES];
        size_t length = word_length(text);
        const char *next = text + length + (text[length] == ' ');
        size_t value_length = *next && *next != '-' ? word_length(next) : 0;
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        if (!is_left_open(speech, line->settings, word))
            put_flag(line, speech, word, next, value_length, out);
        text = next + value_length;
        text += strspn(text, " ");
    }
}

/* Flags call devices by the engine's backend; the rules do so too. */
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
    struct speech speech;
    char words[MT_DRIVE_ENGINE_TEXT];
    learn(&speech);
    put_asked(line, &speech, &text);
    if (s->unified_kv == MT_SWITCH_OFF && s->program == MT_PROGRAM_SERVER)
        mt_strbuf_printf(&text, " %s", mt_drive_engine_text(NULL, "rehearse.divided", words));
    if (s->draft_tokens && line->drafts)
        mt_strbuf_printf(&text, " %s %" PRIu64,
                         mt_drive_engine_text(NULL, "rehearse.drafts", words), s->draft_tokens);
    if (s->n_overrides) {
        mt_strbuf_printf(&text, " %s '", speech.dialect.flags[MT_DRIVE_OVERRIDE_TENSOR].names[0]);
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

/* Adds overrides by themselves: they are one word, whatever they hold. */
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
    mt_profile_command_flag(command, NULL, "override_tensor", mt_strbuf_text(&overrides));
    mt_strbuf_finish(&overrides);
}

/* The program's own part of the line. llama-bench gets one test of the whole context, once. */
static void add_start(const struct mt_drive_line *line, struct mt_profile_command *command)
{
    static const char *const keys[] = {[MT_PROGRAM_SERVER] = "rehearse.server",
                                       [MT_PROGRAM_BENCH] = "rehearse.bench",
                                       [MT_PROGRAM_FIT_PARAMS] = "rehearse.tool"};
    const uint64_t generated = 128;
    uint64_t context = line->settings->context_tokens;
    const struct mt_profile_value values[] = {
        {'m', line->model_path, 0},
        {'p', NULL, (uint64_t)line->port},
        {'l', NULL, context > generated ? context - generated : 512},
        {'g', NULL, context && context <= generated ? context : generated},
        {0}};
    mt_profile_command_put(command, NULL, keys[line->settings->program], values);
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
    static const struct mt_profile_value none[] = {{0}};
    if (s->program == MT_PROGRAM_NODE)
        return node_line(line, command, error);
    mt_profile_command_add(command, line->program);
    add_start(line, command);
    add_flags(line, command);
    if (line->places_itself && s->program == MT_PROGRAM_SERVER && s->context_tokens &&
        (s->has_gpu_layers || !s->n_devices))
        mt_profile_command_put(command, NULL, "rehearse.placed", none);
    return command->failed ? mt_out_of_memory(error) : 0;
}
