/* SPDX-License-Identifier: MIT */
/* A document for others' viewers: call stacks for speedscope, courses over time for Perfetto. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/history.h>
#include <memtally/recording.h>

#include "emit/memory_viz.h"
#include "emit/perfetto.h"
#include "emit/speedscope.h"
#include "internal.h"

void cli_document_speedscope(const struct cli_document *document, struct mt_strbuf *out)
{
    const struct mt_stack_list *list = document->stacks;
    struct mt_speedscope_stack *stacks = calloc(list->n_entries + 1, sizeof *stacks);
    if (!stacks) {
        out->failed = 1;
        return;
    }
    for (size_t i = 0; i < list->n_entries; i++) {
        const struct mt_stack_entry *entry = &list->entries[i];
        stacks[i] = (struct mt_speedscope_stack){
            .place = entry->place,
            .frames = entry->frames,
            .n_frames = entry->n_frames,
            .complete = entry->complete || cli_is_no_stack(entry),
            .bytes = entry->bytes,
        };
    }
    mt_speedscope(out, document->recording ? document->recording : "memtally", stacks,
                  list->n_entries);
    free(stacks);
}

static void put_points(struct mt_perfetto *perfetto, const char *name,
                       const struct mt_timeline_point *points, size_t n)
{
    uint64_t track = mt_perfetto_counter(perfetto, name);
    for (size_t i = 0; i < n; i++)
        mt_perfetto_value(perfetto, track, points[i].time_ns, points[i].resident_bytes);
}

static void put_phases(struct mt_perfetto *perfetto, const struct cli_document *document)
{
    if (!document->n_phases)
        return;
    uint64_t track = mt_perfetto_track(perfetto, "phases");
    for (size_t i = 0; i < document->n_phases; i++)
        mt_perfetto_slice(perfetto, track, document->phases[i].name, document->phases[i].start_ns,
                          document->phases[i].end_ns);
}

static void put_marks(struct mt_perfetto *perfetto, const struct cli_document *document)
{
    if (!document->n_marks)
        return;
    uint64_t track = mt_perfetto_track(perfetto, "marks");
    for (size_t i = 0; i < document->n_marks; i++)
        mt_perfetto_instant(perfetto, track, document->marks[i].name, document->marks[i].time_ns);
}

void cli_document_perfetto(const struct cli_document *document, struct mt_strbuf *out)
{
    struct mt_perfetto perfetto = {.out = out};
    put_points(&perfetto, "host, resident", document->timeline, document->n_timeline);
    for (size_t i = 0; i < document->n_device_timelines; i++) {
        struct mt_strbuf name = {0};
        mt_strbuf_printf(&name, "%s, allocated", document->device_timelines[i].place);
        put_points(&perfetto, mt_strbuf_text(&name), document->device_timelines[i].points,
                   document->device_timelines[i].n_points);
        mt_strbuf_finish_part(&name, out);
    }
    put_phases(&perfetto, document);
    put_marks(&perfetto, document);
}

/* Owned by the caller; NULL if there is no memory left. */
static char *label_of(const struct mt_device_span *span)
{
    struct mt_strbuf label = {0};
    if (span->category != MT_CATEGORY_NONE)
        mt_strbuf_puts(&label, mt_category_name(span->category));
    if (span->category != MT_CATEGORY_NONE && *span->name)
        mt_strbuf_puts(&label, ": ");
    mt_strbuf_puts(&label, span->name);
    return mt_strbuf_take(&label);
}

static int fill_device(const struct mt_device_history *history, struct mt_viz_device *device)
{
    struct mt_viz_span *spans = calloc(history->n_spans + 1, sizeof *spans);
    int failed = !spans;
    device->spans = spans;
    device->name = history->place;
    for (size_t i = 0; spans && i < history->n_spans; i++) {
        const struct mt_device_span *span = &history->spans[i];
        char *text = span->is_segment ? NULL : label_of(span);
        failed |= !span->is_segment && !text;
        spans[i] = (struct mt_viz_span){span->address, span->bytes,      span->begin_ns,
                                        span->end_ns,  span->is_segment, text};
        device->n_spans = i + 1;
    }
    return !failed;
}

void cli_document_memory_viz(const struct cli_document *document, struct mt_strbuf *out)
{
    size_t n = document->histories->n;
    struct mt_viz_device *devices = calloc(n, sizeof *devices);
    for (size_t i = 0; devices && i < n; i++)
        if (!fill_device(&document->histories->items[i], &devices[i]))
            out->failed = 1;
    if (devices)
        mt_memory_viz(out, devices, n);
    else
        out->failed = 1;
    for (size_t i = 0; devices && i < n; i++) {
        for (size_t j = 0; j < devices[i].n_spans; j++)
            free((char *)(uintptr_t)devices[i].spans[j].label);
        free((struct mt_viz_span *)(uintptr_t)devices[i].spans);
    }
    free(devices);
}
