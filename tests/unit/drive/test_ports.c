/* SPDX-License-Identifier: MIT */
/* Listening ports of a process tree, on the real /proc and on a made one. */
#include "tests/support/unit.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drive/ports.h"

#define PORT_OF_OTHERS 10000

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
    size_t n = mt_drive_listening_ports("/proc", getpid(), ports, 8);
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
    assert_int_equal(mt_drive_listening_ports("/proc", getpid(), ports, 8), 0);
}

static void test_a_proc_that_is_not_there_has_no_ports(void **state)
{
    int ports[8];
    (void)state;
    assert_int_equal(mt_drive_listening_ports("/nowhere", getpid(), ports, 8), 0);
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
    size_t n = mt_drive_listening_ports("/proc", getpid(), ports, 8);
    let_go(child, end_pipe);
    assert_int_equal(n, 1); /* once, though two processes hold it */
    assert_int_equal(ports[0], listening);
}

static void write_at(int folder, const char *name, const char *text)
{
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

/* A process of a made /proc; with `inode`, it holds that socket. */
static void make_process(int proc, int pid, int parent, int inode)
{
    char name[64];
    char text[64];
    snprintf(name, sizeof name, "%d", pid);
    assert_int_equal(mkdirat(proc, name, 0700), 0);
    snprintf(name, sizeof name, "%d/stat", pid);
    snprintf(text, sizeof text, "%d (made) S %d 1 1", pid, parent);
    write_at(proc, name, text);
    if (!inode)
        return;
    snprintf(name, sizeof name, "%d/fd", pid);
    assert_int_equal(mkdirat(proc, name, 0700), 0);
    snprintf(name, sizeof name, "%d/fd/3", pid);
    snprintf(text, sizeof text, "socket:[%d]", inode);
    assert_int_equal(symlinkat(text, proc, name), 0);
}

/* One in a hundred of 6400 processes is a child with a port of its own. */
static void test_a_machine_of_thousands_of_processes_hides_none(void **state)
{
    enum { PROCESSES = 6400, CHILDREN = 64, FIRST_PID = 1000, FIRST_PORT = 20000 };
    (void)state;
    char path[] = "/tmp/memtally-test-ports-XXXXXX";
    char table[CHILDREN * 128] = "  sl  local_address\n";
    int ports[2 * CHILDREN];
    assert_non_null(mkdtemp(path));
    int proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < PROCESSES; i++) {
        int is_child = i % (PROCESSES / CHILDREN) == 0;
        make_process(proc, FIRST_PID + i, is_child ? 77 : 1, is_child ? FIRST_PORT + i : 0);
        size_t used = strlen(table);
        if (is_child)
            snprintf(table + used, sizeof table - used,
                     " 0: 0100007F:%04X 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 "
                     "0 %d\n",
                     FIRST_PORT + i, FIRST_PORT + i);
    }
    assert_int_equal(mkdirat(proc, "net", 0700), 0);
    write_at(proc, "net/tcp", table);
    size_t n = mt_drive_listening_ports(path, 77, ports, 2 * CHILDREN);
    close(proc);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", path);
    assert_int_equal(system(command), 0);
    assert_int_equal(n, CHILDREN);
}

/* Both sides of a connection have ports, too. The kernel's tables say 0A of a socket that listens;
 * 01 is established, 02 and 06 are the start and the end of a connection. */
static void test_a_port_of_a_connection_is_none_that_listens(void **state)
{
    static const char *const states[] = {"01", "02", "0A", "06"};
    enum { FIRST_PID = 1000, FIRST_INODE = 500, FIRST_PORT = 20000 };
    (void)state;
    char path[] = "/tmp/memtally-test-ports-XXXXXX";
    char table[1024] = "  sl  local_address\n";
    char command[64];
    int ports[8];
    assert_non_null(mkdtemp(path));
    int proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 4; i++) {
        size_t used = strlen(table);
        make_process(proc, FIRST_PID + i, 77, FIRST_INODE + i);
        snprintf(table + used, sizeof table - used,
                 " %d: 0100007F:%04X 00000000:0000 %s 00000000:00000000 00:00000000 00000000 0 0 "
                 "%d\n",
                 i, FIRST_PORT + i, states[i], FIRST_INODE + i);
    }
    assert_int_equal(mkdirat(proc, "net", 0700), 0);
    write_at(proc, "net/tcp", table);
    size_t n = mt_drive_listening_ports(path, 77, ports, 8);
    close(proc);
    snprintf(command, sizeof command, "rm -r %s", path);
    assert_int_equal(system(command), 0);
    assert_int_equal(n, 1);
    assert_int_equal(ports[0], FIRST_PORT + 2);
}

/* A made /proc whose kernel gives ports from `low` to `high`, and the port that is found with it.
 */
static int free_port_beside(int low, int high)
{
    char path[] = "/tmp/memtally-test-ports-XXXXXX";
    char text[64];
    assert_non_null(mkdtemp(path));
    int proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(proc, "sys", 0700), 0);
    assert_int_equal(mkdirat(proc, "sys/net", 0700), 0);
    assert_int_equal(mkdirat(proc, "sys/net/ipv4", 0700), 0);
    snprintf(text, sizeof text, "%d\t%d\n", low, high);
    write_at(proc, "sys/net/ipv4/ip_local_port_range", text);
    int port = mt_drive_free_port(path);
    close(proc);
    snprintf(text, sizeof text, "rm -r %s", path);
    assert_int_equal(system(text), 0);
    return port;
}

/* What connects or listens without a port of its own meanwhile would get one of those. */
static void test_a_free_port_is_none_that_the_kernel_gives(void **state)
{
    (void)state;
    for (int i = 0; i < 32; i++) {
        assert_in_range(free_port_beside(20000, 60999), 10000, 65535);
        assert_not_in_range(free_port_beside(20000, 60999), 20000, 60999);
        assert_in_range(free_port_beside(10064, 65535), 10000, 10063);
        assert_in_range(free_port_beside(1024, 65533), 65534, 65535);
        assert_in_range(free_port_beside(1024, 4999), 10000, 65535);
    }
}

/* Docker, for one, leaves no others to a container that asks for all. */
static void test_where_the_kernel_gives_all_ports_it_gives_one(void **state)
{
    (void)state;
    assert_in_range(free_port_beside(1024, 65535), 1024, 65535);
}

static void test_without_a_range_it_is_the_kernels_own_default(void **state)
{
    (void)state;
    for (int i = 0; i < 32; i++) {
        int port = mt_drive_free_port("/nowhere");
        assert_in_range(port, 10000, 65535);
        assert_not_in_range(port, 32768, 60999);
    }
}

/* The only port that is left is another's, be it at one address alone. */
static void test_a_port_that_another_has_is_not_free(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(PORT_OF_OTHERS),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)!bind(fd, (struct sockaddr *)&address, sizeof address); /* or somebody else has it */
    int port = free_port_beside(PORT_OF_OTHERS + 1, 65535);
    close(fd);
    assert_int_not_equal(port, PORT_OF_OTHERS);
    assert_int_not_equal(port, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_childs_listening_port_is_found_and_no_other),
        cmocka_unit_test(test_nobody_listens_when_the_child_is_gone),
        cmocka_unit_test(test_a_proc_that_is_not_there_has_no_ports),
        cmocka_unit_test(test_a_grandchild_counts),
        cmocka_unit_test(test_a_machine_of_thousands_of_processes_hides_none),
        cmocka_unit_test(test_a_port_of_a_connection_is_none_that_listens),
        cmocka_unit_test(test_a_free_port_is_none_that_the_kernel_gives),
        cmocka_unit_test(test_where_the_kernel_gives_all_ports_it_gives_one),
        cmocka_unit_test(test_without_a_range_it_is_the_kernels_own_default),
        cmocka_unit_test(test_a_port_that_another_has_is_not_free),
    };
    return RUN_TESTS(tests);
}
