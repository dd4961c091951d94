/* SPDX-License-Identifier: MIT */
/* What the machine says about host memory and processes: /proc, cgroups, PSI.
 *
 * All of it is seen through struct mt_host_os, so that a captured machine can be replayed. For
 * every function here: the text of the kernel's files is not trusted; a file or a field that is
 * missing gives MT_UNKNOWN, never 0; nothing is kept between calls; any thread. Functions that take
 * one sample allocate nothing, unless they say so. */
#ifndef MT_DEVICE_HOST_H
#define MT_DEVICE_HOST_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

struct mt_error;       /* <memtally/error.h> */
struct mt_host_sample; /* <memtally/host.h> */

/* The outside world of this room. Paths are absolute and as on the machine. */
struct mt_host_os {
    void *context;
    /* Reads the file from its start until its end or until `capacity` bytes are there. Returns the
     * number of bytes, or a negative errno. */
    long (*read_file)(void *context, const char *path, char *bytes, size_t capacity);
    /* The target of a symbolic link, not terminated. Returns its length, or a negative errno. */
    long (*read_link)(void *context, const char *path, char *bytes, size_t capacity);
    /* Calls each(each_context, name) for the entries of a directory until one returns non-zero.
     * Returns 0, or a negative errno where the directory cannot be read. */
    int (*list)(void *context, const char *path, int (*each)(void *each_context, const char *name),
                void *each_context);
    /* Opens a file that is read often, reads it from its start, closes it. NULL: there is none of
     * the three. Returns a descriptor, a number of bytes, or a negative errno. */
    int (*open_file)(void *context, const char *path);
    long (*read_open)(void *context, int fd, char *bytes, size_t capacity);
    void (*close_file)(void *context, int fd);
    /* Memory of the host that nothing uses, and all of it: what the kernel says soonest. 0, or a
     * negative errno. NULL: it has no such word. */
    int (*read_free)(void *context, uint64_t *free_bytes, uint64_t *total_bytes);
    uint64_t (*now_ns)(void *context); /* CLOCK_MONOTONIC */
    uint64_t page_bytes;
    uint64_t ticks_per_s; /* unit of the start times in /proc/PID/stat */
};

/* Sets *os to this machine. Nothing to finish. */
void mt_host_os_init(struct mt_host_os *os);

/* The cgroup that accounts for a process's memory. Its files are at directory/NAME; directory
 * starts with the hierarchy's mount point, which is mount_length bytes long. version 0: there is
 * none, or none that can be seen from here. */
struct mt_cgroup {
    int version;
    size_t mount_length;
    char directory[PATH_MAX];
};

/* Finds the cgroup of process `pid` (0: the caller). It may be kept while the process lives and is
 * not moved. Allocates for the time of the call. Takes about 50 microseconds. */
void mt_cgroup_find(const struct mt_host_os *os, int pid, struct mt_cgroup *cgroup);

/* Like mt_host_sample_take() for a cgroup that is already known (NULL: leave it unknown), on any
 * machine. Takes about 20 microseconds, 35 more with a cgroup. */
int mt_host_read(const struct mt_host_os *os, const struct mt_cgroup *cgroup,
                 struct mt_host_sample *sample, struct mt_error *error);

/* Says why /proc/meminfo could not be read, where `n` is a negative errno. */
int mt_host_fail_meminfo(long n, struct mt_error *error);

/* Sets every size to MT_UNKNOWN, shares of time below zero, and the cgroup to none. */
void mt_host_sample_unknown(struct mt_host_sample *sample);

/* Who a process is. A process id together with its start time names one process for good. */
struct mt_process {
    int pid;
    int parent_pid;
    char state;           /* as in ps: R S D Z T … */
    uint64_t start_ticks; /* after boot, in os->ticks_per_s */
    uint64_t stack_start; /* an address by chance for each exec, the same for forks; 0: not told */
    char name[64];        /* the kernel's short name; any bytes */
};

/* Reads who `pid` is. Errors: MT_ENOTFOUND (gone or hidden), MT_EPERM, MT_EFORMAT. */
int mt_process_read(const struct mt_host_os *os, int pid, struct mt_process *process,
                    struct mt_error *error);

/* Start time after boot (CLOCK_BOOTTIME), to a hundredth of a second. */
uint64_t mt_process_start_ns(const struct mt_host_os *os, const struct mt_process *process);

/* Many processes; zero it before use. */
struct mt_process_list {
    struct mt_process *items;
    size_t n;
    size_t capacity;
};

void mt_process_list_finish(struct mt_process_list *list);

/* The numbers of all processes of the machine, ascending, without a look at any of them: some
 * microseconds each. Memory is used again as that of a list. Errors: MT_EUNSUPPORTED, MT_ENOMEM. */
struct mt_process_numbers {
    int *items;
    size_t n;
    size_t capacity;
};

int mt_process_numbers_read(const struct mt_host_os *os, struct mt_process_numbers *numbers,
                            struct mt_error *error);

void mt_process_numbers_finish(struct mt_process_numbers *numbers);

/* Sets *list to `root_pid` and all its descendants, parents before children, from one scan of
 * /proc. Memory of the list is used again, so that a list that is kept allocates only where the
 * machine has more processes than ever before. Takes about 10 microseconds for each process of the
 * machine. A root that is gone gives an empty list, and so does an error. Errors: MT_EUNSUPPORTED
 * (no /proc), MT_ENOMEM. */
int mt_process_tree(const struct mt_host_os *os, int root_pid, struct mt_process_list *list,
                    struct mt_error *error);

/* The same by the kernel's lists of children, which does not look at processes outside the tree. A
 * child may be missing whose brother ended meanwhile. A large tree, or a kernel without such lists,
 * is looked at by mt_process_tree(). */
int mt_process_descendants(const struct mt_host_os *os, int root_pid, struct mt_process_list *list,
                           struct mt_error *error);

/* The same for the processes whose control groups have the word `group` in their names, in the
 * order of their starts. Where no group has it, those of the process namespace of `pid`, and where
 * that is the caller's own, mt_process_tree(). Takes twice as long. */
int mt_process_group(const struct mt_host_os *os, int pid, const char *group,
                     struct mt_process_list *list, struct mt_error *error);

/* Whether mt_process_group() of `root_pid` would take `pid` for its control group or its namespace;
 * descendants are not told. */
int mt_process_is_in_group(const struct mt_host_os *os, int pid, int root_pid, const char *group);

/* Resident bytes of a process, from /proc/PID/statm: the cheapest look (about 4 microseconds).
 * MT_UNKNOWN where it cannot be read, 0 for a process that has ended and waits for its parent. */
uint64_t mt_process_resident_bytes(const struct mt_host_os *os, int pid);

/* /proc/PID/status. */
struct mt_process_memory {
    uint64_t resident_bytes;
    uint64_t resident_peak_bytes; /* since the start or since clear_refs was written */
    uint64_t anonymous_bytes;
    uint64_t file_bytes;
    uint64_t shared_memory_bytes;
    uint64_t swap_bytes;
    uint64_t page_table_bytes;
    uint64_t hugetlb_bytes; /* not part of resident_bytes */
    uint64_t n_threads;
};

/* About 10 microseconds. Errors: MT_ENOTFOUND, MT_EPERM. A process without memory of its own (a
 * kernel thread, a zombie) has unknown sizes. */
int mt_process_memory_read(const struct mt_host_os *os, int pid, struct mt_process_memory *memory,
                           struct mt_error *error);

/* The command line with its arguments separated by spaces, what may be a secret hidden (secrets.h)
 * and control characters replaced by '?', cut to `capacity`, always terminated. A process without
 * one gives its name in brackets. Returns 0 or MT_ENOTFOUND, MT_EPERM. */
int mt_process_command(const struct mt_host_os *os, int pid, char *text, size_t capacity);

/* The path of the program. Returns 0 or MT_ENOTFOUND, MT_EPERM, MT_ELIMIT (does not fit). */
int mt_process_program(const struct mt_host_os *os, int pid, char *path, size_t capacity);

#endif
