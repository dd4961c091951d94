/* SPDX-License-Identifier: MIT */
/* Files into a container and out of it, as tar archives, which Docker and Podman take and give.
 * What comes out is not trusted. */
#ifndef CONTAINER_ARCHIVE_H
#define CONTAINER_ARCHIVE_H

#include "base/strbuf.h"
#include "container/container.h"

/* Appends a folder or a file to an archive; errors stay in the buffer. Names are short. */
void mt_archive_add(struct mt_strbuf *archive, const char *name, unsigned mode, const void *bytes,
                    size_t n);
void mt_archive_add_folder(struct mt_strbuf *archive, const char *name, unsigned mode);
void mt_archive_end(struct mt_strbuf *archive);

/* The same of a file of this machine. Errors: those of reading it, MT_ENOMEM. */
int mt_archive_add_file(struct mt_strbuf *archive, const char *name, unsigned mode,
                        const char *path, struct mt_error *error);

/* Writes the regular files that lie right in the archive's one folder into `directory`; all else is
 * left. Errors: MT_EFORMAT, MT_ETRUNCATED, MT_EIO, MT_EBUSY (a file is there already). */
int mt_archive_extract(const char *bytes, size_t n, const char *directory, struct mt_error *error);

/* Unpacks an archive in the container's root folder. Errors: as mt_http_fetch(), and MT_EIO with
 * what the engine says. */
int mt_container_copy_in(const struct mt_container *container, const struct mt_strbuf *archive,
                         struct mt_error *error);

/* Copies the files of a folder of the container into `directory`. Errors: of both. */
int mt_container_copy_out(const struct mt_container *container, const char *folder,
                          const char *directory, struct mt_error *error);

#endif
