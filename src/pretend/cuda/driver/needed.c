/* SPDX-License-Identifier: MIT */
/* The dynamic section of a shared object in a file. Nothing that stands there is trusted. */
#include "needed.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct file {
    const unsigned char *at;
    uint64_t bytes;
};

static const void *part(const struct file *file, uint64_t offset, uint64_t bytes)
{
    return offset <= file->bytes && bytes <= file->bytes - offset ? file->at + offset : NULL;
}

static const Elf64_Phdr *segment(const struct file *file, unsigned i)
{
    const Elf64_Ehdr *header = part(file, 0, sizeof *header);
    if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64 || i >= header->e_phnum ||
        header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phoff % 8)
        return NULL;
    uint64_t offset = header->e_phoff + i * sizeof(Elf64_Phdr);
    return offset < header->e_phoff ? NULL : part(file, offset, sizeof(Elf64_Phdr));
}

/* What lies at an address once the object is loaded, up to the end of the file. */
static const char *loaded(const struct file *file, uint64_t address, uint64_t *bytes)
{
    const Elf64_Phdr *load;
    for (unsigned i = 0; (load = segment(file, i)) != NULL; i++) {
        if (load->p_type != PT_LOAD || address < load->p_vaddr ||
            address - load->p_vaddr >= load->p_filesz)
            continue;
        uint64_t offset = load->p_offset + (address - load->p_vaddr);
        if (offset < load->p_offset || offset >= file->bytes)
            return NULL;
        *bytes = file->bytes - offset;
        return (const char *)file->at + offset;
    }
    return NULL;
}

static int walk(const struct file *file, const Elf64_Dyn *entry, uint64_t n,
                int (*each)(const char *name))
{
    const char *texts = NULL;
    uint64_t bytes = 0;
    int result = 0;
    for (uint64_t i = 0; i < n && entry[i].d_tag != DT_NULL; i++)
        if (entry[i].d_tag == DT_STRTAB)
            texts = loaded(file, entry[i].d_un.d_ptr, &bytes);
    for (uint64_t i = 0; texts && result == 0 && i < n && entry[i].d_tag != DT_NULL; i++) {
        uint64_t at = entry[i].d_un.d_val;
        if (entry[i].d_tag == DT_NEEDED && at < bytes && memchr(texts + at, 0, bytes - at))
            result = each(texts + at);
    }
    return result;
}

static int look(const struct file *file, int (*each)(const char *name))
{
    const Elf64_Phdr *dynamic;
    unsigned i = 0;
    while ((dynamic = segment(file, i)) != NULL && dynamic->p_type != PT_DYNAMIC)
        i++;
    const void *entries = dynamic && dynamic->p_offset % 8 == 0
                              ? part(file, dynamic->p_offset, dynamic->p_filesz)
                              : NULL;
    return entries ? walk(file, entries, dynamic->p_filesz / sizeof(Elf64_Dyn), each) : 0;
}

int pretend_needed(const char *path, int (*each)(const char *name))
{
    int saved = errno;
    int result = 0;
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
        void *at = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (at != MAP_FAILED) {
            result = look(&(struct file){at, (uint64_t)status.st_size}, each);
            munmap(at, (size_t)status.st_size);
        }
    }
    if (fd >= 0)
        close(fd);
    errno = saved;
    return result;
}
