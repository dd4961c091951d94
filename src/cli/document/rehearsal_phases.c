/* SPDX-License-Identifier: MIT */
/* The phases of an engine on PyTorch, the figures that it said, and PyTorch's own, as text. */
#include <inttypes.h>
#include <memtally/rehearsal_events.h>
#include <memtally/units.h>
#include <stdio.h>
#include <string.h>

#include "drive/rehearsed.h"
#include "internal.h"

#define SHOWN 24

/* Phases of one name on one device, over all processes. */
struct alike {
    const struct mt_rehearsal_phase *first;
    size_t n;
    uint64_t kept_bytes; /* more at the end than at the beginning, at most */
    uint64_t peak_bytes; /* over the beginning, at most */
};

static uint64_t over(uint64_t bytes, uint64_t begin_bytes)
{
    return bytes > begin_bytes ? bytes - begin_bytes : 0;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What there is beyond what is shown. */
static void put_more(size_t n, const char *of_what, const struct cli_terminal *terminal,
                     struct mt_strbuf *out)
{
    if (n)
        cli_table_fact(terminal, out, "", "and %zu more %s%s; --json has them all", n, of_what,
                       n == 1 ? "" : "s");
}

/* Phases that find no room are counted in *n_left. */
static size_t gather(const struct mt_rehearsed *rehearsal, struct alike alike[SHOWN],
                     size_t *n_left)
{
    size_t n = 0;
    *n_left = 0;
    for (size_t i = 0; i < rehearsal->n_phases; i++) {
        const struct mt_rehearsal_phase *phase = &rehearsal->phases[i];
        size_t k = 0;
        while (k < n && (strcmp(alike[k].first->name, phase->name) != 0 ||
                         alike[k].first->device != phase->device))
            k++;
        if (k == SHOWN) {
            ++*n_left;
            continue;
        }
        if (k == n)
            alike[n++] = (struct alike){.first = phase};
        alike[k].n++;
        alike[k].kept_bytes =
            larger(alike[k].kept_bytes, over(phase->end_bytes, phase->begin_bytes));
        alike[k].peak_bytes =
            larger(alike[k].peak_bytes, over(phase->peak_bytes, phase->begin_bytes));
    }
    return n;
}

static const char *in_full(uint64_t bytes, char text[MT_SIZE_TEXT + 24])
{
    char size[MT_SIZE_TEXT];
    snprintf(text, MT_SIZE_TEXT + 24, "%" PRIu64 " (%s)", bytes, mt_format_size(bytes, size));
    return text;
}

static void put_phases(const struct mt_rehearsed *rehearsal, const struct cli_terminal *terminal,
                       struct mt_strbuf *out)
{
    static const struct mt_text_table_column columns[] = {
        {"phase", MT_CELL_TEXT, 0},       {"device", MT_CELL_TEXT_RIGHT, 0},
        {"after", MT_CELL_TEXT_RIGHT, 0}, {"at most", MT_CELL_TEXT_RIGHT, 0},
        {"kept", MT_CELL_TEXT_RIGHT, 0},
    };
    struct alike alike[SHOWN];
    struct mt_text_table table;
    size_t n_left;
    size_t n = gather(rehearsal, alike, &n_left);
    if (!n)
        return;
    mt_text_table_init(&table, columns, 5, terminal->utf8);
    for (size_t i = 0; i < n; i++) {
        char name[120], device[16], time[CLI_TIME_TEXT], peak[MT_SIZE_TEXT], kept[MT_SIZE_TEXT];
        char times[32] = "";
        if (alike[i].n > 1)
            snprintf(times, sizeof times, " (%zu times)", alike[i].n);
        snprintf(name, sizeof name, "%.80s%s", alike[i].first->name, times);
        snprintf(device, sizeof device, "%u", alike[i].first->device);
        const struct mt_cell cells[] = {{.text = name},
                                        {.text = device},
                                        {.text = cli_format_time(alike[i].first->begin_ns, time)},
                                        {.text = mt_format_size(alike[i].peak_bytes, peak)},
                                        {.text = mt_format_size(alike[i].kept_bytes, kept)}};
        mt_text_table_add(&table, 0, MT_ROW_PLAIN, cells);
    }
    cli_table_draw(&table, terminal, out);
    put_more(n_left, "phase", terminal, out);
}

static size_t beyond_shown(size_t n)
{
    return n > SHOWN ? n - SHOWN : 0;
}

/* To the byte: they are held against what a program prints. */
static void put_allocators(const struct mt_rehearsed *rehearsal,
                           const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    static const struct mt_text_table_column columns[] = {
        {"PyTorch counts", MT_CELL_TEXT, 0},
        {"max_memory_allocated", MT_CELL_TEXT_RIGHT, 0},
        {"max_memory_reserved", MT_CELL_TEXT_RIGHT, 0},
    };
    struct mt_text_table table;
    if (!rehearsal->n_allocators)
        return;
    mt_text_table_init(&table, columns, 3, terminal->utf8);
    for (size_t i = 0; i < rehearsal->n_allocators && i < SHOWN; i++) {
        const struct mt_rehearsal_allocator *allocator = &rehearsal->allocators[i];
        char name[64], allocated[MT_SIZE_TEXT + 24], reserved[MT_SIZE_TEXT + 24];
        snprintf(name, sizeof name, "%s, process %" PRIu64, allocator->place, allocator->pid);
        const struct mt_cell cells[] = {
            {.text = name},
            {.text = in_full(allocator->max_allocated_bytes, allocated)},
            {.text = in_full(allocator->max_reserved_bytes, reserved)},
        };
        mt_text_table_add(&table, 0, MT_ROW_PLAIN, cells);
    }
    cli_table_draw(&table, terminal, out);
    put_more(beyond_shown(rehearsal->n_allocators), "count", terminal, out);
}

void cli_table_rehearsal_phases(const struct cli_document *document,
                                const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    const struct mt_rehearsed *rehearsal = document->rehearsal;
    put_phases(rehearsal, terminal, out);
    put_allocators(rehearsal, terminal, out);
    for (size_t i = 0; i < rehearsal->n_figures && i < SHOWN; i++) {
        const struct mt_rehearsal_figure *figure = &rehearsal->figures[i];
        cli_table_fact(terminal, out, i ? "" : "engine said", "%s %.10g %s", figure->name,
                       figure->value, figure->unit);
    }
    put_more(beyond_shown(rehearsal->n_figures), "figure", terminal, out);
}
