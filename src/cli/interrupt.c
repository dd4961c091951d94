/* SPDX-License-Identifier: MIT */
/* Noting signals. A handler has no argument for its caller's data, so there is one flag. */
#include "cli/interrupt.h"

#include <stddef.h>

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    interrupted = number;
}

const volatile sig_atomic_t *cli_catch_signals(void)
{
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP};
    const struct sigaction action = {.sa_handler = interrupt, .sa_flags = SA_RESTART};
    const struct sigaction plain = {.sa_handler = SIG_DFL};
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
        struct sigaction before;
        if (sigaction(caught[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(caught[i], &action, NULL);
    }
    sigaction(SIGCHLD, &plain, NULL);
    return &interrupted;
}
