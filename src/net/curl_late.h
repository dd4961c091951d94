/* SPDX-License-Identifier: MIT */
/* libcurl, loaded when it is first needed: with what it brings along it takes longer to load than
 * the command takes to answer most questions. */
#ifndef MT_BUILD_CURL_LATE_H
#define MT_BUILD_CURL_LATE_H

#include <curl/curl.h>

struct mt_error; /* <memtally/error.h> */

/* X(name without its prefix) */
#define MT_CURL_LIST(X)                                                                            \
    X(easy_cleanup)                                                                                \
    X(easy_getinfo)                                                                                \
    X(easy_init)                                                                                   \
    X(easy_perform)                                                                                \
    X(easy_setopt)                                                                                 \
    X(easy_strerror)                                                                               \
    X(free)                                                                                        \
    X(global_cleanup)                                                                              \
    X(global_init)                                                                                 \
    X(slist_append)                                                                                \
    X(slist_free_all)                                                                              \
    X(url)                                                                                         \
    X(url_cleanup)                                                                                 \
    X(url_get)                                                                                     \
    X(url_set)

struct mt_curl {
#define MT_CURL_MEMBER(name) __typeof__(curl_##name) *name;
    MT_CURL_LIST(MT_CURL_MEMBER)
#undef MT_CURL_MEMBER
};

/* Loads libcurl; it stays loaded. Errors: MT_EUNSUPPORTED (it is not installed, or too old). */
int mt_curl_load(struct mt_error *error);

/* Its functions, after mt_curl_load() has succeeded. Any thread. */
const struct mt_curl *mt_curl(void);

#endif
