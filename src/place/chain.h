/* SPDX-License-Identifier: MIT */
/* Dividing a chain of units among devices, each of which gets one stretch of it.
 *
 * Devices that are alike are counted, not named: a state is how many of each kind are in use. With
 * D devices of one kind there are D + 1 states, with D different ones 2^D. */
#ifndef MT_PLACE_CHAIN_H
#define MT_PLACE_CHAIN_H

#include <stddef.h>
#include <stdint.h>

struct mt_place_device; /* all of <memtally/place.h> */
struct mt_place_problem;
struct mt_place_unit;

/* A share is a number of 2^-MT_SHARE_BITS: less than a byte of any device. */
#define MT_SHARE_BITS 48
#define MT_SHARE_ALL  (UINT64_C(1) << MT_SHARE_BITS)

#define MT_CHAIN_STATES_MAX 65536

/* Sums run from the start of the chain to unit i. What is borrowed must live as long. */
struct mt_chain {
    size_t n;
    uint64_t *bytes;   /* n + 1 */
    uint64_t *grown;   /* n + 1: what each further token adds */
    const int *pinned; /* n, or NULL: a device or MT_PLACE_ANY */
    size_t n_devices;
    const struct mt_place_device *devices;
    size_t n_kinds;
    size_t *kind_of; /* of each device */
    size_t *count;   /* of each kind */
    size_t *stride;  /* of each kind in the number of a state */
    size_t *example; /* a device of each kind */
    size_t n_states;
    uint16_t *used; /* devices that each state has in use */
};

/* What a solution must keep to. */
struct mt_chain_bounds {
    uint64_t share;  /* the highest of any device, in 2^-MT_SHARE_BITS of its capacity */
    uint64_t tokens; /* beside those that the units' bytes count; with them each device must still
                        keep to its limit, whatever the share */
    size_t devices;  /* the most in use */
};

/* The stretches of a solution, in the order of the chain. */
struct mt_chain_split {
    size_t n;
    size_t *device; /* n_devices of room each */
    size_t *end;    /* one past the last unit */
};

/* Errors: MT_ENOMEM, MT_ELIMIT (too many devices that differ). */
int mt_chain_init(struct mt_chain *chain, const struct mt_place_problem *problem,
                  const struct mt_place_unit *units, size_t n_units, struct mt_error *error);
void mt_chain_finish(struct mt_chain *chain);

int mt_chain_split_init(struct mt_chain_split *split, const struct mt_chain *chain,
                        struct mt_error *error);
void mt_chain_split_finish(struct mt_chain_split *split);

/* Bytes that a device may have of the chain; -1 where not even what it has in any case fits. */
int64_t mt_chain_room(const struct mt_chain *chain, size_t device, uint64_t share);

/* One past the last unit that a device gets to within the bounds, from unit `from` on. */
size_t mt_chain_extend(const struct mt_chain *chain, size_t device, size_t from,
                       const struct mt_chain_bounds *bounds);

/* The fullest split's way: each device takes as much as it may. Returns 1 and fills `split`, 0
 * where no split keeps to the bounds, or MT_ENOMEM. */
int mt_chain_fill(const struct mt_chain *chain, const struct mt_chain_bounds *bounds,
                  struct mt_chain_split *split);

/* What the stretch of units [from, to) costs on a device; negative: neither it nor a longer one can
 * lie there. */
typedef double mt_chain_cost(const void *argument, size_t device, size_t from, size_t to);

/* The split whose stretches' costs have the smallest sum, among those that have at most `devices`
 * in use. Stretches that pins forbid are not asked for. Returns as mt_chain_fill(). */
int mt_chain_cheapest(const struct mt_chain *chain, size_t devices, mt_chain_cost *cost,
                      const void *argument, struct mt_chain_split *split);

/* Steps that mt_chain_cheapest() takes, to tell whether it is worth them. */
double mt_chain_steps(const struct mt_chain *chain);

/* Whether pins let the stretch lie on the device. */
int mt_chain_may_lie(const struct mt_chain *chain, size_t device, size_t from, size_t to);

#endif
