/* SPDX-License-Identifier: MIT */
/* What lies on the host and was meant for devices: what the engine says, held against what rules
 * say of the same run with all on devices. */
#include "spills.h"

#include <memtally/predict.h>
#include <memtally/tally.h>
#include <memtally/units.h>
#include <stdio.h>
#include <string.h>

#include "drive/flags.h"

/* Buffers of the host end where the pages of the file do. */
#define SLACK_BYTES (UINT64_C(16) << 20)

/* Copies of states on the program's heap, which a server keeps of past prompts, were never meant
 * for a device. */
static uint64_t in_buffers(const struct mt_tally_row *row)
{
    uint64_t bytes = row->allocated_bytes;
    for (size_t i = 0; i < row->n_details; i++)
        if (!strncmp(row->details[i].name, "heap", 4))
            bytes -= row->details[i].allocated_bytes;
    return bytes;
}

static uint64_t on_host(const struct mt_tally *tally, enum mt_category category)
{
    for (size_t i = 0; i < tally->n_places; i++)
        if (!strcmp(tally->places[i].place, "host")) {
            const struct mt_tally_row *row = mt_tally_row_of(&tally->places[i], category);
            return row ? in_buffers(row) : 0;
        }
    return 0;
}

static uint64_t cache_on_host(const struct mt_tally *tally)
{
    return on_host(tally, MT_CATEGORY_KV_CACHE) + on_host(tally, MT_CATEGORY_RECURRENT_STATE);
}

static uint64_t beyond(uint64_t found, uint64_t least)
{
    return found > least + least / 50 + SLACK_BYTES ? found - least : 0;
}

/* With all on devices there may be room, but not for what the engine keeps free beside. */
static void write_reason(const struct mt_estimate *all, uint64_t margin, uint64_t weights,
                         uint64_t cache, char *text, size_t size)
{
    char weights_text[MT_SIZE_TEXT];
    char cache_text[MT_SIZE_TEXT];
    char margin_text[MT_SIZE_TEXT];
    char why[128] = "";
    if (margin)
        snprintf(why, sizeof why, "the engine keeps %s of each device free (-fitt), and ",
                 mt_format_size(margin, margin_text));
    snprintf(text, size,
             "%s%s%s%s%s would go to devices and lie on the host: %swith all on devices, %s",
             weights ? mt_format_size(weights, weights_text) : "", weights ? " of weights" : "",
             weights && cache ? " and " : "", cache ? mt_format_size(cache, cache_text) : "",
             cache ? " of cache" : "", why, all->reason ? all->reason : "they do not fit");
}

int mt_advise_spills(const struct mt_advise_left_open *run, char *text, size_t size,
                     struct mt_error *error)
{
    struct mt_predict_settings all = *run->settings;
    struct mt_estimate *rules;
    text[0] = '\0';
    all.has_gpu_layers = 1;
    all.gpu_layers = MT_ALL;
    int result = mt_estimate_create(run->model, &all, &rules, error);
    if (result < 0)
        return result;
    uint64_t weights = beyond(on_host(run->tally, MT_CATEGORY_WEIGHTS),
                              on_host(&rules->tally, MT_CATEGORY_WEIGHTS) + run->least_bytes);
    uint64_t cache = beyond(cache_on_host(run->tally), cache_on_host(&rules->tally));
    if (weights || cache)
        write_reason(rules, run->margin_bytes, weights, cache, text, size);
    mt_estimate_destroy(rules);
    return 0;
}

/* Flags by which the user says what lies where. */
static int places_itself(const struct mt_drive_command *command, char *const *environment)
{
    static const enum mt_drive_flag placing[] = {MT_DRIVE_CPU_EXPERTS, MT_DRIVE_ALL_CPU_EXPERTS,
                                                 MT_DRIVE_OVERRIDE_TENSOR, MT_DRIVE_DEVICES};
    const char *layers = mt_drive_flag_value(command, environment, MT_DRIVE_GPU_LAYERS);
    if (layers && strcmp(layers, "auto") != 0 && strcmp(layers, "-1") != 0)
        return 1;
    for (size_t i = 0; i < sizeof placing / sizeof *placing; i++)
        if (mt_drive_flag_value(command, environment, placing[i]))
            return 1;
    return 0;
}

/* The flags that rules count with. */
static void read_flags(const struct mt_drive_command *command, char *const *environment,
                       struct mt_predict_settings *settings)
{
    const struct {
        enum mt_drive_flag flag;
        uint64_t *number;
    } numbers[] = {
        {MT_DRIVE_CONTEXT, &settings->context_tokens},
        {MT_DRIVE_BATCH, &settings->batch},
        {MT_DRIVE_UBATCH, &settings->ubatch},
        {MT_DRIVE_SEQUENCES, &settings->sequences},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        *numbers[i].number =
            mt_drive_flag_number(mt_drive_flag_value(command, environment, numbers[i].flag), 0);
    settings->kv_on_host =
        mt_drive_flag_value(command, environment, MT_DRIVE_NO_KV_OFFLOAD) != NULL;
    settings->kv_type_k = mt_drive_flag_value(command, environment, MT_DRIVE_KV_TYPE_K);
    settings->kv_type_v = mt_drive_flag_value(command, environment, MT_DRIVE_KV_TYPE_V);
}

/* What a draft model has on the host with all its layers on devices; 0 where there is none. */
static uint64_t draft_bytes(const char *path, const struct mt_predict_settings *settings)
{
    struct mt_predict_settings all = *settings;
    struct mt_model *model = NULL;
    struct mt_estimate *rules;
    uint64_t bytes = 0;
    all.has_gpu_layers = 1;
    all.gpu_layers = MT_ALL;
    if (!path || mt_model_open(path, NULL, &model, NULL) < 0)
        return 0;
    if (mt_estimate_create(model, &all, &rules, NULL) == 0) {
        bytes = on_host(&rules->tally, MT_CATEGORY_WEIGHTS);
        mt_estimate_destroy(rules);
    }
    mt_model_close(model);
    return bytes;
}

static void look(const struct mt_drive_command *command, char *const *environment,
                 const struct mt_predict_settings *settings, const struct mt_tally *tally,
                 char *text, size_t size)
{
    struct mt_predict_settings asked = *settings;
    struct mt_model *model = NULL;
    const char *path = mt_drive_flag_value(command, environment, MT_DRIVE_MODEL);
    if (!path || mt_model_open(path, NULL, &model, NULL) < 0)
        return;
    read_flags(command, environment, &asked);
    const char *margin = mt_drive_flag_value(command, environment, MT_DRIVE_FIT_TARGET);
    const struct mt_advise_left_open run = {
        .model = model,
        .settings = &asked,
        .tally = tally,
        .least_bytes =
            draft_bytes(mt_drive_flag_value(command, environment, MT_DRIVE_DRAFT_MODEL), &asked),
        .margin_bytes =
            margin ? mt_drive_flag_number(margin, 0) << 20 : mt_fit_margin_bytes(asked.engine),
    };
    if (mt_advise_spills(&run, text, size, NULL) < 0)
        text[0] = '\0';
    mt_model_close(model);
}

void mt_advise_command_spills(char *const *argv, char *const *environment,
                              const struct mt_predict_settings *settings,
                              const struct mt_tally *tally, char *text, size_t size)
{
    struct mt_drive_command command;
    text[0] = '\0';
    mt_drive_command_copy(argv, &command);
    if (!command.failed && settings->n_devices &&
        mt_drive_command_is(&command, "devices", "ggml") && !places_itself(&command, environment))
        look(&command, environment, settings, tally, text, size);
    mt_drive_command_finish(&command);
}
