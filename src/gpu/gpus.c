/* SPDX-License-Identifier: MIT */
/* Reading the tables of GPUs. Knows their text, no account. */
#include "gpu/gpus.h"

#include <ctype.h>
#include <inttypes.h>
#include <memtally/gpu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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
        size_t length = (size_t)(end - at) < LINE_MAX_BYTES ? (size_t)(end - at) : 0;
        memcpy(line->text, at, length);
        line->text[length] = '\0';
        at = end + 1;
        length = strcspn(line->text, "#;");
        line->text[length] = '\0';
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
enum value_kind { TEXT, COUNT, MIB, MHZ, CAPABILITY, LINK, CONTEXT };

#define AT(member) offsetof(struct mt_gpu_row, member)

static const struct field {
    const char *key;
    enum value_kind kind;
    size_t at;   /* of 32 bits, but "memory" */
    size_t size; /* of a text; else 8 for 64 bits */
} fields[] = {
    {"also", TEXT, AT(also), sizeof((struct mt_gpu_row *)0)->also},
    {"kind", TEXT, AT(kind), sizeof((struct mt_gpu_row *)0)->kind},
    {"name", TEXT, AT(gpu.name), sizeof((struct mt_gpu_row *)0)->gpu.name},
    {"memory", MIB, AT(memory_bytes), 8},
    {"typical", COUNT, AT(is_typical), 0},
    {"capability", CAPABILITY, AT(gpu.capability), 0},
    {"multiprocessors", COUNT, AT(gpu.multiprocessors), 0},
    {"l2", MIB, AT(gpu.l2_bytes), 4},
    {"clock", MHZ, AT(gpu.clock_khz), 0},
    {"memory_clock", MHZ, AT(gpu.memory_clock_khz), 0},
    {"bus", COUNT, AT(gpu.memory_bus_bits), 0},
    {"link", LINK, AT(gpu.link), 0},
    {"ecc", COUNT, AT(gpu.is_ecc), 0},
    {"context", CONTEXT, AT(context), 0},
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

/* "9.0" is 90; "gfx942" is AMD's 0x942. */
static uint64_t read_capability(const char *text)
{
    char *end;
    if (strncmp(text, "gfx", 3) == 0)
        return MT_GPU_AMD + strtoull(text + 3, NULL, 16);
    uint64_t major = strtoull(text, &end, 10);
    return major * 10 + (*end == '.' ? strtoull(end + 1, NULL, 10) : 0);
}

static void take_number(const struct field *field, const char *value, struct mt_gpu_row *row)
{
    static const double unit[] = {[COUNT] = 1, [MIB] = 1024 * 1024, [MHZ] = 1000};
    uint64_t number = (uint64_t)(strtod(value, NULL) * unit[field->kind]);
    if (field->size == 8)
        put64(row, field->at, number);
    else
        put32(row, field->at, number);
}

static void take_field(const struct line *line, struct mt_gpu_row *row)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const struct field *field = &fields[i];
        if (strcmp(field->key, line->key) != 0)
            continue;
        if (field->kind == TEXT)
            snprintf((char *)row + field->at, field->size, "%s", line->value);
        else if (field->kind == CAPABILITY)
            put32(row, field->at, read_capability(line->value));
        else if (field->kind == LINK)
            put32(row, field->at,
                  strcmp(line->value, "nvlink") == 0 ? MT_GPU_LINK_NVLINK : MT_GPU_LINK_PCI);
        else if (field->kind == CONTEXT)
            row->context = mt_gpu_law_measured(strtoull(line->value, NULL, 10) << 20);
        else
            take_number(field, line->value, row);
        return;
    }
}

/* What follows from the rest of a row. */
static void complete(struct mt_gpu_row *row)
{
    struct mt_gpu_spec *gpu = &row->gpu;
    enum mt_gpu_link link = (enum mt_gpu_link)gpu->link;
    if (!row->kind[0])
        memcpy(row->kind, "cuda", sizeof "cuda");
    if (strcmp(row->kind, "cuda") != 0)
        return;
    mt_gpu_law_architecture(gpu);
    row->is_measured = row->context.bytes != 0;
    if (!row->is_measured)
        row->context = mt_gpu_law_context(gpu->multiprocessors, gpu->threads_most);
    row->modules = mt_gpu_law_modules(gpu->multiprocessors);
    row->communication = mt_gpu_law_communication(link, 2);
    row->communication_many = mt_gpu_law_communication(link, 8);
    row->graph_node = mt_gpu_law_graph_node();
    gpu->context_bytes = row->context.bytes;
    gpu->module_bytes = row->modules.bytes;
    gpu->communication_bytes = row->communication.bytes;
    gpu->communication_many_bytes = row->communication_many.bytes;
    gpu->graph_node_bytes = row->graph_node.bytes;
}

const char *mt_gpu_next(const char *at, struct mt_gpu_row *row)
{
    struct line line;
    *row = (struct mt_gpu_row){.memory_bytes = 0};
    at = at ? at : mt_gpu_table;
    for (const char *next; (next = next_line(at, &line)) != NULL; at = next) {
        if (strcmp(line.key, "gpu") != 0) {
            take_field(&line, row);
            continue;
        }
        if (row->key[0])
            break;
        snprintf(row->key, sizeof row->key, "%s", line.value);
    }
    complete(row);
    return row->key[0] ? at : NULL;
}

/* Passes over rows without reading their fields, since whoever lists all GPUs asks for each by its
 * index. */
int mt_gpu_row_at(size_t index, struct mt_gpu_row *row)
{
    const char *at = mt_gpu_table;
    for (size_t i = 0; at && i <= index; i++)
        at = strstr(i ? at + 1 : at, "\ngpu ");
    *row = (struct mt_gpu_row){.memory_bytes = 0};
    return at && mt_gpu_next(at, row) != NULL;
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

#define NAMES_LENGTH 260 /* of those that an error has room for */

/* Names that begin alike; where none does, as many as there is room for. */
static int fail_unknown(const char *name, const char *wanted, struct mt_error *error)
{
    struct mt_strbuf near = {0};
    struct mt_gpu_row row;
    size_t best = 0;
    int has_more = 0;
    for (const char *at = NULL; (at = mt_gpu_next(at, &row)) != NULL;)
        best = likeness(wanted, row.key) > best ? likeness(wanted, row.key) : best;
    for (const char *at = NULL; (at = mt_gpu_next(at, &row)) != NULL;) {
        if (likeness(wanted, row.key) != best)
            continue;
        if (near.length > NAMES_LENGTH)
            has_more = 1;
        else
            mt_strbuf_printf(&near, "%s%s", near.length ? ", " : "", row.key);
    }
    int result = mt_fail(error, MT_EARG, MT_NO_OFFSET,
                         "no GPU is called '%.60s': there %s %.300s%s; or give a size, as 24GiB",
                         name, strchr(mt_strbuf_text(&near), ',') ? "are" : "is",
                         mt_strbuf_text(&near), has_more ? " and others" : "");
    mt_strbuf_finish(&near);
    return result;
}

int mt_gpu_find(const char *name, struct mt_gpu_row *row, struct mt_error *error)
{
    char wanted[64];
    plain(name, strlen(name), wanted);
    for (const char *at = NULL; *wanted && (at = mt_gpu_next(at, row)) != NULL;)
        if (row_is_called(row, wanted))
            return 0;
    return fail_unknown(name, wanted, error);
}

int mt_gpu_has_other_size(const char *name, const struct mt_gpu_row *row, struct mt_gpu_row *other)
{
    char wanted[64], key[64];
    plain(name, strlen(name), wanted);
    for (const char *at = NULL; (at = mt_gpu_next(at, other)) != NULL;) {
        plain(other->key, strlen(other->key), key);
        size_t length = strlen(wanted);
        size_t digits = strncmp(key, wanted, length) ? 0 : strspn(key + length, "0123456789");
        if (digits && strcmp(key + length + digits, "gb") == 0 && strcmp(other->key, row->key) != 0)
            return 1;
    }
    return 0;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* "ampere", or "8.6", of a card's capability. */
static int is_generation(const char *generation, uint32_t capability)
{
    return isdigit((unsigned char)*generation)
               ? read_capability(generation) == capability
               : strcasecmp(generation, mt_gpu_generation(capability)) == 0;
}

static int fail_generation(const char *generation, struct mt_error *error)
{
    return mt_fail(
        error, MT_EARG, MT_NO_OFFSET,
        "no GPU of generation '%.40s' is known: there are pascal, volta, turing, ampere, "
        "ada, hopper and blackwell, or give a capability, as 8.6",
        generation);
}

int mt_gpu_of_size(uint64_t bytes, const char *generation, struct mt_gpu_row *row,
                   struct mt_error *error)
{
    struct mt_gpu_row best = {.memory_bytes = 0};
    for (const char *at = NULL; (at = mt_gpu_next(at, row)) != NULL;) {
        int is_meant =
            generation ? is_generation(generation, row->gpu.capability) : row->is_typical != 0;
        if (strcmp(row->kind, "cuda") == 0 && is_meant &&
            (!best.key[0] ||
             distance(row->memory_bytes, bytes) < distance(best.memory_bytes, bytes)))
            best = *row;
    }
    *row = best;
    return best.key[0] ? 0 : fail_generation(generation, error);
}

/* A size as it is sold, or as the driver says it: these differ by 2 to 8 %. */
int mt_gpu_may_be(const struct mt_gpu_row *row, uint64_t bytes)
{
    return strcmp(row->kind, "cuda") == 0 && distance(row->memory_bytes, bytes) <= bytes / 100 * 8;
}

static void make_public(const struct mt_gpu_row *row, struct mt_rehearsal_gpu *gpu)
{
    *gpu = (struct mt_rehearsal_gpu){.memory_bytes = row->memory_bytes,
                                     .context_bytes = row->gpu.context_bytes,
                                     .capability = row->gpu.capability,
                                     .is_typical = row->is_typical != 0};
    snprintf(gpu->key, sizeof gpu->key, "%s", row->key);
    snprintf(gpu->name, sizeof gpu->name, "%s", row->gpu.name);
    snprintf(gpu->kind, sizeof gpu->kind, "%s", row->kind);
    snprintf(gpu->generation, sizeof gpu->generation, "%s", mt_gpu_generation(row->gpu.capability));
}

int mt_rehearsal_gpu_at(size_t index, struct mt_rehearsal_gpu *gpu)
{
    struct mt_gpu_row row;
    if (!mt_gpu_row_at(index, &row))
        return MT_ENOTFOUND;
    make_public(&row, gpu);
    return 0;
}

int mt_rehearsal_gpu_find(const char *name, struct mt_rehearsal_gpu *gpu, struct mt_error *error)
{
    struct mt_gpu_row row;
    int result = mt_gpu_find(name, &row, error);
    if (result == 0)
        make_public(&row, gpu);
    return result;
}

int mt_rehearsal_gpu_of_size(uint64_t bytes, const char *generation, struct mt_rehearsal_gpu *gpu,
                             struct mt_error *error)
{
    struct mt_gpu_row row;
    int result = mt_gpu_of_size(bytes, generation, &row, error);
    if (result == 0)
        make_public(&row, gpu);
    return result;
}
