/* SPDX-License-Identifier: MIT */
/* The progress line. */
#include "cli/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "emit/text.h"

#define REDRAW_NS 100000000

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void cli_progress_init(struct cli_progress *progress, int wanted)
{
    *progress = (struct cli_progress){.terminal = cli_terminal_of(STDERR_FILENO)};
    progress->terminal.cursor = progress->terminal.cursor && wanted;
}

void cli_progress_show(struct cli_progress *progress, const char *format, ...)
{
    uint64_t now = now_ns();
    if (!progress->terminal.cursor || (progress->drawn && now - progress->drawn_ns < REDRAW_NS))
        return;
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    struct mt_strbuf escaped = {0};
    struct mt_strbuf cut = {0};
    mt_text_escape(&escaped, text, progress->terminal.utf8);
    /* One column is left free: many terminals wrap when the last is written. */
    mt_text_cut(&cut, mt_strbuf_text(&escaped), (size_t)progress->terminal.columns - 1,
                progress->terminal.utf8);
    fprintf(stderr, "\r\033[K%s", mt_strbuf_text(&cut));
    mt_strbuf_finish(&escaped);
    mt_strbuf_finish(&cut);
    progress->drawn = 1;
    progress->drawn_ns = now;
}

void cli_progress_clear(struct cli_progress *progress)
{
    if (progress->drawn)
        fputs("\r\033[K", stderr);
    progress->drawn = 0;
}
