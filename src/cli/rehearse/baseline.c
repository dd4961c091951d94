/* SPDX-License-Identifier: MIT */
/* The file of a baseline: read before a program runs, added to when it ran. */
#include <errno.h>
#include <memtally/error.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <memtally/tally.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "base/out_of_memory.h"
#include "cli/document/shell.h"
#include "cli/rehearse/limit.h"

#define LARGEST_BYTES (16u << 20)

static int read_text(const char *path, struct mt_strbuf *text, struct mt_error *error)
{
    char bytes[8192];
    size_t n;
    FILE *file = fopen(path, "rbe");
    if (!file)
        return errno == ENOENT ? 0 : mt_fail_errno(error, errno, "rehearse: %s", path);
    while (text->length <= LARGEST_BYTES && (n = fread(bytes, 1, sizeof bytes, file)) > 0)
        mt_strbuf_append(text, bytes, n);
    int failed = ferror(file);
    fclose(file);
    if (failed)
        return mt_fail(error, MT_EIO, MT_NO_OFFSET, "rehearse: %s: cannot be read", path);
    if (text->length > LARGEST_BYTES)
        return mt_fail(error, MT_EFORMAT, LARGEST_BYTES,
                       "rehearse: %s is larger than 16 MiB, which no baseline is", path);
    return mt_strbuf_failed(text) ? mt_out_of_memory(error) : 0;
}

/* The command line as a shell takes it. */
static int read_name(char *const *argv, struct mt_strbuf *name, struct mt_error *error)
{
    for (char *const *word = argv; *word; word++) {
        mt_strbuf_puts(name, word == argv ? "" : " ");
        cli_put_shell_word(name, *word);
    }
    if (mt_strbuf_failed(name))
        return mt_out_of_memory(error);
    const char *text = mt_strbuf_text(name);
    if (!strpbrk(text, "\n\r") && *text != '#' && !strchr(" \t\v\f", *text))
        return 0;
    return mt_fail(
        error, MT_EARG, MT_NO_OFFSET,
        "rehearse: option '--baseline' keeps a command as one line of its file, and this "
        "one has a line break or begins with a blank or '#'; put it into a script, and "
        "rehearse that");
}

int rehearse_baseline_read(struct rehearse_bounds *bounds, char *const *argv,
                           struct mt_error *error)
{
    struct mt_error wrong;
    if (!bounds->path)
        return 0;
    int code = read_name(argv, &bounds->name, error);
    if (!code)
        code = read_text(bounds->path, &bounds->text, error);
    if (code)
        return code;
    if (mt_baseline_find(mt_strbuf_text(&bounds->text), bounds->text.length,
                         mt_strbuf_text(&bounds->name), &bounds->baseline, &wrong))
        return mt_fail(error, wrong.code, wrong.offset, "rehearse: %s: %s", bounds->path,
                       wrong.text);
    return 0;
}

static int holds_devices(const struct mt_tally *tally)
{
    for (size_t i = 0; i < tally->n_places; i++)
        if (mt_baseline_has(&tally->places[i]))
            return 1;
    return 0;
}

/* Beside the file and renamed, so that the file is whole at any time. */
static int replace(const char *path, const struct mt_strbuf *text, struct mt_error *error)
{
    struct mt_strbuf part = {0};
    mt_strbuf_printf(&part, "%s.%ld.part", path, (long)getpid());
    const char *beside = mt_strbuf_text(&part);
    FILE *file = mt_strbuf_failed(text) || mt_strbuf_failed(&part) ? NULL : fopen(beside, "wbxe");
    int failed = !file || fwrite(mt_strbuf_text(text), 1, text->length, file) != text->length;
    failed |= file && fclose(file) != 0;
    failed = failed || rename(beside, path) != 0;
    int code = failed ? mt_fail_errno(error, errno, "rehearse: %s", path) : 0;
    if (failed && file)
        unlink(beside);
    mt_strbuf_finish(&part);
    return code;
}

int rehearse_baseline_keep(struct rehearse_bounds *bounds, const struct mt_tally *tally,
                           int *is_added, struct mt_error *error)
{
    struct mt_strbuf text = {0};
    *is_added = 0;
    if (!bounds->path || bounds->baseline.peaks || !holds_devices(tally))
        return 0;
    mt_baseline_add(&bounds->baseline, mt_strbuf_text(&bounds->name), tally, &text);
    int code = replace(bounds->path, &text, error);
    mt_strbuf_finish(&text);
    *is_added = !code;
    return code;
}

void rehearse_bounds_finish(struct rehearse_bounds *bounds)
{
    mt_strbuf_finish(&bounds->text);
    mt_strbuf_finish(&bounds->name);
}
