/* SPDX-License-Identifier: MIT */
/* A run, shared by the files of this room. */
#ifndef MT_WATCH_WATCH_H
#define MT_WATCH_WATCH_H

#include <memtally/run.h>
#include <sys/types.h>

#include "device/host.h"
#include "recording/picture.h"
#include "recording/writer.h"

/* Why the recorder is not in a process, as OUTSIDE_ONLY has it. */
enum mt_outside_reason { MT_OUTSIDE_NOT_LOADED = 0, MT_OUTSIDE_STATIC = 1, MT_OUTSIDE_SETUID = 2 };

/* A process of the tree. */
struct watched {
    pid_t pid;
    uint64_t start_ticks;
    uint64_t first_seen_ns;
    uint64_t resident_bytes;
    uint64_t sampled_bytes; /* what the last PROCESS_SAMPLE said */
    uint64_t sampled_ns;
    uint64_t high_water_bytes;
    uint64_t pictured_bytes;
    uint64_t pictured_ns;
    int recorded; /* the recorder writes a file for it */
    int judged;   /* `recorded` is settled */
    int ended;
};

struct mt_run {
    struct mt_host_os host;
    struct mt_cgroup cgroup;
    struct mt_file file;
    struct mt_writer writer;
    char *directory; /* absolute */
    pid_t pid;
    int pidfd; /* -1 where the kernel has none */
    int ended;
    int status; /* as waitpid() gave it */
    double share;
    uint64_t start_ns;
    uint64_t boot_offset_ns; /* CLOCK_BOOTTIME less CLOCK_MONOTONIC */
    uint64_t next_sample_ns;
    uint64_t next_tree_ns;
    uint64_t next_machine_ns;
    uint64_t picture_spent_ns;
    uint64_t ns_per_mib;
    uint64_t peak_resident_bytes;
    struct mt_process_list tree;
    struct watched *processes;
    size_t n_processes;
    void *scratch;
};

/* libc behind the recording's outside world (os.c). */
extern const struct mt_record_os mt_watch_os;

/* Starts the program with the recorder in its environment (spawn.c). Returns its pid or an MT_E
 * code. */
int mt_spawn(const struct mt_run_options *options, const char *directory, struct mt_error *error);

/* Whether a program can take a preloaded library, by its file (spawn.c). */
enum mt_outside_reason mt_outside_reason_of(const char *program);

/* Looks at the tree and writes what it sees, each thing when its time has come (sample.c). */
void mt_watch_look(struct mt_run *run, uint64_t now_ns);

/* Notes that a process has ended. */
void mt_watch_ended(struct mt_run *run, pid_t pid, int known, int status);

/* Looks once more at everything, whatever the time. */
void mt_watch_last_look(struct mt_run *run);

#endif
