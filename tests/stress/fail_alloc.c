/* SPDX-License-Identifier: MIT */
/* Preloaded: the FAIL_ALLOC-th allocation of a process gets no memory, where the process is called
 * FAIL_ALLOC_IN. FAIL_ALLOC_COUNT is a file that gets how many there were. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *block, size_t size);

static unsigned long n_calls, failing_call;
static int is_on;

__attribute__((constructor)) static void begin(void)
{
    const char *number = getenv("FAIL_ALLOC");
    const char *name = getenv("FAIL_ALLOC_IN");
    is_on = number && name && strcmp(program_invocation_short_name, name) == 0;
    failing_call = number ? strtoul(number, NULL, 10) : 0;
}

__attribute__((destructor)) static void end(void)
{
    char text[32];
    const char *path = getenv("FAIL_ALLOC_COUNT");
    int fd = is_on && path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    int length = snprintf(text, sizeof text, "%lu\n", n_calls);
    if (fd >= 0 && write(fd, text, (size_t)length) == length)
        close(fd);
}

static int fails(void)
{
    if (!is_on || __atomic_add_fetch(&n_calls, 1, __ATOMIC_RELAXED) != failing_call)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *block, size_t size)
{
    return fails() ? NULL : __libc_realloc(block, size);
}
