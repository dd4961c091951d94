/* SPDX-License-Identifier: MIT */
/* Sample models made from a model that exists: its header, with a hole for the weights. */
#ifndef CLI_SAMPLE_FROM_H
#define CLI_SAMPLE_FROM_H

#include <memtally/model_file.h>

struct cli_sample_from {
    const char *model; /* what the user calls it */
    const char *path;  /* of the file to write */
    const char *type;  /* name of an enum mt_file_type */
    int remote;
    int drop_vocabulary;
    int json;
    int quiet;
};

/* Writes the file and says what it wrote. Returns an exit code. */
int cli_sample_from(const struct cli_sample_from *from);

/* "134.5 million" or "8.03 billion". Returns `text`. */
const char *cli_format_parameters(uint64_t parameters, char text[32]);

#endif
