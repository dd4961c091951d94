/* SPDX-License-Identifier: MIT */
/* A part of TOML 1.0 as a JSON document: [table], [[table]], key = value; strings of one line,
 * whole numbers, truths, arrays and inline tables of these, comments. What else TOML has (dotted
 * keys, texts of several lines, dates, floats) is refused, not guessed. */
#ifndef CLI_BUDGET_TOML_H
#define CLI_BUDGET_TOML_H

#include <jansson.h>

struct mt_error; /* <memtally/error.h> */

/* Returns the document, which the caller gives back, or NULL with *error set: MT_EFORMAT, whose
 * text has the line, MT_ENOMEM. */
json_t *budget_parse_toml(const char *text, struct mt_error *error);

#endif
