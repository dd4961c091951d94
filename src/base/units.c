/* SPDX-License-Identifier: MIT */
/* Sizes to text and back. Knows libc only. */
#include <memtally/units.h>

#include <ctype.h>
#include <memtally/error_code.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *mt_format_size(uint64_t bytes, char text[MT_SIZE_TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes == UINT64_MAX) {
        snprintf(text, MT_SIZE_TEXT, "unknown");
        return text;
    }
    if (bytes < 1024) {
        snprintf(text, MT_SIZE_TEXT, "%u B", (unsigned)bytes);
        return text;
    }
    double value = (double)bytes;
    size_t unit = 0;
    /* 1023.995 would print as 1024.00. */
    while (value >= 1023.995 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    snprintf(text, MT_SIZE_TEXT, "%.2f %s", value, units[unit]);
    return text;
}

/* The factor of a suffix, 0 for none that is known. */
static double factor_of(const char *suffix)
{
    static const char letters[] = "kmgtp";
    if (*suffix == '\0' || strcasecmp(suffix, "b") == 0)
        return 1;
    const char *letter = strchr(letters, tolower((unsigned char)*suffix));
    if (!letter || *letter == '\0')
        return 0;
    const char *rest = suffix + 1;
    double base;
    if (*rest == '\0' || strcasecmp(rest, "i") == 0 || strcasecmp(rest, "ib") == 0)
        base = 1024;
    else if (strcasecmp(rest, "b") == 0)
        base = 1000;
    else
        return 0;
    double factor = 1;
    for (const char *step = letters; step <= letter; step++)
        factor *= base;
    return factor;
}

/* Digits, at most one point, at least one digit: strtod() alone takes "inf", "0x1p9" and "-1". */
static size_t number_length(const char *text)
{
    size_t length = 0;
    int digits = 0;
    int points = 0;
    for (; isdigit((unsigned char)text[length]) || text[length] == '.'; length++) {
        if (text[length] == '.')
            points++;
        else
            digits++;
    }
    return digits && points <= 1 ? length : 0;
}

int mt_parse_size(const char *text, uint64_t *bytes)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t length = number_length(text);
    if (!length)
        return MT_EARG;
    const char *suffix = text + length;
    while (isspace((unsigned char)*suffix))
        suffix++;
    double factor = factor_of(suffix);
    if (factor == 0)
        return MT_EARG;
    if (factor == 1 && !memchr(text, '.', length)) {
        char *end;
        unsigned long long exact = strtoull(text, &end, 10);
        if (exact >= UINT64_MAX)
            return MT_ELIMIT;
        *bytes = exact;
        return 0;
    }
    double value = strtod(text, NULL) * factor;
    if (value >= 18446744073709549568.0)
        return MT_ELIMIT;
    *bytes = (uint64_t)value;
    return 0;
}
