/* SPDX-License-Identifier: MIT */
/* The account as a list of events. What the program writes is taken at its word, but nothing of it
 * is believed that would lead outside the file's bounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "rehearse/rehearsal.h"

#define HOLE_NS   UINT64_C(1000000000)  /* until an event of a process that is gone is given up */
#define CLAIM_NS  UINT64_C(10000000000) /* until one is that nobody has put a process to */
#define LOOK_BACK 4096                  /* events, for the plan of one that was refused */

const char *mt_place_name(uint8_t place)
{
    static const char names[MT_ACCOUNT_DEVICES_MAX][8] = {
#define ROW(a)                                                                                     \
    "gpu:" #a "0", "gpu:" #a "1", "gpu:" #a "2", "gpu:" #a "3", "gpu:" #a "4", "gpu:" #a "5",      \
        "gpu:" #a "6", "gpu:" #a "7", "gpu:" #a "8", "gpu:" #a "9"
        "gpu:0", "gpu:1", "gpu:2", "gpu:3", "gpu:4", "gpu:5",  "gpu:6",  "gpu:7",  "gpu:8", "gpu:9",
        ROW(1),  ROW(2),  ROW(3),  ROW(4),  ROW(5),  "gpu:60", "gpu:61", "gpu:62", "gpu:63"
#undef ROW
    };
    return place < MT_ACCOUNT_DEVICES_MAX ? names[place] : "host";
}

static struct mt_noted *at(const struct mt_account_reader *reader, size_t index)
{
    return &reader->chunks[index / MT_READER_CHUNK][index % MT_READER_CHUNK];
}

const struct mt_noted *mt_account_reader_at(const struct mt_account_reader *reader, size_t index)
{
    return index < reader->n_events ? at(reader, index) : NULL;
}

static size_t slot_of(const struct mt_account_reader *reader, uint64_t pid, uint64_t object)
{
    uint64_t hash = (object ^ pid << 40) * UINT64_C(0x9e3779b97f4a7c15);
    size_t mask = reader->live_capacity - 1;
    size_t slot = (size_t)(hash >> 32) & mask;
    while (reader->live[slot].event &&
           (reader->live[slot].pid != pid || reader->live[slot].object != object))
        slot = (slot + 1) & mask;
    return slot;
}

/* Room for one more, at most half full. */
static int grow_live(struct mt_account_reader *reader)
{
    struct mt_live *old = reader->live;
    size_t n_old = reader->live_capacity;
    if (reader->n_live * 2 < n_old)
        return 1;
    size_t capacity = n_old ? n_old * 2 : 256;
    struct mt_live *live = calloc(capacity, sizeof *live);
    if (!live)
        return 0;
    reader->live = live;
    reader->live_capacity = capacity;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].event)
            live[slot_of(reader, old[i].pid, old[i].object)] = old[i];
    free(old);
    return 1;
}

/* Empties a slot and moves up what had to step aside for it. */
static void empty_slot(struct mt_account_reader *reader, size_t slot)
{
    size_t mask = reader->live_capacity - 1;
    reader->live[slot].event = 0;
    reader->n_live--;
    for (size_t i = (slot + 1) & mask; reader->live[i].event; i = (i + 1) & mask) {
        struct mt_live moved = reader->live[i];
        reader->live[i].event = 0;
        reader->live[slot_of(reader, moved.pid, moved.object)] = moved;
    }
}

static struct mt_noted *append(struct mt_account_reader *reader)
{
    size_t chunk = reader->n_events / MT_READER_CHUNK;
    if (chunk >= MT_READER_CHUNKS)
        return NULL;
    if (!reader->chunks[chunk])
        reader->chunks[chunk] = calloc(MT_READER_CHUNK, sizeof **reader->chunks);
    if (!reader->chunks[chunk])
        return NULL;
    struct mt_noted *noted = at(reader, reader->n_events++);
    noted->freed_at = SIZE_MAX;
    return noted;
}

/* A text of the account, which may fill its array to the last byte. */
static const char *own_text(struct mt_account_reader *reader, const char *text, size_t size)
{
    size_t length = strnlen(text, size);
    const char *copy = length ? mt_arena_copy(&reader->texts, text, length) : "";
    reader->out_of_memory |= !copy;
    return copy ? copy : "";
}

static uint64_t since_start(const struct mt_account_reader *reader, uint64_t time_ns)
{
    return time_ns > reader->account->start_ns ? time_ns - reader->account->start_ns : 0;
}

/* The end of a buffer, with what it was. */
static void add_free(struct mt_account_reader *reader, size_t slot, uint64_t time_ns)
{
    size_t index = reader->live[slot].event - 1;
    struct mt_noted *noted = append(reader);
    if (!noted) {
        reader->out_of_memory = 1;
        return;
    }
    noted->event = at(reader, index)->event;
    noted->event.kind = MT_REHEARSAL_FREE;
    noted->event.time_ns = time_ns;
    noted->object = at(reader, index)->object;
    noted->was_told = at(reader, index)->was_told;
    at(reader, index)->freed_at = reader->n_events - 1;
    empty_slot(reader, slot);
}

static void fill(struct mt_account_reader *reader, struct mt_noted *noted,
                 const struct mt_account_event *raw, enum mt_rehearsal_event_kind kind)
{
    noted->event = (struct mt_rehearsal_event){
        .kind = kind,
        .time_ns = since_start(reader, raw->time_ns),
        .pid = raw->pid,
        .place = mt_place_name(raw->place),
        .category =
            raw->category < MT_CATEGORY_END ? (enum mt_category)raw->category : MT_CATEGORY_NONE,
        .flags = raw->flags,
        .bytes = raw->bytes,
        .free_bytes = raw->free_bytes,
        .name = own_text(reader, raw->name, sizeof raw->name),
        .detail = own_text(reader, raw->detail, sizeof raw->detail),
    };
    noted->object = raw->object;
}

static void add(struct mt_account_reader *reader, const struct mt_account_event *raw,
                enum mt_rehearsal_event_kind kind)
{
    struct mt_noted *noted = append(reader);
    if (noted)
        fill(reader, noted, raw, kind);
    else
        reader->out_of_memory = 1;
}

/* An object that is made again was freed in a way that nobody saw. */
static void add_alloc(struct mt_account_reader *reader, const struct mt_account_event *raw)
{
    if (!grow_live(reader)) {
        reader->out_of_memory = 1;
        return;
    }
    size_t slot = slot_of(reader, raw->pid, raw->object);
    if (reader->live[slot].event) {
        add_free(reader, slot, since_start(reader, raw->time_ns));
        slot = slot_of(reader, raw->pid, raw->object);
    }
    size_t index = reader->n_events;
    add(reader, raw, MT_REHEARSAL_ALLOC);
    if (reader->n_events == index)
        return;
    reader->live[slot] = (struct mt_live){raw->pid, raw->object, index + 1};
    reader->n_live++;
}

/* What processes share is there once, whoever holds it: as an object of no process. */
static struct mt_account_event of_nobody(const struct mt_account_event *raw)
{
    struct mt_account_event event = *raw;
    event.pid = 0;
    return event;
}

static int add_holder(struct mt_account_reader *reader, const struct mt_account_event *raw)
{
    if (mt_array_reserve(reader->holders, reader->n_holders, reader->holders_capacity, 64) < 0)
        return 0;
    reader->holders[reader->n_holders++] = (struct mt_holder){raw->pid, raw->object};
    return 1;
}

static size_t count_holders(const struct mt_account_reader *reader, uint64_t object)
{
    size_t n = 0;
    for (size_t i = 0; i < reader->n_holders; i++)
        n += reader->holders[i].object == object;
    return n;
}

static void add_shared_alloc(struct mt_account_reader *reader, const struct mt_account_event *raw)
{
    struct mt_account_event event = of_nobody(raw);
    size_t n = reader->n_events;
    if (!add_holder(reader, raw)) {
        reader->out_of_memory = 1;
        return;
    }
    if (count_holders(reader, raw->object) > 1)
        return;
    add_alloc(reader, &event);
    if (reader->n_events > n)
        at(reader, reader->n_events - 1)->event.pid = raw->pid;
}

static struct mt_noted *noted_of(const struct mt_account_reader *reader,
                                 const struct mt_account_event *raw, size_t *slot)
{
    if (!reader->n_live)
        return NULL;
    *slot = slot_of(reader, raw->pid, raw->object);
    return reader->live[*slot].event ? at(reader, reader->live[*slot].event - 1) : NULL;
}

/* A part of an allocation: kept for who knows its parts. */
static void keep_told(struct mt_account_reader *reader, const struct mt_account_event *raw)
{
    if (!reader->account->cuda.driver_version || !raw->category || raw->category >= MT_CATEGORY_END)
        return;
    if (mt_array_reserve(reader->told, reader->n_told, reader->told_capacity, 64) < 0) {
        reader->out_of_memory = 1;
        return;
    }
    reader->told[reader->n_told++] =
        (struct mt_purpose){.pid = raw->pid,
                            .category = (enum mt_category)raw->category,
                            .object = raw->object,
                            .bytes = raw->bytes,
                            .time_ns = raw->time_ns,
                            .name = own_text(reader, raw->detail, sizeof raw->detail)};
}

/* What a buffer is for is often known after it was made only; then it always was for that. */
static void refine(struct mt_account_reader *reader, const struct mt_account_event *raw)
{
    size_t slot;
    struct mt_noted *noted = noted_of(reader, raw, &slot);
    if (noted && raw->free_bytes) {
        noted->object = raw->free_bytes;
        return;
    }
    if (!noted || (raw->bytes && raw->bytes < noted->event.bytes / 2)) {
        keep_told(reader, raw);
        return;
    }
    /* What a library has all of now may be something else's before and after. */
    if (!noted->event.category || noted->was_told)
        keep_told(reader, raw);
    if (raw->category && raw->category < MT_CATEGORY_END) {
        noted->was_told |= !noted->event.category;
        noted->event.category = (enum mt_category)raw->category;
    }
    if (raw->detail[0])
        noted->event.detail = own_text(reader, raw->detail, sizeof raw->detail);
}

/* A process holds the object no more; the last one frees it. */
static void drop_holder(struct mt_account_reader *reader, size_t holder, uint64_t time_ns)
{
    struct mt_account_event event = {.object = reader->holders[holder].object};
    size_t slot;
    reader->holders[holder] = reader->holders[--reader->n_holders];
    if (count_holders(reader, event.object) == 0 && noted_of(reader, &event, &slot))
        add_free(reader, slot, time_ns);
}

static void add_shared_free(struct mt_account_reader *reader, const struct mt_account_event *raw)
{
    for (size_t i = 0; i < reader->n_holders; i++) {
        if (reader->holders[i].pid != raw->pid || reader->holders[i].object != raw->object)
            continue;
        drop_holder(reader, i, since_start(reader, raw->time_ns));
        return;
    }
}

/* The account's list is the program's to write: nothing of it is believed that makes no sense. */
void mt_account_reader_release_shared(struct mt_account_reader *reader, uint64_t pid)
{
    struct mt_account *account = reader->account;
    for (size_t i = 0; i < reader->n_holders; i++) {
        uint64_t slot = reader->holders[i].object & 0xFFFF;
        if (reader->holders[i].pid != pid || slot >= MT_ACCOUNT_SHARED_MAX)
            continue;
        struct mt_account_shared *shared = &account->shared[slot];
        uint64_t bytes = shared->bytes;
        uint32_t place = shared->place;
        if (__atomic_load_n(&shared->holders, __ATOMIC_ACQUIRE) == 0 ||
            __atomic_sub_fetch(&shared->holders, 1, __ATOMIC_ACQ_REL) > 0)
            continue;
        if (place < account->n_devices)
            mt_account_give_back(account, (uint8_t)place, bytes,
                                 mt_account_held(&account->rules, bytes));
    }
}

static void end_process(struct mt_account_reader *reader, const struct mt_account_event *raw)
{
    for (size_t i = 0; i < reader->live_capacity; i++)
        while (reader->live[i].event && reader->live[i].pid == raw->pid && !reader->out_of_memory)
            add_free(reader, i, since_start(reader, raw->time_ns));
    for (size_t i = reader->n_holders; i-- > 0;)
        if (reader->holders[i].pid == raw->pid)
            drop_holder(reader, i, since_start(reader, raw->time_ns));
    add(reader, raw, MT_REHEARSAL_MARK);
}

/* A sentence may be longer than a name: it goes on in the detail. */
static void add_note(struct mt_account_reader *reader, const struct mt_account_event *raw)
{
    char text[sizeof raw->name + sizeof raw->detail + 1];
    size_t index = reader->n_events;
    snprintf(text, sizeof text, "%.*s%.*s", (int)strnlen(raw->name, sizeof raw->name), raw->name,
             (int)strnlen(raw->detail, sizeof raw->detail), raw->detail);
    add(reader, raw, MT_REHEARSAL_NOTE);
    if (reader->n_events == index)
        return;
    at(reader, index)->event.name = own_text(reader, text, sizeof text);
    at(reader, index)->event.detail = "";
}

/* A device gives memory out in whole granules, so that more is missing than the bytes asked for. */
static uint64_t missing_bytes(const struct mt_account_reader *reader,
                              const struct mt_account_event *raw)
{
    int is_host = raw->place == MT_ACCOUNT_HOST;
    uint64_t held = is_host ? raw->bytes : mt_account_held(&reader->account->rules, raw->bytes);
    return held > raw->free_bytes ? held - raw->free_bytes : 0;
}

/* A device refuses a buffer before the engine says what it is for. If the engine planned it, it
 * said so then. */
static void add_refusal(struct mt_account_reader *reader, const struct mt_account_event *raw)
{
    size_t index = reader->n_events;
    add(reader, raw, MT_REHEARSAL_REFUSED);
    if (reader->n_events == index)
        return;
    struct mt_rehearsal_event *refused = &at(reader, index)->event;
    refused->missing_bytes = missing_bytes(reader, raw);
    if (refused->category)
        return;
    for (size_t i = index; i-- > 0 && index - i <= LOOK_BACK;) {
        const struct mt_rehearsal_event *planned = &at(reader, i)->event;
        if (planned->kind != MT_REHEARSAL_ALLOC || !(planned->flags & MT_REHEARSAL_PLANNED) ||
            planned->bytes != refused->bytes || strcmp(planned->place, refused->place) != 0)
            continue;
        refused->category = planned->category;
        if (!*refused->detail)
            refused->detail = planned->detail;
        return;
    }
}

static void take(struct mt_account_reader *reader, const struct mt_account_event *raw,
                 uint32_t kind)
{
    size_t slot;
    if (raw->place >= reader->account->n_devices && raw->place != MT_ACCOUNT_HOST) {
        reader->n_skipped++;
        return;
    }
    switch (kind) {
    case MT_ACCOUNT_ALLOC:
        if (raw->object & MT_ACCOUNT_SHARED)
            add_shared_alloc(reader, raw);
        else
            add_alloc(reader, raw);
        break;
    case MT_ACCOUNT_FREE:
        if (raw->object & MT_ACCOUNT_SHARED)
            add_shared_free(reader, raw);
        else if (noted_of(reader, raw, &slot))
            add_free(reader, slot, since_start(reader, raw->time_ns));
        break;
    case MT_ACCOUNT_USAGE:
        refine(reader, raw);
        break;
    case MT_ACCOUNT_REFUSE:
        add_refusal(reader, raw);
        break;
    case MT_ACCOUNT_MARK:
        add(reader, raw, MT_REHEARSAL_MARK);
        break;
    case MT_ACCOUNT_NOTE:
        add_note(reader, raw);
        break;
    case MT_ACCOUNT_END:
        end_process(reader, raw);
        break;
    default:
        reader->n_skipped++;
    }
}

/* A process that is killed while it writes leaves a hole that nobody fills. One that lives fills
 * its hole, however long a busy machine lets it wait. */
static int is_given_up(struct mt_account_reader *reader, const struct mt_account_event *raw,
                       uint64_t now_ns, int is_final)
{
    uint32_t writer = __atomic_load_n(&raw->pid, __ATOMIC_ACQUIRE);
    if (!reader->hole_since_ns)
        reader->hole_since_ns = now_ns;
    uint64_t waited_ns = now_ns - reader->hole_since_ns;
    if (is_final || waited_ns > CLAIM_NS)
        return is_final || !writer || mt_program_is_gone(writer);
    return waited_ns > HOLE_NS && writer && mt_program_is_gone(writer);
}

void mt_account_reader_read(struct mt_account_reader *reader, uint64_t now_ns, int is_final)
{
    uint64_t n = __atomic_load_n(&reader->account->n_events, __ATOMIC_ACQUIRE);
    if (n > MT_ACCOUNT_EVENTS_MAX)
        n = MT_ACCOUNT_EVENTS_MAX;
    for (; reader->next < n && !reader->out_of_memory; reader->next++) {
        const struct mt_account_event *raw = &reader->account->event[reader->next];
        uint32_t kind = __atomic_load_n(&raw->kind, __ATOMIC_ACQUIRE);
        if (kind == MT_ACCOUNT_NONE && !is_given_up(reader, raw, now_ns, is_final))
            return;
        /* The writer may have filled it before it ended. */
        if (kind == MT_ACCOUNT_NONE)
            kind = __atomic_load_n(&raw->kind, __ATOMIC_ACQUIRE);
        reader->hole_since_ns = 0;
        if (kind == MT_ACCOUNT_NONE) {
            reader->n_unwritten++;
            continue;
        }
        if (raw->time_ns > reader->last_ns && raw->time_ns <= now_ns)
            reader->last_ns = raw->time_ns;
        take(reader, raw, kind);
    }
}

uint64_t mt_account_reader_held(const struct mt_account_reader *reader, uint64_t pid,
                                const char *place, const struct mt_pretend_rules *rules)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < reader->live_capacity; i++) {
        const struct mt_live *live = &reader->live[i];
        if (!live->event || live->pid != pid)
            continue;
        const struct mt_rehearsal_event *event = &at(reader, live->event - 1)->event;
        if (strcmp(event->place, place) != 0 ||
            event->flags & (MT_REHEARSAL_MAPPED | MT_REHEARSAL_PLANNED))
            continue;
        uint64_t bytes = rules ? mt_account_held(rules, event->bytes) : event->bytes;
        if (__builtin_add_overflow(sum, bytes, &sum))
            return UINT64_MAX;
    }
    return sum;
}

void mt_account_reader_finish(struct mt_account_reader *reader)
{
    for (size_t i = 0; i < MT_READER_CHUNKS; i++)
        free(reader->chunks[i]);
    free(reader->live);
    free(reader->holders);
    free(reader->told);
    mt_arena_finish(&reader->texts);
}
