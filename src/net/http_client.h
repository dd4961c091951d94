/* SPDX-License-Identifier: MIT */
/* A small HTTP client for services on this machine: engines' endpoints, Docker's socket.
 *
 * One exchange a call, in the calling thread. Proxies, redirects, cookies and other protocols are
 * off. libcurl stands behind it and does not show. Knows nothing of what is exchanged. */
#ifndef MT_BUILD_HTTP_CLIENT_H
#define MT_BUILD_HTTP_CLIENT_H

#include <stddef.h>
#include <stdint.h>

struct mt_error; /* <memtally/error.h> */

struct mt_http_request {
    const char *url;         /* "http://127.0.0.1:8080/health" */
    const char *unix_socket; /* path of a socket to connect to instead of the URL's host, or NULL */
    const char *method;      /* NULL: a GET, or a POST of the body */
    const char *body;        /* NULL: none */
    size_t body_bytes;       /* 0: the body ends with a NUL */
    const char *body_type;   /* NULL: application/json */
    uint64_t timeout_ms;     /* for the whole exchange; 0: no limit */
    size_t max_body_bytes;   /* of the answer */
};

struct mt_http_response {
    int status; /* 200 and so on: an answer of any status is no error */
    char *body; /* terminated; may hold NULs before `length` */
    size_t length;
};

/* To be called once, before there are threads, and once at the end.
 * Errors: MT_EUNSUPPORTED. */
int mt_http_start(struct mt_error *error);
void mt_http_stop(void);

/* Sends a request and takes the answer. On success *response is owned by the caller; free it with
 * mt_http_response_finish(). Any thread, several at a time.
 * Errors: MT_ENOTFOUND (nobody listens there), MT_ETIMEOUT, MT_ELIMIT (the answer is too large),
 * MT_ETRUNCATED (the connection was closed early), MT_EFORMAT (the answer is not HTTP), MT_EARG
 * (the URL), MT_EIO, MT_ENOMEM. */
int mt_http_fetch(const struct mt_http_request *request, struct mt_http_response *response,
                  struct mt_error *error);

/* Frees what the response holds. */
void mt_http_response_finish(struct mt_http_response *response);

#endif
