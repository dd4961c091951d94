/* SPDX-License-Identifier: MIT */
/* Reading parts of a file behind HTTP, by range requests.
 *
 * Only https is spoken, except to this machine itself; redirects are followed to https only. A
 * bearer token goes to the host of the URL and to no other. What the server says is not believed
 * where it contradicts itself. Knows nothing of what the files are. */
#ifndef MT_BUILD_HTTP_RANGE_H
#define MT_BUILD_HTTP_RANGE_H

#include <stddef.h>
#include <stdint.h>

struct mt_error; /* <memtally/error.h> */
struct mt_http_file;

struct mt_http_file_options {
    const char *token;    /* bearer token, or NULL */
    uint64_t timeout_ms;  /* of one request; 0: 30 seconds */
    uint64_t first_bytes; /* of the first request, which is kept; 0: 64 KiB */
};

/* Asks for the beginning of a file, which tells its size. On success the caller owns *file; free it
 * with mt_http_file_close(). One thread at a time for each file.
 * Errors: MT_EARG (no such URL is spoken to), MT_ENOTFOUND (404, or nobody listens), MT_EPERM (401
 * or 403), MT_EUNSUPPORTED (the server answers with the whole file), MT_EFORMAT (an answer that
 * contradicts itself), MT_ETRUNCATED, MT_ETIMEOUT, MT_EIO, MT_ENOMEM. */
int mt_http_file_open(const char *url, const struct mt_http_file_options *options,
                      struct mt_http_file **file, struct mt_error *error);
void mt_http_file_close(struct mt_http_file *file);

/* In bytes. */
uint64_t mt_http_file_size(const struct mt_http_file *file);

/* Reads `length` bytes at `offset`, which lie within the file. Errors: those of opening. */
int mt_http_file_read(struct mt_http_file *file, uint64_t offset, void *to, size_t length,
                      struct mt_error *error);

/* Bytes of bodies that came over the network so far. */
uint64_t mt_http_file_received(const struct mt_http_file *file);

#endif
