/* SPDX-License-Identifier: MIT */
/* What grew from one moment of a recording to another: its tallies and its lists of stacks, the
 * earlier ones taken from the later ones. */
#include <memtally/growth.h>
#include <memtally/recording.h>
#include <memtally/tally.h>
#include <memtally/units.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tally/image.h"
#include "tally/stack_list.h"

/* The public struct comes first: mt_recording_growth_destroy() is handed its address. */
struct owned_growth {
    struct mt_recording_growth growth;
    struct mt_tally *before;
    struct mt_tally *after; /* has the names of the places */
    struct mt_grown_row *rows;
    struct mt_stack_list *stacks;
};

void mt_recording_growth_destroy(struct mt_recording_growth *growth)
{
    struct owned_growth *owned = (struct owned_growth *)growth;
    if (!owned)
        return;
    mt_tally_destroy(owned->before);
    mt_tally_destroy(owned->after);
    mt_stack_list_destroy(owned->stacks);
    free(owned->rows);
    free(owned);
}

/* ---- categories ---- */

static uint64_t bytes_of_row(const struct mt_tally_row *row)
{
    uint64_t bytes = row->resident_bytes == MT_UNKNOWN ? row->allocated_bytes : row->resident_bytes;
    return bytes == MT_UNKNOWN ? 0 : bytes;
}

static uint64_t bytes_before(const struct mt_tally *tally, const char *place,
                             enum mt_category category)
{
    for (size_t p = 0; p < tally->n_places; p++) {
        const struct mt_tally_place *found = &tally->places[p];
        if (strcmp(found->place, place) != 0)
            continue;
        for (size_t r = 0; r < found->n_rows; r++)
            if (found->rows[r].category == category)
                return bytes_of_row(&found->rows[r]);
        if (category == MT_CATEGORY_NONE && found->unattributed_bytes != MT_UNKNOWN)
            return found->unattributed_bytes;
    }
    return 0;
}

static void add_row(struct owned_growth *owned, const char *place, enum mt_category category,
                    uint64_t after_bytes)
{
    uint64_t before_bytes = bytes_before(owned->before, place, category);
    if (after_bytes > before_bytes)
        owned->rows[owned->growth.n_rows++] =
            (struct mt_grown_row){place, category, before_bytes, after_bytes};
}

static int by_growth(const void *a, const void *b)
{
    const struct mt_grown_row *x = a;
    const struct mt_grown_row *y = b;
    uint64_t left = x->after_bytes - x->before_bytes;
    uint64_t right = y->after_bytes - y->before_bytes;
    return (left < right) - (left > right);
}

static int find_rows(struct owned_growth *owned)
{
    const struct mt_tally *after = owned->after;
    size_t most = 0;
    for (size_t p = 0; p < after->n_places; p++)
        most += after->places[p].n_rows + 1;
    owned->rows = calloc(most + 1, sizeof *owned->rows);
    if (!owned->rows)
        return MT_ENOMEM;
    for (size_t p = 0; p < after->n_places; p++) {
        const struct mt_tally_place *place = &after->places[p];
        for (size_t r = 0; r < place->n_rows; r++)
            add_row(owned, place->place, place->rows[r].category, bytes_of_row(&place->rows[r]));
        if (place->unattributed_bytes != MT_UNKNOWN)
            add_row(owned, place->place, MT_CATEGORY_NONE, place->unattributed_bytes);
    }
    qsort(owned->rows, owned->growth.n_rows, sizeof *owned->rows, by_growth);
    owned->growth.rows = owned->rows;
    return 0;
}

/* ---- call stacks ---- */

static int by_stack(const void *a, const void *b)
{
    return mt_stack_compare(*(const struct mt_stack_entry *const *)a,
                            *(const struct mt_stack_entry *const *)b);
}

/* Pointers to the entries of a list in the order of their stacks; NULL where memory ran out. */
static const struct mt_stack_entry **sorted(const struct mt_stack_list *list)
{
    const struct mt_stack_entry **entries = calloc(list->n_entries + 1, sizeof *entries);
    for (size_t i = 0; entries && i < list->n_entries; i++)
        entries[i] = &list->entries[i];
    if (entries)
        qsort(entries, list->n_entries, sizeof *entries, by_stack);
    return entries;
}

static int add_grown(struct mt_stack_list *grown, const struct mt_stack_entry *after,
                     const struct mt_stack_entry *before)
{
    struct mt_stack_entry more = *after;
    if (before && before->bytes >= after->bytes)
        return 0;
    if (before) {
        more.bytes -= before->bytes;
        more.count = after->count > before->count ? after->count - before->count : 0;
    }
    return more.bytes ? mt_stack_list_add(grown, &more) : 0;
}

static int subtract(const struct mt_stack_list *before, const struct mt_stack_list *after,
                    struct mt_stack_list *grown)
{
    const struct mt_stack_entry **first = sorted(before);
    const struct mt_stack_entry **second = sorted(after);
    int result = first && second ? 0 : MT_ENOMEM;
    for (size_t i = 0, at = 0; i < after->n_entries && result == 0; i++) {
        int order = 1;
        while (at < before->n_entries && (order = mt_stack_compare(first[at], second[i])) < 0)
            at++;
        int is_there = at < before->n_entries && order == 0;
        result = add_grown(grown, second[i], is_there ? first[at] : NULL);
    }
    free(first);
    free(second);
    return result;
}

static int find_stacks(struct owned_growth *owned, const struct mt_recording *recording,
                       const struct mt_moment moments[2], size_t limit, struct mt_error *error)
{
    struct mt_stack_list *lists[2] = {NULL, NULL};
    int result = 0;
    for (int i = 0; i < 2 && result == 0; i++)
        result = mt_recording_stacks(recording, &moments[i], 0, &lists[i], error);
    if (result == 0) {
        owned->stacks = mt_stack_list_create();
        result = owned->stacks ? subtract(lists[0], lists[1], owned->stacks) : MT_ENOMEM;
        if (result < 0)
            mt_fail(error, result, MT_NO_OFFSET, "no memory to say what grew");
    }
    if (result == 0) {
        owned->stacks->sampled_interval_bytes = lists[1]->sampled_interval_bytes;
        mt_stack_list_finish(owned->stacks, limit);
        owned->growth.stacks = owned->stacks;
    }
    for (int i = 0; i < 2; i++)
        mt_stack_list_destroy(lists[i]);
    return result;
}

/* ---- both ---- */

/* From when on and until when a program was there, in nanoseconds after the recording's start. */
static int known_span(const struct mt_recording *recording, uint64_t *from_ns, uint64_t *until_ns,
                      struct mt_error *error)
{
    struct mt_timeline_point *points;
    size_t n;
    int is_known = 0;
    int result = mt_recording_timeline(recording, &points, &n, error);
    for (size_t i = 0; result == 0 && i < n; i++) {
        if (!points[i].resident_bytes ||
            points[i].time_ns > recording->end_ns - recording->start_ns)
            continue;
        *from_ns = is_known ? *from_ns : points[i].time_ns;
        *until_ns = points[i].time_ns;
        is_known = 1;
    }
    if (result == 0)
        mt_timeline_destroy(points);
    return result || is_known
               ? result
               : mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET, "nothing was recorded yet");
}

static int find(struct owned_growth *owned, const struct mt_recording *recording, size_t limit,
                struct mt_error *error)
{
    const struct mt_moment moments[2] = {
        {.kind = MT_MOMENT_TIME, .time_ns = owned->growth.from_ns},
        {.kind = MT_MOMENT_TIME, .time_ns = owned->growth.until_ns}};
    int result = mt_recording_tally(recording, &moments[0], &owned->before, error);
    if (result == 0)
        result = mt_recording_tally(recording, &moments[1], &owned->after, error);
    if (result == 0 && (result = find_rows(owned)) < 0)
        mt_fail(error, result, MT_NO_OFFSET, "no memory to say what grew");
    return result ? result : find_stacks(owned, recording, moments, limit, error);
}

int mt_recording_grown(const struct mt_recording *recording, uint64_t span_ns, uint64_t until_ns,
                       size_t limit, struct mt_recording_growth **growth, struct mt_error *error)
{
    uint64_t first_ns = 0;
    uint64_t last_ns = 0;
    int result = known_span(recording, &first_ns, &last_ns, error);
    if (result < 0)
        return result;
    struct owned_growth *owned = calloc(1, sizeof *owned);
    if (!owned)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory to say what grew");
    until_ns = until_ns < last_ns ? until_ns : last_ns;
    until_ns = until_ns > first_ns ? until_ns : first_ns;
    owned->growth.until_ns = until_ns;
    owned->growth.from_ns = until_ns - first_ns > span_ns ? until_ns - span_ns : first_ns;
    result = find(owned, recording, limit, error);
    if (result < 0)
        mt_recording_growth_destroy(&owned->growth);
    else
        *growth = &owned->growth;
    return result;
}
