/* SPDX-License-Identifier: MIT */
/* A comparison as text for people. */
#include <inttypes.h>
#include <math.h>
#include <memtally/residue.h>
#include <memtally/units.h>
#include <stdio.h>
#include <string.h>

#include "cli/compare/output.h"
#include "cli/document/internal.h"
#include "emit/text_table.h"

#define ROWS_SHOWN  10
#define PARTS_SHOWN 8

#define SIGNED_TEXT (MT_SIZE_TEXT + 2)

static uint64_t magnitude(int64_t bytes)
{
    return bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes;
}

/* "+12.00 MiB"; `plus` is what stands before what is not negative. */
static const char *signed_size(int known, int64_t bytes, const char *plus, char text[SIGNED_TEXT])
{
    char size[MT_SIZE_TEXT];
    if (!known)
        return "?";
    snprintf(text, SIGNED_TEXT, "%s%s",
             bytes < 0   ? "-"
             : bytes > 0 ? plus
                         : "",
             mt_format_size(magnitude(bytes), size));
    return text;
}

/* ---- what is compared ---- */

static void put_side(const struct compare_loaded *side, const char *label,
                     const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    struct mt_strbuf text = {0};
    const char *model = side->model_name ? side->model_name : side->model_path;
    mt_strbuf_puts(&text, side->what);
    if (side->moment)
        mt_strbuf_printf(&text, " at its %s", side->moment);
    if (side->side.kind == MT_SIDE_FIGURES)
        mt_strbuf_printf(&text, " in %s (%s)", compare_unit_names[side->unit],
                         side->unit == COMPARE_GB ? "10^9 bytes" : "2^30 bytes");
    if (side->engine_name)
        mt_strbuf_printf(&text, ", %s %s", side->engine_name,
                         side->engine_version ? side->engine_version : "");
    if (model)
        mt_strbuf_printf(&text, ", %s", model);
    if (side->path)
        mt_strbuf_printf(&text, ": %s", side->path);
    cli_table_fact(terminal, out, label, "%s", mt_strbuf_text(&text));
    mt_strbuf_finish_part(&text, out);
}

static void put_basis(const struct compare_view *view, const struct cli_terminal *terminal,
                      struct mt_strbuf *out)
{
    const struct mt_comparison *comparison = view->comparison;
    const struct mt_component_figure *total = &comparison->components[MT_COMPONENT_TOTAL].a;
    char reserved[MT_SIZE_TEXT];
    char resident[MT_SIZE_TEXT];
    if (comparison->basis == MT_BASIS_RESIDENT)
        cli_table_fact(terminal, out, "basis", "resident: what is physically there");
    else if (total->known && total->resident_bytes != MT_UNKNOWN && total->bytes >= 0)
        cli_table_fact(terminal, out, "basis",
                       "reserved: what the engine asked for, and what is resident of the overhead; "
                       "%s of A, of which %s is resident",
                       mt_format_size((uint64_t)total->bytes, reserved),
                       mt_format_size(total->resident_bytes, resident));
    else
        cli_table_fact(terminal, out, "basis",
                       "reserved: what the engine asked for, and what is resident of the overhead");
}

/* ---- components ---- */

static const char *style_of(const struct cli_terminal *terminal, enum mt_compare_verdict verdict)
{
    if (verdict == MT_COMPARE_NOT_COMPARABLE)
        return "";
    return cli_tone(terminal, verdict == MT_COMPARE_WITHIN ? CLI_TONE_GOOD : CLI_TONE_BAD);
}

static void add_component(struct mt_text_table *table, const struct cli_terminal *terminal,
                          enum mt_component component,
                          const struct mt_component_difference *difference)
{
    char a[SIGNED_TEXT];
    char b[SIGNED_TEXT];
    char off[SIGNED_TEXT];
    char percent[24] = "?";
    char band[24];
    int is_comparable = difference->verdict != MT_COMPARE_NOT_COMPARABLE;
    if (difference->ratio_known && difference->difference_ratio > 99.99)
        snprintf(percent, sizeof percent, "x %.3g", 1 + difference->difference_ratio);
    else if (difference->ratio_known && fabs(difference->difference_ratio) < 0.0005)
        snprintf(percent, sizeof percent, "0.0 %%");
    else if (difference->ratio_known)
        snprintf(percent, sizeof percent, "%+.1f %%", 100 * difference->difference_ratio);
    snprintf(band, sizeof band, "%.4g %%", 100 * difference->band_ratio);
    const struct mt_cell cells[] = {
        {.text = mt_component_name(component)},
        {.text = signed_size(difference->a.known, difference->a.bytes, "", a)},
        {.text = signed_size(difference->b.known, difference->b.bytes, "", b)},
        {.text = signed_size(is_comparable, difference->difference_bytes, "+", off)},
        {.text = percent},
        {.text = band},
        {.text = mt_compare_verdict_name(difference->verdict),
         .style = style_of(terminal, difference->verdict)},
    };
    if (component == MT_COMPONENT_TOTAL)
        mt_text_table_add_rule(table);
    mt_text_table_add(table, 0, component == MT_COMPONENT_TOTAL ? MT_ROW_BOLD : MT_ROW_PLAIN,
                      cells);
}

static void put_components(const char *heading, const struct mt_component_difference *differences,
                           const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    const struct mt_text_table_column columns[] = {
        {heading, MT_CELL_TEXT, 0},      {"A", MT_CELL_TEXT_RIGHT, 0},
        {"B", MT_CELL_TEXT_RIGHT, 0},    {"difference", MT_CELL_TEXT_RIGHT, 0},
        {"of A", MT_CELL_TEXT_RIGHT, 0}, {"band", MT_CELL_TEXT_RIGHT, 1},
        {"B is", MT_CELL_TEXT, 2},
    };
    struct mt_text_table table;
    mt_text_table_init(&table, columns, 7, terminal->utf8);
    for (int i = 0; i < MT_COMPONENT_COUNT; i++)
        add_component(&table, terminal, (enum mt_component)i, &differences[i]);
    cli_table_draw(&table, terminal, out);
}

#define DEVICE_SHORT  16 /* "gpu:GPU-01234567" */
#define DEVICE_ENDING 8
#define DEVICE_TEXT   32

/* A device by as much of its UUID as tells it from the others: a table would cut out its middle. */
static const char *short_name(const struct mt_comparison *comparison, const char *place,
                              char text[DEVICE_TEXT])
{
    size_t length = strlen(place);
    int is_alone = 1;
    if (strncmp(place, "gpu:GPU-", 8) != 0 || length <= DEVICE_SHORT + DEVICE_ENDING)
        return place;
    for (size_t i = 0; i < comparison->n_places; i++)
        is_alone &= strcmp(comparison->places[i].place, place) == 0 ||
                    strncmp(comparison->places[i].place, place, DEVICE_SHORT) != 0;
    if (is_alone)
        snprintf(text, DEVICE_TEXT, "%.*s", DEVICE_SHORT, place);
    else
        snprintf(text, DEVICE_TEXT, "gpu:…%s", place + length - DEVICE_ENDING);
    return text;
}

static void put_places(const struct mt_comparison *comparison, const struct cli_terminal *terminal,
                       struct mt_strbuf *out)
{
    char name[DEVICE_TEXT];
    for (size_t i = 0; comparison->n_places > 1 && i < comparison->n_places; i++)
        put_components(short_name(comparison, comparison->places[i].place, name),
                       comparison->places[i].components, terminal, out);
}

static void put_accuracy(const struct mt_comparison *comparison,
                         const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    if (comparison->accuracy_ratio >= 0 && comparison->parts_accuracy_ratio >= 0)
        cli_table_fact(terminal, out, "accuracy", "%.1f %% of the total, %.1f %% part by part",
                       100 * comparison->accuracy_ratio, 100 * comparison->parts_accuracy_ratio);
    else if (comparison->accuracy_ratio >= 0)
        cli_table_fact(terminal, out, "accuracy", "%.1f %% of the total",
                       100 * comparison->accuracy_ratio);
}

/* ---- categories and parts ---- */

static const char *change_of(const struct mt_difference *difference)
{
    if (difference->in_a && difference->in_b)
        return "";
    return difference->in_a ? "only in A" : "only in B";
}

static void add_difference(struct mt_text_table *table, const struct mt_difference *difference,
                           const char *name)
{
    char off[SIGNED_TEXT];
    const struct mt_cell cells[] = {
        {.text = name},
        {.number = difference->a_bytes, .empty = !difference->in_a},
        {.number = difference->b_bytes, .empty = !difference->in_b},
        {.text = signed_size(difference->known, difference->difference_bytes, "+", off)},
        {.text = change_of(difference)},
    };
    mt_text_table_add(table, 0, MT_ROW_PLAIN, cells);
}

/* The name of a row or part, with its place where there are several. */
static void name_difference(const struct mt_comparison *comparison,
                            const struct mt_difference *difference, struct mt_strbuf *name)
{
    char place[DEVICE_TEXT];
    if (comparison->n_places > 1)
        mt_strbuf_printf(name, "%s ", short_name(comparison, difference->place, place));
    mt_strbuf_puts(name, compare_category_name(difference->category));
    if (difference->name)
        mt_strbuf_printf(name, ": %s", difference->name);
}

/* Those that differ, the largest difference first. */
static void put_differences(const struct compare_view *view, const char *heading,
                            const struct mt_difference *differences, size_t n, size_t shown,
                            const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    const struct mt_text_table_column columns[] = {
        {heading, MT_CELL_TEXT, 0}, {"A", MT_CELL_SIZE, 0},
        {"B", MT_CELL_SIZE, 0},     {"difference", MT_CELL_TEXT_RIGHT, 0},
        {"", MT_CELL_TEXT, 1},
    };
    struct mt_text_table table;
    size_t n_lines = 0;
    if (view->show_all)
        shown = n;
    mt_text_table_init(&table, columns, 5, terminal->utf8);
    for (size_t i = 0; i < n && n_lines < shown; i++) {
        struct mt_strbuf name = {0};
        if (differences[i].known && differences[i].difference_bytes == 0 && !view->show_all)
            continue;
        name_difference(view->comparison, &differences[i], &name);
        add_difference(&table, &differences[i], mt_strbuf_text(&name));
        mt_strbuf_finish_part(&name, out);
        n_lines++;
    }
    if (n_lines)
        cli_table_draw(&table, terminal, out);
    else
        mt_text_table_finish(&table);
}

/* ---- advice ---- */

static void put_advice(const struct mt_comparison *comparison, const struct cli_terminal *terminal,
                       struct mt_strbuf *out)
{
    if (comparison->n_advice)
        cli_table_heading(terminal, "What to adjust", out);
    for (size_t i = 0; i < comparison->n_advice; i++)
        cli_table_fact(terminal, out, mt_component_name(comparison->advice[i].component), "%s",
                       comparison->advice[i].text);
}

static void put_learnt(const struct compare_view *view, const struct cli_terminal *terminal,
                       struct mt_strbuf *out)
{
    if (view->n_learnt)
        cli_table_heading(terminal, "Learnt", out);
    for (size_t i = 0; i < view->n_learnt; i++) {
        const struct mt_residue *residue = &view->learnt[i];
        char low[SIGNED_TEXT];
        char mean[SIGNED_TEXT];
        char high[SIGNED_TEXT];
        cli_table_fact(terminal, out, mt_category_name(residue->category),
                       "%s on the %s (%s to %s) of %" PRIu64 " %s",
                       signed_size(1, residue->mean_bytes, "", mean), residue->place_kind,
                       signed_size(1, residue->low_bytes, "", low),
                       signed_size(1, residue->high_bytes, "", high), residue->n,
                       residue->n == 1 ? "run" : "runs");
    }
}

void compare_write_table(const struct compare_view *view, const struct cli_terminal *terminal,
                         struct mt_strbuf *out)
{
    const struct mt_comparison *comparison = view->comparison;
    put_side(view->a, "A", terminal, out);
    put_side(view->b, "B", terminal, out);
    put_basis(view, terminal, out);
    put_components("component", comparison->components, terminal, out);
    put_accuracy(comparison, terminal, out);
    put_places(comparison, terminal, out);
    put_differences(view, "category", comparison->rows, comparison->n_rows, ROWS_SHOWN, terminal,
                    out);
    if (view->a->side.kind == view->b->side.kind || view->show_all)
        put_differences(view, "part", comparison->parts, comparison->n_parts, PARTS_SHOWN, terminal,
                        out);
    put_advice(comparison, terminal, out);
    put_learnt(view, terminal, out);
    if (view->n_notes)
        mt_strbuf_puts(out, "\n");
    for (size_t i = 0; i < view->n_notes; i++)
        cli_table_fact(terminal, out, "note", "%s", view->notes[i]);
}
