/* SPDX-License-Identifier: MIT */
/* Figures of a cgroup found by mt_cgroup_find() (device/host.h). */
#ifndef MT_DEVICE_CGROUP_H
#define MT_DEVICE_CGROUP_H

#include "device/host.h"
#include "device/span.h"

/* Sets the cgroup members of *sample; what cannot be read is left alone. */
void mt_cgroup_read(const struct mt_host_os *os, const struct mt_cgroup *cgroup,
                    struct mt_host_sample *sample);

/* The file that every cgroup with the memory controller has. */
const char *mt_cgroup_usage_file(int version);

/* What memory.stat says of a cgroup; MT_UNKNOWN where it does not. */
struct mt_cgroup_stat {
    uint64_t limit_bytes; /* of the whole way up; version 1 */
    uint64_t inactive_file_bytes;
};

void mt_cgroup_read_stat(int version, struct mt_span text, struct mt_cgroup_stat *stat);

/* The smallest limit and high mark on the way up, MT_UNKNOWN where there is none. `stat` is the
 * group's. */
void mt_cgroup_read_limits(const struct mt_host_os *os, const struct mt_cgroup *cgroup,
                           const struct mt_cgroup_stat *stat, uint64_t *limit_bytes,
                           uint64_t *high_bytes);

/* What of its usage the kernel cannot drop without writing. */
uint64_t mt_cgroup_working_set(uint64_t usage_bytes, const struct mt_cgroup_stat *stat);

#endif
