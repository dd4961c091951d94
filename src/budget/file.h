/* SPDX-License-Identifier: MIT */
/* The budget's file: a head and slots of one size, each with its checksum.
 *
 *     file: head (1024 bytes), slot (1024 bytes) × MT_BUDGET_HOLDERS
 *     head: magic, next id, checksum; a slot is free where its id is 0
 *
 * A slot lies within a page, so that a process that is killed has written it or has not. The file
 * is opened anew for each change and locked meanwhile; a lock of the kernel ends with its owner.
 * Locks are those of ranges, which belong to an open file, not to a process, and which network file
 * systems pass on: of the first byte while it is used, of a byte past the end for a guarded id. */
#ifndef MT_BUDGET_FILE_H
#define MT_BUDGET_FILE_H

#include <memtally/budget.h>

#include "device/host.h"

struct mt_budget_slot {
    uint64_t boot; /* a number for the boot, and for the pid namespace */
    uint64_t namespace;
    uint64_t start_ticks;
    struct mt_budget_holder holder;
    uint32_t is_guarded; /* it lives as long as its byte's lock */
    char unused[60];
    uint64_t checksum;
};
_Static_assert(sizeof(struct mt_budget_slot) <= 1024, "a slot lies within a page");

/* The outside world of this room. Each function gives a negative errno where it fails. */
struct mt_budget_os {
    struct mt_host_os host;
    void *context;
    int pid;
    int (*open)(void *context, const char *path); /* refuses what is not the user's own: -EPERM */
    int (*lock)(void *context, int fd);
    long (*read)(void *context, int fd, void *bytes, size_t n, uint64_t offset);
    long (*write)(void *context, int fd, const void *bytes, size_t n, uint64_t offset);
    void (*close)(void *context, int fd);                   /* ends the lock too */
    int (*hold)(void *context, int fd, uint64_t offset);    /* locks a byte until fd is closed */
    int (*is_held)(void *context, int fd, uint64_t offset); /* by another open file: 1, else 0 */
};

void mt_budget_os_init(struct mt_budget_os *os);

/* The file while it is locked. */
struct mt_budget_file {
    const struct mt_budget_os *os;
    int fd;
    uint64_t next_id;
    uint64_t boot;
    uint64_t namespace;
    size_t n_damaged;
    struct mt_budget_slot slots[MT_BUDGET_HOLDERS];
};

/* Opens, locks and reads; slots whose holder is gone are free. Ended by mt_budget_close(). */
int mt_budget_open(const struct mt_budget_os *os, const char *path, struct mt_budget_file **file,
                   struct mt_error *error);
void mt_budget_close(struct mt_budget_file *file);

/* The byte that is locked for a guarded reservation. */
uint64_t mt_budget_guard_of(uint64_t id);

/* Writes slot `i`, and the head where `head` is set. */
int mt_budget_write(struct mt_budget_file *file, size_t i, int head, struct mt_error *error);

/* The public functions with a world of the caller's. */
int mt_budget_ask_in(const struct mt_budget_os *os, const char *path,
                     const struct mt_budget_need *needs, size_t n_needs, uint64_t *id,
                     struct mt_error *error);
int mt_budget_take_in(const struct mt_budget_os *os, const char *path, uint64_t id,
                      const struct mt_budget_place *places, size_t n_places,
                      struct mt_error *error);
int mt_budget_renew_in(const struct mt_budget_os *os, const char *path, uint64_t id,
                       const char *place, uint64_t used_bytes, struct mt_error *error);
int mt_budget_guard_in(const struct mt_budget_os *os, const char *path, uint64_t id, int *fd,
                       struct mt_error *error);
int mt_budget_release_in(const struct mt_budget_os *os, const char *path, uint64_t id,
                         struct mt_error *error);
int mt_budget_list_in(const struct mt_budget_os *os, const char *path,
                      struct mt_budget_holder *holders, size_t *n, size_t *n_damaged,
                      struct mt_error *error);

#endif
