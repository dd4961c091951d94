/* SPDX-License-Identifier: MIT */
/* Lines of Python, PyTorch, vLLM and SGLang. Knows no rehearsal. */
#include "last_words.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* A line without its end. */
struct line {
    const char *begin;
    const char *end;
};

static int holds(struct line line, const char *word)
{
    return memmem(line.begin, (size_t)(line.end - line.begin), word, strlen(word)) != NULL;
}

static int begins(struct line line, const char *word)
{
    size_t length = strlen(word);
    return (size_t)(line.end - line.begin) >= length && memcmp(line.begin, word, length) == 0;
}

/* Up to the end of the line. A bar is drawn again behind a carriage return: what was last counts.
 */
static struct line line_at(const char *at)
{
    struct line line = {at, at + strcspn(at, "\n")};
    const char *last = line.end;
    while (last > at && last[-1] == '\r')
        last--;
    const char *drawn = memrchr(at, '\r', (size_t)(last - at));
    line.begin = drawn ? drawn + 1 : at;
    return line;
}

/* "[rank0]: ", "[2026-11-02 12:00:01 TP0] ", "(EngineCore_DP0 pid=21) ". */
static struct line without_process(struct line line)
{
    const char *close = begins(line, "[") ? "]" : begins(line, "(") ? ")" : NULL;
    const char *at = close ? memchr(line.begin, *close, (size_t)(line.end - line.begin)) : NULL;
    if (!at)
        return line;
    at += at + 1 < line.end && at[1] == ':' ? 2 : 1;
    if (at < line.end && *at == ' ')
        line.begin = at + 1;
    return line;
}

/* "ERROR 11-02 12:00:01 [multiproc_executor.py:600] ". */
static struct line without_logger(struct line line)
{
    static const char *const levels[] = {"ERROR ", "WARNING ", "INFO ", "CRITICAL ", "DEBUG "};
    int is_logged = 0;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        is_logged |= begins(line, levels[i]);
    const char *at =
        is_logged ? memmem(line.begin, (size_t)(line.end - line.begin), "] ", 2) : NULL;
    if (at && holds((struct line){line.begin, at}, ".py:"))
        line.begin = at + 2;
    return line;
}

static struct line without_marks(struct line line)
{
    return without_logger(without_process(line));
}

static int is_blank(struct line line)
{
    while (line.begin < line.end && strchr(" \t\r=-^~", *line.begin))
        line.begin++;
    return line.begin == line.end;
}

/* "Loading shards:  50% Completed | 1/2 [00:00<00:00,  3.1it/s]", " 42%|####   |". */
static int is_progress(struct line line)
{
    return (holds(line, "%|") || holds(line, "% Completed |") || holds(line, "it/s]") ||
            holds(line, "s/it]")) &&
           !holds(line, "Error");
}

enum weight { NOTHING, WORDS, CONSEQUENCE, CAUSE };

/* "ValueError: ...", and whether it only says that something else failed. */
static enum weight weigh(struct line line)
{
    static const char *const repeats[] = {
        "ee root cause above", "ee stack trace", "ChildFailedError", "EngineDeadError",
        "BrokenPipeError",     "EOFError",       "ConnectionReset",  "CancelledError"};
    size_t name = 0;
    while (line.begin + name < line.end && !strchr(": ", line.begin[name]))
        name++;
    struct line word = {line.begin, line.begin + name};
    int is_error = name > 5 && word.end < line.end && *word.end == ':' &&
                   (holds(word, "Error") || holds(word, "Exception"));
    if (!is_error)
        return is_blank(line) || is_progress(line) ? NOTHING : WORDS;
    for (size_t i = 0; i < sizeof repeats / sizeof *repeats; i++)
        if (holds(line, repeats[i]))
            return CONSEQUENCE;
    return CAUSE;
}

/* Errors of pydantic have their sentence in the next line. */
static void add_next(struct line line, char *text, size_t size)
{
    size_t length = strlen(text);
    if (!holds(line, "validation error") || !*line.end)
        return;
    struct line next = without_marks(line_at(line.end + 1));
    while (next.begin < next.end && isspace((unsigned char)*next.begin))
        next.begin++;
    snprintf(text + length, size - length, ": %.*s", (int)(next.end - next.begin), next.begin);
}

int mt_drive_last_line(const char *said, char *text, size_t size)
{
    enum weight found = NOTHING;
    *text = '\0';
    for (const char *at = said; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        struct line line = without_marks(line_at(at));
        enum weight weight = weigh(line);
        if (weight == NOTHING || weight < found)
            continue;
        found = weight;
        snprintf(text, size, "%.*s", (int)(line.end - line.begin), line.begin);
        add_next(line, text, size);
    }
    return *text != '\0';
}

static int is_own_frame(struct line line)
{
    static const char *const own[] = {"/memtally/pretend/", "/memtally/watch/", "/rehearse_"};
    if (!holds(line, "File \""))
        return 0;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (holds(line, own[i]))
            return 1;
    return 0;
}

/* Blanks before the first word. */
static size_t indent_of(struct line line)
{
    size_t n = 0;
    while (line.begin + n < line.end && line.begin[n] == ' ')
        n++;
    return n;
}

void mt_drive_clean_words(char *text)
{
    char *to = text;
    size_t frame = 0; /* indent of a frame of ours that is being left out; 0: none */
    for (const char *at = text; *at;) {
        struct line line = line_at(at);
        struct line bare = without_marks(line);
        const char *next = line.end + (*line.end == '\n');
        if (frame && indent_of(bare) <= frame)
            frame = 0;
        if (is_own_frame(bare))
            frame = indent_of(bare);
        if (!frame && !is_progress(line)) {
            size_t length = (size_t)(next - line.begin);
            memmove(to, line.begin, length);
            to += length;
        }
        at = next;
    }
    *to = '\0';
}
