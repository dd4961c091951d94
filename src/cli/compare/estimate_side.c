/* SPDX-License-Identifier: MIT */
/* The estimate of what a recording says that was run. */
#include <ctype.h>
#include <memtally/model_file.h>
#include <memtally/predict.h>
#include <memtally/units.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/compare/side.h"
#include "cli/cpu.h"
#include "cli/residue_store.h"
#include "drive/engines.h"
#include "drive/python.h"

/* Whether a version is one that engine tables order: "b11434", "v0.5.0", "0.11.0", "0.6.0-dev".
 * What follows a blank is the packager's. */
static size_t version_length(const char *version)
{
    size_t start = strchr("bv", version[0]) && isdigit((unsigned char)version[1]);
    size_t length = start + strspn(version + start, "0123456789.");
    const char *rest = version + length;
    if (strncmp(rest, "-dev", 4) == 0)
        rest += 4;
    return length > start && (*rest == '\0' || *rest == ' ') ? length : 0;
}

/* Whether a file that was mapped has a name that begins so. */
static int has_library(const struct mt_tally *tally, const char *begin)
{
    for (size_t p = 0; tally && p < tally->n_places; p++)
        for (size_t r = 0; r < tally->places[p].n_rows; r++) {
            const struct mt_tally_row *row = &tally->places[p].rows[r];
            for (size_t d = 0; d < row->n_details; d++)
                if (row->details[d].name && !strncmp(row->details[d].name, begin, strlen(begin)))
                    return 1;
        }
    return 0;
}

static int has_word(const struct mt_tally *tally, const char *word)
{
    for (size_t i = 0; tally && i < tally->n_processes; i++)
        if (tally->processes[i].command && strstr(tally->processes[i].command, word))
            return 1;
    return 0;
}

/* What the recording says, else what its processes held and were called: PyTorch is transformers
 * where no engine on it is named, and so is a model that llama.cpp does not load. */
static const char *engine_of(const struct compare_loaded *recording,
                             const struct mt_model_description *model)
{
    char text[MT_DRIVE_ENGINE_TEXT];
    const char *name;
    const char *otherwise = NULL;
    const struct mt_tally *tally = recording->side.tally;
    if (recording->engine_name)
        return recording->engine_name;
    if (!has_library(tally, "libtorch") && model->format == MT_MODEL_GGUF)
        return mt_engine_name_at(0);
    for (size_t i = 0; (name = mt_engine_name_at(i)); i++)
        if (*mt_drive_engine_text(name, "memory_share.of", text) && has_word(tally, name))
            return name;
        else if (mt_drive_engine_is(name, "recorded", "libtorch"))
            otherwise = name;
    return otherwise;
}

/* "llama.cpp@b11434" of what the recording says; without the version where it is in another
 * counting than the engine's own. */
static void name_engine(const struct compare_loaded *recording,
                        const struct mt_model_description *model, char *text, size_t size)
{
    const char *version = recording->engine_version ? recording->engine_version : "";
    size_t length = version_length(version);
    snprintf(text, size, "%s%s%.*s", engine_of(recording, model), length ? "@" : "", (int)length,
             version);
}

static uint64_t known_or_0(uint64_t count)
{
    return count == MT_UNKNOWN ? 0 : count;
}

static enum mt_switch switch_of(const char *text)
{
    if (text && strcmp(text, "on") == 0)
        return MT_SWITCH_ON;
    return text && strcmp(text, "off") == 0 ? MT_SWITCH_OFF : MT_SWITCH_AUTO;
}

static int names(const char *path, const char *word)
{
    return path && strstr(path, word);
}

/* Whether a process of the recording is the program: its command begins with a path to it. */
static int ran(const struct compare_loaded *recording, const char *program)
{
    const struct mt_tally *tally = recording->side.tally;
    for (size_t i = 0; tally && i < tally->n_processes; i++) {
        const char *command = tally->processes[i].command;
        const char *found = command ? strstr(command, program) : NULL;
        if (found && found < command + strcspn(command, " "))
            return 1;
    }
    return 0;
}

static enum mt_program program_of(const struct compare_loaded *recording)
{
    if (names(recording->engine_version, "node-llama-cpp"))
        return MT_PROGRAM_NODE;
    if (names(recording->engine_path, "llama-bench") || ran(recording, "llama-bench"))
        return MT_PROGRAM_BENCH;
    return MT_PROGRAM_SERVER;
}

/* llama-bench makes a context for each of its tests, as large as the prompt or the output (n_ctx in
 * to_llama_cparams() of llama-bench.cpp). The prompt is computed at once and touches most. */
uint64_t compare_context_of(const struct compare_loaded *recording)
{
    const struct cli_document_settings *kept = &recording->settings;
    uint64_t prompt = known_or_0(kept->prompt_tokens);
    if (kept->context_tokens != MT_UNKNOWN || program_of(recording) != MT_PROGRAM_BENCH)
        return known_or_0(kept->context_tokens);
    return prompt ? prompt : known_or_0(kept->generated_tokens);
}

/* Whether a part of the weights of a recording has `word` in its name. */
static int has_weights(const struct compare_loaded *recording, const char *word)
{
    const struct mt_tally *tally = recording->side.tally;
    for (size_t p = 0; p < tally->n_places; p++) {
        const struct mt_tally_row *row = mt_tally_row_of(&tally->places[p], MT_CATEGORY_WEIGHTS);
        for (size_t i = 0; row && i < row->n_details; i++)
            if (strstr(row->details[i].name, word))
                return 1;
    }
    return 0;
}

/* The processor that was named, else what the engine's buffers say of it, else this one. An engine
 * that was built without AMX has no buffer for it on any processor. */
static int read_cpu(const struct compare_loaded *recording, int named, enum mt_processor *processor,
                    struct mt_error *error)
{
    int result = cli_take_cpu(named, processor, error);
    if (result || named)
        return result;
    if (has_weights(recording, "AMX"))
        *processor = MT_PROCESSOR_AMX;
    else if (has_weights(recording, "KLEIDIAI"))
        *processor = MT_PROCESSOR_KLEIDIAI;
    else if (*processor == MT_PROCESSOR_AMX && has_weights(recording, "CPU_"))
        *processor = MT_PROCESSOR_AVX512;
    return 0;
}

/* The type in which a Python package loaded the weights; NULL of other engines, which take the
 * file's. */
static const char *weight_type_of(const struct compare_loaded *recording)
{
    static const char *const types[][2] = {{"F32", "f32"}, {"F16", "f16"}, {"BF16", "bf16"}};
    if (!recording->dtype || !mt_drive_is_python_engine(recording->engine_name))
        return NULL;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(recording->dtype, types[i][0]) == 0)
            return types[i][1];
    return NULL;
}

static struct mt_predict_settings settings_of(const struct compare_loaded *recording,
                                              const char *engine)
{
    const struct cli_document_settings *kept = &recording->settings;
    uint64_t memory = recording->side.tally->machine.memory_total_bytes;
    return (struct mt_predict_settings){
        .engine = engine,
        .program = program_of(recording),
        .context_tokens = compare_context_of(recording),
        .batch = known_or_0(kept->batch),
        .ubatch = known_or_0(kept->ubatch),
        .sequences = known_or_0(kept->sequences),
        .kv_type_k = kept->kv_type_k,
        .kv_type_v = kept->kv_type_v,
        .flash_attention = switch_of(kept->flash_attention),
        .weight_type = weight_type_of(recording),
        .host_bytes = memory == MT_UNKNOWN ? 0 : memory,
    };
}

static void take_estimate(struct compare_loaded *loaded)
{
    const struct mt_estimate *estimate = loaded->estimate;
    loaded->what = "estimate";
    loaded->engine_name = estimate->tally.engine_name;
    loaded->engine_version = estimate->tally.engine_version;
    loaded->model_path = estimate->tally.model_path;
    loaded->model_name = mt_model_describe(loaded->model)->name;
    loaded->architecture = mt_model_describe(loaded->model)->architecture;
    loaded->settings = (struct cli_document_settings){
        .context_tokens = estimate->settings.context_tokens,
        .batch = estimate->settings.batch,
        .ubatch = estimate->settings.ubatch,
        .sequences = estimate->settings.sequences,
        .threads = MT_UNKNOWN,
        .prompt_tokens = MT_UNKNOWN,
        .generated_tokens = MT_UNKNOWN,
        .kv_type_k = estimate->settings.kv_type_k,
        .kv_type_v = estimate->settings.kv_type_v,
    };
    loaded->side = (struct mt_compare_side){.kind = MT_SIDE_ESTIMATE, .tally = &estimate->tally};
}

int compare_load_estimate(struct compare_loaded *loaded, const struct compare_loaded *recording,
                          const struct compare_estimate_options *options, struct mt_error *error)
{
    char engine[128];
    const char *path = options->model_path ? options->model_path : recording->model_path;
    if (!path)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "compare: %s does not say which model was run; name it with --model",
                       recording->path);
    int result = mt_model_open(path, NULL, &loaded->model, error);
    if (result)
        return result;
    name_engine(recording, mt_model_describe(loaded->model), engine, sizeof engine);
    struct mt_predict_settings settings =
        settings_of(recording, options->engine ? options->engine : engine);
    result = read_cpu(recording, options->cpu, &settings.processor, error);
    if (result)
        return result;
    if (options->use_learnt)
        result = cli_estimate_calibrated(loaded->model, &settings, &loaded->estimate, error);
    else
        result = mt_estimate_create(loaded->model, &settings, &loaded->estimate, error);
    if (result)
        return result;
    take_estimate(loaded);
    return 0;
}
