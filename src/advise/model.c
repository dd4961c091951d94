/* SPDX-License-Identifier: MIT */
/* From settings to a rehearsed estimate: rules spell the flags and know what no engine says, the
 * engine says the rest. */
#include "model.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <memtally/predict.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "drive/command_line.h"
#include "drive/overhead.h"
#include "drive/sentences.h"
#include "drive/trial.h"
#include "spills.h"

#define PATIENCE_NS  ((uint64_t)60 * 1000 * 1000 * 1000)
#define LIMIT_NS     ((uint64_t)600 * 1000 * 1000 * 1000)
#define FIRST_FIT    7407 /* the build that decides by itself what goes to the devices */
#define NOTES_MAX    24
#define REASON_BYTES MT_DRIVE_WHY_BYTES
/* So many times as large, devices have room for what they were refused. */
#define LARGE_SCALE       256
#define DEVICE_MOST_BYTES (UINT64_C(1) << 50) /* that mt_rehearsal_start() takes */

/* Everything of one rehearsal. */
struct act {
    const struct mt_drive_stage *stage;
    struct mt_advise_model_report *report; /* or NULL */
    struct mt_predict_settings settings;   /* as asked, of the engine's version */
    struct mt_estimate *rules;
    uint64_t *reserved_bytes; /* of each device */
    char *flags;
    struct mt_profile_command command;
    struct mt_drive_trial outcome;
    struct mt_drive_trial whole; /* on large devices, where the others refused */
    char folder[PATH_MAX];
    char whole_folder[PATH_MAX + 8]; /* of the rehearsal on large devices */
    char cannot[REASON_BYTES];
    char spills[MT_ADVISE_SPILLS_BYTES];
    char note[PATH_MAX + 256];
    const char *notes[NOTES_MAX];
    size_t n_notes;
};

/* A port that is free now; 0 where there is none. */
static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int port = 0;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &length) == 0)
        port = ntohs(address.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

/* What the driver and other programs hold of each device before the engine asks how much is free.
 */
static int reserve(struct act *act, struct mt_error *error)
{
    const struct mt_predict_settings *s = &act->settings;
    act->reserved_bytes = calloc(s->n_devices + 1, sizeof *act->reserved_bytes);
    if (!act->reserved_bytes)
        return mt_out_of_memory(error);
    for (size_t i = 0; i < s->n_devices; i++) {
        uint64_t held_back = 0;
        int result = mt_drive_overhead(s, i, &held_back, error);
        if (result < 0)
            return result;
        act->reserved_bytes[i] = held_back + (s->device_used_bytes ? s->device_used_bytes[i] : 0);
        if (act->reserved_bytes[i] >= s->device_bytes[i])
            return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                           "device %zu has %" PRIu64
                           " MiB, and the driver's context and other programs take %" PRIu64
                           " MiB of it: nothing is left",
                           i, s->device_bytes[i] >> 20, act->reserved_bytes[i] >> 20);
    }
    return 0;
}

/* The build's number, 0 where the version is none. */
static unsigned long build_of(const char *version)
{
    version += *version == 'b';
    return strtoul(version, NULL, 10);
}

static struct mt_drive_line line_of(const struct act *act)
{
    return (struct mt_drive_line){
        .program = act->stage->program_path,
        .script = act->stage->script_path,
        .modules = act->stage->modules_path,
        .model_path = act->stage->model_path,
        .settings = &act->settings,
        .flags = act->rules->flags,
        .port = free_port(),
        .places_itself = build_of(act->rules->tally.engine_version) >= FIRST_FIT,
        .drafts = mt_model_describe(act->stage->model)->n_draft_layers > 0,
    };
}

static int make_command(struct act *act, struct mt_error *error)
{
    const struct mt_drive_line line = line_of(act);
    act->flags = mt_drive_asked_flags(&line);
    return act->flags ? mt_drive_command_line(&line, &act->command, error)
                      : mt_out_of_memory(error);
}

/* No device may be larger than DEVICE_MOST_BYTES. */
static uint64_t large_scale(const struct mt_predict_settings *settings)
{
    uint64_t scale = LARGE_SCALE;
    for (size_t i = 0; i < settings->n_devices; i++) {
        uint64_t most = DEVICE_MOST_BYTES / settings->device_bytes[i];
        scale = most < scale ? most : scale;
    }
    return scale ? scale : 1;
}

/* The document shows and keeps the asked rehearsal, and no rehearsal on larger devices. */
static int run(struct act *act, uint64_t scale, struct mt_drive_trial *outcome,
               struct mt_error *error)
{
    const struct mt_advise_model_report *report = scale == 1 ? act->report : NULL;
    const struct mt_drive_start run = {
        .argv = act->command.words,
        .environment = act->stage->environment,
        .directory = scale != 1                 ? act->whole_folder
                     : report && report->folder ? report->folder
                                                : act->folder,
        .pretend_path = act->stage->pretend_path,
        .engine_version = *act->stage->rules_build ? act->stage->rules_build : NULL,
        .generation = act->stage->generation,
        .device_names = act->stage->device_names,
        .settings = &act->settings,
        .reserved_bytes = act->reserved_bytes,
        .scale = scale,
        .is_server = act->settings.program == MT_PROGRAM_SERVER,
        .patience_ns = PATIENCE_NS,
        .limit_ns = act->stage->timeout_ns ? act->stage->timeout_ns : LIMIT_NS,
        .n_requests = report ? report->n_requests : 0,
        .keeps_events = report != NULL,
        .listener = act->report ? act->report->listener : NULL,
        .interrupted = act->stage->interrupted,
    };
    int result = mt_drive_trial_run(&run, outcome, error);
    if (!report)
        mt_drive_folder_remove(run.directory);
    if (result < 0)
        return result;
    return mt_drive_went_well(&run, outcome);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Somebody's own build, of which nobody knows how its flags are spelled. */
static int is_flag_refused(const struct act *act, const struct mt_drive_trial *outcome)
{
    size_t length;
    return !*act->stage->build &&
           (mt_drive_words_find(outcome->last_words, "says.invalid_flag", &length) ||
            mt_drive_words_find(outcome->last_words, "says.unknown_flag", &length));
}

/* Why there is no answer, in the engine's own words. */
static int fail(const struct act *act, const struct mt_drive_trial *outcome, struct mt_error *error)
{
    const struct mt_drive_stage *stage = act->stage;
    const char *name = base_name(stage->program_path);
    size_t length;
    if (*outcome->refusal)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "the ggml of %s takes no pretended devices: %s", stage->program_path,
                       outcome->refusal);
    if (is_flag_refused(act, outcome))
        return mt_fail(error, MT_EVERSION, MT_NO_OFFSET,
                       "%s does not say its build and refuses a flag of the newest (%s); name its "
                       "build, as --engine llama.cpp@9840, with --engine-path",
                       stage->program_path, outcome->last_words);
    if (outcome->hung)
        return mt_fail(error, MT_ECHILD, MT_NO_OFFSET,
                       "%s showed no sign of progress%s, so memtally ended it; its last output: %s",
                       name, outcome->works_on ? ", though it computed" : " and computed nothing",
                       outcome->last_words);
    if (outcome->is_late)
        return mt_fail(error, MT_ECHILD, MT_NO_OFFSET,
                       "%s was neither ready nor at its end after %.0f s (--timeout) and %s, so "
                       "memtally ended it; its last output: %s",
                       name, (double)outcome->status.elapsed_ns / 1e9,
                       outcome->works_on ? "still computed" : "computed next to nothing",
                       outcome->last_words);
    if (act->settings.n_devices && !outcome->status.is_attached && !outcome->status.signal)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "%s did not take the pretended devices; a build with shared libraries of "
                       "ggml does. Its last output: %s",
                       stage->program_path, outcome->last_words);
    if (outcome->status.signal)
        return mt_fail(
            error, MT_ECHILD, MT_NO_OFFSET,
            "%s was killed by signal %d (%s), which is its own failure; its last output: %s", name,
            outcome->status.signal, strsignal(outcome->status.signal), outcome->last_words);
    if (mt_drive_words_find(outcome->last_words, "says.unknown_model", &length))
        return mt_fail(error, MT_ECHILD, MT_NO_OFFSET,
                       "%s does not know the model, but a newer build may; its last output: %s",
                       name, outcome->last_words);
    return mt_fail(error, MT_ECHILD, MT_NO_OFFSET,
                   "%s ended with status %d before it was ready; its last output: %s", name,
                   outcome->status.exit_code, outcome->last_words);
}

static void add_note(struct act *act, const char *note)
{
    if (act->n_notes < NOTES_MAX)
        act->notes[act->n_notes++] = note;
}

/* memtally finds out on larger devices what an engine takes that was refused memory. */
static int look_at_whole(struct act *act, struct mt_error *error)
{
    const struct mt_drive_trial *outcome = &act->outcome;
    char bytes[MT_SIZE_TEXT];
    char left[MT_SIZE_TEXT];
    mt_format_size(outcome->refused_bytes, bytes);
    mt_format_size(outcome->refused_free_bytes, left);
    if (!*act->cannot)
        snprintf(act->cannot, sizeof act->cannot, "%s has %s left where %.60s asks for %s (%s)",
                 outcome->refused_place, left, base_name(act->stage->program_path), bytes,
                 outcome->refused_what);
    int went_well = run(act, large_scale(&act->settings), &act->whole, error);
    if (went_well < 0)
        return went_well;
    add_note(
        act,
        went_well
            ? "A device refused the engine memory: the table shows a rehearsal on devices of the "
              "same shares that are large enough."
            : "A device refused the engine memory: the table shows what it held when it gave up.");
    return went_well;
}

/* What was left open and did not all go to the devices spills. With all on them the host keeps the
 * input's embedding alone. */
static int note_spill(struct act *act, const struct mt_tally *tally, struct mt_error *error)
{
    const struct mt_predict_settings *asked = &act->settings;
    if (!asked->n_devices || asked->has_gpu_layers || asked->cpu_moe_layers || asked->n_overrides)
        return 0;
    const struct mt_advise_left_open run = {.model = act->stage->model,
                                            .settings = asked,
                                            .tally = tally,
                                            .margin_bytes = mt_fit_margin_bytes(asked->engine)};
    return mt_advise_spills(&run, act->spills, sizeof act->spills, error);
}

static void write_notes(struct act *act, const struct mt_tally *tally)
{
    const struct mt_drive_stage *stage = act->stage;
    snprintf(act->note, sizeof act->note,
             "Rehearsed: exact figures are what %s itself allocates on devices that are not there; "
             "rules give the driver's context and the program's heap.",
             stage->program_path);
    add_note(act, act->note);
    if (act->settings.n_devices && !act->settings.has_gpu_layers && !act->settings.n_overrides)
        add_note(act, "The engine chose what goes to the devices, as it does on such devices.");
    if (act->outcome.was_refused && !*act->cannot)
        add_note(act, "A device refused an allocation on the way, and the engine found another.");
    for (size_t i = 0; i < tally->n_notes; i++)
        add_note(act, tally->notes[i]);
}

static uint64_t known(uint64_t number, uint64_t otherwise)
{
    return number == MT_UNKNOWN ? otherwise : number;
}

/* What the engine decided stands in the settings of the answer. */
static void take_decisions(const struct mt_drive_log *log, struct mt_predict_settings *settings)
{
    settings->context_tokens = known(log->context_tokens, settings->context_tokens);
    settings->batch = known(log->batch, settings->batch);
    settings->ubatch = known(log->ubatch, settings->ubatch);
    settings->sequences = known(log->sequences, settings->sequences);
    if (log->flash_attention != MT_SWITCH_AUTO)
        settings->flash_attention = (enum mt_switch)log->flash_attention;
    if (log->unified != MT_SWITCH_AUTO)
        settings->unified_kv = (enum mt_switch)log->unified;
    if (!settings->n_devices || log->layers_on_devices == MT_UNKNOWN)
        return;
    settings->has_gpu_layers = 1;
    settings->gpu_layers = log->layers_on_devices >= log->layers ? MT_ALL : log->layers_on_devices;
}

/* As its program says it, unless that is none. */
static const char *version_of(const struct act *act, const struct mt_drive_trial *outcome)
{
    const char *version =
        *act->stage->build || !*outcome->version ? act->stage->version : outcome->version;
    return *version ? version : NULL;
}

/* The flags that start the engine as it started itself: with the layers and the context of its own
 * choice. Experts, and shares of several devices, it chooses by more than a number of layers: there
 * the choice is left to it again. */
static int decide_flags(struct act *act, const struct mt_drive_log *log, struct mt_error *error)
{
    struct mt_predict_settings decided = act->settings;
    struct mt_estimate *rules;
    if (log->layers_on_devices == MT_UNKNOWN || log->context_tokens == MT_UNKNOWN)
        return 0;
    decided.context_tokens = log->context_tokens;
    if (decided.n_devices == 1 && log->layers_on_devices < log->layers) {
        decided.has_gpu_layers = 1;
        decided.gpu_layers = log->layers_on_devices;
    } else {
        add_note(act, "The flags do not name which experts, or which layers of which device: the "
                      "engine chooses them again.");
    }
    int result = mt_estimate_create(act->stage->model, &decided, &rules, error);
    if (result < 0)
        return result;
    struct mt_drive_line line = line_of(act);
    line.settings = &decided;
    line.flags = rules->flags ? rules->flags : "";
    char *flags = mt_drive_asked_flags(&line);
    mt_estimate_destroy(rules);
    if (!flags)
        return mt_out_of_memory(error);
    free(act->flags);
    act->flags = flags;
    return 0;
}

static int answer(struct act *act, struct mt_estimate **estimate, struct mt_error *error)
{
    const struct mt_drive_trial *outcome = act->whole.tally ? &act->whole : &act->outcome;
    struct mt_predict_settings settings = act->settings;
    int result = note_spill(act, outcome->tally, error);
    if (result == 0 && *act->spills)
        result = decide_flags(act, &outcome->log, error);
    if (result < 0)
        return result;
    write_notes(act, outcome->tally);
    take_decisions(&outcome->log, &settings);
    const struct mt_engine_plan said = {
        .tally = outcome->tally,
        .version = version_of(act, outcome),
        .flags = *act->spills ? act->flags : NULL,
        .cannot = *act->cannot ? act->cannot : NULL,
        .spills = *act->spills ? act->spills : NULL,
        .notes = act->notes,
        .n_notes = act->n_notes,
    };
    return mt_estimate_from_plan(act->stage->model, &settings, &said, estimate, error);
}

/* The changes are looked for in the rehearsal's own folder, with devices as they were. */
static void find_changes(struct act *act, struct mt_drive_job *job)
{
    struct mt_rehearsal_device devices[MT_DRIVE_DEVICES_MAX];
    const struct mt_predict_settings *s = &act->settings;
    if (s->n_devices > MT_DRIVE_DEVICES_MAX)
        return;
    for (size_t i = 0; i < s->n_devices; i++)
        devices[i] = (struct mt_rehearsal_device){
            .bytes = s->device_bytes[i],
            .reserved_bytes = act->reserved_bytes[i],
            .name = act->stage->device_names ? act->stage->device_names[i] : NULL};
    job->devices = devices;
    mt_advise_answer_find_changes(job, &act->report->answer);
    job->devices = NULL;
}

/* The result of the asked rehearsal, for the document. The command line and the events
 * are the report's from here on. */
static void tell(struct act *act)
{
    struct mt_advise_model_report *report = act->report;
    struct mt_drive_result *result = &report->answer.result;
    struct mt_drive_trial *trial = &act->outcome;
    report->command = act->command;
    struct mt_drive_job job = {
        .argv = report->command.words,
        .environment = act->stage->environment,
        .n_devices = act->settings.n_devices,
        .device_kind = act->settings.device_kind,
        .generation = act->stage->generation,
        .engine_version = *act->stage->rules_build ? act->stage->rules_build : NULL,
        .pretend_path = act->stage->pretend_path,
        .n_requests = report->n_requests,
        .listener = report->listener,
        .interrupted = act->stage->interrupted,
    };
    mt_drive_result_take(result, trial->rehearsal, &trial->report, &trial->status);
    trial->rehearsal = NULL;
    snprintf(result->folder, sizeof result->folder, "%s",
             report->folder ? report->folder : act->folder);
    snprintf(act->cannot, sizeof act->cannot, "%s", result->why);
    if (report->with_changes && result->outcome == MT_DRIVE_RUNS_OUT)
        find_changes(act, &job);
    mt_advise_answer_fill(&job, 1, &report->answer);
}

void mt_advise_model_report_finish(struct mt_advise_model_report *report)
{
    mt_advise_answer_finish(&report->answer);
    mt_profile_command_finish(&report->command);
}

static int perform(struct act *act, struct mt_estimate **estimate, struct mt_error *error)
{
    int result = mt_estimate_create(act->stage->model, &act->settings, &act->rules, error);
    if (result == 0)
        result = reserve(act, error);
    if (result == 0)
        result = make_command(act, error);
    if (result < 0)
        return result;
    int went_well = run(act, 1, &act->outcome, error);
    if (went_well < 0)
        return went_well;
    result = mt_drive_check_version(act->stage, act->outcome.version, error);
    if (result < 0)
        return result;
    if ((went_well == 0 && !act->outcome.was_refused) ||
        (act->settings.n_devices && !act->outcome.status.is_attached))
        return fail(act, &act->outcome, error);
    if (act->report)
        tell(act);
    if (went_well == 0)
        went_well = look_at_whole(act, error);
    return went_well < 0 ? went_well : answer(act, estimate, error);
}

static void finish(struct act *act)
{
    mt_drive_folder_remove(act->folder);
    mt_drive_trial_finish(&act->outcome);
    mt_drive_trial_finish(&act->whole);
    if (!act->report || act->report->command.words[0] != act->command.words[0])
        mt_profile_command_finish(&act->command);
    mt_estimate_destroy(act->rules);
    free(act->reserved_bytes);
    free(act->flags);
    free(act);
}

int mt_advise_model(const struct mt_drive_stage *stage, const struct mt_predict_settings *settings,
                    size_t folder_number, struct mt_advise_model_report *report,
                    struct mt_estimate **estimate, struct mt_error *error)
{
    struct act *act = calloc(1, sizeof *act);
    if (!act)
        return mt_out_of_memory(error);
    act->stage = stage;
    act->report = report;
    act->settings = *settings;
    act->settings.engine = stage->engine_name;
    act->settings.program = stage->program;
    act->settings.weight_type = NULL;
    act->settings.context_bytes = stage->reserved_bytes;
    int result = mt_drive_stage_folder(stage, folder_number, act->folder, error);
    snprintf(act->whole_folder, sizeof act->whole_folder, "%s-whole", act->folder);
    if (result == 0)
        result = perform(act, estimate, error);
    finish(act);
    return result;
}

void mt_advise_tell_stage(const struct mt_drive_stage *stage, struct mt_advise_staged *staged)
{
    *staged = (struct mt_advise_staged){.file_type = stage->file_type};
    snprintf(staged->program_path, sizeof staged->program_path, "%s", stage->program_path);
    if (stage->file_type)
        staged->is_converted = mt_drive_stage_converted(stage, &staged->weight_bytes);
}

int mt_advise_staged_model(const struct mt_drive_stage_options *options,
                           const struct mt_predict_settings *settings,
                           struct mt_advise_model_report *report, struct mt_advise_staged *staged,
                           struct mt_estimate **estimate, struct mt_error *error)
{
    int result = mt_drive_check_devices(settings->n_devices, error);
    if (result)
        return result;
    struct mt_drive_stage *stage = malloc(sizeof *stage);
    if (!stage)
        return mt_out_of_memory(error);
    result = mt_drive_stage_init(stage, options, error);
    if (!result) {
        result = mt_advise_model(stage, settings, 0, report, estimate, error);
        if (!result)
            mt_advise_tell_stage(stage, staged);
        mt_drive_stage_finish(stage);
    }
    free(stage);
    return result;
}
