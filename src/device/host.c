/* SPDX-License-Identifier: MIT */
/* One sample of the machine's memory: /proc/meminfo, PSI, and the figures of a cgroup. Knows where
 * files are and what they mean; reaches them through struct mt_host_os only. */
#include "device/host.h"

#include <memtally/host.h>
#include <memtally/units.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "device/cgroup.h"
#include "device/span.h"

#include <errno.h>
#include <string.h>

struct meminfo {
    uint64_t buffers;
    uint64_t cached;
    uint64_t hugepages_total;
    uint64_t hugepages_free;
    uint64_t hugepage_bytes;
};

#define SAMPLE(member)  offsetof(struct mt_host_sample, member)
#define MEMINFO(member) offsetof(struct meminfo, member)

static const struct mt_field sample_fields[] = {
    {"MemTotal", SAMPLE(memory_total_bytes)},
    {"MemFree", SAMPLE(memory_free_bytes)},
    {"MemAvailable", SAMPLE(memory_available_bytes)},
    {"Shmem", SAMPLE(shared_memory_bytes)},
    {"SReclaimable", SAMPLE(slab_reclaimable_bytes)},
    {"AnonPages", SAMPLE(anonymous_bytes)},
    {"Mapped", SAMPLE(mapped_file_bytes)},
    {"SwapTotal", SAMPLE(swap_total_bytes)},
    {"SwapFree", SAMPLE(swap_free_bytes)},
};

static const struct mt_field meminfo_fields[] = {
    {"Buffers", MEMINFO(buffers)},
    {"Cached", MEMINFO(cached)},
    {"HugePages_Total", MEMINFO(hugepages_total)},
    {"HugePages_Free", MEMINFO(hugepages_free)},
    {"Hugepagesize", MEMINFO(hugepage_bytes)},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static uint64_t sum_of(uint64_t a, uint64_t b)
{
    return a == MT_UNKNOWN || b == MT_UNKNOWN || a > MT_UNKNOWN - b ? MT_UNKNOWN : a + b;
}

static uint64_t difference_of(uint64_t a, uint64_t b)
{
    return a == MT_UNKNOWN || b == MT_UNKNOWN || a < b ? MT_UNKNOWN : a - b;
}

static uint64_t product_of(uint64_t a, uint64_t b)
{
    uint64_t product;
    if (a == MT_UNKNOWN || b == MT_UNKNOWN || __builtin_mul_overflow(a, b, &product))
        return MT_UNKNOWN;
    return product;
}

void mt_host_sample_unknown(struct mt_host_sample *sample)
{
    memset(sample, 0xff, sizeof *sample); /* MT_UNKNOWN in every size */
    sample->pressure_some_avg10_percent = -1;
    sample->pressure_full_avg10_percent = -1;
    sample->cgroup_version = 0;
}

int mt_host_fail_meminfo(long n, struct mt_error *error)
{
    if (n == -ENOENT || n == -ENOTDIR)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "/proc/meminfo is not there; mount it with: mount -t proc proc /proc");
    return mt_fail_errno(error, (int)-n, "cannot read /proc/meminfo");
}

static int read_meminfo(const struct mt_host_os *os, struct mt_host_sample *sample,
                        struct mt_error *error)
{
    char bytes[8192];
    long n = os->read_file(os->context, "/proc/meminfo", bytes, sizeof bytes);
    if (n < 0)
        return mt_host_fail_meminfo(n, error);

    struct mt_span text = {bytes, bytes + n};
    struct meminfo other;
    memset(&other, 0xff, sizeof other);
    mt_span_fields(text, sample_fields, COUNT(sample_fields), sample);
    mt_span_fields(text, meminfo_fields, COUNT(meminfo_fields), &other);
    sample->page_cache_bytes = sum_of(other.buffers, other.cached);
    sample->processes_resident_bytes = sum_of(sample->anonymous_bytes, sample->mapped_file_bytes);
    sample->swap_used_bytes = difference_of(sample->swap_total_bytes, sample->swap_free_bytes);
    sample->hugepages_total_bytes = product_of(other.hugepages_total, other.hugepage_bytes);
    sample->hugepages_free_bytes = product_of(other.hugepages_free, other.hugepage_bytes);
    return 0;
}

/* A percentage with decimals, as "12.05"; not by strtod(), which obeys the locale. */
static double read_percent(struct mt_span text)
{
    uint64_t whole;
    if (!mt_span_number(&text, &whole) || whole > 100)
        return -1;
    double value = (double)whole;
    double unit = 0.1;
    if (text.at < text.end && *text.at == '.') {
        for (text.at++; text.at < text.end && *text.at >= '0' && *text.at <= '9'; text.at++) {
            value += (double)(*text.at - '0') * unit;
            unit /= 10;
        }
    }
    return value;
}

/* The rest of a line such as "some avg10=0.00 avg60=0.00 avg300=0.00 total=0" (microseconds). */
static void read_pressure_line(struct mt_span line, double *avg10_percent, uint64_t *total_ns)
{
    struct mt_span word;
    while (mt_span_until(&line, ' ', &word)) {
        if (mt_span_starts(&word, "avg10=")) {
            word.at += strlen("avg10=");
            *avg10_percent = read_percent(word);
        } else if (mt_span_starts(&word, "total=")) {
            uint64_t total_us;
            word.at += strlen("total=");
            if (mt_span_number(&word, &total_us))
                *total_ns = product_of(total_us, 1000);
        }
    }
}

static void read_pressure(const struct mt_host_os *os, struct mt_host_sample *sample)
{
    char bytes[512];
    long n = os->read_file(os->context, "/proc/pressure/memory", bytes, sizeof bytes);
    if (n < 0)
        return;
    struct mt_span text = {bytes, bytes + n};
    struct mt_span line;
    while (mt_span_line(&text, &line)) {
        if (mt_span_starts(&line, "some "))
            read_pressure_line(line, &sample->pressure_some_avg10_percent,
                               &sample->pressure_some_ns);
        else if (mt_span_starts(&line, "full "))
            read_pressure_line(line, &sample->pressure_full_avg10_percent,
                               &sample->pressure_full_ns);
    }
}

int mt_host_read(const struct mt_host_os *os, const struct mt_cgroup *cgroup,
                 struct mt_host_sample *sample, struct mt_error *error)
{
    struct mt_host_sample seen;
    mt_host_sample_unknown(&seen);
    seen.time_ns = os->now_ns(os->context);
    int status = read_meminfo(os, &seen, error);
    if (status < 0)
        return status;
    read_pressure(os, &seen);
    if (cgroup)
        mt_cgroup_read(os, cgroup, &seen);
    *sample = seen;
    return 0;
}

int mt_host_sample_take(int pid, struct mt_host_sample *sample, struct mt_error *error)
{
    struct mt_host_os os;
    struct mt_cgroup cgroup;
    if (pid < 0)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "%d is not a process id", pid);
    mt_host_os_init(&os);
    mt_cgroup_find(&os, pid, &cgroup);
    return mt_host_read(&os, &cgroup, sample, error);
}

uint64_t mt_host_other_resident_bytes(const struct mt_host_sample *sample,
                                      uint64_t tree_resident_bytes)
{
    uint64_t all = sample->processes_resident_bytes;
    if (all == MT_UNKNOWN || tree_resident_bytes == MT_UNKNOWN)
        return MT_UNKNOWN;
    return all > tree_resident_bytes ? all - tree_resident_bytes : 0;
}
