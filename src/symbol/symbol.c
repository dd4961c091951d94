/* SPDX-License-Identifier: MIT */
/* Names of functions: finds the table of a module, and makes a text of what it has. */
#include "symbol/symbol.h"

#include "base/array.h"
#include "base/error.h"
#include "symbol/demangle.h"
#include "symbol/table.h"

#include <gelf.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One module; `table` is NULL for a file that could not be read, so that it is tried only once. */
struct entry {
    char *path;
    uint8_t build_id[MT_BUILD_ID_MAX];
    size_t build_id_length;
    struct mt_symbol_table *table;
};

struct mt_symbolizer {
    char *root;
    char *debug_directory;
    struct mt_demangler demangler;
    struct entry *entries;
    size_t n_entries;
    size_t capacity;
    size_t last; /* stacks stay in one module for several frames */
};

int mt_symbolizer_create(const struct mt_symbolizer_options *options,
                         struct mt_symbolizer **symbolizer, struct mt_error *error)
{
    if (elf_version(EV_CURRENT) == EV_NONE)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET, "libelf is too old: %s",
                       elf_errmsg(-1));
    struct mt_symbolizer *created = calloc(1, sizeof *created);
    if (!created)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory for a symbolizer");
    const char *directory = options->debug_directory ? options->debug_directory : "/usr/lib/debug";
    created->root = strdup(options->root ? options->root : "");
    created->debug_directory = strdup(directory);
    if (!created->root || !created->debug_directory) {
        mt_symbolizer_destroy(created);
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory for a symbolizer");
    }
    if (!options->keep_mangled)
        mt_demangler_init(&created->demangler);
    *symbolizer = created;
    return 0;
}

void mt_symbolizer_destroy(struct mt_symbolizer *symbolizer)
{
    if (!symbolizer)
        return;
    for (size_t i = 0; i < symbolizer->n_entries; i++) {
        mt_symbol_table_destroy(symbolizer->entries[i].table);
        free(symbolizer->entries[i].path);
    }
    mt_demangler_finish(&symbolizer->demangler);
    free(symbolizer->entries);
    free(symbolizer->debug_directory);
    free(symbolizer->root);
    free(symbolizer);
}

static size_t comparable_length(const struct mt_module *module)
{
    return module->build_id && module->build_id_length <= MT_BUILD_ID_MAX ? module->build_id_length
                                                                          : 0;
}

static int is_module(const struct entry *entry, const struct mt_module *module)
{
    size_t length = comparable_length(module);
    return strcmp(entry->path, module->path) == 0 && entry->build_id_length == length &&
           (length == 0 || memcmp(entry->build_id, module->build_id, length) == 0);
}

/* Special mappings ("[vdso]", "") have no file. */
static struct mt_symbol_table *read_table(const struct mt_symbolizer *symbolizer,
                                          const struct mt_module *module)
{
    char path[PATH_MAX];
    if (module->path[0] != '/')
        return NULL;
    int n = snprintf(path, sizeof path, "%s%s", symbolizer->root, module->path);
    if (n < 0 || (size_t)n >= sizeof path)
        return NULL;
    return mt_symbol_table_read(path, symbolizer->debug_directory, module->build_id,
                                comparable_length(module));
}

static struct entry *add_entry(struct mt_symbolizer *symbolizer, const struct mt_module *module)
{
    if (mt_array_reserve(symbolizer->entries, symbolizer->n_entries, symbolizer->capacity, 64) < 0)
        return NULL;
    struct entry *entry = &symbolizer->entries[symbolizer->n_entries];
    memset(entry, 0, sizeof *entry);
    entry->path = strdup(module->path);
    if (!entry->path)
        return NULL;
    entry->build_id_length = comparable_length(module);
    if (entry->build_id_length)
        memcpy(entry->build_id, module->build_id, entry->build_id_length);
    entry->table = read_table(symbolizer, module);
    symbolizer->n_entries++;
    return entry;
}

static const struct entry *find_entry(struct mt_symbolizer *symbolizer,
                                      const struct mt_module *module)
{
    if (symbolizer->last < symbolizer->n_entries &&
        is_module(&symbolizer->entries[symbolizer->last], module))
        return &symbolizer->entries[symbolizer->last];
    for (size_t i = 0; i < symbolizer->n_entries; i++) {
        if (is_module(&symbolizer->entries[i], module)) {
            symbolizer->last = i;
            return &symbolizer->entries[i];
        }
    }
    return add_entry(symbolizer, module);
}

static void write_text(const char *from, char *text, size_t capacity)
{
    snprintf(text, capacity, "%s", from);
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
    }
}

static void write_place(const struct mt_module *module, uint64_t file_offset, char *text,
                        size_t capacity)
{
    char place[PATH_MAX + 32];
    const char *slash = strrchr(module->path, '/');
    const char *name = slash ? slash + 1 : module->path;
    snprintf(place, sizeof place, "%.*s+0x%llx", PATH_MAX, *name ? name : "[anonymous]",
             (unsigned long long)file_offset);
    write_text(place, text, capacity);
}

int mt_symbolizer_name(struct mt_symbolizer *symbolizer, const struct mt_module *module,
                       uint64_t file_offset, char *text, size_t capacity)
{
    if (capacity == 0)
        return 0;
    const struct entry *entry = find_entry(symbolizer, module);
    const char *name =
        entry && entry->table ? mt_symbol_table_name(entry->table, file_offset) : NULL;
    if (!name) {
        write_place(module, file_offset, text, capacity);
        return 0;
    }
    char *written_out = mt_demangle(&symbolizer->demangler, name);
    write_text(written_out ? written_out : name, text, capacity);
    free(written_out);
    return 1;
}
