/* SPDX-License-Identifier: MIT */
/* Signals that a profile passes on to its engine. */
#ifndef CLI_PROFILE_SIGNALS_H
#define CLI_PROFILE_SIGNALS_H

#include <signal.h>

#include "drive/session.h"

#define CLI_WATCHED_SIGNALS 4

/* From now on the signals that would end this program are noted instead; such as were ignored stay
 * so. Returns where they are noted. */
struct mt_profile_signals *cli_watch_signals(struct sigaction before[CLI_WATCHED_SIGNALS]);
void cli_restore_signals(const struct sigaction before[CLI_WATCHED_SIGNALS]);

#endif
