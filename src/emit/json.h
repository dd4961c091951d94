/* SPDX-License-Identifier: MIT */
/* JSON in the order in which it is written.
 *
 * A thin layer over jansson that keeps the rules of all our output: unknown (MT_UNKNOWN, NULL, a
 * negative time) is null and never left out, sizes are integers, and a name that is not UTF-8 is
 * repaired instead of losing the document. Start with {0}; within an object every value has a key,
 * within an array the key is NULL. */
#ifndef MT_EMIT_JSON_H
#define MT_EMIT_JSON_H

#include <jansson.h>
#include <stdint.h>

#include "base/strbuf.h"

#define MT_JSON_DEPTH_MAX 16

struct mt_json {
    json_t *open[MT_JSON_DEPTH_MAX]; /* the document, and what is open within it */
    int depth;
    int failed;
};

/* The first that is begun is the document. */
void mt_json_begin_object(struct mt_json *json, const char *key);
void mt_json_begin_array(struct mt_json *json, const char *key);
void mt_json_end(struct mt_json *json);

void mt_json_text(struct mt_json *json, const char *key, const char *text);
void mt_json_count(struct mt_json *json, const char *key, uint64_t count);
void mt_json_signed(struct mt_json *json, const char *key, int64_t number);
void mt_json_real(struct mt_json *json, const char *key, double real);
/* One that may be negative: NAN is unknown. */
void mt_json_signed_real(struct mt_json *json, const char *key, double real);
void mt_json_bool(struct mt_json *json, const char *key, int truth);
void mt_json_null(struct mt_json *json, const char *key);

/* Appends the document, indented and with a final newline, to `out`, and frees it. A failure is
 * left in `out` as a failed append. */
void mt_json_finish(struct mt_json *json, struct mt_strbuf *out);
/* The same on one line. */
void mt_json_finish_line(struct mt_json *json, struct mt_strbuf *out);

#endif
