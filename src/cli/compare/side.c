/* SPDX-License-Identifier: MIT */
/* From a path, or from figures, to a side. */
#include "cli/compare/side.h"

#include <math.h>
#include <memtally/model_file.h>
#include <memtally/predict.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "cli/document/load.h"
#include "drive/json_get.h"

/* ---- folders ---- */

static void take_document(struct compare_loaded *loaded)
{
    const struct cli_document *document = &loaded->recording.document;
    const struct mt_tally *tally = document->tally;
    loaded->engine_name = document->engine ? document->engine->name : tally->engine_name;
    loaded->engine_version = document->engine ? document->engine->version : tally->engine_version;
    loaded->engine_path = document->engine ? document->engine->path : NULL;
    loaded->model_path = document->model ? document->model->path : tally->model_path;
    if (document->model) {
        loaded->model_name = document->model->name;
        loaded->architecture = document->model->architecture;
        loaded->dtype = document->model->dtype;
    }
    if (document->settings)
        loaded->settings = *document->settings;
}

static int load_folder(struct compare_loaded *loaded, const struct mt_moment *moment,
                       struct mt_error *error)
{
    const struct cli_load_options options = {.moment = *moment};
    int result = cli_load(&loaded->recording, loaded->path, &options, error);
    if (result == 0)
        result = cli_document_kept_read(loaded->path, &loaded->kept, error);
    if (result)
        return result;
    cli_document_kept_use(loaded->kept, &loaded->recording.document);
    take_document(loaded);
    loaded->what = "recording";
    loaded->moment = mt_moment_text(moment);
    loaded->side =
        (struct mt_compare_side){.kind = MT_SIDE_MEASUREMENT, .tally = loaded->recording.tally};
    return 0;
}

/* ---- files ---- */

static void take_tally(struct compare_loaded *loaded)
{
    const json_t *root = loaded->file->root;
    const json_t *engine = json_object_get(root, "engine");
    const json_t *model = json_object_get(root, "model");
    int measured = loaded->file->tally.kind == MT_TALLY_MEASUREMENT;
    loaded->what = measured ? "report" : "estimate";
    loaded->moment = measured ? mt_profile_json_text(root, "moment") : NULL;
    loaded->engine_name = mt_profile_json_text(engine, "name");
    loaded->engine_version = mt_profile_json_text(engine, "version");
    loaded->engine_path = mt_profile_json_text(engine, "path");
    loaded->model_path = mt_profile_json_text(model, "path");
    loaded->model_name = mt_profile_json_text(model, "name");
    loaded->architecture = mt_profile_json_text(model, "architecture");
    loaded->dtype = mt_profile_json_text(model, "dtype");
    loaded->side = (struct mt_compare_side){
        .kind = measured ? MT_SIDE_MEASUREMENT : MT_SIDE_ESTIMATE, .tally = &loaded->file->tally};
}

static void take_figures(struct compare_loaded *loaded, enum compare_unit unit)
{
    const json_t *info = json_object_get(loaded->file->root, "model_info");
    loaded->what = "profiler's file";
    loaded->unit = unit;
    loaded->model_name = mt_profile_json_text(info, "model_name");
    loaded->side = (struct mt_compare_side){
        .kind = MT_SIDE_FIGURES, .figures = loaded->file->figures, .from_gigabytes = 1};
}

static int load_file(struct compare_loaded *loaded, enum compare_unit unit, struct mt_error *error)
{
    int result = compare_file_read(loaded->path, unit, &loaded->file, error);
    if (result)
        return result;
    loaded->settings = cli_document_settings_of(loaded->file->root);
    if (loaded->file->is_tally)
        take_tally(loaded);
    else
        take_figures(loaded, unit);
    return 0;
}

int compare_load(struct compare_loaded *loaded, const char *path, const struct mt_moment *moment,
                 enum compare_unit unit, struct mt_error *error)
{
    struct stat status;
    loaded->settings = (struct cli_document_settings)CLI_SETTINGS_UNKNOWN;
    loaded->path = path;
    if (!*path)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "compare: a name is empty");
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        return load_folder(loaded, moment, error);
    return load_file(loaded, unit, error);
}

/* ---- figures ---- */

static int parse_figure(const char *text, enum mt_component component, double unit_bytes,
                        struct mt_component_figure *figure, struct mt_error *error)
{
    char *rest;
    double bytes = strtod(text, &rest) * unit_bytes;
    double least = component == MT_COMPONENT_OVERHEAD ? -(double)COMPARE_BYTES_MAX : 0;
    if (rest == text || *rest || !(bytes >= least) || bytes > (double)COMPARE_BYTES_MAX)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "compare: '%s' is no figure of %s; give gigabytes as a number (13.5)", text,
                       mt_component_name(component));
    figure->known = 1;
    figure->bytes = (int64_t)llround(bytes);
    return 0;
}

int compare_load_figures(struct compare_loaded *loaded, const struct compare_figures *figures,
                         enum compare_unit unit, struct mt_error *error)
{
    double unit_bytes = compare_unit_bytes(unit);
    loaded->settings = (struct cli_document_settings)CLI_SETTINGS_UNKNOWN;
    loaded->what = "figures";
    loaded->unit = unit;
    loaded->side = (struct mt_compare_side){.kind = MT_SIDE_FIGURES, .from_gigabytes = 1};
    for (int i = 0; i < MT_COMPONENT_COUNT; i++) {
        int result = figures->text[i] ? parse_figure(figures->text[i], (enum mt_component)i,
                                                     unit_bytes, &loaded->side.figures.of[i], error)
                                      : 0;
        if (result)
            return result;
    }
    return 0;
}

void compare_unload(struct compare_loaded *loaded)
{
    mt_estimate_destroy(loaded->estimate);
    mt_model_close(loaded->model);
    compare_file_destroy(loaded->file);
    cli_document_kept_destroy(loaded->kept);
    cli_unload(&loaded->recording);
    *loaded = (struct compare_loaded){0};
}

const char *compare_category_name(enum mt_category category)
{
    return category == MT_CATEGORY_NONE ? "unattributed" : mt_category_name(category);
}
