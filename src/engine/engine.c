/* SPDX-License-Identifier: MIT */
/* Reading engine tables. A table is searched as text: it is short, and nothing is kept. */
#include "engine/engine.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/settings.h>
#include <memtally/units.h>

#include "base/error.h"
#include "engine/tables.h"

/* Words longer than this are in no table. */
#define WORD_BYTES 96

struct words {
    const char *at;
    const char *end;
};

static int is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Takes the next line; 0 at the end of the text. */
static int next_line(struct words *text, struct words *line)
{
    if (text->at >= text->end)
        return 0;
    const char *newline = memchr(text->at, '\n', (size_t)(text->end - text->at));
    line->at = text->at;
    line->end = newline ? newline : text->end;
    text->at = newline ? newline + 1 : text->end;
    return 1;
}

/* Takes the next word; its length is 0 at the end of the line. */
static struct words next_word(struct words *line)
{
    while (line->at < line->end && is_blank(*line->at))
        line->at++;
    struct words word = {line->at, line->at};
    while (line->at < line->end && !is_blank(*line->at))
        line->at++;
    word.end = line->at;
    return word;
}

static size_t length_of(struct words words)
{
    return (size_t)(words.end - words.at);
}

static int equals(struct words words, const char *text)
{
    return length_of(words) == strlen(text) && memcmp(words.at, text, length_of(words)) == 0;
}

static struct words trimmed(struct words words)
{
    while (words.at < words.end && is_blank(*words.at))
        words.at++;
    while (words.end > words.at && is_blank(words.end[-1]))
        words.end--;
    return words;
}

/* Reads "b11434", "11434", "0.11.0" or "0.11.0rc1", whose last part is then 0.11.0's. */
static int parse_version(struct words words, struct mt_engine_version *version)
{
    struct mt_engine_version parsed = {0};
    const char *at = words.at;
    if (at < words.end && (*at == 'b' || *at == 'v'))
        at++;
    for (size_t i = 0; i < MT_ENGINE_VERSION_PARTS; i++) {
        if (at >= words.end || !isdigit((unsigned char)*at))
            return MT_EARG;
        while (at < words.end && isdigit((unsigned char)*at)) {
            if (parsed.parts[i] > UINT32_MAX)
                return MT_EARG;
            parsed.parts[i] = parsed.parts[i] * 10 + (uint64_t)(*at++ - '0');
        }
        if (at >= words.end || *at != '.' || at + 1 >= words.end ||
            !isdigit((unsigned char)at[1])) {
            *version = parsed;
            return 0;
        }
        at++;
    }
    *version = parsed;
    return 0;
}

int mt_engine_compare(const struct mt_engine_version *a, const struct mt_engine_version *b)
{
    for (size_t i = 0; i < MT_ENGINE_VERSION_PARTS; i++)
        if (a->parts[i] != b->parts[i])
            return a->parts[i] < b->parts[i] ? -1 : 1;
    return 0;
}

static int is_key_character(char c)
{
    return islower((unsigned char)c) || isdigit((unsigned char)c) || c == '.' || c == '_';
}

static int is_key(struct words word)
{
    for (const char *c = word.at; c < word.end; c++)
        if (!is_key_character(*c))
            return 0;
    return length_of(word) > 0 && length_of(word) < WORD_BYTES;
}

static void copy_cut(char *to, size_t size, struct words words)
{
    size_t length = length_of(words) < size ? length_of(words) : size - 1;
    memcpy(to, words.at, length);
    to[length] = 0;
}

static void copy_word(char to[MT_ENGINE_NAME_BYTES], struct words word)
{
    copy_cut(to, MT_ENGINE_NAME_BYTES, word);
}

/* What stands in front: engine, title, versions, newest. Returns 1 where the line was one of
 * them. */
static int read_heading(struct words key, struct words rest, struct mt_engine *engine)
{
    struct words value = trimmed(rest);
    if (equals(key, "engine"))
        copy_word(engine->name, value);
    else if (equals(key, "newest"))
        copy_word(engine->version_text, value);
    else if (!equals(key, "title") && !equals(key, "versions") && !equals(key, "release"))
        return 0;
    return 1;
}

static unsigned bucket_of(const char *key, size_t length)
{
    unsigned hash = 0;
    for (size_t i = 0; i < length; i++)
        hash = hash * 31 + (unsigned char)key[i];
    return hash % MT_ENGINE_BUCKETS;
}

static void note_line(struct mt_engine *engine, struct words key, struct words line)
{
    unsigned bucket = bucket_of(key.at, length_of(key));
    if (!engine->last[bucket])
        engine->first[bucket] = (uint32_t)(line.at - engine->text);
    engine->last[bucket] = (uint32_t)(line.end - engine->text);
}

/* Divides "VALUE ; SOURCE". */
static void split_source(struct words rest, struct mt_engine_value *value)
{
    const char *semicolon = rest.at;
    while (semicolon < rest.end && !(*semicolon == ';' && is_blank(semicolon[-1])))
        semicolon++;
    semicolon = semicolon < rest.end ? semicolon : NULL;
    struct words left = trimmed((struct words){rest.at, semicolon ? semicolon : rest.end});
    struct words right = trimmed((struct words){semicolon ? semicolon + 1 : rest.end, rest.end});
    value->text = left.at;
    value->length = length_of(left);
    value->source = right.at;
    value->source_length = length_of(right);
}

static int check_line(struct words line, struct mt_engine *engine, const char *text,
                      struct mt_error *error)
{
    uint64_t offset = (uint64_t)(line.at - text);
    struct words rest = line;
    if (length_of(line) && is_blank(*line.at) && length_of(trimmed(line)))
        return mt_fail(error, MT_EFORMAT, offset, "engine table: a line starts with a blank");
    struct words key = next_word(&rest);
    if (!length_of(key) || *key.at == '#')
        return 0;
    if (!is_key(key))
        return mt_fail(error, MT_EFORMAT, offset, "engine table: a key was expected");
    if (read_heading(key, rest, engine))
        return 0;
    struct mt_engine_version since;
    if (parse_version(next_word(&rest), &since) < 0)
        return mt_fail(error, MT_EFORMAT, offset,
                       "engine table: %.*s: the version that it holds from was expected",
                       (int)length_of(key), key.at);
    struct mt_engine_value value;
    split_source(rest, &value);
    if (!value.length)
        return mt_fail(error, MT_EFORMAT, offset, "engine table: %.*s has no value",
                       (int)length_of(key), key.at);
    note_line(engine, key, line);
    return 0;
}

/* Whether `wanted` is another name of a version; then takes that version. */
static int is_release(struct words text, const char *wanted, struct words *version)
{
    struct words line;
    struct mt_engine_version named;
    struct mt_engine_version asked;
    struct words whole = {wanted, wanted + strlen(wanted)};
    while (next_line(&text, &line)) {
        if (!equals(next_word(&line), "release"))
            continue;
        if (parse_version(next_word(&line), &named) < 0 || parse_version(whole, &asked) < 0 ||
            mt_engine_compare(&named, &asked))
            continue;
        *version = next_word(&line);
        return 1;
    }
    return 0;
}

int mt_engine_parse(const char *text, size_t length, const char *version, struct mt_engine *engine,
                    struct mt_error *error)
{
    if (length > UINT32_MAX)
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "engine table: it is too long");
    struct mt_engine parsed = {.text = text, .length = length};
    struct words all = {text, text + length};
    struct words line;
    while (next_line(&all, &line)) {
        int result = check_line(line, &parsed, text, error);
        if (result < 0)
            return result;
    }
    if (!parsed.name[0] || !parsed.version_text[0])
        return mt_fail(error, MT_EFORMAT, 0,
                       "engine table: the lines engine and newest are needed");
    struct words wanted = {parsed.version_text, parsed.version_text + strlen(parsed.version_text)};
    if (parse_version(wanted, &parsed.newest) < 0)
        return mt_fail(error, MT_EFORMAT, 0, "engine table: the newest version is none");
    if (version && !(strchr(version, '.') &&
                     is_release((struct words){text, text + length}, version, &wanted)))
        wanted = (struct words){version, version + strlen(version)};
    if (length_of(wanted) >= MT_ENGINE_NAME_BYTES || parse_version(wanted, &parsed.version) < 0)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%.40s is no version of %s; %s is the newest one that is known", wanted.at,
                       parsed.name, parsed.version_text);
    copy_word(
        parsed.newest_text,
        (struct words){parsed.version_text, parsed.version_text + strlen(parsed.version_text)});
    if (version)
        copy_word(parsed.version_text, wanted);
    *engine = parsed;
    return 0;
}

static int list_engines(char *text, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; mt_engine_name_at(i) && used < size; i++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", mt_engine_name_at(i));
    return 0;
}

int mt_engine_find(const char *name_and_version, struct mt_engine *engine, struct mt_error *error)
{
    if (!name_and_version)
        name_and_version = mt_engine_tables[0].name;
    const char *at = strchr(name_and_version, '@');
    size_t length = at ? (size_t)(at - name_and_version) : strlen(name_and_version);
    for (const struct mt_engine_table *table = mt_engine_tables; table->name; table++)
        if (strlen(table->name) == length && !strncasecmp(table->name, name_and_version, length))
            return mt_engine_parse(table->text, (size_t)(table->end - table->text),
                                   at ? at + 1 : NULL, engine, error);
    char known[256] = "";
    list_engines(known, sizeof known);
    return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET, "there is no engine %.*s; known are %s",
                   (int)(length > 60 ? 60 : length), name_and_version, known);
}

const char *mt_engine_name_at(size_t index)
{
    for (size_t i = 0; mt_engine_tables[i].name; i++)
        if (i == index)
            return mt_engine_tables[i].name;
    return NULL;
}

int mt_engine_value(const struct mt_engine *engine, const char *key, struct mt_engine_value *value)
{
    size_t length = strlen(key);
    unsigned bucket = bucket_of(key, length);
    struct words all = {engine->text + engine->first[bucket], engine->text + engine->last[bucket]};
    struct words line;
    struct mt_engine_version best = {0};
    int found = 0;
    while (next_line(&all, &line)) {
        struct mt_engine_version since;
        /* Most lines are of another key; keys stand at the start of theirs. */
        if (length_of(line) <= length || !is_blank(line.at[length]) ||
            memcmp(line.at, key, length) != 0)
            continue;
        line.at += length;
        struct words since_word = next_word(&line);
        if (parse_version(since_word, &since) < 0 ||
            mt_engine_compare(&since, &engine->version) > 0)
            continue;
        if (found && mt_engine_compare(&since, &best) < 0)
            continue;
        found = 1;
        best = since;
        split_source(line, value);
        copy_word(value->since, since_word);
    }
    return found ? 0 : MT_ENOTFOUND;
}

/* Whether a line of this key stands before `line`. */
static int stands_before(const struct mt_engine *engine, struct words key, const char *line)
{
    struct words all = {engine->text + engine->first[bucket_of(key.at, length_of(key))], line};
    struct words other;
    while (next_line(&all, &other)) {
        struct words word = next_word(&other);
        if (length_of(word) == length_of(key) && !memcmp(word.at, key.at, length_of(key)))
            return 1;
    }
    return 0;
}

int mt_engine_next_key(const struct mt_engine *engine, size_t *at, char *key, size_t size)
{
    static const char *const headings[] = {"engine", "title", "versions", "newest", "release"};
    struct words all = {engine->text + *at, engine->text + engine->length};
    struct words line;
    while (next_line(&all, &line)) {
        const char *start = line.at;
        struct words word = next_word(&line);
        int is_rule = is_key(word);
        for (size_t i = 0; i < sizeof headings / sizeof *headings; i++)
            is_rule = is_rule && !equals(word, headings[i]);
        *at = (size_t)(all.at - engine->text);
        if (!is_rule || stands_before(engine, word, start))
            continue;
        copy_cut(key, size, word);
        return 1;
    }
    return 0;
}

int mt_engine_next_version(const struct mt_engine *engine, const struct mt_engine_version *last,
                           struct mt_engine *next)
{
    struct words all = {engine->text, engine->text + engine->length};
    struct words line, best = {.at = NULL};
    struct mt_engine_version least = *last, since;
    while (next_line(&all, &line)) {
        struct words key = next_word(&line);
        struct words word = next_word(&line);
        if (!is_key(key) || parse_version(word, &since) < 0 ||
            mt_engine_compare(&since, &engine->version) <= 0 ||
            mt_engine_compare(&since, &least) > 0 ||
            (best.at && !mt_engine_compare(&since, &least)))
            continue;
        least = since;
        best = word;
    }
    if (!best.at)
        return 0;
    *next = *engine;
    next->version = least;
    copy_word(next->version_text, best);
    return 1;
}

/* The value as a terminated text, or NULL. */
static const char *value_text(const struct mt_engine *engine, const char *key,
                              char text[WORD_BYTES])
{
    struct mt_engine_value value;
    if (mt_engine_value(engine, key, &value) < 0 || value.length >= WORD_BYTES)
        return NULL;
    memcpy(text, value.text, value.length);
    text[value.length] = 0;
    return text;
}

const char *mt_engine_text(const struct mt_engine *engine, const char *key, char *text, size_t size)
{
    struct mt_engine_value value = {.text = ""};
    mt_engine_value(engine, key, &value);
    copy_cut(text, size, (struct words){value.text, value.text + value.length});
    return text;
}

uint64_t mt_engine_number(const struct mt_engine *engine, const char *key, uint64_t fallback)
{
    char text[WORD_BYTES];
    uint64_t number;
    return value_text(engine, key, text) && mt_parse_size(text, &number) == 0 ? number : fallback;
}

double mt_engine_real(const struct mt_engine *engine, const char *key, double fallback)
{
    char text[WORD_BYTES];
    if (!value_text(engine, key, text))
        return fallback;
    char *end;
    double number = strtod(text, &end);
    return end != text && !*end ? number : fallback;
}

int mt_engine_is_after(const struct mt_engine *engine, const char *key)
{
    struct mt_engine_value value;
    struct mt_engine_version named;
    return mt_engine_value(engine, key, &value) == 0 &&
           parse_version((struct words){value.text, value.text + value.length}, &named) == 0 &&
           mt_engine_compare(&engine->version, &named) > 0;
}

unsigned mt_engine_steps_unread(const struct mt_engine *engine)
{
    struct mt_engine newest = *engine;
    newest.version = engine->newest;
    if (!mt_engine_is_after(engine, "read_up_to"))
        return 0;
    return mt_engine_compare(&engine->version, &engine->newest) > 0 &&
                   mt_engine_is_after(&newest, "read_up_to")
               ? 2
               : 1;
}

const char *mt_engine_title(const struct mt_engine *engine, char title[MT_ENGINE_TITLE_BYTES])
{
    struct words all = {engine->text, engine->text + engine->length};
    struct words line;
    snprintf(title, MT_ENGINE_TITLE_BYTES, "%s", engine->name);
    while (next_line(&all, &line))
        if (equals(next_word(&line), "title")) {
            copy_cut(title, MT_ENGINE_TITLE_BYTES, trimmed(line));
            break;
        }
    return title;
}

/* One of the words NAME=VALUE of a key, divided; 0 behind the last one. */
static int word_at(const struct mt_engine *engine, const char *key, size_t index,
                   struct words *name, struct words *value)
{
    struct mt_engine_value found;
    if (mt_engine_value(engine, key, &found) < 0)
        return 0;
    struct words words = {found.text, found.text + found.length};
    struct words each = next_word(&words);
    while (index-- && length_of(each))
        each = next_word(&words);
    const char *equal = length_of(each) ? memchr(each.at, '=', length_of(each)) : NULL;
    *name = (struct words){each.at, equal ? equal : each.end};
    *value = (struct words){equal ? equal + 1 : each.end, each.end};
    return length_of(each) > 0;
}

/* Takes the next of several with '|' between them; 0 behind the last one. */
static int next_part(struct words *rest, struct words *part)
{
    if (rest->at >= rest->end)
        return 0;
    const char *bar = memchr(rest->at, '|', length_of(*rest));
    *part = (struct words){rest->at, bar ? bar : rest->end};
    rest->at = bar ? bar + 1 : rest->end;
    return 1;
}

int mt_engine_word_at(const struct mt_engine *engine, const char *key, size_t index, char *name,
                      char *value, size_t size)
{
    struct words left;
    struct words right;
    if (!word_at(engine, key, index, &left, &right))
        return MT_ENOTFOUND;
    struct words first = right;
    next_part(&right, &first);
    copy_cut(name, size, left);
    copy_cut(value, size, first);
    return 0;
}

int mt_engine_part_at(const struct mt_engine *engine, const char *key, const char *name,
                      size_t index, char *value, size_t size)
{
    struct words left;
    struct words right;
    for (size_t i = 0; word_at(engine, key, i, &left, &right); i++) {
        struct words part = right;
        if (!equals(left, name))
            continue;
        int found = next_part(&right, &part) || index == 0; /* nothing is one part */
        for (; found && index; index--)
            found = next_part(&right, &part);
        if (found)
            copy_cut(value, size, part);
        return found ? 0 : MT_ENOTFOUND;
    }
    return MT_ENOTFOUND;
}

int mt_engine_word(const struct mt_engine *engine, const char *key, const char *name, char *value,
                   size_t size)
{
    return mt_engine_part_at(engine, key, name, 0, value, size);
}

int mt_engine_has(const struct mt_engine *engine, const char *key, const char *word)
{
    struct mt_engine_value value;
    if (mt_engine_value(engine, key, &value) < 0)
        return 0;
    struct words words = {value.text, value.text + value.length};
    for (;;) {
        struct words each = next_word(&words);
        if (!length_of(each))
            return 0;
        if (equals(each, word))
            return 1;
    }
}
