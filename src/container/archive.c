/* SPDX-License-Identifier: MIT */
/* Tar archives (ustar, of POSIX), as far as they are needed here. */
#include "container/archive.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "container/internal.h"

#define BLOCK    512u
#define COPY_MS  120000
#define OUT_MAX  ((size_t)2 << 30)
#define FILE_MAX ((size_t)256 << 20) /* that goes in */

struct header {
    char name[100];
    char mode[8];
    char uid[8];
    char gid[8];
    char size[12];
    char modified[12];
    char checksum[8];
    char type;
    char link[100];
    char magic[8]; /* "ustar", a NUL, "00" */
    char rest[247];
};

_Static_assert(sizeof(struct header) == BLOCK, "a header is a block");

/* With the checksum's own field as blanks. */
static unsigned checksum_of(const struct header *header)
{
    struct header copy = *header;
    const unsigned char *bytes = (const unsigned char *)&copy;
    unsigned sum = 0;
    memset(copy.checksum, ' ', sizeof copy.checksum);
    for (size_t i = 0; i < BLOCK; i++)
        sum += bytes[i];
    return sum;
}

static void add_header(struct mt_strbuf *archive, const char *name, unsigned mode, size_t size,
                       char type)
{
    struct header header = {.type = type, .magic = {'u', 's', 't', 'a', 'r', 0, '0', '0'}};
    snprintf(header.name, sizeof header.name, "%s", name);
    snprintf(header.mode, sizeof header.mode, "%07o", mode);
    snprintf(header.uid, sizeof header.uid, "%07o", 0);
    snprintf(header.gid, sizeof header.gid, "%07o", 0);
    snprintf(header.size, sizeof header.size, "%011zo", size);
    snprintf(header.modified, sizeof header.modified, "%011llo",
             (unsigned long long)time(NULL) & 077777777777);
    snprintf(header.checksum, sizeof header.checksum, "%06o", checksum_of(&header) & 0777777);
    header.checksum[7] = ' ';
    mt_strbuf_append(archive, &header, sizeof header);
}

static void add_padding(struct mt_strbuf *archive, size_t n)
{
    static const char zeros[BLOCK];
    mt_strbuf_append(archive, zeros, (BLOCK - n % BLOCK) % BLOCK);
}

void mt_archive_add(struct mt_strbuf *archive, const char *name, unsigned mode, const void *bytes,
                    size_t n)
{
    add_header(archive, name, mode, n, '0');
    mt_strbuf_append(archive, bytes, n);
    add_padding(archive, n);
}

void mt_archive_add_folder(struct mt_strbuf *archive, const char *name, unsigned mode)
{
    add_header(archive, name, mode, 0, '5');
}

void mt_archive_end(struct mt_strbuf *archive)
{
    static const char zeros[2 * BLOCK];
    mt_strbuf_append(archive, zeros, sizeof zeros);
}

static int read_whole(int fd, char *bytes, size_t n)
{
    size_t used = 0;
    while (used < n) {
        ssize_t got = read(fd, bytes + used, n - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? errno : EIO;
        used += (size_t)got;
    }
    return 0;
}

int mt_archive_add_file(struct mt_strbuf *archive, const char *name, unsigned mode,
                        const char *path, struct mt_error *error)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return mt_fail_errno(error, errno, "cannot read %s", path);
    int failed = fstat(fd, &status) < 0 ? errno : 0;
    size_t n = failed ? 0 : (size_t)status.st_size;
    char *bytes = n && n <= FILE_MAX ? malloc(n) : NULL;
    if (!failed)
        failed = bytes ? read_whole(fd, bytes, n) : ENOMEM;
    close(fd);
    if (!failed)
        mt_archive_add(archive, name, mode, bytes, n);
    free(bytes);
    return failed ? mt_fail_errno(error, failed, "cannot read %s", path) : MT_OK;
}

/* ---- what comes out ---- */

/* An octal number that ends with a blank or a NUL. Returns 0 where there is another thing. */
static int read_octal(const char *text, size_t n, size_t *value)
{
    size_t number = 0;
    size_t i = 0;
    while (i < n && text[i] == ' ')
        i++;
    size_t first = i;
    for (; i < n && text[i] >= '0' && text[i] <= '7'; i++)
        number = number * 8 + (size_t)(text[i] - '0');
    if (i == first || (i < n && text[i] != '\0' && text[i] != ' '))
        return 0;
    *value = number;
    return 1;
}

static int is_sound(const struct header *header, size_t *size)
{
    size_t checksum;
    return read_octal(header->checksum, sizeof header->checksum, &checksum) &&
           checksum == checksum_of(header) && read_octal(header->size, sizeof header->size, size);
}

/* The name of a file right in the archive's folder, "recording/7-0.mtz"; NULL for any other. */
static const char *plain_name(const struct header *header, char name[sizeof header->name + 1])
{
    memcpy(name, header->name, sizeof header->name);
    name[sizeof header->name] = '\0';
    char *slash = strchr(name, '/');
    if ((header->type != '0' && header->type != '\0') || *name == '/' || *name == '.' || !slash ||
        strchr(slash + 1, '/') || slash[1] == '.' || slash[1] == '\0')
        return NULL;
    return slash + 1;
}

static int write_file(const char *directory, const char *name, const char *bytes, size_t n,
                      struct mt_error *error)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path)
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "%s: the path is too long", directory);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    int failed = fd < 0 ? errno : 0;
    for (size_t used = 0; !failed && used < n;) {
        ssize_t put = write(fd, bytes + used, n - used);
        if (put < 0 && errno != EINTR)
            failed = errno;
        used += put > 0 ? (size_t)put : 0;
    }
    if (fd >= 0 && close(fd) < 0 && !failed)
        failed = errno;
    return failed ? mt_fail_errno(error, failed, "cannot write %s", path) : MT_OK;
}

int mt_archive_extract(const char *bytes, size_t n, const char *directory, struct mt_error *error)
{
    struct header header;
    char name[sizeof header.name + 1];
    size_t size;
    for (size_t at = 0; n - at >= BLOCK && bytes[at];) {
        memcpy(&header, bytes + at, BLOCK);
        if (!is_sound(&header, &size))
            return mt_fail(error, MT_EFORMAT, at, "the archive is damaged");
        at += BLOCK;
        if (size > n - at)
            return mt_fail(error, MT_ETRUNCATED, at, "the archive ends too early");
        const char *plain = plain_name(&header, name);
        int code = plain ? write_file(directory, plain, bytes + at, size, error) : MT_OK;
        if (code != MT_OK)
            return code;
        size_t whole = (size + BLOCK - 1) / BLOCK * BLOCK;
        at += whole < n - at ? whole : n - at;
    }
    return MT_OK;
}

/* ---- the engine ---- */

int mt_container_complain(const struct mt_http_response *response, const char *what,
                          struct mt_error *error)
{
    json_t *said = json_loadb(response->body, response->length, 0, NULL);
    const char *message = json_string_value(json_object_get(said, "message"));
    char text[256];
    mt_container_copy_text(text, sizeof text, message ? message : "it does not say why");
    json_decref(said);
    return mt_fail(error, MT_EIO, MT_NO_OFFSET, "%s was refused with status %d: %s", what,
                   response->status, text);
}

int mt_container_copy_in(const struct mt_container *container, const struct mt_strbuf *archive,
                         struct mt_error *error)
{
    char path[160];
    struct mt_http_response response;
    snprintf(path, sizeof path, "/containers/%s/archive?path=/", container->id);
    const struct mt_http_request request = {
        .url = path,
        .method = "PUT",
        .body = archive->data,
        .body_bytes = archive->length,
        .body_type = "application/x-tar",
        .timeout_ms = COPY_MS,
    };
    int code = mt_container_ask(container->socket, &request, &response, error);
    if (code != MT_OK)
        return code;
    if (response.status != 200)
        code = mt_container_complain(&response, "copying into the container", error);
    mt_http_response_finish(&response);
    return code;
}

int mt_container_copy_out(const struct mt_container *container, const char *folder,
                          const char *directory, struct mt_error *error)
{
    char path[320];
    struct mt_http_response response;
    snprintf(path, sizeof path, "/containers/%s/archive?path=%s", container->id, folder);
    const struct mt_http_request request = {
        .url = path, .timeout_ms = COPY_MS, .max_body_bytes = OUT_MAX};
    int code = mt_container_ask(container->socket, &request, &response, error);
    if (code != MT_OK)
        return code;
    code = response.status == 200
               ? mt_archive_extract(response.body, response.length, directory, error)
               : mt_container_complain(&response, "copying out of the container", error);
    mt_http_response_finish(&response);
    return code;
}
