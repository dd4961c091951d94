/* SPDX-License-Identifier: MIT */
/* A job from its start to what it left. */
#ifndef MT_BUDGET_JOB_H
#define MT_BUDGET_JOB_H

#include <memtally/job.h>
#include <sys/types.h>

#include "base/device_caps.h"
#include "device/group.h"
#include "device/host.h"
#include "device/nvml.h"

struct mt_job {
    struct mt_group_os os;
    struct mt_group group; /* version 0: none */
    enum mt_job_cap cap;
    int is_apart;
    uint64_t host_bytes;
    int waits_at_cap;
    size_t n_devices;
    struct mt_job_device devices[MT_JOB_DEVICES];
    void *nvml_devices[MT_JOB_DEVICES]; /* NULL where it cannot be asked */
    struct mt_nvml nvml;
    int has_nvml;
    uint64_t devices_ns; /* when device_bytes were seen; 0: never */
    uint64_t device_bytes[MT_JOB_DEVICES];
    struct mt_nvml_process *users; /* of a device, while it is looked at */
    struct mt_device_caps *caps;   /* by which the recorder holds it; NULL: it does not */
    char caps_path[PATH_MAX];
    char mark[48]; /* MEMTALLY_JOB=…, in the environment of its processes */
    pid_t pid;
    int ended;
    int how; /* as of waitpid() */
    int is_past_cap;
    uint64_t start_ns;
    uint64_t end_ns;
    uint64_t host_peak_bytes;
    uint64_t device_peak_bytes[MT_JOB_DEVICES];
    struct mt_process_list tree;
    int *pids; /* of the job's processes at the last look */
    size_t n_pids;
};

#define MT_JOB_PIDS 1024u

/* Starts the program (start.c). Returns 0 or an MT_E code. */
int mt_job_spawn(struct mt_job *job, const struct mt_job_options *options, struct mt_error *error);

/* The file by which the recorder holds the job's devices (caps.c). */
int mt_job_make_caps(struct mt_job *job, const char *folder, struct mt_error *error);
void mt_job_held(const struct mt_job *job, uint64_t bytes[MT_JOB_DEVICES]);
/* `before` was held before `used` was seen. */
void mt_job_tell_beside(struct mt_job *job, const uint64_t before[MT_JOB_DEVICES],
                        const uint64_t used[MT_JOB_DEVICES]);
void mt_job_end_caps(struct mt_job *job, struct mt_job_result *result); /* `result` may be NULL */

/* Finds the processes of the job that live (processes.c). */
void mt_job_find_processes(struct mt_job *job);

/* What they take of the host and of each device (processes.c). */
uint64_t mt_job_resident(const struct mt_job *job);
void mt_job_open_devices(struct mt_job *job);
void mt_job_device_bytes(const struct mt_job *job, uint64_t bytes[MT_JOB_DEVICES]);

#endif
