/* SPDX-License-Identifier: MIT */
/* Stands for llama-server in an image: -m FILE --port N maps the file and touches all of it, holds
 * 24 MiB, and answers what a profile asks. With FAILS in its environment and no --keeps among its
 * arguments it ends with status 9; with HANGS it answers no completion. It says when SIGINT ends
 * it, on its standard error. With --version it just ends. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define HELD ((size_t)24 << 20)

static const char *argument(int argc, char **argv, const char *name)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return NULL;
}

static int load(const char *path)
{
    struct stat status;
    int fd = path ? open(path, O_RDONLY) : -1;
    volatile char *held = malloc(HELD);
    if (fd < 0 || !held || fstat(fd, &status) < 0)
        return 0;
    volatile char *file = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED)
        return 0;
    for (size_t i = 0; i < (size_t)status.st_size; i += 4096)
        (void)file[i];
    for (size_t i = 0; i < HELD; i += 4096)
        held[i] = 1;
    return 1;
}

static const char *answer_to(const char *question)
{
    if (strstr(question, "POST /tokenize"))
        return "{\"tokens\": [1, 2, 3]}";
    if (strstr(question, "POST /completion"))
        return "{\"timings\": {\"prompt_n\": 3, \"prompt_ms\": 2.0, \"predicted_n\": 4, "
               "\"predicted_ms\": 3.0}}";
    return "{\"status\": \"ok\"}";
}

/* A question is whole when its body is. */
static int is_whole(const char *question, size_t n)
{
    const char *end = strstr(question, "\r\n\r\n");
    const char *length = strcasestr(question, "content-length:");
    size_t body = length && length < end ? strtoul(length + 15, NULL, 10) : 0;
    return end && n >= (size_t)(end + 4 - question) + body;
}

static void *serve(void *context)
{
    static const char *const form =
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s";
    char question[8192] = "";
    int fd = (int)(long)context;
    size_t n = 0;
    for (ssize_t got = 1; got > 0 && !is_whole(question, n) && n < sizeof question - 1;) {
        got = recv(fd, question + n, sizeof question - 1 - n, 0);
        n += got > 0 ? (size_t)got : 0;
        question[n] = '\0';
    }
    const char *answer = answer_to(question);
    if (getenv("HANGS") && strstr(question, "POST /completion"))
        pause();
    dprintf(fd, form, strlen(answer), answer);
    close(fd);
    return NULL;
}

static void tell(int number)
{
    static const char said[] = "interrupted\n";
    ssize_t n = write(STDERR_FILENO, said, sizeof said - 1);
    _exit(n > 0 ? number : 1);
}

int main(int argc, char **argv)
{
    const char *port = argument(argc, argv, "--port");
    struct sockaddr_in address = {.sin_family = AF_INET};
    const int yes = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (getenv("FAILS") && !argument(argc, argv, "--keeps")) {
        fprintf(stderr, "the model is not to my taste\n");
        return 9;
    }
    signal(SIGINT, tell);
    if (argument(argc, argv, "--version"))
        return 0;
    address.sin_port = htons((unsigned short)(port ? atoi(port) : 0));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (!load(argument(argc, argv, "-m")) ||
        bind(fd, (const struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 16) < 0)
        return 1;
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        pthread_t thread;
        long client = accept(fd, NULL, NULL);
        if (client >= 0 && pthread_create(&thread, NULL, serve, (void *)client) == 0)
            pthread_detach(thread);
    }
}
