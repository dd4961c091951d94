/* SPDX-License-Identifier: MIT */
/* One process's torch-PID.trace, read into blocks, segments and phases.
 *
 * A line is a letter and fields, one blank between them; times in ns of CLOCK_MONOTONIC, sizes in
 * bytes, decimal; addresses in hexadecimal digits; a name or a text is the rest of the line.
 *
 *   a DEVICE TIME ADDRESS BYTES         a block is given out
 *   f DEVICE TIME ADDRESS               it is free again
 *   s DEVICE TIME ADDRESS BYTES         a segment is taken from the driver, or mapped
 *   e DEVICE TIME ADDRESS               it is given back, or unmapped
 *   p ADDRESS                           the segment there is of a private pool
 *   q TIME ADDRESS                      the graphs of that pool are gone
 *   r ADDRESS BYTES                     the block there has more bytes than were asked for
 *   h TIME ADDRESS CATEGORY NAME        what the block there is for
 *   b TIME NUMBER CATEGORY NAME         a phase begins: what is kept of it is for CATEGORY
 *   d TIME NUMBER                       it ends
 *   g TIME VALUE UNIT NAME              a figure that the engine said
 *   n TIME TEXT                         a sentence for the reader
 *   o TIME DEVICE BYTES STACK           memory ran out for who asked, innermost call first
 *   m DEVICE TIME ALLOCATED RESERVED    the most that PyTorch has counted in blocks and segments
 *   x DEVICE TIME NUMBER POOL DRIVER NODES ALLOCATED RESERVED BATCH TOKENS DRAFT KIND
 *                                       a graph was captured; "-" is not known
 *   y TIME NUMBER                       it is gone
 *   z NUMBER HOST POOL EXPECTED         more of it: the host's bytes, the pool that it is in, and
 * how many sizes its engine was to capture
 *   w NUMBER BEGIN USED LATE            when its capture began, what was used of the device after
 * it by all processes, and 1 where graphs had been replayed again and again before
 *
 * Lines of other letters are passed over: `v`, PyTorch's version, and `c`, the same moment by two
 * clocks, are for who looks at the file.
 *
 * Blocks and phases are in the order of the lines, names are known by the times of their lines. */
#ifndef MT_PYTORCH_TRACE_H
#define MT_PYTORCH_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "pytorch/torch.h"

#define MT_TORCH_LINE_BYTES  1024u    /* longer lines are left out */
#define MT_TORCH_BLOCKS_MAX  4194304u /* of a process, likewise for segments and names told */
#define MT_TORCH_PHASES_MAX  65536u
#define MT_TORCH_SAID_MAX    4096u /* figures; notes; askers */
#define MT_TORCH_GRAPHS_MAX  65536u
#define MT_TORCH_NAMES_MAX   256u
#define MT_TORCH_OPEN_MAX    64u /* phases within each other */
#define MT_TORCH_DEVICES_MAX 16u
#define MT_TORCH_NONE        UINT32_MAX

struct mt_torch_block {
    uint64_t address;
    uint64_t bytes;
    uint64_t begin_ns;
    uint64_t end_ns;     /* UINT64_MAX while it lives */
    uint64_t late_bytes; /* of its beginning, that are told beside the fullest moment */
    uint32_t device;
    uint32_t phase; /* that it was made in, innermost; MT_TORCH_NONE */
    uint16_t name;  /* of what it is for, once told */
    uint8_t category;
    uint8_t is_told;
};

struct mt_torch_segment {
    uint64_t address;
    uint64_t bytes;
    uint64_t begin_ns;
    uint64_t end_ns;
    uint64_t private_end_ns; /* the graphs whose pool it is of were gone */
    uint32_t device;
    uint32_t is_private;
};

struct mt_torch_told {
    uint64_t time_ns;
    uint64_t address;
    uint16_t name;
    uint8_t category;
};

struct mt_torch_span {
    uint64_t begin_ns;
    uint64_t end_ns;
    uint16_t name;
    uint8_t category;
    uint32_t report[MT_TORCH_DEVICES_MAX]; /* its mt_torch_phase, MT_TORCH_NONE */
};

/* Where what lives at an address is found; open addressing, `index` one more than it is. */
struct mt_torch_slot {
    uint64_t address;
    uint32_t index;
};

struct mt_torch_map {
    struct mt_torch_slot *slots;
    size_t capacity; /* a power of two, or 0 */
    size_t n;
};

#define MT_TORCH_LIST(type)                                                                        \
    struct {                                                                                       \
        type *at;                                                                                  \
        size_t n;                                                                                  \
        size_t capacity;                                                                           \
    }

/* Start with {0} and `pid`. */
struct mt_torch_process {
    uint32_t pid;
    MT_TORCH_LIST(struct mt_torch_block) blocks; /* once finished by address, then time */
    MT_TORCH_LIST(struct mt_torch_segment) segments;
    MT_TORCH_LIST(struct mt_torch_told) told;
    MT_TORCH_LIST(struct mt_torch_span) spans;
    MT_TORCH_LIST(struct mt_torch_phase) phases;
    MT_TORCH_LIST(struct mt_torch_figure) figures;
    MT_TORCH_LIST(struct mt_torch_note) notes;
    MT_TORCH_LIST(struct mt_torch_asker) askers;
    MT_TORCH_LIST(struct mt_torch_graph) graphs;
    struct mt_torch_map live_blocks;
    struct mt_torch_map live_segments;
    struct mt_torch_map graphs_by_number;
    uint64_t last_graph_ns; /* when the last one was captured */
    uint64_t block_bytes[MT_TORCH_DEVICES_MAX];
    uint64_t segment_bytes[MT_TORCH_DEVICES_MAX];
    struct mt_torch_most most[MT_TORCH_DEVICES_MAX];
    uint32_t n_devices; /* seen so far: one more than the highest */
    uint32_t open[MT_TORCH_OPEN_MAX];
    uint64_t open_number[MT_TORCH_OPEN_MAX];
    size_t n_open;
    const char *names[MT_TORCH_NAMES_MAX];
    size_t n_names;
    struct mt_arena texts;
    uint64_t n_skipped; /* lines that make no sense, or too many */
    uint64_t n_lost;    /* of blocks, segments and names, for which there was no room */
    int out_of_memory;
};

/* Takes one line, without its end. */
void mt_torch_line(struct mt_torch_process *process, const char *line, size_t length);
/* After the last line: sorts, and tells blocks what they are for. */
void mt_torch_finish(struct mt_torch_process *process);
void mt_torch_free(struct mt_torch_process *process);

/* Makes room for one more of a list; 0 where memory ran out. */
#define MT_TORCH_ROOM(list)                                                                        \
    ((list).at = mt_torch_grow((list).at, (list).n, &(list).capacity, sizeof *(list).at),          \
     (list).n < (list).capacity)
void *mt_torch_grow(void *at, size_t n, size_t *capacity, size_t item_bytes);

/* The map of what lives (torch_map.c). Index of what is at an address, MT_TORCH_NONE. */
uint32_t mt_torch_map_get(const struct mt_torch_map *map, uint64_t address);
/* Returns 0 where memory ran out. */
int mt_torch_map_put(struct mt_torch_map *map, uint64_t address, uint32_t index);
void mt_torch_map_remove(struct mt_torch_map *map, uint64_t address);

/* A name's number, 0 ("") where there are too many. */
uint16_t mt_torch_name(struct mt_torch_process *process, const char *text, size_t length);

/* The block of at least so many bytes at an address at a time, as clocks go: the nearest one where
 * several had it within that; NULL. The process is finished. */
struct mt_torch_block *mt_torch_block_at(struct mt_torch_process *process, uint64_t address,
                                         uint64_t time_ns, uint64_t bytes);

#endif
