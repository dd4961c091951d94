/* SPDX-License-Identifier: MIT */
/* Reading a moment. */
#include "cli/moment.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

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

int cli_parse_moment(const char *text, struct mt_moment *moment, struct mt_error *error)
{
    for (int kind = MT_MOMENT_PEAK; kind < MT_MOMENT_TIME; kind++) {
        if (strcmp(text, mt_moment_name((enum mt_moment_kind)kind)) == 0) {
            *moment = (struct mt_moment){(enum mt_moment_kind)kind, 0};
            return 0;
        }
    }
    uint64_t time_ns;
    if (parse_time(text, &time_ns))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "a moment is one of peak, steady, exit, or a time since the start such as "
                       "3.5s or 800ms, not '%.80s'",
                       text);
    *moment = (struct mt_moment){MT_MOMENT_TIME, time_ns};
    return 0;
}
