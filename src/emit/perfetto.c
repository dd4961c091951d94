/* SPDX-License-Identifier: MIT */
/* Messages of Perfetto's, in the wire format of protocol buffers. */
#include "emit/perfetto.h"

#include <string.h>

#include "base/varint.h"
#include "emit/text.h"

/* Numbers of fields, by perfetto_trace.proto. */
enum {
    TRACE_PACKET = 1,
    PACKET_TIMESTAMP = 8,
    PACKET_SEQUENCE_ID = 10,
    PACKET_TRACK_EVENT = 11,
    PACKET_SEQUENCE_FLAGS = 13,
    PACKET_TRACK_DESCRIPTOR = 60,
    TRACK_UUID = 1,
    TRACK_NAME = 2,
    TRACK_COUNTER = 8,
    COUNTER_UNIT = 3,
    EVENT_TYPE = 9,
    EVENT_TRACK_UUID = 11,
    EVENT_NAME = 23,
    EVENT_COUNTER_VALUE = 30,
};

enum { UNIT_SIZE_BYTES = 3 };
enum { TYPE_SLICE_BEGIN = 1, TYPE_SLICE_END = 2, TYPE_INSTANT = 3, TYPE_COUNTER = 4 };
enum { SEQUENCE_STATE_CLEARED = 1 };

#define SEQUENCE   1u
#define UUID_FIRST UINT64_C(0x6d656d74616c6c00) /* tracks of other writers have other ones */

static void put_varint(struct mt_strbuf *out, uint64_t value)
{
    uint8_t bytes[MT_VARINT_MAX];
    mt_strbuf_append(out, bytes, (size_t)(mt_varint_put(bytes, value) - bytes));
}

static void put_number(struct mt_strbuf *out, unsigned field, uint64_t value)
{
    put_varint(out, (uint64_t)field << 3);
    put_varint(out, value);
}

static void put_bytes(struct mt_strbuf *out, unsigned field, const char *bytes, size_t length)
{
    put_varint(out, (uint64_t)field << 3 | 2);
    put_varint(out, length);
    mt_strbuf_append(out, bytes, length);
}

/* A field of type string has to be UTF-8. */
static void put_text(struct mt_strbuf *out, unsigned field, const char *text)
{
    struct mt_strbuf repaired = {0};
    mt_text_repair(&repaired, text);
    put_bytes(out, field, mt_strbuf_text(&repaired), repaired.length);
    mt_strbuf_finish_part(&repaired, out);
}

static void put_message(struct mt_strbuf *out, unsigned field, struct mt_strbuf *message)
{
    put_bytes(out, field, mt_strbuf_text(message), message->length);
    mt_strbuf_finish_part(message, out);
}

static uint64_t begin_track(struct mt_perfetto *perfetto, const char *name, int is_counter)
{
    struct mt_strbuf packet = {0};
    struct mt_strbuf track = {0};
    uint64_t uuid = UUID_FIRST + ++perfetto->n_tracks;
    put_number(&track, TRACK_UUID, uuid);
    put_text(&track, TRACK_NAME, name);
    if (is_counter) {
        struct mt_strbuf counter = {0};
        put_number(&counter, COUNTER_UNIT, UNIT_SIZE_BYTES);
        put_message(&track, TRACK_COUNTER, &counter);
    }
    put_number(&packet, PACKET_SEQUENCE_ID, SEQUENCE);
    if (perfetto->n_tracks == 1)
        put_number(&packet, PACKET_SEQUENCE_FLAGS, SEQUENCE_STATE_CLEARED);
    put_message(&packet, PACKET_TRACK_DESCRIPTOR, &track);
    put_message(perfetto->out, TRACE_PACKET, &packet);
    return uuid;
}

uint64_t mt_perfetto_counter(struct mt_perfetto *perfetto, const char *name)
{
    return begin_track(perfetto, name, 1);
}

uint64_t mt_perfetto_track(struct mt_perfetto *perfetto, const char *name)
{
    return begin_track(perfetto, name, 0);
}

static void put_event(struct mt_perfetto *perfetto, uint64_t ns, struct mt_strbuf *event)
{
    struct mt_strbuf packet = {0};
    put_number(&packet, PACKET_TIMESTAMP, ns);
    put_number(&packet, PACKET_SEQUENCE_ID, SEQUENCE);
    put_message(&packet, PACKET_TRACK_EVENT, event);
    put_message(perfetto->out, TRACE_PACKET, &packet);
}

void mt_perfetto_value(struct mt_perfetto *perfetto, uint64_t track, uint64_t ns, uint64_t bytes)
{
    struct mt_strbuf event = {0};
    put_number(&event, EVENT_TYPE, TYPE_COUNTER);
    put_number(&event, EVENT_TRACK_UUID, track);
    put_number(&event, EVENT_COUNTER_VALUE, bytes);
    put_event(perfetto, ns, &event);
}

static void put_named(struct mt_perfetto *perfetto, uint64_t track, unsigned type, const char *name,
                      uint64_t ns)
{
    struct mt_strbuf event = {0};
    put_number(&event, EVENT_TYPE, type);
    put_number(&event, EVENT_TRACK_UUID, track);
    if (name)
        put_text(&event, EVENT_NAME, name);
    put_event(perfetto, ns, &event);
}

void mt_perfetto_slice(struct mt_perfetto *perfetto, uint64_t track, const char *name,
                       uint64_t begin_ns, uint64_t end_ns)
{
    put_named(perfetto, track, TYPE_SLICE_BEGIN, name, begin_ns);
    put_named(perfetto, track, TYPE_SLICE_END, NULL, end_ns);
}

void mt_perfetto_instant(struct mt_perfetto *perfetto, uint64_t track, const char *name,
                         uint64_t ns)
{
    put_named(perfetto, track, TYPE_INSTANT, name, ns);
}
