/* SPDX-License-Identifier: MIT */
/* Which processes are a job's, and what they take. */
#include "budget/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memtally/units.h>

#define ENVIRONMENT_BYTES ((size_t)256 << 10)

static int has_mark(const struct mt_job *job, int pid)
{
    char path[48];
    size_t length = strlen(job->mark);
    char *bytes = malloc(ENVIRONMENT_BYTES);
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    long n =
        bytes ? job->os.host.read_file(job->os.host.context, path, bytes, ENVIRONMENT_BYTES) : -1;
    int found = 0;
    for (char *at = bytes; !found && n > 0 && at < bytes + n;) {
        size_t left = (size_t)(bytes + n - at);
        size_t size = strnlen(at, left);
        found = size == length && memcmp(at, job->mark, length) == 0;
        at += size + 1;
    }
    free(bytes);
    return found;
}

static int is_in(const struct mt_job *job, int pid)
{
    for (size_t i = 0; i < job->n_pids; i++)
        if (job->pids[i] == pid)
            return 1;
    return 0;
}

/* The program and what it started, and what of that was left to us, which its mark tells. */
static void find_in_tree(struct mt_job *job)
{
    if (mt_process_tree(&job->os.host, job->os.pid, &job->tree, NULL) < 0)
        return;
    for (size_t i = 0; i < job->tree.n && job->n_pids < MT_JOB_PIDS; i++) {
        const struct mt_process *process = &job->tree.items[i];
        if (process->pid == job->os.pid || process->state == 'Z' || process->state == 'X')
            continue;
        if (process->pid == job->pid || is_in(job, process->parent_pid) ||
            (process->parent_pid == job->os.pid && has_mark(job, process->pid)))
            job->pids[job->n_pids++] = process->pid;
    }
}

/* What has ended and is still in the group's list is a zombie, which takes nothing. */
void mt_job_find_processes(struct mt_job *job)
{
    struct mt_process process;
    job->n_pids = 0;
    if (!job->group.version) {
        find_in_tree(job);
        return;
    }
    size_t n = 0;
    mt_group_pids(&job->os, &job->group, job->pids, MT_JOB_PIDS, &n);
    for (size_t i = 0; i < n; i++)
        if (mt_process_read(&job->os.host, job->pids[i], &process, NULL) == 0 &&
            process.state != 'Z' && process.state != 'X')
            job->pids[job->n_pids++] = job->pids[i];
}

uint64_t mt_job_resident(const struct mt_job *job)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < job->n_pids; i++) {
        uint64_t bytes = mt_process_resident_bytes(&job->os.host, job->pids[i]);
        sum += bytes == MT_UNKNOWN ? 0 : bytes;
    }
    return sum;
}

static int open_library(void *context, struct mt_nvml *nvml, struct mt_error *error)
{
    (void)context;
    return mt_nvml_open_library(nvml, error);
}

void mt_job_open_devices(struct mt_job *job)
{
    if (!job->n_devices || mt_nvml_start(&job->nvml, open_library, NULL, NULL) < 0)
        return;
    job->has_nvml = 1;
    job->users = malloc(MT_NVML_PROCESSES_MAX * sizeof *job->users);
    for (size_t i = 0; job->users && i < job->n_devices; i++)
        if (job->nvml.device_by_index(job->devices[i].index, &job->nvml_devices[i]) != 0)
            job->nvml_devices[i] = NULL;
}

void mt_job_device_bytes(const struct mt_job *job, uint64_t bytes[MT_JOB_DEVICES])
{
    for (size_t i = 0; i < job->n_devices; i++) {
        unsigned n = MT_NVML_PROCESSES_MAX;
        bytes[i] = MT_UNKNOWN;
        if (!job->nvml_devices[i] ||
            mt_nvml_processes(&job->nvml, job->nvml_devices[i], job->users, &n, NULL) < 0)
            continue;
        bytes[i] = 0;
        for (unsigned k = 0; k < n; k++)
            if (is_in(job, (int)job->users[k].pid) && job->users[k].used_bytes != UINT64_MAX)
                bytes[i] += job->users[k].used_bytes;
    }
}
