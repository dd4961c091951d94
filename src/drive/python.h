/* SPDX-License-Identifier: MIT */
/* A model in an engine that is a Python package: the command line that loads it there, with the
 * settings of an estimate, and has it compute. */
#ifndef DRIVE_PYTHON_H
#define DRIVE_PYTHON_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

struct mt_error; /* <memtally/error.h> */

/* What such an engine can be told. Texts are NULL and numbers 0 where nothing was said; those of
 * the second half are of engines that divide a model by themselves. Borrowed. */
struct mt_drive_python_settings {
    const char *engine;      /* "vllm", "vllm@0.11.0" */
    const char *engine_path; /* a Python, or the folder of a virtual environment */
    const char *weight_type;
    uint64_t context;
    uint64_t sequences;
    int no_kv_offload; /* of the other engines */
    const char *kv_type;
    double memory_share;
    uint64_t batched_tokens;
    uint64_t tensor_parallel;
    uint64_t pipeline_parallel;
    int eager;
    const char *device_map; /* JSON of modules and devices, of the other engines */
};

struct mt_drive_python_command {
    char python[PATH_MAX];
    char script[PATH_MAX];
    char model[PATH_MAX];
    char *settings; /* JSON, owned */
    char *argv[5];  /* of the above */
};

/* Whether `engine` ("vllm", "sglang", "transformers@4.57.6"; NULL) is such a package. */
int mt_drive_is_python_engine(const char *engine);

/* The package of such an engine, and whether it divides a model over devices by itself. */
const char *mt_drive_python_engine_name(const char *engine, int *is_parallel);

/* Makes the command for a folder `model` with a config.json. On success the caller finishes
 * *command. Errors: MT_EARG (no devices), MT_ENOTFOUND (no Python, or none of our programs),
 * MT_ELIMIT, MT_ENOMEM. */
int mt_drive_python_command_init(struct mt_drive_python_command *command,
                                 const struct mt_drive_python_settings *settings, const char *model,
                                 size_t n_devices, char *const *environment,
                                 struct mt_error *error);
void mt_drive_python_command_finish(struct mt_drive_python_command *command);

#endif
