/* SPDX-License-Identifier: MIT */
/* Reading a moment. */
#include "cli/moment.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/category.h>
#include <memtally/tally.h>

#include "base/error.h"

#define LATEST_NS 9e18 /* 285 years; what int64_t holds */

static const struct {
    const char *name;
    double ns;
} units[] = {{"ms", 1e6}, {"s", 1e9}, {"min", 60e9}, {"us", 1e3}, {"ns", 1}};

/* The nanoseconds of a unit, 0 for one that is not known. */
static double unit_ns(const char *name)
{
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(units[i].name, name) == 0)
            return units[i].ns;
    return 0;
}

static int parse_time(const char *text, uint64_t *time_ns)
{
    size_t digits = strspn(text, "0123456789.");
    if (!isdigit((unsigned char)*text))
        return MT_EARG;
    char *end;
    double value = strtod(text, &end);
    if ((size_t)(end - text) != digits)
        return MT_EARG;
    double ns = value * unit_ns(text + digits);
    if ((ns == 0 && value != 0) || ns > LATEST_NS || unit_ns(text + digits) == 0)
        return MT_EARG;
    *time_ns = (uint64_t)ns;
    return 0;
}

/* "kv_cache-peak" and the like. */
static enum mt_category parse_category_peak(const char *text)
{
    for (int category = 1; category < MT_CATEGORY_END; category++) {
        const struct mt_moment moment = {.kind = MT_MOMENT_CATEGORY_PEAK,
                                         .category = (enum mt_category)category};
        if (strcmp(text, mt_moment_text(&moment)) == 0)
            return moment.category;
    }
    return MT_CATEGORY_NONE;
}

int cli_parse_moment(const char *text, struct mt_moment *moment, struct mt_error *error)
{
    static const enum mt_moment_kind named[] = {MT_MOMENT_PEAK, MT_MOMENT_STEADY, MT_MOMENT_EXIT,
                                                MT_MOMENT_HEAP_PEAK};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        if (strcmp(text, mt_moment_name(named[i])) == 0) {
            *moment = (struct mt_moment){.kind = named[i]};
            return 0;
        }
    }
    enum mt_category category = parse_category_peak(text);
    if (category != MT_CATEGORY_NONE) {
        *moment = (struct mt_moment){.kind = MT_MOMENT_CATEGORY_PEAK, .category = category};
        return 0;
    }
    uint64_t time_ns;
    if (parse_time(text, &time_ns))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "a moment is one of peak, heap-peak, weights-peak or that of another "
                       "category, steady, exit, or a time since the start such as 3.5s or 800ms, "
                       "not '%.80s'",
                       text);
    *moment = (struct mt_moment){.kind = MT_MOMENT_TIME, .time_ns = time_ns};
    return 0;
}
