/* SPDX-License-Identifier: MIT */
/* The functions of one ELF file, sorted by address. */
#ifndef MT_SYMBOL_TABLE_H
#define MT_SYMBOL_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct mt_symbol_table;

/* Reads the file `path`. Its symbols are taken from the separate debug file of the same build id
 * below `debug_directory` where there is one, else from its own tables. Where `build_id` is given
 * and the file has another one, that counts as a file that cannot be read. Returns NULL for
 * anything that cannot be read as ELF. Free it with mt_symbol_table_destroy(). */
struct mt_symbol_table *mt_symbol_table_read(const char *path, const char *debug_directory,
                                             const uint8_t *build_id, size_t build_id_length);

/* Takes NULL. */
void mt_symbol_table_destroy(struct mt_symbol_table *table);

/* The mangled name of the function at an offset in the file, or NULL. Borrowed. */
const char *mt_symbol_table_name(const struct mt_symbol_table *table, uint64_t file_offset);

#endif
