/* SPDX-License-Identifier: MIT */
/* "Did you mean …?" */
#ifndef CLI_SUGGEST_H
#define CLI_SUGGEST_H

#include <stddef.h>

/* The number of insertions, deletions, changes and swaps of neighbours that make `a` into `b`;
 * names longer than 63 bytes are as far apart as they are long. */
size_t cli_name_distance(const char *a, const char *b);

/* A search for the name nearest to `wanted`. Start with {.wanted = …}, offer every name, and read
 * `best`, which is NULL where nothing is near enough to be worth saying. */
struct cli_suggestion {
    const char *wanted;
    const char *best;
    size_t best_distance;
};

void cli_suggestion_offer(struct cli_suggestion *suggestion, const char *name);

#endif
