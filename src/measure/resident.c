/* SPDX-License-Identifier: MIT */
/* Reads VmRSS, VmHWM and statm and resets the mark. Knows the files of /proc/self, and nothing of
 * who asks. */
#include "measure/resident.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/fail_errno.h"

static const char STATUS[] = "/proc/self/status";
static const char STATM[] = "/proc/self/statm";
static const char CLEAR_REFS[] = "/proc/self/clear_refs";

/* A file of /proc that is missing or refuses a value means an older or smaller kernel. */
static int fail_proc(struct mt_error *error, const char *path, long negative_errno)
{
    int errno_value = (int)-negative_errno;
    int code = mt_code_of_errno(errno_value);
    if (code == MT_ENOTFOUND || code == MT_EARG)
        code = MT_EUNSUPPORTED;
    return mt_fail(error, code, MT_NO_OFFSET, "%s: %s", path, strerror(errno_value));
}

/* The figure of a line such as "VmHWM:\t    1348 kB". */
static int find_kib(const char *text, const char *key, uint64_t *bytes)
{
    const char *line = strstr(text, key);
    uint64_t kib;
    if (!line || sscanf(line + strlen(key), "%" SCNu64 " kB", &kib) != 1)
        return 0;
    *bytes = kib * 1024;
    return 1;
}

int mt_resident_read(const struct mt_measure_os *os, struct mt_resident *resident,
                     struct mt_error *error)
{
    char text[8192];
    long got = os->read_file(os->context, STATUS, text, sizeof text);
    if (got < 0)
        return fail_proc(error, STATUS, got);
    struct mt_resident read;
    if (!find_kib(text, "\nVmHWM:", &read.mark_bytes) ||
        !find_kib(text, "\nVmRSS:", &read.now_bytes))
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET, "%s does not tell VmHWM and VmRSS",
                       STATUS);
    if (read.mark_bytes < read.now_bytes)
        read.mark_bytes = read.now_bytes;
    *resident = read;
    return MT_OK;
}

int mt_resident_reset_mark(const struct mt_measure_os *os, struct mt_error *error)
{
    int result = os->write_file(os->context, CLEAR_REFS, "5");
    return result < 0 ? fail_proc(error, CLEAR_REFS, result) : MT_OK;
}

int mt_resident_sample(const struct mt_measure_os *os, uint64_t *bytes, struct mt_error *error)
{
    char text[256];
    long got = os->read_file(os->context, STATM, text, sizeof text);
    if (got < 0)
        return fail_proc(error, STATM, got);
    uint64_t resident_pages;
    if (sscanf(text, "%*u %" SCNu64, &resident_pages) != 1)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET, "%s has no resident size", STATM);
    *bytes = resident_pages * os->page_bytes(os->context);
    return MT_OK;
}
