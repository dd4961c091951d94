/* SPDX-License-Identifier: MIT */
/* What PyTorch's allocator held inside the driver's allocations of a rehearsed program.
 *
 * The helper in the program's Python (python/memtally/watch) leaves a file torch-PID.trace for
 * each process that used CUDA by PyTorch: the allocator's own history, the phases of the engine and
 * what tensors are for. The grammar is in docs/FORMATS.md. Reading takes files as they are, cut
 * short at any byte; what makes no sense is left out and counted. Times are CLOCK_MONOTONIC, as in
 * the account's events. One thread at a time. */
#ifndef MT_PYTORCH_TORCH_H
#define MT_PYTORCH_TORCH_H

#include <memtally/category.h>
#include <memtally/provenance.h>
#include <stddef.h>
#include <stdint.h>

struct mt_error; /* <memtally/error.h> */

#define MT_TORCH_PIECES_MAX 64u

struct mt_torch;

/* A part of an allocation: blocks of one category, name and provenance. */
struct mt_torch_piece {
    enum mt_category category; /* MT_CATEGORY_CACHED: held free by PyTorch */
    enum mt_provenance provenance;
    uint64_t bytes;
    uint64_t count;   /* blocks */
    const char *name; /* "parameters", "gradients", "load_model"; borrowed from the trace */
};

/* A phase of the engine in one process, on one device as PyTorch counts them there. */
struct mt_torch_phase {
    uint32_t pid;
    uint32_t device;
    const char *name; /* "load_model" */
    enum mt_category category;
    uint64_t begin_ns, end_ns;       /* end_ns is UINT64_MAX where it never ended */
    uint64_t begin_bytes, end_bytes; /* in blocks */
    uint64_t peak_bytes;             /* most in blocks, while it lasted */
    uint64_t peak_segment_bytes;     /* most in segments */
};

/* A figure that the engine said: "weights" 14.99 GiB. */
struct mt_torch_figure {
    uint32_t pid;
    uint64_t time_ns;
    double value;
    const char *name;
    const char *unit; /* "GiB", "tokens" */
};

/* A sentence for the reader of the rehearsal, said by the helper. */
struct mt_torch_note {
    uint32_t pid;
    const char *text;
};

/* Who asked for memory that was not there. */
struct mt_torch_asker {
    uint32_t pid;
    uint64_t time_ns; /* once the allocator gave up */
    uint64_t bytes;
    const char *stack; /* "train.py:31 step < train.py:40 <module>" */
};

/* The most that PyTorch's allocator counted on a device, as that process counts them. */
struct mt_torch_most {
    uint32_t pid;
    uint32_t device;
    uint64_t allocated_bytes; /* torch.cuda.max_memory_allocated() */
    uint64_t reserved_bytes;  /* torch.cuda.max_memory_reserved() */
    /* What it counted when the last graph of the device was captured, where there is one. */
    int has_graphs;
    uint64_t last_allocated_bytes;
    uint64_t last_reserved_bytes;
};

/* A CUDA graph that was captured. MT_UNKNOWN where a count is not known. */
struct mt_torch_graph {
    uint32_t pid;
    uint32_t device;
    uint64_t time_ns;       /* its capture ended */
    uint64_t end_ns;        /* UINT64_MAX while it lives */
    uint64_t number;        /* of the process, from 1 */
    uint64_t pool_bytes;    /* that PyTorch's allocator took of the driver in its capture */
    uint64_t private_bytes; /* of it, segments of the graph's own pool */
    uint64_t driver_bytes;  /* that the driver took beside */
    uint64_t nodes;
    uint64_t allocated_bytes; /* of the allocator, once it was captured */
    uint64_t reserved_bytes;
    uint64_t batch, tokens, draft;
    const char *kind;    /* "FULL", "-" */
    uint64_t host_bytes; /* MT_UNKNOWN where it is not said, as the next one */
    uint64_t expected;   /* sizes that the engine was to capture */
    uint64_t pool;       /* that it is in, from 1 in its process; 0 where it is not said */
    uint64_t begin_ns;   /* its capture began; MT_UNKNOWN where it is not said, as the next one */
    uint64_t used_bytes; /* of the device, by all processes, once it was captured */
    int is_late;         /* graphs had been replayed again and again before */
};

/* Reads all traces of a rehearsal's folder. A folder without any is no error: nothing is split
 * then. What is no file, or too long, is left out (mt_torch_lost()). Errors: MT_EIO, MT_ENOMEM. */
int mt_torch_open(const char *directory, struct mt_torch **torch, struct mt_error *error);
void mt_torch_close(struct mt_torch *torch); /* takes NULL */

/* Says what a part of a block is for from `time_ns` on, as long as that block lives, by what a
 * library was told (a USAGE event inside an allocation: cuBLAS's workspace). Call it before any
 * mt_torch_pieces(). */
void mt_torch_usage(struct mt_torch *torch, uint32_t pid, uint64_t address, uint64_t bytes,
                    uint64_t time_ns, enum mt_category category, const char *name);

/* Whether PyTorch's allocator ever had memory of the driver's at an address of process `pid`. */
int mt_torch_has(const struct mt_torch *torch, uint32_t pid, uint64_t address);
/* That, of memory of one device as the process counts them. */
int mt_torch_has_of(const struct mt_torch *torch, uint32_t pid, uint32_t device, uint64_t address);

/* What an allocation is divided as at. */
struct mt_torch_moments {
    uint64_t fullest_ns; /* most was in blocks */
    uint64_t last_ns;    /* the last block was made, while the segments were the same */
};

/* The moments of a device's peak at `at_ns`: of those from `from_ns` to `to_ns` (with both) the
 * first at which most was held in blocks of the device that has `address`, by process `pid`; twice
 * `at_ns` where nothing is known of it. */
struct mt_torch_moments mt_torch_peak(struct mt_torch *torch, uint32_t pid, uint64_t address,
                                      uint64_t at_ns, uint64_t from_ns, uint64_t to_ns);

/* Splits what lies in [address, address + bytes) of process `pid` as at the fullest moment. Of what
 * was free then, that is told which weights, caches and what else is no activation have more at the
 * last one. Returns the number of pieces, which add
 * up to `bytes`, largest first; 0 where this is no memory of PyTorch's allocator. Errors:
 * MT_ENOMEM. */
int mt_torch_pieces(struct mt_torch *torch, uint32_t pid, uint64_t address, uint64_t bytes,
                    const struct mt_torch_moments *moments,
                    struct mt_torch_piece pieces[MT_TORCH_PIECES_MAX]);

/* A block of PyTorch's allocator, as long as it lived. */
struct mt_torch_life {
    uint64_t address;
    uint64_t bytes;
    uint64_t begin_ns;
    uint64_t end_ns; /* UINT64_MAX where it stayed */
    enum mt_category category;
    const char *name; /* borrowed from the trace */
    uint32_t device;  /* as the process counts them */
    int is_private;   /* of a pool of graphs */
};

/* The block of process `pid` with this number, by address and then time. Returns 0 past the last.
 */
int mt_torch_life_at(const struct mt_torch *torch, uint32_t pid, size_t number,
                     struct mt_torch_life *life);

/* In the order of the traces; NULL past the last. Borrowed. */
const struct mt_torch_phase *mt_torch_phase_at(const struct mt_torch *torch, size_t index);
const struct mt_torch_figure *mt_torch_figure_at(const struct mt_torch *torch, size_t index);
const struct mt_torch_note *mt_torch_note_at(const struct mt_torch *torch, size_t index);
const struct mt_torch_asker *mt_torch_asker_at(const struct mt_torch *torch, size_t index);
const struct mt_torch_graph *mt_torch_graph_at(const struct mt_torch *torch, size_t index);
/* When a process captured its last graph, 0 where it captured none. */
uint64_t mt_torch_last_graph_ns(const struct mt_torch *torch, uint32_t pid);
/* The most of each device that a process had any memory of. */
const struct mt_torch_most *mt_torch_most_at(const struct mt_torch *torch, size_t index);

/* What was left out of the traces for want of room: lines, and traces that are too long or no
 * files. 0 where all was read. */
uint64_t mt_torch_lost(const struct mt_torch *torch);

#endif
