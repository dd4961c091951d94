/* SPDX-License-Identifier: MIT */
/* Reading a part of TOML. Knows no key. */
#include "cli/budget/toml.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/strbuf.h"

#define DEPTH_MAX 8

struct toml {
    const char *at;
    unsigned line;
    int depth;
    struct mt_error *error;
};

static void *refuse(struct toml *toml, const char *why)
{
    mt_fail(toml->error, MT_EFORMAT, MT_NO_OFFSET, "line %u: %s", toml->line, why);
    return NULL;
}

static void skip_blanks(struct toml *toml)
{
    while (*toml->at == ' ' || *toml->at == '\t')
        toml->at++;
    if (*toml->at == '#')
        toml->at += strcspn(toml->at, "\n");
}

/* Blanks, comments and ends of lines, as arrays may have them. */
static void skip_lines(struct toml *toml)
{
    for (;;) {
        skip_blanks(toml);
        if (*toml->at == '\r' && toml->at[1] == '\n')
            toml->at++;
        if (*toml->at != '\n')
            return;
        toml->at++;
        toml->line++;
    }
}

static int take(struct toml *toml, char wanted)
{
    if (*toml->at != wanted)
        return 0;
    toml->at++;
    return 1;
}

static char *parse_string(struct toml *toml)
{
    static const char escapes[] = "btnfr\"\\";
    static const char meanings[] = "\b\t\n\f\r\"\\";
    struct mt_strbuf text = {0};
    char quote = *toml->at++;
    const char *why = toml->at[0] == quote && toml->at[1] == quote
                          ? "strings of several lines are not read; write one line"
                          : NULL;
    mt_strbuf_puts(&text, "");
    while (!why && *toml->at != quote) {
        char c = *toml->at;
        toml->at += c != '\0';
        const char *escape =
            quote == '"' && c == '\\' && *toml->at ? strchr(escapes, *toml->at) : NULL;
        if ((unsigned char)c < ' ' && c != '\t')
            why = "a string has no end";
        else if (quote == '"' && c == '\\' && !escape)
            why = "a string has an escape that is not read";
        else if (escape) {
            c = meanings[escape - escapes];
            toml->at++;
        }
        mt_strbuf_append(&text, &c, 1);
    }
    if (why) {
        mt_strbuf_finish(&text);
        return refuse(toml, why);
    }
    toml->at++;
    char *taken = mt_strbuf_take(&text);
    return taken ? taken : refuse(toml, "out of memory");
}

static char *parse_key(struct toml *toml)
{
    if (*toml->at == '"' || *toml->at == '\'')
        return parse_string(toml);
    size_t length = 0;
    while (isalnum((unsigned char)toml->at[length]) || toml->at[length] == '_' ||
           toml->at[length] == '-')
        length++;
    if (length == 0)
        return refuse(toml, "a key is missing, as in name = \"value\"");
    char *key = strndup(toml->at, length);
    toml->at += length;
    return key ? key : refuse(toml, "out of memory");
}

static json_t *parse_value(struct toml *toml);

static int parse_pair(struct toml *toml, json_t *table)
{
    char *key = parse_key(toml);
    json_t *value = NULL;
    if (!key)
        return 0;
    skip_blanks(toml);
    if (!take(toml, '='))
        refuse(toml, *toml->at == '.' ? "dotted keys are not read; write a table"
                                      : "a key needs a value, as in name = \"value\"");
    else if (json_object_get(table, key))
        refuse(toml, "the key is there twice");
    else
        value = parse_value(toml);
    int done = value && json_object_set_new(table, key, value) == 0;
    if (value && !done)
        refuse(toml, "a key is no UTF-8");
    free(key);
    return done;
}

static json_t *parse_inline_table(struct toml *toml)
{
    json_t *table = json_object();
    skip_blanks(toml);
    int done = table != NULL;
    if (done && take(toml, '}'))
        return table;
    while (done) {
        skip_blanks(toml);
        done = parse_pair(toml, table);
        skip_blanks(toml);
        if (done && take(toml, '}'))
            return table;
        if (done && !take(toml, ',')) {
            refuse(toml, "a table in braces needs , or }");
            done = 0;
        }
    }
    json_decref(table);
    return NULL;
}

static json_t *parse_array(struct toml *toml)
{
    json_t *array = json_array();
    int done = array != NULL;
    while (done) {
        skip_lines(toml);
        if (take(toml, ']'))
            return array;
        json_t *value = parse_value(toml);
        done = value && json_array_append_new(array, value) == 0;
        skip_lines(toml);
        if (done && !take(toml, ',') && *toml->at != ']') {
            refuse(toml, "an array needs , or ]");
            done = 0;
        }
    }
    json_decref(array);
    return NULL;
}

static json_t *parse_word(struct toml *toml)
{
    size_t length = strcspn(toml->at, " \t\r\n,]}#");
    const char *word = toml->at;
    char *end;
    toml->at += length;
    if (length == 4 && strncmp(word, "true", 4) == 0)
        return json_true();
    if (length == 5 && strncmp(word, "false", 5) == 0)
        return json_false();
    long long number = strtoll(word, &end, 10);
    if (length == 0 || length > 18 || end != word + length)
        return refuse(toml, "a value is no string, whole number, truth, array or table");
    return json_integer(number);
}

static json_t *parse_value(struct toml *toml)
{
    json_t *value;
    skip_blanks(toml);
    if (toml->depth == DEPTH_MAX)
        return refuse(toml, "arrays and tables are nested too deep");
    toml->depth++;
    if (*toml->at == '"' || *toml->at == '\'') {
        char *text = parse_string(toml);
        value = text ? json_string(text) : NULL;
        if (text && !value)
            refuse(toml, "a string is no UTF-8");
        free(text);
    } else if (take(toml, '[')) {
        value = parse_array(toml);
    } else if (take(toml, '{')) {
        value = parse_inline_table(toml);
    } else {
        value = parse_word(toml);
    }
    toml->depth--;
    return value;
}

/* "[table]" and "[[table]]". Returns the table that pairs go into from here on, borrowed. */
static json_t *parse_header(struct toml *toml, json_t *document)
{
    int is_array = take(toml, '[') && take(toml, '[');
    skip_blanks(toml);
    char *key = parse_key(toml);
    if (!key)
        return NULL;
    skip_blanks(toml);
    int closed = take(toml, ']') && (!is_array || take(toml, ']'));
    json_t *there = json_object_get(document, key);
    json_t *table = json_object();
    const char *why = !closed ? "a table's name needs ] after one word, or ]] after [["
                      : there && (!is_array || !json_is_array(there)) ? "the table is there twice"
                                                                      : NULL;
    int failed = why || !table;
    if (!failed && !is_array)
        failed = json_object_set(document, key, table);
    if (!failed && is_array && !there) {
        there = json_array();
        failed = json_object_set_new(document, key, there);
    }
    if (!failed && is_array)
        failed = json_array_append(there, table);
    json_decref(table);
    free(key);
    return failed ? refuse(toml, why ? why : "a table's name is no UTF-8") : table;
}

json_t *budget_parse_toml(const char *text, struct mt_error *error)
{
    struct toml toml = {.at = text, .line = 1, .error = error};
    json_t *document = json_object();
    json_t *table = document;
    if (!document)
        refuse(&toml, "out of memory");
    while (document && table) {
        skip_lines(&toml);
        if (!*toml.at)
            return document;
        if (*toml.at == '[')
            table = parse_header(&toml, document);
        else if (!parse_pair(&toml, table))
            table = NULL;
        skip_blanks(&toml);
        if (table && *toml.at && *toml.at != '\n' && *toml.at != '\r')
            table = refuse(&toml, "there is more on the line than a key and its value");
    }
    json_decref(document);
    return NULL;
}
