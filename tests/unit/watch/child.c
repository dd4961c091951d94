/* SPDX-License-Identifier: MIT */
/* A program to be watched. Each argument is a thing to do, in order:
 *
 *   touch=MIB     allocates so much and writes to all of it
 *   say=TEXT      writes a line to the standard output
 *   pid           writes its process id there
 *   get=NAME      writes what the environment has under NAME, and how often it is there
 *   fork          goes on in a child; the parent waits for it and exits with its status
 *   leave         goes on in a child; the parent exits with 0 at once
 *   stop          stops itself
 *   hold          reads the standard input until it ends
 *   user=ID       becomes that user and group for good
 *   exec=PROGRAM  becomes that program, with the arguments that follow
 *   exit=STATUS   kill=SIGNAL */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void touch(const char *mib)
{
    size_t size = (size_t)atoi(mib) << 20;
    volatile char *memory = malloc(size);
    for (size_t i = 0; memory && i < size; i += 1024)
        memory[i] = 1;
}

static void get(const char *name)
{
    size_t length = strlen(name);
    int count = 0;
    const char *value = getenv(name);
    for (char **variable = environ; *variable; variable++)
        count += strncmp(*variable, name, length) == 0 && (*variable)[length] == '=';
    printf("%s=%s %d\n", name, value ? value : "", count);
    fflush(stdout);
}

static void go_on_in_a_child(int wait_for_it)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0)
        return;
    if (wait_for_it)
        waitpid(pid, &status, 0);
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 100);
}

/* A test that fails leaves nobody stopped behind. */
static void stop(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    raise(SIGSTOP);
}

static void hold(void)
{
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
}

static int become(const char *id)
{
    unsigned number = (unsigned)atoi(id);
    return setgid(number) < 0 || setuid(number) < 0 ? -1 : 0;
}

static int is(const char *argument, const char *name, const char **value)
{
    size_t length = strlen(name);
    *value = argument + length;
    return strncmp(argument, name, length) == 0;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value;
        if (is(argv[i], "touch=", &value))
            touch(value);
        else if (is(argv[i], "say=", &value))
            dprintf(STDOUT_FILENO, "%s\n", value);
        else if (is(argv[i], "pid", &value))
            dprintf(STDOUT_FILENO, "%d\n", (int)getpid());
        else if (is(argv[i], "get=", &value))
            get(value);
        else if (is(argv[i], "fork", &value))
            go_on_in_a_child(1);
        else if (is(argv[i], "leave", &value))
            go_on_in_a_child(0);
        else if (is(argv[i], "stop", &value))
            stop();
        else if (is(argv[i], "hold", &value))
            hold();
        else if (is(argv[i], "user=", &value) && (become(value) < 0))
            return 98;
        else if (is(argv[i], "exec=", &value))
            return execv(value, argv + i), 99;
        else if (is(argv[i], "exit=", &value))
            return atoi(value);
        else if (is(argv[i], "kill=", &value))
            raise(atoi(value));
    }
    return 0;
}
