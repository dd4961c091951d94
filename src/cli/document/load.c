/* SPDX-License-Identifier: MIT */
/* Reading back what json.c wrote of a profile. Anybody may have changed the file, so that
 * every value is checked for its type, and what does not fit is not known. */
#include "load.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memtally/error_code.h>
#include <memtally/units.h>

#include "base/out_of_memory.h"
#include "drive/json_get.h"

#define LARGEST_BYTES (64 << 20)

struct cli_document_kept {
    json_t *root; /* the texts are borrowed from it; NULL for a foreign file */
    int is_profile;
    struct cli_document_engine engine;
    struct cli_document_model model;
    struct cli_document_settings settings;
    struct cli_document_run *runs;
    size_t n_runs;
    struct cli_document_phase *phases;
    size_t n_phases;
    const char *notes[2]; /* its own, and what the document had before it */
};

static const char version_note[] =
    "This memtally does not read the folder's report.json, which another version wrote, and does "
    "not show its engine, model, settings and runs. Use the memtally that wrote it, or a newer "
    "one.";
static const char foreign_note[] =
    "memtally cannot read the folder's report.json as a report of its own, and does not show its "
    "engine, model, settings and runs.";
static const char unread_note[] =
    "memtally could not read the folder's report.json, and does not show its engine, model, "
    "settings and runs. Ask again, once the file can be opened.";

static void read_engine(struct cli_document_kept *kept)
{
    const json_t *engine = json_object_get(kept->root, "engine");
    kept->engine = (struct cli_document_engine){
        .name = mt_profile_json_text(engine, "name"),
        .version = mt_profile_json_text(engine, "version"),
        .path = mt_profile_json_text(engine, "path"),
    };
}

static void read_model(struct cli_document_kept *kept)
{
    const json_t *model = json_object_get(kept->root, "model");
    const json_t *map = json_object_get(json_object_get(kept->root, "model_info"), "hf_device_map");
    kept->model = (struct cli_document_model){
        .path = mt_profile_json_text(model, "path"),
        .name = mt_profile_json_text(model, "name"),
        .architecture = mt_profile_json_text(model, "architecture"),
        .dtype = mt_profile_json_text(model, "dtype"),
        .parameters = mt_profile_json_count(model, "parameters"),
        .weight_bytes = mt_profile_json_count(model, "weight_bytes"),
        .layers = mt_profile_json_count(model, "layers"),
        .trained_context_tokens = mt_profile_json_count(model, "trained_context_tokens"),
        .device_map = json_is_object(map) ? map : NULL,
    };
}

/* What was generated beside the prompt. Profilers write a length that includes the prompt, and
 * memtally 0.1 wrote one without it; the total length tells them apart. */
static uint64_t generated_of(const json_t *info)
{
    uint64_t prompt = mt_profile_json_count(info, "prompt_length");
    uint64_t generated = mt_profile_json_count(info, "generated_length");
    uint64_t total = mt_profile_json_count(info, "total_sequence_length");
    int includes_prompt = prompt != MT_UNKNOWN && generated != MT_UNKNOWN && generated == total &&
                          generated >= prompt;
    return includes_prompt ? generated - prompt : generated;
}

struct cli_document_settings cli_document_settings_of(const json_t *root)
{
    const json_t *settings = json_object_get(root, "settings");
    const json_t *info = json_object_get(root, "model_info");
    return (struct cli_document_settings){
        .context_tokens = mt_profile_json_count(settings, "context_tokens"),
        .batch = mt_profile_json_count(settings, "batch"),
        .ubatch = mt_profile_json_count(settings, "ubatch"),
        .sequences = mt_profile_json_count(settings, "sequences"),
        .threads = mt_profile_json_count(settings, "threads"),
        .prompt_tokens = mt_profile_json_count(info, "prompt_length"),
        .generated_tokens = generated_of(info),
        .kv_type_k = mt_profile_json_text(settings, "kv_type_k"),
        .kv_type_v = mt_profile_json_text(settings, "kv_type_v"),
        .flash_attention = mt_profile_json_text(settings, "flash_attention"),
    };
}

/* A run without its number is none. */
static void read_run(struct cli_document_kept *kept, const json_t *run)
{
    uint64_t number = mt_profile_json_count(run, "run");
    if (number == MT_UNKNOWN)
        return;
    kept->runs[kept->n_runs++] = (struct cli_document_run){
        .run = number,
        .warm_up = json_is_true(json_object_get(run, "warm_up")),
        .latency_ms = mt_profile_json_real(run, "latency_ms"),
        .prefill_ms = mt_profile_json_real(run, "prefill_ms"),
        .decode_ms = mt_profile_json_real(run, "decode_ms"),
        .peak_memory_bytes = mt_profile_json_count(run, "peak_memory_bytes"),
        .steps = mt_profile_json_count(run, "steps"),
        .batch_size = mt_profile_json_count(run, "batch_size"),
        .max_new_tokens = mt_profile_json_count(run, "max_new_tokens"),
        .peak_device_bytes = mt_profile_json_count(run, "peak_device_bytes"),
    };
}

static int read_runs(struct cli_document_kept *kept)
{
    const json_t *runs = json_object_get(kept->root, "runs");
    kept->runs = calloc(json_array_size(runs) + 1, sizeof *kept->runs);
    for (size_t i = 0; kept->runs && i < json_array_size(runs); i++)
        read_run(kept, json_array_get(runs, i));
    return kept->runs ? 0 : MT_ENOMEM;
}

/* A phase without its name is none. */
static void read_phase(struct cli_document_kept *kept, const json_t *phase)
{
    const char *name = mt_profile_json_text(phase, "name");
    if (!name)
        return;
    kept->phases[kept->n_phases++] = (struct cli_document_phase){
        .name = name,
        .start_ns = mt_profile_json_count(phase, "start_ns"),
        .end_ns = mt_profile_json_count(phase, "end_ns"),
        .peak_resident_bytes = mt_profile_json_count(phase, "peak_resident_bytes"),
    };
}

static int read_phases(struct cli_document_kept *kept)
{
    const json_t *phases = json_object_get(kept->root, "phases");
    kept->phases = calloc(json_array_size(phases) + 1, sizeof *kept->phases);
    for (size_t i = 0; kept->phases && i < json_array_size(phases); i++)
        read_phase(kept, json_array_get(phases, i));
    return kept->phases ? 0 : MT_ENOMEM;
}

static int is_ours(const json_t *root)
{
    const char *schema = mt_profile_json_text(root, "schema");
    const char *kind = mt_profile_json_text(root, "kind");
    return schema && kind && strcmp(schema, "memtally/1") == 0 && strcmp(kind, "measurement") == 0;
}

static int is_of_another_version(const json_t *root)
{
    const char *schema = mt_profile_json_text(root, "schema");
    return schema && strncmp(schema, "memtally/", 9) == 0 && strcmp(schema, "memtally/1") != 0;
}

/* A report that was saved of a plain recording has no runs, and nothing that the recording has
 * not. */
static int read_document(struct cli_document_kept *kept)
{
    if (!is_ours(kept->root)) {
        kept->notes[0] = is_of_another_version(kept->root) ? version_note : foreign_note;
        return 0;
    }
    read_engine(kept);
    read_model(kept);
    kept->settings = cli_document_settings_of(kept->root);
    int result = read_runs(kept);
    kept->is_profile = result == 0 && kept->n_runs > 0;
    return result ? result : read_phases(kept);
}

enum { REPORT_ABSENT = -1, REPORT_FOREIGN = -2, REPORT_UNREAD = -3 };

/* Opens the file. Returns a descriptor, or why there is none. */
static int open_report(const char *folder)
{
    char path[PATH_MAX];
    struct stat status;
    if (snprintf(path, sizeof path, "%s/report.json", folder) >= (int)sizeof path)
        return REPORT_ABSENT;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? REPORT_ABSENT : REPORT_UNREAD;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size <= LARGEST_BYTES)
        return fd;
    close(fd);
    return REPORT_FOREIGN;
}

int cli_document_kept_read(const char *folder, struct cli_document_kept **kept,
                           struct mt_error *error)
{
    int fd = open_report(folder);
    if (fd == REPORT_ABSENT) {
        *kept = NULL;
        return 0;
    }
    struct cli_document_kept *read = calloc(1, sizeof *read);
    if (read && fd >= 0)
        read->root = json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL);
    if (fd >= 0)
        close(fd);
    if (read && fd == REPORT_UNREAD) {
        read->notes[0] = unread_note;
    } else if (!read || read_document(read)) {
        cli_document_kept_destroy(read);
        return mt_out_of_memory(error);
    }
    *kept = read;
    return 0;
}

void cli_document_kept_use(struct cli_document_kept *kept, struct cli_document *document)
{
    if (kept && kept->notes[0]) {
        if (document->n_notes)
            kept->notes[1] = document->notes[0];
        document->n_notes = kept->notes[1] ? 2 : 1;
        document->notes = kept->notes;
    }
    if (!kept || !kept->is_profile)
        return;
    document->engine = &kept->engine;
    document->model = &kept->model;
    document->settings = &kept->settings;
    document->runs = kept->runs;
    document->n_runs = kept->n_runs;
    document->phases = kept->phases;
    document->n_phases = kept->n_phases;
}

void cli_document_kept_destroy(struct cli_document_kept *kept)
{
    if (!kept)
        return;
    free(kept->runs);
    free(kept->phases);
    json_decref(kept->root);
    free(kept);
}
