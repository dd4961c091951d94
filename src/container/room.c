/* SPDX-License-Identifier: MIT */
/* Whether a second engine finds room in a container. */
#include <memtally/host.h>
#include <memtally/units.h>

#include "base/error.h"
#include "container/container.h"
#include "device/host.h"

#define PROCESSES_MAX 512

/* What a process shares with no copy of it that runs beside: mapped files are there once. */
static uint64_t own_bytes(const struct mt_host_os *os, int pid)
{
    struct mt_process_memory memory;
    if (mt_process_memory_read(os, pid, &memory, NULL) < 0 || memory.anonymous_bytes == MT_UNKNOWN)
        return 0;
    return memory.anonymous_bytes +
           (memory.shared_memory_bytes == MT_UNKNOWN ? 0 : memory.shared_memory_bytes);
}

static int fail(const char *whose, uint64_t needed_bytes, uint64_t free_bytes,
                struct mt_error *error)
{
    char needed[MT_SIZE_TEXT];
    char free_text[MT_SIZE_TEXT];
    return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET,
                   "a second engine takes at least %s like the first, and %s has %s left; stop "
                   "other programs, or raise the limit",
                   mt_format_size(needed_bytes, needed), whose,
                   mt_format_size(free_bytes, free_text));
}

int mt_container_check_room(const struct mt_container *container, int pid, struct mt_error *error)
{
    int pids[PROCESSES_MAX];
    struct mt_host_os os;
    struct mt_host_sample sample;
    mt_host_os_init(&os);
    uint64_t needed = own_bytes(&os, pid);
    uint64_t used = 0;
    size_t n = mt_container_processes(container, pids, PROCESSES_MAX);
    for (size_t i = 0; i < n; i++)
        used += own_bytes(&os, pids[i]);
    if (container->limit_bytes != MT_UNKNOWN &&
        (used > container->limit_bytes || needed > container->limit_bytes - used))
        return fail("the container", needed,
                    used < container->limit_bytes ? container->limit_bytes - used : 0, error);
    if (mt_host_read(&os, NULL, &sample, NULL) == 0 &&
        sample.memory_available_bytes != MT_UNKNOWN && needed > sample.memory_available_bytes)
        return fail("the machine", needed, sample.memory_available_bytes, error);
    return MT_OK;
}
