/* SPDX-License-Identifier: MIT */
/* Finding what may be a secret in a command line, by names and by form. It is better to hide too
 * much: nobody needs the value of such an option to know where memory is. The recorder builds this
 * in: it calls nothing that asks the system or a locale. */
#include "base/secrets.h"

#include <string.h>

/* Words of names. A name's words are divided by '-', '_', '.' and ':', and before a capital behind
 * a small letter, so that --max-tokens and --tokenizer are not meant. */
static const char *const words[] = {"key",         "apikey",   "token",         "authtoken",
                                    "secret",      "password", "passwd",        "pass",
                                    "pwd",         "auth",     "authorization", "credential",
                                    "credentials", "bearer",   "cookie",        "passphrase"};

/* How access tokens of Hugging Face, OpenAI, GitHub, GitLab, Slack, Amazon and Google, and signed
 * ones, begin. */
static const char *const beginnings[] = {"hf_",   "sk-",   "ghp_", "gho_", "github_pat_", "glpat-",
                                         "xoxb-", "xoxp-", "AKIA", "AIza", "eyJ"};

struct text {
    char *at;
    size_t left; /* without the last byte, which ends the text */
};

static void put(struct text *text, const char *bytes, size_t n)
{
    size_t length = n < text->left ? n : text->left;
    memcpy(text->at, bytes, length);
    text->at += length;
    text->left -= length;
}

/* Whether the bytes are the word, which is written in small letters. */
static int is_same(const char *word, const char *at, size_t n)
{
    size_t i = 0;
    while (i < n && word[i] && word[i] == (at[i] >= 'A' && at[i] <= 'Z' ? at[i] | 0x20 : at[i]))
        i++;
    return i == n && !word[i];
}

static int is_word(const char *at, size_t n)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is_same(words[i], at, n))
            return 1;
    return 0;
}

static int divides(char byte)
{
    return byte == '-' || byte == '_' || byte == '.' || byte == ':';
}

static int is_capital(char byte)
{
    return byte >= 'A' && byte <= 'Z';
}

static int is_small(char byte)
{
    return byte >= 'a' && byte <= 'z';
}

static int names_a_secret(const char *name, size_t n)
{
    size_t start = 0;
    for (size_t i = 0; i <= n; i++) {
        int is_hump = i > 0 && i < n && is_capital(name[i]) && is_small(name[i - 1]);
        if (i < n && !is_hump && !divides(name[i]))
            continue;
        if (is_word(name + start, i - start))
            return 1;
        start = is_hump ? i : i + 1;
    }
    return 0;
}

static int begins_as_token(const char *at, size_t n)
{
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++) {
        size_t length = strlen(beginnings[i]);
        if (n >= length + 8 && memcmp(at, beginnings[i], length) == 0)
            return 1;
    }
    return 0;
}

/* Where a password in an address ends, "https://user:password@host/": at the last '@' before the
 * path. NULL where there is none. */
static const char *end_of_login(const char *at, size_t n, const char **login)
{
    const char *slashes = memmem(at, n, "://", 3);
    const char *found = NULL;
    if (!slashes)
        return NULL;
    *login = slashes + 3;
    for (const char *byte = *login; byte < at + n && *byte != '/' && *byte != '?'; byte++)
        if (*byte == '@')
            found = byte;
    return found;
}

/* A member of a text in JSON, {"api_key": "x"}: a name in quotes, and a colon behind it. */
static int has_member(const char *at, size_t n)
{
    const char *end = at + n;
    const char *quote = memchr(at, '"', n);
    while (quote) {
        const char *name = quote + 1;
        quote = memchr(name, '"', (size_t)(end - name));
        const char *colon = quote ? quote + 1 : end;
        while (colon < end && *colon == ' ')
            colon++;
        if (colon < end && *colon == ':' && names_a_secret(name, (size_t)(quote - name)))
            return 1;
    }
    return 0;
}

/* A header of a request, "Authorization: Bearer x". */
static int is_header(const char *at, size_t n)
{
    const char *colon = memchr(at, ':', n);
    return colon && *at != '-' && at + n - colon > 2 && colon[1] == ' ' &&
           names_a_secret(at, (size_t)(colon - at));
}

/* Where the value of a secret begins, behind its '='. Its name begins the argument, or stands in
 * the query of an address. NULL where there is none. */
static const char *value_of_secret(const char *at, size_t n)
{
    const char *end = at + n;
    const char *name = at;
    int may_end = 1;
    int is_query = 0;
    for (const char *byte = at; byte < end; byte++) {
        if (*byte == '?' || (*byte == '&' && is_query)) {
            is_query = may_end = 1;
            name = byte + 1;
        } else if (*byte == '=' && may_end) {
            may_end = 0;
            if (names_a_secret(name, (size_t)(byte - name)) ||
                begins_as_token(byte + 1, (size_t)(end - byte) - 1))
                return byte + 1;
        }
    }
    return NULL;
}

/* An argument, or what is behind its login. */
static void put_rest(struct text *text, const char *at, size_t n)
{
    const char *value = value_of_secret(at, n);
    size_t shown = value ? (size_t)(value - at) : 0;
    if (!value && !begins_as_token(at, n) && !is_header(at, n)) {
        put(text, at, n);
        return;
    }
    put(text, at, shown);
    put(text, MT_HIDDEN, strlen(MT_HIDDEN));
}

static void put_argument(struct text *text, const char *at, size_t n)
{
    const char *login = NULL;
    const char *end = end_of_login(at, n, &login);
    size_t before = end ? (size_t)(login - at) : 0;
    if (has_member(at, n)) {
        put(text, MT_HIDDEN, strlen(MT_HIDDEN));
    } else if (end && !value_of_secret(at, before)) {
        put(text, at, before);
        put(text, MT_HIDDEN, strlen(MT_HIDDEN));
        put_rest(text, end, n - (size_t)(end - at));
    } else {
        put_rest(text, at, n);
    }
}

/* Whether the next argument is the value of this one: an option without '=', or a header's name as
 * in "Authorization: x". */
static int asks_for_secret(const char *at, size_t n)
{
    return n > 1 && (at[0] == '-' || at[n - 1] == ':') && !memchr(at, '=', n) &&
           names_a_secret(at, n);
}

/* "-p", "--port" */
static int is_option(const char *at, size_t n)
{
    return n > 1 && at[0] == '-' && (n == 2 || at[1] == '-');
}

static size_t join(const char *bytes, size_t n, const char *between, char *text, size_t capacity)
{
    struct text out = {text, capacity - 1};
    int hide_next = 0;
    for (size_t start = 0; start < n;) {
        const char *at = bytes + start;
        const char *end = memchr(at, '\0', n - start);
        size_t length = end ? (size_t)(end - at) : n - start;
        if (start)
            put(&out, between, 1);
        if (hide_next && !is_option(at, length))
            put(&out, MT_HIDDEN, strlen(MT_HIDDEN));
        else
            put_argument(&out, at, length);
        hide_next = asks_for_secret(at, length);
        start += length + 1;
    }
    *out.at = '\0';
    return (size_t)(out.at - text);
}

void mt_join_arguments(const char *bytes, size_t n, char *text, size_t capacity)
{
    join(bytes, n, " ", text, capacity);
}

size_t mt_hide_secrets(const char *bytes, size_t n, char *text, size_t capacity)
{
    return join(bytes, n, "", text, capacity);
}
