/* SPDX-License-Identifier: MIT */
/* Engine tables: what differs between engines and their versions, as data.
 *
 * A table is data/engines/NAME/engine.table, built into the library. Lines:
 *
 *   engine NAME                 first line that is no comment
 *   title  TEXT                 "llama.cpp"
 *   versions build | dotted     how versions compare: b11434, or 0.11.0
 *   newest VERSION              taken where none is named
 *   release NAME VERSION        another name of a version: v0.5.0 of build 11149
 *   KEY SINCE VALUE [ ; SOURCE] VALUE holds from version SINCE on (0: always)
 *   # comment
 *
 * The line of a key with the latest SINCE that is not after the version is taken. A key is a word
 * with dots ("compute.host.copies"), a VALUE a number, a size, or words. */
#ifndef MT_ENGINE_ENGINE_H
#define MT_ENGINE_ENGINE_H

#include <stddef.h>
#include <stdint.h>

struct mt_error; /* <memtally/error.h> */

#define MT_ENGINE_VERSION_PARTS 4
#define MT_ENGINE_NAME_BYTES    32
#define MT_ENGINE_TITLE_BYTES   32
#define MT_ENGINE_BUCKETS       256

struct mt_engine_version {
    uint64_t parts[MT_ENGINE_VERSION_PARTS];
};

/* A table at a version; copied freely. Borrows the table's text, which is static. Lines of a key
 * lie between `first` and `last` of its bucket, offsets in the text. */
struct mt_engine {
    const char *text;
    size_t length;
    char name[MT_ENGINE_NAME_BYTES];
    char version_text[MT_ENGINE_NAME_BYTES]; /* "b11434", "0.11.0" */
    struct mt_engine_version version;
    char newest_text[MT_ENGINE_NAME_BYTES]; /* that the table knows */
    struct mt_engine_version newest;
    uint32_t first[MT_ENGINE_BUCKETS];
    uint32_t last[MT_ENGINE_BUCKETS];
};

/* Finds "llama.cpp" or "llama.cpp@11434" ("@b11434" too) among the built-in tables; NULL is the
 * first of them.
 * Errors: MT_ENOTFOUND (no such engine; the text names the nearest), MT_EARG (not a version). */
int mt_engine_find(const char *name_and_version, struct mt_engine *engine, struct mt_error *error);

/* The same for a table given as text; it must outlive the engine. Checks every line.
 * Errors: MT_EFORMAT with the offset of the line. */
int mt_engine_parse(const char *text, size_t length, const char *version, struct mt_engine *engine,
                    struct mt_error *error);

/* The value of a key at the engine's version, and where it was published (empty where the table
 * does not say). `value` points into the table and is not terminated. Returns 0 or MT_ENOTFOUND. */
struct mt_engine_value {
    const char *text;
    size_t length;
    const char *source;
    size_t source_length;
    char since[MT_ENGINE_NAME_BYTES];
};
int mt_engine_value(const struct mt_engine *engine, const char *key, struct mt_engine_value *value);

/* Walks over the keys of a table, in its order; `at` starts from 0. A key that stands in several
 * lines is met once. `key` is cut to `size`. Returns 0 behind the last. */
int mt_engine_next_key(const struct mt_engine *engine, size_t *at, char *key, size_t size);
/* Below 0, 0 or above 0, as one version comes before, is, or comes after another. */
int mt_engine_compare(const struct mt_engine_version *a, const struct mt_engine_version *b);
/* Sets `next` to the same table at the first version after that of `engine`, and not after `last`,
 * from which any line holds. Returns 0 where there is none. */
int mt_engine_next_version(const struct mt_engine *engine, const struct mt_engine_version *last,
                           struct mt_engine *next);

/* A key's value as a text, cut to `size`; "" where the table has none. */
const char *mt_engine_text(const struct mt_engine *engine, const char *key, char *text,
                           size_t size);
/* A key as a number (sizes may have units); `fallback` where the table has none. */
uint64_t mt_engine_number(const struct mt_engine *engine, const char *key, uint64_t fallback);
double mt_engine_real(const struct mt_engine *engine, const char *key, double fallback);
/* Whether the engine's version came after the one that is a key's value; not, where the table has
 * no such key. */
int mt_engine_is_after(const struct mt_engine *engine, const char *key);
/* How far the engine's version lies beyond what was read: 0 not at all; 1 after the version that
 * the key "read_up_to" names; 2 after the table's newest too, where that is later. */
unsigned mt_engine_steps_unread(const struct mt_engine *engine);
/* What the table calls the engine: "vLLM". */
const char *mt_engine_title(const struct mt_engine *engine, char title[MT_ENGINE_TITLE_BYTES]);
/* The value of `name` in a key whose value is words NAME=VALUE, or the word of number `index` with
 * its name. Where VALUE is several, with '|' between them, the first one. Texts are cut to `size`.
 * Returns 0 or MT_ENOTFOUND. */
int mt_engine_word(const struct mt_engine *engine, const char *key, const char *name, char *value,
                   size_t size);
int mt_engine_word_at(const struct mt_engine *engine, const char *key, size_t index, char *name,
                      char *value, size_t size);
/* The part of number `index` of the VALUE of `name`, whose parts have '|' between them. */
int mt_engine_part_at(const struct mt_engine *engine, const char *key, const char *name,
                      size_t index, char *value, size_t size);
/* Whether a key's value is, or among its words has, `word`. */
int mt_engine_has(const struct mt_engine *engine, const char *key, const char *word);

#endif
