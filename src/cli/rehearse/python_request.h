/* SPDX-License-Identifier: MIT */
/* 'memtally rehearse MODEL --engine vllm': the command that options ask for. */
#ifndef CLI_REHEARSE_PYTHON_REQUEST_H
#define CLI_REHEARSE_PYTHON_REQUEST_H

#include "cli/model/model.h"
#include "drive/python.h"

/* Makes the command. On success the caller finishes *command. Errors: MT_EARG (a setting that the
 * engine does not have), MT_ENOTFOUND (no such folder), MT_EUNSUPPORTED (a file, or a name of a
 * hub), and those of mt_drive_python_command_init(). */
int rehearse_python_request(const struct estimate_options *options, const char *model,
                            size_t n_devices, const char *device_map,
                            struct mt_drive_python_command *command, struct mt_error *error);

#endif
