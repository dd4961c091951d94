/* SPDX-License-Identifier: MIT */
/* Where in a JSON text a value stands, for errors that name the place. */
#ifndef CLI_JSON_OFFSET_H
#define CLI_JSON_OFFSET_H

#include <stddef.h>
#include <stdint.h>

/* The byte position of the value at `path` ("places[0].rows[2].allocated_bytes"; "" is the whole)
 * in a text that is valid JSON. Of what is not there, the position of the nearest value around it.
 * Keys with escapes in them are not found. */
uint64_t cli_json_offset(const char *text, size_t length, const char *path);

#endif
