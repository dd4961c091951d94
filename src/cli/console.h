/* SPDX-License-Identifier: MIT */
/* Speaking to the user: errors to stderr, results to stdout or to a file, what the terminal can.
 *
 * Results are built in memory and written once, so that a failed command leaves nothing half
 * written. */
#ifndef CLI_CONSOLE_H
#define CLI_CONSOLE_H

#include <stddef.h>

#include "base/strbuf.h"

struct mt_error; /* <memtally/error.h> */

/* Where there is no terminal, what is printed is as wide as this. On one, tables use its columns up
 * to the greatest number, and running text no more than can be read with ease. */
#define CLI_COLUMNS_PLAIN 80
#define CLI_COLUMNS_TEXT  100
#define CLI_COLUMNS_MAX   240

/* What can be shown at a file descriptor. */
struct cli_terminal {
    int is_terminal;
    int columns; /* CLI_COLUMNS_MAX or less */
    int colour;  /* a terminal, without NO_COLOR in the environment and TERM not "dumb" */
    int cursor;  /* a terminal on which a line can be drawn again */
    int utf8;    /* the locale's encoding is UTF-8 */
};

struct cli_terminal cli_terminal_of(int fd);

/* That of stdout where `path` is NULL or "-", as cli_write_output() has it, else that of a file. */
struct cli_terminal cli_terminal_of_output(const char *path);

/* How many columns running text takes there. */
size_t cli_text_columns(const struct cli_terminal *terminal);

/* Complaints, in complaint.c: printed to stderr at once, and kept for cli_conclude(). */

/* Prints "memtally: text" to stderr. */
void cli_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints what belongs to a complaint, such as a program's last words, line by line with `before` in
 * front of each. */
void cli_complain_lines(const char *text, const char *before, int utf8);

/* Prints what `error` says, with the byte position where it has one, and returns the exit code for
 * its code. */
int cli_fail(const struct mt_error *error);

/* The exit code for an MT_E code: bad input is 2, what this machine refuses is 3, the rest is 1. */
int cli_exit_of(int error_code);

/* Ends a command. Where it complained, failed and is still to write JSON, puts the complaint into
 * `out` as a document of kind "error" and returns 1. Forgets what was complained of. */
int cli_conclude(const char *command, int wants_json, int exit_code, struct mt_strbuf *out);

/* Writes `text` to stdout, all of it. Returns CLI_EXIT_OK, or complains (a full disk) and returns
 * CLI_EXIT_NO, or CLI_EXIT_READER_GONE without a word. */
int cli_print(const struct mt_strbuf *text);

/* Whether cli_print() has been called. */
int cli_has_printed(void);

/* Like cli_print() where `path` is NULL or "-". Else writes the text beside `path` and renames it
 * into place, so that the file is whole or as it was before. */
int cli_write_output(const struct mt_strbuf *text, const char *path);

/* The start and the end of a style ("1" bold, "2" faint), "" where there are no colours. Borrowed,
 * static. */
const char *cli_bold(const struct cli_terminal *terminal);
const char *cli_faint(const struct cli_terminal *terminal);
const char *cli_plain(const struct cli_terminal *terminal);

/* The same for an answer: good news, news with a condition, bad news. */
enum cli_tone { CLI_TONE_NONE, CLI_TONE_GOOD, CLI_TONE_DOUBTFUL, CLI_TONE_BAD };
const char *cli_tone(const struct cli_terminal *terminal, enum cli_tone tone);

#endif
