/* SPDX-License-Identifier: MIT */
#include "pool_trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(struct trace *trace, struct event event)
{
    if (trace->n == trace->room) {
        trace->room = trace->room * 2 + 1024;
        trace->events = realloc(trace->events, trace->room * sizeof *trace->events);
        if (!trace->events)
            exit(2);
    }
    trace->events[trace->n++] = event;
    if (event.id >= trace->n_ids)
        trace->n_ids = event.id + 1;
}

/* What ends goes before what begins at the same time. */
static int by_time(const void *left, const void *right)
{
    const struct event *a = left, *b = right;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    if (a->is_free != b->is_free)
        return b->is_free - a->is_free;
    return a->id < b->id ? -1 : a->id > b->id;
}

static void find_peak(struct trace *trace)
{
    uint64_t live = 0;
    for (size_t i = 0; i < trace->n; i++) {
        const struct event *event = &trace->events[i];
        live = event->is_free ? live - event->bytes : live + event->bytes;
        if (live > trace->peak_bytes)
            trace->peak_bytes = live;
    }
}

int trace_read(const char *path, uint64_t times, struct trace *trace)
{
    char line[256];
    FILE *file = fopen(path, "r");
    if (!file)
        return -1;
    int intervals = 0;
    while (fgets(line, sizeof line, file)) {
        uint64_t a, b, c, d;
        char op;
        if (strncmp(line, "id,", 3) == 0)
            intervals = 1;
        else if (intervals && sscanf(line, "%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64, &a, &b,
                                     &c, &d) == 4) {
            add(trace, (struct event){b, a, d * times, 0});
            add(trace, (struct event){c, a, d * times, 1});
        } else if (sscanf(line, "%c,%" SCNu64 ",%" SCNu64, &op, &a, &b) == 3 &&
                   (op == 'a' || op == 'f'))
            add(trace, (struct event){0, a, b * times, op == 'f'});
    }
    fclose(file);
    if (intervals)
        qsort(trace->events, trace->n, sizeof *trace->events, by_time);
    find_peak(trace);
    return 0;
}
