/* SPDX-License-Identifier: MIT */
/* The writer of snapshots for PyTorch's viewer of memory. */
#include "emit/memory_viz.h"

#include <stdlib.h>
#include <string.h>

#include "emit/text.h"

/* The opcodes that are written, as Lib/pickletools.py of CPython names them. */
static void put_code(struct mt_strbuf *out, unsigned char opcode)
{
    mt_strbuf_append(out, &opcode, 1);
}

static void put_little_endian(struct mt_strbuf *out, uint64_t number, size_t n)
{
    unsigned char bytes[8];
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(number >> 8 * i);
    mt_strbuf_append(out, bytes, n);
}

static void put_text(struct mt_strbuf *out, const char *text)
{
    struct mt_strbuf repaired = {0};
    mt_text_repair(&repaired, text);
    put_code(out, 'X'); /* BINUNICODE */
    put_little_endian(out, repaired.length, 4);
    mt_strbuf_append(out, mt_strbuf_text(&repaired), repaired.length);
    mt_strbuf_finish_part(&repaired, out);
}

/* LONG1 of nine bytes, of which the last says that the number is positive. */
static void put_number(struct mt_strbuf *out, uint64_t number)
{
    put_code(out, 0x8a);
    put_code(out, 9);
    put_little_endian(out, number, 8);
    put_code(out, 0);
}

static void begin_dict(struct mt_strbuf *out)
{
    mt_strbuf_puts(out, "}("); /* EMPTY_DICT MARK */
}

static void end_dict(struct mt_strbuf *out)
{
    put_code(out, 'u'); /* SETITEMS */
}

static void begin_list(struct mt_strbuf *out)
{
    mt_strbuf_puts(out, "]("); /* EMPTY_LIST MARK */
}

static void end_list(struct mt_strbuf *out)
{
    put_code(out, 'e'); /* APPENDS */
}

static void put_text_at(struct mt_strbuf *out, const char *key, const char *text)
{
    put_text(out, key);
    put_text(out, text);
}

static void put_number_at(struct mt_strbuf *out, const char *key, uint64_t number)
{
    put_text(out, key);
    put_number(out, number);
}

static void put_frames(struct mt_strbuf *out, const char *label)
{
    put_text(out, "frames");
    begin_list(out);
    if (label && *label) {
        begin_dict(out);
        put_text_at(out, "name", label);
        put_text_at(out, "filename", "memtally");
        put_number_at(out, "line", 0);
        end_dict(out);
    }
    end_list(out);
}

static void put_block(struct mt_strbuf *out, uint64_t address, uint64_t bytes, const char *label,
                      int is_live)
{
    begin_dict(out);
    put_number_at(out, "address", address);
    put_number_at(out, "size", bytes);
    put_number_at(out, "requested_size", bytes);
    put_text_at(out, "state", is_live ? "active_allocated" : "inactive");
    put_frames(out, label);
    end_dict(out);
}

static int stayed(const struct mt_viz_span *span)
{
    return span->end_ns == UINT64_MAX;
}

static int by_address(const void *a, const void *b)
{
    const struct mt_viz_span *x = a;
    const struct mt_viz_span *y = b;
    return (x->address > y->address) - (x->address < y->address);
}

/* Blocks from `*at` on that lie in the segment, and what is free between them. */
static uint64_t put_blocks(struct mt_strbuf *out, const struct mt_viz_span *segment,
                           const struct mt_viz_span *blocks, size_t n, size_t *at)
{
    uint64_t next = segment->address;
    uint64_t end = segment->address + segment->bytes;
    uint64_t held = 0;
    begin_list(out);
    for (; *at < n && blocks[*at].address < end; (*at)++) {
        const struct mt_viz_span *block = &blocks[*at];
        if (block->address < next || block->bytes > end - block->address)
            continue;
        if (block->address > next)
            put_block(out, next, block->address - next, NULL, 0);
        put_block(out, block->address, block->bytes, block->label, 1);
        next = block->address + block->bytes;
        held += block->bytes;
    }
    if (next < end)
        put_block(out, next, end - next, NULL, 0);
    end_list(out);
    return held;
}

static void put_segment(struct mt_strbuf *out, size_t device, const struct mt_viz_span *segment,
                        const struct mt_viz_span *blocks, size_t n, size_t *at)
{
    struct mt_strbuf inside = {0};
    uint64_t held = put_blocks(&inside, segment, blocks, n, at);
    begin_dict(out);
    put_number_at(out, "device", device);
    put_number_at(out, "address", segment->address);
    put_number_at(out, "total_size", segment->bytes);
    put_number_at(out, "allocated_size", held);
    put_number_at(out, "active_size", held);
    put_number_at(out, "requested_size", held);
    put_number_at(out, "stream", 0);
    put_text_at(out, "segment_type", "large");
    put_frames(out, NULL);
    put_text(out, "blocks");
    mt_strbuf_append(out, mt_strbuf_text(&inside), inside.length);
    mt_strbuf_finish_part(&inside, out);
    end_dict(out);
}

/* What stayed of segments or of blocks, by address. Returns how many there are. */
static size_t collect(const struct mt_viz_device *device, int segments, struct mt_viz_span *spans)
{
    size_t n = 0;
    for (size_t i = 0; i < device->n_spans; i++)
        if (stayed(&device->spans[i]) && !device->spans[i].is_segment == !segments)
            spans[n++] = device->spans[i];
    qsort(spans, n, sizeof *spans, by_address);
    return n;
}

/* Pieces that lie side by side are one segment: a block may go over their border. */
static size_t join(struct mt_viz_span *segments, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        struct mt_viz_span *last = kept ? &segments[kept - 1] : NULL;
        if (last && last->address + last->bytes == segments[i].address)
            last->bytes += segments[i].bytes;
        else
            segments[kept++] = segments[i];
    }
    return kept;
}

static void put_segments(struct mt_strbuf *out, size_t number, const struct mt_viz_device *device)
{
    struct mt_viz_span *segments = calloc(device->n_spans + 1, sizeof *segments);
    struct mt_viz_span *blocks = calloc(device->n_spans + 1, sizeof *blocks);
    if (segments && blocks) {
        size_t n = join(segments, collect(device, 1, segments));
        size_t n_blocks = collect(device, 0, blocks);
        size_t at = 0;
        for (size_t i = 0; i < n; i++)
            put_segment(out, number, &segments[i], blocks, n_blocks, &at);
    } else {
        out->failed = 1;
    }
    free(segments);
    free(blocks);
}

struct action {
    const struct mt_viz_span *span;
    uint64_t ns;
    int is_end;
};

/* Ends before beginnings; blocks end before their segments, which begin before them. */
static int by_time(const void *a, const void *b)
{
    const struct action *x = a;
    const struct action *y = b;
    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    if (x->is_end != y->is_end)
        return y->is_end - x->is_end;
    int order = y->span->is_segment - x->span->is_segment;
    return x->is_end ? -order : order;
}

static void put_entry(struct mt_strbuf *out, const struct action *action, const char *name)
{
    begin_dict(out);
    put_text_at(out, "action", name);
    put_number_at(out, "addr", action->span->address);
    put_number_at(out, "size", action->span->bytes);
    put_number_at(out, "stream", 0);
    put_number_at(out, "time_us", action->ns / 1000);
    put_frames(out, action->span->label);
    end_dict(out);
}

static void put_action(struct mt_strbuf *out, const struct action *action)
{
    if (action->span->is_segment) {
        put_entry(out, action, action->is_end ? "segment_free" : "segment_alloc");
        return;
    }
    if (action->is_end)
        put_entry(out, action, "free_requested");
    put_entry(out, action, action->is_end ? "free_completed" : "alloc");
}

static void put_trace(struct mt_strbuf *out, const struct mt_viz_device *device)
{
    struct action *actions = calloc(2 * device->n_spans + 1, sizeof *actions);
    size_t n = 0;
    if (!actions) {
        out->failed = 1;
        return;
    }
    for (size_t i = 0; i < device->n_spans; i++) {
        const struct mt_viz_span *span = &device->spans[i];
        actions[n++] = (struct action){span, span->begin_ns, 0};
        if (!stayed(span))
            actions[n++] = (struct action){span, span->end_ns, 1};
    }
    qsort(actions, n, sizeof *actions, by_time);
    begin_list(out);
    for (size_t i = 0; i < n; i++)
        put_action(out, &actions[i]);
    end_list(out);
    free(actions);
}

void mt_memory_viz(struct mt_strbuf *out, const struct mt_viz_device *devices, size_t n)
{
    put_code(out, 0x80); /* PROTO */
    put_code(out, 2);
    begin_dict(out);
    put_text(out, "segments");
    begin_list(out);
    for (size_t i = 0; i < n; i++)
        put_segments(out, i, &devices[i]);
    end_list(out);
    put_text(out, "device_traces");
    begin_list(out);
    for (size_t i = 0; i < n; i++)
        put_trace(out, &devices[i]);
    end_list(out);
    put_text(out, "allocator_settings");
    begin_dict(out);
    for (size_t i = 0; i < n; i++)
        put_text_at(out, devices[i].name, "as recorded by memtally");
    end_dict(out);
    end_dict(out);
    put_code(out, '.'); /* STOP */
}
