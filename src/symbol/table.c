/* SPDX-License-Identifier: MIT */
/* The functions of one ELF file, through libelf. Knows nothing of processes or of languages. */
#include "symbol/table.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bisect.h"

/* A table larger than this is not a real one: the largest libraries that there are have names of
 * some 100 MiB. */
#define SECTION_MAX_BYTES ((uint64_t)1 << 30)

/* How many symbols before an address are looked at for one that covers it. Nested ones are rare:
 * parts of functions, entry points in assembly code. */
#define LOOK_BACK 16

struct symbol {
    uint64_t start;
    uint64_t size; /* 0: not stated, so up to the next symbol or the end of the section */
    uint64_t section_end;
    const char *name;
    int rank;
};

struct segment {
    uint64_t file_offset;
    uint64_t file_size;
    uint64_t address;
};

/* An open file with what libelf made of it. Names of symbols point into its memory. */
struct elf_file {
    int fd;
    Elf *elf;
};

struct mt_symbol_table {
    struct elf_file file;
    struct elf_file debug;
    struct segment *segments;
    size_t n_segments;
    struct symbol *symbols;
    size_t n_symbols;
};

/* ---- files ---- */

static void close_elf(struct elf_file *file)
{
    if (file->elf)
        elf_end(file->elf);
    if (file->fd >= 0)
        close(file->fd);
    *file = (struct elf_file){-1, NULL};
}

/* Only regular files: reading a FIFO or a device could wait for ever. The file is read, not mapped,
 * so that one that shrinks meanwhile is a read error and not a SIGBUS. */
static int open_elf(const char *path, struct elf_file *file)
{
    struct stat status;
    file->elf = NULL;
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (file->fd < 0)
        return 0;
    if (fstat(file->fd, &status) == 0 && S_ISREG(status.st_mode))
        file->elf = elf_begin(file->fd, ELF_C_READ, NULL);
    if (file->elf && elf_kind(file->elf) == ELF_K_ELF)
        return 1;
    close_elf(file);
    return 0;
}

/* What is needed has been read, so the descriptor can go. */
static void release_fd(struct elf_file *file)
{
    if (file->fd < 0)
        return;
    elf_cntl(file->elf, ELF_C_FDDONE);
    close(file->fd);
    file->fd = -1;
}

/* ---- build id ---- */

static size_t build_id_in(Elf_Data *data, const uint8_t **build_id)
{
    GElf_Nhdr note;
    size_t name_offset;
    size_t at = 0;
    size_t content_offset;
    while ((at = gelf_getnote(data, at, &note, &name_offset, &content_offset)) > 0) {
        const char *name = (const char *)data->d_buf + name_offset;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof ELF_NOTE_GNU &&
            memcmp(name, ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) == 0) {
            *build_id = (const uint8_t *)data->d_buf + content_offset;
            return note.n_descsz;
        }
    }
    return 0;
}

/* The length of the file's build id, 0 where it has none. */
static size_t find_build_id(Elf *elf, const uint8_t **build_id)
{
    Elf_Scn *section = NULL;
    while ((section = elf_nextscn(elf, section)) != NULL) {
        GElf_Shdr header;
        if (!gelf_getshdr(section, &header) || header.sh_type != SHT_NOTE ||
            header.sh_size > SECTION_MAX_BYTES)
            continue;
        Elf_Data *data = elf_getdata(section, NULL);
        size_t length = data && data->d_buf ? build_id_in(data, build_id) : 0;
        if (length)
            return length;
    }
    return 0;
}

static int is_the_build(Elf *elf, const uint8_t *build_id, size_t length)
{
    const uint8_t *own = NULL;
    if (!build_id || length == 0)
        return 1;
    size_t own_length = find_build_id(elf, &own);
    return own_length == length && memcmp(own, build_id, length) == 0;
}

/* Debian, Fedora and others keep symbols of stripped files at .build-id/ab/cdef….debug. */
static int open_debug_file(Elf *elf, const char *directory, struct elf_file *debug)
{
    char path[PATH_MAX];
    const uint8_t *build_id = NULL;
    size_t length = find_build_id(elf, &build_id);
    if (length < 2 || length > 64)
        return 0;
    int used = snprintf(path, sizeof path, "%s/.build-id/%02x/", directory, build_id[0]);
    for (size_t i = 1; i < length && used > 0 && (size_t)used < sizeof path; i++)
        used += snprintf(path + used, sizeof path - (size_t)used, "%02x", build_id[i]);
    if (used < 0 || (size_t)used + sizeof ".debug" > sizeof path)
        return 0;
    memcpy(path + used, ".debug", sizeof ".debug");
    if (!open_elf(path, debug))
        return 0;
    if (is_the_build(debug->elf, build_id, length))
        return 1;
    close_elf(debug);
    return 0;
}

/* ---- symbols ---- */

/* An address may have several names. The lowest rank wins: functions before mere labels, names that
 * others can use before local ones, and "malloc" before "__libc_malloc". */
static int rank_of(const GElf_Sym *symbol, const char *name)
{
    int is_label = GELF_ST_TYPE(symbol->st_info) == STT_NOTYPE;
    int is_local = GELF_ST_BIND(symbol->st_info) == STB_LOCAL;
    int is_weak = GELF_ST_BIND(symbol->st_info) == STB_WEAK;
    int is_mangled = strncmp(name, "_Z", 2) == 0;
    size_t underscores = is_mangled ? 0 : strspn(name, "_");
    return is_label * 16 + is_local * 8 + (int)(underscores < 3 ? underscores : 3) * 2 + is_weak;
}

static int is_function(const GElf_Sym *symbol)
{
    int type = GELF_ST_TYPE(symbol->st_info);
    if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx == SHN_ABS || symbol->st_value == 0)
        return 0;
    return type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE;
}

static uint64_t end_of_section(Elf *elf, size_t index)
{
    GElf_Shdr header;
    Elf_Scn *section = elf_getscn(elf, index);
    return section && gelf_getshdr(section, &header) ? header.sh_addr + header.sh_size : 0;
}

/* Appends the functions of one table. Those of unstated size come from assembly code; in a dynamic
 * table they are left out, because there the functions that would follow them may be missing.
 * Returns 0 without memory. */
static int add_symbols(struct mt_symbol_table *table, Elf *elf, Elf_Data *data, size_t n,
                       const GElf_Shdr *header)
{
    struct symbol *symbols =
        realloc(table->symbols, (table->n_symbols + n) * sizeof *table->symbols);
    if (!symbols)
        return 0;
    table->symbols = symbols;
    for (size_t i = 0; i < n; i++) {
        GElf_Sym symbol;
        if (!gelf_getsym(data, (int)i, &symbol) || !is_function(&symbol) ||
            (symbol.st_size == 0 && header->sh_type == SHT_DYNSYM))
            continue;
        const char *name = elf_strptr(elf, header->sh_link, symbol.st_name);
        /* "$x" and the like mark code and data on some processors. */
        if (!name || !*name || *name == '$')
            continue;
        symbols[table->n_symbols++] =
            (struct symbol){symbol.st_value, symbol.st_size,
                            symbol.st_size ? 0 : end_of_section(elf, symbol.st_shndx), name,
                            rank_of(&symbol, name)};
    }
    return 1;
}

static int names_are_sane(Elf *elf, size_t index)
{
    GElf_Shdr header;
    Elf_Scn *section = elf_getscn(elf, index);
    return section && gelf_getshdr(section, &header) && header.sh_type == SHT_STRTAB &&
           header.sh_size <= SECTION_MAX_BYTES && elf_getdata(section, NULL);
}

static void read_table_of_type(struct mt_symbol_table *table, Elf *elf, GElf_Word type)
{
    Elf_Scn *section = NULL;
    while ((section = elf_nextscn(elf, section)) != NULL) {
        GElf_Shdr header;
        if (!gelf_getshdr(section, &header) || header.sh_type != type ||
            header.sh_size > SECTION_MAX_BYTES || !names_are_sane(elf, header.sh_link))
            continue;
        size_t entry_bytes = gelf_fsize(elf, ELF_T_SYM, 1, EV_CURRENT);
        Elf_Data *data = elf_getdata(section, NULL);
        if (!data || !data->d_buf || entry_bytes == 0)
            continue;
        size_t n = data->d_size / entry_bytes;
        if (n > 0 && n < INT_MAX && !add_symbols(table, elf, data, n, &header))
            return;
    }
}

/* The full table holds all that the dynamic one has. */
static void read_symbols(struct mt_symbol_table *table, Elf *elf)
{
    size_t before = table->n_symbols;
    read_table_of_type(table, elf, SHT_SYMTAB);
    if (table->n_symbols == before)
        read_table_of_type(table, elf, SHT_DYNSYM);
}

static int by_start(const void *a, const void *b)
{
    const struct symbol *left = a;
    const struct symbol *right = b;
    if (left->start != right->start)
        return left->start < right->start ? -1 : 1;
    if ((left->size == 0) != (right->size == 0))
        return left->size == 0 ? 1 : -1;
    if (left->rank != right->rank)
        return left->rank < right->rank ? -1 : 1;
    return strcmp(left->name, right->name);
}

/* Sorts, and keeps the best name of each address. */
static void sort_symbols(struct mt_symbol_table *table)
{
    size_t kept = 0;
    if (table->n_symbols == 0)
        return;
    qsort(table->symbols, table->n_symbols, sizeof *table->symbols, by_start);
    for (size_t i = 1; i < table->n_symbols; i++) {
        if (table->symbols[i].start != table->symbols[kept].start)
            table->symbols[++kept] = table->symbols[i];
    }
    table->n_symbols = kept + 1;
}

/* ---- table ---- */

static void read_segments(struct mt_symbol_table *table, Elf *elf)
{
    size_t n;
    if (elf_getphdrnum(elf, &n) != 0 || n == 0 || n > 65536)
        return;
    table->segments = calloc(n, sizeof *table->segments);
    for (size_t i = 0; table->segments && i < n; i++) {
        GElf_Phdr header;
        if (gelf_getphdr(elf, (int)i, &header) && header.p_type == PT_LOAD)
            table->segments[table->n_segments++] =
                (struct segment){header.p_offset, header.p_filesz, header.p_vaddr};
    }
}

struct mt_symbol_table *mt_symbol_table_read(const char *path, const char *debug_directory,
                                             const uint8_t *build_id, size_t build_id_length)
{
    struct mt_symbol_table *table = calloc(1, sizeof *table);
    if (!table)
        return NULL;
    table->file.fd = -1;
    table->debug.fd = -1;
    if (!open_elf(path, &table->file) ||
        !is_the_build(table->file.elf, build_id, build_id_length)) {
        mt_symbol_table_destroy(table);
        return NULL;
    }
    read_segments(table, table->file.elf);
    if (open_debug_file(table->file.elf, debug_directory, &table->debug))
        read_symbols(table, table->debug.elf);
    if (table->n_symbols == 0)
        read_symbols(table, table->file.elf);
    release_fd(&table->debug);
    release_fd(&table->file);
    sort_symbols(table);
    return table;
}

void mt_symbol_table_destroy(struct mt_symbol_table *table)
{
    if (!table)
        return;
    close_elf(&table->debug);
    close_elf(&table->file);
    free(table->symbols);
    free(table->segments);
    free(table);
}

static int to_address(const struct mt_symbol_table *table, uint64_t file_offset, uint64_t *address)
{
    for (size_t i = 0; i < table->n_segments; i++) {
        const struct segment *segment = &table->segments[i];
        if (file_offset >= segment->file_offset &&
            file_offset - segment->file_offset < segment->file_size) {
            *address = segment->address + (file_offset - segment->file_offset);
            return 1;
        }
    }
    return 0;
}

/* How many symbols start at or before the address. */
static size_t count_up_to(const struct mt_symbol_table *table, uint64_t address)
{
    struct mt_bisect place = {.end = table->n_symbols};
    while (mt_bisect_next(&place))
        mt_bisect_turn(&place, table->symbols[place.middle].start <= address);
    return place.first;
}

/* A stripped library has few symbols; an address past the end of the one before it belongs to a
 * function without a name and must not get that one's. */
const char *mt_symbol_table_name(const struct mt_symbol_table *table, uint64_t file_offset)
{
    uint64_t address;
    if (!to_address(table, file_offset, &address))
        return NULL;
    size_t n = count_up_to(table, address);
    for (size_t i = n; i > 0 && n - i < LOOK_BACK; i--) {
        const struct symbol *symbol = &table->symbols[i - 1];
        if (address - symbol->start < symbol->size)
            return symbol->name;
    }
    const struct symbol *nearest = n > 0 ? &table->symbols[n - 1] : NULL;
    return nearest && nearest->size == 0 && address < nearest->section_end ? nearest->name : NULL;
}
