/* SPDX-License-Identifier: MIT */
/* The files of what was found out on this machine: read whole, written beside themselves and
 * renamed. Knows no content. */
#include "cli/state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "base/out_of_memory.h"

#define LARGEST_BYTES (16 << 20)

/* Appends the folder. An XDG_STATE_HOME that is not absolute does not count, says its standard. */
int cli_state_folder(struct mt_strbuf *path, struct mt_error *error)
{
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    if (state && *state == '/')
        mt_strbuf_printf(path, "%s/memtally", state);
    else if (home && *home)
        mt_strbuf_printf(path, "%s/.local/state/memtally", home);
    else
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "neither XDG_STATE_HOME nor HOME is set, so memtally has no place to keep "
                       "what it learns");
    return mt_strbuf_failed(path) ? mt_out_of_memory(error) : 0;
}

int cli_state_make_folders(char *path, struct mt_error *error)
{
    for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = '\0';
        int failed = mkdir(path, 0700) != 0 && errno != EEXIST ? errno : 0;
        if (failed)
            mt_fail_errno(error, failed, "%s", path);
        if (slash)
            *slash = '/';
        if (failed || !slash)
            return failed ? mt_code_of_errno(failed) : 0;
    }
}

int cli_state_read(const char *path, struct mt_strbuf *text, struct mt_error *error)
{
    char bytes[8192];
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? 0 : mt_fail_errno(error, errno, "%s", path);
    ssize_t n = -1;
    errno = EINVAL;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size <= LARGEST_BYTES)
        while ((n = read(fd, bytes, sizeof bytes)) > 0 && text->length <= LARGEST_BYTES)
            mt_strbuf_append(text, bytes, (size_t)n);
    int failed = n != 0 ? errno : 0;
    close(fd);
    mt_strbuf_append(text, "", 0);
    if (failed)
        return mt_fail_errno(error, failed, "%s", path);
    return mt_strbuf_failed(text) ? mt_out_of_memory(error) : 0;
}

static int write_whole(int fd, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t n = write(fd, text, length);
        if (n < 0 && errno != EINTR)
            return errno;
        if (n > 0) {
            text += n;
            length -= (size_t)n;
        }
    }
    return fsync(fd) == 0 ? 0 : errno;
}

int cli_state_save(const char *path, const json_t *root, struct mt_error *error)
{
    struct mt_strbuf beside = {0};
    char *text = json_dumps(root, JSON_INDENT(2));
    mt_strbuf_printf(&beside, "%s.XXXXXX", path);
    int failed = !text || mt_strbuf_failed(&beside) ? ENOMEM : 0;
    int fd = failed ? -1 : mkostemp(beside.data, O_CLOEXEC);
    if (!failed && fd < 0)
        failed = errno;
    if (!failed)
        failed = write_whole(fd, text, strlen(text));
    if (fd >= 0 && close(fd) != 0 && !failed)
        failed = errno;
    if (!failed && rename(beside.data, path) != 0)
        failed = errno;
    if (failed && fd >= 0)
        unlink(beside.data);
    free(text);
    mt_strbuf_finish(&beside);
    return failed ? mt_fail_errno(error, failed, "%s", path) : 0;
}
