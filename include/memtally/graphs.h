/* SPDX-License-Identifier: MIT */
/* CUDA graphs one by one, of a recording or a rehearsal of a program on PyTorch.
 *
 * A capture's bytes are its marginal cost in the order of capture: a graph that finds room in the
 * pool of an earlier one takes nothing. Sizes are in bytes; MT_UNKNOWN is what nobody said. */
#ifndef MEMTALLY_GRAPHS_H
#define MEMTALLY_GRAPHS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */

/* A batch that an engine captured, perhaps in several pieces, in one process on one device. */
struct mt_graph {
    uint32_t pid;
    uint32_t device;          /* as the process counts them */
    const char *kind;         /* the engine's word: "FULL", "PIECEWISE"; "" where it is not known */
    uint64_t batch;           /* requests */
    uint64_t tokens;          /* of all of them */
    uint64_t draft;           /* tokens that are drafted for each request */
    uint64_t pieces;          /* graphs that it is captured in */
    uint64_t nodes;           /* of all pieces */
    uint64_t pool_bytes;      /* that PyTorch's allocator took of the driver in the captures */
    uint64_t workspace_bytes; /* of the pool, what PyTorch gave libraries to work in; MT_UNKNOWN
                                 where it is not said, as the next ones */
    uint64_t driver_bytes;    /* that the driver took beside for nodes; where library_bytes is not
                                 known, also what that would count */
    uint64_t library_bytes;   /* that others than PyTorch's allocator took in the captures:
                                 workspaces, communicators, code of kernels that were used first */
    uint64_t static_bytes;    /* outside the pool, that were made since the capture before and are
                                 there when the last one is made; never known of the first */
    uint64_t host_bytes;      /* by which the process grew; MT_UNKNOWN where it is not said */
    int is_late;              /* it was captured after graphs had been replayed again and again */
    uint64_t reclaimable_bytes; /* that PyTorch could give back if this graph alone were dropped:
                                   its pool's, unless others are in it; MT_UNKNOWN likewise */
};

/* Graphs of one draft length. */
struct mt_graph_draft {
    uint64_t draft; /* MT_UNKNOWN: of those of which it is not known */
    uint64_t n;
    uint64_t expected; /* that engines were to capture; MT_UNKNOWN where none says so */
};

/* What a run captured. `graphs` are those that lived when the last one was captured, in the order
 * of capture. Of graphs that an engine captured to try, and dropped before, the driver's bytes
 * count. */
struct mt_graphs {
    const struct mt_graph *graphs;
    size_t n;
    const struct mt_graph_draft *drafts; /* longest first, unknown last */
    size_t n_drafts;
    uint64_t pieces;
    uint64_t dropped; /* pieces that were gone before the last one was captured */
    uint64_t late;    /* graphs that were captured after they had been replayed again and again */
    uint64_t pool_bytes;
    uint64_t workspace_bytes; /* of the pool; MT_UNKNOWN where none is known, as the next ones but
                                 the driver's */
    uint64_t driver_bytes;    /* those of dropped ones, too: the driver keeps space for the next */
    uint64_t dropped_driver_bytes;
    uint64_t library_bytes; /* likewise: a library keeps what it took */
    uint64_t dropped_library_bytes;
    uint64_t static_bytes; /* as far as they are known */
    /* What the run's processes held of devices when the last one was captured, MT_UNKNOWN where
     * that is not known; and what of it is in none of the four, as far as these are known:
     * total == pool + driver + library + static + rest. */
    uint64_t total_bytes;
    uint64_t rest_bytes;
    const char *const *notes; /* sentences about captures and updates that failed or came late */
    size_t n_notes;
    /* What PyTorch's allocator had over all processes and devices: when the last graph was
     * captured, and the most of the run. Where nothing was captured the first two are the most,
     * too. */
    uint64_t allocated_bytes;
    uint64_t reserved_bytes;
    uint64_t most_allocated_bytes;
    uint64_t most_reserved_bytes;
};

/* How much of a case there is for having fewer graphs: by 500 MiB and 2 GiB. */
#define MT_GRAPHS_ADVICE_LIST(X) X(NONE, "none") X(MODERATE, "moderate") X(STRONG, "strong")

enum mt_graphs_advice {
#define X(NAME, name) MT_GRAPHS_ADVICE_##NAME,
    MT_GRAPHS_ADVICE_LIST(X)
#undef X
};

/* What run B has more than run A. */
struct mt_graphs_difference {
    int64_t graphs;
    int64_t pieces;
    int64_t pool_bytes;
    int64_t driver_bytes;
    int64_t library_bytes;  /* 0 where one of the two does not know them */
    int64_t overhead_bytes; /* all three */
    double overhead_ratio;  /* of what A's allocator had reserved and its graphs took beside;
                             * negative where A has nothing */
    int64_t bytes_of_each;  /* the overhead for each additional graph; 0 where none is */
    enum mt_graphs_advice advice;
};

/* Reads the graphs of a recording's or a rehearsal's folder. A folder whose programs captured none
 * is no error. On success *graphs is owned by the caller; free it with mt_graphs_destroy(). Errors:
 * MT_ENOTFOUND (no such folder, or nothing of PyTorch in it), MT_EIO, MT_ENOMEM. */
int mt_graphs_read(const char *directory, struct mt_graphs **graphs, struct mt_error *error);

/* Takes NULL. */
void mt_graphs_destroy(struct mt_graphs *graphs);

/* What run `b` has more than run `a`. */
struct mt_graphs_difference mt_graphs_compare(const struct mt_graphs *a, const struct mt_graphs *b);

/* "none", "moderate", "strong". */
const char *mt_graphs_advice_name(enum mt_graphs_advice advice);

#ifdef __cplusplus
}
#endif
#endif
