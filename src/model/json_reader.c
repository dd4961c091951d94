/* SPDX-License-Identifier: MIT */
/* The JSON reader. Knows no file and no model. */
#include "model/json_reader.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define NUMBER_TEXT_MAX 400 /* more digits than any double needs */

void mt_json_start(struct mt_json *json, const char *name, const char *text, size_t length,
                   uint64_t base_offset)
{
    memset(json, 0, sizeof *json);
    json->name = name;
    json->text = text;
    json->length = length;
    json->base_offset = base_offset;
    json->state = MT_JSON_AT_VALUE;
}

static int fail(const struct mt_json *json, const char *expected, struct mt_error *error)
{
    return mt_fail(error, MT_EFORMAT, json->base_offset + json->at,
                   json->at < json->length ? "%s: not valid JSON: expected %s"
                                           : "%s: the JSON ends where %s was expected",
                   json->name, expected);
}

static void skip_blanks(struct mt_json *json)
{
    while (json->at < json->length &&
           (json->text[json->at] == ' ' || json->text[json->at] == '\n' ||
            json->text[json->at] == '\r' || json->text[json->at] == '\t'))
        json->at++;
}

static int peek(const struct mt_json *json)
{
    return json->at < json->length ? (unsigned char)json->text[json->at] : -1;
}

static int take_word(struct mt_json *json, const char *word)
{
    size_t length = strlen(word);
    if (json->length - json->at < length || memcmp(json->text + json->at, word, length) != 0)
        return 0;
    json->at += length;
    return 1;
}

/* Length of the UTF-8 sequence at `at`, 0 where it is none: no overlong forms, no surrogates,
 * nothing past U+10FFFF. */
static size_t utf8_length(const unsigned char *at, size_t left)
{
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
    size_t length = at[0] < 0x80 ? 1 : at[0] < 0xC2 ? 0 : at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : 4;
    if (length == 0 || at[0] > 0xF4 || length > left)
        return 0;
    if (at[0] == 0xE0)
        low = 0xA0;
    else if (at[0] == 0xED)
        high = 0x9F;
    else if (at[0] == 0xF0)
        low = 0x90;
    else if (at[0] == 0xF4)
        high = 0x8F;
    for (size_t i = 1; i < length; i++) {
        if (at[i] < (i == 1 ? low : 0x80) || at[i] > (i == 1 ? high : 0xBF))
            return 0;
    }
    return length;
}

static int hex_digit(int c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static int take_hex4(struct mt_json *json, uint32_t *value, struct mt_error *error)
{
    *value = 0;
    for (int i = 0; i < 4; i++, json->at++) {
        int digit = peek(json) < 0 ? -1 : hex_digit(peek(json));
        if (digit < 0)
            return fail(json, "four hexadecimal digits", error);
        *value = *value * 16 + (uint32_t)digit;
    }
    return 0;
}

/* After "\u". A character past U+FFFF is two escapes, its halves; a half alone is no character. */
static int skip_unicode(struct mt_json *json, struct mt_error *error)
{
    size_t start = json->at - 2;
    uint32_t first;
    uint32_t second = 0;
    int code = take_hex4(json, &first, error);
    if (code || first < 0xD800 || first > 0xDFFF)
        return code;
    if (first < 0xDC00 && take_word(json, "\\u")) {
        code = take_hex4(json, &second, error);
        if (code)
            return code;
    }
    if (second >= 0xDC00 && second <= 0xDFFF)
        return 0;
    json->at = start;
    return fail(json, "both halves of a surrogate pair", error);
}

/* At the character after a backslash. */
static int skip_escape(struct mt_json *json, struct mt_error *error)
{
    int c = peek(json);
    if (c < 0 || !strchr("\"\\/bfnrtu", c) || c == '\0')
        return fail(json, "an escape of a string", error);
    json->at++;
    return c == 'u' ? skip_unicode(json, error) : 0;
}

/* Characters that stand for themselves, most of any string. */
static void skip_plain(struct mt_json *json)
{
    const char *text = json->text;
    size_t at = json->at;
    while (at < json->length && text[at] >= 0x20 && text[at] < 0x7F && text[at] != '"' &&
           text[at] != '\\')
        at++;
    json->at = at;
}

/* One character of a string, or one escape. */
static int skip_character(struct mt_json *json, struct mt_json_token *token, struct mt_error *error)
{
    const unsigned char *at = (const unsigned char *)json->text + json->at;
    if (*at == '\\') {
        token->escaped = 1;
        json->at++;
        return skip_escape(json, error);
    }
    size_t length = *at < 0x20 ? 0 : utf8_length(at, json->length - json->at);
    if (length == 0)
        return fail(json, *at < 0x20 ? "an escape for a control character" : "UTF-8", error);
    json->at += length;
    return 0;
}

static int take_string(struct mt_json *json, struct mt_json_token *token, struct mt_error *error)
{
    size_t start = ++json->at;
    for (skip_plain(json); peek(json) != '"'; skip_plain(json)) {
        if (peek(json) < 0)
            return fail(json, "the end of a string", error);
        int code = skip_character(json, token, error);
        if (code)
            return code;
    }
    token->text = json->text + start;
    token->length = json->at++ - start;
    return 0;
}

static int skip_digits(struct mt_json *json, struct mt_error *error)
{
    size_t start = json->at;
    while (peek(json) >= '0' && peek(json) <= '9')
        json->at++;
    return json->at > start ? 0 : fail(json, "a digit", error);
}

static int skip_number(struct mt_json *json, struct mt_error *error)
{
    if (peek(json) == '-')
        json->at++;
    if (take_word(json, "Infinity"))
        return 0;
    int leads_with_zero = peek(json) == '0';
    size_t start = json->at;
    int code = skip_digits(json, error);
    if (!code && leads_with_zero && json->at > start + 1) {
        json->at = start + 1;
        return fail(json, "a number without leading zeros", error);
    }
    if (!code && peek(json) == '.') {
        json->at++;
        code = skip_digits(json, error);
    }
    if (!code && (peek(json) == 'e' || peek(json) == 'E')) {
        json->at++;
        if (peek(json) == '+' || peek(json) == '-')
            json->at++;
        code = skip_digits(json, error);
    }
    return code;
}

static int take_scalar(struct mt_json *json, struct mt_json_token *token, struct mt_error *error)
{
    static const struct {
        const char *word;
        enum mt_json_type type;
    } words[] = {{"true", MT_JSON_TRUE},
                 {"false", MT_JSON_FALSE},
                 {"null", MT_JSON_NULL},
                 {"NaN", MT_JSON_NUMBER},
                 {"Infinity", MT_JSON_NUMBER}};
    size_t start = json->at;
    int code = 0;
    token->type = MT_JSON_END;
    for (size_t i = 0; i < sizeof words / sizeof *words && token->type == MT_JSON_END; i++) {
        if (take_word(json, words[i].word))
            token->type = words[i].type;
    }
    if (token->type == MT_JSON_END) {
        int c = peek(json);
        if (c != '-' && (c < '0' || c > '9'))
            return fail(json, "a value", error);
        token->type = MT_JSON_NUMBER;
        code = skip_number(json, error);
    }
    token->text = json->text + start;
    token->length = json->at - start;
    return code;
}

static int is_in_object(const struct mt_json *json)
{
    unsigned level = json->depth - 1;
    return json->objects[level / 64] >> (level % 64) & 1;
}

static int open_bracket(struct mt_json *json, struct mt_json_token *token, struct mt_error *error)
{
    int is_object = json->text[json->at] == '{';
    if (json->depth == MT_JSON_DEPTH_MAX)
        return mt_fail(error, MT_ELIMIT, json->base_offset + json->at,
                       "%s: JSON nested deeper than %d levels", json->name, MT_JSON_DEPTH_MAX);
    uint64_t bit = UINT64_C(1) << (json->depth % 64);
    uint64_t *word = &json->objects[json->depth / 64];
    *word = is_object ? *word | bit : *word & ~bit;
    json->depth++;
    json->state = is_object ? MT_JSON_AT_FIRST_KEY : MT_JSON_AT_FIRST_VALUE;
    token->type = is_object ? MT_JSON_OBJECT : MT_JSON_ARRAY;
    token->text = json->text + json->at++;
    token->length = 1;
    return 0;
}

static int close_bracket(struct mt_json *json, struct mt_json_token *token)
{
    token->type = is_in_object(json) ? MT_JSON_OBJECT_END : MT_JSON_ARRAY_END;
    token->text = json->text + json->at++;
    token->length = 1;
    json->depth--;
    json->state = MT_JSON_AFTER_VALUE;
    return 0;
}

static int take_value(struct mt_json *json, struct mt_json_token *token, struct mt_error *error)
{
    int c = peek(json);
    if (c == '{' || c == '[')
        return open_bracket(json, token, error);
    json->state = MT_JSON_AFTER_VALUE;
    if (c != '"')
        return take_scalar(json, token, error);
    token->type = MT_JSON_STRING;
    return take_string(json, token, error);
}

static int take_key(struct mt_json *json, struct mt_json_token *token, struct mt_error *error)
{
    if (peek(json) != '"')
        return fail(json, "a key", error);
    token->type = MT_JSON_KEY;
    int code = take_string(json, token, error);
    if (code)
        return code;
    skip_blanks(json);
    if (peek(json) != ':')
        return fail(json, "':' after a key", error);
    json->at++;
    json->state = MT_JSON_AT_VALUE;
    return 0;
}

static int take_after_value(struct mt_json *json, struct mt_json_token *token,
                            struct mt_error *error)
{
    if (json->depth == 0) {
        token->type = MT_JSON_END;
        return json->at == json->length ? 0 : fail(json, "nothing after the value", error);
    }
    if (peek(json) == (is_in_object(json) ? '}' : ']'))
        return close_bracket(json, token);
    if (peek(json) != ',')
        return fail(json, is_in_object(json) ? "',' or '}'" : "',' or ']'", error);
    json->at++;
    skip_blanks(json);
    return is_in_object(json) ? take_key(json, token, error) : take_value(json, token, error);
}

int mt_json_next(struct mt_json *json, struct mt_json_token *token, struct mt_error *error)
{
    memset(token, 0, sizeof *token);
    skip_blanks(json);
    token->text = json->text + json->at;
    switch (json->state) {
    case MT_JSON_AT_FIRST_VALUE:
        if (peek(json) == ']')
            return close_bracket(json, token);
        return take_value(json, token, error);
    case MT_JSON_AT_FIRST_KEY:
        if (peek(json) == '}')
            return close_bracket(json, token);
        return take_key(json, token, error);
    case MT_JSON_AFTER_VALUE:
        return take_after_value(json, token, error);
    case MT_JSON_AT_VALUE:
    default:
        return take_value(json, token, error);
    }
}

int mt_json_finish_value(struct mt_json *json, struct mt_json_token *token, struct mt_error *error)
{
    if (token->type != MT_JSON_OBJECT && token->type != MT_JSON_ARRAY)
        return 0;
    unsigned outside = json->depth - 1;
    struct mt_json_token inner;
    while (json->depth > outside) {
        int code = mt_json_next(json, &inner, error);
        if (code)
            return code;
    }
    token->length = (size_t)(json->text + json->at - token->text);
    return 0;
}

uint64_t mt_json_offset(const struct mt_json *json, const struct mt_json_token *token)
{
    return json->base_offset + (uint64_t)(token->text - json->text);
}

int mt_json_double(const struct mt_json_token *token, double *number)
{
    char text[NUMBER_TEXT_MAX + 1];
    if (token->type != MT_JSON_NUMBER || token->length > NUMBER_TEXT_MAX)
        return MT_EFORMAT;
    memcpy(text, token->text, token->length);
    text[token->length] = '\0';
    *number = strtod(text, NULL);
    return 0;
}

int mt_json_u64(const struct mt_json_token *token, uint64_t *number)
{
    uint64_t sum = 0;
    size_t i = 0;
    if (token->type != MT_JSON_NUMBER)
        return MT_EFORMAT;
    for (; i < token->length && token->text[i] >= '0' && token->text[i] <= '9'; i++) {
        if (__builtin_mul_overflow(sum, 10, &sum) ||
            __builtin_add_overflow(sum, (uint64_t)(token->text[i] - '0'), &sum))
            return MT_ELIMIT;
    }
    if (i < token->length) {
        double value;
        if (mt_json_double(token, &value) || !(value >= 0))
            return MT_EFORMAT;
        if (value >= 0x1p64)
            return MT_ELIMIT;
        sum = (uint64_t)value;
        if ((double)sum < value)
            return MT_EFORMAT;
    }
    *number = sum;
    return 0;
}

static uint32_t hex4(const char *text)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++)
        value = value * 16 + (uint32_t)hex_digit(text[i]);
    return value;
}

static size_t put_utf8(uint32_t c, char *to)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, c >>= 6)
        to[i] = (char)(0x80 | (c & 0x3F));
    to[0] = (char)((length == 2 ? 0xC0u : length == 3 ? 0xE0u : 0xF0u) | c);
    return length;
}

/* Takes "uXXXX", and the low half that follows a high surrogate. */
static size_t unescape_unicode(const char **from, char *to)
{
    uint32_t c = hex4(*from + 1);
    *from += 5;
    if (c < 0xD800 || c > 0xDFFF)
        return put_utf8(c, to);
    uint32_t low = hex4(*from + 2);
    *from += 6;
    return put_utf8(0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00), to);
}

size_t mt_json_unescape(const struct mt_json_token *token, char *text)
{
    static const char escapes[] = "b\bf\fn\nr\rt\t";
    const char *from = token->text;
    const char *end = token->text + token->length;
    char *to = text;
    while (from < end) {
        if (*from != '\\') {
            *to++ = *from++;
        } else if (*++from == 'u') {
            to += unescape_unicode(&from, to);
        } else {
            const char *known = strchr(escapes, *from);
            *to++ = known ? known[1] : *from;
            from++;
        }
    }
    return (size_t)(to - text);
}

int mt_json_is(const struct mt_json_token *token, const char *text)
{
    size_t length = strlen(text);
    return !token->escaped && token->length == length && memcmp(token->text, text, length) == 0;
}
