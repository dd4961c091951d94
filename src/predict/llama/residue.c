/* SPDX-License-Identifier: MIT */
/* What a process holds beside what llama.cpp accounts for: the driver's context and code on each
 * device, the program itself on the host. Bands out of the engine's table, unless this machine has
 * taught better. */
#include <inttypes.h>
#include <memtally/residue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/driver.h"
#include "predict/llama/llama.h"
#include "predict/term.h"

struct band {
    uint64_t low;
    uint64_t middle;
    uint64_t high;
};

/* Reads "KEY.low", "KEY" and "KEY.high". */
static struct band band_of(const struct mt_engine *engine, const char *key)
{
    char bound[80];
    struct band band;
    band.middle = mt_engine_number(engine, key, 0);
    snprintf(bound, sizeof bound, "%s.low", key);
    band.low = mt_engine_number(engine, bound, band.middle);
    snprintf(bound, sizeof bound, "%s.high", key);
    band.high = mt_engine_number(engine, bound, band.middle);
    return band;
}

static const struct mt_residue *learnt(const struct mt_predict_settings *s, const char *place_kind,
                                       enum mt_category category)
{
    for (size_t i = 0; i < s->n_residues; i++)
        if (s->residues[i].n && s->residues[i].category == category &&
            !strcmp(s->residues[i].place_kind, place_kind))
            return &s->residues[i];
    return NULL;
}

static uint64_t not_negative(int64_t bytes)
{
    return bytes > 0 ? (uint64_t)bytes : 0;
}

static const char *name_of(enum mt_category category)
{
    switch (category) {
    case MT_CATEGORY_CONTEXT:
        return "driver context and code";
    case MT_CATEGORY_CACHED:
        return "held free by the allocator";
    case MT_CATEGORY_WORKSPACE:
        return "workspace of libraries";
    default:
        return "program and its heap";
    }
}

/* A few runs say little of how far others lie: the fewer, the wider the band. */
static void write_one(const struct mt_residue *residue, int place, struct mt_sheet *sheet)
{
    int64_t margin = residue->mean_bytes / 4 / (int64_t)residue->n;
    struct mt_sheet_term term = {.place = place,
                                 .category = residue->category,
                                 .name = name_of(residue->category),
                                 .rule = "learnt",
                                 .bytes = not_negative(residue->mean_bytes),
                                 .low_bytes = not_negative(residue->low_bytes - margin),
                                 .high_bytes = not_negative(residue->high_bytes + margin),
                                 .provenance = MT_PROVENANCE_CALIBRATED};
    mt_sheet_add(sheet, &term, "mean of %" PRIu64 " runs on this machine", residue->n);
}

/* All that was learnt of a kind of place. Only what rules cannot know: a residue of weights, cache
 * or activations is not taken, whoever hands it in. */
static void write_learnt(const struct mt_predict_settings *s, const char *place_kind, int place,
                         struct mt_sheet *sheet)
{
    static const enum mt_category categories[] = {MT_CATEGORY_CONTEXT, MT_CATEGORY_RUNTIME,
                                                  MT_CATEGORY_CACHED, MT_CATEGORY_WORKSPACE};
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++) {
        const struct mt_residue *residue = learnt(s, place_kind, categories[i]);
        if (residue)
            write_one(residue, place, sheet);
    }
}

static uint64_t less(uint64_t bytes, uint64_t counted)
{
    return bytes > counted ? bytes - counted : 0;
}

/* What the engine itself says of the same memory is a part of the band. */
static void write_band(const struct mt_engine *engine, const char *key, enum mt_category category,
                       int place, const char *name, struct mt_sheet *sheet)
{
    struct band band = band_of(engine, key);
    uint64_t counted = mt_sheet_sum(sheet, place, category);
    struct mt_sheet_term term = {.place = place,
                                 .category = category,
                                 .name = name,
                                 .rule = key,
                                 .bytes = less(band.middle, counted),
                                 .low_bytes = less(band.low, counted),
                                 .high_bytes = less(band.high, counted),
                                 .provenance = MT_PROVENANCE_ASSUMED};
    if (counted)
        mt_sheet_add(sheet, &term,
                     "between %" PRIu64 " and %" PRIu64 " B, less the %" PRIu64
                     " B that are known of it",
                     band.low, band.high, counted);
    else
        mt_sheet_add(sheet, &term, "between %" PRIu64 " and %" PRIu64 " B", band.low, band.high);
}

static int has_layer(const struct mt_llama_plan *plan, int device)
{
    for (size_t i = 0; i <= plan->n_layers; i++)
        if (plan->device_of[i] == device)
            return 1;
    return 0;
}

static const char *kind_of(const struct mt_predict_settings *s)
{
    return s->device_kind ? s->device_kind : "cuda";
}

/* The context of a device; with what kernels take, where the engine has work for it. */
static void find_driver(const struct mt_engine *engine, const struct mt_predict_settings *s,
                        size_t device, int is_used, struct mt_driver *driver)
{
    mt_driver_of(engine, s, device, is_used ? "kernels.cuda" : NULL, driver);
}

static void key_of_host(const struct mt_predict_settings *s, char key[64])
{
    static const char *const programs[] = {[MT_PROGRAM_SERVER] = "server",
                                           [MT_PROGRAM_BENCH] = "bench",
                                           [MT_PROGRAM_FIT_PARAMS] = "bench",
                                           [MT_PROGRAM_NODE] = "node"};
    snprintf(key, 64, "runtime.%s%s", programs[s->program],
             s->n_devices && !strcmp(kind_of(s), "cuda") ? ".cuda" : "");
}

/* A given context has no band. */
static void write_known(const struct mt_predict_settings *s, int device, struct mt_sheet *sheet)
{
    uint64_t bytes = less(s->context_bytes, mt_sheet_sum(sheet, device, MT_CATEGORY_CONTEXT));
    struct mt_sheet_term term = {.place = device,
                                 .category = MT_CATEGORY_CONTEXT,
                                 .name = "driver context and code, as given",
                                 .rule = "given",
                                 .bytes = bytes,
                                 .low_bytes = bytes,
                                 .high_bytes = bytes,
                                 .provenance = MT_PROVENANCE_ASSUMED};
    mt_sheet_add(sheet, &term, "%" PRIu64 " B are given as taken", s->context_bytes);
}

/* What the engine itself says of the same memory is a part of it. */
static void write_driver(const struct mt_predict_input *in, int device, int is_used,
                         struct mt_sheet *sheet)
{
    struct mt_driver driver;
    uint64_t counted = mt_sheet_sum(sheet, device, MT_CATEGORY_CONTEXT);
    find_driver(in->engine, in->settings, (size_t)device, is_used, &driver);
    struct mt_sheet_term term = {.place = device,
                                 .category = MT_CATEGORY_CONTEXT,
                                 .name = is_used ? "driver context and code" : "driver context",
                                 .rule = MT_DRIVER_RULE,
                                 .bytes = less(driver.band.bytes, counted),
                                 .low_bytes = less(driver.band.low_bytes, counted),
                                 .high_bytes = less(driver.band.high_bytes, counted),
                                 .provenance = driver.provenance,
                                 .source = MT_DRIVER_SOURCE};
    if (counted)
        mt_sheet_add(sheet, &term, "%s, less the %" PRIu64 " B that are known of it",
                     driver.formula, counted);
    else
        mt_sheet_add(sheet, &term, "%s", driver.formula);
}

static void write_device(const struct mt_predict_input *in, int device, int is_used,
                         struct mt_sheet *sheet)
{
    char key[64];
    if (in->settings->context_bytes) {
        write_known(in->settings, device, sheet);
        return;
    }
    write_learnt(in->settings, "device", device, sheet);
    if (learnt(in->settings, "device", MT_CATEGORY_CONTEXT))
        return;
    if (!strcmp(kind_of(in->settings), "cuda")) {
        write_driver(in, device, is_used, sheet);
        return;
    }
    snprintf(key, sizeof key, "context.%.24s", kind_of(in->settings));
    write_band(in->engine, key, MT_CATEGORY_CONTEXT, device, "driver context and code", sheet);
}

static void write_host(const struct mt_predict_input *in, struct mt_sheet *sheet)
{
    char key[64];
    write_learnt(in->settings, "host", MT_HOST_PLACE, sheet);
    if (learnt(in->settings, "host", MT_CATEGORY_RUNTIME))
        return;
    key_of_host(in->settings, key);
    write_band(in->engine, key, MT_CATEGORY_RUNTIME, MT_HOST_PLACE, "program and its heap", sheet);
}

static int keeps_less_than_all(const struct mt_model_description *d)
{
    for (uint64_t i = 0; i < d->n_layers; i++)
        if (d->layers[i].recurrence != MT_RECURRENCE_NONE || d->layers[i].window)
            return 1;
    return 0;
}

/* What a server comes to hold while it answers. */
static void write_notes(const struct mt_llama_plan *plan, struct mt_sheet *sheet)
{
    const struct mt_predict_input *in = plan->in;
    uint64_t prompts = mt_engine_number(in->engine, "prompt_cache", 0);
    uint64_t checkpoints = mt_engine_number(in->engine, "checkpoints", 0);
    if (in->settings->program != MT_PROGRAM_SERVER)
        return;
    if (prompts)
        mt_sheet_note(sheet,
                      "The server keeps answered prompts, up to %" PRIu64
                      " MiB on the host (-cram); memtally does not count them.",
                      prompts >> 20);
    if (checkpoints && keeps_less_than_all(in->d))
        mt_sheet_note(sheet,
                      "For each slot the server keeps up to %" PRIu64
                      " copies of its windowed cache and recurrent state on the host (-ctxcp); "
                      "memtally does not count them.",
                      checkpoints);
}

int mt_llama_residue(const struct mt_llama_plan *plan, struct mt_sheet *sheet,
                     struct mt_error *error)
{
    (void)error;
    for (size_t i = 0; i < plan->n_devices; i++)
        write_device(plan->in, (int)i, has_layer(plan, (int)i), sheet);
    write_host(plan->in, sheet);
    write_notes(plan, sheet);
    return 0;
}

void mt_llama_residue_alone(const struct mt_predict_input *in, struct mt_sheet *sheet)
{
    /* A program that was refused memory had the room beside a context that is in use. */
    for (size_t i = 0; i < in->settings->n_devices; i++)
        write_device(in, (int)i, mt_sheet_is_refused(sheet) || mt_sheet_has_place(sheet, (int)i),
                     sheet);
    write_host(in, sheet);
}

/* What a process is expected to take of a device, or of the host where that is -1. */
static struct band expected(const struct mt_engine *engine,
                            const struct mt_predict_settings *settings, long device)
{
    struct mt_driver driver;
    char key[64];
    if (device >= 0 && settings->context_bytes) {
        uint64_t bytes = settings->context_bytes;
        return (struct band){bytes, bytes, bytes};
    }
    if (device >= 0 && !strcmp(kind_of(settings), "cuda")) {
        find_driver(engine, settings, (size_t)device, 1, &driver);
        return (struct band){driver.band.low_bytes, driver.band.bytes, driver.band.high_bytes};
    }
    if (device >= 0)
        snprintf(key, sizeof key, "context.%.24s", kind_of(settings));
    else
        key_of_host(settings, key);
    return band_of(engine, key);
}

int mt_residue_expected(const struct mt_predict_settings *settings, const char *place,
                        struct mt_residue *residue, struct mt_error *error)
{
    const char *number = strchr(place, ':');
    int is_device = strcmp(place, "host") != 0;
    const char *place_kind = is_device ? "device" : "host";
    enum mt_category category = is_device ? MT_CATEGORY_CONTEXT : MT_CATEGORY_RUNTIME;
    const struct mt_residue *known = learnt(settings, place_kind, category);
    struct mt_engine engine;
    int result = mt_engine_find(settings->engine, &engine, error);
    if (result < 0)
        return result;
    long device = !is_device ? -1 : number ? strtol(number + 1, NULL, 10) : 0;
    struct band band = expected(&engine, settings, device);
    if (known && !(is_device && settings->context_bytes))
        *residue = *known;
    else
        *residue = (struct mt_residue){.place_kind = place_kind,
                                       .category = category,
                                       .low_bytes = (int64_t)band.low,
                                       .mean_bytes = (int64_t)band.middle,
                                       .high_bytes = (int64_t)band.high};
    return 0;
}
