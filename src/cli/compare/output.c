/* SPDX-License-Identifier: MIT */
/* A comparison as JSON and CSV. */
#include "cli/compare/output.h"

#include <inttypes.h>
#include <math.h>
#include <memtally/residue.h>
#include <stdio.h>

#include <memtally/units.h>

#include "emit/csv.h"
#include "emit/json.h"

const char *const compare_format_names[] = {"table", "json", "csv", NULL};

void compare_write(const struct compare_view *view, enum compare_format format,
                   const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    switch (format) {
    case COMPARE_TABLE:
        compare_write_table(view, terminal, out);
        break;
    case COMPARE_JSON:
        compare_write_json(view, out);
        break;
    case COMPARE_CSV:
        compare_write_csv(view, out);
        break;
    }
}

/* ---- JSON ---- */

static void put_bytes(struct mt_json *json, const char *key, int known, int64_t bytes)
{
    if (known)
        mt_json_signed(json, key, bytes);
    else
        mt_json_null(json, key);
}

static void put_side(struct mt_json *json, const char *key, const struct compare_loaded *side)
{
    static const char *const kinds[] = {
        [MT_SIDE_MEASUREMENT] = "measurement",
        [MT_SIDE_ESTIMATE] = "estimate",
        [MT_SIDE_FIGURES] = "figures",
    };
    int is_given = side->side.kind == MT_SIDE_FIGURES;
    mt_json_begin_object(json, key);
    mt_json_text(json, "kind", kinds[side->side.kind]);
    mt_json_text(json, "path", side->path);
    mt_json_text(json, "moment", side->moment);
    mt_json_text(json, "engine", side->engine_name);
    mt_json_text(json, "engine_version", side->engine_version);
    mt_json_text(json, "model", side->model_name ? side->model_name : side->model_path);
    mt_json_text(json, "unit", is_given ? compare_unit_names[side->unit] : NULL);
    mt_json_end(json);
}

static void put_component(struct mt_json *json, enum mt_component component,
                          const struct mt_component_difference *difference)
{
    int is_comparable = difference->verdict != MT_COMPARE_NOT_COMPARABLE;
    mt_json_begin_object(json, NULL);
    mt_json_text(json, "component", mt_component_name(component));
    put_bytes(json, "a_bytes", difference->a.known, difference->a.bytes);
    put_bytes(json, "b_bytes", difference->b.known, difference->b.bytes);
    mt_json_text(json, "a_basis", mt_basis_name(difference->a.basis));
    mt_json_text(json, "b_basis", mt_basis_name(difference->b.basis));
    mt_json_count(json, "a_allocated_bytes", difference->a.allocated_bytes);
    mt_json_count(json, "a_resident_bytes", difference->a.resident_bytes);
    mt_json_count(json, "b_allocated_bytes", difference->b.allocated_bytes);
    mt_json_count(json, "b_resident_bytes", difference->b.resident_bytes);
    put_bytes(json, "difference_bytes", is_comparable, difference->difference_bytes);
    mt_json_signed_real(json, "difference_ratio",
                        difference->ratio_known ? difference->difference_ratio : (double)NAN);
    mt_json_real(json, "band_ratio", difference->band_ratio);
    mt_json_text(json, "verdict", mt_compare_verdict_name(difference->verdict));
    mt_json_real(json, "accuracy_ratio", difference->accuracy_ratio);
    mt_json_end(json);
}

static void put_components(struct mt_json *json, const struct mt_component_difference *differences)
{
    mt_json_begin_array(json, "components");
    for (int i = 0; i < MT_COMPONENT_COUNT; i++)
        put_component(json, (enum mt_component)i, &differences[i]);
    mt_json_end(json);
}

static void put_places(struct mt_json *json, const struct mt_comparison *comparison)
{
    mt_json_begin_array(json, "places");
    for (size_t i = 0; i < comparison->n_places; i++) {
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "place", comparison->places[i].place);
        mt_json_bool(json, "in_a", comparison->places[i].in_a);
        mt_json_bool(json, "in_b", comparison->places[i].in_b);
        put_components(json, comparison->places[i].components);
        mt_json_end(json);
    }
    mt_json_end(json);
}

static void put_differences(struct mt_json *json, const char *key,
                            const struct mt_difference *differences, size_t n)
{
    mt_json_begin_array(json, key);
    for (size_t i = 0; i < n; i++) {
        const struct mt_difference *difference = &differences[i];
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "place", difference->place);
        mt_json_text(json, "category", compare_category_name(difference->category));
        if (difference->name)
            mt_json_text(json, "name", difference->name);
        mt_json_bool(json, "in_a", difference->in_a);
        mt_json_bool(json, "in_b", difference->in_b);
        mt_json_count(json, "a_bytes", difference->a_bytes);
        mt_json_count(json, "b_bytes", difference->b_bytes);
        put_bytes(json, "difference_bytes", difference->known, difference->difference_bytes);
        mt_json_end(json);
    }
    mt_json_end(json);
}

static void put_advice(struct mt_json *json, const struct mt_comparison *comparison)
{
    mt_json_begin_array(json, "advice");
    for (size_t i = 0; i < comparison->n_advice; i++) {
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "component", mt_component_name(comparison->advice[i].component));
        mt_json_text(json, "reason", comparison->advice[i].reason);
        mt_json_text(json, "text", comparison->advice[i].text);
        mt_json_end(json);
    }
    mt_json_end(json);
}

static void put_learnt(struct mt_json *json, const struct compare_view *view)
{
    mt_json_begin_array(json, "learnt");
    for (size_t i = 0; i < view->n_learnt; i++) {
        const struct mt_residue *residue = &view->learnt[i];
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "place", residue->place_kind);
        mt_json_text(json, "category", mt_category_name(residue->category));
        mt_json_count(json, "n", residue->n);
        mt_json_signed(json, "low_bytes", residue->low_bytes);
        mt_json_signed(json, "mean_bytes", residue->mean_bytes);
        mt_json_signed(json, "high_bytes", residue->high_bytes);
        mt_json_end(json);
    }
    mt_json_end(json);
}

void compare_write_json(const struct compare_view *view, struct mt_strbuf *out)
{
    const struct mt_comparison *comparison = view->comparison;
    struct mt_json json = {0};
    mt_json_begin_object(&json, NULL);
    mt_json_text(&json, "schema", "memtally/1");
    mt_json_text(&json, "kind", "comparison");
    mt_json_text(&json, "basis", mt_basis_name(comparison->basis));
    put_side(&json, "a", view->a);
    put_side(&json, "b", view->b);
    put_components(&json, comparison->components);
    mt_json_bool(&json, "all_within", comparison->all_within);
    mt_json_real(&json, "accuracy_ratio", comparison->accuracy_ratio);
    mt_json_real(&json, "parts_accuracy_ratio", comparison->parts_accuracy_ratio);
    put_bytes(&json, "left_for_overhead_bytes", comparison->left_known, comparison->left_bytes);
    put_places(&json, comparison);
    put_differences(&json, "rows", comparison->rows, comparison->n_rows);
    put_differences(&json, "parts", comparison->parts, comparison->n_parts);
    put_advice(&json, comparison);
    put_learnt(&json, view);
    mt_json_begin_array(&json, "notes");
    for (size_t i = 0; i < view->n_notes; i++)
        mt_json_text(&json, NULL, view->notes[i]);
    mt_json_end(&json);
    mt_json_end(&json);
    mt_json_finish(&json, out);
}

/* ---- CSV ---- */

static void put_signed_field(struct mt_csv *csv, int known, int64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, number);
    mt_csv_text(csv, known ? text : NULL);
}

static void put_ratio_field(struct mt_csv *csv, int known, double ratio)
{
    char text[32];
    snprintf(text, sizeof text, "%.6f", ratio);
    mt_csv_text(csv, known ? text : NULL);
}

static void put_component_line(struct mt_csv *csv, const char *place, enum mt_component component,
                               const struct mt_component_difference *difference)
{
    mt_csv_text(csv, "component");
    mt_csv_text(csv, place);
    mt_csv_text(csv, mt_component_name(component));
    mt_csv_text(csv, NULL);
    put_signed_field(csv, difference->a.known, difference->a.bytes);
    put_signed_field(csv, difference->b.known, difference->b.bytes);
    put_signed_field(csv, difference->verdict != MT_COMPARE_NOT_COMPARABLE,
                     difference->difference_bytes);
    put_ratio_field(csv, difference->ratio_known, difference->difference_ratio);
    put_ratio_field(csv, 1, difference->band_ratio);
    mt_csv_text(csv, mt_compare_verdict_name(difference->verdict));
    mt_csv_end_line(csv);
}

static void put_difference_line(struct mt_csv *csv, const char *level,
                                const struct mt_difference *difference)
{
    mt_csv_text(csv, level);
    mt_csv_text(csv, difference->place);
    mt_csv_text(csv, compare_category_name(difference->category));
    mt_csv_text(csv, difference->name);
    mt_csv_count(csv, difference->in_a ? difference->a_bytes : MT_UNKNOWN);
    mt_csv_count(csv, difference->in_b ? difference->b_bytes : MT_UNKNOWN);
    put_signed_field(csv, difference->known, difference->difference_bytes);
    mt_csv_text(csv, NULL);
    mt_csv_text(csv, NULL);
    mt_csv_text(csv, NULL);
    mt_csv_end_line(csv);
}

void compare_write_csv(const struct compare_view *view, struct mt_strbuf *out)
{
    const struct mt_comparison *comparison = view->comparison;
    struct mt_csv csv = {out, 0};
    mt_csv_headings(&csv, "level,place,component_or_category,name,a_bytes,b_bytes,difference_bytes,"
                          "difference_ratio,band_ratio,verdict");
    for (int i = 0; i < MT_COMPONENT_COUNT; i++)
        put_component_line(&csv, NULL, (enum mt_component)i, &comparison->components[i]);
    for (size_t p = 0; p < comparison->n_places; p++)
        for (int i = 0; i < MT_COMPONENT_COUNT; i++)
            put_component_line(&csv, comparison->places[p].place, (enum mt_component)i,
                               &comparison->places[p].components[i]);
    for (size_t i = 0; i < comparison->n_rows; i++)
        put_difference_line(&csv, "row", &comparison->rows[i]);
    for (size_t i = 0; i < comparison->n_parts; i++)
        put_difference_line(&csv, "detail", &comparison->parts[i]);
}
