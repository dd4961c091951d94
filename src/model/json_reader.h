/* SPDX-License-Identifier: MIT */
/* A strict pull reader of JSON that lies in memory.
 *
 * Each call hands over one token; a token refers to the text, nothing is copied or allocated. Time
 * is linear in the text, nesting deeper than MT_JSON_DEPTH_MAX is an error. Strings are checked to
 * be UTF-8, and escaped surrogates to come in pairs. Beside RFC 8259 the words NaN, Infinity and
 * -Infinity count as numbers, since Python writes them. Keys that occur twice are the caller's to
 * find: it sees every key. */
#ifndef MT_MODEL_JSON_READER_H
#define MT_MODEL_JSON_READER_H

#include <stddef.h>
#include <stdint.h>

struct mt_error; /* <memtally/error.h> */

#define MT_JSON_DEPTH_MAX 256

enum mt_json_type {
    MT_JSON_END, /* the text is over */
    MT_JSON_OBJECT,
    MT_JSON_OBJECT_END,
    MT_JSON_ARRAY,
    MT_JSON_ARRAY_END,
    MT_JSON_KEY, /* its value is the next token */
    MT_JSON_STRING,
    MT_JSON_NUMBER,
    MT_JSON_TRUE,
    MT_JSON_FALSE,
    MT_JSON_NULL
};

/* `text` of a string or key lies between its quotes, escapes unresolved; of a number it is the
 * number, of a bracket the bracket. */
struct mt_json_token {
    enum mt_json_type type;
    int escaped; /* a string or key has escapes */
    const char *text;
    size_t length;
};

enum mt_json_state {
    MT_JSON_AT_VALUE,
    MT_JSON_AT_FIRST_VALUE, /* or the end of an array */
    MT_JSON_AT_FIRST_KEY,   /* or the end of an object */
    MT_JSON_AFTER_VALUE
};

struct mt_json {
    const char *name; /* of the file, for errors */
    const char *text;
    size_t length;
    size_t at;
    uint64_t base_offset; /* of `text` in the file, for errors */
    unsigned depth;
    enum mt_json_state state;
    uint64_t objects[MT_JSON_DEPTH_MAX / 64]; /* bit i: level i is an object */
};

/* Starts at the text's only value. `name` and `text` are borrowed. */
void mt_json_start(struct mt_json *json, const char *name, const char *text, size_t length,
                   uint64_t base_offset);

/* Takes the next token. Errors: MT_EFORMAT, MT_ELIMIT (too deep); the offset is the place in the
 * file. */
int mt_json_next(struct mt_json *json, struct mt_json_token *token, struct mt_error *error);

/* Skips to the end of the value that began with `token`, and makes its text the whole value. */
int mt_json_finish_value(struct mt_json *json, struct mt_json_token *token, struct mt_error *error);

/* Where `token` begins in the file. */
uint64_t mt_json_offset(const struct mt_json *json, const struct mt_json_token *token);

/* An unsigned whole number, also written as 4096.0 or 1e6. Returns 0, MT_EFORMAT (no such number)
 * or MT_ELIMIT (from 2^64 on). */
int mt_json_u64(const struct mt_json_token *token, uint64_t *number);

/* Any number, to the next double. Returns 0 or MT_EFORMAT. */
int mt_json_double(const struct mt_json_token *token, double *number);

/* Resolves escapes of a string or key into `text`, which has room for token->length bytes, and
 * returns how many it took; no zero is added. The token is of mt_json_next(), which checked it. */
size_t mt_json_unescape(const struct mt_json_token *token, char *text);

/* Whether a string or key without escapes reads `text`. */
int mt_json_is(const struct mt_json_token *token, const char *text);

#endif
