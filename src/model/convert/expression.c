/* SPDX-License-Identifier: MIT */
/* The small language of the converter's tables.
 *
 *   expression = product (("+" | "-") product)*
 *   product    = factor (("*" | "/") factor)*
 *   factor     = number | name | "!" factor | "(" expression ")"
 *
 * Everything is a number from 0 to 2^64 - 1. Knows no model. */
#include <ctype.h>
#include <string.h>

#include <memtally/error_code.h>

#include "convert.h"

#define DEPTH_MAX 8

static const char *const names[] = {
#define V(name) #name,
#include "values.def"
#undef V
};

enum mt_convert_value mt_convert_value_find(const char *name, size_t length)
{
    size_t low = 0, high = MT_CONVERT_VALUES;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strncmp(name, names[middle], length);
        if (order == 0 && names[middle][length])
            order = -1;
        if (order == 0)
            return (enum mt_convert_value)middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return MT_CONVERT_VALUES;
}

struct reading {
    const char *at;
    const uint64_t *values;
    unsigned depth;
};

static void skip_blanks(struct reading *reading)
{
    while (*reading->at == ' ')
        reading->at++;
}

static int read_sum(struct reading *reading, uint64_t *result);

static int read_number(struct reading *reading, uint64_t *result)
{
    *result = 0;
    for (; isdigit((unsigned char)*reading->at); reading->at++) {
        uint64_t digit = (uint64_t)(*reading->at - '0');
        if (__builtin_mul_overflow(*result, (uint64_t)10, result) ||
            __builtin_add_overflow(*result, digit, result))
            return MT_ELIMIT;
    }
    return 0;
}

static int read_name(struct reading *reading, uint64_t *result)
{
    const char *name = reading->at;
    while (isalnum((unsigned char)*reading->at) || *reading->at == '_')
        reading->at++;
    enum mt_convert_value value = mt_convert_value_find(name, (size_t)(reading->at - name));
    if (value == MT_CONVERT_VALUES)
        return MT_EFORMAT;
    *result = reading->values[value];
    return 0;
}

static int read_nested(struct reading *reading, uint64_t *result)
{
    reading->at++;
    int code = read_sum(reading, result);
    if (!code && *reading->at != ')')
        code = MT_EFORMAT;
    if (!code)
        reading->at++;
    return code;
}

static int read_factor(struct reading *reading, uint64_t *result)
{
    unsigned negations = 0;
    int code;
    for (skip_blanks(reading); *reading->at == '!'; skip_blanks(reading)) {
        negations++;
        reading->at++;
    }
    if (++reading->depth > DEPTH_MAX)
        return MT_EFORMAT;
    if (*reading->at == '(')
        code = read_nested(reading, result);
    else if (isdigit((unsigned char)*reading->at))
        code = read_number(reading, result);
    else
        code = read_name(reading, result);
    reading->depth--;
    skip_blanks(reading);
    if (negations)
        *result = (*result != 0) ^ (negations % 2);
    return code;
}

static int read_product(struct reading *reading, uint64_t *result)
{
    int code = read_factor(reading, result);
    while (!code && (*reading->at == '*' || *reading->at == '/')) {
        char operation = *reading->at++;
        uint64_t other = 0;
        code = read_factor(reading, &other);
        if (!code && operation == '*' && __builtin_mul_overflow(*result, other, result))
            code = MT_ELIMIT;
        if (!code && operation == '/' && other == 0)
            code = MT_EFORMAT;
        if (!code && operation == '/')
            *result /= other;
    }
    return code;
}

static int read_sum(struct reading *reading, uint64_t *result)
{
    int code = read_product(reading, result);
    while (!code && (*reading->at == '+' || *reading->at == '-')) {
        char operation = *reading->at++;
        uint64_t other = 0;
        code = read_product(reading, &other);
        if (!code && (operation == '+' ? __builtin_add_overflow(*result, other, result)
                                       : __builtin_sub_overflow(*result, other, result)))
            code = MT_ELIMIT;
    }
    return code;
}

int mt_convert_evaluate(const char *text, const uint64_t *values, uint64_t *result,
                        const char **end)
{
    struct reading reading = {.at = text, .values = values};
    uint64_t number = 1;
    int code = *text ? read_sum(&reading, &number) : 0;
    if (!code && *reading.at && *reading.at != ',')
        code = MT_EFORMAT;
    if (code)
        return code;
    *result = number;
    if (end)
        *end = reading.at;
    return 0;
}
