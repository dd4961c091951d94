/* SPDX-License-Identifier: MIT */
/* What a program's file says of preloading: an interpreter among its segments, rights of its own.
 */
#include "base/preload.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static int has_interpreter(int fd)
{
    Elf64_Ehdr header;
    if (pread(fd, &header, sizeof header, 0) != sizeof header ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
        return 1;
    for (unsigned i = 0; i < header.e_phnum; i++) {
        Elf64_Phdr segment;
        off_t at = (off_t)(header.e_phoff + (uint64_t)i * header.e_phentsize);
        if (pread(fd, &segment, sizeof segment, at) != sizeof segment)
            return 1;
        if (segment.p_type == PT_INTERP)
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
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        if (!has_interpreter(fd))
            bar = MT_PRELOAD_STATIC;
        else if (status.st_mode & (S_ISUID | S_ISGID) ||
                 fgetxattr(fd, "security.capability", NULL, 0) > 0)
            bar = MT_PRELOAD_SETUID;
    }
    close(fd);
    return bar;
}
