/* SPDX-License-Identifier: MIT */
/* 'memtally doctor --calibrate'. */
#ifndef CLI_CALIBRATE_H
#define CLI_CALIBRATE_H

/* Measures each card, keeps what it found, and prints it. Returns the exit code. */
int cli_calibrate(int is_json);

#endif
