/* SPDX-License-Identifier: MIT */
/* 'memtally rehearse MODEL': one model with settings, or a sweep of them. */
#ifndef CLI_REHEARSE_MODEL_COMMAND_H
#define CLI_REHEARSE_MODEL_COMMAND_H

#include "cli/command.h"
#include "cli/model/model.h"

/* What was typed. All borrowed. */
struct rehearse_model_options {
    const struct estimate_options *estimate; /* settings, engine_path, remote, format, output */
    const struct cli_texts *sweep;           /* each as mt_advise_axes_parse() reads it */
    const char *generation;                  /* of the devices; NULL: the cards' */
    uint64_t reserved_bytes;                 /* of each; 0: what the context takes as a rule */
    const struct cli_texts *device_names;    /* as rehearse_name_devices() reads them */
    uint64_t timeout_ns;                     /* of each rehearsal; 0: ten minutes */
    const char *folder;  /* that keeps the account and the engine's output, or NULL */
    uint64_t n_requests; /* that a server is sent at most */
    int no_suggest;      /* where it runs out, look for no flags that fit */
    int quiet;           /* draw no line of progress */
};

/* Rehearses and writes what came of it. Catches signals. Returns the exit code: as of 'memtally
 * estimate', 128 and the signal's number where one came. */
int rehearse_model_command(const char *model, const struct rehearse_model_options *options);

#endif
