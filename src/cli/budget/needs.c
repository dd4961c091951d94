/* SPDX-License-Identifier: MIT */
/* Reading needs and times. Knows no budget. */
#include "cli/budget/needs.h"

#include <ctype.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/out_of_memory.h"

static int is_place(const char *name)
{
    if (strcmp(name, "host") == 0 || strcmp(name, "gpu") == 0)
        return 1;
    return strncmp(name, "gpu", 3) == 0 && strlen(name) <= 5 &&
           strspn(name + 3, "0123456789") == strlen(name + 3);
}

static int parse_one(char *word, struct budget_needs *needs, struct mt_error *error)
{
    char *sign = strchr(word, '=');
    uint64_t bytes;
    if (!sign)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "'%.60s' is no PLACE=SIZE, as in host=2GiB",
                       word);
    *sign = '\0';
    if (!is_place(word))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "'%.60s' is no place; there are host, gpu0, gpu1 and so on, and gpu for any",
                       word);
    if (mt_parse_size(sign + 1, &bytes) < 0 || bytes == 0)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "'%.60s' is no size, as in %s=2GiB", sign + 1,
                       word);
    if (needs->n == MT_BUDGET_PLACES)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "name at most %d places", MT_BUDGET_PLACES);
    struct mt_budget_need *need = &needs->items[needs->n];
    *need = (struct mt_budget_need){.bytes = bytes};
    snprintf(need->place, sizeof need->place, "%s", strcmp(word, "gpu") == 0 ? "gpu*" : word);
    for (size_t i = 0; i < needs->n; i++)
        if (strcmp(needs->items[i].place, need->place) == 0 && strcmp(need->place, "gpu*") != 0)
            return mt_fail(error, MT_EARG, MT_NO_OFFSET, "name the place %s once", word);
    needs->n++;
    return 0;
}

int budget_parse_needs(const char *text, struct budget_needs *needs, struct mt_error *error)
{
    char *words = strdup(text);
    char *rest = words;
    int status = words ? 0 : mt_out_of_memory(error);
    while (status == 0 && rest)
        status = parse_one(strsep(&rest, ","), needs, error);
    free(words);
    return status;
}

uint64_t budget_host_bytes(const struct budget_needs *needs)
{
    for (size_t i = 0; i < needs->n; i++)
        if (strcmp(needs->items[i].place, "host") == 0)
            return needs->items[i].bytes;
    return 0;
}

int budget_parse_time(const char *text, uint64_t *ns)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}, {"min", 60}, {"h", 3600}};
    char *end;
    if (!isdigit((unsigned char)*text))
        return MT_EARG;
    double value = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(end, units[i].name) == 0 && value * units[i].seconds < 1e9) {
            *ns = (uint64_t)(value * units[i].seconds * 1e9);
            return 0;
        }
    return MT_EARG;
}
