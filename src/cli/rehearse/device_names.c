/* SPDX-License-Identifier: MIT */
/* Reading names of devices. Knows texts, no devices. */
#include "cli/rehearse/device_names.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

#define LONGEST 63 /* what an engine shows of a device's description */

static int check(const char *name, size_t length, struct mt_error *error)
{
    if (length == 0 || length > LONGEST)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "rehearse: --device-name: '%.*s' is no name of 1 to %d bytes",
                       (int)(length < LONGEST ? length : LONGEST), name, LONGEST);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 0x7f)
            return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                           "rehearse: --device-name: a name has control characters in it");
    return 0;
}

static int add(struct rehearse_device_names *names, size_t *n, size_t *used, const char *name,
               size_t length, struct mt_error *error)
{
    int result = check(name, length, error);
    if (result < 0)
        return result;
    if (*n == REHEARSE_NAMED_MAX || *used + length + 1 > sizeof names->text)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "rehearse: --device-name: too many names");
    names->of[(*n)++] = memcpy(names->text + *used, name, length);
    names->text[*used + length] = '\0';
    *used += length + 1;
    return 0;
}

int rehearse_name_devices(const struct cli_texts *given, size_t n_devices,
                          struct rehearse_device_names *names, struct mt_error *error)
{
    size_t n = 0;
    size_t used = 0;
    memset(names, 0, sizeof *names);
    for (size_t i = 0; i < given->n; i++)
        for (const char *at = given->items[i];;) {
            size_t length = strcspn(at, ",");
            int result = add(names, &n, &used, at, length, error);
            if (result < 0)
                return result;
            if (!at[length])
                break;
            at += length + 1;
        }
    if (n > n_devices)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "rehearse: --device-name: %zu name%s for %zu device%s", n, n == 1 ? "" : "s",
                       n_devices, n_devices == 1 ? "" : "s");
    for (size_t i = 1; n == 1 && i < n_devices && i < REHEARSE_NAMED_MAX; i++)
        names->of[i] = names->of[0];
    return 0;
}
