/* SPDX-License-Identifier: MIT */
/* How often experts are used: a file of counts, and rows for the solver. */
#include "traffic.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/out_of_memory.h"
#include "base/strbuf.h"

#define USES_MAX   (1u << 20)
#define LINE_BYTES 128

/* A line without its end and comment. */
struct line {
    char text[LINE_BYTES];
    size_t number;
    const char *next;
};

static int next_line(const char *end, struct line *line, const char *name, struct mt_error *error)
{
    const char *from = line->next;
    const char *newline = memchr(from, '\n', (size_t)(end - from));
    const char *stop = newline ? newline : end;
    const char *comment = memchr(from, '#', (size_t)(stop - from));
    size_t length = (size_t)((comment ? comment : stop) - from);
    line->number++;
    line->next = newline ? newline + 1 : end;
    while (length && strchr(" \t\r", from[length - 1]) && from[length - 1])
        length--;
    if (length >= LINE_BYTES || memchr(from, '\0', length))
        return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET, "%s: line %zu is no line of text", name,
                       line->number);
    memcpy(line->text, from, length);
    line->text[length] = '\0';
    return 0;
}

static int read_number(char **text, uint32_t *number)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(*text, &end, 10);
    int is_number = **text >= '0' && **text <= '9' && *end == ',' && !errno && value <= UINT32_MAX;
    *number = (uint32_t)value;
    *text = end + 1;
    return is_number;
}

static int read_use(char *text, struct mt_expert_use *use)
{
    char *end;
    if (!read_number(&text, &use->layer) || !read_number(&text, &use->expert))
        return 0;
    use->count = strtod(text, &end);
    return end != text && !*end && isfinite(use->count) && use->count >= 0;
}

struct uses {
    struct mt_expert_use *all;
    size_t n;
    size_t room;
};

static struct mt_expert_use *room_for_one(struct uses *uses)
{
    return mt_array_reserve(uses->all, uses->n, uses->room, 256) < 0 ? NULL : &uses->all[uses->n];
}

static int take_line(const char *name, struct line *line, struct uses *uses, struct mt_error *error)
{
    struct mt_expert_use *use = room_for_one(uses);
    if (!use)
        return mt_out_of_memory(error);
    if (!*line->text)
        return 0;
    if (uses->n == USES_MAX)
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "%s: more than %u lines", name, USES_MAX);
    if (read_use(line->text, use))
        uses->n++;
    else if (line->number > 1)
        return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET,
                       "%s: line %zu: '%.60s' is no LAYER,EXPERT,COUNT", name, line->number,
                       line->text);
    return 0;
}

int mt_expert_uses_parse(const char *name, const char *text, size_t length,
                         struct mt_expert_use **uses, size_t *n, struct mt_error *error)
{
    const char *end = text + length;
    struct line line = {.next = text};
    struct uses found = {0};
    int result = 0;
    while (!result && line.next < end) {
        result = next_line(end, &line, name, error);
        if (!result)
            result = take_line(name, &line, &found, error);
    }
    if (result) {
        free(found.all);
        return result;
    }
    *uses = found.all;
    *n = found.n;
    return 0;
}

int mt_expert_uses_read(const char *path, struct mt_expert_use **uses, size_t *n,
                        struct mt_error *error)
{
    struct mt_strbuf text = {0};
    char block[4096];
    size_t got;
    FILE *file = fopen(path, "rb");
    if (!file)
        return mt_fail(error, MT_EIO, MT_NO_OFFSET, "%s: %s", path, strerror(errno));
    while ((got = fread(block, 1, sizeof block, file)) &&
           text.length < (size_t)USES_MAX * LINE_BYTES)
        mt_strbuf_append(&text, block, got);
    int is_broken = ferror(file);
    fclose(file);
    int result = is_broken ? mt_fail(error, MT_EIO, MT_NO_OFFSET, "%s cannot be read", path)
                 : mt_strbuf_failed(&text) ? mt_out_of_memory(error)
                                           : mt_expert_uses_parse(path, mt_strbuf_text(&text),
                                                                  text.length, uses, n, error);
    mt_strbuf_finish(&text);
    return result;
}

void mt_expert_uses_destroy(struct mt_expert_use *uses)
{
    free(uses);
}

int mt_place_expert_use(const struct mt_place_options *options, const struct mt_place_units *units,
                        double **use, struct mt_error *error)
{
    size_t most = 0;
    for (size_t i = 0; i < units->n; i++)
        most = units->units[i].experts > most ? units->units[i].experts : most;
    if (!options->n_uses)
        return 0;
    *use = calloc(units->n * (most ? most : 1), sizeof **use);
    if (!*use)
        return mt_out_of_memory(error);
    for (size_t i = 0; i < options->n_uses; i++) {
        const struct mt_expert_use *one = &options->uses[i];
        size_t at = units->first + one->layer;
        if (one->layer >= units->n_layers || one->expert >= units->units[at].experts)
            return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                           "the traffic names expert %" PRIu32 " of layer %" PRIu32
                           ", which the model does not have",
                           one->expert, one->layer);
        (*use)[at * most + one->expert] += one->count;
    }
    return 0;
}
