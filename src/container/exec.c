/* SPDX-License-Identifier: MIT */
/* The connection of an exec becomes a plain stream once it is started, which libcurl has no word
 * for: it is opened here. */
#include "container/exec.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "base/out_of_memory.h"
#include "base/ticks.h"
#include "container/internal.h"

#define START_MS   30000
#define HEADER_MAX 16384
#define FRAME      8 /* a byte for the stream, three of nothing, four for the length */

struct mt_container_exec {
    const struct mt_container *container; /* borrowed */
    char id[MT_CONTAINER_ID];
    int fd;
    unsigned char frame[FRAME];
    size_t n_frame; /* bytes of it that have come */
    size_t left;    /* bytes of what it announces that are to come */
    char early[HEADER_MAX];
    size_t n_early; /* that came with the answer's headers */
};

/* ---- starting ---- */

static json_t *question_of(const char *const *argv, const char *user)
{
    json_t *words = json_array();
    for (; *argv; argv++)
        json_array_append_new(words, json_string(*argv));
    json_t *question = json_pack("{s:b, s:b, s:b, s:b, s:o}", "AttachStdin", 1, "AttachStdout", 1,
                                 "AttachStderr", 1, "Tty", 0, "Cmd", words);
    if (question && user)
        json_object_set_new(question, "User", json_string(user));
    return question;
}

static int take_id(struct mt_container_exec *exec, const struct mt_http_response *response,
                   struct mt_error *error)
{
    if (response->status != 201)
        return mt_container_complain(response, "starting a program in the container", error);
    json_t *answer = json_loadb(response->body, response->length, 0, NULL);
    const char *id = json_string_value(json_object_get(answer, "Id"));
    int is_fine =
        id && strlen(id) < sizeof exec->id && strspn(id, "0123456789abcdef") == strlen(id);
    if (is_fine)
        snprintf(exec->id, sizeof exec->id, "%s", id);
    json_decref(answer);
    return is_fine ? MT_OK
                   : mt_fail(error, MT_EFORMAT, MT_NO_OFFSET, "%s: its answer names no program",
                             exec->container->socket);
}

static int create(struct mt_container_exec *exec, const char *const *argv, const char *user,
                  struct mt_error *error)
{
    char path[160];
    json_t *question = question_of(argv, user);
    char *body = question ? json_dumps(question, JSON_COMPACT) : NULL;
    struct mt_http_response response;
    json_decref(question);
    if (!body)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "the program's words must be UTF-8 text");
    snprintf(path, sizeof path, "/containers/%s/exec", exec->container->id);
    const struct mt_http_request request = {.url = path, .body = body, .timeout_ms = START_MS};
    int code = mt_container_ask(exec->container->socket, &request, &response, error);
    free(body);
    if (code != MT_OK)
        return code;
    code = take_id(exec, &response, error);
    mt_http_response_finish(&response);
    return code;
}

static int connect_to(const char *socket_path, struct mt_error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address) < 0) {
        int failed = errno;
        if (fd >= 0)
            close(fd);
        return mt_fail_errno(error, failed, "%s", socket_path);
    }
    return fd;
}

static int send_all(int fd, const char *bytes, size_t n)
{
    while (n) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return 0;
        bytes += sent;
        n -= (size_t)sent;
    }
    return 1;
}

/* Waits for bytes until `until_ns`. Returns how many there are, 0 at the end, -1 where none came.
 */
static ssize_t receive(int fd, uint64_t until_ns, char *bytes, size_t n)
{
    for (;;) {
        uint64_t now_ns = mt_monotonic_ns();
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        int wait_ms = now_ns < until_ns ? (int)((until_ns - now_ns) / 1000000 + 1) : 0;
        int some = poll(&ready, 1, wait_ms);
        if (some > 0) {
            ssize_t got = recv(fd, bytes, n, 0);
            if (got >= 0 || errno != EINTR)
                return got > 0 ? got : 0;
        } else if (some == 0) {
            return -1;
        } else if (errno != EINTR) {
            return 0;
        } else {
            return -1; /* a signal: the caller may want to know */
        }
    }
}

/* Reads the answer's headers; what comes behind them is the program's. */
static int read_answer(struct mt_container_exec *exec, struct mt_error *error)
{
    char *text = exec->early;
    size_t n = 0;
    char *end = NULL;
    int status = 0;
    uint64_t until_ns = mt_monotonic_ns() + (uint64_t)START_MS * 1000000;
    while (!end && n < HEADER_MAX - 1 && mt_monotonic_ns() < until_ns) {
        ssize_t got = receive(exec->fd, until_ns, text + n, HEADER_MAX - 1 - n);
        if (got == 0)
            break;
        n += got > 0 ? (size_t)got : 0;
        end = memmem(text, n, "\r\n\r\n", 4);
    }
    text[n] = '\0';
    if (!end || sscanf(text, "HTTP/1.%*1[01] %d", &status) != 1)
        return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET, "%s: no answer to the start of a program",
                       exec->container->socket);
    end += 4;
    exec->n_early = n - (size_t)(end - text);
    if (status != 101 && status != 200) {
        const struct mt_http_response response = {status, end, exec->n_early};
        return mt_container_complain(&response, "starting a program in the container", error);
    }
    memmove(text, end, exec->n_early);
    return MT_OK;
}

static int begin(struct mt_container_exec *exec, struct mt_error *error)
{
    static const char body[] = "{\"Detach\":false,\"Tty\":false}";
    char request[512];
    int n = snprintf(request, sizeof request,
                     "POST /exec/%s/start HTTP/1.1\r\nHost: localhost\r\n"
                     "Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     exec->id, sizeof body - 1, body);
    exec->fd = connect_to(exec->container->socket, error);
    if (exec->fd < 0)
        return exec->fd;
    if (!send_all(exec->fd, request, (size_t)n))
        return mt_fail(error, MT_ETRUNCATED, MT_NO_OFFSET, "%s closed the connection",
                       exec->container->socket);
    return read_answer(exec, error);
}

int mt_container_exec_start(const struct mt_container *container, const char *const *argv,
                            const char *user, struct mt_container_exec **exec,
                            struct mt_error *error)
{
    struct mt_container_exec *made = calloc(1, sizeof *made);
    if (!made)
        return mt_out_of_memory(error);
    made->container = container;
    made->fd = -1;
    int code = create(made, argv, user, error);
    if (code == MT_OK)
        code = begin(made, error);
    if (code != MT_OK) {
        mt_container_exec_close(made);
        return code;
    }
    *exec = made;
    return MT_OK;
}

/* ---- the stream ---- */

struct taker {
    void (*take)(void *context, int stream, const char *bytes, size_t n);
    void *context;
};

/* Divides bytes into what the frames before them say. Returns 0 where that makes no sense. */
static int divide(struct mt_container_exec *exec, const char *bytes, size_t n,
                  const struct taker *taker)
{
    const unsigned char *frame = exec->frame;
    while (n) {
        if (!exec->left) {
            exec->frame[exec->n_frame++] = (unsigned char)*bytes++;
            n--;
            if (exec->n_frame < FRAME)
                continue;
            exec->n_frame = 0;
            exec->left =
                (size_t)frame[4] << 24 | (size_t)frame[5] << 16 | (size_t)frame[6] << 8 | frame[7];
            if (frame[0] > 2)
                return 0;
            continue;
        }
        size_t piece = exec->left < n ? exec->left : n;
        taker->take(taker->context, frame[0], bytes, piece);
        exec->left -= piece;
        bytes += piece;
        n -= piece;
    }
    return 1;
}

int mt_container_exec_read(struct mt_container_exec *exec, int timeout_ms,
                           void (*take)(void *context, int stream, const char *bytes, size_t n),
                           void *context, struct mt_error *error)
{
    char bytes[8192];
    const struct taker taker = {take, context};
    uint64_t until_ns = mt_monotonic_ns() + (uint64_t)timeout_ms * 1000000;
    ssize_t got = -1;
    int is_fine = divide(exec, exec->early, exec->n_early, &taker);
    exec->n_early = 0;
    do {
        got = is_fine ? receive(exec->fd, until_ns, bytes, sizeof bytes) : -1;
        if (got > 0)
            is_fine = divide(exec, bytes, (size_t)got, &taker);
    } while (is_fine && got > 0 && mt_monotonic_ns() < until_ns);
    if (!is_fine)
        return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET,
                       "%s: the program's output does not come as Docker's engine sends it",
                       exec->container->socket);
    if (got == 0 && (exec->left || exec->n_frame))
        return mt_fail(error, MT_ETRUNCATED, MT_NO_OFFSET,
                       "%s: the connection to the program was closed early",
                       exec->container->socket);
    return got != 0;
}

void mt_container_exec_write(struct mt_container_exec *exec, const void *bytes, size_t n)
{
    send_all(exec->fd, bytes, n);
}

void mt_container_exec_end_input(struct mt_container_exec *exec)
{
    shutdown(exec->fd, SHUT_WR);
}

int mt_container_exec_status(const struct mt_container_exec *exec)
{
    char path[160];
    const struct mt_http_request request = {.url = path};
    json_t *said = NULL;
    int status = 0;
    snprintf(path, sizeof path, "/exec/%s/json", exec->id);
    if (mt_container_ask_json(exec->container->socket, &request, &status, &said, NULL) != MT_OK)
        return -1;
    const json_t *code = json_object_get(said, "ExitCode");
    int result = status == 200 && json_is_integer(code) ? (int)json_integer_value(code) : -1;
    json_decref(said);
    return result;
}

void mt_container_exec_close(struct mt_container_exec *exec)
{
    if (!exec)
        return;
    if (exec->fd >= 0)
        close(exec->fd);
    free(exec);
}
