/* SPDX-License-Identifier: MIT */
/* A file that appears complete under its name or not at all.
 *
 * It is written beside its place as PATH.part-PID-N and renamed when done. */
#ifndef MT_MODEL_OUT_FILE_H
#define MT_MODEL_OUT_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct mt_error; /* <memtally/error.h> */

/* The system calls behind it, each as its man page says; tests hand in failing ones. */
struct mt_out_file_os {
    int (*open)(const char *path, int flags, mode_t mode);
    int (*stat)(const char *path, struct stat *status);
    ssize_t (*write)(int fd, const void *bytes, size_t length);
    int (*truncate)(int fd, off_t length);
    /* Bytes that may still be written to the file system of `fd`; UINT64_MAX where it cannot say.
     */
    uint64_t (*free_bytes)(int fd);
    int (*close)(int fd);
    int (*rename)(const char *from, const char *to);
    int (*unlink)(const char *path);
};

extern const struct mt_out_file_os mt_out_file_os;

struct mt_out_file {
    const struct mt_out_file_os *os;
    const char *path; /* the caller's */
    char *part_path;
    int fd;
};

/* Begins a file; *file is valid until one of commit or discard. `path` must live as long.
 * Errors: MT_EARG (`path` is there and is no regular file), MT_ENOTFOUND, MT_EPERM, MT_EIO,
 * MT_ENOMEM. */
int mt_out_file_begin(struct mt_out_file *file, const struct mt_out_file_os *os, const char *path,
                      struct mt_error *error);

/* Fails with MT_EIO where `bytes` more do not fit on the file system, as far as it says. */
int mt_out_file_check_room(const struct mt_out_file *file, uint64_t bytes, struct mt_error *error);

int mt_out_file_write(struct mt_out_file *file, const void *bytes, size_t length,
                      struct mt_error *error);

/* Makes the file `length` bytes long; what was not written is a hole. */
int mt_out_file_extend(struct mt_out_file *file, uint64_t length, struct mt_error *error);

/* Closes the file and puts it in its place; on failure it is discarded. */
int mt_out_file_commit(struct mt_out_file *file, struct mt_error *error);

/* Closes and removes the file. */
void mt_out_file_discard(struct mt_out_file *file);

#endif
