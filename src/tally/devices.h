/* SPDX-License-Identifier: MIT */
/* What the recorded processes had of devices, and what the driver said was used, over time.
 *
 * A device is one by its UUID, whatever number a process knows it by. An allocation is there from
 * its call until it is given back, its process ends or its device is reset; physical memory until
 * its last handle and its last mapping are gone. */
#ifndef MT_TALLY_DEVICES_H
#define MT_TALLY_DEVICES_H

#include <memtally/category.h>
#include <stddef.h>
#include <stdint.h>

#include "recording/reader.h"
#include "tally/ranges.h"
#include "tally/table.h"

#define MT_DEVICES_MAX   64u
#define MT_DEVICE_UNUSED SIZE_MAX

struct mt_device_place {
    char *uuid; /* "GPU-0123…", "?" where it was not said */
    char *name;
    uint64_t total_bytes;
};

#define MT_PLACE_NAME_BYTES 64u
/* What tallies call it. */
void mt_device_place_name(const struct mt_device_place *place, char name[MT_PLACE_NAME_BYTES]);

struct mt_device_block {
    size_t place;
    uint64_t pid;
    enum mt_device_kind kind;
    uint64_t object;
    uint64_t address; /* of physical memory, where it was mapped last; else as `object` */
    uint64_t bytes;
    uint64_t begin_ns; /* CLOCK_MONOTONIC */
    uint64_t end_ns;   /* UINT64_MAX while it is there */
    uint64_t order;    /* of events of one moment the later has the higher one */
    uint32_t handles;  /* of physical memory */
    uint32_t mappings;
    size_t earlier, later; /* of its device and process, that are there: indices + 1; 0: none */
    char *name;            /* of the engine's buffer that it is; NULL: nobody said */
    enum mt_category category;
    int is_labelled; /* the name is a label's: of what was there at one time */
    const struct mt_device_library *library; /* that took it for itself; NULL: none that is known */
};

/* A library that takes memory for itself (libraries.def). */
struct mt_device_library {
    const char *file; /* what its name begins with */
    enum mt_category category;
    const char *name;
};

/* What a program or a library said of a part of an allocation. */
struct mt_device_label {
    uint64_t pid;
    uint64_t ns;
    uint64_t address;
    uint64_t bytes;
    enum mt_category category;
    char *name;
};

/* What a pool of a device has reserved, in use or free. */
struct mt_device_pool {
    size_t place;
    uint64_t pid;
    uint64_t pool;
    uint64_t ns;
    uint64_t order;
    uint64_t reserved_bytes;
};

/* What the driver said was used of a device, by all processes. */
struct mt_device_use {
    size_t place;
    uint64_t pid;
    uint64_t ns;
    uint64_t used_bytes;
    uint64_t order;
    enum mt_device_reason reason;
};

struct mt_device_refusal {
    size_t place;
    uint64_t pid;
    uint64_t ns;
    uint64_t bytes;
    uint64_t free_bytes;
};

/* What was used of a device by others than the recorded processes. */
struct mt_device_others {
    size_t place;
    uint64_t ns;
    uint64_t bytes;
};

/* What processes that no recorder saw held of a device, by the word of its driver. */
struct mt_device_seen {
    size_t place;
    uint64_t ns;
    uint64_t bytes;
};

/* Start with {0}. */
struct mt_devices {
    struct mt_device_place *places;
    size_t n_places;
    struct mt_device_block *blocks;
    size_t n_blocks;
    struct mt_device_use *uses;
    size_t n_uses;
    struct mt_device_refusal *refusals;
    size_t n_refusals;
    struct mt_device_pool *pools;
    size_t n_pools;
    struct mt_device_label *labels;
    size_t n_labels;
    struct mt_device_others *others;
    size_t n_others;
    struct mt_device_seen *seen;
    size_t n_seen;
    uint64_t n_events;
};

/* Reading the events of one process. */
struct mt_device_pass {
    struct mt_devices *devices;
    uint64_t pid;
    size_t place_of[MT_DEVICES_MAX]; /* as the process numbers devices; MT_DEVICE_UNUSED */
    struct mt_table by_object;       /* -> blocks that are there */
    struct mt_table by_buffer;       /* an engine's buffer -> blocks */
    struct mt_ranges mappings;       /* -> blocks of physical memory */
    struct mt_ranges placed;         /* -> blocks that have an address of their own */
    size_t first_block;
    size_t first_pool;
    size_t last_of[MT_DEVICES_MAX]; /* by place: the last block that is there, its index + 1; 0 */
};

void mt_device_pass_init(struct mt_device_pass *pass, struct mt_devices *devices, uint64_t pid);

/* Applies an event at `ns`; what is none of a device's is left alone. `uuid` and `name` are those
 * of a DEVICE event, `name` also that of a BUFFER_ALLOC, a LABEL and a DEVICE_CALLER. Returns 0 or
 * MT_ENOMEM. */
int mt_device_take(struct mt_device_pass *pass, const struct mt_event *event, uint64_t ns,
                   const char *uuid, const char *name);

/* The process ended at `ns`, and with it what it held. Returns 0 or MT_ENOMEM. */
int mt_device_pass_finish(struct mt_device_pass *pass, uint64_t ns);

/* What the watcher wrote of a device at `ns`; one that no process named is left out. After the
 * processes' events. Returns 0 or MT_ENOMEM. */
int mt_device_take_others(struct mt_devices *devices, const char *uuid, uint64_t bytes,
                          uint64_t ns);

/* What the watcher saw that processes hold of a device at `ns`, which is a place from then on. A
 * place whose memory recorded processes tell of is left as it is. Returns 0 or MT_ENOMEM. */
struct mt_device_sight {
    const char *uuid;
    const char *name;
    uint64_t total_bytes;
    uint64_t bytes;
};
int mt_device_take_seen(struct mt_devices *devices, const struct mt_device_sight *sight,
                        uint64_t ns);

void mt_devices_finish(struct mt_devices *devices);

/* Whether a block is memory of its device: not what was imported, nor the host's. */
int mt_device_block_counts(const struct mt_device_block *block);

/* A moment of a place: what was allocated there, and what the driver said last. */
struct mt_device_moment {
    uint64_t ns;
    uint64_t order;
    uint64_t allocated_bytes;
    uint64_t used_bytes;     /* MT_UNKNOWN where the driver had not said */
    uint64_t pooled_bytes;   /* of what was allocated, by pools */
    uint64_t reserved_bytes; /* by pools, in use or free */
    uint64_t graph_bytes;    /* of that, for the nodes of graphs */
    uint64_t others_bytes;   /* used by others; MT_UNKNOWN: not told apart */
    uint64_t seen_bytes;     /* held by processes that no recorder saw; MT_UNKNOWN: not said */
};

int mt_device_block_is_there(const struct mt_device_block *block,
                             const struct mt_device_moment *moment);

/* What pools had, in use or free, those of graphs too. */
uint64_t mt_device_reserved(const struct mt_device_moment *moment);

/* What the driver said was used at a moment, less what others used: all of it where that is not
 * known. MT_UNKNOWN where it said nothing. And what others used. */
uint64_t mt_device_taken(const struct mt_device_moment *moment);
uint64_t mt_device_others(const struct mt_device_moment *moment);

/* The moment at which the recorded processes used most: by the driver's word, and where it gave
 * none by what was allocated. Returns 0 or MT_ENOMEM. */
int mt_device_peak(const struct mt_devices *devices, size_t place, struct mt_device_moment *moment);

/* The same at a time. */
int mt_device_at(const struct mt_devices *devices, size_t place, uint64_t ns,
                 struct mt_device_moment *moment);

/* The last time before `ns` at which no more than half of what is allocated then was; 0 where there
 * was none. Returns 0 or MT_ENOMEM. */
int mt_device_half_full(const struct mt_devices *devices, size_t place, uint64_t ns,
                        uint64_t *half_ns);

#endif
