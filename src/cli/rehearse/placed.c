/* SPDX-License-Identifier: MIT */
/* From a placement's document to what an engine is started with. */
#include "cli/rehearse/placed.h"

#include <errno.h>
#include <inttypes.h>
#include <memtally/predict.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "drive/engines.h"
#include "drive/json_get.h"

#define VISIBLE "CUDA_VISIBLE_DEVICES="

#define FAIL(error, code, ...) mt_fail(error, code, MT_NO_OFFSET, "rehearse: " __VA_ARGS__)

static int read_document(const char *path, struct rehearse_placed *placed, struct mt_error *error)
{
    json_error_t wrong;
    FILE *file = fopen(path, "rb");
    if (!file)
        return FAIL(error, MT_EIO, "%s: %s", path, strerror(errno));
    placed->document = json_loadf(file, 0, &wrong);
    fclose(file);
    if (!placed->document)
        return FAIL(error, MT_EFORMAT, "%s: line %d: %.100s", path, wrong.line, wrong.text);
    const char *kind = mt_profile_json_text(placed->document, "kind");
    if (!kind || strcmp(kind, "placement"))
        return FAIL(error, MT_EFORMAT,
                    "%s is no placement; 'memtally place --json -o FILE' writes one", path);
    const char *model = mt_profile_json_text(placed->document, "model");
    placed->engine = mt_profile_json_text(placed->document, "engine");
    placed->way = mt_profile_json_text(placed->document, "way");
    placed->context_tokens = mt_profile_json_count(placed->document, "context_tokens");
    placed->memory_share = mt_profile_json_real(placed->document, "memory_share");
    placed->is_of_weights = placed->way && !strcmp(placed->way, "stages");
    const char *flags = mt_profile_json_text(placed->document, "flags");
    if (!model || !placed->engine || !placed->way || !flags || placed->context_tokens == MT_UNKNOWN)
        return FAIL(error, MT_EFORMAT, "%s has no flags for an engine; only the policy 'best' has",
                    path);
    placed->model = strdup(model);
    placed->text = strdup(flags);
    return placed->model && placed->text ? 0 : FAIL(error, MT_ENOMEM, "out of memory");
}

/* Cuts at spaces that no apostrophes enclose, and takes these away. */
static int cut(struct rehearse_placed *placed, struct mt_error *error)
{
    char *to = placed->text;
    int is_quoted = 0;
    int is_within = 0;
    for (const char *from = placed->text;; from++) {
        int ends = !*from || (*from == ' ' && !is_quoted);
        if (!ends && !is_within) {
            if (placed->n_words == REHEARSE_PLACED_WORDS_MAX)
                return FAIL(error, MT_ELIMIT, "the placement has too many flags");
            placed->words[placed->n_words++] = to;
        }
        is_within = !ends;
        if (*from == '\'')
            is_quoted = !is_quoted;
        else if (!ends)
            *to++ = *from;
        if (!*from) {
            *to = '\0';
            return 0;
        }
        if (ends)
            *to++ = '\0';
    }
}

static int add_device(struct rehearse_placed *placed, size_t number, struct mt_error *error)
{
    const json_t *device = json_array_get(json_object_get(placed->document, "devices"), number);
    uint64_t capacity = mt_profile_json_count(device, "capacity_bytes");
    uint64_t expected = mt_profile_json_count(device, "expected_bytes");
    if (placed->is_of_weights)
        expected = mt_profile_json_count(device, "dense_bytes") +
                   mt_profile_json_count(device, "expert_bytes");
    if (capacity == MT_UNKNOWN || expected == MT_UNKNOWN ||
        placed->n_devices == ESTIMATE_DEVICES_MAX)
        return FAIL(error, MT_EFORMAT, "the placement has no device %zu", number);
    size_t at = placed->n_devices++;
    placed->device[at] = number;
    placed->expected_bytes[at] = expected;
    const char *card = mt_profile_json_text(device, "card");
    if (card)
        snprintf(placed->sizes[at], sizeof placed->sizes[at], "%s", card);
    else
        snprintf(placed->sizes[at], sizeof placed->sizes[at], "%" PRIu64 "B", capacity);
    return 0;
}

/* "2,0", up to a space or the end. */
static int take_visible(struct rehearse_placed *placed, const char *list, struct mt_error *error)
{
    for (int result = 0;; list++) {
        char *end;
        unsigned long number = strtoul(list, &end, 10);
        if (end == list)
            return FAIL(error, MT_EFORMAT, "the placement's environment names no device");
        result = add_device(placed, number, error);
        list = end;
        if (result || *list != ',')
            return result;
    }
}

/* A document comes from anybody: only what the engine's table names is set, and never LD_PRELOAD.
 */
static int is_the_engines(const char *name, const char *variable)
{
    char own[MT_DRIVE_ENGINE_TEXT];
    return *variable && strcmp(mt_drive_engine_text(name, "place.layers", own), variable) == 0;
}

/* "VLLM_PP_LAYER_PARTITION=15,17": as many stages as there are numbers. */
static int take_variable(struct rehearse_placed *placed, const char *word, size_t length,
                         struct mt_error *error)
{
    char text[512];
    char *equals;
    if (snprintf(text, sizeof text, "%.*s", (int)length, word) >= (int)sizeof text ||
        !(equals = strchr(text, '=')))
        return FAIL(error, MT_EFORMAT, "the placement's environment cannot be read");
    *equals++ = '\0';
    if (!is_the_engines(placed->engine, text))
        return FAIL(error, MT_EFORMAT,
                    "the placement sets %.64s, which is no variable of %.64s for layers", text,
                    placed->engine);
    placed->stages = 1;
    for (const char *c = equals; *c; c++)
        placed->stages += *c == ',';
    return setenv(text, equals, 1) ? FAIL(error, MT_ENOMEM, "out of memory") : 0;
}

static int take_environment(struct rehearse_placed *placed, struct mt_error *error)
{
    const char *word = mt_profile_json_text(placed->document, "environment");
    int result = 0;
    while (!result && word && *word) {
        size_t length = strcspn(word, " ");
        if (!strncmp(word, VISIBLE, strlen(VISIBLE)))
            result = take_visible(placed, word + strlen(VISIBLE), error);
        else
            result = take_variable(placed, word, length, error);
        word += length + (word[length] == ' ');
    }
    size_t n = json_array_size(json_object_get(placed->document, "devices"));
    for (size_t i = 0, all = !placed->n_devices; !result && all && i < n; i++)
        result = add_device(placed, i, error);
    return result;
}

int rehearse_placed_read(const char *path, struct rehearse_placed *placed, struct mt_error *error)
{
    *placed = (struct rehearse_placed){.document = NULL};
    int result = read_document(path, placed, error);
    const json_t *map = json_object_get(placed->document, "device_map");
    if (!result && map) {
        placed->device_map = json_dumps(map, JSON_COMPACT);
        result = placed->device_map ? 0 : FAIL(error, MT_ENOMEM, "out of memory");
    } else if (!result) {
        result = cut(placed, error);
    }
    return result ? result : take_environment(placed, error);
}

void rehearse_placed_finish(struct rehearse_placed *placed)
{
    json_decref(placed->document);
    free(placed->model);
    free(placed->text);
    free(placed->device_map);
    *placed = (struct rehearse_placed){.document = NULL};
}

void rehearse_placed_tell(const struct rehearse_placed *placed, const struct mt_estimate *estimate,
                          struct mt_strbuf *out)
{
    mt_strbuf_printf(out, "The placement expected%s", placed->is_of_weights ? " weights of" : "");
    for (size_t i = 0; i < placed->n_devices; i++) {
        char place[24], expected[MT_SIZE_TEXT], held[MT_SIZE_TEXT];
        uint64_t bytes = 0;
        snprintf(place, sizeof place, "gpu:%zu", i);
        for (size_t t = 0; t < estimate->n_terms; t++)
            if (!strcmp(estimate->terms[t].place, place) &&
                (!placed->is_of_weights || estimate->terms[t].category == MT_CATEGORY_WEIGHTS))
                bytes += estimate->terms[t].bytes;
        mt_strbuf_printf(out, "%s %s on gpu:%zu (rehearsed %s)", i ? "," : "",
                         mt_format_size(placed->expected_bytes[i], expected), placed->device[i],
                         mt_format_size(bytes, held));
    }
    mt_strbuf_puts(out, ".");
}
