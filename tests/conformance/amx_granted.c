/* SPDX-License-Identifier: MIT */
/* Preloaded into an engine, answers as a kernel that grants the registers of AMX, and lets ggml
 * choose the library that was built for such a processor. Buffers are planned as there; no
 * instruction of AMX may be executed. */
#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARCH_REQ_XCOMP_PERM 0x1023
#define ARGUMENTS           6

long syscall(long number, ...)
{
    static long (*next)(long, ...);
    long a[ARGUMENTS];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < ARGUMENTS; i++)
        a[i] = va_arg(list, long);
    va_end(list);
#ifdef SYS_arch_prctl
    if (number == SYS_arch_prctl && a[0] == ARCH_REQ_XCOMP_PERM)
        return 0;
#endif
    if (!next)
        *(void **)&next = dlvsym(RTLD_NEXT, "syscall", "GLIBC_2.2.5");
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static int best(void)
{
    return 1 << 20;
}

static int is_for_amx(void *library)
{
    struct link_map *map;
    return library && library != RTLD_NEXT && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 &&
           strstr(map->l_name, "ggml-cpu-sapphirerapids");
}

void *dlsym(void *restrict library, const char *restrict name)
{
    static void *(*next)(void *, const char *);
    if (!next)
        *(void **)&next = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!next)
        *(void **)&next = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (!strcmp(name, "ggml_backend_score") && is_for_amx(library)) {
        int (*score)(void) = best;
        void *answer;
        memcpy(&answer, &score, sizeof answer);
        return answer;
    }
    return next(library, name);
}
