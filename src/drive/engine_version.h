/* SPDX-License-Identifier: MIT */
/* Asking a program for its version. */
#ifndef DRIVE_ENGINE_VERSION_H
#define DRIVE_ENGINE_VERSION_H

#include <stddef.h>

/* Starts `program --version`, a path or a name in PATH, waits some seconds at most, and writes what
 * it says of its version to `version`. Leaves `version` alone where it says nothing of use. */
void mt_profile_ask_version(const char *program, char *const *environment, char *version,
                            size_t size);

/* Finds the version in what llama.cpp's programs print: "version: 0.6.0 (build 7, commit 1a2b)".
 * Returns 1, or 0 and leaves `version` alone. */
int mt_profile_read_version(const char *text, char *version, size_t size);

#endif
