/* SPDX-License-Identifier: MIT */
/* A model in an engine that is a Python package: the command line that loads it there, with the
 * settings of an estimate, and has it compute. */
#ifndef CLI_REHEARSE_PYTHON_MODEL_H
#define CLI_REHEARSE_PYTHON_MODEL_H

#include <limits.h>
#include <memtally/error.h>

#include "cli/estimate/estimate.h"

struct rehearse_python_command {
    char python[PATH_MAX];
    char script[PATH_MAX];
    char model[PATH_MAX];
    char *settings; /* JSON, owned */
    char *argv[5];  /* of the above */
};

/* Whether `engine` ("vllm", "sglang", "transformers@4.57.6"; NULL) is such a package. */
int rehearse_is_python_engine(const char *engine);

/* Makes the command for a folder with a config.json. On success the caller finishes *command.
 * Errors: MT_EARG (a setting that the engine does not have), MT_ENOTFOUND (no such folder, no
 * Python), MT_EUNSUPPORTED (a file, or a name of a hub), MT_ENOMEM. */
int rehearse_python_command_init(struct rehearse_python_command *command,
                                 const struct estimate_options *options, const char *model,
                                 size_t n_devices, char *const *environment,
                                 struct mt_error *error);
void rehearse_python_command_finish(struct rehearse_python_command *command);

#endif
