/* SPDX-License-Identifier: MIT */
/* Placing a model on devices: which parts go where, so that it fits with the fewest crossings and
 * the most room, and what is known of better ways.
 *
 * A model is a chain of units in the order in which a token passes them: the embedding, each layer,
 * the output. A device gets one stretch of the chain. Among all such splits the answer is the best
 * one, found by dynamic programming over the devices in use (all orders of devices that differ).
 * Nothing here touches a device, a clock or the environment. Any function may be called from any
 * thread. All sizes are bytes. */
#ifndef MEMTALLY_PLACE_H
#define MEMTALLY_PLACE_H

#include <stddef.h>
#include <stdint.h>

#include <memtally/error.h>
#include <memtally/predict.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_model; /* <memtally/model_file.h> */

/* What is made as good as possible, once each device keeps to its limit. X(NAME, "name"). */
#define MT_OBJECTIVE_LIST(X)                                                                       \
    X(CROSSINGS, "crossings") /* fewest crossings, then the smallest highest utilisation */        \
    X(BALANCE, "balance")     /* the smallest highest utilisation, then fewest crossings */        \
    X(ROOM, "room")           /* the most tokens of context, then fewest crossings */              \
    X(SPEED, "speed")         /* the least time to read the weights once, crossings included */

enum mt_objective {
#define MT_OBJECTIVE_ENUM(NAME, name) MT_OBJECTIVE_##NAME,
    MT_OBJECTIVE_LIST(MT_OBJECTIVE_ENUM)
#undef MT_OBJECTIVE_ENUM
        MT_OBJECTIVE_COUNT
};

/* "crossings" and so on. Borrowed, static. */
const char *mt_objective_name(enum mt_objective objective);

#define MT_PLACE_ANY  (-1)
#define MT_PLACE_HOST (-2)

/* A part of the model that is placed as a whole, but for its routed experts where the engine can
 * put those elsewhere. Names are borrowed. */
struct mt_place_unit {
    const char *name;      /* "layer 7" */
    uint32_t layer;        /* MT_NO_LAYER where it is none */
    uint32_t experts;      /* routed experts; 0: none */
    uint32_t experts_used; /* by each token */
    uint64_t dense_bytes;  /* weights other than those of routed experts */
    uint64_t expert_bytes; /* of all its routed experts together */
    uint64_t cache_bytes;  /* at the context that was asked for */
    uint64_t token_bytes;  /* what each further token of context adds */
    int pinned;            /* to a device, or MT_PLACE_ANY */
};

/* A device. `limit_bytes` is what may be used of it: its size less a buffer and what others hold.
 */
struct mt_place_device {
    const char *name;
    uint64_t capacity_bytes;
    uint64_t limit_bytes;
    uint64_t overhead_bytes; /* once it is in use: context, compute buffers */
    double bytes_per_second; /* of its memory; 0: not known, all alike */
};

/* Units and devices, all borrowed. Fill it from {0}. */
struct mt_place_problem {
    const struct mt_place_unit *units;
    size_t n_units;
    const struct mt_place_device *devices;
    size_t n_devices;
    enum mt_objective objective;
    int output_is_input;     /* the output matrix lies where the embedding does: a token goes back
                                there */
    int experts_may_leave;   /* for the host, of each layer all or none */
    int layers_may_leave;    /* for the host, the first ones */
    double crossing_seconds; /* that each crossing takes, for MT_OBJECTIVE_SPEED */
};

/* What lies on one device. */
struct mt_placement_device {
    uint64_t dense_bytes;
    uint64_t expert_bytes;
    uint64_t cache_bytes;
    uint64_t overhead_bytes;
    uint64_t used_bytes; /* all of the above */
    size_t first_unit;   /* of its stretch */
    size_t n_units;      /* 0: the device is not in use */
    uint64_t layers;
    uint64_t experts; /* of all layers */
};

/* An answer. It owns all that it refers to, but for names of the problem. */
struct mt_placement {
    size_t n_units;
    const int *unit_device;   /* where each unit's dense part lies: a device or MT_PLACE_HOST */
    const int *expert_device; /* n_units: where its experts lie all together; MT_PLACE_ANY: apart,
                                 see expert_at */
    size_t experts_most;      /* the most that any unit has; rows of expert_at are as long */
    const int *expert_at; /* n_units rows: the device of each expert; NULL where none is apart */
    size_t n_devices;
    const struct mt_placement_device *devices;
    uint64_t host_bytes; /* of units and experts that left for the host */
    uint64_t host_layers;
    uint64_t host_expert_layers; /* whose experts alone are there */
    double crossings;        /* that a token is expected to make between devices, host included */
    double highest_share;    /* of any device's capacity, 0 to 1 */
    uint64_t further_tokens; /* of context, before a device is at its limit */
    double least_share;      /* below which no placement's highest can be, contiguous or not */
    size_t least_devices;    /* below which no placement can be */
    int is_best;             /* no contiguous placement is better by the objective */
};

/* Finds the best placement. On success the caller owns *placement; mt_placement_destroy() frees it.
 * Errors: MT_EARG (no devices, no units, a pin to no device, pins that contradict each other),
 * MT_ELIMIT (it does not fit; the text says how much is missing and the smallest
 * change that would do), MT_ENOMEM. */
int mt_place_units(const struct mt_place_problem *problem, struct mt_placement **placement,
                   struct mt_error *error);

/* Ways that others place a mixture of experts, to compare with. X(NAME, "name"). */
#define MT_PLACE_POLICY_LIST(X)                                                                    \
    X(BEST, "best") /* mt_place_units() */                                                         \
    /* the first layer's experts on the first device, of further layers even ones on the first and \
     * odd ones on the last; 7/8 of an even part of the layers on the first device */              \
    X(BALANCED_EXPERTS, "balanced-experts")                                                        \
    X(ROUND_ROBIN, "round-robin") /* expert i of each layer on device i modulo devices */          \
    X(IN_ORDER, "in-order") /* each device is filled up to its limit before the next is begun */

enum mt_place_policy {
#define MT_PLACE_POLICY_ENUM(NAME, name) MT_PLACE_POLICY_##NAME,
    MT_PLACE_POLICY_LIST(MT_PLACE_POLICY_ENUM)
#undef MT_PLACE_POLICY_ENUM
        MT_PLACE_POLICY_COUNT
};

/* "best" and so on. Borrowed, static. */
const char *mt_place_policy_name(enum mt_place_policy policy);

/* Places by a policy, whether or not each device keeps to its limit, and whatever is pinned;
 * used_bytes tell. Ownership and errors as mt_place_units(), which MT_PLACE_POLICY_BEST is. */
int mt_place_by_policy(const struct mt_place_problem *problem, enum mt_place_policy policy,
                       struct mt_placement **placement, struct mt_error *error);

/* Frees a placement. NULL is fine. */
void mt_placement_destroy(struct mt_placement *placement);

#ifdef __cplusplus
}
#endif
#endif
