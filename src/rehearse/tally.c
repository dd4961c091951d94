/* SPDX-License-Identifier: MIT */
/* Events into a tally: what was there after one of them, or at the peak of each place. */
#include <memtally/units.h>

#include "base/invariant.h"
#include "tally/tally_arena.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "breakdown.h"
#include "rehearse/rehearsal.h"

#define NOTES_MAX  64u
#define NOTE_BYTES 320

#define DOUBT_OF_ORDER   0.10
#define DOUBT_OF_BUILDS  0.26
#define DOUBT_OF_KERNELS 0.26 /* a guess */

/* What is being made. */
struct maker {
    struct mt_account_reader *reader;
    struct mt_tally_arena *arena;
    struct mt_breakdown_source source;
    int counts_plans;          /* nothing was allocated: what was planned is all there is */
    struct mt_span settled;    /* past what the engine tried only */
    struct mt_breakdown there; /* at the place in hand */
    uint64_t unsplit_bytes;    /* of the place that has most of it */
    double doubt; /* by which part compute buffers of the place in hand may be otherwise */
    enum mt_provenance buffers; /* of the place in hand, at best: of compute buffers, of others */
    enum mt_provenance others;
};

static int counts(const struct maker *maker, const struct mt_rehearsal_event *event)
{
    return mt_breakdown_count(&maker->source, event);
}

/* Nothing but a dry run: weights were planned and none were taken. Some caches are taken even so.
 */
static int is_only_planned(const struct mt_account_reader *reader)
{
    size_t n_planned = 0;
    const struct mt_noted *noted;
    for (size_t i = 0; (noted = mt_account_reader_at(reader, i)) != NULL; i++) {
        const struct mt_rehearsal_event *event = &noted->event;
        if (event->kind != MT_REHEARSAL_ALLOC || event->category != MT_CATEGORY_WEIGHTS)
            continue;
        if (!(event->flags & MT_REHEARSAL_PLANNED))
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
    for (size_t i = 0; (noted = mt_account_reader_at(maker->reader, i)) != NULL; i++) {
        const struct mt_rehearsal_event *event = &noted->event;
        if (strcmp(event->place, place) != 0 || !counts(maker, event))
            continue;
        if (event->kind == MT_REHEARSAL_ALLOC && __builtin_add_overflow(sum, event->bytes, &sum))
            sum = UINT64_MAX;
        else if (event->kind == MT_REHEARSAL_FREE)
            sum -= event->bytes < sum ? event->bytes : sum;
        if (sum > most && i >= maker->settled.first && i <= maker->settled.last) {
            most = sum;
            peak = i;
        }
    }
    return peak;
}

static int by_bytes(const void *a, const void *b)
{
    const struct mt_tally_detail *one = a;
    const struct mt_tally_detail *other = b;
    if (one->allocated_bytes != other->allocated_bytes)
        return one->allocated_bytes > other->allocated_bytes ? -1 : 1;
    return strcmp(one->name, other->name);
}

static char *name_of(struct maker *maker, const struct mt_breakdown_part *part)
{
    char text[sizeof(struct mt_account_event)];
    snprintf(text, sizeof text, "%s%s%s", part->name, *part->name && *part->detail ? ": " : "",
             part->detail);
    return mt_tally_text(maker->arena, *text ? text : "a buffer");
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) || sum == MT_UNKNOWN ? MT_UNKNOWN - 1 : sum;
}

/* Ways in which a device may differ from what we know. */
static void doubt(const struct maker *maker, struct mt_tally_detail *detail,
                  enum mt_category category)
{
    int is_buffer = category == MT_CATEGORY_ACTIVATIONS;
    enum mt_provenance best = is_buffer ? maker->buffers : maker->others;
    if (detail->provenance < best)
        detail->provenance = best;
    if (maker->doubt <= 0 || !is_buffer)
        return;
    uint64_t bytes = (uint64_t)((double)detail->allocated_bytes * maker->doubt);
    detail->low_bytes = detail->allocated_bytes - bytes;
    detail->high_bytes = plus(detail->allocated_bytes, bytes);
}

/* One detail of the parts from `first` on that are alike. Returns how many they are, 0 where
 * memory ran out. */
static size_t make_detail(struct maker *maker, size_t first, struct mt_tally_detail *detail)
{
    const struct mt_breakdown_part *model = &maker->there.items[first];
    size_t n = 0;
    *detail = (struct mt_tally_detail){.name = name_of(maker, model),
                                       .resident_bytes = MT_UNKNOWN,
                                       .provenance = model->provenance,
                                       .kind = MT_TERM_REHEARSED};
    for (; first + n < maker->there.n && !mt_breakdown_compare(model, model + n); n++) {
        detail->allocated_bytes = plus(detail->allocated_bytes, model[n].bytes);
        detail->low_bytes = plus(detail->low_bytes, model[n].low_bytes);
        detail->high_bytes = plus(detail->high_bytes, model[n].high_bytes);
        detail->count += model[n].count;
    }
    doubt(maker, detail, model->category);
    return detail->name ? n : 0;
}

/* Adds a detail; a row is as sure as the least sure of its details. */
static void add_detail(struct mt_tally_row *row, const struct mt_tally_detail *detail)
{
    row->allocated_bytes = plus(row->allocated_bytes, detail->allocated_bytes);
    row->low_bytes = plus(row->low_bytes, detail->low_bytes);
    row->high_bytes = plus(row->high_bytes, detail->high_bytes);
    row->count += detail->count;
    if (detail->provenance > row->provenance)
        row->provenance = detail->provenance;
}

/* One row of the parts from `first` on that are of one category. */
static size_t make_row(struct maker *maker, size_t first, struct mt_tally_row *row)
{
    enum mt_category category = maker->there.items[first].category;
    size_t n = 0;
    while (first + n < maker->there.n && maker->there.items[first + n].category == category)
        n++;
    struct mt_tally_detail *details = mt_tally_alloc(maker->arena, n * sizeof *details);
    *row = (struct mt_tally_row){.category = category,
                                 .resident_bytes = MT_UNKNOWN,
                                 .provenance = MT_PROVENANCE_EXACT,
                                 .details = details};
    for (size_t i = 0; details && i < n;) {
        struct mt_tally_detail *detail = &details[row->n_details++];
        size_t alike = make_detail(maker, first + i, detail);
        if (!alike)
            return 0;
        add_detail(row, detail);
        i += alike;
    }
    if (!details)
        return 0;
    qsort(details, row->n_details, sizeof *details, by_bytes);
    return n;
}

static int make_rows(struct maker *maker, struct mt_tally_place *place)
{
    struct mt_tally_row *rows = mt_tally_alloc(maker->arena, MT_CATEGORY_END * sizeof *rows);
    uint64_t total = 0, low = 0, high = 0;
    if (!rows)
        return MT_ENOMEM;
    for (size_t i = 0; i < maker->there.n;) {
        struct mt_tally_row *row = &rows[place->n_rows++];
        size_t n = make_row(maker, i, row);
        if (!n)
            return MT_ENOMEM;
        total = plus(total, row->allocated_bytes);
        low = plus(low, row->low_bytes);
        high = plus(high, row->high_bytes);
        i += n;
    }
    place->rows = rows;
    if (!place->n_rows)
        return 0;
    place->total_allocated_bytes = total;
    place->total_low_bytes = low;
    place->total_high_bytes = high;
    return 0;
}

/* Devices that order a graph by themselves, and builds that differ in what this program's graphs
 * have. The first share is a guess; within the second are nineteen in twenty of the buffers that
 * were planned with and without fused operations (docs/CONFORMANCE.md). */
static double doubt_of(const struct mt_account *account)
{
    if (account->builds.doubts_met)
        return DOUBT_OF_BUILDS;
    if (account->builds.generations_differ)
        return DOUBT_OF_KERNELS;
    return account->rules.is_reordered ? DOUBT_OF_ORDER : 0;
}

/* Whether the devices' memory is laid out as a driver has it that is not the one that was read. */
static int is_of_other_driver(const struct mt_pretend_rules *rules)
{
    return rules->is_of_vendor &&
           (rules->is_generation_assumed || strcmp(rules->generation, MT_PRETEND_VENDOR) != 0);
}

/* If nobody said a device's generation, no figure that depends on it is exact; nor is one of
 * devices whose rules no published log confirms. */
static void set_doubts(struct maker *maker)
{
    const struct mt_account *account = maker->reader->account;
    maker->doubt = doubt_of(account);
    if (maker->doubt > 0 || account->rules.is_generation_assumed)
        maker->buffers = MT_PROVENANCE_DERIVED;
    if (account->rules.is_unconfirmed || is_of_other_driver(&account->rules))
        maker->buffers = maker->others = MT_PROVENANCE_DERIVED;
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
    maker->doubt = 0;
    maker->buffers = maker->others = MT_PROVENANCE_EXACT;
    if (number != MT_ACCOUNT_HOST)
        set_doubts(maker);
    int is_peak = index == SIZE_MAX;
    int result =
        mt_breakdown_gather(&maker->source, number, is_peak ? peak_of(maker, place->place) : index,
                            is_peak, &maker->there);
    if (maker->there.unsplit_bytes > maker->unsplit_bytes)
        maker->unsplit_bytes = maker->there.unsplit_bytes;
    return result < 0 ? result : make_rows(maker, place);
}

/* If several processes say the same, one note says it. */
static int add_note(struct maker *maker, struct mt_tally *tally, const char **notes,
                    const char *text)
{
    for (size_t i = 0; i < tally->n_notes; i++)
        if (strcmp(notes[i], text) == 0)
            return 0;
    notes[tally->n_notes] = mt_tally_text(maker->arena, text);
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
    return add_note(
        maker, tally, notes,
        account->builds.doubts_met & MT_PRETEND_DOUBT_FLASH_TYPES
            ? "The builds that it may be differ in which types of keys and values flash attention "
              "takes: compute buffers of devices are those of one of them."
            : "The builds that it may be differ in what devices keep for fused operations: compute "
              "buffers of devices are those of one of them, and have a band.");
}

static int note_generation(struct maker *maker, struct mt_tally *tally, const char **notes)
{
    const struct mt_account *account = maker->reader->account;
    const struct mt_pretend_rules *rules = &account->rules;
    char text[NOTE_BYTES];
    if (!__atomic_load_n(&account->n_attached, __ATOMIC_RELAXED))
        return 0;
    if (rules->is_generation_assumed)
        snprintf(text, NOTE_BYTES,
                 "The generation of a device is unknown: such devices behave as %.15s, and what "
                 "may depend on it is derived. Name the card, or give --generation.",
                 rules->generation);
    else if (is_of_other_driver(rules))
        snprintf(text, NOTE_BYTES,
                 "We do not know how the Vulkan driver of %.15s aligns memory: memtally takes "
                 "NVIDIA's way, and figures of devices are derived.",
                 rules->generation);
    else if (rules->is_unconfirmed)
        snprintf(
            text, NOTE_BYTES,
            "%.15s devices behave as the engine's source says. No published log has such a card, a "
            "build that can be rehearsed, its model and settings: figures of devices are "
            "derived.",
            rules->device_prefix);
    else
        return 0;
    return add_note(maker, tally, notes, text);
}

/* Only PyTorch's traces say what a driver's allocation is for. */
static int note_unsplit(struct maker *maker, struct mt_tally *tally, const char **notes)
{
    if (!maker->unsplit_bytes)
        return 0;
    return add_note(maker, tally, notes,
                    "What is cached and inferred came from the driver, and nothing says what it is "
                    "for: the program has no PyTorch, did not come to report, or its Python did "
                    "not load our helper (python -I, -E or -S).");
}

/* Blocks that are not known of look as if their segments were free. */
static int note_lost(struct maker *maker, struct mt_tally *tally, const char **notes)
{
    if (!maker->source.torch || !mt_torch_lost(maker->source.torch))
        return 0;
    return add_note(
        maker, tally, notes,
        "PyTorch made more allocations than memtally reads of its traces, or a trace is no file: "
        "the total is right, the split of what it held late is not. Rehearse fewer steps.");
}

/* Its sizes went with the process that was killed. */
static int note_unwritten(struct maker *maker, struct mt_tally *tally, const char **notes)
{
    if (!maker->reader->n_unwritten)
        return 0;
    return add_note(maker, tally, notes,
                    "A process was killed while it wrote an event: what it took or gave back just "
                    "then is missing.");
}

static int make_notes(struct maker *maker, struct mt_tally *tally)
{
    const struct mt_account_reader *reader = maker->reader;
    const char **notes = mt_tally_alloc(maker->arena, (NOTES_MAX + 7) * sizeof *notes);
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
    if (result == 0)
        result = note_generation(maker, tally, notes);
    if (result == 0)
        result = note_unsplit(maker, tally, notes);
    if (result == 0)
        result = note_lost(maker, tally, notes);
    if (result == 0)
        result = note_unwritten(maker, tally, notes);
    const struct mt_torch_note *said;
    for (size_t i = 0; maker->source.torch && tally->n_notes < NOTES_MAX / 2 &&
                       (said = mt_torch_note_at(maker->source.torch, i)) != NULL;
         i++)
        if (result == 0)
            result = add_note(maker, tally, notes, said->text);
    for (size_t i = 0; tally->n_notes < NOTES_MAX && (noted = mt_account_reader_at(reader, i)); i++)
        if (result == 0 && noted->event.kind == MT_REHEARSAL_NOTE)
            result = add_note(maker, tally, notes, noted->event.name);
    if (result == 0 && n > MT_ACCOUNT_EVENTS_MAX) {
        char text[160];
        snprintf(text, sizeof text,
                 "The program made and freed more buffers than the account has room for; %" PRIu64
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
    struct mt_tally_place *places = mt_tally_alloc(maker->arena, n * sizeof *places);
    tally->kind = MT_TALLY_ESTIMATE;
    tally->moment = (struct mt_moment){
        index == SIZE_MAX ? MT_MOMENT_PEAK : MT_MOMENT_TIME,
        index == SIZE_MAX ? 0 : mt_account_reader_at(maker->reader, index)->event.time_ns};
    tally->moment_ns = index == SIZE_MAX ? MT_UNKNOWN : tally->moment.time_ns;
    if (account->engine_version[0]) {
        char version[sizeof account->engine_version + 1];
        snprintf(version, sizeof version, "%.*s", (int)sizeof account->engine_version,
                 account->engine_version);
        tally->engine_version = mt_tally_text(maker->arena, version);
    }
    tally->places = places;
    tally->n_places = n;
    int result = places ? 0 : MT_ENOMEM;
    for (size_t i = 0; result == 0 && i < n; i++)
        result = make_place(maker, i ? (uint8_t)(i - 1) : MT_ACCOUNT_HOST, index, &places[i]);
    return result == 0 ? make_notes(maker, tally) : result;
}

/* Whether it is CUDA's devices that the program took: ggml's win where it took both. */
static int is_cuda(const struct mt_account *account)
{
    return __atomic_load_n(&account->cuda.n_contexts, __ATOMIC_RELAXED) &&
           !__atomic_load_n(&account->n_attached, __ATOMIC_RELAXED);
}

/* Hands on what libraries were told of parts of allocations, which only the traces can place. */
static int open_traces(struct maker *maker, const char *directory, struct mt_error *error)
{
    if (!maker->source.is_cuda)
        return 0;
    int result = mt_torch_open(directory, &maker->source.torch, error);
    if (result == MT_ENOTFOUND)
        return mt_fail(error, MT_EIO, MT_NO_OFFSET,
                       "the program removed %.300s, the folder of its rehearsal, so memtally "
                       "cannot know what it took; rehearse it in a folder that it leaves alone",
                       directory);
    const struct mt_account_reader *reader = maker->reader;
    for (size_t i = 0; result == 0 && i < reader->n_told; i++) {
        const struct mt_purpose *told = &reader->told[i];
        mt_torch_usage(maker->source.torch, told->pid, told->object, told->bytes, told->time_ns,
                       told->category, told->name);
    }
    return result;
}

int mt_rehearsal_tally(struct mt_rehearsal *rehearsal, size_t index, struct mt_tally **tally,
                       struct mt_error *error)
{
    struct maker maker = {.reader = &rehearsal->reader,
                          .counts_plans = is_only_planned(&rehearsal->reader)};
    maker.source = (struct mt_breakdown_source){.reader = maker.reader,
                                                .counts_plans = maker.counts_plans,
                                                .is_cuda = is_cuda(rehearsal->account)};
    maker.settled = mt_account_reader_settled(maker.reader, maker.counts_plans);
    if (index != SIZE_MAX && !mt_account_reader_at(maker.reader, index))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "the rehearsal has no event %zu", index);
    int result = open_traces(&maker, rehearsal->directory, error);
    if (result < 0)
        return result;
    struct mt_tally *made = mt_tally_create(&maker.arena);
    result = made ? make(&maker, made, index) : MT_ENOMEM;
    mt_breakdown_finish(&maker.there);
    mt_torch_close(maker.source.torch);
    if (result < 0) {
        mt_tally_destroy(made);
        return mt_fail(error, result, MT_NO_OFFSET, "out of memory");
    }
    MT_HOLDS(mt_tally_adds_up(made));
    *tally = made;
    return 0;
}
