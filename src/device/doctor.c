/* SPDX-License-Identifier: MIT */
/* The checks of the doctor: one short function each, and a table of them. What they find out comes
 * through struct mt_doctor_os. */
#include "device/doctor.h"

#include "base/error.h"
#include "device/cards.h"
#include "device/span.h"

#include <errno.h>
#include <memtally/host.h>
#include <memtally/units.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct look {
    const struct mt_doctor_os *os;
    const struct mt_doctor_options *options;
    struct mt_host_sample sample; /* all unknown where there is no /proc */
    int has_sample;
};

/* ---- small tools ---- */

static void found(struct mt_check *check, enum mt_check_state state, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void found(struct mt_check *check, enum mt_check_state state, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    check->state = state;
    vsnprintf(check->finding, sizeof check->finding, format, arguments);
    va_end(arguments);
}

static void advise(struct mt_check *check, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void advise(struct mt_check *check, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(check->advice, sizeof check->advice, format, arguments);
    va_end(arguments);
}

/* The first line of a file, cut to `capacity`. Returns 0 or a negative errno. */
static int read_line(const struct look *look, const char *path, char *line, size_t capacity)
{
    long n = look->os->host.read_file(look->os->host.context, path, line, capacity - 1);
    if (n < 0)
        return (int)n;
    line[n] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return 0;
}

/* A whole small file as text. Returns its length, or a negative errno. */
static long read_text(const struct look *look, const char *path, char *bytes, size_t capacity)
{
    return look->os->host.read_file(look->os->host.context, path, bytes, capacity);
}

static int has_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
        int starts = at == text || at[-1] == ' ' || at[-1] == '\t';
        int ends = at[length] == '\0' || at[length] == ' ' || at[length] == '\n';
        if (starts && ends)
            return 1;
    }
    return 0;
}

/* ---- the kernel and /proc ---- */

static void check_kernel(const struct look *look, struct mt_check *check)
{
    char release[128];
    unsigned major = 0;
    unsigned minor = 0;
    if (read_line(look, "/proc/sys/kernel/osrelease", release, sizeof release) < 0 ||
        sscanf(release, "%u.%u", &major, &minor) != 2) {
        found(check, MT_CHECK_LIMITED, "the version of the kernel cannot be read");
        return;
    }
    int is_new_enough = major > 4 || (major == 4 && minor >= 14);
    found(check, is_new_enough ? MT_CHECK_OK : MT_CHECK_LIMITED, "Linux %s", release);
    if (!is_new_enough)
        advise(check, "use Linux 4.14 or later; 6.7 or later is best");
}

static void check_proc(const struct look *look, struct mt_check *check)
{
    char line[64];
    int other = read_line(look, "/proc/1/stat", line, sizeof line);
    if (!look->has_sample) {
        found(check, MT_CHECK_MISSING, "/proc/meminfo cannot be read");
        advise(check, "mount it with: mount -t proc proc /proc");
    } else if (other < 0) {
        found(check, MT_CHECK_LIMITED, "processes of other users are hidden");
        advise(check, "run as root, or mount /proc without hidepid, to watch processes of others");
    } else {
        found(check, MT_CHECK_OK, "processes and memory can be read");
    }
}

static void check_pictures(const struct look *look, struct mt_check *check)
{
    int scan = look->os->try_pagemap_scan(look->os->host.context);
    int read = look->os->try_pagemap_read(look->os->host.context);
    if (scan == 0) {
        found(check, MT_CHECK_OK, "present pages are listed by PAGEMAP_SCAN");
    } else if (read == 0) {
        found(check, MT_CHECK_LIMITED, "present pages are read from pagemap (no PAGEMAP_SCAN: %s)",
              strerror(-scan));
        advise(check, "Linux 6.7 or later takes pictures several times faster");
    } else {
        found(check, MT_CHECK_MISSING, "/proc/self/pagemap cannot be read: %s", strerror(-read));
        advise(check, "use a kernel with CONFIG_PROC_PAGE_MONITOR, outside of a sandbox that "
                      "hides it");
    }
}

static void check_rollup(const struct look *look, struct mt_check *check)
{
    char bytes[64];
    long n = read_text(look, "/proc/self/smaps_rollup", bytes, sizeof bytes);
    if (n > 0) {
        found(check, MT_CHECK_OK, "smaps_rollup sums up resident and shared pages");
        return;
    }
    found(check, MT_CHECK_LIMITED, "no smaps_rollup: %s", n < 0 ? strerror((int)-n) : "empty");
    advise(check, "the check of pictures against the kernel's own sum is left out");
}

static void check_peak_reset(const struct look *look, struct mt_check *check)
{
    int writable = look->os->can_write(look->os->host.context, "/proc/self/clear_refs");
    if (writable == 0) {
        found(check, MT_CHECK_OK, "the peak (VmHWM) can be reset by clear_refs");
        return;
    }
    found(check, MT_CHECK_LIMITED, "clear_refs cannot be written: %s", strerror(-writable));
    advise(check, "the peak of a single call is sampled instead of exact");
}

static void check_pressure(const struct look *look, struct mt_check *check)
{
    char bytes[16];
    long n = read_text(look, "/proc/pressure/memory", bytes, sizeof bytes);
    if (n > 0) {
        found(check, MT_CHECK_OK, "waiting for memory is measured (PSI)");
    } else if (n == -ENOENT) {
        found(check, MT_CHECK_MISSING, "the kernel does not measure waiting for memory (PSI)");
        advise(check, "use Linux 4.20 or later with CONFIG_PSI");
    } else {
        found(check, MT_CHECK_MISSING, "PSI is there but switched off: %s",
              n < 0 ? strerror((int)-n) : "empty");
        advise(check, "boot with psi=1 on the kernel's command line");
    }
}

/* ---- the processor ---- */

static void check_processor(const struct look *look, struct mt_check *check)
{
    static const char *const kinds[] = {
        [MT_PROCESSOR_AMX] =
            "x86-64 with AMX, for which engines keep weights in a layout of its own",
        [MT_PROCESSOR_AVX512] = "x86-64 with AVX-512",
        [MT_PROCESSOR_AVX2] = "x86-64 with AVX2",
        [MT_PROCESSOR_X86_64] = "x86-64 without AVX2",
        [MT_PROCESSOR_DOTPROD] = "aarch64 with dot products",
        [MT_PROCESSOR_AARCH64] = "aarch64 without dot products",
    };
    const struct mt_processor_os os = {look->os->host, look->os->grants_tiles};
    int lacks_grant;
    enum mt_processor processor = mt_processor_look(&os, &lacks_grant);
    if (processor == MT_PROCESSOR_UNKNOWN) {
        found(check, MT_CHECK_LIMITED, "its kind is not known");
        advise(check, "name one with --cpu: estimates of the CPU have wider bands without");
        return;
    }
    found(check, lacks_grant ? MT_CHECK_LIMITED : MT_CHECK_OK, "%s: %s%s",
          mt_processor_name(processor), kinds[processor],
          lacks_grant ? "; it has AMX, which the kernel does not let programs use" : "");
    if (lacks_grant)
        advise(check, "use Linux 5.16 or later, outside of a sandbox that hides AMX");
}

/* ---- memory rules ---- */

static void check_cgroup(const struct look *look, struct mt_check *check)
{
    struct mt_cgroup cgroup;
    char limit[MT_SIZE_TEXT] = "no limit";
    char used[MT_SIZE_TEXT];
    mt_cgroup_find(&look->os->host, 0, &cgroup);
    if (cgroup.version == 0 || !look->has_sample) {
        found(check, MT_CHECK_LIMITED, "no control group accounts for memory");
        advise(check, "memtally does not see limits of a container; mount /sys/fs/cgroup into it");
        return;
    }
    if (look->sample.cgroup_limit_bytes != MT_UNKNOWN)
        mt_format_size(look->sample.cgroup_limit_bytes, limit);
    int delegated = look->os->can_write(look->os->host.context, cgroup.directory) == 0;
    found(check, MT_CHECK_OK, "version %d, %s, %s used, %s", cgroup.version,
          look->sample.cgroup_limit_bytes == MT_UNKNOWN ? "no limit" : limit,
          mt_format_size(look->sample.cgroup_usage_bytes, used),
          delegated ? "groups can be made in it" : "no groups can be made in it");
}

static void check_overcommit(const struct look *look, struct mt_check *check)
{
    char mode[16];
    if (read_line(look, "/proc/sys/vm/overcommit_memory", mode, sizeof mode) < 0) {
        found(check, MT_CHECK_LIMITED, "vm.overcommit_memory cannot be read");
    } else if (strcmp(mode, "2") == 0) {
        found(check, MT_CHECK_LIMITED, "strict (2): reserving much address space can fail");
        advise(check, "engines that reserve ahead may need: sysctl vm.overcommit_memory=0");
    } else {
        found(check, MT_CHECK_OK, "%s", strcmp(mode, "1") == 0 ? "always (1)" : "heuristic (0)");
    }
}

static void check_swap(const struct look *look, struct mt_check *check)
{
    char total[MT_SIZE_TEXT];
    char used[MT_SIZE_TEXT];
    uint64_t used_bytes = look->sample.swap_used_bytes;
    if (look->sample.swap_total_bytes == MT_UNKNOWN) {
        found(check, MT_CHECK_LIMITED, "not known");
        return;
    }
    if (look->sample.swap_total_bytes == 0) {
        found(check, MT_CHECK_OK, "none");
        return;
    }
    mt_format_size(look->sample.swap_total_bytes, total);
    found(check, MT_CHECK_OK, "%s, %s used", total, mt_format_size(used_bytes, used));
    if (used_bytes != MT_UNKNOWN && used_bytes > look->sample.swap_total_bytes / 2) {
        check->state = MT_CHECK_LIMITED;
        advise(check, "pages in swap are not resident: free memory before you compare runs");
    }
}

static void check_huge_pages(const struct look *look, struct mt_check *check)
{
    char modes[128];
    const char *path = "/sys/kernel/mm/transparent_hugepage/enabled";
    if (read_line(look, path, modes, sizeof modes) < 0) {
        found(check, MT_CHECK_OK, "the kernel has no transparent huge pages");
        return;
    }
    const char *open = strchr(modes, '[');
    const char *close = open ? strchr(open, ']') : NULL;
    if (!close) {
        found(check, MT_CHECK_LIMITED, "transparent huge pages: mode not known");
        return;
    }
    int is_always = strncmp(open, "[always]", strlen("[always]")) == 0;
    found(check, MT_CHECK_OK, "transparent huge pages: %.*s%s", (int)(close - open - 1), open + 1,
          is_always ? "; a touched byte can make 2 MiB resident" : "");
}

/* ---- time, watching, stacks ---- */

static void check_clock(const struct look *look, struct mt_check *check)
{
    char source[64];
    char cpu[8192];
    const char *path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    if (read_line(look, path, source, sizeof source) < 0) {
        found(check, MT_CHECK_LIMITED, "the clock source cannot be read");
        return;
    }
    long n = read_text(look, "/proc/cpuinfo", cpu, sizeof cpu - 1);
    cpu[n > 0 ? n : 0] = '\0';
    int is_steady = has_word(cpu, "constant_tsc") && has_word(cpu, "nonstop_tsc");
    if (strcmp(source, "arch_sys_counter") == 0 || (strcmp(source, "tsc") == 0 && is_steady)) {
        found(check, MT_CHECK_OK, "%s, read without a system call", source);
    } else if (strcmp(source, "tsc") == 0 && n <= 0) {
        found(check, MT_CHECK_LIMITED, "tsc; whether its pace is steady cannot be read");
    } else if (strcmp(source, "tsc") == 0) {
        found(check, MT_CHECK_LIMITED, "tsc that may change its pace");
        advise(check, "times of single events may be off; totals are not");
    } else {
        found(check, MT_CHECK_LIMITED, "%s: reading the time is slow", source);
        advise(check, "recording costs more; a virtual machine may be given clocksource=tsc");
    }
}

/* CAP_SYS_PTRACE is bit 19 of the effective capabilities. */
static int may_trace_all(const struct look *look)
{
    char bytes[4096];
    long n = read_text(look, "/proc/self/status", bytes, sizeof bytes - 1);
    bytes[n > 0 ? n : 0] = '\0';
    const char *at = strstr(bytes, "\nCapEff:");
    return at && (strtoull(at + strlen("\nCapEff:"), NULL, 16) >> 19 & 1);
}

static void check_attach(const struct look *look, struct mt_check *check)
{
    char scope[16];
    int status = read_line(look, "/proc/sys/kernel/yama/ptrace_scope", scope, sizeof scope);
    if (may_trace_all(look)) {
        found(check, MT_CHECK_OK, "any process can be watched from outside");
    } else if (status < 0 || strcmp(scope, "0") == 0) {
        found(check, MT_CHECK_OK, "your own processes can be watched from outside");
    } else {
        found(check, MT_CHECK_LIMITED, "only processes that memtally starts (ptrace_scope %s)",
              scope);
        advise(check, "run as root, or: sysctl kernel.yama.ptrace_scope=0");
    }
}

static void check_unwind(const struct look *look, struct mt_check *check)
{
    if (look->os->has_library(look->os->host.context, "libunwind.so.8") == 0) {
        found(check, MT_CHECK_OK, "libunwind is there for --stacks unwind");
        return;
    }
    found(check, MT_CHECK_LIMITED, "no libunwind: stacks by frame pointers only");
    advise(check, "install libunwind8 (Debian, Ubuntu) or libunwind (Fedora)");
}

/* ---- devices and engines ---- */

static void check_nvidia(const struct look *look, struct mt_check *check)
{
    char version[128];
    int has_driver = read_line(look, "/proc/driver/nvidia/version", version, sizeof version) == 0;
    int has_nvml = look->os->has_library(look->os->host.context, "libnvidia-ml.so.1") == 0;
    if (has_driver && has_nvml) {
        found(check, MT_CHECK_OK, "%s", version);
    } else if (has_driver) {
        found(check, MT_CHECK_LIMITED, "a driver without libnvidia-ml.so.1");
        advise(check, "give the container the driver's \"utility\" capability, or install its "
                      "NVML package");
    } else if (has_nvml) {
        found(check, MT_CHECK_LIMITED, "libnvidia-ml.so.1 without a loaded driver");
        advise(check, "load the driver (nvidia-smi tells why it is not), or ignore this without "
                      "an NVIDIA GPU");
    } else {
        found(check, MT_CHECK_MISSING, "no NVIDIA driver");
        advise(check, "nothing to do without such a device");
    }
}

static void check_drm(const struct look *look, struct mt_check *check)
{
    struct mt_cards cards;
    int status = mt_cards_read(&look->os->host, &cards);
    if (status == 0 && *cards.unseen) {
        found(check, MT_CHECK_LIMITED,
              "%s; memtally does not record memory of AMD's and Intel's "
              "devices",
              cards.all);
        advise(check, "nothing to do: a report shows the host's memory and that of CUDA's devices");
        return;
    }
    if (status == 0 && *cards.all) {
        found(check, MT_CHECK_OK, "%s", cards.all);
        return;
    }
    found(check, MT_CHECK_MISSING, "no graphics device of AMD or Intel");
    advise(check, "nothing to do without such a device");
}

static int is_on_path(const struct look *look, const char *name)
{
    const char *search = look->options->search_path ? look->options->search_path : "";
    struct mt_span rest = {search, search + strlen(search)};
    struct mt_span folder;
    while (mt_span_until(&rest, ':', &folder)) {
        char path[PATH_MAX];
        int n =
            snprintf(path, sizeof path, "%.*s/%s", (int)(folder.end - folder.at), folder.at, name);
        if (folder.at < folder.end && n > 0 && (size_t)n < sizeof path &&
            look->os->is_program(look->os->host.context, path) == 0)
            return 1;
    }
    return 0;
}

static void check_engines(const struct look *look, struct mt_check *check)
{
    static const char *const engines[] = {"llama-server", "llama-bench", "ollama", "vllm"};
    char names[128] = "";
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
        if (!is_on_path(look, engines[i]))
            continue;
        if (*names)
            strcat(names, ", ");
        strcat(names, engines[i]);
    }
    if (*names) {
        found(check, MT_CHECK_OK, "%s", names);
        return;
    }
    found(check, MT_CHECK_MISSING, "none on PATH");
    advise(check, "install llama.cpp, or name an engine by --engine-path");
}

static void check_disk(const struct look *look, struct mt_check *check)
{
    enum { FEW_BYTES = 1 << 30 };
    const char *directory = look->options->directory ? look->options->directory : ".";
    uint64_t bytes = 0;
    char text[MT_SIZE_TEXT];
    int writable = look->os->can_write(look->os->host.context, directory);
    int status = look->os->free_bytes(look->os->host.context, directory, &bytes);
    if (writable < 0) {
        found(check, MT_CHECK_LIMITED, "%.120s cannot be written: %s", directory,
              strerror(-writable));
        advise(check, "name another folder for recordings by -o");
    } else if (status < 0) {
        found(check, MT_CHECK_LIMITED, "free space is not known: %s", strerror(-status));
    } else {
        found(check, bytes < FEW_BYTES ? MT_CHECK_LIMITED : MT_CHECK_OK, "%s free",
              mt_format_size(bytes, text));
        if (bytes < FEW_BYTES)
            advise(check, "a long recording may need more: free some, or name another folder "
                          "by -o");
    }
}

/* ---- all of them ---- */

static const struct {
    const char *name;
    int essential;
    void (*check)(const struct look *look, struct mt_check *check);
} all_checks[] = {
    {"kernel", 0, check_kernel},         {"proc", 1, check_proc},
    {"processor", 0, check_processor},   {"pictures", 1, check_pictures},
    {"rollup", 0, check_rollup},         {"peak_reset", 0, check_peak_reset},
    {"pressure", 0, check_pressure},     {"cgroup", 0, check_cgroup},
    {"overcommit", 0, check_overcommit}, {"swap", 0, check_swap},
    {"huge_pages", 0, check_huge_pages}, {"clock", 0, check_clock},
    {"attach", 0, check_attach},         {"unwind", 0, check_unwind},
    {"nvidia", 0, check_nvidia},         {"drm", 0, check_drm},
    {"engines", 0, check_engines},       {"disk", 0, check_disk},
};

int mt_doctor_look(const struct mt_doctor_os *os, const struct mt_doctor_options *options,
                   struct mt_check **checks, size_t *n_checks, struct mt_error *error)
{
    enum { COUNT = sizeof all_checks / sizeof *all_checks };
    struct mt_cgroup cgroup;
    struct look look = {.os = os, .options = options};
    struct mt_check *made = calloc(COUNT, sizeof *made);
    if (!made)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory for the checks");
    memset(&look.sample, 0xff, sizeof look.sample);
    mt_cgroup_find(&os->host, 0, &cgroup);
    look.has_sample = mt_host_read(&os->host, &cgroup, &look.sample, NULL) == 0;
    for (size_t i = 0; i < COUNT; i++) {
        made[i].name = all_checks[i].name;
        made[i].essential = all_checks[i].essential;
        all_checks[i].check(&look, &made[i]);
    }
    *checks = made;
    *n_checks = COUNT;
    return 0;
}

int mt_doctor_run(const struct mt_doctor_options *options, struct mt_check **checks,
                  size_t *n_checks, struct mt_error *error)
{
    struct mt_doctor_os os;
    mt_doctor_os_init(&os);
    return mt_doctor_look(&os, options, checks, n_checks, error);
}

void mt_checks_destroy(struct mt_check *checks)
{
    free(checks);
}

const char *mt_check_state_name(enum mt_check_state state)
{
    static const char *const names[] = {
        [MT_CHECK_OK] = "ok",
        [MT_CHECK_LIMITED] = "limited",
        [MT_CHECK_MISSING] = "missing",
    };
    return (unsigned)state < sizeof names / sizeof *names ? names[state] : "?";
}
