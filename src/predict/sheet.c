/* SPDX-License-Identifier: MIT */
/* Writing terms on a sheet. Everything that a term holds lies in the sheet's arena, which the
 * estimate takes over. */
#include <memtally/predict.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "predict/input.h"
#include "predict/term.h"
#include "sheet_internal.h"

static char *arena_text(struct mt_sheet *sheet, const char *text)
{
    char *copy = mt_arena_copy(&sheet->arena, text, strlen(text));
    sheet->failed |= !copy;
    return copy;
}

/* Makes room for one more in an array that doubles. */
static int grow(struct mt_sheet *sheet, void **items, size_t n, size_t size)
{
    if (n & (n - 1) || (n && n < 16))
        return 1;
    void *more = mt_arena_array(&sheet->arena, n < 16 ? 16 : n * 2, size);
    if (!more) {
        sheet->failed = 1;
        return 0;
    }
    if (n)
        memcpy(more, *items, n * size);
    *items = more;
    return 1;
}

static const char *source_of(struct mt_sheet *sheet, const struct mt_sheet_term *term)
{
    struct mt_engine_value value;
    if (term->source)
        return arena_text(sheet, term->source);
    if (mt_engine_value(sheet->engine, term->rule, &value) < 0 || !value.source_length)
        return NULL;
    return mt_arena_copy(&sheet->arena, value.source, value.source_length);
}

/* What would be more than any memory stays as it is. */
static uint64_t scaled(uint64_t bytes, double factor)
{
    double product = (double)bytes * factor;
    return product < (double)(UINT64_C(1) << 60) ? (uint64_t)(product + 0.5) : bytes;
}

void mt_widen_unread(const struct mt_engine *engine, const char *unread, uint64_t *low,
                     uint64_t *high)
{
    unsigned steps = mt_engine_steps_unread(engine);
    double width = mt_engine_real(engine, unread, 0) / 100;
    for (unsigned i = 0; i < steps; i++)
        *low = scaled(*low, width < 1 ? 1 - width : 0);
    *high = scaled(*high, 1 + steps * width);
}

static enum mt_term_kind kind_of(const struct mt_sheet_term *term)
{
    if (term->kind != MT_TERM_NONE)
        return term->kind;
    return term->provenance == MT_PROVENANCE_CALIBRATED ? MT_TERM_LEARNT : MT_TERM_RULE;
}

void mt_sheet_add(struct mt_sheet *sheet, const struct mt_sheet_term *term, const char *format, ...)
{
    int bounded = term->low_bytes || term->high_bytes;
    if (!term->bytes && !term->high_bytes)
        return;
    void *terms = sheet->terms;
    if (sheet->failed || !grow(sheet, &terms, sheet->n_terms, sizeof *sheet->terms))
        return;
    sheet->terms = terms;
    va_list arguments;
    va_start(arguments, format);
    char *formula = mt_arena_vprintf(&sheet->arena, format, arguments);
    va_end(arguments);
    uint64_t low = bounded ? term->low_bytes : term->bytes;
    uint64_t high = bounded ? term->high_bytes : term->bytes;
    if (low < high)
        mt_widen_unread(sheet->engine, "unread", &low, &high);
    struct mt_sheet_line *line = &sheet->terms[sheet->n_terms];
    *line = (struct mt_sheet_line){
        .place = term->place,
        .term = {.category = term->category,
                 .name = arena_text(sheet, term->name),
                 .rule =
                     mt_arena_printf(&sheet->arena, "%s/%s",
                                     term->engine ? term->engine : sheet->engine->name, term->rule),
                 .source = source_of(sheet, term),
                 .formula = formula,
                 .bytes = term->bytes,
                 .low_bytes = low,
                 .high_bytes = high,
                 .provenance = term->provenance,
                 .kind = kind_of(term)},
    };
    if (!formula || !line->term.rule)
        sheet->failed = 1;
    else
        sheet->n_terms++;
}

int mt_sheet_has_place(const struct mt_sheet *sheet, int place)
{
    for (size_t i = 0; i < sheet->n_terms; i++)
        if (sheet->terms[i].place == place)
            return 1;
    return 0;
}

int mt_sheet_is_refused(const struct mt_sheet *sheet)
{
    return sheet->cannot != NULL;
}

uint64_t mt_sheet_sum(const struct mt_sheet *sheet, int place, enum mt_category category)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < sheet->n_terms; i++)
        if (sheet->terms[i].place == place && sheet->terms[i].term.category == category)
            sum += sheet->terms[i].term.bytes;
    return sum;
}

void mt_sheet_note(struct mt_sheet *sheet, const char *format, ...)
{
    void *notes = sheet->notes;
    if (sheet->failed || !grow(sheet, &notes, sheet->n_notes, sizeof *sheet->notes))
        return;
    sheet->notes = notes;
    va_list arguments;
    va_start(arguments, format);
    char *note = mt_arena_vprintf(&sheet->arena, format, arguments);
    va_end(arguments);
    if (!note) {
        sheet->failed = 1;
        return;
    }
    for (size_t i = 0; i < sheet->n_notes; i++)
        if (!strcmp(sheet->notes[i], note))
            return;
    sheet->notes[sheet->n_notes++] = note;
}

void mt_sheet_flag(struct mt_sheet *sheet, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *flag = mt_arena_vprintf(&sheet->arena, format, arguments);
    va_end(arguments);
    char *flags =
        flag && sheet->flags ? mt_arena_printf(&sheet->arena, "%s %s", sheet->flags, flag) : flag;
    if (flags)
        sheet->flags = flags;
    else
        sheet->failed = 1;
}

struct mt_estimate_pool *mt_sheet_pool(struct mt_sheet *sheet)
{
    return &sheet->pool;
}

struct mt_estimate_graphs *mt_sheet_graphs(struct mt_sheet *sheet)
{
    return &sheet->graphs;
}

void mt_sheet_bound(struct mt_sheet *sheet, int place, uint64_t low_bytes, uint64_t high_bytes)
{
    void *bounds = sheet->bounds;
    if (sheet->failed || !grow(sheet, &bounds, sheet->n_bounds, sizeof *sheet->bounds))
        return;
    sheet->bounds = bounds;
    sheet->bounds[sheet->n_bounds++] = (struct mt_sheet_bounds){place, low_bytes, high_bytes};
}

static void remember(struct mt_sheet *sheet, char **reason, const char *format, va_list arguments)
{
    char *text = mt_arena_vprintf(&sheet->arena, format, arguments);
    if (!text)
        sheet->failed = 1;
    else if (!*reason)
        *reason = text;
}

void mt_sheet_uncounted(struct mt_sheet *sheet, const char *sentence)
{
    mt_sheet_note(sheet, "%s", sentence);
    sheet->is_partial = 1;
}

void mt_sheet_spills(struct mt_sheet *sheet, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    remember(sheet, &sheet->spills, format, arguments);
    va_end(arguments);
}

void mt_sheet_cannot(struct mt_sheet *sheet, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    remember(sheet, &sheet->cannot, format, arguments);
    va_end(arguments);
}
