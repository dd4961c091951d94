/* SPDX-License-Identifier: MIT */
/* Walking a JSON text along a path. The text was parsed before and is known to be valid; all the
 * same nothing is read past its end. */
#include "cli/json_offset.h"

#include <stdlib.h>
#include <string.h>

struct walk {
    const char *at;
    const char *end;
};

static void skip_blanks(struct walk *walk)
{
    while (walk->at < walk->end && strchr(" \t\r\n,:", *walk->at))
        walk->at++;
}

static void skip_string(struct walk *walk)
{
    for (walk->at++; walk->at < walk->end && *walk->at != '"'; walk->at++)
        if (*walk->at == '\\')
            walk->at++;
    walk->at += walk->at < walk->end;
}

static void skip_value(struct walk *walk)
{
    size_t depth = 0;
    do {
        skip_blanks(walk);
        if (walk->at >= walk->end)
            return;
        if (*walk->at == '"') {
            skip_string(walk);
            continue;
        }
        if (strchr("[{", *walk->at))
            depth++;
        else if (strchr("]}", *walk->at))
            depth--;
        else
            while (walk->at + 1 < walk->end && !strchr(" \t\r\n,:]}", walk->at[1]))
                walk->at++;
        walk->at++;
    } while (depth > 0);
}

/* Goes to the member called by the first `length` bytes of `key`. Returns 0 where there is none. */
static int enter_member(struct walk *walk, const char *key, size_t length)
{
    for (walk->at++;;) {
        skip_blanks(walk);
        if (walk->at >= walk->end || *walk->at != '"')
            return 0;
        const char *name = walk->at + 1;
        skip_string(walk);
        int is_it = (size_t)(walk->at - name) == length + 1 && memcmp(name, key, length) == 0;
        skip_blanks(walk);
        if (is_it)
            return walk->at < walk->end;
        skip_value(walk);
    }
}

static int enter_element(struct walk *walk, unsigned long index)
{
    for (walk->at++;; index--) {
        skip_blanks(walk);
        if (walk->at >= walk->end || *walk->at == ']')
            return 0;
        if (index == 0)
            return 1;
        skip_value(walk);
    }
}

uint64_t cli_json_offset(const char *text, size_t length, const char *path)
{
    struct walk walk = {text, text + length};
    skip_blanks(&walk);
    while (*path && walk.at < walk.end) {
        const char *here = walk.at;
        int entered;
        if (*path == '[') {
            char *rest;
            unsigned long index = strtoul(path + 1, &rest, 10);
            entered = *here == '[' && enter_element(&walk, index);
            path = rest + (*rest == ']');
        } else {
            path += *path == '.';
            size_t key_length = strcspn(path, ".[");
            entered = *here == '{' && enter_member(&walk, path, key_length);
            path += key_length;
        }
        if (!entered)
            return (uint64_t)(here - text);
    }
    return (uint64_t)(walk.at - text);
}
