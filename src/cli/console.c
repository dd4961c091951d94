/* SPDX-License-Identifier: MIT */
/* Terminal, stderr, stdout and output files. Knows nothing of commands. */
#include "cli/console.h"

#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail_errno.h"
#include "cli/command.h"

static int terminal_columns(int fd)
{
    struct winsize size;
    if (ioctl(fd, TIOCGWINSZ, &size) || size.ws_col < 20)
        return CLI_COLUMNS_PLAIN;
    return size.ws_col < CLI_COLUMNS_MAX ? size.ws_col : CLI_COLUMNS_MAX;
}

struct cli_terminal cli_terminal_of(int fd)
{
    struct cli_terminal terminal = {.is_terminal = isatty(fd), .columns = CLI_COLUMNS_PLAIN};
    const char *no_colour = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    terminal.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    if (!terminal.is_terminal)
        return terminal;
    terminal.columns = terminal_columns(fd);
    terminal.cursor = term && *term && strcmp(term, "dumb") != 0;
    terminal.colour = terminal.cursor && !(no_colour && *no_colour);
    return terminal;
}

struct cli_terminal cli_terminal_of_output(const char *path)
{
    struct cli_terminal terminal = cli_terminal_of(STDOUT_FILENO);
    if (!path || strcmp(path, "-") == 0)
        return terminal;
    return (struct cli_terminal){.columns = CLI_COLUMNS_PLAIN, .utf8 = terminal.utf8};
}

size_t cli_text_columns(const struct cli_terminal *terminal)
{
    return (size_t)(terminal->columns < CLI_COLUMNS_TEXT ? terminal->columns : CLI_COLUMNS_TEXT);
}

const char *cli_bold(const struct cli_terminal *terminal)
{
    return terminal->colour ? "\033[1m" : "";
}

const char *cli_faint(const struct cli_terminal *terminal)
{
    return terminal->colour ? "\033[2m" : "";
}

const char *cli_plain(const struct cli_terminal *terminal)
{
    return terminal->colour ? "\033[0m" : "";
}

/* Writes all bytes. Returns 0 or an errno value. */
static int write_all(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t written = write(fd, bytes, length);
        if (written < 0 && errno != EINTR)
            return errno;
        if (written > 0) {
            bytes += written;
            length -= (size_t)written;
        }
    }
    return 0;
}

const char *cli_tone(const struct cli_terminal *terminal, enum cli_tone tone)
{
    static const char *const tones[] = {"", "\033[1;32m", "\033[1;33m", "\033[1;31m"};
    return terminal->colour ? tones[tone] : "";
}

static int has_printed;

int cli_has_printed(void)
{
    return has_printed;
}

/* A reader that has seen enough, as `head` has, is no failure to speak of. */
static int complain_unwritten(int failed, const char *where)
{
    if (failed == EPIPE)
        return CLI_EXIT_READER_GONE;
    cli_complain("cannot write %s: %s", where, strerror(failed));
    return cli_exit_of(mt_code_of_errno(failed));
}

int cli_print(const struct mt_strbuf *text)
{
    if (mt_strbuf_failed(text)) {
        cli_complain("out of memory while preparing the output");
        return CLI_EXIT_CANNOT;
    }
    has_printed = 1;
    fflush(stdout);
    int failed = write_all(STDOUT_FILENO, mt_strbuf_text(text), text->length);
    if (!failed)
        return CLI_EXIT_OK;
    int code = complain_unwritten(failed, "to standard output");
    return code == CLI_EXIT_READER_GONE ? code : CLI_EXIT_NO;
}

static int close_fd(int fd)
{
    return close(fd) ? errno : 0;
}

/* Writes the text to a new file beside `path`, whose name is left in `beside`. Returns 0 or an
 * errno value. */
static int write_beside(const struct mt_strbuf *text, const char *path, char *beside, size_t size)
{
    if (snprintf(beside, size, "%s.XXXXXX", path) >= (int)size)
        return ENAMETOOLONG;
    int fd = mkostemp(beside, O_CLOEXEC);
    if (fd < 0) {
        beside[0] = '\0';
        return errno;
    }
    mode_t mask = umask(0);
    umask(mask);
    int failed = fchmod(fd, 0666 & ~mask) ? errno : 0;
    if (!failed)
        failed = write_all(fd, mt_strbuf_text(text), text->length);
    int close_failed = close_fd(fd);
    return failed ? failed : close_failed;
}

/* A device or a pipe cannot be renamed over: it is written to. */
static int is_special(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

static int write_special(const struct mt_strbuf *text, const char *path)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int failed = write_all(fd, mt_strbuf_text(text), text->length);
    int close_failed = close_fd(fd);
    return failed ? failed : close_failed;
}

static int replace_file(const struct mt_strbuf *text, const char *path)
{
    char beside[4096];
    int failed = write_beside(text, path, beside, sizeof beside);
    if (!failed && rename(beside, path))
        failed = errno;
    if (failed && beside[0])
        unlink(beside);
    return failed;
}

int cli_write_output(const struct mt_strbuf *text, const char *path)
{
    if (!path || strcmp(path, "-") == 0)
        return cli_print(text);
    if (mt_strbuf_failed(text)) {
        cli_complain("out of memory while preparing the output");
        return CLI_EXIT_CANNOT;
    }
    int failed = is_special(path) ? write_special(text, path) : replace_file(text, path);
    return failed ? complain_unwritten(failed, path) : CLI_EXIT_OK;
}
