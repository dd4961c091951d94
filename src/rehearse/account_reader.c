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
#define ALL       (UINT64_C(1) << 62)   /* an owner that is no process: how many hold an object */

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

static struct mt_owned_entry *owned_of_noted(const void *reader, size_t index)
{
    return &at(reader, index)->owned;
}

static struct mt_owned_entry *owned_of_holder(const void *reader, size_t index)
{
    return &((const struct mt_account_reader *)reader)->holders[index].owned;
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
static void add_free(struct mt_account_reader *reader, size_t index, uint64_t time_ns)
{
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
    mt_owned_take(&reader->live, reader, owned_of_noted, index);
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
        .free_bytes = raw->kind == MT_ACCOUNT_REFUSE ? raw->free_bytes : 0,
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
    size_t before = mt_owned_get(&reader->live, raw->pid, raw->object);
    if (before)
        add_free(reader, before - 1, since_start(reader, raw->time_ns));
    size_t index = reader->n_events;
    add(reader, raw, MT_REHEARSAL_ALLOC);
    if (reader->n_events == index)
        return;
    at(reader, index)->owned = (struct mt_owned_entry){.owner = raw->pid, .object = raw->object};
    reader->out_of_memory |= !mt_owned_put(&reader->live, reader, owned_of_noted, index);
}

/* What processes share is there once, whoever holds it: as an object of no process. */
static struct mt_account_event of_nobody(const struct mt_account_event *raw)
{
    struct mt_account_event event = *raw;
    event.pid = 0;
    return event;
}

/* How often a shared object is held, over all processes. */
static size_t count_holders(const struct mt_account_reader *reader, uint64_t object)
{
    return mt_owned_get(&reader->holdings, ALL, object);
}

static int add_holder(struct mt_account_reader *reader, const struct mt_account_event *raw)
{
    size_t n = count_holders(reader, raw->object);
    size_t before = mt_owned_get(&reader->holdings, raw->pid, raw->object);
    if (!mt_owned_set(&reader->holdings, ALL, raw->object, n + 1))
        return 0;
    if (before) {
        reader->holders[before - 1].n++;
        return 1;
    }
    if (mt_array_reserve(reader->holders, reader->n_holders, reader->holders_capacity, 64) < 0)
        return 0;
    reader->holders[reader->n_holders] =
        (struct mt_holder){.owned = {.owner = raw->pid, .object = raw->object}, .n = 1};
    return mt_owned_put(&reader->holdings, reader, owned_of_holder, reader->n_holders++);
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

/* The buffer that is there of an object, or NULL. */
static struct mt_noted *noted_of(const struct mt_account_reader *reader,
                                 const struct mt_account_event *raw)
{
    size_t number = mt_owned_get(&reader->live, raw->pid, raw->object);
    return number ? at(reader, number - 1) : NULL;
}

/* A part of an allocation: kept for who knows its parts. */
static void keep_told(struct mt_account_reader *reader, const struct mt_account_event *raw)
{
    if (!reader->account->cuda.driver_version || raw->category >= MT_CATEGORY_END)
        return;
    size_t before = mt_owned_get(&reader->told_last, raw->pid, raw->object);
    if (before)
        reader->told[before - 1].end_ns = raw->time_ns;
    if (!raw->category) {
        mt_owned_set(&reader->told_last, raw->pid, raw->object, 0);
        return;
    }
    if (mt_array_reserve(reader->told, reader->n_told, reader->told_capacity, 64) < 0) {
        reader->out_of_memory = 1;
        return;
    }
    reader->told[reader->n_told++] =
        (struct mt_purpose){.pid = raw->pid,
                            .place = raw->place,
                            .category = (enum mt_category)raw->category,
                            .object = raw->object,
                            .bytes = raw->bytes,
                            .time_ns = raw->time_ns,
                            .end_ns = UINT64_MAX,
                            .name = own_text(reader, raw->detail, sizeof raw->detail)};
    reader->out_of_memory |=
        !mt_owned_set(&reader->told_last, raw->pid, raw->object, reader->n_told);
}

int mt_noted_is_pool(const struct mt_noted *noted)
{
    return !noted->event.category && strcmp(noted->event.name, MT_ACCOUNT_POOL_NAME) == 0;
}

/* What a buffer is for is often known after it was made only; then it always was for that. */
static void refine(struct mt_account_reader *reader, const struct mt_account_event *raw)
{
    struct mt_noted *noted = noted_of(reader, raw);
    if (noted && raw->address) {
        noted->object = raw->address;
        return;
    }
    if (!noted || mt_noted_is_pool(noted) || (raw->bytes && raw->bytes < noted->event.bytes / 2)) {
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

/* A process holds the object once less; the last one frees it. */
static void drop_holder(struct mt_account_reader *reader, size_t index, uint64_t time_ns)
{
    struct mt_holder *holder = &reader->holders[index];
    uint64_t object = holder->owned.object;
    size_t n = count_holders(reader, object) - 1;
    size_t number = mt_owned_get(&reader->live, 0, object);
    if (--holder->n == 0)
        mt_owned_take(&reader->holdings, reader, owned_of_holder, index);
    mt_owned_set(&reader->holdings, ALL, object, n);
    if (n == 0 && number)
        add_free(reader, number - 1, time_ns);
}

static void add_shared_free(struct mt_account_reader *reader, const struct mt_account_event *raw)
{
    size_t number = mt_owned_get(&reader->holdings, raw->pid, raw->object);
    if (number)
        drop_holder(reader, number - 1, since_start(reader, raw->time_ns));
}

/* The account's list is the program's to write: nothing of it is believed that makes no sense. */
static void release(struct mt_account *account, uint64_t slot)
{
    struct mt_account_shared *shared = &account->shared[slot];
    uint64_t bytes = shared->bytes;
    uint32_t place = shared->place;
    if (__atomic_load_n(&shared->holders, __ATOMIC_ACQUIRE) == 0 ||
        __atomic_sub_fetch(&shared->holders, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    if (place < account->n_devices)
        mt_account_give_back(account, (uint8_t)place, bytes,
                             mt_account_held(&account->rules, bytes));
}

void mt_account_reader_release_shared(struct mt_account_reader *reader, uint32_t pid)
{
    for (size_t number = mt_owned_newest(&reader->holdings, pid); number;
         number = reader->holders[number - 1].owned.next) {
        const struct mt_holder *holder = &reader->holders[number - 1];
        uint64_t slot = holder->owned.object & 0xFFFF;
        for (size_t i = 0; slot < MT_ACCOUNT_SHARED_MAX && i < holder->n; i++)
            release(reader->account, slot);
    }
}

static void end_process(struct mt_account_reader *reader, const struct mt_account_event *raw)
{
    uint64_t time_ns = since_start(reader, raw->time_ns);
    size_t number;
    while ((number = mt_owned_newest(&reader->live, raw->pid)) && !reader->out_of_memory)
        add_free(reader, number - 1, time_ns);
    while ((number = mt_owned_newest(&reader->holdings, raw->pid)))
        drop_holder(reader, number - 1, time_ns);
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
    size_t number;
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
        else if ((number = mt_owned_get(&reader->live, raw->pid, raw->object)))
            add_free(reader, number - 1, since_start(reader, raw->time_ns));
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

uint64_t mt_account_reader_held(const struct mt_account_reader *reader, uint32_t pid,
                                const char *place, const struct mt_pretend_rules *rules)
{
    uint64_t sum = 0;
    const struct mt_noted *noted;
    for (size_t number = mt_owned_newest(&reader->live, pid); number; number = noted->owned.next) {
        noted = at(reader, number - 1);
        const struct mt_rehearsal_event *event = &noted->event;
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
    free(reader->live.slots);
    free(reader->holdings.slots);
    free(reader->holders);
    free(reader->told);
    free(reader->told_last.slots);
    mt_arena_finish(&reader->texts);
}
