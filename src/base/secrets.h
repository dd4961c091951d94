/* SPDX-License-Identifier: MIT */
/* Command lines without the secrets that are in them. */
#ifndef MT_BASE_SECRETS_H
#define MT_BASE_SECRETS_H

#include <stddef.h>

/* Joins arguments, each ended by a NUL but for the last, by spaces. What may be a secret is written
 * as MT_HIDDEN: the value of an option or a variable that is named after one (--api-key,
 * HF_TOKEN=), a password in an address, and words that begin as access tokens of known services do.
 * The text is cut to `capacity` and always terminated. Any bytes; any thread. */
void mt_join_arguments(const char *bytes, size_t n, char *text, size_t capacity);

/* The same with a NUL between arguments, as they came. Returns the length, without the NUL that
 * ends the text. Asks nothing of the system and allocates nothing. */
size_t mt_hide_secrets(const char *bytes, size_t n, char *text, size_t capacity);

#define MT_HIDDEN "[hidden]"

#endif
