/* SPDX-License-Identifier: MIT */
/* Memory that is freed all at once. */
#ifndef MT_BASE_ARENA_H
#define MT_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

struct mt_arena_block;

/* Start from {0}. Pointers stay valid until mt_arena_finish(). */
struct mt_arena {
    struct mt_arena_block *blocks;
};

/* Zeroed memory, aligned for any object, or NULL. */
void *mt_arena_alloc(struct mt_arena *arena, size_t bytes);
/* The same for `n` objects, NULL also where n * bytes does not fit. */
void *mt_arena_array(struct mt_arena *arena, size_t n, size_t bytes);
/* A terminated copy of `length` bytes, or NULL. */
char *mt_arena_copy(struct mt_arena *arena, const char *text, size_t length);
char *mt_arena_printf(struct mt_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
char *mt_arena_vprintf(struct mt_arena *arena, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));
void mt_arena_finish(struct mt_arena *arena);

#endif
