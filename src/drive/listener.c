/* SPDX-License-Identifier: MIT */
/* Who hears how a drive goes. */
#include "drive/listener.h"

#include <stdarg.h>
#include <stdio.h>

void mt_drive_say(const struct mt_drive_listener *listener, const char *format, ...)
{
    char line[256];
    va_list arguments;
    if (!listener || !listener->progress)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    listener->progress(listener->argument, line);
}

void mt_drive_hush(const struct mt_drive_listener *listener)
{
    if (listener && listener->progress)
        listener->progress(listener->argument, NULL);
}

void mt_drive_pass_on(const struct mt_drive_listener *listener, const char *text, size_t length)
{
    if (listener && listener->output)
        listener->output(listener->argument, text, length);
}
