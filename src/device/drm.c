/* SPDX-License-Identifier: MIT */
/* DRM's fdinfo, whose lines the kernel's Documentation/gpu/drm-usage-stats.rst defines. Reaches
 * files through struct mt_host_os only. */
#include "device/drm.h"

#include <memtally/units.h>

#include "base/fail_errno.h"
#include "device/span.h"

#include <stdio.h>
#include <string.h>

#define TEXT_BYTES 8192
#define PATH_BYTES 320

/* What one file says. Of each region `resident` is the best word, then `memory`, which older
 * drivers have, then `total`, which counts what was asked for. */
struct said {
    struct mt_drm_device device;
    uint64_t client;
    int has_client;
    uint64_t of[3][2]; /* resident, memory, total; of the device, of the host */
    int is_said[3];
};

enum { RESIDENT, MEMORY, TOTAL };

static void copy(char text[MT_DRM_NAME_MAX], struct mt_span value)
{
    while (value.at < value.end && (*value.at == ' ' || *value.at == '\t'))
        value.at++;
    size_t length = (size_t)(value.end - value.at);
    length = length < MT_DRM_NAME_MAX ? length : MT_DRM_NAME_MAX - 1;
    for (size_t i = 0; i < length; i++)
        text[i] = value.at[i] < ' ' ? '?' : value.at[i];
    text[length] = '\0';
}

/* "\t1024 KiB"; without a unit bytes. */
static int read_bytes(struct mt_span value, uint64_t *bytes)
{
    unsigned shift = 0;
    while (value.at < value.end && (*value.at == '\t' || *value.at == ' '))
        value.at++;
    if (!mt_span_number(&value, bytes))
        return 0;
    while (value.at < value.end && *value.at == ' ')
        value.at++;
    if (mt_span_starts(&value, "KiB"))
        shift = 10;
    else if (mt_span_starts(&value, "MiB"))
        shift = 20;
    if (*bytes > UINT64_MAX >> shift)
        return 0;
    *bytes <<= shift;
    return 1;
}

/* A region's name begins with what its memory is: vram, vram0, local0 and the like are a device's
 * own. What a device keeps of neither (amdgpu's gds) is no memory that anyone asks for. */
static int place_of_region(const struct mt_span *region)
{
    static const struct {
        const char *begins;
        int is_of_host;
    } known[] = {
        {"stolen-system", 1}, {"stolen", 0}, {"vram", 0}, {"local", 0}, {"lmem", 0},
        {"system", 1},        {"memory", 1}, {"gtt", 1},  {"gart", 1},  {"cpu", 1},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (mt_span_starts(region, known[i].begins))
            return known[i].is_of_host;
    return -1;
}

static void take_region(struct said *said, int kind, struct mt_span region, struct mt_span value)
{
    uint64_t bytes;
    int is_of_host = place_of_region(&region);
    if (is_of_host < 0 || !read_bytes(value, &bytes))
        return;
    uint64_t *sum = &said->of[kind][is_of_host];
    if (bytes > UINT64_MAX / 2 - *sum)
        return;
    *sum += bytes;
    said->is_said[kind] = 1;
}

static void take_line(struct said *said, struct mt_span line)
{
    static const char *const kinds[] = {"drm-resident-", "drm-memory-", "drm-total-"};
    struct mt_span key;
    if (!mt_span_until(&line, ':', &key))
        return;
    if (mt_span_is(&key, "drm-driver"))
        copy(said->device.driver, line);
    else if (mt_span_is(&key, "drm-pdev"))
        copy(said->device.pci, line);
    else if (mt_span_is(&key, "drm-client-id")) {
        while (line.at < line.end && *line.at == '\t')
            line.at++;
        said->has_client = mt_span_number(&line, &said->client);
    } else {
        for (int i = 0; i < 3; i++)
            if (mt_span_starts(&key, kinds[i])) {
                key.at += strlen(kinds[i]);
                take_region(said, i, key, line);
            }
    }
}

static size_t find_device(struct mt_drm_use *use, const struct mt_drm_device *device)
{
    size_t i = 0;
    while (i < use->n_devices && (strcmp(use->devices[i].pci, device->pci) != 0 ||
                                  strcmp(use->devices[i].driver, device->driver) != 0))
        i++;
    if (i == use->n_devices && i < MT_DRM_DEVICES) {
        use->devices[i] = *device;
        use->devices[i].device_bytes = use->devices[i].host_bytes = MT_UNKNOWN;
        use->n_devices++;
    }
    return i;
}

/* Whether the client was counted before; notes it. */
static int is_known(struct mt_drm_use *use, size_t device, uint64_t id)
{
    for (size_t i = 0; i < use->n_clients; i++)
        if (use->clients[i].device == device && use->clients[i].id == id)
            return 1;
    if (use->n_clients == MT_DRM_CLIENTS)
        return 1; /* too many: rather too little than twice */
    use->clients[use->n_clients].device = device;
    use->clients[use->n_clients++].id = id;
    return 0;
}

static void add(uint64_t *sum, uint64_t bytes)
{
    if (*sum == MT_UNKNOWN)
        *sum = 0;
    *sum += bytes < MT_UNKNOWN - 1 - *sum ? bytes : MT_UNKNOWN - 1 - *sum;
}

static void take_file(const struct mt_host_os *os, const char *path, struct mt_drm_use *use)
{
    char text[TEXT_BYTES];
    struct said said = {0};
    struct mt_span line;
    long n = os->read_file(os->context, path, text, sizeof text);
    if (n <= 0)
        return;
    struct mt_span all = {text, text + n};
    while (mt_span_line(&all, &line))
        take_line(&said, line);
    if (!*said.device.driver || !said.has_client)
        return;
    size_t device = find_device(use, &said.device);
    if (device == MT_DRM_DEVICES || is_known(use, device, said.client))
        return;
    for (int kind = RESIDENT; kind <= TOTAL; kind++)
        if (said.is_said[kind]) {
            add(&use->devices[device].device_bytes, said.of[kind][0]);
            add(&use->devices[device].host_bytes, said.of[kind][1]);
            return;
        }
}

struct looking {
    const struct mt_host_os *os;
    int pid;
    struct mt_drm_use *use;
};

static int look_at(void *context, const char *name)
{
    const struct looking *looking = context;
    const struct mt_host_os *os = looking->os;
    char path[PATH_BYTES];
    char target[32];
    snprintf(path, sizeof path, "/proc/%d/fd/%.200s", looking->pid, name);
    long n = os->read_link(os->context, path, target, sizeof target - 1);
    target[n > 0 ? n : 0] = '\0';
    if (strncmp(target, "/dev/dri/", 9) != 0 && strncmp(target, "/dev/accel/", 11) != 0)
        return 0;
    snprintf(path, sizeof path, "/proc/%d/fdinfo/%.200s", looking->pid, name);
    take_file(os, path, looking->use);
    return 0;
}

int mt_drm_add(const struct mt_host_os *os, int pid, struct mt_drm_use *use, struct mt_error *error)
{
    struct looking looking = {os, pid, use};
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    int result = os->list(os->context, path, look_at, &looking);
    return result < 0 ? mt_fail_errno(error, -result, "cannot list the files of process %d", pid)
                      : 0;
}
