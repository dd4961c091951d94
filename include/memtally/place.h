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

#include <memtally/verdict.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error;            /* <memtally/error.h> */
struct mt_estimate;         /* <memtally/predict.h> */
struct mt_model;            /* <memtally/model_file.h> */
struct mt_predict_settings; /* <memtally/settings.h> */

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
#define MT_PLACE_DISK (-3) /* what the host has no room for */

#define MT_PLACE_DEVICES_MAX 64

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
    uint64_t work_bytes;   /* to compute it, beside the device's own overhead_bytes: logits */
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
    const char *card; /* by a name of the tables of GPUs; NULL: it is known by its size alone */
};

/* Units and devices, all borrowed. Fill it from {0}. */
struct mt_place_problem {
    const struct mt_place_unit *units;
    size_t n_units;
    const struct mt_place_device *devices;
    size_t n_devices;
    uint64_t each_bytes; /* weights that lie on each device in use; a part of overhead_bytes */
    enum mt_objective objective;
    int output_is_input;     /* the output matrix lies where the embedding does: a token goes back
                                there */
    int stretches_may_break; /* where no way with one stretch for each device fits, any way that
                                does is taken; is_best is then 0 */
    int experts_may_leave;   /* for the host, of each layer all or none */
    int layers_may_leave;    /* for the host, the first ones */
    int host_keeps_only; /* what leaves is computed on the device of the first unit that does not:
                            weights are copied there, one unit at a time, and the cache stays
                            there. The first unit of all, the embedding, never leaves */
    uint64_t host_limit_bytes;  /* of the host for what leaves; what is more stays on disk. 0: as
                                   much as it takes */
    const double *expert_use;   /* n_units rows, each as long as the most experts that any unit has:
                                   how   often each is used, in any measure; NULL or a row of zeros:
                                   all   alike */
    double crossing_seconds;    /* that each crossing takes */
    const double *link_seconds; /* n_devices rows of n_devices: the same by the devices; NULL: all
                                   as crossing_seconds. Among devices that are alike the path takes
                                   the fastest links; the objective is not changed by them but for
                                   MT_OBJECTIVE_SPEED, which then finds the best only where all
                                   crossings are over links as fast as the fastest */
};

/* What lies on one device. */
struct mt_placement_device {
    uint64_t dense_bytes;
    uint64_t expert_bytes;
    uint64_t cache_bytes;
    uint64_t overhead_bytes; /* with its units' work_bytes */
    uint64_t used_bytes;     /* all of the above, with the upper ends of bands */
    uint64_t expected_bytes; /* that an estimate of the placement expects; used_bytes without one */
    size_t first_unit;       /* of its stretch */
    size_t n_units;          /* 0: the device is not in use */
    uint64_t layers;
    uint64_t experts; /* of all layers */
};

/* An answer. It owns all that it refers to, but for names of the problem. */
struct mt_placement {
    size_t n_units;
    const int *unit_device;   /* where each unit's dense part lies: a device, MT_PLACE_HOST or
                                 MT_PLACE_DISK */
    const int *expert_device; /* n_units: where its experts lie all together; MT_PLACE_ANY: apart,
                                 see expert_at */
    size_t experts_most;      /* the most that any unit has; rows of expert_at are as long */
    const int *expert_at; /* n_units rows: the device of each expert; NULL where none is apart */
    size_t n_devices;
    const struct mt_placement_device *devices;
    uint64_t host_bytes;         /* of units and experts that left for the host */
    uint64_t disk_bytes;         /* for which the host has no room */
    uint64_t host_layers;        /* or on disk */
    uint64_t host_expert_layers; /* whose experts alone are there */
    double crossings;        /* that a token is expected to make between devices, host included */
    double link_seconds;     /* that these take; 0 where nothing is known of links */
    double read_seconds;     /* in which devices read what a token needs, one after the other; of a
                                device whose speed is not known at 1 TB/s. The host is not counted */
    double highest_share;    /* of any device's capacity, 0 to 1 */
    uint64_t further_tokens; /* of context, before a device is at its limit */
    double least_share;      /* below which no placement's highest can be on as many devices */
    size_t least_devices;    /* below which no placement can be */
    double least_seconds;    /* read_seconds and link_seconds of no contiguous placement on the
                                devices are less in sum */
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
    X(IN_ORDER, "in-order") /* each device is filled up to its limit before the next is begun */   \
    /* stretches of as many layers; of all experts those that are used most lie with their layer,  \
     * and those that are used least where there is room */                                        \
    X(TRAFFIC, "traffic")

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

/* A pin: the layer that has a tensor whose name matches `pattern` (POSIX extended, searched
 * anywhere in the name) lies on `device`. */
struct mt_place_pin {
    const char *pattern;
    size_t device;
};

/* How devices are connected: seconds for each crossing, and bytes in a second. The figures are
 * assumed, of the order that is seen on such machines, and serve to tell one from the other.
 * X(NAME, "name", seconds, bytes a second). */
#define MT_PLACE_LINK_LIST(X)                                                                      \
    X(PCIE, "pcie", 15e-6, 20e9) /* also what is taken where nothing is said */                    \
    X(NVLINK, "nvlink", 3e-6, 300e9)                                                               \
    X(NETWORK, "network", 60e-6, 3e9)

enum mt_place_link_kind {
#define MT_PLACE_LINK_ENUM(NAME, name, seconds, speed) MT_PLACE_LINK_##NAME,
    MT_PLACE_LINK_LIST(MT_PLACE_LINK_ENUM)
#undef MT_PLACE_LINK_ENUM
        MT_PLACE_LINK_COUNT
};

/* "pcie" and so on. Borrowed, static. */
const char *mt_place_link_name(enum mt_place_link_kind kind);

/* How often a token of some workload used an expert. */
struct mt_expert_use {
    uint32_t layer;
    uint32_t expert;
    double count;
};

/* Reads lines "LAYER,EXPERT,COUNT" of a file; empty lines, what follows a #, and a first line of
 * names are passed over. On success the caller owns *uses; mt_expert_uses_destroy() frees it.
 * Errors: MT_EIO, MT_EFORMAT (the text names the line), MT_ELIMIT (over 2^20 lines), MT_ENOMEM. */
int mt_expert_uses_read(const char *path, struct mt_expert_use **uses, size_t *n,
                        struct mt_error *error);

/* The same of a text in memory. `name` is for errors. */
int mt_expert_uses_parse(const char *name, const char *text, size_t length,
                         struct mt_expert_use **uses, size_t *n, struct mt_error *error);

/* NULL is fine. */
void mt_expert_uses_destroy(struct mt_expert_use *uses);

/* Two devices and their link, in either direction. */
struct mt_place_link {
    size_t a;
    size_t b;
    enum mt_place_link_kind kind;
};

/* How a model is placed. Fill it from {0}. */
struct mt_place_options {
    enum mt_objective objective;
    uint64_t buffer_bytes;    /* that each device keeps free; MT_UNKNOWN: 1 GiB */
    const char *quantisation; /* that the engine makes of the weights when it loads them: "nf4",
                                 "nf4-double", "int8"; NULL: none. Of engines on PyTorch */
    const struct mt_place_pin *pins;
    size_t n_pins;
    const struct mt_place_link *links;
    size_t n_links;
    const struct mt_expert_use *uses; /* of routed experts; none: all are used alike */
    size_t n_uses;
    uint64_t host_bytes; /* room on the host for what leaves; 0: as much as it takes */
    int keep_on_devices; /* nothing leaves for the host */
    int drops_copies;    /* llama.cpp keeps no copies of its inputs for devices that work at once */
};

/* A part of a model by its name in Python: "model.layers.3". `device` may be MT_PLACE_HOST or
 * MT_PLACE_DISK. */
struct mt_place_module {
    const char *name;
    int device;
};

/* What accelerate may put on a device, MT_PLACE_HOST for the host. */
struct mt_place_memory {
    int device;
    uint64_t bytes;
};

/* A way to divide a model over devices that are alike: each layer over `tensor` of them, the layers
 * over `pipeline` stages, and as many copies of the whole as the devices then hold. */
struct mt_place_parallel {
    uint64_t tensor;
    uint64_t pipeline;
    uint64_t replicas;
    enum mt_verdict verdict;  /* of one copy, at the context in question */
    uint64_t pool_tokens;     /* that one copy has room for */
    uint64_t pool_tokens_low; /* the lower end of its band */
};

/* A model with its placement. All of it is owned but for the texts of the call. */
struct mt_placed {
    struct mt_place_problem problem; /* what was solved; limits are less the buffer and what others
                                        hold */
    const struct mt_placement *placement;
    const struct mt_estimate *estimate; /* of the engine with just this placement, whose figures the
                                           placement's devices have; NULL for an engine whose rules
                                           know of no such setting */
    const char *environment;            /* that the engine must start in, as "A=1 B=2"; "" mostly */
    const char *flags;                  /* of the engine, that make it so: "-ngl 33 -ts 16,17" */
    const char *way;         /* how the engine is told: "tensor-split", "device-map", "stages",
                                "gpu-split", "layers" */
    double memory_share;     /* of each device that the engine shall take; 0: it has no such flag */
    uint64_t context_tokens; /* that the cache is counted at */
    size_t n_modules;        /* of an engine that takes a device for each; else 0 */
    const struct mt_place_module *modules;
    size_t n_memory;                      /* for such an engine, in the order of stretches */
    const struct mt_place_memory *memory; /* limits with which accelerate, that fills devices one
                                             after the other (device_map="sequential"), comes to the
                                             same stretches; where something leaves or a device has
                                             more than one stretch, the devices' own limits */
    int drops_copies;      /* the flags make llama.cpp keep no copies of its inputs for devices that
                                work at once, as was asked for or because less would fit with them */
    int experts_are_whole; /* the engine keeps all experts of a layer in one tensor */
    size_t n_parallel; /* of an engine that takes stages, where the devices are alike; in the order
                          of devices for a copy */
    const struct mt_place_parallel *parallel;
    size_t n_notes;
    const char *const *notes; /* sentences, static */
};

/* Places a model on the devices of the settings, with the cache at their context_tokens (0: 8192,
 * or what the model was trained for where that is less). What the engine takes beside weights and
 * cache is taken from an estimate, and for llama.cpp and its kin the placement is estimated again
 * as the engine will load it, until each device keeps to its limit. On success the caller owns
 * *placed; mt_placed_destroy() frees it; the model must live as long. Errors: those of
 * mt_place_units() and mt_estimate_create(); MT_EUNSUPPORTED (an engine that cannot be told),
 * MT_EARG (a pattern that is no regular expression or matches no tensor). */
int mt_place_model(const struct mt_model *model, const struct mt_predict_settings *settings,
                   const struct mt_place_options *options, struct mt_placed **placed,
                   struct mt_error *error);

/* Frees all of it. NULL is fine. */
void mt_placed_destroy(struct mt_placed *placed);

/* Frees a placement. NULL is fine. */
void mt_placement_destroy(struct mt_placement *placement);

#ifdef __cplusplus
}
#endif
#endif
