/* SPDX-License-Identifier: MIT */
/* An arena: blocks that only grow in number. */
#include "base/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 4096

struct mt_arena_block {
    struct mt_arena_block *next;
    size_t used;
    size_t size;
    _Alignas(max_align_t) unsigned char bytes[];
};

static struct mt_arena_block *add_block(struct mt_arena *arena, size_t bytes)
{
    size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
    struct mt_arena_block *block = calloc(1, sizeof *block + size);
    if (!block)
        return NULL;
    block->size = size;
    /* A block made for one large object goes behind the one that still has room. */
    if (bytes > BLOCK_BYTES && arena->blocks) {
        block->next = arena->blocks->next;
        arena->blocks->next = block;
    } else {
        block->next = arena->blocks;
        arena->blocks = block;
    }
    return block;
}

void *mt_arena_alloc(struct mt_arena *arena, size_t bytes)
{
    const size_t alignment = _Alignof(max_align_t);
    if (bytes > PTRDIFF_MAX / 2)
        return NULL;
    bytes = (bytes + alignment - 1) / alignment * alignment;
    struct mt_arena_block *block = arena->blocks;
    if (!block || block->size - block->used < bytes)
        block = add_block(arena, bytes);
    if (!block)
        return NULL;
    void *at = block->bytes + block->used;
    block->used += bytes;
    return at;
}

void *mt_arena_array(struct mt_arena *arena, size_t n, size_t bytes)
{
    size_t total;
    return __builtin_mul_overflow(n, bytes, &total) ? NULL : mt_arena_alloc(arena, total);
}

char *mt_arena_copy(struct mt_arena *arena, const char *text, size_t length)
{
    char *copy = length < SIZE_MAX ? mt_arena_alloc(arena, length + 1) : NULL;
    if (copy && length)
        memcpy(copy, text, length);
    return copy;
}

char *mt_arena_vprintf(struct mt_arena *arena, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    char *text = length < 0 ? NULL : mt_arena_alloc(arena, (size_t)length + 1);
    if (text)
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

char *mt_arena_printf(struct mt_arena *arena, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = mt_arena_vprintf(arena, format, arguments);
    va_end(arguments);
    return text;
}

void mt_arena_finish(struct mt_arena *arena)
{
    while (arena->blocks) {
        struct mt_arena_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
}
