/* SPDX-License-Identifier: MIT */
/* CUDA graphs of a folder: of a rehearsal, whose account says what devices gave, of a recording, or
 * of traces alone. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <memtally/error_code.h>
#include <memtally/graphs.h>
#include <memtally/recording.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pytorch/graphs.h"
#include "pytorch/torch.h"
#include "rehearse/rehearsal.h"
#include "tally/graph_source.h"

/* ---- an account that nobody writes any more ---- */

/* A map of the file would end the reader if somebody cut the file: it is read. */
static int read_at(int fd, void *bytes, size_t n, size_t offset)
{
    while (n) {
        ssize_t got = TEMP_FAILURE_RETRY(pread(fd, bytes, n, (off_t)offset));
        if (got <= 0)
            return 0;
        bytes = (char *)bytes + got;
        n -= (size_t)got;
        offset += (size_t)got;
    }
    return 1;
}

static int is_ours(const struct mt_account *account)
{
    return memcmp(account->magic, MT_ACCOUNT_MAGIC, sizeof account->magic) == 0 &&
           account->format == MT_ACCOUNT_FORMAT && account->n_devices <= MT_ACCOUNT_DEVICES_MAX;
}

/* All but the rows of processes, and of events those that there are. */
static int read_account(int fd, struct mt_account *account)
{
    const size_t events = offsetof(struct mt_account, event);
    if (!read_at(fd, account, events, 0) || !is_ours(account))
        return 0;
    uint64_t n = account->n_events;
    n = n < MT_ACCOUNT_EVENTS_MAX ? n : MT_ACCOUNT_EVENTS_MAX;
    return read_at(fd, account->event, (size_t)n * sizeof *account->event, events);
}

/* NULL where there is no account in the folder, or none of this version; mt_account_unmap() it. */
static struct mt_account *open_account(const char *directory)
{
    char path[PATH_MAX];
    struct stat status;
    struct mt_account *account = MAP_FAILED;
    if (snprintf(path, sizeof path, "%s/account", directory) >= PATH_MAX)
        return NULL;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == sizeof *account)
        account = mmap(NULL, sizeof *account, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (account != MAP_FAILED && !read_account(fd, account)) {
        mt_account_unmap(account);
        account = MAP_FAILED;
    }
    close(fd);
    return account == MAP_FAILED ? NULL : account;
}

/* ---- what it says ---- */

static void tell(void *context, struct mt_torch *torch)
{
    const struct mt_account_reader *reader = context;
    for (size_t i = 0; i < reader->n_told; i++) {
        const struct mt_purpose *told = &reader->told[i];
        mt_torch_usage(torch, told->pid, told->object, told->bytes, told->time_ns, told->category,
                       told->name);
    }
}

static int is_of_device(const struct mt_rehearsal_event *event)
{
    return event->kind == MT_REHEARSAL_ALLOC && strcmp(event->place, "host") != 0 &&
           !(event->flags & (MT_REHEARSAL_MAPPED | MT_REHEARSAL_PLANNED));
}

/* What the driver takes for contexts and nodes is not a library's. What it gave out for whatever
 * the program wants has an address, by which PyTorch's allocator is told apart. */
static int list(void *context, struct mt_graph_takings *takings)
{
    const struct mt_account_reader *reader = context;
    const struct mt_noted *noted;
    for (size_t i = 0; (noted = mt_account_reader_at(reader, i)) != NULL; i++) {
        const struct mt_rehearsal_event *event = &noted->event;
        int is_open = !event->category || noted->was_told;
        const struct mt_graph_taking taking = {event->pid,
                                               reader->account->start_ns + event->time_ns,
                                               is_open ? noted->object : 0, event->bytes};
        if (!is_of_device(event) || event->category == MT_CATEGORY_GRAPHS ||
            (event->category == MT_CATEGORY_CONTEXT && strcmp(event->name, "context") == 0))
            continue;
        if (mt_graph_takings_add(takings, &taking) < 0)
            return MT_ENOMEM;
    }
    return 0;
}

/* Nothing is said where the list of events was full. */
static int total(void *context, uint64_t ns, uint64_t *bytes)
{
    const struct mt_account_reader *reader = context;
    const struct mt_noted *noted;
    uint64_t sum = 0;
    size_t end = 0;
    if (mt_account_is_full(reader->account))
        return 0;
    for (size_t i = 0; (noted = mt_account_reader_at(reader, i)) != NULL; i++)
        if (reader->account->start_ns + noted->event.time_ns <= ns)
            end = i + 1;
    for (size_t i = 0; i < end; i++) {
        noted = mt_account_reader_at(reader, i);
        if (is_of_device(&noted->event) && noted->freed_at >= end &&
            __builtin_add_overflow(
                sum, mt_account_held(&reader->account->rules, noted->event.bytes), &sum))
            return 0;
    }
    *bytes = sum;
    return 0;
}

static int read_with_account(const char *directory, struct mt_account *account,
                             struct mt_graphs **graphs, struct mt_error *error)
{
    struct mt_account_reader reader = {.account = account};
    const struct mt_graph_source source = {&reader, tell, list, total};
    mt_account_reader_read(&reader, UINT64_MAX, 1);
    int result = mt_graphs_make(directory, reader.out_of_memory ? NULL : &source, graphs, error);
    mt_account_reader_finish(&reader);
    return result;
}

int mt_graphs_read(const char *directory, struct mt_graphs **graphs, struct mt_error *error)
{
    struct mt_recording *recording = NULL;
    struct mt_account *account = open_account(directory);
    if (account) {
        int result = read_with_account(directory, account, graphs, error);
        mt_account_unmap(account);
        return result;
    }
    if (mt_recording_open(directory, &recording, NULL) < 0)
        return mt_graphs_make(directory, NULL, graphs, error);
    const struct mt_graph_source source = mt_graph_source_of_recording(recording);
    int result = mt_graphs_make(directory, &source, graphs, error);
    mt_recording_close(recording);
    return result;
}
