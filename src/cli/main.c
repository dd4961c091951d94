/* SPDX-License-Identifier: MIT */
/* The start of the program. */
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "cli/dispatch.h"

static void ignore_broken_pipe(int signal)
{
    (void)signal;
}

/* Writing to a pipe without a reader shall fail with an error. A handler does that and, unlike
 * SIG_IGN, is not passed on to the programs that memtally runs. */
static void survive_broken_pipes(void)
{
    struct sigaction old;
    if (sigaction(SIGPIPE, NULL, &old) == 0 && old.sa_handler == SIG_DFL)
        sigaction(SIGPIPE, &(struct sigaction){.sa_handler = ignore_broken_pipe}, NULL);
}

/* A closed standard stream must not become the next file that is opened. What takes its place can
 * neither be read nor written, and does not reach the programs that memtally runs. */
static void hold_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", (fd == 0 ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
}

int main(int argc, char **argv)
{
    hold_standard_streams();
    survive_broken_pipes();
    setlocale(LC_CTYPE, "");
    return cli_dispatch(&cmd_memtally, argc > 0 ? argc - 1 : 0, argc > 0 ? argv + 1 : argv);
}
