/* SPDX-License-Identifier: MIT */
/* The text of a baseline: found, held against a tally, added to. Knows no file. */
#include "baseline.h"

#include <inttypes.h>
#include <memtally/tally.h>
#include <memtally/units.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define TOTAL     "total"
#define PEAKS_MAX 1024

static const char head[] =
    "# Peaks of device memory by test or command line, place and category.\n"
    "# What is not here is added. Delete the lines of one to take what it needs now.\n";

/* Bytes of the text; not terminated. */
struct part {
    const char *at;
    size_t length;
};

struct peak {
    struct part place;
    struct part category;
    uint64_t bytes;
};

static int is_blank(char byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/* Takes the next line of the text, without blanks at its end. Returns 0 where none is left. */
static int take_line(const char **at, const char *end, struct part *line)
{
    if (*at >= end)
        return 0;
    const char *stop = memchr(*at, '\n', (size_t)(end - *at));
    const char *next = stop ? stop + 1 : end;
    *line = (struct part){*at, (size_t)((stop ? stop : end) - *at)};
    while (line->length && is_blank(line->at[line->length - 1]))
        line->length--;
    *at = next;
    return 1;
}

static struct part take_word(struct part *line)
{
    struct part word;
    while (line->length && is_blank(*line->at))
        line->at++, line->length--;
    word = (struct part){line->at, 0};
    while (line->length && !is_blank(*line->at))
        line->at++, line->length--, word.length++;
    return word;
}

static int is_word(struct part part, const char *word)
{
    return part.length == strlen(word) && !memcmp(part.at, word, part.length);
}

/* Whether the line is a peak, which is then read. */
static int read_peak(struct part line, struct peak *peak)
{
    peak->place = take_word(&line);
    peak->category = take_word(&line);
    struct part number = take_word(&line);
    peak->bytes = 0;
    for (size_t i = 0; i < number.length; i++) {
        if (number.at[i] < '0' || number.at[i] > '9' ||
            __builtin_mul_overflow(peak->bytes, 10, &peak->bytes) ||
            __builtin_add_overflow(peak->bytes, (uint64_t)(number.at[i] - '0'), &peak->bytes))
            return 0;
    }
    return number.length > 0;
}

/* Names in the order of their bytes, as memcmp() has it. */
static int compare(struct part a, const char *name)
{
    size_t length = strlen(name);
    int order = memcmp(a.at, name, a.length < length ? a.length : length);
    return order ? order : (a.length > length) - (a.length < length);
}

static int find_peak(const struct mt_baseline *baseline, struct part place, struct part category,
                     struct peak *peak)
{
    const char *at = baseline->peaks;
    struct part line;
    while (at && take_line(&at, baseline->peaks_end, &line))
        if (read_peak(line, peak) && peak->place.length == place.length &&
            peak->category.length == category.length &&
            !memcmp(peak->place.at, place.at, place.length) &&
            !memcmp(peak->category.at, category.at, category.length))
            return 1;
    return 0;
}

static uint64_t bytes_of(const struct mt_baseline *baseline, const char *place,
                         const char *category)
{
    struct peak peak;
    return find_peak(baseline, (struct part){place, strlen(place)},
                     (struct part){category, strlen(category)}, &peak)
               ? peak.bytes
               : 0;
}

/* What is wrong with a line, or NULL. Only of the name that is looked for nothing is there twice.
 */
static const char *check_line(struct part line, int has_name, const char *name,
                              struct mt_baseline *baseline)
{
    struct peak peak, first;
    if (!is_blank(*line.at)) {
        if (!is_word(line, name))
            return NULL;
        return baseline->peaks ? "the name is here twice" : NULL;
    }
    if (!has_name)
        return "a peak comes before any name";
    if (!read_peak(line, &peak))
        return "a peak is a place, a category and a number of bytes";
    if (baseline->peaks && line.at >= baseline->peaks && !baseline->peaks_end) {
        struct mt_baseline so_far = *baseline;
        so_far.peaks_end = line.at;
        if (find_peak(&so_far, peak.place, peak.category, &first))
            return "the place has the category twice";
        if (++baseline->n_peaks > PEAKS_MAX)
            return "the name has too many peaks";
    }
    return NULL;
}

int mt_baseline_find(const char *text, size_t length, const char *name,
                     struct mt_baseline *baseline, struct mt_error *error)
{
    const char *at = text;
    struct part line;
    int has_name = 0;
    *baseline = (struct mt_baseline){.text = text, .end = text + length, .before = text + length};
    for (size_t number = 1; take_line(&at, baseline->end, &line); number++) {
        if (!line.length || *line.at == '#')
            continue;
        const char *wrong = check_line(line, has_name, name, baseline);
        if (wrong)
            return mt_fail(error, MT_EFORMAT, (size_t)(line.at - text), "line %zu: %s", number,
                           wrong);
        if (is_blank(*line.at))
            continue;
        has_name = 1;
        if (baseline->peaks && !baseline->peaks_end)
            baseline->peaks_end = line.at;
        if (is_word(line, name))
            baseline->peaks = at;
        else if (baseline->before == baseline->end && compare(line, name) > 0)
            baseline->before = line.at;
    }
    if (baseline->peaks && !baseline->peaks_end)
        baseline->peaks_end = baseline->end;
    return 0;
}

uint64_t mt_baseline_most_bytes(const struct mt_baseline *baseline, const char *place,
                                double tolerance_ratio)
{
    double most = (double)bytes_of(baseline, place, TOTAL) * (1 + tolerance_ratio);
    return most < 0x1p63 ? (uint64_t)(most + 0.5) : UINT64_MAX;
}

int mt_baseline_has(const struct mt_tally_place *place)
{
    return strncmp(place->place, "gpu:", 4) == 0 && place->total_allocated_bytes != MT_UNKNOWN &&
           place->total_allocated_bytes;
}

static int is_taken(const struct mt_tally_row *row)
{
    return row->allocated_bytes != MT_UNKNOWN && row->allocated_bytes;
}

void mt_baseline_tell(const struct mt_baseline *baseline, const struct mt_tally_place *place,
                      struct mt_strbuf *out)
{
    char held[MT_SIZE_TEXT], more[MT_SIZE_TEXT], was[MT_SIZE_TEXT];
    uint64_t before = bytes_of(baseline, place->place, TOTAL);
    uint64_t growth = place->total_allocated_bytes - before;
    const char *between = ": ";
    mt_strbuf_printf(out, "%s takes %s, %s", place->place,
                     mt_format_size(place->total_allocated_bytes, held),
                     mt_format_size(growth, more));
    if (before)
        mt_strbuf_printf(out, " (%.1f %%)", 100 * (double)growth / (double)before);
    mt_strbuf_printf(out, " more than its baseline of %s", mt_format_size(before, was));
    for (size_t i = 0; i < place->n_rows; i++) {
        const struct mt_tally_row *row = &place->rows[i];
        const char *category = mt_category_name(row->category);
        uint64_t had = bytes_of(baseline, place->place, category);
        if (!is_taken(row) || row->allocated_bytes <= had)
            continue;
        mt_strbuf_printf(out, "%s%s %s more", between, category,
                         mt_format_size(row->allocated_bytes - had, more));
        between = ", ";
    }
}

static void put_peak(const char *place, const char *category, uint64_t bytes, struct mt_strbuf *out)
{
    char size[MT_SIZE_TEXT];
    mt_strbuf_printf(out, "    %-7s %-13s %14" PRIu64 "  %s\n", place, category, bytes,
                     mt_format_size(bytes, size));
}

static int by_size(const void *a, const void *b)
{
    const struct mt_tally_row *const *one = a;
    const struct mt_tally_row *const *other = b;
    if ((*one)->allocated_bytes != (*other)->allocated_bytes)
        return (*one)->allocated_bytes < (*other)->allocated_bytes ? 1 : -1;
    return strcmp(mt_category_name((*one)->category), mt_category_name((*other)->category));
}

/* The total, then the largest first. */
static void put_place(const struct mt_tally_place *place, struct mt_strbuf *out)
{
    const struct mt_tally_row *rows[MT_CATEGORY_END];
    size_t n = 0;
    put_peak(place->place, TOTAL, place->total_allocated_bytes, out);
    for (size_t i = 0; i < place->n_rows && n < MT_CATEGORY_END; i++)
        if (is_taken(&place->rows[i]))
            rows[n++] = &place->rows[i];
    qsort(rows, n, sizeof rows[0], by_size);
    for (size_t i = 0; i < n; i++)
        put_peak(place->place, mt_category_name(rows[i]->category), rows[i]->allocated_bytes, out);
}

void mt_baseline_add(const struct mt_baseline *baseline, const char *name,
                     const struct mt_tally *tally, struct mt_strbuf *out)
{
    size_t length = (size_t)(baseline->before - baseline->text);
    if (baseline->text == baseline->end)
        mt_strbuf_puts(out, head);
    mt_strbuf_append(out, baseline->text, length);
    if (length && baseline->before[-1] != '\n')
        mt_strbuf_puts(out, "\n");
    mt_strbuf_printf(out, "%s\n", name);
    for (size_t i = 0; i < tally->n_places; i++)
        if (mt_baseline_has(&tally->places[i]))
            put_place(&tally->places[i], out);
    mt_strbuf_append(out, baseline->before, (size_t)(baseline->end - baseline->before));
}
