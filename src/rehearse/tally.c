/* SPDX-License-Identifier: MIT */
/* Events into a tally: what was there after one of them, or at the peak of each place. */
#include "tally/owner.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "rehearse/rehearsal.h"

#define NOTES_MAX  64u
#define NOTE_BYTES 320

/* What is being made. */
struct maker {
    struct mt_reader *reader;
    struct mt_owner *owner;
    int counts_plans;              /* nothing was allocated: what was planned is all there is */
    struct mt_span settled;        /* past what the engine tried only */
    const struct mt_noted **there; /* at the place in hand */
    size_t n_there;
    int is_doubtful; /* what the devices in hand compute with: builds differ in it */
};

static int counts(const struct maker *maker, const struct mt_rehearse_event *event)
{
    return maker->counts_plans || !(event->flags & MT_REHEARSE_PLANNED);
}

/* Nothing but a dry run: weights were planned and none were taken. Some caches are taken even so.
 */
static int is_only_planned(const struct mt_reader *reader)
{
    size_t n_planned = 0;
    const struct mt_noted *noted;
    for (size_t i = 0; (noted = mt_reader_at(reader, i)) != NULL; i++) {
        const struct mt_rehearse_event *event = &noted->event;
        if (event->kind != MT_REHEARSE_ALLOC || event->category != MT_CATEGORY_WEIGHTS)
            continue;
        if (!(event->flags & MT_REHEARSE_PLANNED))
            return 0;
        n_planned++;
    }
    return n_planned > 0;
}

/* The event after which most was there at a place. */
static size_t peak_of(const struct maker *maker, const char *place)
{
    const struct mt_noted *noted;
    uint64_t sum = 0;
    uint64_t most = 0;
    size_t peak = maker->settled.first;
    for (size_t i = 0; (noted = mt_reader_at(maker->reader, i)) != NULL; i++) {
        const struct mt_rehearse_event *event = &noted->event;
        if (strcmp(event->place, place) != 0 || !counts(maker, event))
            continue;
        if (event->kind == MT_REHEARSE_ALLOC && __builtin_add_overflow(sum, event->bytes, &sum))
            sum = UINT64_MAX;
        else if (event->kind == MT_REHEARSE_FREE)
            sum -= event->bytes < sum ? event->bytes : sum;
        if (sum > most && i >= maker->settled.first && i <= maker->settled.last) {
            most = sum;
            peak = i;
        }
    }
    return peak;
}

static void gather(struct maker *maker, const char *place, size_t after)
{
    const struct mt_noted *noted;
    maker->n_there = 0;
    for (size_t i = 0; i <= after && (noted = mt_reader_at(maker->reader, i)) != NULL; i++)
        if (noted->event.kind == MT_REHEARSE_ALLOC && noted->freed_at > after &&
            strcmp(noted->event.place, place) == 0 && counts(maker, &noted->event))
            maker->there[maker->n_there++] = noted;
}

/* Buffers whose use the engine does not tell are for computing: outputs, as a rule. */
static enum mt_category category_of(const struct mt_noted *noted)
{
    return noted->event.category ? noted->event.category : MT_CATEGORY_ACTIVATIONS;
}

static int by_kind(const void *a, const void *b)
{
    const struct mt_noted *one = *(const struct mt_noted *const *)a;
    const struct mt_noted *other = *(const struct mt_noted *const *)b;
    if (category_of(one) != category_of(other))
        return category_of(one) < category_of(other) ? -1 : 1;
    int order = strcmp(one->event.name, other->event.name);
    return order ? order : strcmp(one->event.detail, other->event.detail);
}

static int by_bytes(const void *a, const void *b)
{
    const struct mt_tally_detail *one = a;
    const struct mt_tally_detail *other = b;
    if (one->allocated_bytes != other->allocated_bytes)
        return one->allocated_bytes > other->allocated_bytes ? -1 : 1;
    return strcmp(one->name, other->name);
}

static char *name_of(struct maker *maker, const struct mt_rehearse_event *event)
{
    char text[sizeof(struct mt_account_event)];
    snprintf(text, sizeof text, "%s%s%s", event->name, *event->name && *event->detail ? ": " : "",
             event->detail);
    return mt_owner_text(maker->owner, *text ? text : "a buffer");
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) || sum == MT_UNKNOWN ? MT_UNKNOWN - 1 : sum;
}

static enum mt_provenance provenance_of(const struct maker *maker, enum mt_category category)
{
    return maker->is_doubtful && category == MT_CATEGORY_ACTIVATIONS ? MT_PROVENANCE_DERIVED
                                                                     : MT_PROVENANCE_EXACT;
}

/* One detail of the buffers from `first` on that are alike. Returns how many they are, 0 where
 * memory ran out. */
static size_t make_detail(struct maker *maker, size_t first, struct mt_tally_detail *detail)
{
    const struct mt_noted *model = maker->there[first];
    size_t n = 0;
    *detail = (struct mt_tally_detail){.name = name_of(maker, &model->event),
                                       .resident_bytes = MT_UNKNOWN,
                                       .provenance = provenance_of(maker, category_of(model))};
    for (; first + n < maker->n_there && !by_kind(&model, &maker->there[first + n]); n++)
        detail->allocated_bytes =
            plus(detail->allocated_bytes, maker->there[first + n]->event.bytes);
    detail->count = n;
    detail->low_bytes = detail->high_bytes = detail->allocated_bytes;
    return detail->name ? n : 0;
}

/* One row of the buffers from `first` on that are of one category. */
static size_t make_row(struct maker *maker, size_t first, struct mt_tally_row *row)
{
    enum mt_category category = category_of(maker->there[first]);
    size_t n = 0;
    while (first + n < maker->n_there && category_of(maker->there[first + n]) == category)
        n++;
    struct mt_tally_detail *details = mt_owner_alloc(maker->owner, n * sizeof *details);
    *row = (struct mt_tally_row){.category = category,
                                 .resident_bytes = MT_UNKNOWN,
                                 .count = n,
                                 .provenance = provenance_of(maker, category),
                                 .details = details};
    for (size_t i = 0; details && i < n;) {
        struct mt_tally_detail *detail = &details[row->n_details++];
        size_t alike = make_detail(maker, first + i, detail);
        if (!alike)
            return 0;
        row->allocated_bytes = plus(row->allocated_bytes, detail->allocated_bytes);
        i += alike;
    }
    if (!details)
        return 0;
    row->low_bytes = row->high_bytes = row->allocated_bytes;
    qsort(details, row->n_details, sizeof *details, by_bytes);
    return n;
}

static int make_rows(struct maker *maker, struct mt_tally_place *place)
{
    struct mt_tally_row *rows = mt_owner_alloc(maker->owner, MT_CATEGORY_END * sizeof *rows);
    uint64_t total = 0;
    if (!rows)
        return MT_ENOMEM;
    qsort(maker->there, maker->n_there, sizeof(void *), by_kind);
    for (size_t i = 0; i < maker->n_there;) {
        struct mt_tally_row *row = &rows[place->n_rows++];
        size_t n = make_row(maker, i, row);
        if (!n)
            return MT_ENOMEM;
        total = plus(total, row->allocated_bytes);
        i += n;
    }
    place->rows = rows;
    if (place->n_rows)
        place->total_allocated_bytes = place->total_low_bytes = place->total_high_bytes = total;
    return 0;
}

static int make_place(struct maker *maker, uint8_t number, size_t index,
                      struct mt_tally_place *place)
{
    const struct mt_account *account = maker->reader->account;
    uint64_t capacity =
        number == MT_ACCOUNT_HOST ? account->host_bytes : account->device[number].total_bytes;
    *place = (struct mt_tally_place){.place = mt_place_name(number),
                                     .total_resident_bytes = MT_UNKNOWN,
                                     .peak_resident_bytes = MT_UNKNOWN,
                                     .unattributed_bytes = MT_UNKNOWN,
                                     .total_allocated_bytes = MT_UNKNOWN,
                                     .total_low_bytes = MT_UNKNOWN,
                                     .total_high_bytes = MT_UNKNOWN,
                                     .capacity_bytes = capacity ? capacity : MT_UNKNOWN};
    maker->is_doubtful = number != MT_ACCOUNT_HOST && account->builds.doubts_met;
    gather(maker, place->place, index == SIZE_MAX ? peak_of(maker, place->place) : index);
    return make_rows(maker, place);
}

static int add_note(struct maker *maker, struct mt_tally *tally, const char **notes,
                    const char *text)
{
    notes[tally->n_notes] = mt_owner_text(maker->owner, text);
    return notes[tally->n_notes++] ? 0 : MT_ENOMEM;
}

/* Which builds it may be of, as a part of a sentence. */
static void name_builds(const struct mt_pretend_builds *builds, char text[64])
{
    if (builds->low && builds->high && builds->low < builds->high)
        snprintf(text, 64, "builds %" PRIu32 " to %" PRIu32, builds->low, builds->high);
    else if (builds->low && builds->high)
        snprintf(text, 64, "build %" PRIu32, builds->low);
    else if (builds->low)
        snprintf(text, 64, "build %" PRIu32 " or a later one", builds->low);
    else
        snprintf(text, 64, "build %" PRIu32 " or an earlier one", builds->high);
}

/* How the rules were come by, where the program does not say its build or says another; "" where
 * there is nothing to say. */
static void explain_build(const struct mt_account *account, char text[NOTE_BYTES])
{
    const struct mt_pretend_builds *builds = &account->builds;
    const char *version = builds->ggml_version;
    char range[64];
    text[0] = '\0';
    int is_said = builds->low && builds->low == builds->high;
    int is_asked = builds->low || builds->high || *version;
    if (!is_asked || (is_said && !builds->is_told))
        return;
    name_builds(builds, range);
    if (!builds->is_told && !builds->low && !builds->high)
        snprintf(text, NOTE_BYTES,
                 "The program does not say its build: devices behave as those of build %" PRIu32
                 ". Name it, as --engine llama.cpp@BUILD.",
                 account->rules.build);
    else if (!builds->is_told)
        snprintf(text, NOTE_BYTES,
                 "The program does not say its build. Its ggml%s%.23s is of %s: devices behave as "
                 "those of build %" PRIu32 ". Name it, as --engine llama.cpp@BUILD.",
                 *version ? " " : "", version, range, account->rules.build);
    else if (account->rules.build < builds->low ||
             (builds->high && account->rules.build > builds->high))
        snprintf(text, NOTE_BYTES,
                 "Devices behave as those of build %" PRIu32 ", as was asked for; the program's "
                 "ggml%s%.23s is of %s.",
                 account->rules.build, *version ? " " : "", version, range);
}

static int note_build(struct maker *maker, struct mt_tally *tally, const char **notes)
{
    const struct mt_account *account = maker->reader->account;
    char text[NOTE_BYTES];
    explain_build(account, text);
    int result = *text ? add_note(maker, tally, notes, text) : 0;
    if (result < 0 || !account->builds.doubts_met)
        return result;
    return add_note(maker, tally, notes,
                    account->builds.doubts_met & MT_PRETEND_DOUBT_FLASH_TYPES
                        ? "Builds that it may be of differ in which types of keys and values flash "
                          "attention takes: compute buffers of devices are those of the one."
                        : "Builds that it may be of differ in what devices keep of fused "
                          "operations: compute buffers of devices are those of the one, of another "
                          "they may be some percent beside.");
}

static int make_notes(struct maker *maker, struct mt_tally *tally)
{
    const struct mt_reader *reader = maker->reader;
    const char **notes = mt_owner_alloc(maker->owner, (NOTES_MAX + 4) * sizeof *notes);
    const struct mt_noted *noted;
    uint64_t n = __atomic_load_n(&reader->account->n_events, __ATOMIC_RELAXED);
    if (!notes)
        return MT_ENOMEM;
    tally->notes = notes;
    int result = 0;
    if (maker->counts_plans)
        result = add_note(maker, tally, notes,
                          reader->account->n_devices
                              ? "Nothing was allocated on the devices: their figures are what the "
                                "engine planned."
                              : "Nothing was allocated: the figures are what the engine planned.");
    if (result == 0)
        result = note_build(maker, tally, notes);
    for (size_t i = 0; tally->n_notes < NOTES_MAX && (noted = mt_reader_at(reader, i)); i++)
        if (result == 0 && noted->event.kind == MT_REHEARSE_NOTE)
            result = add_note(maker, tally, notes, noted->event.name);
    if (result == 0 && n > MT_ACCOUNT_EVENTS_MAX) {
        char text[160];
        snprintf(text, sizeof text,
                 "The program made and freed more buffers than are noted; %" PRIu64
                 " events are missing.",
                 n - MT_ACCOUNT_EVENTS_MAX);
        result = add_note(maker, tally, notes, text);
    }
    return result;
}

static int make(struct maker *maker, struct mt_tally *tally, size_t index)
{
    const struct mt_account *account = maker->reader->account;
    size_t n = account->n_devices + (size_t)1;
    struct mt_tally_place *places = mt_owner_alloc(maker->owner, n * sizeof *places);
    tally->kind = MT_TALLY_ESTIMATE;
    tally->moment = (struct mt_moment){
        index == SIZE_MAX ? MT_MOMENT_PEAK : MT_MOMENT_TIME,
        index == SIZE_MAX ? 0 : mt_reader_at(maker->reader, index)->event.time_ns};
    tally->moment_ns = index == SIZE_MAX ? MT_UNKNOWN : tally->moment.time_ns;
    if (account->engine_version[0]) {
        char version[sizeof account->engine_version + 1];
        snprintf(version, sizeof version, "%.*s", (int)sizeof account->engine_version,
                 account->engine_version);
        tally->engine_version = mt_owner_text(maker->owner, version);
    }
    tally->places = places;
    tally->n_places = n;
    int result = places ? 0 : MT_ENOMEM;
    for (size_t i = 0; result == 0 && i < n; i++)
        result = make_place(maker, i ? (uint8_t)(i - 1) : MT_ACCOUNT_HOST, index, &places[i]);
    return result == 0 ? make_notes(maker, tally) : result;
}

int mt_rehearse_tally(struct mt_rehearsal *rehearsal, size_t index, struct mt_tally **tally,
                      struct mt_error *error)
{
    struct maker maker = {.reader = &rehearsal->reader,
                          .counts_plans = is_only_planned(&rehearsal->reader)};
    maker.settled = mt_reader_settled(maker.reader, maker.counts_plans);
    if (index != SIZE_MAX && !mt_reader_at(maker.reader, index))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "the rehearsal has no event %zu", index);
    maker.there = calloc(maker.reader->n_events + 1, sizeof *maker.there);
    struct mt_tally *made = maker.there ? mt_owner_create(&maker.owner) : NULL;
    int result = made ? make(&maker, made, index) : MT_ENOMEM;
    free(maker.there);
    if (result < 0) {
        mt_tally_destroy(made);
        return mt_fail(error, result, MT_NO_OFFSET, "out of memory");
    }
    *tally = made;
    return 0;
}
