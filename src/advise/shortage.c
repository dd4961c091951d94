/* SPDX-License-Identifier: MIT */
/* How memory did not suffice: by what was refused when, or by the engine's own words. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_suggest.h"

#define GIB 1073741824.0

/* A number in GiB right behind `words`, in the last place where they stand. Returns 0 where there
 * is none. */
static int gib_after(const char *said, const char *words, double *gib)
{
    int found = 0;
    for (const char *at = said; (at = strstr(at, words)) != NULL; at++) {
        char *end = NULL;
        double number = strtod(at + strlen(words), &end);
        if (end == at + strlen(words))
            continue;
        *gib = number;
        found = 1;
    }
    return found;
}

/* The number right before `words`: "(16.00 GiB KV cache is needed". */
static int gib_before(const char *said, const char *words, double *gib)
{
    const char *at = strstr(said, words);
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
    const char *at = strstr(said, "Free memory on device");
    const char *open = at ? strchr(at, '(') : NULL;
    char *end = NULL;
    double is_free = open ? strtod(open + 1, &end) : 0;
    double whole = end && *end == '/' ? strtod(end + 1, NULL) : 0;
    return is_free > 0 && whole >= is_free ? is_free / whole : 0;
}

/* The number behind words that the engine writes before it, 0 where they are not there. */
static uint64_t tokens_after(const char *said, const char *words)
{
    const char *at = strstr(said, words);
    long long number = at ? strtoll(at + strlen(words), NULL, 10) : 0;
    return number > 0 ? (uint64_t)number : 0;
}

static void read_small_cache(const char *said, struct mt_advise_shortage *shortage)
{
    double needed = 0;
    double there = 0;
    shortage->kind = MT_ADVISE_SHORT_CACHE;
    shortage->asked_tokens = tokens_after(said, "max seq len (");
    shortage->fits_tokens = tokens_after(said, "estimated maximum model length is ");
    if (!shortage->fits_tokens)
        shortage->fits_tokens =
            tokens_after(said, "maximum number of tokens that can be stored in KV cache (");
    if (!gib_before(said, " GiB KV cache is needed", &needed) ||
        !gib_after(said, "available KV cache memory (", &there))
        return;
    shortage->cache_bytes = bytes_of(needed);
    shortage->missing_bytes = bytes_of(needed - there);
}

void mt_advise_shortage_from_words(const char *said, struct mt_advise_shortage *shortage)
{
    double there = 0;
    if (strstr(said, "larger than the available KV cache memory") ||
        strstr(said, "maximum number of tokens that can be stored in KV cache")) {
        read_small_cache(said, shortage);
    } else if (strstr(said, "No available memory for the cache blocks") ||
               strstr(said, "Please try to increase --mem-fraction-static")) {
        shortage->kind = MT_ADVISE_SHORT_NO_CACHE;
        if (gib_after(said, "Available KV cache memory: ", &there))
            shortage->missing_bytes = bytes_of(-there);
    } else if (strstr(said, "less than desired GPU memory utilization")) {
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
        if (!strcmp(phase.name, "profile_cudagraph_memory") && phase.peak_bytes > phase.begin_bytes)
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
