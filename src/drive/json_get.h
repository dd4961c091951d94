/* SPDX-License-Identifier: MIT */
/* Taking values out of what an engine sent, where nothing can be relied on. */
#ifndef DRIVE_JSON_GET_H
#define DRIVE_JSON_GET_H

#include <jansson.h>
#include <stdint.h>

/* The text at `key`, or NULL where there is none. Borrowed. Takes NULL. */
const char *mt_profile_json_text(const json_t *object, const char *key);

/* The whole number at `key`, or MT_UNKNOWN where there is none or it is negative. Takes NULL. */
uint64_t mt_profile_json_count(const json_t *object, const char *key);

/* The number at `key`, or -1 where there is none or it is negative. Takes NULL. */
double mt_profile_json_real(const json_t *object, const char *key);

#endif
