/* SPDX-License-Identifier: MIT */
/* What a program's file says of preloading: an interpreter among its segments, rights of its
 * own, a sanitizer. */
#include "base/preload.h"

#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* What a caller asks of a program's file. */
struct program {
    int fd;
    Elf64_Ehdr header;
};

static int read_header(struct program *program)
{
    Elf64_Ehdr *header = &program->header;
    return pread(program->fd, header, sizeof *header, 0) == sizeof *header &&
           memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 && header->e_ident[EI_CLASS] == ELFCLASS64;
}

/* The first segment of a type, of PT_LOAD the one that holds `address`. Returns 1, 0 where there is
 * none, and -1 where the file cannot be read. */
static int find_segment(const struct program *program, uint32_t type, uint64_t address,
                        Elf64_Phdr *found)
{
    for (unsigned i = 0; i < program->header.e_phnum; i++) {
        uint64_t at = program->header.e_phoff + (uint64_t)i * program->header.e_phentsize;
        if (pread(program->fd, found, sizeof *found, (off_t)at) != sizeof *found)
            return -1;
        if (found->p_type == type &&
            (type != PT_LOAD ||
             (address >= found->p_vaddr && address - found->p_vaddr < found->p_filesz)))
            return 1;
    }
    return 0;
}

/* Where the names of the dynamic symbols lie in the file. */
static int find_names(const struct program *program, uint64_t *offset, uint64_t *length)
{
    Elf64_Phdr segment;
    uint64_t address = 0;
    *length = 0;
    if (find_segment(program, PT_DYNAMIC, 0, &segment) != 1)
        return 0;
    for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= segment.p_filesz; at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn entry;
        if (pread(program->fd, &entry, sizeof entry, (off_t)(segment.p_offset + at)) !=
            sizeof entry)
            return 0;
        if (entry.d_tag == DT_STRTAB)
            address = entry.d_un.d_ptr;
        else if (entry.d_tag == DT_STRSZ)
            *length = entry.d_un.d_val;
    }
    if (!*length || find_segment(program, PT_LOAD, address, &segment) != 1)
        return 0;
    *offset = segment.p_offset + (address - segment.p_vaddr);
    return 1;
}

/* Instrumented code calls the runtime's beginning by its name, be it a library or linked in. */
static int has_sanitizer(const struct program *program)
{
    static const char *const names[] = {"__asan_init", "__tsan_init", "__msan_init",
                                        "__hwasan_init"};
    char piece[4096 + 16];
    uint64_t offset, length;
    if (!find_names(program, &offset, &length))
        return 0;
    for (uint64_t at = 0; at < length;
         at += 4096) { /* a name may begin in one piece and end in the next */
        uint64_t want = length - at < sizeof piece ? length - at : sizeof piece;
        ssize_t got = pread(program->fd, piece, want, (off_t)(offset + at));
        for (size_t i = 0; got > 0 && i < sizeof names / sizeof *names; i++)
            if (memmem(piece, (size_t)got, names[i], strlen(names[i]) + 1))
                return 1;
    }
    return 0;
}

enum mt_preload_bar mt_preload_bar_of(const char *path)
{
    struct stat status;
    enum mt_preload_bar bar = MT_PRELOAD_FREE;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return bar;
    struct program program = {.fd = fd};
    Elf64_Phdr segment;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        int is_program = read_header(&program);
        if (is_program && find_segment(&program, PT_INTERP, 0, &segment) == 0)
            bar = MT_PRELOAD_STATIC;
        else if (status.st_mode & (S_ISUID | S_ISGID) ||
                 fgetxattr(fd, "security.capability", NULL, 0) > 0)
            bar = MT_PRELOAD_SETUID;
        else if (is_program && has_sanitizer(&program))
            bar = MT_PRELOAD_SANITIZED;
    }
    close(fd);
    return bar;
}

void mt_preload_put(struct mt_strbuf *text, const char *recorder, const char *preloaded,
                    int is_rehearsed)
{
    const char *before = preloaded ? preloaded : "";
    size_t first = is_rehearsed ? strcspn(before, ":") : 0;
    mt_strbuf_printf(text, "%.*s%s%s", (int)first, before, first ? ":" : "", recorder);
    if (before[first])
        mt_strbuf_printf(text, "%s%s", first ? "" : ":", before + first);
}
