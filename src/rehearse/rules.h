/* SPDX-License-Identifier: MIT */
/* How a pretended device behaves: rules by kind, generation and build of the engine, as data. */
#ifndef MT_REHEARSAL_RULES_H
#define MT_REHEARSAL_RULES_H

#include "rehearse/account.h"

struct mt_error; /* <memtally/error.h> */

/* Fills in *rules for devices of `kind` ("cuda", "rocm", "vulkan", "metal"; NULL: "cuda") and
 * `generation` ("ampere", "8.6"; NULL: the kind's newest), as build `engine_version` of llama.cpp
 * treats them ("11434", "b11434"; NULL: the newest that the table knows). Any thread.
 * Errors: MT_EARG with the known kinds or generations named, or where the version is none;
 * *rules is untouched. */
int mt_pretend_rules_choose(const char *kind, const char *generation, const char *engine_version,
                            struct mt_pretend_rules *rules, struct mt_error *error);

/* Notes in *builds, which is all zero, what is known of builds: what they say of themselves, and
 * the rules of each for devices like those of `rules`. Any thread. Errors: none with rules that
 * were chosen. */
int mt_pretend_builds_fill(const struct mt_pretend_rules *rules, struct mt_pretend_builds *builds,
                           struct mt_error *error);

#endif
