/* SPDX-License-Identifier: MIT */
/* The HTTP client against a server of a few lines that says what a test wants and nothing else. */
#include "tests/support/unit.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "net/http_client.h"

/* A server for one connection: it reads a request up to its end, sends `answer` `times` times and
 * closes, or, where `hangs` is set, waits for the client to go. */
struct server {
    int listener;
    char url[64];
    const char *answer;
    size_t times;
    int hangs;
    char request[4096];
    pthread_t thread;
};

#define REQUEST_END "<end>"

static void read_request(struct server *server, int fd)
{
    size_t length = 0;
    while (length < sizeof server->request - 1 &&
           !memmem(server->request, length, REQUEST_END, strlen(REQUEST_END)) &&
           !(strncmp(server->request, "GET", 3) == 0 && strstr(server->request, "\r\n\r\n"))) {
        ssize_t got = read(fd, server->request + length, sizeof server->request - 1 - length);
        if (got <= 0)
            return;
        length += (size_t)got;
    }
}

static void *serve(void *context)
{
    struct server *server = context;
    int fd = accept(server->listener, NULL, NULL);
    read_request(server, fd);
    for (size_t i = 0; i < server->times; i++)
        if (send(fd, server->answer, strlen(server->answer), MSG_NOSIGNAL) < 0)
            break;
    char ignored[256];
    while (server->hangs && read(fd, ignored, sizeof ignored) > 0)
        continue;
    close(fd);
    return NULL;
}

static void start(struct server *server)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(server->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(server->listener, 1), 0);
    assert_int_equal(getsockname(server->listener, (struct sockaddr *)&address, &length), 0);
    snprintf(server->url, sizeof server->url, "http://127.0.0.1:%d/path", ntohs(address.sin_port));
    assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
}

static void stop(struct server *server)
{
    pthread_join(server->thread, NULL);
    close(server->listener);
}

static int fetch(const char *url, struct mt_http_response *response, struct mt_error *error)
{
    struct mt_http_request request = {.url = url, .timeout_ms = 20000, .max_body_bytes = 1000};
    return mt_http_fetch(&request, response, error);
}

static void test_get_returns_status_and_body(void **state)
{
    (void)state;
    struct server server = {
        .answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", .times = 1, .hangs = 1};
    struct mt_http_response response;
    start(&server);
    assert_int_equal(fetch(server.url, &response, NULL), 0);
    stop(&server);
    assert_int_equal(response.status, 200);
    assert_int_equal(response.length, 5);
    assert_string_equal(response.body, "hello");
    assert_non_null(strstr(server.request, "GET /path HTTP/1.1\r\n"));
    mt_http_response_finish(&response);
}

static void test_status_of_an_error_and_an_empty_body_are_an_answer(void **state)
{
    (void)state;
    struct server server = {.answer = "HTTP/1.1 503 Loading\r\nContent-Length: 0\r\n\r\n",
                            .times = 1};
    struct mt_http_response response;
    start(&server);
    assert_int_equal(fetch(server.url, &response, NULL), 0);
    stop(&server);
    assert_int_equal(response.status, 503);
    assert_string_equal(response.body, "");
    mt_http_response_finish(&response);
}

static void test_post_sends_its_body_as_json(void **state)
{
    (void)state;
    struct server server = {.answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", .times = 1};
    struct mt_http_response response;
    start(&server);
    struct mt_http_request request = {.url = server.url,
                                      .body = "{\"n\": 1}" REQUEST_END,
                                      .timeout_ms = 20000,
                                      .max_body_bytes = 2};
    assert_int_equal(mt_http_fetch(&request, &response, NULL), 0);
    stop(&server);
    assert_non_null(strstr(server.request, "POST /path HTTP/1.1\r\n"));
    assert_non_null(strstr(server.request, "Content-Type: application/json\r\n"));
    assert_null(strstr(server.request, "Expect:"));
    assert_non_null(strstr(server.request, "\r\n\r\n{\"n\": 1}" REQUEST_END));
    mt_http_response_finish(&response);
}

static void test_server_that_hangs_times_out(void **state)
{
    (void)state;
    struct server server = {.hangs = 1};
    struct mt_http_response response = {.status = -7};
    struct mt_error error;
    start(&server);
    struct mt_http_request request = {.url = server.url, .timeout_ms = 50, .max_body_bytes = 1000};
    assert_int_equal(mt_http_fetch(&request, &response, &error), MT_ETIMEOUT);
    stop(&server);
    assert_int_equal(error.code, MT_ETIMEOUT);
    assert_non_null(strstr(error.text, server.url));
    assert_int_equal(response.status, -7);
}

static void test_server_that_closes_within_its_answer(void **state)
{
    (void)state;
    struct server server = {.answer = "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello",
                            .times = 1};
    struct mt_http_response response;
    start(&server);
    assert_int_equal(fetch(server.url, &response, NULL), MT_ETRUNCATED);
    stop(&server);
}

static void test_server_that_closes_without_an_answer(void **state)
{
    (void)state;
    struct server server = {.times = 0};
    struct mt_http_response response;
    start(&server);
    assert_int_equal(fetch(server.url, &response, NULL), MT_ETRUNCATED);
    stop(&server);
}

static void test_answer_past_the_limit_is_refused(void **state)
{
    (void)state;
    struct server server = {.answer = "HTTP/1.1 200 OK\r\n\r\n0123456789", .times = 2000};
    struct mt_http_response response;
    struct mt_error error;
    start(&server);
    assert_int_equal(fetch(server.url, &response, &error), MT_ELIMIT);
    stop(&server);
    assert_non_null(strstr(error.text, "larger than 1000 bytes"));
}

static void test_server_that_does_not_speak_http(void **state)
{
    (void)state;
    struct server server = {.answer = "220 mail.example ESMTP\r\n", .times = 1};
    struct mt_http_response response;
    start(&server);
    assert_int_equal(fetch(server.url, &response, NULL), MT_EFORMAT);
    stop(&server);
}

static void test_nobody_listens(void **state)
{
    (void)state;
    struct server server = {.times = 0};
    struct mt_http_response response;
    start(&server);
    assert_int_equal(fetch(server.url, &response, NULL), MT_ETRUNCATED);
    stop(&server);
    assert_int_equal(fetch(server.url, &response, NULL), MT_ENOTFOUND);
}

static void test_other_protocols_are_refused(void **state)
{
    (void)state;
    struct mt_http_response response;
    assert_int_equal(fetch("file:///etc/hostname", &response, NULL), MT_EFORMAT);
}

static void test_proxy_of_the_environment_is_not_asked(void **state)
{
    (void)state;
    struct server server = {.answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", .times = 1};
    struct mt_http_response response;
    start(&server);
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    assert_int_equal(fetch(server.url, &response, NULL), 0);
    unsetenv("http_proxy");
    stop(&server);
    mt_http_response_finish(&response);
}

static void test_put_sends_bytes_of_any_kind(void **state)
{
    (void)state;
    struct server server = {.answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", .times = 1};
    struct mt_http_response response;
    static const char body[] = "a\0b" REQUEST_END;
    start(&server);
    const struct mt_http_request request = {.url = server.url,
                                            .method = "PUT",
                                            .body = body,
                                            .body_bytes = sizeof body - 1,
                                            .body_type = "application/x-tar",
                                            .timeout_ms = 20000,
                                            .max_body_bytes = 1000};
    assert_int_equal(mt_http_fetch(&request, &response, NULL), 0);
    stop(&server);
    assert_memory_equal(server.request, "PUT /path ", 10);
    assert_non_null(strstr(server.request, "Content-Type: application/x-tar\r\n"));
    assert_non_null(strstr(server.request, "Content-Length: 8\r\n"));
    const char *end = strstr(server.request, "\r\n\r\n");
    assert_non_null(end);
    assert_memory_equal(end + 4, body, sizeof body - 1);
    mt_http_response_finish(&response);
}

static void test_unix_socket_is_connected_to_instead_of_the_host(void **state)
{
    (void)state;
    struct server server = {.answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", .times = 1};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char folder[] = "/tmp/memtally-test.XXXXXX";
    assert_non_null(mkdtemp(folder));
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", folder);
    server.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(server.listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(server.listener, 1), 0);
    assert_int_equal(pthread_create(&server.thread, NULL, serve, &server), 0);
    struct mt_http_request request = {.url = "http://localhost/path",
                                      .unix_socket = address.sun_path,
                                      .timeout_ms = 20000,
                                      .max_body_bytes = 1000};
    struct mt_http_response response;
    assert_int_equal(mt_http_fetch(&request, &response, NULL), 0);
    stop(&server);
    assert_string_equal(response.body, "ok");
    mt_http_response_finish(&response);
    unlink(address.sun_path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_get_returns_status_and_body),
        cmocka_unit_test(test_status_of_an_error_and_an_empty_body_are_an_answer),
        cmocka_unit_test(test_post_sends_its_body_as_json),
        cmocka_unit_test(test_server_that_hangs_times_out),
        cmocka_unit_test(test_server_that_closes_within_its_answer),
        cmocka_unit_test(test_server_that_closes_without_an_answer),
        cmocka_unit_test(test_answer_past_the_limit_is_refused),
        cmocka_unit_test(test_server_that_does_not_speak_http),
        cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_other_protocols_are_refused),
        cmocka_unit_test(test_proxy_of_the_environment_is_not_asked),
        cmocka_unit_test(test_put_sends_bytes_of_any_kind),
        cmocka_unit_test(test_unix_socket_is_connected_to_instead_of_the_host),
    };
    assert_int_equal(mt_http_start(NULL), 0);
    int failed = RUN_TESTS(tests);
    mt_http_stop();
    return failed;
}
