/* SPDX-License-Identifier: MIT */
/* The nearest name, by the optimal string alignment distance. Knows names only. */
#include "cli/suggest.h"

#include <string.h>

#define NAME_MAX_BYTES 63

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t cli_name_distance(const char *a, const char *b)
{
    size_t length_a = strlen(a);
    size_t length_b = strlen(b);
    if (length_a > NAME_MAX_BYTES || length_b > NAME_MAX_BYTES)
        return length_a > length_b ? length_a : length_b;
    size_t rows[3][NAME_MAX_BYTES + 1];
    for (size_t j = 0; j <= length_b; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= length_a; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3];
        const size_t *above_that = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= length_b; j++) {
            row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], above_that[j - 2] + 1);
        }
    }
    return rows[length_a % 3][length_b];
}

void cli_suggestion_offer(struct cli_suggestion *suggestion, const char *name)
{
    size_t length = strlen(suggestion->wanted);
    size_t distance = cli_name_distance(suggestion->wanted, name);
    /* A name cut short, as `--out` for `--output`, is as good as one slip. */
    if (length >= 2 && strncmp(name, suggestion->wanted, length) == 0)
        distance = 1;
    if (distance > 2 || distance >= strlen(name))
        return;
    if (!suggestion->best || distance < suggestion->best_distance) {
        suggestion->best = name;
        suggestion->best_distance = distance;
    }
}
