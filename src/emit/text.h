/* SPDX-License-Identifier: MIT */
/* Text that others chose, made fit to be shown.
 *
 * Names of files, programs and buffers may hold anything but NUL. What is shown on a terminal must
 * not steer it, and what goes into JSON must be UTF-8. */
#ifndef MT_EMIT_TEXT_H
#define MT_EMIT_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

/* Decodes the code point at `text` (terminated) into *point and returns how many bytes it takes;
 * 0 for bytes that are not UTF-8 (surrogates, overlong forms and such included). */
size_t mt_utf8_decode(const char *text, uint32_t *point);

/* Appends `text` with control characters, direction marks and invalid bytes written as "\n",
 * "\x1b" or "\u202e". Where `utf8` is 0, everything past ASCII is written so too. */
void mt_text_escape(struct mt_strbuf *out, const char *text, int utf8);

/* Appends `text` with every byte that is not UTF-8 replaced by U+FFFD. */
void mt_text_repair(struct mt_strbuf *out, const char *text);

/* How many terminal columns an escaped text takes. */
size_t mt_text_columns(const char *text);

/* Appends an escaped text in at most `columns` columns: where it is longer, its middle is replaced
 * by "…" ("..." where `utf8` is 0), because paths and names differ at both ends. */
void mt_text_cut(struct mt_strbuf *out, const char *text, size_t columns, int utf8);

/* Appends words with single blanks between them, every line indented and none longer than
 * `columns`, and a final newline. A word that is too long is broken. */
void mt_text_wrap(struct mt_strbuf *out, const char *text, size_t indent, size_t columns);

#endif
