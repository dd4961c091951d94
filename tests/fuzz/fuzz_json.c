/* SPDX-License-Identifier: MIT */
/* The JSON reader: tokens lie within the text and go forward, and reading ends. */
#include "model/json_reader.h"

#include <stdlib.h>

#include <memtally/error.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static void check_text(const struct mt_json_token *token)
{
    char *text = malloc(token->length ? token->length : 1);
    if (text && mt_json_unescape(token, text) > token->length)
        abort();
    free(text);
}

static void check_number(const struct mt_json_token *token)
{
    uint64_t whole = 0;
    double number = 0;
    if (mt_json_u64(token, &whole) == 0 && mt_json_double(token, &number) == 0 &&
        (number < 0 || (double)whole < number - 1 || (double)whole > number + 2048))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length)
{
    const char *text = (const char *)data;
    const char *last = text;
    struct mt_json json;
    struct mt_json_token token;
    struct mt_error error;
    mt_json_start(&json, "fuzz", text, length, 0);
    for (;;) {
        if (mt_json_next(&json, &token, &error) != 0) {
            if (error.offset > length)
                abort();
            return 0;
        }
        if (token.type == MT_JSON_END)
            return 0;
        if (token.text < last || token.length > length || token.text + token.length > text + length)
            abort();
        last = token.text;
        if (token.type == MT_JSON_STRING || token.type == MT_JSON_KEY)
            check_text(&token);
        if (token.type == MT_JSON_NUMBER)
            check_number(&token);
    }
}
