/* SPDX-License-Identifier: MIT */
/* What a program said when it ended, without what hides it: bars of progress, marks of loggers,
 * frames of memtally's own, and sentences that only point to another one. */
#ifndef DRIVE_LAST_WORDS_H
#define DRIVE_LAST_WORDS_H

#include <stddef.h>

/* The line in which a program said why it ends: that of its last error that is a cause, else of one
 * that follows from another, else its last line. Returns 0 where it said nothing. */
int mt_drive_last_line(const char *said, char *text, size_t size);

/* Takes lines out of a text that say nothing of the program: bars of progress, and frames of
 * memtally's own in tracebacks of Python. */
void mt_drive_clean_words(char *text);

#endif
