/* SPDX-License-Identifier: MIT */
/* Holds memory and says so: held MIB [FILE...] [-- WORD...] maps MIB of nothing and all of each
 * FILE, touches all of it, writes "ready" and waits for the end of its standard input. With FORK=1
 * in its environment a child does the same again; with EXEC=PROGRAM it becomes that at the end of
 * the first line of its input. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void touch(volatile char *at, size_t n, int is_written)
{
    for (size_t i = 0; i < n; i += 4096) {
        char byte = at[i];
        if (is_written)
            at[i] = (char)(byte + 1);
    }
}

static int hold_nothing(const char *mib)
{
    size_t n = strtoul(mib, NULL, 10) << 20;
    char *bytes = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED)
        return 1;
    touch(bytes, n, 1);
    return 0;
}

static int hold_file(const char *path)
{
    struct stat status;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &status) < 0)
        return 1;
    char *file = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED)
        return 1;
    touch(file, (size_t)status.st_size, 0);
    return 0;
}

int main(int argc, char **argv)
{
    char line[64];
    const char *also = getenv("ALSO");
    if (argc < 2 || hold_nothing(argv[1]) ||
        (argv[2] && strcmp(argv[2], "--") != 0 && hold_file(argv[2])) || (also && hold_file(also)))
        return 1;
    if (getenv("FORK") && fork() == 0 && hold_nothing(argv[1]))
        return 1;
    dprintf(1, "ready\n");
    const char *next = getenv("EXEC");
    if (next && read(0, line, 1) == 1) {
        unsetenv("EXEC");
        execl(next, next, "5", (char *)NULL);
    }
    while (read(0, line, sizeof line) > 0)
        continue;
    return 7;
}
