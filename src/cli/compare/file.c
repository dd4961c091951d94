/* SPDX-License-Identifier: MIT */
/* Reading a JSON file into a tally, or into figures. */
#include "cli/compare/file.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <memtally/units.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "base/out_of_memory.h"
#include "base/strbuf.h"
#include "cli/json_offset.h"
#include "drive/json_get.h"

#define LARGEST_BYTES (64 << 20)
#define PLACES_MAX    256

const char *const compare_unit_names[] = {"GB", "GiB", NULL};

double compare_unit_bytes(enum compare_unit unit)
{
    return unit == COMPARE_GB ? 1e9 : 1073741824.0;
}

/* A file while it is read. `path` is where in the document the reader stands. */
struct reading {
    const char *name;
    struct mt_strbuf text;
    struct compare_file *file;
    char path[160];
    size_t n_rows;
    size_t n_details;
    int result;
    struct mt_error *error;
};

/* Remembers the first thing that is wrong, at `path`.`key`. */
static void refuse(struct reading *reading, const char *key, const char *expected)
{
    char path[256];
    if (reading->result)
        return;
    snprintf(path, sizeof path, "%s%s%s", reading->path, *reading->path && *key ? "." : "", key);
    uint64_t offset = cli_json_offset(reading->text.data, reading->text.length, path);
    reading->result = mt_fail(reading->error, MT_EFORMAT, offset, "%s: %s%sis not %s",
                              reading->name, path, *path ? " " : "", expected);
}

/* A size in bytes, MT_UNKNOWN for null and for what is not there. */
static uint64_t read_bytes(struct reading *reading, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value))
        return MT_UNKNOWN;
    if (json_is_integer(value) && json_integer_value(value) >= 0 &&
        (uint64_t)json_integer_value(value) <= COMPARE_BYTES_MAX)
        return (uint64_t)json_integer_value(value);
    refuse(reading, key, "a number of bytes from 0 to 2^60");
    return MT_UNKNOWN;
}

static const char *read_name(struct reading *reading, const json_t *object, const char *key)
{
    const char *name = json_string_value(json_object_get(object, key));
    if (!name)
        refuse(reading, key, "a text");
    return name ? name : "";
}

/* If the word is no known provenance, the least sure one is taken. */
static enum mt_provenance provenance_of(const json_t *object)
{
    const char *name = json_string_value(json_object_get(object, "provenance"));
    for (int i = 0; name && i < MT_PROVENANCE_COUNT; i++)
        if (strcmp(name, mt_provenance_name((enum mt_provenance)i)) == 0)
            return (enum mt_provenance)i;
    return MT_PROVENANCE_ASSUMED;
}

/* Documents of before there were kinds say nothing of them. */
static enum mt_term_kind kind_of(const json_t *object)
{
    const char *name = json_string_value(json_object_get(object, "kind"));
    for (int i = MT_TERM_NONE + 1; name && i < MT_TERM_COUNT; i++)
        if (strcmp(name, mt_term_kind_name((enum mt_term_kind)i)) == 0)
            return (enum mt_term_kind)i;
    return MT_TERM_NONE;
}

static void read_detail(struct reading *reading, const json_t *object,
                        struct mt_tally_detail *detail)
{
    if (!json_is_object(object))
        refuse(reading, "", "an object");
    *detail = (struct mt_tally_detail){
        .name = read_name(reading, object, "name"),
        .allocated_bytes = read_bytes(reading, object, "allocated_bytes"),
        .resident_bytes = read_bytes(reading, object, "resident_bytes"),
        .low_bytes = read_bytes(reading, object, "low_bytes"),
        .high_bytes = read_bytes(reading, object, "high_bytes"),
        .provenance = provenance_of(object),
        .kind = kind_of(object),
    };
}

/* An array at `key` that may be missing. */
static size_t size_of_array(struct reading *reading, const json_t *object, const char *key)
{
    const json_t *array = json_object_get(object, key);
    if (array && !json_is_null(array) && !json_is_array(array))
        refuse(reading, key, "a list");
    return json_array_size(array);
}

/* Stands in element `i` of the list at `key`; returns what undoes it. */
static size_t enter(struct reading *reading, const char *key, size_t i)
{
    size_t length = strlen(reading->path);
    snprintf(reading->path + length, sizeof reading->path - length, "%s%s[%zu]", length ? "." : "",
             key, i);
    return length;
}

static void leave(struct reading *reading, size_t length)
{
    reading->path[length] = '\0';
}

static void read_row(struct reading *reading, const json_t *object, struct mt_tally_row *row)
{
    const char *category = json_string_value(json_object_get(object, "category"));
    *row = (struct mt_tally_row){
        .category = category ? mt_category_by_name(category) : MT_CATEGORY_NONE,
        .allocated_bytes = read_bytes(reading, object, "allocated_bytes"),
        .resident_bytes = read_bytes(reading, object, "resident_bytes"),
        .low_bytes = read_bytes(reading, object, "low_bytes"),
        .high_bytes = read_bytes(reading, object, "high_bytes"),
        .provenance = provenance_of(object),
        .n_details = size_of_array(reading, object, "detail"),
        .details = reading->file->details + reading->n_details,
    };
    if (row->category == MT_CATEGORY_NONE)
        refuse(reading, "category", "a category of memtally");
    const json_t *details = json_object_get(object, "detail");
    for (size_t i = 0; i < row->n_details && !reading->result; i++) {
        size_t outer = enter(reading, "detail", i);
        read_detail(reading, json_array_get(details, i),
                    &reading->file->details[reading->n_details++]);
        leave(reading, outer);
    }
}

static void read_place(struct reading *reading, const json_t *object, struct mt_tally_place *place)
{
    if (!json_is_object(object))
        refuse(reading, "", "an object");
    *place = (struct mt_tally_place){
        .place = read_name(reading, object, "place"),
        .total_resident_bytes = read_bytes(reading, object, "total_resident_bytes"),
        .peak_resident_bytes = read_bytes(reading, object, "peak_resident_bytes"),
        .capacity_bytes = read_bytes(reading, object, "capacity_bytes"),
        .unattributed_bytes = read_bytes(reading, object, "unattributed_bytes"),
        .total_allocated_bytes = read_bytes(reading, object, "total_allocated_bytes"),
        .total_low_bytes = MT_UNKNOWN,
        .total_high_bytes = MT_UNKNOWN,
        .n_rows = size_of_array(reading, object, "rows"),
        .rows = reading->file->rows + reading->n_rows,
    };
    const json_t *rows = json_object_get(object, "rows");
    for (size_t i = 0; i < place->n_rows && !reading->result; i++) {
        size_t outer = enter(reading, "rows", i);
        read_row(reading, json_array_get(rows, i), &reading->file->rows[reading->n_rows++]);
        leave(reading, outer);
    }
}

/* Makes room for all that the document can have. */
static int make_room(struct reading *reading, const json_t *places)
{
    struct compare_file *file = reading->file;
    size_t n_rows = 0;
    size_t n_details = 0;
    size_t i;
    size_t j;
    const json_t *place;
    const json_t *row;
    json_array_foreach(places, i, place)
    {
        n_rows += json_array_size(json_object_get(place, "rows"));
        json_array_foreach(json_object_get(place, "rows"), j, row) n_details +=
            json_array_size(json_object_get(row, "detail"));
    }
    file->places = calloc(json_array_size(places) + 1, sizeof *file->places);
    file->rows = calloc(n_rows + 1, sizeof *file->rows);
    file->details = calloc(n_details + 1, sizeof *file->details);
    return file->places && file->rows && file->details;
}

static void refuse_places_twice(struct reading *reading, size_t n)
{
    for (size_t i = 1; i < n && !reading->result; i++)
        for (size_t j = 0; j < i && !reading->result; j++)
            if (strcmp(reading->file->places[i].place, reading->file->places[j].place) == 0) {
                enter(reading, "places", i);
                refuse(reading, "place", "a place that is listed once");
                leave(reading, 0);
            }
}

static void read_tally(struct reading *reading, enum mt_tally_kind kind)
{
    struct compare_file *file = reading->file;
    const json_t *places = json_object_get(file->root, "places");
    size_t n = json_array_size(places);
    if (!json_is_array(places) || n > PLACES_MAX) {
        refuse(reading, "places", "a list of at most 256 places");
        return;
    }
    if (!make_room(reading, places)) {
        reading->result = mt_out_of_memory(reading->error);
        return;
    }
    for (size_t i = 0; i < n && !reading->result; i++) {
        enter(reading, "places", i);
        read_place(reading, json_array_get(places, i), &file->places[i]);
        leave(reading, 0);
    }
    refuse_places_twice(reading, n);
    const json_t *engine = json_object_get(file->root, "engine");
    file->is_tally = 1;
    file->tally = (struct mt_tally){
        .kind = kind,
        .moment_ns = mt_profile_json_count(file->root, "moment_ns"),
        .engine_name = mt_profile_json_text(engine, "name"),
        .engine_version = mt_profile_json_text(engine, "version"),
        .model_path = mt_profile_json_text(json_object_get(file->root, "model"), "path"),
        .n_places = n,
        .places = file->places,
    };
}

/* One figure of a profiler; only an overhead may be negative. */
static void read_figure(struct reading *reading, const json_t *breakdown, const char *key,
                        enum mt_component component, double unit_bytes)
{
    const json_t *value = json_object_get(breakdown, key);
    struct mt_component_figure *figure = &reading->file->figures.of[component];
    if (!value || json_is_null(value) || figure->known)
        return;
    double bytes = json_number_value(value) * unit_bytes;
    double least = component == MT_COMPONENT_OVERHEAD ? -(double)COMPARE_BYTES_MAX : 0;
    if (!json_is_number(value) || !(bytes >= least) || bytes > (double)COMPARE_BYTES_MAX) {
        refuse(reading, key, least < 0 ? "a size below 2^60 bytes" : "a size from 0 to 2^60 bytes");
        return;
    }
    figure->known = 1;
    figure->bytes = (int64_t)llround(bytes);
}

static void read_breakdown(struct reading *reading, enum compare_unit unit)
{
    const json_t *breakdown = json_object_get(reading->file->root, "memory_breakdown");
    double bytes = compare_unit_bytes(unit);
    int n = 0;
    if (!breakdown) {
        mt_fail(reading->error, MT_EFORMAT, MT_NO_OFFSET,
                "%s is no report: 'memtally report --json' and 'memtally estimate --json' write "
                "one, and a profiler one with a memory_breakdown",
                reading->name);
        reading->result = MT_EFORMAT;
        return;
    }
    if (!json_is_object(breakdown)) {
        refuse(reading, "memory_breakdown", "a breakdown as profilers write it");
        return;
    }
    snprintf(reading->path, sizeof reading->path, "memory_breakdown");
    read_figure(reading, breakdown, "model_weights_gb", MT_COMPONENT_WEIGHTS, bytes);
    read_figure(reading, breakdown, "kv_cache_gb", MT_COMPONENT_KV_CACHE, bytes);
    read_figure(reading, breakdown, "activations_gb", MT_COMPONENT_ACTIVATIONS, bytes);
    read_figure(reading, breakdown, "framework_overhead_gb", MT_COMPONENT_OVERHEAD, bytes);
    read_figure(reading, breakdown, "total_gb", MT_COMPONENT_TOTAL, bytes);
    read_figure(reading, breakdown, "total_measured_gb", MT_COMPONENT_TOTAL, bytes);
    for (int i = 0; i < MT_COMPONENT_COUNT; i++)
        n += reading->file->figures.of[i].known;
    if (n == 0)
        refuse(reading, "", "a breakdown with any of the figures that profilers write");
    leave(reading, 0);
}

static void read_document(struct reading *reading, enum compare_unit unit)
{
    const json_t *root = reading->file->root;
    const char *schema = mt_profile_json_text(root, "schema");
    const char *kind = mt_profile_json_text(root, "kind");
    if (!json_is_object(root))
        refuse(reading, "", "one document (of a list, save one as a file of its own)");
    else if (!json_object_get(root, "schema"))
        read_breakdown(reading, unit);
    else if (!schema || strcmp(schema, "memtally/1") != 0)
        refuse(reading, "schema", "\"memtally/1\", which is what this version reads");
    else if (kind && strcmp(kind, "measurement") == 0)
        read_tally(reading, MT_TALLY_MEASUREMENT);
    else if (kind && strcmp(kind, "estimate") == 0)
        read_tally(reading, MT_TALLY_ESTIMATE);
    else
        refuse(reading, "kind", "a measurement or an estimate");
}

/* Appends the file's bytes to the text. */
static int load_text(struct reading *reading)
{
    char bytes[8192];
    struct stat status;
    size_t n;
    FILE *stream = fopen(reading->name, "rbe");
    if (!stream)
        return mt_fail_errno(reading->error, errno, "%s", reading->name);
    int is_file = fstat(fileno(stream), &status) == 0 && S_ISREG(status.st_mode);
    while (is_file && reading->text.length <= LARGEST_BYTES &&
           (n = fread(bytes, 1, sizeof bytes, stream)) > 0)
        mt_strbuf_append(&reading->text, bytes, n);
    int failed = ferror(stream);
    fclose(stream);
    if (!is_file)
        return mt_fail(reading->error, MT_EARG, MT_NO_OFFSET,
                       "%s is neither a folder nor a regular file", reading->name);
    if (!strncmp(mt_strbuf_text(&reading->text), "GGUF", 4))
        return mt_fail(
            reading->error, MT_EFORMAT, MT_NO_OFFSET,
            "%s is a model, not a report; compare its estimate, which 'memtally estimate "
            "--json' writes",
            reading->name);
    if (reading->text.length > LARGEST_BYTES)
        return mt_fail(reading->error, MT_EFORMAT, LARGEST_BYTES,
                       "%s is larger than 64 MiB, which no report is", reading->name);
    if (failed)
        return mt_fail(reading->error, MT_EIO, MT_NO_OFFSET, "%s: cannot be read", reading->name);
    if (mt_strbuf_failed(&reading->text))
        return mt_out_of_memory(reading->error);
    return 0;
}

static int parse(struct reading *reading, enum compare_unit unit)
{
    json_error_t wrong;
    reading->file->root = json_loadb(mt_strbuf_text(&reading->text), reading->text.length,
                                     JSON_REJECT_DUPLICATES, &wrong);
    if (!reading->file->root)
        return mt_fail(reading->error, MT_EFORMAT,
                       wrong.position > 0 ? (uint64_t)wrong.position : 0, "%s: not JSON: %s",
                       reading->name, wrong.text);
    read_document(reading, unit);
    return reading->result;
}

int compare_file_read(const char *path, enum compare_unit unit, struct compare_file **file,
                      struct mt_error *error)
{
    struct reading reading = {.name = path, .error = error};
    int result = load_text(&reading);
    if (result == 0) {
        reading.file = calloc(1, sizeof *reading.file);
        result = reading.file ? parse(&reading, unit) : mt_out_of_memory(error);
    }
    mt_strbuf_finish(&reading.text);
    if (result)
        compare_file_destroy(reading.file);
    else
        *file = reading.file;
    return result;
}

void compare_file_destroy(struct compare_file *file)
{
    if (!file)
        return;
    free(file->places);
    free(file->rows);
    free(file->details);
    json_decref(file->root);
    free(file);
}
