/* SPDX-License-Identifier: MIT */
/* The same command twice, with one setting changed: rehearsed, or recorded. */
#ifndef CLI_VARY_H
#define CLI_VARY_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/command.h"

struct mt_error; /* <memtally/error.h> */

#define CLI_VARY_RUNS 2

struct cli_vary {
    char text[1024];
    const char *name;
    const char *values[CLI_VARY_RUNS];
    char labels[CLI_VARY_RUNS][256];       /* "max_concurrency=16" */
    char folders[CLI_VARY_RUNS][PATH_MAX]; /* of the two runs */
    int was_cut[CLI_VARY_RUNS]; /* a rehearsal that was ended while the program still worked */
    char base[PATH_MAX];
};

/* Where and how the runs are made. */
struct cli_vary_how {
    const struct cli_texts *devices; /* that are pretended; none: the command is recorded on this
                                        machine's own */
    const char *folder;              /* that keeps both; NULL: they are removed */
    uint64_t timeout_s;
};

/* Reads "NAME=A,B". A comma in brackets or braces parts nothing. Errors: MT_EARG. */
int cli_vary_read(const char *text, struct cli_vary *vary, struct mt_error *error);

/* Writes the command's words with value number `which` to `words`, which has room for `most` and
 * ends with NULL; new ones are owned by the caller, all of them. {NAME} in a word becomes the
 * value, and null where that is none; a word that is {NAME} alone goes away then, with the flag
 * before it. Without {NAME}, --NAME VALUE stands at the end, and nothing for none. Errors: MT_EARG
 * (too many words), MT_ENOMEM. */
int cli_vary_words(const struct cli_vary *vary, size_t which, const char *const *command,
                   char **words, size_t most, struct mt_error *error);

/* Runs the command with both values. Returns an exit code, after a complaint where it is not 0. */
int cli_vary_run(struct cli_vary *vary, const struct cli_vary_how *how, const char *const *command);

/* Removes what the runs left, unless a folder was named. */
void cli_vary_finish(const struct cli_vary *vary, const struct cli_vary_how *how);

#endif
