/* SPDX-License-Identifier: MIT */
/* Error codes, their words, and the one way to report them. Knows libc only. */
#include "base/error.h"

#include <errno.h>
#include <memtally/error.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/fail_errno.h"
#include "base/out_of_memory.h"

const char *mt_error_name(int code)
{
    switch (code) {
    case MT_OK:
        return "MT_OK";
#define CASE(name, value, sentence)                                                                \
    case name:                                                                                     \
        return #name;
        MT_ERROR_LIST(CASE)
#undef CASE
    default:
        return "MT_E?";
    }
}

const char *mt_error_sentence(int code)
{
    switch (code) {
    case MT_OK:
        return "no error";
#define CASE(name, value, sentence)                                                                \
    case name:                                                                                     \
        return sentence;
        MT_ERROR_LIST(CASE)
#undef CASE
    default:
        return "unknown error";
    }
}

int mt_code_of_errno(int errno_value)
{
    switch (errno_value) {
    case ENOENT:
    case ESRCH:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG:
        return MT_ENOTFOUND;
    case EACCES:
    case EPERM:
    case EROFS:
        return MT_EPERM;
    case ENOMEM:
        return MT_ENOMEM;
    case EINVAL:
        return MT_EARG;
    case ENOSYS:
    case EOPNOTSUPP:
    case ENOTTY:
        return MT_EUNSUPPORTED;
    case EBUSY:
    case EEXIST:
        return MT_EBUSY;
    default:
        return MT_EIO;
    }
}

int mt_fail(struct mt_error *error, int code, uint64_t offset, const char *format, ...)
{
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        error->code = code;
        error->offset = offset;
        vsnprintf(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
    }
    return code;
}

int mt_fail_errno(struct mt_error *error, int errno_value, const char *format, ...)
{
    int code = mt_code_of_errno(errno_value);
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        error->code = code;
        error->offset = MT_NO_OFFSET;
        int used = vsnprintf(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
        if (used >= 0 && (size_t)used < sizeof error->text)
            snprintf(error->text + used, sizeof error->text - (size_t)used, ": %s",
                     strerror(errno_value));
    }
    return code;
}

int mt_out_of_memory(struct mt_error *error)
{
    return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
}

int mt_out_of_memory_for(struct mt_error *error, const char *name)
{
    return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "%s: out of memory", name);
}
