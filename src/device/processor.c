/* SPDX-License-Identifier: MIT */
/* The kind of processor, by the words of /proc/cpuinfo. Knows no engine. */
#include "device/processor.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CPUINFO_BYTES 12288 /* more than a processor's paragraph */

/* arch_prctl() says which features a process may ask for. */
#define ARCH_GET_XCOMP_SUPP 0x1021
#define XFEATURE_XTILEDATA  18

static int machine_grants_tiles(void *context)
{
    (void)context;
#ifdef __x86_64__
    unsigned long features = 0;
    if (syscall(SYS_arch_prctl, ARCH_GET_XCOMP_SUPP, &features) != 0)
        return 0;
    return (int)(features >> XFEATURE_XTILEDATA & 1);
#else
    return 0;
#endif
}

void mt_processor_os_init(struct mt_processor_os *os)
{
    mt_host_os_init(&os->host);
    os->grants_tiles = machine_grants_tiles;
}

static int is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\0';
}

/* The words after the colon of the first line that begins with `name`; NULL without one. */
static const char *words_of(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, name, length) && is_blank(line[length]))
            return strchr(line, ':');
    }
    return NULL;
}

static int has(const char *words, const char *word)
{
    const char *end = words + strcspn(words, "\n");
    size_t length = strlen(word);
    for (const char *at = strstr(words, word); at && at < end; at = strstr(at + 1, word))
        if (is_blank(at[-1]) && is_blank(at[length]))
            return 1;
    return 0;
}

static enum mt_processor x86_of(const struct mt_processor_os *os, const char *words,
                                int *lacks_grant)
{
    if (has(words, "amx_int8") && has(words, "avx512_vnni")) {
        if (os->grants_tiles(os->host.context))
            return MT_PROCESSOR_AMX;
        *lacks_grant = 1;
    }
    if (has(words, "avx512f"))
        return MT_PROCESSOR_AVX512;
    return has(words, "avx2") ? MT_PROCESSOR_AVX2 : MT_PROCESSOR_X86_64;
}

enum mt_processor mt_processor_look(const struct mt_processor_os *os, int *lacks_grant)
{
    char text[CPUINFO_BYTES];
    int lacks = 0;
    if (!lacks_grant)
        lacks_grant = &lacks;
    *lacks_grant = 0;
    long n = os->host.read_file(os->host.context, "/proc/cpuinfo", text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    const char *words = words_of(text, "flags");
    if (words)
        return x86_of(os, words, lacks_grant);
    words = words_of(text, "Features");
    if (!words)
        return MT_PROCESSOR_UNKNOWN;
    return has(words, "asimddp") ? MT_PROCESSOR_DOTPROD : MT_PROCESSOR_AARCH64;
}

enum mt_processor mt_processor_here(void)
{
    struct mt_processor_os os;
    mt_processor_os_init(&os);
    return mt_processor_look(&os, NULL);
}
