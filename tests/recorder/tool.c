/* SPDX-License-Identifier: MIT */
/* Built twice, as two libraries that provide the same function. The first asks for the next one,
 * and opens a library that only its own RUNPATH finds. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

const char *tool(void);
#ifdef FIRST
const char *next_tool(void);
void *open_leaf(int flags);
#else
void second_is_linked(void);
#endif

const char *tool(void)
{
    return NAME;
}

#ifdef FIRST

const char *next_tool(void)
{
    const char *(*next)(void);
    void *address = dlsym(RTLD_NEXT, "tool");
    if (!address)
        return "none";
    memcpy(&next, &address, sizeof next);
    return next == tool ? "itself" : next();
}

void *open_leaf(int flags)
{
    void *volatile leaf =
        dlopen("librecorder_leaf.so", flags); /* no tail call: we are the caller */
    return leaf;
}

#else

void second_is_linked(void)
{
}

#endif
