/* SPDX-License-Identifier: MIT */
/* How memory did not suffice: by what was refused when, or by the engine's own words. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/tally.h>

#include "cuda_suggest.h"
#include "drive/sentences.h"

#define GIB 1073741824.0

/* A number in GiB right behind the words of a key, in the last place where they stand. Returns 0
 * where there is none. */
static int gib_after(const char *said, const char *key, double *gib)
{
    int found = 0;
    size_t length;
    for (const char *at = said; (at = mt_drive_words_find(at, key, &length)) != NULL; at++) {
        char *end = NULL;
        double number = strtod(at + length, &end);
        if (end == at + length)
            continue;
        *gib = number;
        found = 1;
    }
    return found;
}

/* The number before the words of a key: "(16.00 GiB KV cache is needed". */
static int gib_before(const char *said, const char *key, double *gib)
{
    size_t length;
    const char *at = mt_drive_words_find(said, key, &length);
    while (at && at > said && at[-1] == ' ')
        at--;
    const char *from = at;
    while (from && from > said && strchr("0123456789.", from[-1]))
        from--;
    if (!at || from == at)
        return 0;
    *gib = strtod(from, NULL);
    return 1;
}

static uint64_t bytes_of(double gib)
{
    return gib > 0 && gib < 1e6 ? (uint64_t)(gib * GIB) : 0;
}

/* "(21.50/23.60 GiB)": the part that is free. */
static double free_part(const char *said)
{
    size_t length;
    const char *at = mt_drive_words_find(said, "says.free", &length);
    const char *open = at ? strchr(at, '(') : NULL;
    char *end = NULL;
    double is_free = open ? strtod(open + 1, &end) : 0;
    double whole = end && *end == '/' ? strtod(end + 1, NULL) : 0;
    return is_free > 0 && whole >= is_free ? is_free / whole : 0;
}

/* The number at `text`, 0 where there is none. */
static uint64_t tokens_at(const char *text)
{
    long long number = text ? strtoll(text, NULL, 10) : 0;
    return number > 0 ? (uint64_t)number : 0;
}

static void read_small_cache(const char *said, const struct mt_drive_sentence *sentence,
                             struct mt_advise_shortage *shortage)
{
    double needed = 0;
    double there = 0;
    size_t length;
    const char *asked = mt_drive_words_find(said, "says.asked", &length);
    const char *fits = *sentence->number ? strstr(said, sentence->number) : NULL;
    shortage->kind = MT_ADVISE_SHORT_CACHE;
    shortage->asked_tokens = tokens_at(asked ? asked + length : NULL);
    shortage->fits_tokens = tokens_at(fits ? fits + strlen(sentence->number) : NULL);
    if (!gib_before(said, "says.wanted", &needed) || !gib_after(said, "says.there", &there))
        return;
    shortage->cache_bytes = bytes_of(needed);
    shortage->missing_bytes = bytes_of(needed - there);
}

void mt_advise_shortage_from_words(const char *said, struct mt_advise_shortage *shortage)
{
    struct mt_drive_sentence sentence;
    double there = 0;
    if (!mt_drive_sentence_find(said, 0, &sentence))
        return;
    if (strcmp(sentence.what, "cache") == 0) {
        read_small_cache(said, &sentence, shortage);
    } else if (strcmp(sentence.what, "no_cache") == 0) {
        shortage->kind = MT_ADVISE_SHORT_NO_CACHE;
        if (gib_after(said, "says.left", &there))
            shortage->missing_bytes = bytes_of(-there);
    } else if (strcmp(sentence.what, "share") == 0) {
        shortage->kind = MT_ADVISE_SHORT_SHARE;
        shortage->free_share = free_part(said);
    }
}

/* What was held of a category at a place; 0 where it was none. */
static uint64_t held_of(const struct mt_tally *tally, const char *place, enum mt_category category)
{
    for (size_t i = 0; tally && i < tally->n_places; i++)
        for (size_t k = 0; !strcmp(tally->places[i].place, place) && k < tally->places[i].n_rows;
             k++)
            if (tally->places[i].rows[k].category == category)
                return tally->places[i].rows[k].allocated_bytes;
    return 0;
}

/* What was refused, by the engine's phase and what was there already. */
static enum mt_advise_shortage_kind kind_of(const struct mt_drive_result *result)
{
    const char *place = result->refusal->place;
    if (result->phase_category == MT_CATEGORY_GRAPHS)
        return MT_ADVISE_SHORT_GRAPHS;
    if (held_of(result->held, place, MT_CATEGORY_KV_CACHE) ||
        result->phase_category == MT_CATEGORY_KV_CACHE)
        return MT_ADVISE_SHORT_LATE;
    if (result->phase_category == MT_CATEGORY_WEIGHTS)
        return MT_ADVISE_SHORT_WEIGHTS;
    return MT_ADVISE_SHORT_COMPUTE;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What the engine worked out of itself, of the process that has most. */
static void read_figures(const struct mt_drive_result *result, struct mt_advise_shortage *shortage)
{
    struct mt_rehearsal_phase phase;
    struct mt_rehearsal_figure figure;
    mt_rehearsal_refresh(result->rehearsal);
    for (size_t i = 0; mt_rehearsal_phase_at(result->rehearsal, i, &phase) == 0; i++)
        if (mt_drive_phase_is(phase.name, "phase.graphs") && phase.peak_bytes > phase.begin_bytes)
            shortage->graph_bytes =
                larger(shortage->graph_bytes, phase.peak_bytes - phase.begin_bytes);
    for (size_t i = 0; mt_rehearsal_figure_at(result->rehearsal, i, &figure) == 0; i++)
        if (!strcmp(figure.name, "activation peak"))
            shortage->activation_bytes = larger(
                shortage->activation_bytes,
                !strcmp(figure.unit, "GiB") ? bytes_of(figure.value) : (uint64_t)figure.value);
}

void mt_advise_shortage_of(const struct mt_drive_result *result,
                           struct mt_advise_shortage *shortage)
{
    *shortage = (struct mt_advise_shortage){.kind = MT_ADVISE_NOT_SHORT};
    if (result->lacks_memory)
        mt_advise_shortage_from_words(result->said, shortage);
    if (shortage->kind == MT_ADVISE_NOT_SHORT && result->refusal) {
        shortage->kind = kind_of(result);
        shortage->missing_bytes = result->refusal->missing_bytes;
    }
    if (result->rehearsal)
        read_figures(result, shortage);
}
