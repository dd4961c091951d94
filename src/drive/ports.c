/* SPDX-License-Identifier: MIT */
/* Finding listening sockets by /proc: descendants by their parents, their sockets by descriptors,
 * and the ports of these in the tables of the network. */
#include "ports.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define SOCKETS_MAX 256
#define TREE_DEPTH  16
#define PORT_MIN    10000 /* below are those of services */
#define PORT_MAX    65535
#define PORT_TRIES  64

struct process {
    pid_t pid;
    pid_t parent;
    int is_of_tree;
};

struct sockets {
    uint64_t inodes[SOCKETS_MAX];
    size_t n;
};

/* "123 (a name (of it)) S 1 …": the name may hold anything, and the last ")" ends it. */
const char *mt_drive_stat(const char *proc, pid_t pid, char text[MT_DRIVE_STAT_BYTES])
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%ld/stat", proc, (long)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return NULL;
    size_t length = fread(text, 1, MT_DRIVE_STAT_BYTES - 1, file);
    fclose(file);
    text[length] = '\0';
    const char *after = strrchr(text, ')');
    return after && after[1] ? after + 2 : NULL;
}

pid_t mt_drive_parent(const char *proc, pid_t pid)
{
    char text[MT_DRIVE_STAT_BYTES];
    long parent = 0;
    const char *stat = mt_drive_stat(proc, pid, text);
    return stat && sscanf(stat, "%*c %ld", &parent) == 1 ? (pid_t)parent : 0;
}

uint64_t mt_drive_start(const char *proc, pid_t pid)
{
    enum { STATE = 3, START = 22 };
    char text[MT_DRIVE_STAT_BYTES];
    const char *at = mt_drive_stat(proc, pid, text);
    for (int field = STATE; at && field < START; field++) {
        at = strchr(at, ' ');
        at += at != NULL;
    }
    return at ? strtoull(at, NULL, 10) : 0;
}

static int by_pid(const void *a, const void *b)
{
    const struct process *one = a;
    const struct process *other = b;
    return (one->pid > other->pid) - (one->pid < other->pid);
}

/* All processes there are, by their numbers; freed by the caller. */
static struct process *list_processes(const char *proc, size_t *n)
{
    struct process *processes = NULL;
    size_t room = 0;
    DIR *folder = opendir(proc);
    *n = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        if (*n == room) {
            room = room ? room * 2 : 512;
            struct process *more = realloc(processes, room * sizeof *more);
            if (!more)
                break;
            processes = more;
        }
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        processes[(*n)++] = (struct process){.pid = pid, .parent = mt_drive_parent(proc, pid)};
    }
    if (folder)
        closedir(folder);
    if (*n)
        qsort(processes, *n, sizeof *processes, by_pid);
    return processes;
}

static int is_of_tree(const struct process *processes, size_t n, pid_t pid)
{
    const struct process wanted = {.pid = pid};
    const struct process *found = bsearch(&wanted, processes, n, sizeof *processes, by_pid);
    return found && found->is_of_tree;
}

/* Marks the descendants of `root`, a generation at a time. */
static void mark_tree(struct process *processes, size_t n, pid_t root)
{
    int found = 1;
    for (int depth = 0; found && depth < TREE_DEPTH; depth++) {
        found = 0;
        for (size_t i = 0; i < n; i++) {
            struct process *process = &processes[i];
            if (process->is_of_tree ||
                (process->parent != root && !is_of_tree(processes, n, process->parent)))
                continue;
            process->is_of_tree = found = 1;
        }
    }
}

static void add_sockets(const char *proc, pid_t pid, struct sockets *sockets)
{
    char path[PATH_MAX];
    char target[64];
    snprintf(path, sizeof path, "%s/%ld/fd", proc, (long)pid);
    DIR *folder = opendir(path);
    if (!folder)
        return;
    for (struct dirent *entry; sockets->n < SOCKETS_MAX && (entry = readdir(folder));) {
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        if (length <= 0)
            continue;
        target[length] = '\0';
        if (sscanf(target, "socket:[%" SCNu64 "]", &sockets->inodes[sockets->n]) == 1)
            sockets->n++;
    }
    closedir(folder);
}

static int has_socket(const struct sockets *sockets, uint64_t inode)
{
    for (size_t i = 0; i < sockets->n; i++)
        if (sockets->inodes[i] == inode)
            return 1;
    return 0;
}

static size_t add_port(int *ports, size_t n, size_t size, int port)
{
    for (size_t i = 0; i < n; i++)
        if (ports[i] == port)
            return n;
    if (n < size)
        ports[n++] = port;
    return n;
}

/* "  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000  0 INODE …" */
static size_t read_table(const char *proc, const char *name, const struct sockets *sockets,
                         int *ports, size_t n, size_t size)
{
    char path[PATH_MAX];
    char line[512];
    snprintf(path, sizeof path, "%s/net/%s", proc, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return n;
    while (fgets(line, sizeof line, file)) {
        unsigned port = 0;
        unsigned state = 0;
        uint64_t inode = 0;
        int read =
            sscanf(line, " %*u: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*u %*u %" SCNu64,
                   &port, &state, &inode);
        if (read == 3 && state == TCP_LISTEN && has_socket(sockets, inode))
            n = add_port(ports, n, size, (int)port);
    }
    fclose(file);
    return n;
}

size_t mt_drive_descendants(const char *proc, pid_t root, pid_t *pids, size_t size)
{
    size_t n_all = 0;
    size_t n = 0;
    struct process *processes = list_processes(proc, &n_all);
    mark_tree(processes, n_all, root);
    for (size_t i = 0; i < n_all && n < size; i++)
        if (processes[i].is_of_tree)
            pids[n++] = processes[i].pid;
    free(processes);
    return n;
}

static size_t find_ports(const char *proc, pid_t root, int with_root, int *ports, size_t size)
{
    struct sockets sockets = {.n = 0};
    size_t n;
    struct process *processes = list_processes(proc, &n);
    mark_tree(processes, n, root);
    for (size_t i = 0; i < n; i++)
        if (processes[i].is_of_tree || (with_root && processes[i].pid == root))
            add_sockets(proc, processes[i].pid, &sockets);
    free(processes);
    if (sockets.n == 0)
        return 0;
    n = read_table(proc, "tcp", &sockets, ports, 0, size);
    return read_table(proc, "tcp6", &sockets, ports, n, size);
}

size_t mt_drive_listening_ports(const char *proc, pid_t root, int *ports, size_t size)
{
    return find_ports(proc, root, 0, ports, size);
}

size_t mt_drive_ports_of_tree(const char *proc, pid_t root, int *ports, size_t size)
{
    return find_ports(proc, root, 1, ports, size);
}

/* The ports from which the kernel takes one for a socket that names none. */
static void read_ephemeral(const char *proc, int *low, int *high)
{
    char path[PATH_MAX];
    *low = 32768;
    *high = 60999;
    snprintf(path, sizeof path, "%s/sys/net/ipv4/ip_local_port_range", proc);
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    int from;
    int to;
    if (fscanf(file, "%d %d", &from, &to) == 2 && from > 0 && from <= to && to <= PORT_MAX) {
        *low = from;
        *high = to;
    }
    fclose(file);
}

/* The port, or one that the kernel chooses for 0; 0 if another program has it at any address. */
static int try_port(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    int is_free = bind(fd, (struct sockaddr *)&address, length) == 0 &&
                  getsockname(fd, (struct sockaddr *)&address, &length) == 0;
    close(fd);
    return is_free ? ntohs(address.sin_port) : 0;
}

int mt_drive_free_port(const char *proc)
{
    int low;
    int high;
    read_ephemeral(proc, &low, &high);
    int n_below = low > PORT_MIN ? low - PORT_MIN : 0;
    int n = n_below + PORT_MAX - (high > PORT_MIN ? high : PORT_MIN - 1);
    for (int i = 0; n > 0 && i < PORT_TRIES; i++) {
        unsigned random = 0;
        if (getrandom(&random, sizeof random, 0) != sizeof random)
            break;
        int nth = (int)(random % (unsigned)n);
        int port = try_port(nth < n_below ? PORT_MIN + nth : PORT_MAX - (nth - n_below));
        if (port)
            return port;
    }
    return try_port(0);
}
