/* SPDX-License-Identifier: MIT */
/* Containers by the names of control groups, for engines that have no socket to ask: containerd,
 * CRI-O, and Docker and Podman where their socket may not be opened. */
#include <limits.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "container/internal.h"
#include "device/host.h"

#define DIGITS    (MT_CONTAINER_ID - 1)
#define LEAST_ID  12 /* digits of an id that engines show */
#define TEXT_SIZE 8192

/* What stands before an id in a control group's name. A bare id is Docker's or containerd's, by the
 * folder that it is in. */
static const struct {
    const char *prefix;
    const char *engine;
} prefixes[] = {
    {"docker-", "Docker"},
    {"libpod-", "Podman"},
    {"cri-containerd-", "containerd"},
    {"crio-", "CRI-O"},
    {"/docker/", "Docker"},
    {"nerdctl-", "containerd"},
    {"cri-containerd:", "containerd"},
};

static int is_digit(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

static const char *engine_before(const char *line, const char *id)
{
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t length = strlen(prefixes[i].prefix);
        if ((size_t)(id - line) >= length && memcmp(id - length, prefixes[i].prefix, length) == 0)
            return prefixes[i].engine;
    }
    return id > line && id[-1] == '/' ? "containerd" : NULL;
}

/* The last id of the line is the innermost container's. */
int mt_container_of_group(const char *line, size_t n, char id[MT_CONTAINER_ID], char engine[32])
{
    int found = 0;
    size_t run = 0;
    for (size_t i = 0; i <= n; i++) {
        if (i < n && is_digit(line[i])) {
            run++;
            continue;
        }
        const char *start = line + i - run;
        const char *by = run == DIGITS ? engine_before(line, start) : NULL;
        run = 0;
        if (!by)
            continue;
        memcpy(id, start, DIGITS);
        id[DIGITS] = '\0';
        snprintf(engine, 32, "%s", by);
        found = 1;
    }
    return found;
}

struct search {
    const struct mt_host_os *os;
    const char *name;
    struct mt_container *container;
    uint64_t start_ticks; /* of the process that was found */
};

/* The first of its processes is the one that began first; numbers may have begun anew since. */
static int is_earlier(struct search *search, int pid)
{
    struct mt_process seen;
    if (mt_process_read(search->os, pid, &seen, NULL) < 0)
        return 0;
    int is_first = !search->container->pid || seen.start_ticks < search->start_ticks ||
                   (seen.start_ticks == search->start_ticks && pid < search->container->pid);
    if (is_first)
        search->start_ticks = seen.start_ticks;
    return is_first;
}

static int look(void *context, const char *entry)
{
    struct search *search = context;
    struct mt_container *container = search->container;
    char path[PATH_MAX];
    char text[TEXT_SIZE];
    char id[MT_CONTAINER_ID];
    char engine[32];
    long pid = strtol(entry, NULL, 10);
    if (*entry < '1' || *entry > '9' || pid <= 0 || pid > INT_MAX)
        return 0;
    snprintf(path, sizeof path, "/proc/%ld/cgroup", pid);
    long n = search->os->read_file(search->os->context, path, text, sizeof text);
    if (n <= 0 || !mt_container_of_group(text, (size_t)n, id, engine) ||
        strncmp(id, search->name, strlen(search->name)) != 0 || !is_earlier(search, (int)pid))
        return 0;
    container->pid = (int)pid;
    snprintf(container->id, sizeof container->id, "%s", id);
    snprintf(container->engine, sizeof container->engine, "%s", engine);
    return 0;
}

int mt_container_find_group(const char *name, struct mt_container *container)
{
    struct mt_host_os os;
    struct search search = {&os, name, container, 0};
    size_t length = strlen(name);
    if (length < LEAST_ID || length > DIGITS || strspn(name, "0123456789abcdef") != length)
        return 0;
    mt_host_os_init(&os);
    container->limit_bytes = MT_UNKNOWN;
    return os.list(os.context, "/proc", look, &search) == 0 && container->pid > 0;
}

size_t mt_container_processes(const struct mt_container *container, int *pids, size_t size)
{
    struct mt_host_os os;
    struct mt_process_list list = {0};
    size_t n = 0;
    mt_host_os_init(&os);
    if (mt_process_group(&os, container->pid, container->id, &list, NULL) == 0)
        for (; n < list.n && n < size; n++)
            pids[n] = list.items[n].pid;
    mt_process_list_finish(&list);
    return n;
}
