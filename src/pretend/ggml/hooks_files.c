/* SPDX-License-Identifier: MIT */
/* Weights are not read: their mappings are not populated, not locked and not read ahead, and a read
 * of many bytes of them only moves the file's position. A model's file is known by its header,
 * which the engine itself has read. */
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hooks.h"

#define FILES_MAX     1024u
#define SKIPPED_BYTES 65536u /* and more in one read */

static struct weights_file {
    uint64_t device;
    uint64_t inode;
    uint64_t offset;
    uint32_t is_complete;
} files[FILES_MAX];
static uint32_t n_files;

void add_weights_file(int fd, uint64_t offset)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return;
    uint32_t used = __atomic_load_n(&n_files, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used && i < FILES_MAX; i++)
        if (files[i].device == status.st_dev && files[i].inode == status.st_ino)
            return;
    uint32_t at = __atomic_fetch_add(&n_files, 1, __ATOMIC_ACQ_REL);
    if (at >= FILES_MAX)
        return;
    files[at] = (struct weights_file){status.st_dev, status.st_ino, offset, 0};
    __atomic_store_n(&files[at].is_complete, 1, __ATOMIC_RELEASE);
}

/* How much of a read of `size` bytes at `at` is weights: all that the file has there, or nothing.
 */
static size_t weights_in(int fd, off_t at, size_t size)
{
    uint32_t used = __atomic_load_n(&n_files, __ATOMIC_ACQUIRE);
    struct stat status;
    if (!used || size < SKIPPED_BYTES || at < 0 || !rehearsal() || fstat(fd, &status) != 0 ||
        at >= status.st_size)
        return 0;
    uint64_t left = (uint64_t)(status.st_size - at);
    for (uint32_t i = 0; i < used && i < FILES_MAX; i++)
        if (__atomic_load_n(&files[i].is_complete, __ATOMIC_ACQUIRE) &&
            files[i].device == status.st_dev && files[i].inode == status.st_ino)
            return (uint64_t)at < files[i].offset ? 0 : size < left ? size : (size_t)left;
    return 0;
}

/* next_NAME() is the function that libc has for a hook. */
#define NEXT(result, name, parameters)                                                             \
    static result(*next_##name(void)) parameters                                                   \
    {                                                                                              \
        static void *slot;                                                                         \
        void *found = next_function(&slot, #name);                                                 \
        result(*function) parameters;                                                              \
        memcpy(&function, &found, sizeof function);                                                \
        return function;                                                                           \
    }

NEXT(ssize_t, read, (int fd, void *to, size_t size))
NEXT(ssize_t, __read_chk, (int fd, void *to, size_t size, size_t room))
NEXT(ssize_t, pread, (int fd, void *to, size_t size, off_t at))
NEXT(ssize_t, pread64, (int fd, void *to, size_t size, off64_t at))
NEXT(ssize_t, __pread_chk, (int fd, void *to, size_t size, off_t at, size_t room))
NEXT(ssize_t, __pread64_chk, (int fd, void *to, size_t size, off64_t at, size_t room))
NEXT(size_t, fread, (void *to, size_t size, size_t count, FILE *file))
NEXT(size_t, __fread_chk, (void *to, size_t room, size_t size, size_t count, FILE *file))
NEXT(void *, mmap, (void *at, size_t length, int protection, int flags, int fd, off_t offset))
NEXT(void *, mmap64, (void *at, size_t length, int protection, int flags, int fd, off64_t offset))
NEXT(int, madvise, (void *address, size_t length, int advice))
NEXT(int, posix_madvise, (void *address, size_t length, int advice))
NEXT(int, mlock, (const void *address, size_t length))
NEXT(int, munlock, (const void *address, size_t length))
NEXT(int, mlockall, (int flags))
NEXT(int, listen, (int fd, int backlog))

EXPORTED ssize_t __read_chk(int fd, void *to, size_t size, size_t room);
EXPORTED ssize_t __pread_chk(int fd, void *to, size_t size, off_t at, size_t room);
EXPORTED ssize_t __pread64_chk(int fd, void *to, size_t size, off64_t at, size_t room);
EXPORTED size_t __fread_chk(void *to, size_t room, size_t size, size_t count, FILE *file);

static ssize_t skip(int fd, void *to, size_t size)
{
    if (size < SKIPPED_BYTES || !__atomic_load_n(&n_files, __ATOMIC_RELAXED))
        return 0;
    int saved = errno;
    off_t at = lseek(fd, 0, SEEK_CUR);
    size_t skipped = at < 0 ? 0 : weights_in(fd, at, size);
    if (skipped && lseek(fd, (off_t)skipped, SEEK_CUR) < 0)
        skipped = 0;
    if (skipped)
        note_staging(to, skipped);
    errno = saved;
    return (ssize_t)skipped;
}

EXPORTED ssize_t read(int fd, void *to, size_t size)
{
    ssize_t skipped = skip(fd, to, size);
    return skipped ? skipped : next_read()(fd, to, size);
}

ssize_t __read_chk(int fd, void *to, size_t size, size_t room)
{
    ssize_t skipped = size <= room ? skip(fd, to, size) : 0;
    return skipped ? skipped : next___read_chk()(fd, to, size, room);
}

EXPORTED ssize_t pread(int fd, void *to, size_t size, off_t at)
{
    size_t skipped = weights_in(fd, at, size);
    return skipped ? (ssize_t)skipped : next_pread()(fd, to, size, at);
}

EXPORTED ssize_t pread64(int fd, void *to, size_t size, off64_t at)
{
    size_t skipped = weights_in(fd, at, size);
    return skipped ? (ssize_t)skipped : next_pread64()(fd, to, size, at);
}

ssize_t __pread_chk(int fd, void *to, size_t size, off_t at, size_t room)
{
    size_t skipped = size <= room ? weights_in(fd, at, size) : 0;
    return skipped ? (ssize_t)skipped : next___pread_chk()(fd, to, size, at, room);
}

ssize_t __pread64_chk(int fd, void *to, size_t size, off64_t at, size_t room)
{
    size_t skipped = size <= room ? weights_in(fd, at, size) : 0;
    return skipped ? (ssize_t)skipped : next___pread64_chk()(fd, to, size, at, room);
}

/* Whole things only: a read that the file's end cuts short is left to be made. */
static int skip_in_stream(FILE *file, void *to, size_t size, size_t count)
{
    size_t bytes;
    if (!__atomic_load_n(&n_files, __ATOMIC_RELAXED) ||
        __builtin_mul_overflow(size, count, &bytes) || bytes < SKIPPED_BYTES)
        return 0;
    int saved = errno;
    off_t at = ftello(file);
    int is_skipped = at >= 0 && weights_in(fileno(file), at, bytes) == bytes &&
                     fseeko(file, (off_t)bytes, SEEK_CUR) == 0;
    if (is_skipped)
        note_staging(to, bytes);
    errno = saved;
    return is_skipped;
}

EXPORTED size_t fread(void *to, size_t size, size_t count, FILE *file)
{
    return skip_in_stream(file, to, size, count) ? count : next_fread()(to, size, count, file);
}

size_t __fread_chk(void *to, size_t room, size_t size, size_t count, FILE *file)
{
    return skip_in_stream(file, to, size, count) ? count
                                                 : next___fread_chk()(to, room, size, count, file);
}

static int without_populating(size_t length, int flags, int fd)
{
    if (!(flags & (MAP_POPULATE | MAP_LOCKED)) || length < LARGE_BYTES || fd < 0 || !rehearsal())
        return flags;
    return flags & ~(MAP_POPULATE | MAP_LOCKED);
}

EXPORTED void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    return next_mmap()(address, length, protection, without_populating(length, flags, fd), fd,
                       offset);
}

EXPORTED void *mmap64(void *address, size_t length, int protection, int flags, int fd,
                      off64_t offset)
{
    return next_mmap64()(address, length, protection, without_populating(length, flags, fd), fd,
                         offset);
}

static int is_ignored(size_t length)
{
    return length >= LARGE_BYTES && rehearsal() != NULL;
}

EXPORTED int madvise(void *address, size_t length, int advice)
{
    enum { POPULATE_READ = 22, POPULATE_WRITE = 23 };
    if ((advice == MADV_WILLNEED || advice == POPULATE_READ || advice == POPULATE_WRITE) &&
        is_ignored(length))
        return 0;
    return next_madvise()(address, length, advice);
}

EXPORTED int posix_madvise(void *address, size_t length, int advice)
{
    if (advice == POSIX_MADV_WILLNEED && is_ignored(length))
        return 0;
    return next_posix_madvise()(address, length, advice);
}

EXPORTED int mlock(const void *address, size_t length)
{
    return is_ignored(length) ? 0 : next_mlock()(address, length);
}

EXPORTED int munlock(const void *address, size_t length)
{
    return is_ignored(length) ? 0 : next_munlock()(address, length);
}

EXPORTED int mlockall(int flags)
{
    return is_ignored(LARGE_BYTES) ? 0 : next_mlockall()(flags);
}

EXPORTED int listen(int fd, int backlog)
{
    int result = next_listen()(fd, backlog);
    if (result == 0 && rehearsal())
        note_listening();
    return result;
}
