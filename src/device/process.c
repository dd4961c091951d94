/* SPDX-License-Identifier: MIT */
/* Processes as /proc shows them: who they are, whose children, what they hold. Reaches files
 * through struct mt_host_os only. */
#include "device/host.h"

#include <memtally/units.h>

#include "base/array.h"
#include "base/bisect.h"
#include "base/error.h"
#include "base/fail_errno.h"
#include "base/secrets.h"
#include "device/span.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Reads /proc/PID/NAME. Returns the number of bytes, or a negative errno. */
static long read_of(const struct mt_host_os *os, int pid, const char *name, char *bytes,
                    size_t capacity)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    return os->read_file(os->context, path, bytes, capacity);
}

static int fail_reading(struct mt_error *error, long result, int pid, const char *name)
{
    return mt_fail_errno(error, (int)-result, "cannot read /proc/%d/%s", pid, name);
}

/* ---- who ---- */

static void copy_name(const char *from, const char *end, struct mt_process *process)
{
    size_t length = (size_t)(end - from);
    if (length >= sizeof process->name)
        length = sizeof process->name - 1;
    memcpy(process->name, from, length);
    process->name[length] = '\0';
}

/* "12 (a ) name) S 1 …": the name may have anything in it, so it ends at the last parenthesis. */
static int parse_stat(struct mt_span text, int pid, struct mt_process *process)
{
    enum { STATE = 3, PARENT = 4, START = 22, STACK = 28 };
    size_t length = (size_t)(text.end - text.at);
    const char *open = memchr(text.at, '(', length);
    const char *close = memrchr(text.at, ')', length);
    if (!open || !close || close < open || text.end - close < 2)
        return 0;

    struct mt_process found = {.pid = pid};
    copy_name(open + 1, close, &found);
    struct mt_span rest = {close + 2, text.end};
    struct mt_span word;
    for (int field = STATE; field <= START; field++) {
        uint64_t value = 0;
        if (!mt_span_until(&rest, ' ', &word) || word.at == word.end)
            return 0;
        if (field == STATE)
            found.state = *word.at;
        else if ((field == PARENT || field == START) && !mt_span_number(&word, &value))
            return 0;
        if (field == PARENT)
            found.parent_pid = value <= INT_MAX ? (int)value : 0;
        else if (field == START)
            found.start_ticks = value;
    }
    for (int field = START + 1; field <= STACK && mt_span_until(&rest, ' ', &word); field++)
        if (field == STACK)
            (void)mt_span_number(&word, &found.stack_start);
    *process = found;
    return 1;
}

int mt_process_read(const struct mt_host_os *os, int pid, struct mt_process *process,
                    struct mt_error *error)
{
    char bytes[1024];
    long n = read_of(os, pid, "stat", bytes, sizeof bytes);
    if (n < 0)
        return fail_reading(error, n, pid, "stat");
    if (!parse_stat((struct mt_span){bytes, bytes + n}, pid, process))
        return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET, "/proc/%d/stat is not as expected", pid);
    return 0;
}

uint64_t mt_process_start_ns(const struct mt_host_os *os, const struct mt_process *process)
{
    uint64_t seconds = process->start_ticks / os->ticks_per_s;
    uint64_t rest = process->start_ticks % os->ticks_per_s;
    if (seconds >= UINT64_MAX / 1000000000u)
        return MT_UNKNOWN;
    return seconds * 1000000000u + rest * 1000000000u / os->ticks_per_s;
}

/* ---- tree ---- */

void mt_process_list_finish(struct mt_process_list *list)
{
    free(list->items);
    memset(list, 0, sizeof *list);
}

static int make_room(struct mt_process_list *list, size_t n)
{
    if (n <= list->capacity)
        return 0;
    size_t capacity = list->capacity ? list->capacity * 2 : 512;
    while (capacity < n)
        capacity *= 2;
    struct mt_process *items = realloc(list->items, capacity * sizeof *items);
    if (!items)
        return MT_ENOMEM;
    list->items = items;
    list->capacity = capacity;
    return 0;
}

/* The process that an entry of /proc is about; 0 where it is about none. */
static int number_of(const char *name)
{
    struct mt_span text = {name, name + strlen(name)};
    uint64_t pid;
    if (*name < '0' || *name > '9' || !mt_span_number(&text, &pid) || text.at != text.end ||
        pid > INT_MAX)
        return 0;
    return (int)pid;
}

static int fail_to_scan(struct mt_error *error, int status)
{
    if (status == MT_ENOMEM)
        return mt_fail(error, status, MT_NO_OFFSET, "no memory for a list of processes");
    return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                   "/proc shows no processes; mount it with: mount -t proc proc /proc");
}

struct scan {
    const struct mt_host_os *os;
    struct mt_process_list *list;
    size_t n_seen; /* also those that could not be read */
    int status;
};

/* A process that ends during the scan, or is hidden from us, is left out. */
static int scan_entry(void *context, const char *name)
{
    struct scan *scan = context;
    int pid = number_of(name);
    if (!pid)
        return 0;
    scan->n_seen++;
    scan->status = make_room(scan->list, scan->list->n + 1);
    if (scan->status < 0)
        return 1;
    struct mt_process *process = &scan->list->items[scan->list->n];
    if (mt_process_read(scan->os, pid, process, NULL) == 0)
        scan->list->n++;
    return 0;
}

static int scan_all(const struct mt_host_os *os, struct mt_process_list *list,
                    struct mt_error *error)
{
    struct scan scan = {os, list, 0, 0};
    list->n = 0;
    int status = os->list(os->context, "/proc", scan_entry, &scan);
    return scan.status < 0 || status < 0 || !scan.n_seen ? fail_to_scan(error, scan.status) : 0;
}

static int note_number(void *context, const char *name)
{
    struct mt_process_numbers *numbers = context;
    int pid = number_of(name);
    if (!pid)
        return 0;
    if (mt_array_reserve(numbers->items, numbers->n, numbers->capacity, 512) < 0) {
        numbers->n = 0; /* a part would make the others seem to have ended */
        return 1;
    }
    numbers->items[numbers->n++] = pid;
    return 0;
}

static int by_number(const void *a, const void *b)
{
    const int *left = a;
    const int *right = b;
    return (*left > *right) - (*left < *right);
}

int mt_process_numbers_read(const struct mt_host_os *os, struct mt_process_numbers *numbers,
                            struct mt_error *error)
{
    numbers->n = 0;
    if (os->list(os->context, "/proc", note_number, numbers) < 0 || numbers->n == 0)
        return fail_to_scan(error, MT_EUNSUPPORTED);
    qsort(numbers->items, numbers->n, sizeof *numbers->items, by_number);
    return 0;
}

void mt_process_numbers_finish(struct mt_process_numbers *numbers)
{
    free(numbers->items);
    memset(numbers, 0, sizeof *numbers);
}

static int by_parent(const void *a, const void *b)
{
    const struct mt_process *left = a;
    const struct mt_process *right = b;
    if (left->parent_pid != right->parent_pid)
        return left->parent_pid < right->parent_pid ? -1 : 1;
    return (left->pid > right->pid) - (left->pid < right->pid);
}

/* The first of `n` processes, sorted by parent, whose parent is `pid` or comes after it. */
static size_t first_child(const struct mt_process *items, size_t n, int pid)
{
    struct mt_bisect place = {.end = n};
    while (mt_bisect_next(&place))
        mt_bisect_turn(&place, items[place.middle].parent_pid < pid);
    return place.first;
}

/* Collects the tree behind the `n` scanned processes, of which each has one parent and so comes at
 * most once; the bound holds for a list that contradicts itself, too. */
static size_t collect(struct mt_process *items, size_t n, int root_pid)
{
    struct mt_process *tree = items + n;
    size_t n_tree = 0;
    for (size_t i = 0; i < n && n_tree == 0; i++) {
        if (items[i].pid == root_pid)
            tree[n_tree++] = items[i];
    }
    for (size_t next = 0; next < n_tree; next++) {
        int parent = tree[next].pid;
        for (size_t i = first_child(items, n, parent); i < n && items[i].parent_pid == parent;
             i++) {
            if (items[i].pid != root_pid && n_tree < n)
                tree[n_tree++] = items[i];
        }
    }
    memmove(items, tree, n_tree * sizeof *items);
    return n_tree;
}

int mt_process_tree(const struct mt_host_os *os, int root_pid, struct mt_process_list *list,
                    struct mt_error *error)
{
    struct mt_process_list all = *list;
    int status = scan_all(os, &all, error);
    if (status == 0 && make_room(&all, 2 * all.n) < 0)
        status = mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory for a list of processes");
    if (status == 0) {
        qsort(all.items, all.n, sizeof *all.items, by_parent);
        all.n = collect(all.items, all.n, root_pid);
    } else {
        all.n = 0;
    }
    *list = all;
    return status;
}

/* ---- descendants ---- */

#define FEW_PROCESSES 256u /* a child is looked for among all that are known */
#define FEW_THREADS   256u /* each has a list of its own */

struct descent {
    const struct mt_host_os *os;
    struct mt_process_list *list;
    int parent;
    size_t n_threads; /* whose lists were read */
    int failed;       /* the kernel has no lists, or there is too much */
};

static int is_known(const struct mt_process_list *list, int pid)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i].pid == pid)
            return 1;
    return 0;
}

/* Whoever ends meanwhile, or is hidden from us, is left out. */
static void add_child(struct descent *descent, int pid)
{
    struct mt_process_list *list = descent->list;
    if (is_known(list, pid))
        return;
    if (list->n == FEW_PROCESSES || make_room(list, list->n + 1) < 0) {
        descent->failed = 1;
        return;
    }
    struct mt_process *child = &list->items[list->n];
    if (mt_process_read(descent->os, pid, child, NULL) < 0)
        return;
    if (!child->parent_pid) /* whose end its parent has just been told */
        child->parent_pid = descent->parent;
    list->n++;
}

static int add_children_of_thread(void *context, const char *thread)
{
    struct descent *descent = context;
    char path[64];
    char bytes[4096];
    uint64_t pid;
    if (*thread < '0' || *thread > '9')
        return 0;
    snprintf(path, sizeof path, "/proc/%d/task/%.16s/children", descent->parent, thread);
    long n = descent->os->read_file(descent->os->context, path, bytes, sizeof bytes);
    if (n == (long)sizeof bytes || ++descent->n_threads > FEW_THREADS)
        descent->failed = 1;
    struct mt_span text = {bytes, bytes + (n > 0 ? n : 0)};
    while (!descent->failed && mt_span_number(&text, &pid) && pid <= INT_MAX)
        add_child(descent, (int)pid);
    return descent->failed;
}

static int has_list_of_children(const struct mt_host_os *os, int pid)
{
    char name[32];
    char byte;
    snprintf(name, sizeof name, "task/%d/children", pid);
    return read_of(os, pid, name, &byte, 1) >= 0;
}

int mt_process_descendants(const struct mt_host_os *os, int root_pid, struct mt_process_list *list,
                           struct mt_error *error)
{
    struct descent descent = {.os = os, .list = list};
    list->n = 0;
    if (!has_list_of_children(os, root_pid))
        return mt_process_tree(os, root_pid, list, error);
    add_child(&descent, root_pid);
    for (size_t i = 0; i < list->n && !descent.failed; i++) {
        char path[32];
        descent.parent = list->items[i].pid;
        snprintf(path, sizeof path, "/proc/%d/task", descent.parent);
        os->list(os->context, path, add_children_of_thread, &descent);
    }
    return descent.failed ? mt_process_tree(os, root_pid, list, error) : 0;
}

/* ---- groups ---- */

static int is_in_group(const struct mt_host_os *os, int pid, const char *group)
{
    char bytes[8192];
    long n = read_of(os, pid, "cgroup", bytes, sizeof bytes);
    return n > 0 && memmem(bytes, (size_t)n, group, strlen(group)) != NULL;
}

/* Writes what the kernel calls the namespace that counts a process; "" where it may not be seen. */
static void name_namespace(const struct mt_host_os *os, const char *pid, char name[64])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/ns/pid", pid);
    long n = os->read_link(os->context, path, name, 63);
    name[n > 0 ? n : 0] = '\0';
}

static int is_in_namespace(const struct mt_host_os *os, int pid, const char *wanted)
{
    char number[16];
    char name[64];
    snprintf(number, sizeof number, "%d", pid);
    name_namespace(os, number, name);
    return strcmp(name, wanted) == 0;
}

static size_t keep(const struct mt_host_os *os, struct mt_process_list *list, const char *word,
                   int (*is_in)(const struct mt_host_os *os, int pid, const char *word))
{
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++)
        if (is_in(os, list->items[i].pid, word))
            list->items[n++] = list->items[i];
    return n;
}

static int by_start(const void *a, const void *b)
{
    const struct mt_process *left = a;
    const struct mt_process *right = b;
    if (left->start_ticks != right->start_ticks)
        return left->start_ticks < right->start_ticks ? -1 : 1;
    return (left->pid > right->pid) - (left->pid < right->pid);
}

int mt_process_group(const struct mt_host_os *os, int pid, const char *group,
                     struct mt_process_list *list, struct mt_error *error)
{
    char number[16];
    char theirs[64];
    char ours[64];
    int status = scan_all(os, list, error);
    if (status < 0) {
        list->n = 0;
        return status;
    }
    size_t n = keep(os, list, group, is_in_group);
    snprintf(number, sizeof number, "%d", pid);
    name_namespace(os, number, theirs);
    name_namespace(os, "self", ours);
    if (!n && (!*theirs || strcmp(theirs, ours) == 0))
        return mt_process_tree(os, pid, list, error);
    if (!n) /* nothing was kept, so nothing was moved */
        n = keep(os, list, theirs, is_in_namespace);
    list->n = n;
    if (n)
        qsort(list->items, n, sizeof *list->items, by_start);
    return status;
}

int mt_process_is_in_group(const struct mt_host_os *os, int pid, int root_pid, const char *group)
{
    char number[16];
    char theirs[64];
    char ours[64];
    if (is_in_group(os, pid, group))
        return 1;
    snprintf(number, sizeof number, "%d", root_pid);
    name_namespace(os, number, theirs);
    name_namespace(os, "self", ours);
    return !is_in_group(os, root_pid, group) && *theirs && strcmp(theirs, ours) != 0 &&
           is_in_namespace(os, pid, theirs);
}

/* ---- memory ---- */

uint64_t mt_process_resident_bytes(const struct mt_host_os *os, int pid)
{
    char bytes[256];
    uint64_t pages;
    uint64_t resident;
    long n = read_of(os, pid, "statm", bytes, sizeof bytes);
    struct mt_span text = {bytes, bytes + (n > 0 ? n : 0)};
    if (!mt_span_number(&text, &pages) || !mt_span_number(&text, &pages) ||
        __builtin_mul_overflow(pages, os->page_bytes, &resident))
        return MT_UNKNOWN;
    return resident;
}

#define MEMORY(member) offsetof(struct mt_process_memory, member)

static const struct mt_field memory_fields[] = {
    {"VmRSS", MEMORY(resident_bytes)},
    {"VmHWM", MEMORY(resident_peak_bytes)},
    {"RssAnon", MEMORY(anonymous_bytes)},
    {"RssFile", MEMORY(file_bytes)},
    {"RssShmem", MEMORY(shared_memory_bytes)},
    {"VmSwap", MEMORY(swap_bytes)},
    {"VmPTE", MEMORY(page_table_bytes)},
    {"HugetlbPages", MEMORY(hugetlb_bytes)},
    {"Threads", MEMORY(n_threads)},
};

int mt_process_memory_read(const struct mt_host_os *os, int pid, struct mt_process_memory *memory,
                           struct mt_error *error)
{
    /* A user in many groups has a long line of them before the sizes. */
    char bytes[12288];
    long n = read_of(os, pid, "status", bytes, sizeof bytes);
    if (n < 0)
        return fail_reading(error, n, pid, "status");
    memset(memory, 0xff, sizeof *memory);
    mt_span_fields((struct mt_span){bytes, bytes + n}, memory_fields, COUNT(memory_fields), memory);
    return 0;
}

/* ---- words ---- */

static int command_from_name(const struct mt_host_os *os, int pid, char *text, size_t capacity)
{
    struct mt_process process;
    int status = mt_process_read(os, pid, &process, NULL);
    if (status == 0)
        snprintf(text, capacity, "[%s]", process.name);
    return status;
}

static void replace_controls(char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
    }
}

int mt_process_command(const struct mt_host_os *os, int pid, char *text, size_t capacity)
{
    char bytes[4096];
    if (capacity == 0)
        return MT_EARG;
    long n = read_of(os, pid, "cmdline", bytes, sizeof bytes);
    if (n < 0)
        return mt_code_of_errno((int)-n);
    while (n > 0 && bytes[n - 1] == '\0')
        n--;
    if (n == 0) {
        int status = command_from_name(os, pid, text, capacity);
        if (status < 0)
            return status;
    } else {
        mt_join_arguments(bytes, (size_t)n, text, capacity);
    }
    replace_controls(text);
    return 0;
}

int mt_process_program(const struct mt_host_os *os, int pid, char *path, size_t capacity)
{
    char link[64];
    char target[PATH_MAX];
    snprintf(link, sizeof link, "/proc/%d/exe", pid);
    long n = os->read_link(os->context, link, target, sizeof target);
    if (n < 0)
        return mt_code_of_errno((int)-n);
    if ((size_t)n >= capacity || (size_t)n >= sizeof target)
        return MT_ELIMIT;
    memcpy(path, target, (size_t)n);
    path[n] = '\0';
    return 0;
}
