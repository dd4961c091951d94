/* SPDX-License-Identifier: MIT */
/* Parsing bands. */
#include "cli/compare/bands.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define LARGEST_RATIO 1000

/* The component called by the first `length` bytes of `name`, "kv" being short for kv_cache; -1. */
static int component_called(const char *name, size_t length)
{
    if (length == 2 && strncmp(name, "kv", 2) == 0)
        return MT_COMPONENT_KV_CACHE;
    for (int i = 0; i < MT_COMPONENT_COUNT; i++) {
        const char *known = mt_component_name((enum mt_component)i);
        if (strlen(known) == length && strncmp(name, known, length) == 0)
            return i;
    }
    return -1;
}

static int parse_one(const char *text, size_t length, double *band_ratio, struct mt_error *error)
{
    size_t name_length = strcspn(text, "=,");
    int component = component_called(text, name_length);
    char *rest = NULL;
    if (component < 0)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "--band: '%.*s' is no component; there are weights, kv_cache (or kv), "
                       "activations, overhead, total",
                       (int)(name_length < 60 ? name_length : 60), text);
    const char *number = text + name_length + 1;
    double ratio = name_length < length ? strtod(number, &rest) : -1;
    int is_number = rest && rest != number;
    if (is_number && *rest == '%') {
        ratio /= 100;
        rest++;
    }
    if (!is_number || rest != text + length || !(ratio >= 0) || ratio > LARGEST_RATIO)
        return mt_fail(
            error, MT_EARG, MT_NO_OFFSET, "--band: '%.*s' should be like %s=15%% or %s=0.15",
            (int)(length < 60 ? length : 60), text, mt_component_name((enum mt_component)component),
            mt_component_name((enum mt_component)component));
    band_ratio[component] = ratio;
    return 0;
}

int compare_parse_bands(const char *text, double band_ratio[MT_COMPONENT_COUNT],
                        struct mt_error *error)
{
    for (;;) {
        size_t length = strcspn(text, ",");
        int result = parse_one(text, length, band_ratio, error);
        if (result || text[length] == '\0')
            return result;
        text += length + 1;
    }
}
