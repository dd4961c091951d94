/* SPDX-License-Identifier: MIT */
/* Noting signals. A handler has no argument for its caller's data, so there is one note. */
#include "cli/profile/signals.h"

#include <stddef.h>

static struct mt_profile_signals noted;

static void note(int number, siginfo_t *info, void *context)
{
    (void)context;
    noted.from_terminal = info->si_code > 0;
    noted.caught = number;
}

static const int watched[CLI_WATCHED_SIGNALS] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

struct mt_profile_signals *cli_watch_signals(struct sigaction before[CLI_WATCHED_SIGNALS])
{
    const struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
    noted.caught = 0;
    for (size_t i = 0; i < CLI_WATCHED_SIGNALS; i++) {
        sigaction(watched[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN)
            sigaction(watched[i], &action, NULL);
    }
    return &noted;
}

void cli_restore_signals(const struct sigaction before[CLI_WATCHED_SIGNALS])
{
    for (size_t i = 0; i < CLI_WATCHED_SIGNALS; i++)
        sigaction(watched[i], &before[i], NULL);
}
