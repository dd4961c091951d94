/* SPDX-License-Identifier: MIT */
/* The files of NVIDIA's kernel module, /dev/nvidia0 and so on: programs look whether they are there
 * before they ask the driver (JAX does). For a program that looks they exist, one for each
 * pretended device. Nobody can open them. Every other path is the system's affair. */
#undef _FILE_OFFSET_BITS /* which gives one form the other's name */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "pretend/cuda/call.h"
#include "rehearse/account_write.h"

#define MAJOR         195 /* of nvidia in the kernel's list of devices */
#define CONTROL_MINOR 255

/* The minor number of a path, -1 where it is none of the pretended devices. */
static int minor_of(const char *path)
{
    static const char begin[] = "/dev/nvidia";
    if (!path || strncmp(path, begin, sizeof begin - 1) != 0)
        return -1;
    const char *rest = path + sizeof begin - 1;
    const struct mt_account *account = pretend_account();
    if (!account || !account->cuda.driver_version || !account->n_devices)
        return -1;
    if (!strcmp(rest, "ctl"))
        return CONTROL_MINOR;
    char *end;
    unsigned long number = strtoul(rest, &end, 10);
    int is_number = *rest >= '0' && *rest <= '9' && !*end && (*rest != '0' || end == rest + 1);
    return is_number && number < account->n_devices ? (int)number : -1;
}

static int look(const char *path, struct stat *status)
{
    int minor = minor_of(path);
    if (minor < 0)
        return fstatat(AT_FDCWD, path, status, 0);
    *status = (struct stat){.st_mode = S_IFCHR | 0666,
                            .st_nlink = 1,
                            .st_rdev = makedev(MAJOR, (unsigned)minor),
                            .st_blksize = 4096};
    return 0;
}

/* The forms that the C library has had of it: both structures are the same in 64 bits. */
int __xstat(int version, const char *path, struct stat *status);
int __xstat64(int version, const char *path, struct stat64 *status);

PRETEND_CALL int stat(const char *path, struct stat *status)
{
    return look(path, status);
}

PRETEND_CALL int stat64(const char *path, struct stat64 *status)
{
    return look(path, (struct stat *)status);
}

PRETEND_CALL int __xstat(int version, const char *path, struct stat *status)
{
    (void)version;
    return look(path, status);
}

PRETEND_CALL int __xstat64(int version, const char *path, struct stat64 *status)
{
    (void)version;
    return look(path, (struct stat *)status);
}

PRETEND_CALL int access(const char *path, int mode)
{
    return minor_of(path) < 0 ? faccessat(AT_FDCWD, path, mode, 0) : 0;
}
