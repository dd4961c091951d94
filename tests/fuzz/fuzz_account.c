/* SPDX-License-Identifier: MIT */
/* The account's events, eight bytes for each, read in two portions and held against lists that are
 * searched from end to end. */
#include <stdlib.h>
#include <string.h>

#include "rehearse/rehearsal.h"

#define MOST     512u /* events */
#define DEVICES  2u
#define LEFT_OUT (MT_ACCOUNT_MAPPED | MT_ACCOUNT_PLANNED)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

struct thing {
    uint32_t owner;
    uint64_t object;
    uint64_t bytes; /* 0: it does not count */
    uint8_t place;
};

struct list {
    struct thing items[MOST];
    size_t n;
};

/* What is there, and what processes share: an item for each time that one said it holds it. */
struct plain {
    struct list live;
    struct list shared;
};

static size_t find(const struct list *list, uint32_t owner, uint64_t object)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i].owner == owner && list->items[i].object == object)
            return i;
    return SIZE_MAX;
}

static int take(struct list *list, uint32_t owner, uint64_t object)
{
    size_t i = find(list, owner, object);
    if (i == SIZE_MAX)
        return 0;
    list->items[i] = list->items[--list->n];
    return 1;
}

static size_t count(const struct list *list, uint64_t object)
{
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++)
        n += list->items[i].object == object;
    return n;
}

static void drop(struct plain *plain, uint32_t pid, uint64_t object)
{
    if (take(&plain->shared, pid, object) && count(&plain->shared, object) == 0)
        take(&plain->live, 0, object);
}

static void end(struct plain *plain, uint32_t pid)
{
    for (size_t i = plain->live.n; i-- > 0;)
        if (plain->live.items[i].owner == pid)
            plain->live.items[i] = plain->live.items[--plain->live.n];
    for (size_t i = 0; i < plain->shared.n;)
        if (plain->shared.items[i].owner == pid)
            drop(plain, pid, plain->shared.items[i].object);
        else
            i++;
}

static void follow(struct plain *plain, const struct mt_account_event *event)
{
    int is_shared = (event->object & MT_ACCOUNT_SHARED) != 0;
    struct thing thing = {is_shared ? 0 : event->pid, event->object,
                          event->flags & LEFT_OUT ? 0 : event->bytes, event->place};
    if (event->place >= DEVICES && event->place != MT_ACCOUNT_HOST)
        return;
    if (event->kind == MT_ACCOUNT_ALLOC && is_shared) {
        plain->shared.items[plain->shared.n++] = (struct thing){event->pid, event->object, 0, 0};
        if (count(&plain->shared, event->object) > 1)
            return;
    }
    if (event->kind == MT_ACCOUNT_ALLOC) {
        take(&plain->live, thing.owner, thing.object);
        plain->live.items[plain->live.n++] = thing;
    }
    if (event->kind == MT_ACCOUNT_FREE && is_shared)
        drop(plain, event->pid, event->object);
    else if (event->kind == MT_ACCOUNT_FREE)
        take(&plain->live, event->pid, event->object);
    if (event->kind == MT_ACCOUNT_END)
        end(plain, event->pid);
}

static void fill(struct mt_account_event *event, const uint8_t *from)
{
    memset(event, 0, sizeof *event);
    event->kind = 1 + from[0] % (MT_ACCOUNT_END + 1u); /* one of them is no kind */
    event->place = from[1] % 4 < DEVICES ? from[1] % 4 : from[1] % 4 == 2 ? MT_ACCOUNT_HOST : 9;
    event->category = from[2];
    event->flags = from[3] & 7;
    event->pid = from[4] % 4;
    event->object = from[5] % 16 | (from[5] & 16 ? MT_ACCOUNT_SHARED : 0);
    event->bytes = from[6];
    event->free_bytes = from[7] & 1 ? from[7] : 0;
    memset(event->name, 'n', from[7] & 2 ? sizeof event->name : 1);
    memset(event->detail, 'd', from[7] & 4 ? sizeof event->detail : 1);
}

static void check_sums(const struct mt_account_reader *reader, const struct plain *plain)
{
    static const uint8_t places[] = {0, 1, MT_ACCOUNT_HOST};
    for (uint32_t pid = 0; pid < 4; pid++)
        for (size_t i = 0; i < sizeof places; i++) {
            uint64_t sum = 0;
            for (size_t k = 0; k < plain->live.n; k++)
                if (plain->live.items[k].owner == pid && plain->live.items[k].place == places[i])
                    sum += plain->live.items[k].bytes;
            if (mt_account_reader_held(reader, pid, mt_place_name(places[i]), NULL) != sum)
                abort();
        }
}

static void check_events(const struct mt_account_reader *reader, const struct plain *plain)
{
    const struct mt_noted *noted;
    const struct mt_noted *freed;
    size_t n_live = 0;
    for (size_t i = 0; (noted = mt_account_reader_at(reader, i)) != NULL; i++) {
        if (noted->event.kind != MT_REHEARSAL_ALLOC)
            continue;
        n_live += noted->freed_at == SIZE_MAX;
        freed = noted->freed_at == SIZE_MAX ? noted : mt_account_reader_at(reader, noted->freed_at);
        if (!freed || freed->event.bytes != noted->event.bytes)
            abort();
        if (noted->freed_at != SIZE_MAX && freed->event.kind != MT_REHEARSAL_FREE)
            abort();
    }
    if (n_live != plain->live.n || reader->out_of_memory)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length)
{
    static struct mt_account account; /* of which no more than the first events are written */
    static struct plain plain;
    struct mt_account_reader reader = {.account = &account};
    size_t n = length / 8 < MOST ? length / 8 : MOST;
    plain.live.n = plain.shared.n = 0;
    account.n_devices = DEVICES;
    for (size_t i = 0; i < n; i++) {
        fill(&account.event[i], data + 8 * i);
        follow(&plain, &account.event[i]);
        account.n_events = i + 1;
        if (i == n / 2)
            mt_account_reader_read(&reader, UINT64_MAX, 0);
    }
    account.n_events = n;
    mt_account_reader_read(&reader, UINT64_MAX, 1);
    check_sums(&reader, &plain);
    check_events(&reader, &plain);
    mt_account_reader_finish(&reader);
    return 0;
}
