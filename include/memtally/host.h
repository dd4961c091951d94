/* SPDX-License-Identifier: MIT */
/* What the machine says about its host memory at one moment. */
#ifndef MEMTALLY_HOST_H
#define MEMTALLY_HOST_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */

/* One look at the machine. What the kernel did not say is MT_UNKNOWN (percentages: negative).
 *
 * `page_cache_bytes` is Buffers + Cached, which has shared memory in it (`shared_memory_bytes`).
 * `processes_resident_bytes` is AnonPages + Mapped: every page that at least one process has in its
 * page tables, counted once however many share it.
 *
 * The cgroup is the one that accounts for the memory of the process asked for: its own or the
 * nearest above it that has the memory controller. Its limit is the smallest on the way to the root
 * as far as the root is visible; MT_UNKNOWN where there is no limit. Its working set is its usage
 * without inactive page cache, which the kernel can drop without writing anything. */
struct mt_host_sample {
    uint64_t time_ns; /* CLOCK_MONOTONIC */
    uint64_t memory_total_bytes;
    uint64_t memory_free_bytes;
    uint64_t memory_available_bytes;
    uint64_t page_cache_bytes;
    uint64_t shared_memory_bytes;
    uint64_t slab_reclaimable_bytes;
    uint64_t anonymous_bytes;
    uint64_t mapped_file_bytes;
    uint64_t processes_resident_bytes;
    uint64_t swap_total_bytes;
    uint64_t swap_free_bytes;
    uint64_t swap_used_bytes;
    uint64_t hugepages_total_bytes; /* of the default huge page size, reserved up front */
    uint64_t hugepages_free_bytes;
    double pressure_some_avg10_percent; /* of time in which some task waited for memory */
    double pressure_full_avg10_percent; /* of time in which all of them did */
    uint64_t pressure_some_ns;          /* since boot */
    uint64_t pressure_full_ns;
    int cgroup_version; /* 1, 2, or 0 where none accounts for memory */
    uint64_t cgroup_limit_bytes;
    uint64_t cgroup_high_bytes; /* smallest throttling threshold; version 2 only */
    uint64_t cgroup_usage_bytes;
    uint64_t cgroup_peak_bytes; /* since the cgroup was made or its peak was reset */
    uint64_t cgroup_working_set_bytes;
    uint64_t cgroup_oom_kills;
};

/* Looks at the machine once, with the cgroup of process `pid` (0: the caller). *sample is set on
 * success. Takes about 100 microseconds. Any thread.
 * Errors: MT_EUNSUPPORTED (no /proc), MT_EPERM. A process that is gone or hidden leaves the cgroup
 * unknown and is no error. */
int mt_host_sample_take(int pid, struct mt_host_sample *sample, struct mt_error *error);

/* Resident bytes of all processes outside a tree that holds `tree_resident_bytes` (its shared pages
 * counted once). Pages that both share count for the tree only. MT_UNKNOWN where either is unknown;
 * 0 where the tree's figure is the larger, as it can be by what changed between two looks. */
uint64_t mt_host_other_resident_bytes(const struct mt_host_sample *sample,
                                      uint64_t tree_resident_bytes);

#ifdef __cplusplus
}
#endif
#endif
