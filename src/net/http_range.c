/* SPDX-License-Identifier: MIT */
/* Range requests over libcurl. */
#include "net/http_range.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "net/curl_late.h"

#define FIRST_BYTES (64 * 1024)
#define TIMEOUT_MS  30000
#define REDIRECTS   5L

/* Each file keeps what it fetched last, so that neighbouring small reads cost one request. */
struct mt_http_file {
    CURL *curl;
    char *url;
    uint64_t size_bytes;
    uint64_t received_bytes;
    uint64_t kept_at;
    size_t kept;
    size_t first_bytes;
    char *window; /* of first_bytes bytes */
};

/* One answer coming in. */
struct answer {
    char *to;
    size_t expected;
    size_t length;
    long status;
    int has_range;
    uint64_t first;
    uint64_t last;
    uint64_t size;
    int too_long;
    CURL *curl;
};

static int is_loopback(const char *host)
{
    struct in_addr address;
    if (inet_pton(AF_INET, host, &address) == 1)
        return ntohl(address.s_addr) >> 24 == 127;
    return strcasecmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0;
}

/* Whether a URL may be spoken to: https, or http of this machine. */
static int check_url(const char *url, const char **protocols, struct mt_error *error)
{
    CURLU *parsed = mt_curl()->url();
    char *scheme = NULL;
    char *host = NULL;
    int ok = parsed && mt_curl()->url_set(parsed, CURLUPART_URL, url, 0) == CURLUE_OK &&
             mt_curl()->url_get(parsed, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
             mt_curl()->url_get(parsed, CURLUPART_HOST, &host, 0) == CURLUE_OK;
    int is_local = ok && strcmp(scheme, "http") == 0 && is_loopback(host);
    ok = is_local || (ok && strcmp(scheme, "https") == 0);
    mt_curl()->free(scheme);
    mt_curl()->free(host);
    mt_curl()->url_cleanup(parsed);
    *protocols = is_local ? "http" : "https";
    return ok ? 0 : mt_fail(error, MT_EARG, MT_NO_OFFSET, "%s: expected an https URL", url);
}

/* "Content-Range: bytes 0-99/1234". */
static void take_range(struct answer *answer, const char *value, size_t length)
{
    char text[96];
    unsigned long long first;
    unsigned long long last;
    unsigned long long size;
    if (length >= sizeof text)
        return;
    memcpy(text, value, length);
    text[length] = '\0';
    if (strchr(text, '-') == NULL ||
        sscanf(text, " bytes %20llu-%20llu/%20llu", &first, &last, &size) != 3)
        return;
    answer->has_range = 1;
    answer->first = first;
    answer->last = last;
    answer->size = size;
}

static size_t take_header(char *line, size_t size, size_t count, void *context)
{
    static const char name[] = "Content-Range:";
    struct answer *answer = context;
    size_t length = size * count;
    if (length > 5 && memcmp(line, "HTTP/", 5) == 0)
        answer->has_range = 0; /* another answer after a redirect */
    if (length >= sizeof name && strncasecmp(line, name, sizeof name - 1) == 0)
        take_range(answer, line + sizeof name - 1, length - (sizeof name - 1));
    return length;
}

/* Bodies of anything but a part of the file are not taken: libcurl then ends the exchange. */
static size_t take_body(char *bytes, size_t size, size_t count, void *context)
{
    struct answer *answer = context;
    size_t length = size * count;
    mt_curl()->easy_getinfo(answer->curl, CURLINFO_RESPONSE_CODE, &answer->status);
    if (answer->status != 206)
        return answer->status >= 300 && answer->status < 400 ? length : 0;
    if (length > answer->expected - answer->length) {
        answer->too_long = 1;
        return 0;
    }
    memcpy(answer->to + answer->length, bytes, length);
    answer->length += length;
    return length;
}

static int fail_status(const struct mt_http_file *file, long status, struct mt_error *error)
{
    if (status == 404 || status == 410)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET, "%s: not found (status %ld)", file->url,
                       status);
    if (status == 401 || status == 403)
        return mt_fail(error, MT_EPERM, MT_NO_OFFSET,
                       "%s: not permitted (status %ld); it may not exist, or need a token",
                       file->url, status);
    if (status == 200)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "%s: the server has no range requests, it answers with the whole file",
                       file->url);
    if (status == 416)
        return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET,
                       "%s: the server has no bytes there (status 416); the file may be empty",
                       file->url);
    return mt_fail(error, MT_EIO, MT_NO_OFFSET, "%s: status %ld", file->url, status);
}

static int is_unreachable(CURLcode code)
{
    return code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST ||
           code == CURLE_COULDNT_RESOLVE_PROXY;
}

/* A server that cannot be reached says nothing of whether it has the file. */
static int fail_transfer(const struct mt_http_file *file, CURLcode code, const char *detail,
                         uint64_t offset, struct mt_error *error)
{
    const char *why = *detail ? detail : mt_curl()->easy_strerror(code);
    int what = code == CURLE_OPERATION_TIMEDOUT ? MT_ETIMEOUT
               : code == CURLE_OUT_OF_MEMORY    ? MT_ENOMEM
               : code == CURLE_PARTIAL_FILE || code == CURLE_GOT_NOTHING || code == CURLE_RECV_ERROR
                   ? MT_ETRUNCATED
               : code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT ? MT_EARG
                                                                                   : MT_EIO;
    if (is_unreachable(code))
        return mt_fail(error, MT_EIO, MT_NO_OFFSET,
                       "%s: its server cannot be reached: %s; see that this machine has a network, "
                       "or name a model that is here",
                       file->url, why);
    return mt_fail(error, what, offset, "%s: %s", file->url, why);
}

/* The server must send the requested range, and the same size as before. */
static int check_answer(struct mt_http_file *file, const struct answer *answer, uint64_t offset,
                        struct mt_error *error)
{
    uint64_t last = offset + answer->expected - 1;
    if (!answer->has_range || answer->first != offset || answer->last < answer->first ||
        answer->last >= answer->size || answer->size > INT64_MAX)
        return mt_fail(error, MT_EFORMAT, offset,
                       "%s: the server's Content-Range does not answer bytes %llu-%llu", file->url,
                       (unsigned long long)offset, (unsigned long long)last);
    if (file->size_bytes && file->size_bytes != answer->size)
        return mt_fail(error, MT_EFORMAT, offset,
                       "%s: the server says the file has %llu bytes, it said %llu before",
                       file->url, (unsigned long long)answer->size,
                       (unsigned long long)file->size_bytes);
    if (answer->last > last || (answer->last < last && answer->last + 1 != answer->size))
        return mt_fail(error, MT_EFORMAT, offset,
                       "%s: the server sent bytes up to %llu, expected up to %llu", file->url,
                       (unsigned long long)answer->last, (unsigned long long)last);
    if (answer->length != answer->last - answer->first + 1)
        return mt_fail(error, MT_ETRUNCATED, offset + answer->length,
                       "%s: the answer ends after %zu of %llu bytes", file->url, answer->length,
                       (unsigned long long)(answer->last - answer->first + 1));
    return 0;
}

/* Fetches up to `length` bytes, less only at the end of the file. */
static int fetch(struct mt_http_file *file, uint64_t offset, char *to, size_t length, size_t *got,
                 struct mt_error *error)
{
    struct answer answer = {.to = to, .expected = length, .curl = file->curl};
    char detail[CURL_ERROR_SIZE] = "";
    char range[64];
    snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)offset,
             (unsigned long long)(offset + length - 1));
    mt_curl()->easy_setopt(file->curl, CURLOPT_RANGE, range);
    mt_curl()->easy_setopt(file->curl, CURLOPT_WRITEDATA, &answer);
    mt_curl()->easy_setopt(file->curl, CURLOPT_HEADERDATA, &answer);
    mt_curl()->easy_setopt(file->curl, CURLOPT_ERRORBUFFER, detail);
    CURLcode code = mt_curl()->easy_perform(file->curl);
    mt_curl()->easy_setopt(file->curl, CURLOPT_ERRORBUFFER, NULL);
    mt_curl()->easy_getinfo(file->curl, CURLINFO_RESPONSE_CODE, &answer.status);
    file->received_bytes += answer.length;
    if (answer.too_long)
        return mt_fail(error, MT_EFORMAT, offset, "%s: the server sent more than was asked for",
                       file->url);
    if (answer.status != 206 && answer.status != 0 &&
        (code == CURLE_OK || code == CURLE_WRITE_ERROR || code == CURLE_PARTIAL_FILE))
        return fail_status(file, answer.status, error);
    if (code != CURLE_OK)
        return fail_transfer(file, code, detail, offset + answer.length, error);
    int failed = check_answer(file, &answer, offset, error);
    if (failed)
        return failed;
    file->size_bytes = answer.size;
    *got = answer.length;
    return 0;
}

static void set_options(struct mt_http_file *file, const char *protocols,
                        const struct mt_http_file_options *options)
{
    CURL *curl = file->curl;
    uint64_t timeout = options->timeout_ms ? options->timeout_ms : TIMEOUT_MS;
    mt_curl()->easy_setopt(curl, CURLOPT_URL, file->url);
    mt_curl()->easy_setopt(curl, CURLOPT_PROTOCOLS_STR, protocols);
    mt_curl()->easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "https");
    mt_curl()->easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    mt_curl()->easy_setopt(curl, CURLOPT_MAXREDIRS, REDIRECTS);
    mt_curl()->easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    mt_curl()->easy_setopt(curl, CURLOPT_HTTP09_ALLOWED, 0L);
    mt_curl()->easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)timeout);
    mt_curl()->easy_setopt(curl, CURLOPT_USERAGENT, "memtally");
    mt_curl()->easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    mt_curl()->easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
    if (options->token) {
        mt_curl()->easy_setopt(curl, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        mt_curl()->easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, options->token);
    }
}

static int make_file(const char *url, const char *protocols,
                     const struct mt_http_file_options *options, struct mt_http_file **made)
{
    struct mt_http_file *file = calloc(1, sizeof *file);
    if (!file)
        return MT_ENOMEM;
    file->first_bytes = options->first_bytes ? (size_t)options->first_bytes : FIRST_BYTES;
    file->curl = mt_curl()->easy_init();
    file->url = strdup(url);
    file->window = malloc(file->first_bytes);
    if (!file->curl || !file->url || !file->window) {
        mt_http_file_close(file);
        return MT_ENOMEM;
    }
    set_options(file, protocols, options);
    *made = file;
    return 0;
}

int mt_http_file_open(const char *url, const struct mt_http_file_options *options,
                      struct mt_http_file **opened, struct mt_error *error)
{
    struct mt_http_file *file = NULL;
    const char *protocols;
    int code = check_url(url, &protocols, error);
    if (code)
        return code;
    if (make_file(url, protocols, options, &file))
        return mt_out_of_memory_for(error, url);
    code = fetch(file, 0, file->window, file->first_bytes, &file->kept, error);
    if (code) {
        mt_http_file_close(file);
        return code;
    }
    *opened = file;
    return 0;
}

void mt_http_file_close(struct mt_http_file *file)
{
    if (!file)
        return;
    mt_curl()->easy_cleanup(file->curl);
    free(file->url);
    free(file->window);
    free(file);
}

uint64_t mt_http_file_size(const struct mt_http_file *file)
{
    return file->size_bytes;
}

uint64_t mt_http_file_received(const struct mt_http_file *file)
{
    return file->received_bytes;
}

/* Copies what is kept of the beginning of a span; returns how much. */
static size_t copy_kept(const struct mt_http_file *file, uint64_t offset, char *to, size_t length)
{
    if (offset < file->kept_at || offset >= file->kept_at + file->kept)
        return 0;
    size_t from = (size_t)(offset - file->kept_at);
    size_t n = file->kept - from < length ? file->kept - from : length;
    memcpy(to, file->window + from, n);
    return n;
}

/* A large span goes straight to its place, a small one comes with what follows it. */
static int fetch_span(struct mt_http_file *file, uint64_t offset, char *to, size_t length,
                      struct mt_error *error)
{
    size_t got = 0;
    int is_large = length >= file->first_bytes;
    uint64_t left = file->size_bytes - offset;
    size_t wanted = left < file->first_bytes ? (size_t)left : file->first_bytes;
    if (!is_large)
        file->kept = 0;
    int code =
        fetch(file, offset, is_large ? to : file->window, is_large ? length : wanted, &got, error);
    if (code || is_large)
        return code;
    file->kept_at = offset;
    file->kept = got;
    memcpy(to, file->window, length);
    return 0;
}

int mt_http_file_read(struct mt_http_file *file, uint64_t offset, void *to, size_t length,
                      struct mt_error *error)
{
    char *at = to;
    if (offset > file->size_bytes || length > file->size_bytes - offset)
        return mt_fail(error, MT_EARG, offset, "%s: a range outside of the file", file->url);
    size_t kept = copy_kept(file, offset, at, length);
    if (kept == length)
        return 0;
    return fetch_span(file, offset + kept, at + kept, length - kept, error);
}
