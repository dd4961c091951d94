/* SPDX-License-Identifier: MIT */
/* Finding libcurl's functions at run time. */
#include "net/curl_late.h"

#include <dlfcn.h>
#include <string.h>

#include "base/error.h"

/* Filled once, before there are threads, by mt_http_start(). */
static struct mt_curl curl;

/* The soname of any of its builds is good: their interface is one. */
static void *open_library(void)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl-nss.so.4"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
    }
    return NULL;
}

/* A function's address is copied as bytes, since C does not turn a pointer to an object into one.
 */
static int find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

int mt_curl_load(struct mt_error *error)
{
    struct mt_curl loaded;
    void *library = open_library();
    if (!library)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "libcurl is not installed; install libcurl4");
    int all = 1;
#define FIND(name) all &= find(library, "curl_" #name, &loaded.name);
    MT_CURL_LIST(FIND)
#undef FIND
    if (!all)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "libcurl is too old; version 7.62 or newer is needed");
    curl = loaded;
    return 0;
}

const struct mt_curl *mt_curl(void)
{
    return &curl;
}
