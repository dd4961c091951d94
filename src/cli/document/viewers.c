/* SPDX-License-Identifier: MIT */
/* A document for others' viewers: call stacks for speedscope, courses over time for Perfetto. */
#include <stdlib.h>

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
