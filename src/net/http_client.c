/* SPDX-License-Identifier: MIT */
/* The HTTP client over libcurl. */
#include "net/http_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "base/strbuf.h"
#include "net/curl_late.h"

/* An answer that is still coming in. */
struct incoming {
    struct mt_strbuf body;
    size_t max_bytes;
    int too_large;
};

int mt_http_start(struct mt_error *error)
{
    int result = mt_curl_load(error);
    if (result < 0)
        return result;
    CURLcode code = mt_curl()->global_init(CURL_GLOBAL_DEFAULT);
    if (code != CURLE_OK)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET, "libcurl does not start: %s",
                       mt_curl()->easy_strerror(code));
    return MT_OK;
}

void mt_http_stop(void)
{
    mt_curl()->global_cleanup();
}

/* Taking less than was offered makes libcurl end the exchange. */
static size_t take_bytes(char *bytes, size_t size, size_t count, void *context)
{
    struct incoming *incoming = context;
    size_t length = size * count;
    if (length > incoming->max_bytes - incoming->body.length) {
        incoming->too_large = 1;
        return 0;
    }
    mt_strbuf_append(&incoming->body, bytes, length);
    return mt_strbuf_failed(&incoming->body) ? 0 : length;
}

static int code_of(CURLcode code, const struct incoming *incoming)
{
    if (incoming->too_large)
        return MT_ELIMIT;
    if (mt_strbuf_failed(&incoming->body))
        return MT_ENOMEM;
    switch (code) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
        return MT_ENOTFOUND;
    case CURLE_OPERATION_TIMEDOUT:
        return MT_ETIMEOUT;
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
        return MT_ETRUNCATED;
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
        return MT_EFORMAT;
    case CURLE_URL_MALFORMAT:
        return MT_EARG;
    case CURLE_OUT_OF_MEMORY:
        return MT_ENOMEM;
    default:
        return MT_EIO;
    }
}

static int fail(const struct mt_http_request *request, CURLcode code, const char *detail,
                const struct incoming *incoming, struct mt_error *error)
{
    if (incoming->too_large)
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "%s: the answer is larger than %zu bytes",
                       request->url, incoming->max_bytes);
    return mt_fail(error, code_of(code, incoming), MT_NO_OFFSET, "%s: %s", request->url,
                   *detail ? detail : mt_curl()->easy_strerror(code));
}

static void set_request(CURL *curl, const struct mt_http_request *request)
{
    mt_curl()->easy_setopt(curl, CURLOPT_URL, request->url);
    mt_curl()->easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http");
    mt_curl()->easy_setopt(curl, CURLOPT_PROXY, "");
    mt_curl()->easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    mt_curl()->easy_setopt(curl, CURLOPT_HTTP09_ALLOWED, 0L);
    mt_curl()->easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)request->timeout_ms);
    if (request->unix_socket)
        mt_curl()->easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, request->unix_socket);
    if (request->body) {
        size_t length = request->body_bytes ? request->body_bytes : strlen(request->body);
        mt_curl()->easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)length);
        mt_curl()->easy_setopt(curl, CURLOPT_POSTFIELDS, request->body);
    }
    if (request->method)
        mt_curl()->easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
}

/* `Expect:` without a value keeps libcurl from asking before it sends a large body. */
static struct curl_slist *headers_of(const struct mt_http_request *request)
{
    struct curl_slist *headers = mt_curl()->slist_append(NULL, "Expect:");
    if (!headers || !request->body)
        return headers;
    char type[128];
    snprintf(type, sizeof type, "Content-Type: %s",
             request->body_type ? request->body_type : "application/json");
    struct curl_slist *more = mt_curl()->slist_append(headers, type);
    if (!more)
        mt_curl()->slist_free_all(headers);
    return more;
}

static CURLcode perform(CURL *curl, struct incoming *incoming, struct curl_slist *headers,
                        char detail[CURL_ERROR_SIZE])
{
    mt_curl()->easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    mt_curl()->easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
    mt_curl()->easy_setopt(curl, CURLOPT_WRITEDATA, incoming);
    mt_curl()->easy_setopt(curl, CURLOPT_ERRORBUFFER, detail);
    CURLcode code = mt_curl()->easy_perform(curl);
    mt_curl()->easy_setopt(curl, CURLOPT_ERRORBUFFER, NULL);
    return code;
}

static int exchange(CURL *curl, const struct mt_http_request *request, struct curl_slist *headers,
                    struct mt_http_response *response, struct mt_error *error)
{
    struct incoming incoming = {.max_bytes = request->max_body_bytes};
    char detail[CURL_ERROR_SIZE] = "";
    mt_strbuf_init(&incoming.body);
    set_request(curl, request);
    CURLcode code = perform(curl, &incoming, headers, detail);
    mt_strbuf_append(&incoming.body, "", 0);
    if (code != CURLE_OK || mt_strbuf_failed(&incoming.body)) {
        int failure = fail(request, code, detail, &incoming, error);
        mt_strbuf_finish(&incoming.body);
        return failure;
    }
    long status = 0;
    mt_curl()->easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    response->status = (int)status;
    response->length = incoming.body.length;
    response->body = mt_strbuf_take(&incoming.body);
    return MT_OK;
}

int mt_http_fetch(const struct mt_http_request *request, struct mt_http_response *response,
                  struct mt_error *error)
{
    int code = MT_ENOMEM;
    CURL *curl = mt_curl()->easy_init();
    struct curl_slist *headers = headers_of(request);
    if (curl && headers)
        code = exchange(curl, request, headers, response, error);
    else
        mt_out_of_memory_for(error, request->url);
    mt_curl()->slist_free_all(headers);
    mt_curl()->easy_cleanup(curl);
    return code;
}

void mt_http_response_finish(struct mt_http_response *response)
{
    free(response->body);
    response->body = NULL;
}
