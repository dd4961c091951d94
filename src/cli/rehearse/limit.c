/* SPDX-License-Identifier: MIT */
/* Bounds of devices that have more. */
#include "cli/rehearse/limit.h"

#include <memtally/error.h>
#include <memtally/tally.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drive/engines.h"

/* The most that the limit, or the baseline, lets a run take of a place; MT_UNKNOWN: anything. */
static uint64_t by_limit(const struct rehearse_bounds *bounds)
{
    return bounds->limit_bytes ? bounds->limit_bytes : MT_UNKNOWN;
}

static uint64_t by_baseline(const struct rehearse_bounds *bounds, const char *place)
{
    return bounds->baseline.peaks
               ? mt_baseline_most_bytes(&bounds->baseline, place, bounds->tolerance_ratio)
               : MT_UNKNOWN;
}

uint64_t rehearse_bounds_most_bytes(const struct rehearse_bounds *bounds, const char *place)
{
    uint64_t limit = by_limit(bounds);
    uint64_t kept = by_baseline(bounds, place);
    return limit < kept ? limit : kept;
}

static void note_beyond(const struct mt_tally_place *place, const char *bound, uint64_t most,
                        struct rehearse_excess *excess)
{
    if (place->total_allocated_bytes > most)
        excess->list[excess->n++] =
            (struct mt_rehearsed_excess){place->place, bound, place->total_allocated_bytes, most};
}

/* Fills the list, and returns the device that is beyond its bounds and holds most, or NULL. */
static const struct mt_tally_place *find_beyond(const struct mt_tally *tally,
                                                const struct rehearse_bounds *bounds,
                                                struct rehearse_excess *excess)
{
    const struct mt_tally_place *fullest = NULL;
    for (size_t i = 0; i < tally->n_places; i++) {
        const struct mt_tally_place *place = &tally->places[i];
        size_t before = excess->n;
        if (!mt_baseline_has(place))
            continue;
        note_beyond(place, "limit", by_limit(bounds), excess);
        note_beyond(place, "baseline", by_baseline(bounds, place->place), excess);
        if (excess->n > before &&
            (!fullest || place->total_allocated_bytes > fullest->total_allocated_bytes))
            fullest = place;
    }
    return fullest;
}

static void tell_rows(const struct mt_tally_place *place, struct mt_strbuf *out)
{
    char size[MT_SIZE_TEXT];
    const char *before = " holds ";
    for (size_t i = 0; i < place->n_rows; i++) {
        const struct mt_tally_row *row = &place->rows[i];
        if (row->allocated_bytes == MT_UNKNOWN || !row->allocated_bytes)
            continue;
        mt_strbuf_printf(out, "%s%s %s", before, mt_category_name(row->category),
                         mt_format_size(row->allocated_bytes, size));
        before = ", ";
    }
    mt_strbuf_puts(out, ".");
}

static void tell_run(const struct mt_drive_result *result, const struct rehearse_bounds *bounds,
                     struct mt_strbuf *out)
{
    char most[MT_SIZE_TEXT], asked[MT_SIZE_TEXT];
    if (result->is_unseen || (!mt_drive_ran(result) && !result->refusal))
        return;
    if (!result->refusal) {
        mt_strbuf_puts(out, " On devices that have no more it runs as well.");
        return;
    }
    const char *stack = mt_rehearsal_stack_of(result->rehearsal, result->refusal);
    mt_strbuf_printf(
        out, " It passes %s on %s where %s are asked for",
        mt_format_size(rehearse_bounds_most_bytes(bounds, result->refusal->place), most),
        result->refusal->place, mt_format_size(result->refusal->bytes, asked));
    if (stack && *stack)
        mt_strbuf_printf(out, " by %s", stack);
    mt_strbuf_puts(out, ".");
}

/* On devices of which all but what is allowed is taken: they say of themselves what they are. */
static void run_within(const struct mt_drive_job *job, const struct rehearse_bounds *bounds,
                       struct mt_strbuf *out)
{
    struct mt_drive_job held = *job;
    struct mt_error error;
    struct mt_rehearsal_device *devices = calloc(job->n_devices, sizeof *devices);
    struct mt_drive_result *result = calloc(1, sizeof *result);
    for (size_t i = 0; devices && i < job->n_devices; i++) {
        char place[32];
        snprintf(place, sizeof place, "gpu:%zu", i);
        uint64_t most = rehearse_bounds_most_bytes(bounds, place);
        devices[i] = job->devices[i];
        if (most && devices[i].bytes - devices[i].reserved_bytes > most)
            devices[i].reserved_bytes = devices[i].bytes - most;
    }
    held.devices = devices;
    held.folder = NULL;
    held.hides_output = 1;
    held.label = "looking for what passes the limit";
    if (devices && result && mt_drive_run(&held, result, &error) == 0) {
        tell_run(result, bounds, out);
        mt_drive_result_finish(result);
    }
    free(result);
    free(devices);
}

static void tell_limit(const struct mt_tally_place *place, uint64_t limit_bytes,
                       struct mt_strbuf *out)
{
    char held[MT_SIZE_TEXT], more[MT_SIZE_TEXT], limit[MT_SIZE_TEXT];
    mt_strbuf_printf(out, "%s takes %s, %s more than the limit of %s", place->place,
                     mt_format_size(place->total_allocated_bytes, held),
                     mt_format_size(place->total_allocated_bytes - limit_bytes, more),
                     mt_format_size(limit_bytes, limit));
}

int rehearse_bounds_tell(const struct mt_drive_job *job, const struct mt_drive_result *result,
                         const struct mt_tally *tally, const struct rehearse_bounds *bounds,
                         struct rehearse_excess *excess)
{
    excess->list = calloc(2 * tally->n_places + 1, sizeof *excess->list);
    if (!excess->list)
        return MT_ENOMEM;
    const struct mt_tally_place *fullest = find_beyond(tally, bounds, excess);
    if (!fullest)
        return 0;
    uint64_t limit = by_limit(bounds);
    int is_over_limit = fullest->total_allocated_bytes > limit;
    mt_strbuf_puts(&excess->note, fullest->place);
    tell_rows(fullest, &excess->note);
    if (is_over_limit)
        tell_limit(fullest, limit, &excess->reason);
    if (fullest->total_allocated_bytes > by_baseline(bounds, fullest->place)) {
        struct mt_strbuf *out = is_over_limit ? &excess->note : &excess->reason;
        mt_strbuf_puts(out, is_over_limit ? " " : "");
        mt_baseline_tell(&bounds->baseline, fullest, out);
        mt_strbuf_puts(out, is_over_limit ? "." : "");
    }
    if (result->is_cuda)
        run_within(job, bounds, &excess->note);
    return mt_strbuf_failed(&excess->reason) || mt_strbuf_failed(&excess->note) ? MT_ENOMEM : 0;
}

void rehearse_excess_finish(struct rehearse_excess *excess)
{
    mt_strbuf_finish(&excess->reason);
    mt_strbuf_finish(&excess->note);
    free(excess->list);
}
