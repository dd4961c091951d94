/* SPDX-License-Identifier: MIT */
/* Names of functions for native call stacks.
 *
 * A place in a program is a module (a file that was mapped, as /proc/PID/maps names it) and an
 * offset in that file: address - start of the mapping + the mapping's own file offset. Each
 * module's symbol table is read once, when a name in it is first asked for, and kept sorted.
 *
 * The files are not trusted: whatever they hold, and whatever they are (a folder, a FIFO, a text),
 * a look-up returns. One symbolizer belongs to one thread at a time. */
#ifndef MT_SYMBOL_SYMBOL_H
#define MT_SYMBOL_SYMBOL_H

#include <stddef.h>
#include <stdint.h>

struct mt_error; /* <memtally/error.h> */
struct mt_symbolizer;

/* Zero is a good default. */
struct mt_symbolizer_options {
    const char *root;            /* put before every module path ("/proc/12/root"); NULL: none */
    const char *debug_directory; /* with .build-id below it; NULL: /usr/lib/debug */
    int keep_mangled;            /* 1: leave C++ names as the compiler wrote them */
};

/* A build id is at most this long; longer ones are not compared. */
#define MT_BUILD_ID_MAX 64

/* A mapped file. With a build id, a file that has another one is not believed. */
struct mt_module {
    const char *path;
    const uint8_t *build_id; /* NULL where it is not known */
    size_t build_id_length;
};

/* On success *symbolizer is owned by the caller; free it with mt_symbolizer_destroy().
 * Errors: MT_ENOMEM, MT_EUNSUPPORTED (a libelf that does not fit). */
int mt_symbolizer_create(const struct mt_symbolizer_options *options,
                         struct mt_symbolizer **symbolizer, struct mt_error *error);

/* Takes NULL. */
void mt_symbolizer_destroy(struct mt_symbolizer *symbolizer);

/* Writes the name of the function at `file_offset` of the module, cut to `capacity` and always
 * terminated, with control characters replaced by '?'. A place that has no known name is written as
 * "libfoo.so+0x1234" with the offset in the file. Returns 1 for a name, 0 for a place without
 * one. For a return address, ask for the byte before it. */
int mt_symbolizer_name(struct mt_symbolizer *symbolizer, const struct mt_module *module,
                       uint64_t file_offset, char *text, size_t capacity);

#endif
