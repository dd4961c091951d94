/* SPDX-License-Identifier: MIT */
/* Signals that end a rehearsal early, so that what it made is removed. */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include <signal.h>

/* From now on SIGINT, SIGTERM and SIGHUP are noted instead of ending the program; such as were
 * ignored stay so. Ends of programs can be waited for. Returns where the last of them is noted, 0
 * until one came. */
const volatile sig_atomic_t *cli_catch_signals(void);

#endif
