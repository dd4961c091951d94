/* SPDX-License-Identifier: MIT */
/* Reservations of memory that the processes of one user share through one file.
 *
 *     struct mt_budget_need need = {.place = "gpu0", .bytes = 4ull << 30};
 *     uint64_t id;
 *     if (mt_budget_ask("/run/user/1000/budget", &need, 1, &id, NULL) == MT_OK &&
 *         mt_budget_take("/run/user/1000/budget", id, places, n_places, NULL) == MT_OK)
 *         use_it();
 *     mt_budget_release("/run/user/1000/budget", id, NULL);
 *
 * The caller chooses the file and says what each place has free; the budget knows who has been
 * promised what. A reservation belongs to the process that asked and ends with it, however it ends:
 * a process is known by its id, its start time, its pid namespace and the boot. A process of
 * another pid namespace cannot be looked at, so what it reserved counts until it releases it,
 * unless it is guarded: containers that share a card through a file guard what they reserve.
 *
 * Order. Who asked first is served first where there is room, and a later request that fits may
 * pass one that does not. After MT_BUDGET_PASSES such passes nobody passes any more who needs one
 * of its places, so that a large request does not starve.
 *
 * Damage. Each slot has a checksum. One that fails it is given up, and its holder is told
 * MT_ENOTFOUND when it next asks for it. Any function here may be called from any thread, and none
 * waits for memory: the caller asks again when it likes. */
#ifndef MEMTALLY_BUDGET_H
#define MEMTALLY_BUDGET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */

#define MT_BUDGET_PLACES      14  /* of one reservation */
#define MT_BUDGET_HOLDERS     128 /* that wait or hold at one time */
#define MT_BUDGET_PASSES      8
#define MT_BUDGET_PLACE_BYTES 48 /* of a place's name with its end */

/* What a reservation needs of a place: "host", "gpu0", a device's UUID. Names are compared only.
 * "gpu*" is any place that starts with "gpu" and that no other need of the reservation has; once it
 * is taken, mt_budget_list() has its name. */
struct mt_budget_need {
    char place[MT_BUDGET_PLACE_BYTES];
    uint64_t bytes;
    uint64_t used_bytes; /* of those, what the holder said it has taken; 0 until it says so */
};

/* What a place has. What others took, of whatever user, is missing in `free_bytes`. */
struct mt_budget_place {
    const char *name;
    uint64_t capacity_bytes;
    uint64_t free_bytes;
    uint64_t min_free_bytes; /* stays free */
    uint64_t overhead_bytes; /* that each holder takes beside what it needs: a driver's context */
};

/* Who waits or holds. */
struct mt_budget_holder {
    uint64_t id;
    int pid;
    int holds;         /* 0: it waits */
    uint32_t n_passed; /* later requests that went before it */
    uint32_t n_needs;
    struct mt_budget_need needs[MT_BUDGET_PLACES];
};

/* Puts a request of the calling process into the queue and makes the file where there is none. *id
 * names it from then on. Errors: MT_EARG, MT_ELIMIT (all MT_BUDGET_HOLDERS are there), MT_EPERM
 * (the file is another user's or open to others), MT_EIO, MT_ENOMEM. */
int mt_budget_ask(const char *path, const struct mt_budget_need *needs, size_t n_needs,
                  uint64_t *id, struct mt_error *error);

/* Turns a request of the calling process into a reservation if there is room now. A place has room
 * for what is free, less what holders were promised and have not taken yet, less `min_free_bytes`.
 * Succeeds also where it is one already. Errors: MT_EBUSY (not now; the text says why), MT_ELIMIT
 * (never: more than the capacity), MT_EARG (a place that is needed is not among `places`),
 * MT_ENOTFOUND, and those of mt_budget_ask(). */
int mt_budget_take(const char *path, uint64_t id, const struct mt_budget_place *places,
                   size_t n_places, struct mt_error *error);

/* Says how much of a place the holder has taken by now, so that it is not counted twice. More than
 * was reserved counts as all of it. Errors: MT_ENOTFOUND, and those of mt_budget_ask(). */
int mt_budget_renew(const char *path, uint64_t id, const char *place, uint64_t used_bytes,
                    struct mt_error *error);

/* Ties a request or a reservation of the calling process to *fd, which the caller closes: it ends
 * when that is closed wherever it was inherited, and is so seen from other pid namespaces, and from
 * other machines where the file system passes locks on. *fd is closed by exec. Errors: as
 * mt_budget_renew(). */
int mt_budget_guard(const char *path, uint64_t id, int *fd, struct mt_error *error);

/* Ends a request or a reservation of the calling process. Errors: as mt_budget_renew(). */
int mt_budget_release(const char *path, uint64_t id, struct mt_error *error);

/* Sets holders[0..*n) to those that wait or hold, those that came first before others, and
 * *n_damaged (may be NULL) to the slots that this look gave up. `holders` has room for
 * MT_BUDGET_HOLDERS. Errors: as mt_budget_ask(). */
int mt_budget_list(const char *path, struct mt_budget_holder *holders, size_t *n, size_t *n_damaged,
                   struct mt_error *error);

#ifdef __cplusplus
}
#endif
#endif
