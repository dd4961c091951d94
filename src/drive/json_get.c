/* SPDX-License-Identifier: MIT */
/* Values out of JSON. */
#include "json_get.h"

#include <memtally/tally.h>
#include <memtally/units.h>

const char *mt_profile_json_text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

uint64_t mt_profile_json_count(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return MT_UNKNOWN;
    return (uint64_t)json_integer_value(value);
}

double mt_profile_json_real(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value) || json_number_value(value) < 0)
        return -1;
    return json_number_value(value);
}
