/* SPDX-License-Identifier: MIT */
/* Reading the table of GPUs. Knows its text, no account. */
#include "rehearse/gpus.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/strbuf.h"

extern const char mt_gpu_table[];
extern const char mt_gpu_table_end[];

#define LINE_MAX_BYTES 256

/* A line without its source: "key value". */
struct line {
    char text[LINE_MAX_BYTES];
    char *key;
    char *value;
};

/* Takes the next line that says something. Returns past it, NULL at the end. */
static const char *next_line(const char *at, struct line *line)
{
    while (at < mt_gpu_table_end) {
        const char *end = memchr(at, '\n', (size_t)(mt_gpu_table_end - at));
        if (!end)
            end = mt_gpu_table_end;
        snprintf(line->text, sizeof line->text, "%.*s", (int)(end - at), at);
        at = end + 1;
        line->text[strcspn(line->text, "#;")] = '\0';
        size_t length = strlen(line->text);
        while (length && isspace((unsigned char)line->text[length - 1]))
            line->text[--length] = '\0';
        line->key = line->text;
        line->value = line->text + strcspn(line->text, " ");
        if (*line->value)
            *line->value++ = '\0';
        if (*line->key)
            return at;
    }
    return NULL;
}

/* How a value is written, and where it goes. */
enum value_kind { TEXT, COUNT, KIB, MIB, MHZ, BANDED, CAPABILITY, LINK };

#define AT(member) offsetof(struct mt_gpu_row, member)
#define TWO(a, b)                                                                                  \
    {                                                                                              \
        AT(a), AT(b)                                                                               \
    }

static const struct field {
    const char *key;
    enum value_kind kind;
    size_t at[3]; /* of 32 bits, but BANDED and "memory" */
    size_t size;  /* of a text */
} fields[] = {
    {"also", TEXT, {AT(also)}, sizeof((struct mt_gpu_row *)0)->also},
    {"name", TEXT, {AT(gpu.name)}, sizeof((struct mt_gpu_row *)0)->gpu.name},
    {"memory", MIB, {AT(memory_bytes)}, 8},
    {"capability", CAPABILITY, {AT(gpu.capability)}, 0},
    {"multiprocessors", COUNT, {AT(gpu.multiprocessors)}, 0},
    {"shared", KIB, TWO(gpu.shared_bytes, gpu.shared_block_bytes), 0},
    {"threads", COUNT, {AT(gpu.threads_most)}, 0},
    {"blocks", COUNT, {AT(gpu.blocks_most)}, 0},
    {"l2", MIB, {AT(gpu.l2_bytes)}, 4},
    {"clock", MHZ, {AT(gpu.clock_khz)}, 0},
    {"memory_clock", MHZ, {AT(gpu.memory_clock_khz)}, 0},
    {"bus", COUNT, {AT(gpu.memory_bus_bits)}, 0},
    {"link", LINK, {AT(gpu.link)}, 0},
    {"ecc", COUNT, {AT(gpu.is_ecc)}, 0},
    {"context", BANDED, {AT(gpu.context_bytes), AT(context_low_bytes), AT(context_high_bytes)}, 0},
    {"modules", BANDED, {AT(gpu.module_bytes), AT(module_low_bytes), AT(module_high_bytes)}, 0},
    {"communication",
     BANDED,
     {AT(gpu.communication_bytes), AT(communication_low_bytes), AT(communication_high_bytes)},
     0},
};

static void put32(struct mt_gpu_row *row, size_t at, uint64_t value)
{
    uint32_t narrow = (uint32_t)value;
    memcpy((char *)row + at, &narrow, sizeof narrow);
}

static void put64(struct mt_gpu_row *row, size_t at, uint64_t value)
{
    memcpy((char *)row + at, &value, sizeof value);
}

/* "9.0" is 90. */
static uint64_t read_capability(const char *text)
{
    char *end;
    uint64_t major = strtoull(text, &end, 10);
    return major * 10 + (*end == '.' ? strtoull(end + 1, NULL, 10) : 0);
}

static void take_numbers(const struct field *field, const char *value, struct mt_gpu_row *row)
{
    static const uint64_t unit[] = {
        [COUNT] = 1, [KIB] = 1024, [MIB] = 1024 * 1024, [MHZ] = 1000, [BANDED] = 1024 * 1024};
    const char *at = value;
    for (size_t i = 0; i < 3 && (i == 0 || field->at[i]); i++) {
        char *end;
        uint64_t number = strtoull(at, &end, 10) * unit[field->kind];
        if (field->kind == BANDED || field->size == 8)
            put64(row, field->at[i], number);
        else
            put32(row, field->at[i], number);
        at = end;
    }
}

static void take_field(const struct line *line, struct mt_gpu_row *row)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const struct field *field = &fields[i];
        if (strcmp(field->key, line->key) != 0)
            continue;
        if (field->kind == TEXT)
            snprintf((char *)row + field->at[0], field->size, "%s", line->value);
        else if (field->kind == CAPABILITY)
            put32(row, field->at[0], read_capability(line->value));
        else if (field->kind == LINK)
            put32(row, field->at[0],
                  strcmp(line->value, "nvlink") == 0 ? MT_GPU_LINK_NVLINK : MT_GPU_LINK_PCI);
        else
            take_numbers(field, line->value, row);
        return;
    }
}

/* Reads the GPU that begins at or past `at`. Returns where the next one begins, NULL where there
 * was none. */
static const char *read_row(const char *at, struct mt_gpu_row *row)
{
    struct line line;
    *row = (struct mt_gpu_row){0};
    for (const char *next; (next = next_line(at, &line)) != NULL; at = next) {
        if (strcmp(line.key, "gpu") != 0) {
            take_field(&line, row);
            continue;
        }
        if (row->key[0])
            return at;
        snprintf(row->key, sizeof row->key, "%s", line.value);
    }
    return row->key[0] ? mt_gpu_table_end : NULL;
}

int mt_gpu_row_at(size_t index, struct mt_gpu_row *row)
{
    const char *at = mt_gpu_table;
    for (size_t i = 0; at && i <= index; i++)
        at = read_row(at, row);
    return at != NULL;
}

/* A name as it is compared: small letters and digits. */
static void plain(const char *name, size_t length, char text[64])
{
    size_t n = 0;
    for (size_t i = 0; i < length && n < 63; i++)
        if (isalnum((unsigned char)name[i]))
            text[n++] = (char)tolower((unsigned char)name[i]);
    text[n] = '\0';
}

static int is_called(const char *wanted, const char *name, size_t length)
{
    char text[64];
    plain(name, length, text);
    return strcmp(wanted, text) == 0;
}

static int row_is_called(const struct mt_gpu_row *row, const char *wanted)
{
    if (is_called(wanted, row->key, strlen(row->key)) ||
        is_called(wanted, row->gpu.name, strlen(row->gpu.name)))
        return 1;
    for (const char *at = row->also; *at;) {
        size_t length = strcspn(at, " ");
        if (is_called(wanted, at, length))
            return 1;
        at += length + (at[length] == ' ');
    }
    return 0;
}

/* How many of the first letters are alike. */
static size_t likeness(const char *wanted, const char *name)
{
    char text[64];
    size_t n = 0;
    plain(name, strlen(name), text);
    while (wanted[n] && wanted[n] == text[n])
        n++;
    return n;
}

/* Names that begin alike; all, where none does. */
static int fail_unknown(const char *name, const char *wanted, struct mt_error *error)
{
    struct mt_strbuf near = {0};
    struct mt_gpu_row row;
    size_t best = 0;
    for (size_t i = 0; mt_gpu_row_at(i, &row); i++)
        best = likeness(wanted, row.key) > best ? likeness(wanted, row.key) : best;
    for (size_t i = 0; mt_gpu_row_at(i, &row); i++)
        if (likeness(wanted, row.key) == best)
            mt_strbuf_printf(&near, "%s%s", mt_strbuf_text(&near)[0] ? ", " : "", row.key);
    int result =
        mt_fail(error, MT_EARG, MT_NO_OFFSET,
                "no GPU is called '%.60s': there %s %.300s; or give a size, as 24GiB", name,
                strchr(mt_strbuf_text(&near), ',') ? "are" : "is", mt_strbuf_text(&near));
    mt_strbuf_finish(&near);
    return result;
}

int mt_gpu_find(const char *name, struct mt_gpu_row *row, struct mt_error *error)
{
    char wanted[64];
    plain(name, strlen(name), wanted);
    for (size_t i = 0; *wanted && mt_gpu_row_at(i, row); i++)
        if (row_is_called(row, wanted))
            return 0;
    return fail_unknown(name, wanted, error);
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

void mt_gpu_nearest(uint64_t bytes, struct mt_gpu_row *row)
{
    struct mt_gpu_row other;
    mt_gpu_row_at(0, row);
    for (size_t i = 1; mt_gpu_row_at(i, &other); i++)
        if (distance(other.memory_bytes, bytes) < distance(row->memory_bytes, bytes))
            *row = other;
}

int mt_rehearse_gpu_at(size_t index, struct mt_rehearse_gpu *gpu)
{
    struct mt_gpu_row row;
    if (!mt_gpu_row_at(index, &row))
        return MT_ENOTFOUND;
    *gpu = (struct mt_rehearse_gpu){.memory_bytes = row.memory_bytes,
                                    .context_bytes = row.gpu.context_bytes,
                                    .capability = row.gpu.capability};
    snprintf(gpu->key, sizeof gpu->key, "%s", row.key);
    snprintf(gpu->name, sizeof gpu->name, "%s", row.gpu.name);
    return 0;
}

int mt_rehearse_gpu_find(const char *name, struct mt_rehearse_gpu *gpu, struct mt_error *error)
{
    struct mt_gpu_row wanted;
    int result = mt_gpu_find(name, &wanted, error);
    for (size_t i = 0; result == 0 && mt_rehearse_gpu_at(i, gpu) == 0; i++)
        if (strcmp(gpu->key, wanted.key) == 0)
            return 0;
    return result;
}
