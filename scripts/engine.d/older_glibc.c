/* SPDX-License-Identifier: MIT */
/* What libraries that were built with glibc 2.38 ask of it, where it is older: numbers are read as
 * C23 has it there, which differs in binary ones only. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#if !__GLIBC_PREREQ(2, 38)
long __isoc23_strtol(const char *text, char **end, int base)
{
    return strtol(text, end, base);
}

unsigned long __isoc23_strtoul(const char *text, char **end, int base)
{
    return strtoul(text, end, base);
}

unsigned long long __isoc23_strtoull(const char *text, char **end, int base)
{
    return strtoull(text, end, base);
}

int __isoc23_sscanf(const char *text, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = vsscanf(text, format, list);
    va_end(list);
    return n;
}
#endif
