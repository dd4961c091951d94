/* SPDX-License-Identifier: MIT */
/* Listening ports of a process tree, on the real /proc. */
#include "tests/support/unit.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/rehearse/ports.h"

/* A socket on a free port of this machine, listening or only bound. */
static int open_port(int listens, int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    if (listens)
        assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

/* Processes, each the child of the one before, that hold what is open now; returns the first when
 * all are there. They end with the pipe, whatever becomes of the test. */
static pid_t hold(int depth, int end_pipe[2])
{
    int ready_pipe[2];
    char byte = 0;
    assert_int_equal(pipe(end_pipe), 0);
    assert_int_equal(pipe(ready_pipe), 0);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 1; i < depth; i++)
            if (fork() != 0)
                break;
        close(end_pipe[1]);
        (void)!write(ready_pipe[1], &byte, 1);
        (void)!read(end_pipe[0], &byte, 1);
        _exit(0);
    }
    for (int i = 0; i < depth; i++)
        assert_int_equal(read(ready_pipe[0], &byte, 1), 1);
    close(ready_pipe[0]);
    close(ready_pipe[1]);
    return child;
}

static void let_go(pid_t child, const int end_pipe[2])
{
    close(end_pipe[0]);
    close(end_pipe[1]);
    waitpid(child, NULL, 0);
}

static int has(const int *ports, size_t n, int port)
{
    for (size_t i = 0; i < n; i++)
        if (ports[i] == port)
            return 1;
    return 0;
}

static void test_a_childs_listening_port_is_found_and_no_other(void **state)
{
    int ports[8];
    int listening = 0;
    int bound = 0;
    int own = 0;
    (void)state;
    int one = open_port(1, &listening);
    int two = open_port(0, &bound);
    int end_pipe[2];
    pid_t child = hold(1, end_pipe);
    close(one);
    close(two);
    int three = open_port(1, &own);
    size_t n = rehearse_listening_ports("/proc", getpid(), ports, 8);
    let_go(child, end_pipe);
    close(three);
    assert_true(has(ports, n, listening));
    assert_false(has(ports, n, bound));
    assert_false(has(ports, n, own));
}

static void test_nobody_listens_when_the_child_is_gone(void **state)
{
    int ports[8];
    (void)state;
    assert_int_equal(rehearse_listening_ports("/proc", getpid(), ports, 8), 0);
}

static void test_a_proc_that_is_not_there_has_no_ports(void **state)
{
    int ports[8];
    (void)state;
    assert_int_equal(rehearse_listening_ports("/nowhere", getpid(), ports, 8), 0);
}

static void test_a_grandchild_counts(void **state)
{
    int ports[8];
    int listening = 0;
    (void)state;
    int fd = open_port(1, &listening);
    int end_pipe[2];
    pid_t child = hold(2, end_pipe);
    close(fd);
    size_t n = rehearse_listening_ports("/proc", getpid(), ports, 8);
    let_go(child, end_pipe);
    assert_int_equal(n, 1); /* once, though two processes hold it */
    assert_int_equal(ports[0], listening);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_childs_listening_port_is_found_and_no_other),
        cmocka_unit_test(test_nobody_listens_when_the_child_is_gone),
        cmocka_unit_test(test_a_proc_that_is_not_there_has_no_ports),
        cmocka_unit_test(test_a_grandchild_counts),
    };
    return RUN_TESTS(tests);
}
