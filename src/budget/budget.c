/* SPDX-License-Identifier: MIT */
/* Who may have what (include/memtally/budget.h). Knows requests and places; the file is another's.
 */
#include "budget/file.h"

#include "base/error.h"
#include "base/fail_errno.h"

#include <stdlib.h>
#include <string.h>

/* "gpu*" is any place that starts with "gpu". */
static int is_any(const char *place)
{
    size_t length = strlen(place);
    return length > 0 && place[length - 1] == '*';
}

static int check_needs(const struct mt_budget_need *needs, size_t n, struct mt_error *error)
{
    if (n == 0 || n > MT_BUDGET_PLACES)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "ask for 1 to %d places", MT_BUDGET_PLACES);
    for (size_t i = 0; i < n; i++) {
        if (!needs[i].place[0] || !memchr(needs[i].place, '\0', MT_BUDGET_PLACE_BYTES))
            return mt_fail(error, MT_EARG, MT_NO_OFFSET, "name each place in 1 to %d bytes",
                           MT_BUDGET_PLACE_BYTES - 1);
        for (size_t j = 0; j < i; j++)
            if (!is_any(needs[i].place) && strcmp(needs[i].place, needs[j].place) == 0)
                return mt_fail(error, MT_EARG, MT_NO_OFFSET, "name the place %s once",
                               needs[i].place);
    }
    return 0;
}

static int put_request(struct mt_budget_file *file, const struct mt_budget_need *needs, size_t n,
                       uint64_t *id, struct mt_error *error)
{
    struct mt_process self;
    int status = mt_process_read(&file->os->host, file->os->pid, &self, error);
    if (status < 0)
        return status;
    for (size_t i = 0; i < MT_BUDGET_HOLDERS; i++) {
        struct mt_budget_slot *slot = &file->slots[i];
        if (slot->holder.id)
            continue;
        slot->boot = file->boot;
        slot->namespace = file->namespace;
        slot->start_ticks = self.start_ticks;
        slot->holder.id = file->next_id++;
        slot->holder.pid = self.pid;
        slot->holder.n_needs = (uint32_t)n;
        for (size_t k = 0; k < n; k++) {
            strcpy(slot->holder.needs[k].place, needs[k].place);
            slot->holder.needs[k].bytes = needs[k].bytes;
        }
        status = mt_budget_write(file, i, 1, error);
        if (status == 0)
            *id = slot->holder.id;
        return status;
    }
    return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET,
                   "%d processes wait or hold already; try again when one has ended",
                   MT_BUDGET_HOLDERS);
}

int mt_budget_ask_in(const struct mt_budget_os *os, const char *path,
                     const struct mt_budget_need *needs, size_t n_needs, uint64_t *id,
                     struct mt_error *error)
{
    struct mt_budget_file *file;
    int status = check_needs(needs, n_needs, error);
    if (status == 0)
        status = mt_budget_open(os, path, &file, error);
    if (status < 0)
        return status;
    status = put_request(file, needs, n_needs, id, error);
    mt_budget_close(file);
    return status;
}

static struct mt_budget_slot *find_own(struct mt_budget_file *file, uint64_t id)
{
    for (size_t i = 0; id && i < MT_BUDGET_HOLDERS; i++) {
        struct mt_budget_slot *slot = &file->slots[i];
        if (slot->holder.id == id && slot->holder.pid == file->os->pid &&
            slot->namespace == file->namespace)
            return slot;
    }
    return NULL;
}

static int open_own(const struct mt_budget_os *os, const char *path, uint64_t id,
                    struct mt_budget_file **file, struct mt_budget_slot **slot,
                    struct mt_error *error)
{
    struct mt_budget_file *opened;
    int status = mt_budget_open(os, path, &opened, error);
    if (status < 0)
        return status;
    struct mt_budget_slot *own = find_own(opened, id);
    if (!own) {
        mt_budget_close(opened);
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "the budget has no such request of this process; ask again");
    }
    *file = opened;
    *slot = own;
    return 0;
}

/* ---- room ---- */

static const struct mt_budget_need *need_of(const struct mt_budget_holder *holder,
                                            const char *place)
{
    for (uint32_t i = 0; i < holder->n_needs; i++)
        if (strcmp(holder->needs[i].place, place) == 0)
            return &holder->needs[i];
    return NULL;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t with_overhead(const struct mt_budget_need *need,
                              const struct mt_budget_place *place)
{
    uint64_t sum;
    return __builtin_add_overflow(need->bytes, place->overhead_bytes, &sum) ? UINT64_MAX : sum;
}

/* What a place has left when all promises are kept. */
static uint64_t room_of(const struct mt_budget_file *file, const struct mt_budget_place *place)
{
    uint64_t room = less(place->free_bytes, place->min_free_bytes);
    uint64_t unpromised = less(place->capacity_bytes, place->min_free_bytes);
    for (size_t i = 0; i < MT_BUDGET_HOLDERS; i++) {
        const struct mt_budget_holder *holder = &file->slots[i].holder;
        const struct mt_budget_need *need = need_of(holder, place->name);
        if (!holder->id || !holder->holds || !need)
            continue;
        room = less(room, less(with_overhead(need, place), need->used_bytes));
        unpromised = less(unpromised, with_overhead(need, place));
    }
    return room < unpromised ? room : unpromised;
}

static int names(const char *wanted, const char *place)
{
    return is_any(wanted) ? strncmp(wanted, place, strlen(wanted) - 1) == 0
                          : strcmp(wanted, place) == 0;
}

/* Gives each need a place with room for it: those with a name first, then the others the first that
 * fits and that the holder has not. Returns 1, with place_of[i] the number of needs[i]'s. */
static int fit(const struct mt_budget_holder *holder, const struct mt_budget_place *places,
               const uint64_t *room, size_t n_places, size_t place_of[MT_BUDGET_PLACES])
{
    uint64_t is_taken[MT_BUDGET_PLACES] = {0}; /* the place's number and 1 */
    for (int any = 0; any <= 1; any++)
        for (uint32_t i = 0; i < holder->n_needs; i++) {
            const struct mt_budget_need *need = &holder->needs[i];
            if (is_any(need->place) != any)
                continue;
            size_t k = 0;
            for (; k < n_places; k++) {
                size_t j = 0;
                while (j < MT_BUDGET_PLACES && is_taken[j] != k + 1)
                    j++;
                if (j == MT_BUDGET_PLACES && names(need->place, places[k].name) &&
                    with_overhead(need, &places[k]) <= room[k])
                    break;
            }
            if (k == n_places)
                return 0;
            place_of[i] = k;
            is_taken[i] = k + 1;
        }
    return 1;
}

static int share_a_place(const struct mt_budget_holder *a, const struct mt_budget_holder *b)
{
    for (uint32_t i = 0; i < a->n_needs; i++)
        for (uint32_t j = 0; j < b->n_needs; j++)
            if (names(a->needs[i].place, b->needs[j].place) ||
                names(b->needs[j].place, a->needs[i].place))
                return 1;
    return 0;
}

static int by_id(const void *left, const void *right)
{
    uint64_t a = (*(struct mt_budget_slot *const *)left)->holder.id;
    uint64_t b = (*(struct mt_budget_slot *const *)right)->holder.id;
    return a < b ? -1 : a > b;
}

static size_t order(struct mt_budget_file *file, struct mt_budget_slot **slots)
{
    size_t n = 0;
    for (size_t i = 0; i < MT_BUDGET_HOLDERS; i++)
        if (file->slots[i].holder.id)
            slots[n++] = &file->slots[i];
    qsort(slots, n, sizeof *slots, by_id);
    return n;
}

/* Lets those who wait longer go first: what fits is set aside for them, and who was passed often
 * enough is passed no more. Returns 0 or MT_EBUSY. `passed` gets those who are passed. */
static int go_before(struct mt_budget_file *file, const struct mt_budget_slot *own,
                     const struct mt_budget_place *places, uint64_t *room, size_t n_places,
                     struct mt_budget_slot **passed, size_t *n_passed, struct mt_error *error)
{
    struct mt_budget_slot *slots[MT_BUDGET_HOLDERS];
    size_t place_of[MT_BUDGET_PLACES];
    size_t n = order(file, slots);
    *n_passed = 0;
    for (size_t i = 0; i < n && slots[i] != own; i++) {
        struct mt_budget_holder *first = &slots[i]->holder;
        if (first->holds || !share_a_place(first, &own->holder))
            continue;
        if (!fit(first, places, room, n_places, place_of)) {
            if (first->n_passed >= MT_BUDGET_PASSES)
                return mt_fail(error, MT_EBUSY, MT_NO_OFFSET,
                               "process %d has waited longer and goes first", first->pid);
            passed[(*n_passed)++] = slots[i];
            continue;
        }
        for (uint32_t k = 0; k < first->n_needs; k++)
            room[place_of[k]] -= with_overhead(&first->needs[k], &places[place_of[k]]);
    }
    return 0;
}

/* Whether there would be room if nobody held anything. Uses `room`. */
static int check_places(const struct mt_budget_holder *holder, const struct mt_budget_place *places,
                        uint64_t *room, size_t n, struct mt_error *error)
{
    size_t place_of[MT_BUDGET_PLACES];
    for (size_t k = 0; k < n; k++)
        room[k] = less(places[k].capacity_bytes, places[k].min_free_bytes);
    for (uint32_t i = 0; i < holder->n_needs; i++) {
        const char *wanted = holder->needs[i].place;
        size_t k = 0;
        while (k < n && !names(wanted, places[k].name))
            k++;
        if (k == n)
            return mt_fail(error, MT_EARG, MT_NO_OFFSET, "there is no place %s", wanted);
        const struct mt_budget_holder alone = {.n_needs = 1, .needs = {holder->needs[i]}};
        if (!fit(&alone, places, room, n, place_of))
            return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET,
                           "%s never has as much; ask for less or lower what stays free", wanted);
    }
    if (!fit(holder, places, room, n, place_of))
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET,
                       "there are never as many places with as much; ask for fewer or for less");
    return 0;
}

/* Those needs that any place would do for get the name of theirs. */
static void settle(struct mt_budget_holder *own, const struct mt_budget_place *places,
                   const size_t *place_of)
{
    own->holds = 1;
    for (uint32_t i = 0; i < own->n_needs; i++)
        if (is_any(own->needs[i].place))
            strcpy(own->needs[i].place, places[place_of[i]].name);
}

static int take(struct mt_budget_file *file, struct mt_budget_slot *own,
                const struct mt_budget_place *places, uint64_t *room, size_t n_places,
                struct mt_error *error)
{
    struct mt_budget_slot *passed[MT_BUDGET_HOLDERS];
    size_t n_passed;
    size_t place_of[MT_BUDGET_PLACES];
    int status = check_places(&own->holder, places, room, n_places, error);
    if (status < 0)
        return status;
    for (size_t k = 0; k < n_places; k++)
        room[k] = room_of(file, &places[k]);
    status = go_before(file, own, places, room, n_places, passed, &n_passed, error);
    if (status < 0)
        return status;
    if (!fit(&own->holder, places, room, n_places, place_of))
        return mt_fail(error, MT_EBUSY, MT_NO_OFFSET, "there is no room now; ask again later");
    for (size_t i = 0; status == 0 && i < n_passed; i++) {
        passed[i]->holder.n_passed++;
        status = mt_budget_write(file, (size_t)(passed[i] - file->slots), 0, error);
    }
    if (status < 0)
        return status;
    settle(&own->holder, places, place_of);
    return mt_budget_write(file, (size_t)(own - file->slots), 0, error);
}

int mt_budget_take_in(const struct mt_budget_os *os, const char *path, uint64_t id,
                      const struct mt_budget_place *places, size_t n_places, struct mt_error *error)
{
    struct mt_budget_file *file;
    struct mt_budget_slot *own;
    int status = open_own(os, path, id, &file, &own, error);
    if (status < 0)
        return status;
    uint64_t *room = calloc(n_places + 1, sizeof *room);
    if (!room)
        status = mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory to look for room");
    for (size_t k = 0; status == 0 && k < n_places; k++)
        if (strlen(places[k].name) >= MT_BUDGET_PLACE_BYTES)
            status = mt_fail(error, MT_EARG, MT_NO_OFFSET, "name each place in 1 to %d bytes",
                             MT_BUDGET_PLACE_BYTES - 1);
    if (status == 0 && !own->holder.holds)
        status = take(file, own, places, room, n_places, error);
    free(room);
    mt_budget_close(file);
    return status;
}

int mt_budget_renew_in(const struct mt_budget_os *os, const char *path, uint64_t id,
                       const char *place, uint64_t used_bytes, struct mt_error *error)
{
    struct mt_budget_file *file;
    struct mt_budget_slot *own;
    int status = open_own(os, path, id, &file, &own, error);
    if (status < 0)
        return status;
    status = MT_ENOTFOUND;
    for (uint32_t i = 0; i < own->holder.n_needs; i++) {
        struct mt_budget_need *need = &own->holder.needs[i];
        if (strcmp(need->place, place) != 0)
            continue;
        need->used_bytes = used_bytes < need->bytes ? used_bytes : need->bytes;
        status = mt_budget_write(file, (size_t)(own - file->slots), 0, error);
    }
    if (status == MT_ENOTFOUND)
        mt_fail(error, status, MT_NO_OFFSET, "nothing of %s was asked for", place);
    mt_budget_close(file);
    return status;
}

int mt_budget_guard_in(const struct mt_budget_os *os, const char *path, uint64_t id, int *fd,
                       struct mt_error *error)
{
    struct mt_budget_file *file;
    struct mt_budget_slot *own;
    int status = open_own(os, path, id, &file, &own, error);
    if (status < 0)
        return status;
    int guard = os->open(os->context, path);
    int failed = guard < 0 ? guard : os->hold(os->context, guard, mt_budget_guard_of(id));
    if (failed) {
        status = mt_fail_errno(error, -failed, "cannot lock the budget's file %s", path);
    } else {
        own->is_guarded = 1;
        status = mt_budget_write(file, (size_t)(own - file->slots), 0, error);
    }
    if (status == 0)
        *fd = guard;
    else if (guard >= 0)
        os->close(os->context, guard);
    mt_budget_close(file);
    return status;
}

int mt_budget_release_in(const struct mt_budget_os *os, const char *path, uint64_t id,
                         struct mt_error *error)
{
    struct mt_budget_file *file;
    struct mt_budget_slot *own;
    int status = open_own(os, path, id, &file, &own, error);
    if (status < 0)
        return status;
    memset(own, 0, sizeof *own);
    status = mt_budget_write(file, (size_t)(own - file->slots), 0, error);
    mt_budget_close(file);
    return status;
}

int mt_budget_list_in(const struct mt_budget_os *os, const char *path,
                      struct mt_budget_holder *holders, size_t *n, size_t *n_damaged,
                      struct mt_error *error)
{
    struct mt_budget_file *file;
    struct mt_budget_slot *slots[MT_BUDGET_HOLDERS];
    int status = mt_budget_open(os, path, &file, error);
    if (status < 0)
        return status;
    size_t count = order(file, slots);
    for (size_t i = 0; i < count; i++)
        holders[i] = slots[i]->holder;
    *n = count;
    if (n_damaged)
        *n_damaged = file->n_damaged;
    mt_budget_close(file);
    return 0;
}

/* ---- on this machine ---- */

int mt_budget_ask(const char *path, const struct mt_budget_need *needs, size_t n_needs,
                  uint64_t *id, struct mt_error *error)
{
    struct mt_budget_os os;
    mt_budget_os_init(&os);
    return mt_budget_ask_in(&os, path, needs, n_needs, id, error);
}

int mt_budget_take(const char *path, uint64_t id, const struct mt_budget_place *places,
                   size_t n_places, struct mt_error *error)
{
    struct mt_budget_os os;
    mt_budget_os_init(&os);
    return mt_budget_take_in(&os, path, id, places, n_places, error);
}

int mt_budget_renew(const char *path, uint64_t id, const char *place, uint64_t used_bytes,
                    struct mt_error *error)
{
    struct mt_budget_os os;
    mt_budget_os_init(&os);
    return mt_budget_renew_in(&os, path, id, place, used_bytes, error);
}

int mt_budget_guard(const char *path, uint64_t id, int *fd, struct mt_error *error)
{
    struct mt_budget_os os;
    mt_budget_os_init(&os);
    return mt_budget_guard_in(&os, path, id, fd, error);
}

int mt_budget_release(const char *path, uint64_t id, struct mt_error *error)
{
    struct mt_budget_os os;
    mt_budget_os_init(&os);
    return mt_budget_release_in(&os, path, id, error);
}

int mt_budget_list(const char *path, struct mt_budget_holder *holders, size_t *n, size_t *n_damaged,
                   struct mt_error *error)
{
    struct mt_budget_os os;
    mt_budget_os_init(&os);
    return mt_budget_list_in(&os, path, holders, n, n_damaged, error);
}
