/* SPDX-License-Identifier: MIT */
/* The verdict: an estimate held against capacities. Knows bands and capacities, not how an engine
 * came to its figures. */
#include "predict/fit.h"

#include <inttypes.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_BYTES 160

/* One place: its band, how much of it is mapped weights, and what it may take. */
struct fit {
    const char *place;
    uint64_t low_bytes;
    uint64_t bytes;
    uint64_t high_bytes;
    uint64_t mapped_bytes;
    uint64_t mapped_low_bytes;
    uint64_t capacity_bytes;
    uint64_t used_bytes;
    uint64_t room_bytes;
    const struct mt_device_known *card; /* NULL of the host */
    enum mt_verdict verdict;
};

int mt_fit_is_mapped(const struct mt_tally_detail *detail)
{
    static const char word[] = "mapped";
    size_t length = detail->rule ? strlen(detail->rule) : 0;
    size_t tail = sizeof word - 1;
    return length > tail && !strcmp(detail->rule + length - tail, word) &&
           strchr("./_", detail->rule[length - tail - 1]);
}

static int is_host(const struct mt_tally_place *place)
{
    return !strcmp(place->place, "host");
}

static size_t device_of(const struct mt_tally_place *place)
{
    const char *colon = strchr(place->place, ':');
    return colon ? strtoul(colon + 1, NULL, 10) : 0;
}

static uint64_t used_of(const struct mt_tally_place *place,
                        const struct mt_predict_settings *settings)
{
    size_t device = device_of(place);
    if (is_host(place))
        return settings->host_used_bytes;
    return settings->device_used_bytes && device < settings->n_devices
               ? settings->device_used_bytes[device]
               : 0;
}

static const struct mt_device_known *card_of(const struct mt_tally_place *place,
                                             const struct mt_predict_settings *settings)
{
    size_t device = device_of(place);
    return is_host(place) || !settings->device_known || device >= settings->n_devices
               ? NULL
               : &settings->device_known[device];
}

static void add_mapped(struct fit *fit, const struct mt_tally_place *place)
{
    const struct mt_tally_row *row = mt_tally_row_of(place, MT_CATEGORY_WEIGHTS);
    for (size_t i = 0; row && i < row->n_details; i++) {
        if (!mt_fit_is_mapped(&row->details[i]))
            continue;
        fit->mapped_bytes += row->details[i].allocated_bytes;
        fit->mapped_low_bytes += row->details[i].low_bytes;
    }
}

static enum mt_verdict verdict_of(const struct fit *fit)
{
    if (fit->high_bytes <= fit->room_bytes)
        return MT_VERDICT_FITS;
    if (fit->low_bytes <= fit->room_bytes)
        return MT_VERDICT_TIGHT;
    if (fit->low_bytes - fit->mapped_low_bytes <= fit->room_bytes)
        return MT_VERDICT_PAGES;
    return MT_VERDICT_CANNOT;
}

static void fit_place(struct fit *fit, const struct mt_tally_place *place,
                      const struct mt_predict_settings *settings)
{
    *fit = (struct fit){.place = place->place,
                        .low_bytes = place->total_low_bytes,
                        .bytes = place->total_allocated_bytes,
                        .high_bytes = place->total_high_bytes,
                        .capacity_bytes = place->capacity_bytes,
                        .used_bytes = used_of(place, settings),
                        .card = card_of(place, settings)};
    if (fit->used_bytes < fit->capacity_bytes)
        fit->room_bytes = fit->capacity_bytes - fit->used_bytes;
    if (is_host(place))
        add_mapped(fit, place);
    fit->verdict = verdict_of(fit);
}

enum mt_verdict mt_fit_pool(const struct mt_estimate_pool *pool, uint64_t context_tokens,
                            enum mt_verdict verdict, char *reason, size_t size)
{
    double low = pool->concurrency * (double)pool->pool_tokens_low;
    if (!pool->present || verdict != MT_VERDICT_FITS || low >= (double)pool->pool_tokens)
        return verdict;
    if (pool->concurrency < 1)
        snprintf(reason, size,
                 "the pool holds %" PRIu64 " tokens, fewer than one sequence of %" PRIu64,
                 pool->pool_tokens, context_tokens);
    else
        snprintf(reason, size,
                 "the pool holds %" PRIu64 " tokens, but may hold as few as %" PRIu64
                 ", fewer than one sequence of %" PRIu64,
                 pool->pool_tokens, pool->pool_tokens_low, context_tokens);
    return MT_VERDICT_TIGHT;
}

int mt_fit_on_devices(const struct mt_tally *tally, const struct mt_predict_settings *settings)
{
    for (size_t i = 0; i < tally->n_places; i++) {
        struct fit fit;
        if (is_host(&tally->places[i]))
            continue;
        fit_place(&fit, &tally->places[i], settings);
        if (fit.verdict != MT_VERDICT_FITS)
            return 0;
    }
    return 1;
}

/* How full a place may become; what has no room at all is fullest. */
static double fullness(const struct fit *fit)
{
    return (double)fit->high_bytes / ((double)fit->room_bytes + 1);
}

/* Whether `a` says more about the whole than `b`. */
static int is_worse(const struct fit *a, const struct fit *b)
{
    if (a->verdict != b->verdict)
        return a->verdict > b->verdict;
    return fullness(a) > fullness(b);
}

static void describe_room(const struct fit *fit, char text[ROOM_BYTES])
{
    char capacity[MT_SIZE_TEXT];
    char used[MT_SIZE_TEXT];
    const char *card = fit->card ? fit->card->gpu : "";
    int n = snprintf(text, ROOM_BYTES, "%s", mt_format_size(fit->capacity_bytes, capacity));
    if (*card)
        n += snprintf(text + n, ROOM_BYTES - (size_t)n, " (%s%.31s)",
                      fit->card->is_by_size ? "taken for " : "", card);
    if (fit->used_bytes)
        snprintf(text + n, ROOM_BYTES - (size_t)n, ", of which others use %s",
                 mt_format_size(fit->used_bytes, used));
}

static void describe(const struct fit *fit, char *reason, size_t size)
{
    char room[ROOM_BYTES];
    char low[MT_SIZE_TEXT];
    char middle[MT_SIZE_TEXT];
    char high[MT_SIZE_TEXT];
    char mapped[MT_SIZE_TEXT];
    describe_room(fit, room);
    mt_format_size(fit->low_bytes, low);
    mt_format_size(fit->bytes, middle);
    mt_format_size(fit->high_bytes, high);
    mt_format_size(fit->mapped_bytes, mapped);
    if (fit->verdict == MT_VERDICT_FITS)
        snprintf(reason, size, "%s takes %s, at most %s, of %s", fit->place, middle, high, room);
    else if (fit->verdict == MT_VERDICT_PAGES)
        snprintf(reason, size,
                 "%s takes %s of %s; %s of it are mapped weights, which do not all stay and are "
                 "read again and again",
                 fit->place, middle, room, mapped);
    else if (fit->verdict == MT_VERDICT_CANNOT)
        snprintf(reason, size, "%s takes at least %s; it has %s", fit->place, low, room);
    else if (fit->bytes <= fit->room_bytes)
        snprintf(reason, size, "%s takes %s of %s, but may take %s", fit->place, middle, room,
                 high);
    else
        snprintf(reason, size, "%s takes %s, perhaps as little as %s; it has %s", fit->place,
                 middle, low, room);
}

enum mt_verdict mt_fit_verdict(const struct mt_tally *tally,
                               const struct mt_predict_settings *settings, const char *spills,
                               const char *cannot, char *reason, size_t size)
{
    struct fit worst = {.verdict = MT_VERDICT_UNKNOWN};
    reason[0] = '\0';
    for (size_t i = 0; i < tally->n_places; i++) {
        struct fit fit;
        if (tally->places[i].capacity_bytes == MT_UNKNOWN ||
            tally->places[i].total_allocated_bytes == MT_UNKNOWN)
            continue;
        fit_place(&fit, &tally->places[i], settings);
        if (is_worse(&fit, &worst))
            worst = fit;
    }
    if (cannot) {
        snprintf(reason, size, "%s", cannot);
        return MT_VERDICT_CANNOT;
    }
    if (spills && worst.verdict < MT_VERDICT_SPILLS) {
        snprintf(reason, size, "%s", spills);
        return MT_VERDICT_SPILLS;
    }
    if (worst.verdict != MT_VERDICT_UNKNOWN)
        describe(&worst, reason, size);
    return worst.verdict;
}
