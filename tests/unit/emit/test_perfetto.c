/* SPDX-License-Identifier: MIT */
/* A trace is read by the wire format of protocol buffers and the numbers of perfetto_trace.proto,
 * written down here anew. */
#include "tests/support/unit.h"

#include <string.h>

#include "emit/perfetto.h"

/* A message: what is left of its bytes. */
struct message {
    const uint8_t *at;
    const uint8_t *end;
};

/* A field: its number, and the value of a varint or the bytes of a text or message. */
struct field {
    uint64_t number;
    int is_bytes;
    uint64_t value;
    struct message bytes;
};

static uint64_t next_varint(struct message *message)
{
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        assert_true(message->at < message->end && shift < 64);
        uint8_t byte = *message->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
}

static int next_field(struct message *message, struct field *field)
{
    if (message->at == message->end)
        return 0;
    uint64_t key = next_varint(message);
    *field = (struct field){.number = key >> 3, .is_bytes = (key & 7) == 2};
    assert_true((key & 7) == 0 || (key & 7) == 2);
    field->value = next_varint(message);
    if (field->is_bytes) {
        assert_true(field->value <= (uint64_t)(message->end - message->at));
        field->bytes = (struct message){message->at, message->at + field->value};
        message->at += field->value;
    }
    return 1;
}

/* The field of a number, or one of number 0 where there is none. */
static struct field field_of(struct message message, uint64_t number)
{
    struct field field;
    while (next_field(&message, &field))
        if (field.number == number)
            return field;
    return (struct field){0};
}

/* Packet `index` of a trace, whose field 1 is repeated. */
static struct message packet_at(const struct mt_strbuf *out, size_t index)
{
    const uint8_t *bytes = (const uint8_t *)out->data;
    struct message trace = {bytes, bytes + out->length};
    struct field field;
    for (size_t i = 0; next_field(&trace, &field); i++) {
        assert_int_equal(field.number, 1);
        if (i == index)
            return field.bytes;
    }
    fail_msg("there is no packet %zu", index);
    return trace;
}

static void assert_text(struct field field, const char *expected)
{
    assert_true(field.is_bytes);
    assert_int_equal(field.value, strlen(expected));
    assert_memory_equal(field.bytes.at, expected, strlen(expected));
}

/* TrackDescriptor is field 60: uuid 1, name 2, counter 8, whose unit is field 3 (3: size_bytes). */
static void test_counters_are_tracks_of_bytes_with_names(void **state)
{
    struct mt_strbuf out = {0};
    struct mt_perfetto perfetto = {.out = &out};
    uint64_t host = mt_perfetto_counter(&perfetto, "host");
    uint64_t device = mt_perfetto_counter(&perfetto, "gpu:0 \xff");
    (void)state;
    assert_int_not_equal(host, device);
    struct message track = field_of(packet_at(&out, 0), 60).bytes;
    assert_int_equal(field_of(track, 1).value, host);
    assert_text(field_of(track, 2), "host");
    assert_int_equal(field_of(field_of(track, 8).bytes, 3).value, 3);
    /* What is no UTF-8 would make the viewer refuse the whole trace. */
    track = field_of(packet_at(&out, 1), 60).bytes;
    assert_int_equal(field_of(track, 1).value, device);
    assert_text(field_of(track, 2), "gpu:0 \xef\xbf\xbd");
    mt_strbuf_finish(&out);
}

/* A sequence's state is cleared (field 13, bit 1) by its first packet alone. */
static void test_all_packets_are_of_one_sequence_that_begins_once(void **state)
{
    struct mt_strbuf out = {0};
    struct mt_perfetto perfetto = {.out = &out};
    uint64_t track = mt_perfetto_track(&perfetto, "phases");
    mt_perfetto_instant(&perfetto, track, "ready", 5);
    mt_perfetto_counter(&perfetto, "host");
    (void)state;
    uint64_t sequence = field_of(packet_at(&out, 0), 10).value;
    assert_int_not_equal(sequence, 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(field_of(packet_at(&out, i), 10).value, sequence);
        assert_int_equal(field_of(packet_at(&out, i), 13).value, i == 0);
    }
    /* A track of events is no counter. */
    assert_int_equal(field_of(field_of(packet_at(&out, 0), 60).bytes, 8).number, 0);
    mt_strbuf_finish(&out);
}

/* TrackEvent is field 11: type 9 (4: counter), track_uuid 11, counter_value 30; the packet's time
 * is field 8. */
static void test_a_value_has_its_time_track_and_bytes(void **state)
{
    struct mt_strbuf out = {0};
    struct mt_perfetto perfetto = {.out = &out};
    uint64_t track = mt_perfetto_counter(&perfetto, "host");
    mt_perfetto_value(&perfetto, track, 1234567890123, UINT64_C(80) << 30);
    (void)state;
    struct message packet = packet_at(&out, 1);
    struct message event = field_of(packet, 11).bytes;
    assert_int_equal(field_of(packet, 8).value, 1234567890123);
    assert_int_equal(field_of(event, 9).value, 4);
    assert_int_equal(field_of(event, 11).value, track);
    assert_int_equal(field_of(event, 30).value, UINT64_C(80) << 30);
    mt_strbuf_finish(&out);
}

/* Types: 1 begins a slice, 2 ends it, 3 is an instant; the name is field 23. */
static void test_a_slice_is_two_events_and_an_instant_one(void **state)
{
    struct mt_strbuf out = {0};
    struct mt_perfetto perfetto = {.out = &out};
    uint64_t track = mt_perfetto_track(&perfetto, "phases");
    mt_perfetto_slice(&perfetto, track, "prefill", 10, 30);
    mt_perfetto_instant(&perfetto, track, "peak", 20);
    (void)state;
    static const struct {
        uint64_t type;
        uint64_t ns;
        const char *name;
    } expected[] = {{1, 10, "prefill"}, {2, 30, NULL}, {3, 20, "peak"}};
    for (size_t i = 0; i < 3; i++) {
        struct message packet = packet_at(&out, i + 1);
        struct message event = field_of(packet, 11).bytes;
        assert_int_equal(field_of(packet, 8).value, expected[i].ns);
        assert_int_equal(field_of(event, 9).value, expected[i].type);
        assert_int_equal(field_of(event, 11).value, track);
        if (expected[i].name)
            assert_text(field_of(event, 23), expected[i].name);
        else
            assert_int_equal(field_of(event, 23).number, 0);
    }
    mt_strbuf_finish(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counters_are_tracks_of_bytes_with_names),
        cmocka_unit_test(test_all_packets_are_of_one_sequence_that_begins_once),
        cmocka_unit_test(test_a_value_has_its_time_track_and_bytes),
        cmocka_unit_test(test_a_slice_is_two_events_and_an_instant_one),
    };
    return RUN_TESTS(tests);
}
