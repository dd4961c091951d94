/* SPDX-License-Identifier: MIT */
/* What a test is to have, and the order of tests, by what they need and how long they took. */
#include <memtally/schedule.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/budget/admit.h"
#include "cli/budget/suite.h"

#define SECONDS_MIN 0.001
#define LEAST_BYTES ((uint64_t)32 << 20)

static void add_need(struct budget_needs *needs, const char *place, uint64_t bytes)
{
    struct mt_budget_need *need = &needs->items[needs->n++];
    *need = (struct mt_budget_need){.bytes = bytes};
    snprintf(need->place, sizeof need->place, "%s", place);
}

/* A quarter more than was measured, since runs differ. */
static uint64_t with_room(uint64_t bytes)
{
    return bytes + bytes / 4 + LEAST_BYTES;
}

void budget_needs_of(const struct budget_suite *suite, size_t test, struct budget_needs *needs)
{
    const struct budget_result *result = &suite->results[test];
    if (result->needs.n) { /* it is to be tried again, with more */
        *needs = result->needs;
        return;
    }
    *needs = suite->tests->items[test].needs;
    if (needs->n)
        return;
    *needs = suite->tests->fallback;
    if (!result->was_measured)
        return;
    needs->n = 0;
    add_need(needs, "host", with_room(result->last_host_bytes));
    if (result->last_device_bytes)
        add_need(needs, "gpu*", with_room(result->last_device_bytes));
}

/* What there is; devices are taken to be alike. */
static void put_room(const struct budget_suite *suite, struct mt_schedule_room *room)
{
    const struct mt_job_machine *machine = &suite->world->machine;
    memset(room, 0, sizeof *room);
    room->n_places = machine->n < MT_SCHEDULE_PLACES ? machine->n : MT_SCHEDULE_PLACES;
    room->first_any = 1;
    room->n_jobs = suite->n_jobs;
    for (size_t k = 0; k < room->n_places; k++) {
        const struct mt_budget_place *place = &machine->places[k];
        if (place->free_bytes > place->min_free_bytes)
            room->bytes[k] = place->free_bytes - place->min_free_bytes;
    }
}

static void put_item(const struct budget_suite *suite, size_t test,
                     const struct mt_schedule_room *room, double unknown_seconds,
                     struct mt_schedule_item *item)
{
    const struct budget_result *result = &suite->results[test];
    struct budget_needs needs;
    memset(item, 0, sizeof *item);
    item->seconds = result->was_measured ? result->last_seconds : unknown_seconds;
    item->seconds = item->seconds > SECONDS_MIN ? item->seconds : SECONDS_MIN;
    budget_needs_of(suite, test, &needs);
    for (size_t i = 0; i < needs.n; i++) {
        const char *place = needs.items[i].place;
        size_t k = strcmp(place, "host") == 0 ? 0 : 1 + budget_device_number(place);
        uint64_t *bytes = strcmp(place, "gpu*") == 0 ? &item->any_bytes
                          : k < room->n_places       ? &item->bytes[k]
                                                     : NULL;
        uint64_t most = bytes == &item->any_bytes ? room->bytes[1] : bytes ? room->bytes[k] : 0;
        if (bytes) /* what does not fit now may later: it goes as what fits alone */
            *bytes = needs.items[i].bytes < most ? needs.items[i].bytes : most;
    }
}

static double middle_seconds(const struct budget_suite *suite)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < suite->tests->n; i++)
        if (suite->results[i].was_measured) {
            sum += suite->results[i].last_seconds;
            n++;
        }
    return n ? sum / (double)n : 1;
}

static void plan(struct budget_suite *suite, size_t *order, size_t n)
{
    struct mt_schedule_room room;
    struct mt_schedule schedule;
    struct mt_schedule_item *items = calloc(n, sizeof *items);
    size_t *planned = calloc(n, sizeof *planned);
    size_t *given = calloc(n, sizeof *given);
    double unknown_seconds = middle_seconds(suite);
    int is_known = 1;
    put_room(suite, &room);
    for (size_t i = 0; items && i < n; i++) {
        put_item(suite, order[i], &room, unknown_seconds, &items[i]);
        is_known &= suite->results[order[i]].was_measured;
    }
    if (items && planned && given &&
        mt_schedule_plan(items, n, &room, planned, &schedule, NULL) == 0) {
        memcpy(given, order, n * sizeof *given);
        for (size_t i = 0; i < n; i++)
            order[i] = given[planned[i]];
        if (is_known) {
            suite->planned_seconds = schedule.seconds;
            suite->least_seconds = schedule.least_seconds;
        }
    }
    free(items);
    free(planned);
    free(given);
}

size_t budget_order(struct budget_suite *suite, size_t *order)
{
    size_t n = 0;
    for (size_t i = 0; i < suite->tests->n; i++)
        if (suite->results[i].outcome == BUDGET_WAITS)
            order[n++] = i;
    if (n)
        plan(suite, order, n);
    return n;
}
