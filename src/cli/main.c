/* SPDX-License-Identifier: MIT */
/* The start of the program. */
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "cli/dispatch.h"

static void do_nothing(int signal)
{
    (void)signal;
}

/* Writing to a pipe without a reader, or past the limit of a file's size, shall fail with an error.
 * A handler does that and, unlike SIG_IGN, is not passed on to the programs that memtally runs. */
static void survive_failed_writes(void)
{
    static const int signals[] = {SIGPIPE, SIGXFSZ};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction old;
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            sigaction(signals[i], &(struct sigaction){.sa_handler = do_nothing}, NULL);
    }
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
    survive_failed_writes();
    setlocale(LC_CTYPE, "");
    return cli_dispatch(&cmd_memtally, argc > 0 ? argc - 1 : 0, argc > 0 ? argv + 1 : argv);
}
