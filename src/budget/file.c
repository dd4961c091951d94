/* SPDX-License-Identifier: MIT */
/* Reads, mends and writes the budget's file, and tells which holders live. Knows nothing of what
 * fits. */
#include "budget/file.h"

#include "base/crc32c.h"
#include "base/error.h"
#include "base/fail_errno.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLOT_BYTES 1024u

struct head {
    char magic[8];
    uint64_t next_id;
    uint64_t checksum;
};

static const char magic[8] = {'m', 't', 'b', 'u', 'd', 'g', 't', '1'};

static uint64_t sum_of_slot(const struct mt_budget_slot *slot)
{
    return mt_crc32c(0, slot, offsetof(struct mt_budget_slot, checksum));
}

static uint64_t sum_of_head(const struct head *head)
{
    return mt_crc32c(0, head, offsetof(struct head, checksum));
}

static uint64_t number_of(const char *bytes, long n)
{
    return n <= 0 ? 0 : 1 + (uint64_t)mt_crc32c(0, bytes, (size_t)n);
}

static void know_machine(struct mt_budget_file *file)
{
    const struct mt_host_os *host = &file->os->host;
    char bytes[128];
    long n = host->read_file(host->context, "/proc/sys/kernel/random/boot_id", bytes, sizeof bytes);
    file->boot = number_of(bytes, n);
    n = host->read_link(host->context, "/proc/self/ns/pid", bytes, sizeof bytes);
    file->namespace = number_of(bytes, n);
}

static int lives(const struct mt_budget_file *file, const struct mt_budget_slot *slot)
{
    struct mt_process process;
    const struct mt_budget_os *os = file->os;
    if (slot->is_guarded)
        return os->is_held(os->context, file->fd, mt_budget_guard_of(slot->holder.id)) != 0;
    if (slot->boot != file->boot)
        return 0;
    if (slot->namespace != file->namespace)
        return 1;
    int status = mt_process_read(&file->os->host, slot->holder.pid, &process, NULL);
    if (status == MT_ENOTFOUND)
        return 0;
    if (status < 0)
        return 1; /* what cannot be seen now may live */
    return process.start_ticks == slot->start_ticks && process.state != 'Z' && process.state != 'X';
}

static int is_free(const struct mt_budget_slot *slot)
{
    static const struct mt_budget_slot zero;
    return memcmp(slot, &zero, sizeof zero) == 0;
}

static int is_sound(const struct mt_budget_slot *slot)
{
    if (slot->checksum != sum_of_slot(slot) || slot->holder.n_needs > MT_BUDGET_PLACES)
        return 0;
    for (uint32_t i = 0; i < slot->holder.n_needs; i++)
        if (!memchr(slot->holder.needs[i].place, '\0', MT_BUDGET_PLACE_BYTES))
            return 0;
    return 1;
}

static void take_slot(struct mt_budget_file *file, size_t i, const char *bytes)
{
    struct mt_budget_slot *slot = &file->slots[i];
    memcpy(slot, bytes, sizeof *slot);
    if (is_free(slot))
        return;
    int sound = is_sound(slot);
    if (sound && slot->holder.id >= file->next_id)
        file->next_id = slot->holder.id + 1;
    if (!sound)
        file->n_damaged++;
    if (!sound || slot->holder.id == 0 || !lives(file, slot))
        memset(slot, 0, sizeof *slot);
}

static long read_file(struct mt_budget_file *file)
{
    size_t n = SLOT_BYTES * (MT_BUDGET_HOLDERS + 1);
    char *bytes = calloc(1, n);
    if (!bytes)
        return -ENOMEM;
    long got = file->os->read(file->os->context, file->fd, bytes, n, 0);
    if (got >= 0) {
        struct head head;
        memcpy(&head, bytes, sizeof head);
        int sound = memcmp(head.magic, magic, sizeof magic) == 0 &&
                    head.checksum == sum_of_head(&head) && head.next_id > 0;
        file->next_id = sound ? head.next_id : 1;
        file->n_damaged = got > 0 && !sound;
        for (size_t i = 0; i < MT_BUDGET_HOLDERS; i++)
            take_slot(file, i, bytes + SLOT_BYTES * (i + 1));
    }
    free(bytes);
    return got;
}

uint64_t mt_budget_guard_of(uint64_t id)
{
    return ((uint64_t)1 << 40) + id % ((uint64_t)1 << 40);
}

int mt_budget_open(const struct mt_budget_os *os, const char *path, struct mt_budget_file **file,
                   struct mt_error *error)
{
    struct mt_budget_file *made = calloc(1, sizeof *made);
    if (!made)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory to read %s", path);
    made->os = os;
    made->fd = os->open(os->context, path);
    long status = made->fd;
    if (status >= 0)
        status = os->lock(os->context, made->fd);
    if (status >= 0) {
        know_machine(made);
        status = read_file(made);
    }
    if (status < 0) {
        mt_budget_close(made);
        return mt_fail_errno(error, (int)-status, "cannot use the budget's file %s", path);
    }
    *file = made;
    return 0;
}

void mt_budget_close(struct mt_budget_file *file)
{
    if (file->fd >= 0)
        file->os->close(file->os->context, file->fd);
    free(file);
}

static int write_at(struct mt_budget_file *file, const void *bytes, size_t n, uint64_t offset,
                    struct mt_error *error)
{
    long done = file->os->write(file->os->context, file->fd, bytes, n, offset);
    if (done < 0)
        return mt_fail_errno(error, (int)-done, "cannot write the budget's file");
    if ((size_t)done < n)
        return mt_fail(error, MT_EIO, MT_NO_OFFSET,
                       "the budget's file was written in part; make room on its file system");
    return 0;
}

int mt_budget_write(struct mt_budget_file *file, size_t i, int head, struct mt_error *error)
{
    if (head) {
        struct head first = {.next_id = file->next_id};
        memcpy(first.magic, magic, sizeof magic);
        first.checksum = sum_of_head(&first);
        int status = write_at(file, &first, sizeof first, 0, error);
        if (status < 0)
            return status;
    }
    struct mt_budget_slot *slot = &file->slots[i];
    slot->checksum = 0;
    if (!is_free(slot))
        slot->checksum = sum_of_slot(slot);
    return write_at(file, slot, sizeof *slot, SLOT_BYTES * (i + 1), error);
}
