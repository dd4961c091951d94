/* SPDX-License-Identifier: MIT */
/* What the files of this room share. */
#ifndef MT_PLACE_INTERNAL_H
#define MT_PLACE_INTERNAL_H

#include <memtally/place.h>

#include "chain.h"

/* A placement while it is made; the public one is its first member. */
struct mt_placement_made {
    struct mt_placement it;
    int *unit_device;
    int *expert_device;
    int *expert_at; /* rows of it.experts_most, or NULL */
    struct mt_placement_device *devices;
};

/* One with all units on MT_PLACE_ANY. NULL without memory. */
struct mt_placement_made *mt_placement_new(const struct mt_place_problem *problem, int apart);

/* Counts bytes, crossings, shares and tokens of a placement whose units and experts all lie
 * somewhere. */
void mt_placement_count(const struct mt_place_problem *problem, struct mt_placement_made *made);

/* Whether each unit lies somewhere, parts add up to what is used, and nothing was lost on the way.
 */
int mt_placement_is_valid(const struct mt_place_problem *problem,
                          const struct mt_placement *placement);

/* All that a unit takes where it lies. */
static inline uint64_t mt_place_unit_bytes(const struct mt_place_unit *unit)
{
    return unit->dense_bytes + unit->expert_bytes + unit->cache_bytes + unit->work_bytes;
}

/* How often each expert of a unit is used; NULL: all alike. */
const double *mt_place_use_of(const struct mt_place_problem *problem,
                              const struct mt_placement *placement, size_t index);

/* What a crossing between two devices takes, and the fastest one of all. */
double mt_place_link_seconds(const struct mt_place_problem *problem, size_t a, size_t b);
double mt_place_fastest_link(const struct mt_place_problem *problem);

/* Lets devices that are alike change places, so that the path takes the fastest links. Returns 0 or
 * MT_ENOMEM. */
int mt_place_follow_links(const struct mt_place_problem *problem, const struct mt_chain *chain,
                          struct mt_chain_split *split);

/* In which a device reads what a token needs of a unit. */
double mt_place_read_seconds(const struct mt_place_problem *problem, size_t device,
                             const struct mt_place_unit *unit);

/* The bytes of all units, without what devices have in any case. */
uint64_t mt_place_bytes(const struct mt_place_problem *problem);

/* What no placement of `bytes` can undercut: the number of devices in use, and with `devices` of
 * them the highest share. */
size_t mt_place_least_devices(const struct mt_place_problem *problem, uint64_t bytes);
double mt_place_least_share(const struct mt_place_problem *problem, uint64_t bytes, size_t devices);

/* The best split of what does not fit on the devices: experts leave for the host, then the first
 * layers. `leaves[i]` is 1 for a unit whose experts leave. Returns 1, 0 (nothing helps), MT_ENOMEM.
 */
struct mt_place_leaving {
    size_t units; /* at the start of the chain that leave */
    int *experts; /* n_units */
    int is_best;
};
/* Units [left, n) as they are to be placed once those before them left; `experts` tells whose
 * experts leave too, NULL: nobody's. The caller frees it. NULL without memory. */
struct mt_place_unit *mt_place_units_that_stay(const struct mt_place_problem *problem, size_t left,
                                               const int *experts);

/* Whether a unit or its experts are on no device. */
static inline int mt_place_is_left(int device)
{
    return device <= MT_PLACE_HOST;
}

int mt_place_leave(const struct mt_place_problem *problem, struct mt_place_leaving *leaving,
                   struct mt_error *error);

/* Refuses what is no problem: without devices or units, of no size. Errors: MT_EARG. */
int mt_place_check(const struct mt_place_problem *problem, struct mt_error *error);

/* Packs units wherever there is room. Returns 1, 0 (no way was found), MT_ENOMEM. */
int mt_place_pack(const struct mt_place_problem *problem, struct mt_placement_made **made,
                  struct mt_error *error);

/* Fails with MT_ELIMIT and says what is missing. */
int mt_place_refuse(const struct mt_place_problem *problem, struct mt_error *error);

#endif
