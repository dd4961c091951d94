/* SPDX-License-Identifier: MIT */
/* C++ names through the C++ runtime's own __cxa_demangle, looked up when it is there and never
 * linked. */
#include "symbol/demangle.h"

#include <dlfcn.h>
#include <string.h>

/* A name can refer back to its own parts, and each time may double what is written out: 32 times
 * keeps the worst name within some 100 MiB. Real names seldom have as many, and are shown mangled
 * then. */
enum { LENGTH_MAX = 1024, REFERENCES_MAX = 32 };

void mt_demangler_init(struct mt_demangler *demangler)
{
    demangler->demangle = NULL;
    demangler->library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);
    if (!demangler->library)
        return;
    void *found = dlsym(demangler->library, "__cxa_demangle");
    memcpy(&demangler->demangle, &found, sizeof found);
}

void mt_demangler_finish(struct mt_demangler *demangler)
{
    if (demangler->library)
        dlclose(demangler->library);
    demangler->library = NULL;
    demangler->demangle = NULL;
}

static int is_affordable(const char *mangled)
{
    size_t length = strnlen(mangled, LENGTH_MAX + 1);
    int references = 0;
    for (size_t i = 0; i + 1 < length; i++) {
        char next = mangled[i + 1];
        if ((mangled[i] == 'S' || mangled[i] == 'T') &&
            (next == '_' || (next >= '0' && next <= '9') || (next >= 'A' && next <= 'Z')))
            references++;
    }
    return length <= LENGTH_MAX && references <= REFERENCES_MAX;
}

char *mt_demangle(const struct mt_demangler *demangler, const char *mangled)
{
    int status = -1;
    if (!demangler->demangle || strncmp(mangled, "_Z", 2) != 0 || !is_affordable(mangled))
        return NULL;
    return demangler->demangle(mangled, NULL, NULL, &status);
}
