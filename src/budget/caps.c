/* SPDX-License-Identifier: MIT */
/* The file by which the recorder holds a job's processes to a part of each device
 * (base/device_caps.h). */
#include "budget/job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memtally/units.h>

#include "base/fail_errno.h"

static struct mt_device_caps *map_new(struct mt_job *job, const char *folder)
{
    int length = snprintf(job->caps_path, PATH_MAX, "%s/memtally-caps-XXXXXX", folder);
    errno = ENAMETOOLONG;
    int fd = length < PATH_MAX ? mkostemp(job->caps_path, O_CLOEXEC) : -1;
    if (fd < 0) {
        *job->caps_path = '\0';
        return NULL;
    }
    void *caps =
        ftruncate(fd, sizeof(struct mt_device_caps)) == 0
            ? mmap(NULL, sizeof(struct mt_device_caps), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
            : MAP_FAILED;
    int saved = errno;
    close(fd);
    errno = saved;
    return caps == MAP_FAILED ? NULL : caps;
}

/* By UUID where the driver tells that of all devices, because a program may number them anew. */
static void name_devices(struct mt_job *job)
{
    for (size_t i = 0; i < job->n_devices; i++) {
        struct mt_capped_device *device = &job->caps->devices[i];
        if (!job->nvml_devices[i] || !job->nvml.device_uuid ||
            job->nvml.device_uuid(job->nvml_devices[i], device->uuid, sizeof device->uuid) != 0)
            *device->uuid = '\0';
    }
}

int mt_job_make_caps(struct mt_job *job, const char *folder, struct mt_error *error)
{
    job->caps = map_new(job, folder);
    if (!job->caps)
        return mt_fail_errno(error, errno, "cannot make a file in %s to hold devices with", folder);
    job->caps->magic = MT_CAPS_MAGIC;
    job->caps->n_devices = job->n_devices;
    for (size_t i = 0; i < job->n_devices; i++)
        job->caps->devices[i].cap_bytes = job->devices[i].bytes;
    name_devices(job);
    return 0;
}

static uint64_t held(const struct mt_job *job, size_t device)
{
    return __atomic_load_n(&job->caps->devices[device].held_bytes, __ATOMIC_RELAXED);
}

void mt_job_held(const struct mt_job *job, uint64_t bytes[MT_JOB_DEVICES])
{
    for (size_t i = 0; i < job->n_devices; i++)
        bytes[i] = held(job, i);
}

/* What the driver says that the job uses and no call took: contexts, code, what its pools keep.
 * That shows only where nothing was taken or given back meanwhile. */
void mt_job_tell_beside(struct mt_job *job, const uint64_t before[MT_JOB_DEVICES],
                        const uint64_t used[MT_JOB_DEVICES])
{
    for (size_t i = 0; i < job->n_devices; i++)
        if (used[i] != MT_UNKNOWN && used[i] >= before[i] && held(job, i) == before[i])
            __atomic_store_n(&job->caps->devices[i].beside_bytes, used[i] - before[i],
                             __ATOMIC_RELAXED);
}

void mt_job_end_caps(struct mt_job *job, struct mt_job_result *result)
{
    for (size_t i = 0; job->caps && result && i < job->n_devices; i++) {
        const struct mt_capped_device *device = &job->caps->devices[i];
        result->n_device_refusals += device->n_refusals;
        if (device->peak_bytes > result->device_peak_bytes[i])
            result->device_peak_bytes[i] = device->peak_bytes;
    }
    if (job->caps)
        munmap(job->caps, sizeof *job->caps);
    job->caps = NULL;
    if (*job->caps_path)
        unlink(job->caps_path);
    *job->caps_path = '\0';
}
