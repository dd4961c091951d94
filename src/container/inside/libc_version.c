/* SPDX-License-Identifier: MIT */
#include "container/inside/libc_version.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/environment.h"

/* As libc's table of versions has them, a NUL before and behind. */
#define LEAST_VERSION "\0GLIBC_2.28"
#define WHOLE_VERSION "\0GLIBC_2.34" /* since when libdl and libpthread are parts of it */

/* Folders that distributions keep libc.so.6 in. */
static const char *const folders[] = {"/lib/x86_64-linux-gnu",
                                      "/usr/lib/x86_64-linux-gnu",
                                      "/lib/aarch64-linux-gnu",
                                      "/usr/lib/aarch64-linux-gnu",
                                      "/lib64",
                                      "/usr/lib64",
                                      "/lib",
                                      "/usr/lib",
                                      NULL};

struct bytes {
    const char *at;
    size_t n;
};

static struct bytes map(const char *path)
{
    struct stat status;
    struct bytes bytes = {NULL, 0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return bytes;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
        void *at = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (at != MAP_FAILED)
            bytes = (struct bytes){at, (size_t)status.st_size};
    }
    close(fd);
    return bytes;
}

static void unmap(struct bytes bytes)
{
    if (bytes.at)
        munmap((void *)(uintptr_t)bytes.at, bytes.n);
}

/* The interpreter that an ELF file asks for; NULL where it asks for none. Borrowed. */
static const char *interpreter_of(struct bytes bytes)
{
    Elf64_Ehdr header;
    if (bytes.n < sizeof header)
        return NULL;
    memcpy(&header, bytes.at, sizeof header);
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phoff > bytes.n)
        return NULL;
    for (size_t i = 0; i < header.e_phnum; i++) {
        Elf64_Phdr part;
        size_t at = header.e_phoff + i * sizeof part;
        if (at + sizeof part > bytes.n)
            return NULL;
        memcpy(&part, bytes.at + at, sizeof part);
        if (part.p_type == PT_INTERP && part.p_filesz && part.p_offset < bytes.n &&
            part.p_filesz <= bytes.n - part.p_offset &&
            bytes.at[part.p_offset + part.p_filesz - 1] == '\0')
            return bytes.at + part.p_offset;
    }
    return NULL;
}

static int asks_for_musl(const char *program)
{
    char path[PATH_MAX];
    if (mt_environment_find(environ, program, path))
        return 0;
    struct bytes bytes = map(path);
    const char *interpreter = bytes.at ? interpreter_of(bytes) : NULL;
    int found = interpreter && strstr(interpreter, "ld-musl");
    unmap(bytes);
    return found;
}

/* Returns 1, 0 for an older libc, -1 for none. */
static int has_version(const char *folder, const char *version, size_t length)
{
    char path[PATH_MAX] = "";
    strcat(strcpy(path, folder), "/libc.so.6");
    struct bytes bytes = map(path);
    if (!bytes.at)
        return -1;
    int found = memmem(bytes.at, bytes.n, version, length) != NULL;
    unmap(bytes);
    return found;
}

static int find_version(const char *version, size_t length)
{
    int has = -1;
    for (size_t i = 0; folders[i] && has < 0; i++)
        has = has_version(folders[i], version, length);
    return has;
}

const char *inside_why_not_recorded(const char *program)
{
    if (asks_for_musl(program))
        return "its C library is musl, and the recorder needs glibc";
    int has = find_version(LEAST_VERSION, sizeof LEAST_VERSION);
    if (has < 0)
        return "it has no glibc, which the recorder needs";
    return has ? NULL : "its glibc is older than 2.28, which the recorder needs";
}

int inside_has_parts(void)
{
    return find_version(WHOLE_VERSION, sizeof WHOLE_VERSION) == 0;
}
