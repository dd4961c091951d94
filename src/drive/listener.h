/* SPDX-License-Identifier: MIT */
/* Who hears how a drive goes. The library prints nothing: a program draws, or does not. */
#ifndef DRIVE_LISTENER_H
#define DRIVE_LISTENER_H

#include <stddef.h>

/* Members may be NULL. Calls come from the thread that drives. */
struct mt_drive_listener {
    void *argument;

    /* A line on how far it came, some twenty times a second at most; NULL: there is none now. */
    void (*progress)(void *argument, const char *line);

    /* What the program wrote, as it wrote it; not ended by a zero. */
    void (*output)(void *argument, const char *text, size_t length);
};

/* Tells a line of progress. `listener` may be NULL. */
void mt_drive_say(const struct mt_drive_listener *listener, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Takes the line back. `listener` may be NULL. */
void mt_drive_hush(const struct mt_drive_listener *listener);

/* Passes on what the program wrote. `listener` may be NULL. */
void mt_drive_pass_on(const struct mt_drive_listener *listener, const char *text, size_t length);

#endif
