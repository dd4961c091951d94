/* SPDX-License-Identifier: MIT */
/* The driver's side of the account: the file is made here, with the devices and their rules in it,
 * and the driver's own words go into it. account_reader.c reads it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <memtally/rehearsal.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "base/invariant.h"
#include "base/ticks.h"
#include "gpu/gpus.h"
#include "rehearse/account_file.h"
#include "rehearse/rules.h"

#define GENERATION_BYTES   16
#define DEVICE_LEAST_BYTES (UINT64_C(1) << 20)
#define DEVICE_MOST_BYTES  (UINT64_C(1) << 50)
#define DRIVER_VERSION     13000u /* CUDA 13.0 */
#define COPY_BYTES_MOST    (UINT32_C(64) << 10)
#define FIRST_BYTES        ((off_t)1 << 20) /* of the account, with its head */

static int check_device(const struct mt_rehearsal_device *device, size_t number,
                        struct mt_error *error)
{
    if (device->bytes < DEVICE_LEAST_BYTES)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "device %zu of %" PRIu64
                       " bytes: a device has at least 1 MiB; give its size with a unit",
                       number, device->bytes);
    if (device->bytes > DEVICE_MOST_BYTES)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "device %zu is larger than 1 PiB", number);
    if (device->reserved_bytes >= device->bytes)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "of device %zu all %" PRIu64 " bytes are reserved; nothing is left to "
                       "rehearse with",
                       number, device->bytes);
    return 0;
}

static int check(const struct mt_rehearsal_options *options, struct mt_error *error)
{
    if (options->n_devices && !options->devices)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "the devices are not said");
    if (options->n_devices > MT_ACCOUNT_DEVICES_MAX)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "%zu devices: at most %u can be pretended",
                       options->n_devices, MT_ACCOUNT_DEVICES_MAX);
    for (size_t i = 0; i < options->n_devices; i++) {
        int result = check_device(&options->devices[i], i, error);
        if (result < 0)
            return result;
    }
    return 0;
}

/* Writing into a hole of a full disk kills the writer, so there must be room beforehand: what is
 * surely written is taken, for the rest it is looked whether it would fit. Returns an errno. */
static int make_room(int fd)
{
    struct statvfs disk;
    if (ftruncate(fd, (off_t)sizeof(struct mt_account)) < 0)
        return errno;
    int failed = posix_fallocate(fd, 0, FIRST_BYTES);
    if (failed == ENOSPC || failed == EDQUOT)
        return failed;
    if (fstatvfs(fd, &disk) == 0 && disk.f_blocks &&
        disk.f_bavail < (sizeof(struct mt_account) - FIRST_BYTES) / disk.f_frsize)
        return ENOSPC;
    return 0;
}

static int map_file(const char *path, struct mt_account **account, struct mt_error *error)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == EEXIST)
        return mt_fail(error, MT_EBUSY, MT_NO_OFFSET,
                       "%s is there already, of another rehearsal; name a folder without one",
                       path);
    if (fd < 0)
        return mt_fail_errno(error, errno, "cannot make %s", path);
    void *at = MAP_FAILED;
    int failed = make_room(fd);
    if (!failed)
        at = mmap(NULL, sizeof **account, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!failed && at == MAP_FAILED)
        failed = errno;
    close(fd);
    if (failed) {
        unlink(path);
        return mt_fail_errno(error, failed, "cannot write %s", path);
    }
    *account = at;
    return 0;
}

static void fill_device(struct mt_account_device *made, const struct mt_rehearsal_device *device,
                        const char *prefix, unsigned number)
{
    snprintf(made->name, sizeof made->name, "%.16s%u", prefix, number);
    snprintf(made->description, sizeof made->description, "%s",
             device->name ? device->name : "pretended device");
    made->total_bytes = device->bytes;
    made->free_bytes = device->bytes - device->reserved_bytes;
}

/* The GPU that a CUDA program sees as this device, all but the size. */
static int fill_gpu(struct mt_account_device *made, const struct mt_rehearsal_device *device,
                    const char *generation, struct mt_error *error)
{
    struct mt_gpu_row row;
    int result = device->gpu ? mt_gpu_find(device->gpu, &row, error)
                             : mt_gpu_of_size(device->bytes, generation, &row, error);
    if (result < 0)
        return result;
    if (strcmp(row.kind, "cuda") != 0)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "%s is no GPU of NVIDIA: a CUDA program is not rehearsed on it", row.key);
    made->gpu = row.gpu;
    if (device->context_bytes)
        made->gpu.context_bytes = device->context_bytes;
    if (device->graph_node_bytes)
        made->gpu.graph_node_bytes = device->graph_node_bytes;
    return 0;
}

/* The card that one of ggml's devices is; *row is empty where there is none to ask. */
static int find_card(const struct mt_rehearsal_device *device, const char *kind,
                     struct mt_gpu_row *row, struct mt_error *error)
{
    *row = (struct mt_gpu_row){.key = ""};
    if (device->gpu)
        return mt_gpu_find(device->gpu, row, error);
    return strcmp(kind, "cuda") == 0 ? mt_gpu_of_size(device->bytes, NULL, row, error) : 0;
}

/* Cards of ggml's devices, whose generation decides what attention copies. */
static int fill_cards(struct mt_account *made, const struct mt_rehearsal_options *options,
                      struct mt_error *error)
{
    const char *kind = options->kind ? options->kind : "cuda";
    int result = 0;
    for (size_t i = 0; !options->generation && result == 0 && i < options->n_devices; i++) {
        struct mt_gpu_row row;
        result = find_card(&options->devices[i], kind, &row, error);
        made->device[i].gpu = (struct mt_gpu_spec){.capability = row.gpu.capability};
    }
    return result;
}

static int fill_cuda(struct mt_account *made, const struct mt_rehearsal_options *options,
                     struct mt_error *error)
{
    int result = 0;
    if (!options->cuda_directory)
        return fill_cards(made, options, error);
    for (size_t i = 0; result == 0 && i < options->n_devices; i++)
        result = fill_gpu(&made->device[i], &options->devices[i], options->generation, error);
    made->cuda.driver_version =
        options->cuda_driver_version ? options->cuda_driver_version : DRIVER_VERSION;
    made->cuda.copy_bytes_most = COPY_BYTES_MOST;
    return result;
}

/* What Vulkan's devices differ by, and cards of other kinds. */
static void name_generation(const char *kind, uint32_t capability, char text[GENERATION_BYTES])
{
    if (strcmp(kind, "vulkan") == 0)
        snprintf(text, GENERATION_BYTES, "%s", capability > MT_GPU_AMD ? "amd" : "nvidia");
    else if (capability > MT_GPU_AMD)
        snprintf(text, GENERATION_BYTES, "gfx%x", capability - MT_GPU_AMD);
    else
        snprintf(text, GENERATION_BYTES, "%u.%u", capability / 10 % 100, capability % 10);
}

/* The generation of what is the same for all of ggml's devices: that of the least capability of
 * their cards. "" where there is none to ask; *n_unknown is how many devices have no card. */
static int find_generation(const struct mt_rehearsal_options *options, char text[GENERATION_BYTES],
                           size_t *n_unknown, struct mt_error *error)
{
    const char *kind = options->kind ? options->kind : "cuda";
    uint32_t least = 0;
    *text = '\0';
    *n_unknown = 0;
    for (size_t i = 0; i < options->n_devices; i++) {
        struct mt_gpu_row row;
        int result = find_card(&options->devices[i], kind, &row, error);
        if (result < 0)
            return result;
        *n_unknown += !row.gpu.capability;
        if (row.gpu.capability && (!least || row.gpu.capability < least))
            least = row.gpu.capability;
    }
    if (least)
        name_generation(kind, least, text);
    return 0;
}

static int choose_rules(const struct mt_rehearsal_options *options, struct mt_pretend_rules *rules,
                        struct mt_error *error)
{
    char found[GENERATION_BYTES];
    size_t n_unknown = 0;
    const char *generation = options->generation;
    int result = generation ? 0 : find_generation(options, found, &n_unknown, error);
    if (result < 0)
        return result;
    if (!generation && *found)
        generation = found;
    result =
        mt_pretend_rules_choose(options->kind, generation, options->engine_version, rules, error);
    rules->is_generation_assumed = n_unknown > 0;
    return result;
}

int mt_account_create(const struct mt_rehearsal_options *options, const char *path,
                      struct mt_account **account, struct mt_error *error)
{
    struct mt_pretend_rules rules;
    struct mt_account *made = NULL;
    int result = check(options, error);
    if (result == 0)
        result = choose_rules(options, &rules, error);
    if (result == 0)
        result = map_file(path, &made, error);
    if (result < 0)
        return result;
    made->rules = rules;
    made->builds.is_told = options->engine_version != NULL;
    result = mt_pretend_builds_fill(&rules, &made->builds, error);
    if (result == 0)
        result = fill_cuda(made, options, error);
    if (result < 0) {
        mt_account_unmap(made);
        unlink(path);
        return result;
    }
    made->n_devices = (uint32_t)options->n_devices;
    for (size_t i = 0; i < options->n_devices; i++)
        fill_device(&made->device[i], &options->devices[i], rules.device_prefix, (unsigned)i);
    made->host_bytes = options->host_bytes;
    made->start_ns = mt_monotonic_ns();
    made->format = MT_ACCOUNT_FORMAT;
    memcpy(made->magic, MT_ACCOUNT_MAGIC, sizeof made->magic);
    MT_HOLDS(mt_account_is_valid(made));
    *account = made;
    return 0;
}

void mt_account_unmap(struct mt_account *account)
{
    if (account)
        munmap(account, sizeof *account);
}

void mt_account_note(struct mt_account *account, enum mt_account_kind kind, uint32_t pid,
                     const char *name)
{
    uint64_t number = __atomic_fetch_add(&account->n_events, 1, __ATOMIC_RELAXED);
    if (number >= MT_ACCOUNT_EVENTS_MAX)
        return;
    struct mt_account_event *event = &account->event[number];
    event->place = MT_ACCOUNT_HOST;
    event->pid = pid;
    event->time_ns = mt_monotonic_ns();
    snprintf(event->name, sizeof event->name, "%s", name);
    __atomic_store_n(&event->kind, (uint32_t)kind, __ATOMIC_RELEASE);
}

static void take_off(uint64_t *counter, uint64_t bytes)
{
    uint64_t seen = __atomic_load_n(counter, __ATOMIC_RELAXED);
    uint64_t left;
    do
        left = seen > bytes ? seen - bytes : 0;
    while (
        !__atomic_compare_exchange_n(counter, &seen, left, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

void mt_account_give_back(struct mt_account *account, uint8_t place, uint64_t bytes, uint64_t held)
{
    if (place == MT_ACCOUNT_HOST) {
        take_off(&account->host_used_bytes, bytes);
        return;
    }
    take_off(&account->device[place].used_bytes, bytes);
    take_off(&account->device[place].held_bytes, held);
}

int mt_account_is_full(const struct mt_account *account)
{
    return __atomic_load_n(&account->n_events, __ATOMIC_ACQUIRE) > MT_ACCOUNT_EVENTS_MAX;
}

uint64_t mt_account_of_process(const struct mt_account *account, uint32_t pid, uint32_t device,
                               int is_held)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < MT_ACCOUNT_PROCESSES; i++) {
        const struct mt_account_process *row = &account->process[i];
        if (__atomic_load_n(&row->pid, __ATOMIC_ACQUIRE) == pid)
            sum += __atomic_load_n(is_held ? &row->held_bytes[device] : &row->used_bytes[device],
                                   __ATOMIC_RELAXED);
    }
    return sum;
}

void mt_account_drop_process(struct mt_account *account, uint32_t pid)
{
    for (uint32_t i = 0; i < MT_ACCOUNT_PROCESSES; i++) {
        struct mt_account_process *row = &account->process[i];
        if (__atomic_load_n(&row->pid, __ATOMIC_ACQUIRE) != pid)
            continue;
        row->image = row->host_used_bytes = 0;
        memset(row->used_bytes, 0, sizeof row->used_bytes);
        memset(row->held_bytes, 0, sizeof row->held_bytes);
        __atomic_store_n(&row->pid, 0, __ATOMIC_RELEASE);
    }
}
