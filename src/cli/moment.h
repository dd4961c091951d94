/* SPDX-License-Identifier: MIT */
/* Moments as users write them. */
#ifndef CLI_MOMENT_H
#define CLI_MOMENT_H

struct mt_error;  /* <memtally/error.h> */
struct mt_moment; /* <memtally/tally.h> */

/* Reads "peak", "steady", "exit", or a time since the start such as "3.5s", "800ms" or "2min".
 * Returns 0, or MT_EARG with error->text saying what is valid. */
int cli_parse_moment(const char *text, struct mt_moment *moment, struct mt_error *error);

#endif
