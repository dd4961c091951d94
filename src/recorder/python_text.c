/* SPDX-License-Identifier: MIT */
/* Names, files and lines of Python's code objects. Knows how CPython keeps strings and tables of
 * lines (Objects/locations.md, Objects/lnotab_notes.txt of its sources); reads by what it is given.
 */
#include "recorder/python_text.h"

#include <string.h>

#include "recorder/recorder.h"

#define NAME_MOST   160u
#define FILE_MOST   200u
#define BYTES_HEAD  32u
#define SIZE_AT     16u
#define STATE_AT    32u
#define TABLE_PIECE 64u

struct text {
    char *at;
    char *end;
};

static void put(struct text *text, uint32_t c)
{
    char bytes[4];
    size_t n = 1;
    if (c < 0x80) {
        bytes[0] = (char)(c < 0x20 || c == 0x7f ? ' ' : c);
    } else if (c < 0x800) {
        bytes[0] = (char)(0xc0 | c >> 6);
        bytes[1] = (char)(0x80 | (c & 63));
        n = 2;
    } else if (c < 0x10000) {
        bytes[0] = (char)(0xe0 | c >> 12);
        bytes[1] = (char)(0x80 | (c >> 6 & 63));
        bytes[2] = (char)(0x80 | (c & 63));
        n = 3;
    } else {
        bytes[0] = (char)(0xf0 | (c >> 18 & 7));
        bytes[1] = (char)(0x80 | (c >> 12 & 63));
        bytes[2] = (char)(0x80 | (c >> 6 & 63));
        bytes[3] = (char)(0x80 | (c & 63));
        n = 4;
    }
    if ((size_t)(text->end - text->at) < n) {
        text->end = text->at; /* no part of a character */
        return;
    }
    memcpy(text->at, bytes, n);
    text->at += n;
}

static void put_words(struct text *text, const char *words)
{
    for (; *words; words++)
        put(text, (uint8_t)*words);
}

static void put_decimal(struct text *text, uint32_t number)
{
    char digits[10];
    size_t n = 0;
    do
        digits[n++] = (char)('0' + number % 10);
    while (number /= 10);
    while (n)
        put(text, (uint8_t)digits[--n]);
}

/* How the characters of a string lie; `width` 0 where it is not one that can be read. */
struct characters {
    uintptr_t at;
    uint64_t n;
    uint32_t width;
};

static struct characters open_string(const struct python_code *code, uintptr_t string)
{
    enum { COMPACT = 1 << 5, ASCII = 1 << 6 };
    struct characters characters = {0};
    uint32_t state = 0;
    if (!string || !code->get(string + SIZE_AT, &characters.n, sizeof characters.n) ||
        !code->get(string + STATE_AT, &state, sizeof state))
        return characters;
    /* The bits of the state: interned (from 3.12 on 2 or 3 of the first 8), kind, compact, ascii.
     */
    characters.width = state >> 2 & 7;
    int is_compact = (state & COMPACT) != 0;
    int is_ascii = (state & ASCII) != 0;
    if (!is_compact || characters.width == 0 || characters.width == 3 || characters.width > 4 ||
        characters.n > INT32_MAX)
        characters.width = 0;
    characters.at = string + (is_ascii ? code->layout->ascii_head : code->layout->wide_head);
    return characters;
}

static uint32_t character(const struct python_code *code, const struct characters *characters,
                          uint64_t index)
{
    uint32_t c = 0;
    return code->get(characters->at + index * characters->width, &c, characters->width) ? c : '?';
}

static void put_characters(const struct python_code *code, const struct characters *characters,
                           uint64_t from, struct text *text, size_t most)
{
    char *end = text->end;
    if ((size_t)(text->end - text->at) > most)
        text->end = text->at + most;
    for (uint64_t i = from; i < characters->n && text->at < text->end; i++)
        put(text, character(code, characters, i));
    text->end = end;
}

static int is_word_at(const struct python_code *code, const struct characters *characters,
                      uint64_t at, const char *word)
{
    for (; *word; word++, at++)
        if (at >= characters->n || character(code, characters, at) != (uint8_t)*word)
            return 0;
    return 1;
}

/* A file of an installed package is told from the package on, any other whole; of what is too long
 * the end. */
static uint64_t begin_of_file(const struct python_code *code, const struct characters *file)
{
    static const char *const folders[] = {"/site-packages/", "/dist-packages/"};
    uint64_t begin = 0;
    if (file->n > 4096)
        return file->n - FILE_MOST;
    for (uint64_t i = 0; i < file->n; i++)
        for (size_t k = 0; k < 2; k++)
            if (is_word_at(code, file, i, folders[k]))
                begin = i + strlen(folders[k]);
    return file->n - begin > FILE_MOST ? file->n - FILE_MOST : begin;
}

/* A table of lines, a byte at a time. */
struct table {
    const struct python_code *code;
    uintptr_t at;
    uint64_t left;
    uint8_t piece[TABLE_PIECE];
    uint32_t n;
    uint32_t next;
};

static int next_byte(struct table *table, uint8_t *byte)
{
    if (table->next == table->n) {
        table->n = table->left < TABLE_PIECE ? (uint32_t)table->left : TABLE_PIECE;
        table->next = 0;
        if (!table->n || !table->code->get(table->at, table->piece, table->n)) {
            table->left = 0;
            table->n = 0;
            return 0;
        }
        table->at += table->n;
        table->left -= table->n;
    }
    *byte = table->piece[table->next++];
    return 1;
}

/* Six bits to a byte, the lowest first; the seventh says that there are more. */
static uint64_t next_varint(struct table *table)
{
    uint8_t byte = 0;
    uint64_t value = 0;
    for (uint32_t shift = 0; shift < 60 && next_byte(table, &byte); shift += 6) {
        value |= (uint64_t)(byte & 63) << shift;
        if (!(byte & 64))
            break;
    }
    return value;
}

static int64_t next_signed(struct table *table)
{
    uint64_t value = next_varint(table);
    return value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
}

/* Forms of an entry of the table, by Objects/locations.md of CPython: short ones up to 9, one line
 * for each of three, then without columns, with them, and of no line. */
enum { FORM_SHORT_LAST = 9, FORM_LINE = 10, FORM_LINE_LAST = 12, FORM_LONG = 14, FORM_NONE = 15 };

static int64_t lines_of_entry(struct table *table, uint32_t kind)
{
    uint8_t byte;
    if (kind <= FORM_SHORT_LAST) {
        next_byte(table, &byte);
        return 0;
    }
    if (kind <= FORM_LINE_LAST) {
        next_byte(table, &byte);
        next_byte(table, &byte);
        return kind - FORM_LINE;
    }
    int64_t lines = kind == FORM_NONE ? 0 : next_signed(table);
    if (kind == FORM_LONG)
        for (int i = 0; i < 3; i++)
            next_varint(table);
    return lines;
}

/* The table from 3.11 on: entries of so many instructions each. */
static int64_t line_by_location(struct table *table, uint64_t instruction, int64_t line)
{
    uint64_t end = 0;
    uint8_t first;
    while (next_byte(table, &first)) {
        line += lines_of_entry(table, first >> 3 & 15);
        end += (first & 7u) + 1;
        if (instruction < end)
            return line;
    }
    return line;
}

/* The table of 3.10: pairs of bytes, how far and how many lines on; -128 is no line. */
static int64_t line_by_pairs(struct table *table, uint64_t instruction, int64_t line)
{
    uint64_t end = 0;
    uint8_t far;
    uint8_t lines;
    while (next_byte(table, &far) && next_byte(table, &lines)) {
        end += far;
        line += (int8_t)lines == -128 ? 0 : (int8_t)lines;
        if (2 * instruction < end)
            return line;
    }
    return line;
}

static int64_t line_of(const struct python_code *code)
{
    const struct python_code_layout *layout = code->layout;
    uint32_t first = 0;
    struct table table = {.code = code};
    uintptr_t bytes = 0;
    code->get(code->code + layout->first_line, &first, sizeof first);
    if (!code->get(code->code + layout->lines, &bytes, sizeof bytes) || !bytes ||
        !code->get(bytes + SIZE_AT, &table.left, sizeof table.left) || table.left > UINT32_MAX)
        return first;
    table.at = bytes + BYTES_HEAD;
    if (code->version == 310)
        return (int32_t)code->instruction < 0 ? first
                                              : line_by_pairs(&table, code->instruction, first);
    uintptr_t begin = code->code + layout->instructions;
    if (code->instruction < begin)
        return first;
    return line_by_location(&table, (code->instruction - begin) / 2, first);
}

size_t python_put_text(const struct python_code *code, char buffer[PYTHON_TEXT_BYTES])
{
    struct text text = {buffer, buffer + PYTHON_TEXT_BYTES - 1};
    uintptr_t name = 0;
    uintptr_t file = 0;
    code->get(code->code + code->layout->name, &name, sizeof name);
    code->get(code->code + code->layout->file, &file, sizeof file);
    struct characters characters = open_string(code, name);
    if (characters.width)
        put_characters(code, &characters, 0, &text, NAME_MOST);
    put_words(&text, " (");
    characters = open_string(code, file);
    if (characters.width)
        put_characters(code, &characters, begin_of_file(code, &characters), &text, FILE_MOST);
    put_words(&text, ":");
    int64_t line = line_of(code);
    put_decimal(&text, line > 0 && line < INT32_MAX ? (uint32_t)line : 0);
    put_words(&text, ")");
    return (size_t)(text.at - buffer);
}
