/* SPDX-License-Identifier: MIT */
/* What a program needs, as it is typed: "host=2GiB,gpu0=4GiB", and where it goes. */
#ifndef CLI_BUDGET_NEEDS_H
#define CLI_BUDGET_NEEDS_H

#include <memtally/job.h>

#include "cli/command.h"

struct budget_needs {
    struct mt_budget_need items[MT_BUDGET_PLACES];
    size_t n;
};

/* Appends "host=2GiB,gpu0=4GiB": places are "host", "gpuN", and "gpu" for any device, which becomes
 * "gpu*". Errors: MT_EARG with a text fit for the user. */
int budget_parse_needs(const char *text, struct budget_needs *needs, struct mt_error *error);

/* What is needed of the host, or 0. */
uint64_t budget_host_bytes(const struct budget_needs *needs);

/* Reads "90", "90s", "10m", "1.5h" or "250ms" into nanoseconds. Returns 0 or MT_EARG. */
int budget_parse_time(const char *text, uint64_t *ns);

#endif
