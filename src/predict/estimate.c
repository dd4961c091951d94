/* SPDX-License-Identifier: MIT */
/* Making an estimate: the engine's predictor writes a sheet, and the sheet becomes a tally. */
#include <memtally/residue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/units.h>

#include "base/error.h"
#include "base/invariant.h"
#include "base/out_of_memory.h"
#include "predict/driver.h"
#include "predict/fit.h"
#include "predict/sheet.h"
#include "sheet_internal.h"

#define REASON_BYTES 256

/* An estimate with what it owns. */
struct box {
    struct mt_estimate estimate; /* first: the caller's pointer */
    struct mt_sheet sheet;
    struct mt_engine engine;
};

/* An engine's table says by whose rules it is predicted. */
static const struct mt_predictor *predictor_of(const struct mt_engine *engine)
{
    static const struct mt_predictor *const predictors[] = {
        &mt_predict_llama_cpp, &mt_predict_vllm,         &mt_predict_sglang,
        &mt_predict_trt_llm,   &mt_predict_transformers, &mt_predict_exllamav3};
    for (size_t i = 0; i < sizeof predictors / sizeof *predictors; i++)
        if (mt_engine_has(engine, "rules", predictors[i]->engine))
            return predictors[i];
    return NULL;
}

const char *mt_switch_name(enum mt_switch value)
{
#define NAME(NAME_, name) name,
    static const char *const names[] = {MT_SWITCH_LIST(NAME)};
#undef NAME
    return names[value];
}

const char *mt_split_name(enum mt_split value)
{
#define NAME(NAME_, name) name,
    static const char *const names[] = {MT_SPLIT_LIST(NAME)};
#undef NAME
    return names[value];
}

const char *mt_verdict_name(enum mt_verdict verdict)
{
    static const char *const names[] = {[MT_VERDICT_UNKNOWN] = "UNKNOWN",
#define NAME(NAME_, name) [MT_VERDICT_##NAME_] = name,
                                        MT_VERDICT_LIST(NAME)
#undef NAME
    };
    return (unsigned)verdict < MT_VERDICT_COUNT ? names[verdict] : "?";
}

static void own_text(struct mt_sheet *sheet, const char **text)
{
    if (!*text)
        return;
    *text = mt_arena_copy(&sheet->arena, *text, strlen(*text));
    sheet->failed |= !*text;
}

static const void *own_array(struct mt_sheet *sheet, const void *items, size_t n, size_t size)
{
    if (!items || !n)
        return NULL;
    void *copy = mt_arena_array(&sheet->arena, n, size);
    if (copy)
        memcpy(copy, items, n * size);
    sheet->failed |= !copy;
    return copy;
}

static void own_overrides(struct mt_sheet *sheet, struct mt_predict_settings *settings)
{
    struct mt_tensor_override *copy =
        mt_arena_array(&sheet->arena, settings->n_overrides, sizeof *copy);
    for (size_t i = 0; copy && i < settings->n_overrides; i++) {
        copy[i] = settings->overrides[i];
        own_text(sheet, &copy[i].pattern);
        own_text(sheet, &copy[i].buffer);
    }
    sheet->failed |= !copy;
    settings->overrides = copy;
}

static void own_cards(struct mt_sheet *sheet, struct mt_predict_settings *settings)
{
    struct mt_device_known *known =
        mt_arena_array(&sheet->arena, settings->n_devices, sizeof *known);
    sheet->failed |= !known;
    if (!known)
        return;
    for (size_t i = 0; i < settings->n_devices; i++)
        known[i] = settings->device_known ? settings->device_known[i]
                                          : (struct mt_device_known){.gpu = ""};
    mt_driver_name_cards(settings, known, sheet);
}

/* Makes everything that the settings refer to the sheet's. */
static void own_settings(struct mt_sheet *sheet, struct mt_predict_settings *settings)
{
    own_text(sheet, &settings->engine);
    own_text(sheet, &settings->kv_type_k);
    own_text(sheet, &settings->kv_type_v);
    own_text(sheet, &settings->weight_type);
    own_text(sheet, &settings->device_kind);
    settings->tensor_split = own_array(sheet, settings->tensor_split, settings->n_tensor_split,
                                       sizeof *settings->tensor_split);
    settings->device_bytes = own_array(sheet, settings->device_bytes, settings->n_devices,
                                       sizeof *settings->device_bytes);
    settings->device_used_bytes = own_array(sheet, settings->device_used_bytes, settings->n_devices,
                                            sizeof *settings->device_used_bytes);
    settings->residues =
        own_array(sheet, settings->residues, settings->n_residues, sizeof *settings->residues);
    if (settings->n_devices)
        own_cards(sheet, settings);
    if (settings->n_overrides)
        own_overrides(sheet, settings);
}

/* Appends the details of one category at one place; 0 where it has no term. */
static int make_row(struct mt_sheet *sheet, int place, enum mt_category category,
                    struct mt_tally_row *row)
{
    size_t n = 0;
    for (size_t i = 0; i < sheet->n_terms; i++)
        n += sheet->terms[i].place == place && sheet->terms[i].term.category == category;
    if (!n)
        return 0;
    struct mt_tally_detail *details = mt_arena_array(&sheet->arena, n, sizeof *details);
    if (!details)
        return MT_ENOMEM;
    *row = (struct mt_tally_row){.category = category,
                                 .resident_bytes = MT_UNKNOWN,
                                 .provenance = MT_PROVENANCE_READ,
                                 .details = details};
    for (size_t i = 0; i < sheet->n_terms; i++) {
        const struct mt_estimate_term *term = &sheet->terms[i].term;
        if (sheet->terms[i].place != place || term->category != category)
            continue;
        details[row->n_details++] = (struct mt_tally_detail){.name = term->name,
                                                             .allocated_bytes = term->bytes,
                                                             .resident_bytes = MT_UNKNOWN,
                                                             .provenance = term->provenance,
                                                             .kind = term->kind,
                                                             .rule = term->rule,
                                                             .low_bytes = term->low_bytes,
                                                             .high_bytes = term->high_bytes};
        row->allocated_bytes += term->bytes;
        row->low_bytes += term->low_bytes;
        row->high_bytes += term->high_bytes;
        if (term->provenance > row->provenance)
            row->provenance = term->provenance;
    }
    return 1;
}

/* A place that no rule says anything of holds something all the same. */
static void forget_totals(struct mt_tally_place *place)
{
    place->total_allocated_bytes = MT_UNKNOWN;
    place->total_low_bytes = MT_UNKNOWN;
    place->total_high_bytes = MT_UNKNOWN;
}

static int make_place(struct mt_sheet *sheet, int number,
                      const struct mt_predict_settings *settings, struct mt_tally_place *place)
{
    struct mt_tally_row *rows = mt_arena_array(&sheet->arena, MT_CATEGORY_END, sizeof *rows);
    *place = (struct mt_tally_place){.total_resident_bytes = MT_UNKNOWN,
                                     .peak_resident_bytes = MT_UNKNOWN,
                                     .unattributed_bytes = MT_UNKNOWN,
                                     .capacity_bytes = MT_UNKNOWN,
                                     .rows = rows};
    if (number == MT_HOST_PLACE) {
        place->place = "host";
        if (settings->host_bytes)
            place->capacity_bytes = settings->host_bytes;
    } else {
        place->place = mt_arena_printf(&sheet->arena, "gpu:%d", number);
        place->capacity_bytes = settings->device_bytes[number];
    }
    if (!rows || !place->place)
        return MT_ENOMEM;
    for (int category = 1; category < MT_CATEGORY_END; category++) {
        int made = make_row(sheet, number, (enum mt_category)category, &rows[place->n_rows]);
        if (made < 0)
            return made;
        if (!made)
            continue;
        place->total_allocated_bytes += rows[place->n_rows].allocated_bytes;
        place->total_low_bytes += rows[place->n_rows].low_bytes;
        place->total_high_bytes += rows[place->n_rows].high_bytes;
        place->n_rows++;
    }
    for (size_t i = 0; i < sheet->n_bounds; i++) {
        if (sheet->bounds[i].place != number)
            continue;
        place->total_low_bytes = sheet->bounds[i].low_bytes;
        place->total_high_bytes = sheet->bounds[i].high_bytes;
    }
    if (!place->n_rows)
        forget_totals(place);
    return 0;
}

static int make_places(struct box *box)
{
    const struct mt_predict_settings *settings = &box->estimate.settings;
    size_t n = 1 + settings->n_devices;
    struct mt_tally_place *places = mt_arena_array(&box->sheet.arena, n, sizeof *places);
    if (!places)
        return MT_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        int result = make_place(&box->sheet, (int)i - 1, settings, &places[i]);
        if (result < 0)
            return result;
    }
    box->estimate.tally.places = places;
    box->estimate.tally.n_places = n;
    return 0;
}

static int make_terms(struct box *box)
{
    struct mt_sheet *sheet = &box->sheet;
    struct mt_estimate_term *terms =
        mt_arena_array(&sheet->arena, sheet->n_terms + 1, sizeof *terms);
    if (!terms)
        return MT_ENOMEM;
    for (size_t i = 0; i < sheet->n_terms; i++) {
        terms[i] = sheet->terms[i].term;
        terms[i].place = box->estimate.tally.places[sheet->terms[i].place + 1].place;
    }
    box->estimate.terms = terms;
    box->estimate.n_terms = sheet->n_terms;
    return 0;
}

static double accuracy_of(const struct mt_tally *tally)
{
    double total = 0;
    double width = 0;
    for (size_t i = 0; i < tally->n_places; i++) {
        const struct mt_tally_place *place = &tally->places[i];
        if (place->total_allocated_bytes == MT_UNKNOWN)
            continue;
        total += (double)place->total_allocated_bytes;
        width += (double)(place->total_high_bytes - place->total_low_bytes);
    }
    return total > 0 ? width / 2 / total : 0;
}

/* Makes the estimate of a sheet that the predictor has written; `description` may be NULL. */
static int close_sheet(struct box *box, const struct mt_model_description *description)
{
    struct mt_estimate *estimate = &box->estimate;
    struct mt_tally *tally = &estimate->tally;
    struct mt_sheet *sheet = &box->sheet;
    *tally = (struct mt_tally){.kind = MT_TALLY_ESTIMATE,
                               .moment = {.kind = MT_MOMENT_PEAK},
                               .moment_ns = MT_UNKNOWN,
                               .engine_name = box->engine.name,
                               .engine_version = box->engine.version_text,
                               .model_path = description ? description->path : NULL};
    if (sheet->failed || make_places(box) < 0 || make_terms(box) < 0)
        return MT_ENOMEM;
    tally->notes = sheet->notes;
    tally->n_notes = sheet->n_notes;
    estimate->pool = sheet->pool;
    estimate->graphs = sheet->graphs;
    estimate->flags = sheet->flags ? sheet->flags : "";
    estimate->accuracy_ratio = accuracy_of(tally);
    char *reason = mt_arena_alloc(&sheet->arena, REASON_BYTES);
    if (!reason)
        return MT_ENOMEM;
    estimate->verdict = mt_fit_verdict(tally, &estimate->settings, sheet->spills, sheet->cannot,
                                       reason, REASON_BYTES);
    estimate->verdict = mt_fit_pool(&estimate->pool, estimate->settings.context_tokens,
                                    estimate->verdict, reason, REASON_BYTES);
    estimate->fits_as_counted = estimate->verdict == MT_VERDICT_FITS;
    if (sheet->is_partial && estimate->fits_as_counted) {
        snprintf(reason, REASON_BYTES,
                 "what memtally counts fits, but it does not count all: see the notes");
        estimate->verdict = MT_VERDICT_TIGHT;
    }
    estimate->reason = *reason ? reason : NULL;
    MT_HOLDS(mt_sheet_is_valid(sheet));
    MT_HOLDS(mt_estimate_is_valid(estimate));
    return 0;
}

static void note_description(struct mt_sheet *sheet, const struct mt_model_description *description)
{
    for (size_t i = 0; i < description->n_notes; i++)
        mt_sheet_note(sheet, "%s", description->notes[i]);
}

/* A version that came after the last one that the rules were held against is said once, and its
 * bands are wider. One that came after the tables is taken to be as the newest that they know. */
static void note_version(struct mt_sheet *sheet, const struct mt_engine *engine)
{
    struct mt_engine_value read = {.text = NULL};
    unsigned steps = mt_engine_steps_unread(engine);
    mt_engine_value(engine, "read_up_to", &read);
    if (steps == 2)
        mt_sheet_note(sheet,
                      "%s %s came after %s, the newest known version, whose rules were held "
                      "against none after %.*s: bands are wider still.",
                      engine->name, engine->version_text, engine->newest_text, (int)read.length,
                      read.text);
    else if (steps)
        mt_sheet_note(sheet,
                      "%s %s came after %.*s, the last version that these rules were held against: "
                      "bands are wider.",
                      engine->name, engine->version_text, (int)read.length, read.text);
}

/* The engine's own word, and what it says nothing of. */
static int fill_said(struct box *box, const struct mt_predictor *predictor,
                     const struct mt_predict_input *input, const struct mt_engine_plan *said,
                     struct mt_error *error)
{
    if (!said->engine && !predictor->predict_unplanned)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET, "%s cannot be rehearsed",
                       box->engine.name);
    int result = mt_engine_plan_write(said, input->settings, &box->sheet, error);
    if (result == 0 && !said->engine)
        result = predictor->predict_unplanned(input, &box->sheet, error);
    if (result < 0)
        return result;
    if (said->flags)
        box->sheet.flags = mt_arena_copy(&box->sheet.arena, said->flags, strlen(said->flags));
    result = close_sheet(box, input->d);
    if (result < 0)
        return mt_fail(error, result, MT_NO_OFFSET, "out of memory");
    if (said->engine) {
        box->estimate.tally.engine_name =
            mt_arena_copy(&box->sheet.arena, said->engine, strlen(said->engine));
        box->estimate.tally.engine_version = NULL;
        box->estimate.flags = "";
    }
    if (said->version)
        box->estimate.tally.engine_version =
            mt_arena_copy(&box->sheet.arena, said->version, strlen(said->version));
    return 0;
}

static int fill(struct box *box, const struct mt_model *model,
                const struct mt_predict_settings *settings, const struct mt_estimate_why *why,
                struct mt_error *error)
{
    struct mt_sheet *sheet = &box->sheet;
    const struct mt_predictor *predictor = predictor_of(&box->engine);
    int result = 0;
    sheet->engine = &box->engine;
    box->estimate.settings = *settings;
    if (!settings->engine)
        box->estimate.settings.engine = box->engine.name;
    own_settings(sheet, &box->estimate.settings);
    if (sheet->failed)
        return mt_out_of_memory(error);
    if (model)
        result = predictor->complete(model, &box->engine, &box->estimate.settings, error);
    if (result < 0)
        return result;
    const struct mt_predict_input input = {.model = model,
                                           .d = model ? mt_model_describe(model) : NULL,
                                           .settings = &box->estimate.settings,
                                           .engine = &box->engine};
    if (why && why->said)
        return fill_said(box, predictor, &input, why->said, error);
    note_description(sheet, input.d);
    /* llama.cpp takes encoders from a file of their own. */
    if (input.d->lacks_encoders && predictor != &mt_predict_llama_cpp &&
        !(input.d->encoder_parameters && predictor->counts_encoders))
        mt_sheet_uncounted(sheet, "memtally does not count the weights of the model's encoders; "
                                  "for them, give the folder with its safetensors.");
    note_version(sheet, &box->engine);
    result = predictor->predict(&input, sheet, error);
    if (result < 0)
        return result;
    if (why && why->spills)
        mt_sheet_spills(sheet, "%s", why->spills);
    if (why && why->note)
        mt_sheet_note(sheet, "%s", why->note);
    result = close_sheet(box, input.d);
    return result < 0 ? mt_fail(error, result, MT_NO_OFFSET, "out of memory") : 0;
}

int mt_estimate_once(const struct mt_engine *engine, const struct mt_model *model,
                     const struct mt_predict_settings *settings, const struct mt_estimate_why *why,
                     struct mt_estimate **estimate, struct mt_error *error)
{
    struct box *box = calloc(1, sizeof *box);
    if (!box)
        return mt_out_of_memory(error);
    box->engine = *engine;
    int result = fill(box, model, settings, why, error);
    if (result < 0)
        mt_estimate_destroy(&box->estimate);
    else
        *estimate = &box->estimate;
    return result;
}

int mt_estimate_create(const struct mt_model *model, const struct mt_predict_settings *settings,
                       struct mt_estimate **estimate, struct mt_error *error)
{
    struct mt_estimate *made;
    struct mt_engine engine;
    int result = mt_engine_find(settings->engine, &engine, error);
    if (result == 0)
        result = mt_estimate_once(&engine, model, settings, NULL, &made, error);
    if (result < 0)
        return result;
    result = mt_estimate_spill(&engine, model, settings, &made, error);
    if (result < 0)
        mt_estimate_destroy(made);
    else
        *estimate = made;
    return result;
}

int mt_estimate_from_plan(const struct mt_model *model, const struct mt_predict_settings *settings,
                          const struct mt_engine_plan *said, struct mt_estimate **estimate,
                          struct mt_error *error)
{
    const struct mt_estimate_why why = {.said = said};
    struct mt_engine engine;
    int result = mt_engine_find(settings->engine, &engine, error);
    return result < 0 ? result : mt_estimate_once(&engine, model, settings, &why, estimate, error);
}

void mt_estimate_destroy(struct mt_estimate *estimate)
{
    struct box *box = (struct box *)estimate;
    if (!box)
        return;
    mt_arena_finish(&box->sheet.arena);
    free(box);
}
