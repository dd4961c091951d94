/* SPDX-License-Identifier: MIT */
/* The JSON writer. */
#include "emit/json.h"

#include <math.h>
#include <stdlib.h>

#include "emit/text.h"

/* Adds `value` (which may be NULL after a failed allocation) where the document stands. */
static void add(struct mt_json *json, const char *key, json_t *value)
{
    if (!value || json->depth == 0) {
        json_decref(value);
        json->failed = 1;
        return;
    }
    json_t *parent = json->open[json->depth - 1];
    int result = json_is_array(parent) ? json_array_append_new(parent, value)
                                       : json_object_set_new(parent, key, value);
    if (result)
        json->failed = 1;
}

static void begin(struct mt_json *json, const char *key, json_t *value)
{
    if (json->failed || !value || json->depth == MT_JSON_DEPTH_MAX) {
        json_decref(value);
        json->failed = 1;
        return;
    }
    if (json->depth)
        add(json, key, value);
    if (!json->failed)
        json->open[json->depth++] = value;
}

void mt_json_begin_object(struct mt_json *json, const char *key)
{
    begin(json, key, json_object());
}

void mt_json_begin_array(struct mt_json *json, const char *key)
{
    begin(json, key, json_array());
}

void mt_json_end(struct mt_json *json)
{
    /* The document itself stays until mt_json_finish(). */
    if (json->depth > 1 && !json->failed)
        json->depth--;
}

void mt_json_null(struct mt_json *json, const char *key)
{
    add(json, key, json_null());
}

void mt_json_text(struct mt_json *json, const char *key, const char *text)
{
    if (!text) {
        mt_json_null(json, key);
        return;
    }
    struct mt_strbuf repaired = {0};
    mt_text_repair(&repaired, text);
    if (mt_strbuf_failed(&repaired))
        json->failed = 1;
    add(json, key, json_stringn(mt_strbuf_text(&repaired), repaired.length));
    mt_strbuf_finish(&repaired);
}

void mt_json_count(struct mt_json *json, const char *key, uint64_t count)
{
    /* No memory is larger than 2^63; a figure that says so is not known. */
    add(json, key, count > INT64_MAX ? json_null() : json_integer((json_int_t)count));
}

void mt_json_signed(struct mt_json *json, const char *key, int64_t number)
{
    add(json, key, json_integer((json_int_t)number));
}

void mt_json_real(struct mt_json *json, const char *key, double real)
{
    add(json, key, isfinite(real) && real >= 0 ? json_real(real) : json_null());
}

void mt_json_signed_real(struct mt_json *json, const char *key, double real)
{
    add(json, key, isfinite(real) ? json_real(real) : json_null());
}

void mt_json_bool(struct mt_json *json, const char *key, int truth)
{
    add(json, key, json_boolean(truth));
}

static int append(const char *bytes, size_t length, void *out)
{
    mt_strbuf_append(out, bytes, length);
    return mt_strbuf_failed(out) ? -1 : 0;
}

static void finish(struct mt_json *json, struct mt_strbuf *out, size_t form)
{
    json_t *document = json->open[0];
    size_t flags = form | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(12);
    if (json->failed || !document || json_dump_callback(document, append, out, flags))
        out->failed = 1;
    mt_strbuf_puts(out, "\n");
    json_decref(document);
    *json = (struct mt_json){0};
}

void mt_json_finish(struct mt_json *json, struct mt_strbuf *out)
{
    finish(json, out, JSON_INDENT(2));
}

void mt_json_finish_line(struct mt_json *json, struct mt_strbuf *out)
{
    finish(json, out, 0);
}
