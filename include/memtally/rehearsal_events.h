/* SPDX-License-Identifier: MIT */
/* What a rehearsed program did: its events in order, and what its processes of PyTorch told of
 * themselves. The thread that started the rehearsal may call this at any time until it is
 * destroyed. */
#ifndef MEMTALLY_REHEARSAL_EVENTS_H
#define MEMTALLY_REHEARSAL_EVENTS_H

#include <stddef.h>
#include <stdint.h>

#include <memtally/category.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_rehearsal; /* <memtally/rehearsal.h> */

enum mt_rehearsal_event_kind {
    MT_REHEARSAL_ALLOC,
    MT_REHEARSAL_FREE,
    MT_REHEARSAL_REFUSED,
    MT_REHEARSAL_MARK,
    MT_REHEARSAL_NOTE /* a sentence about the rehearsal, in `name`; with `bytes`: what the program
                        went without at `place` and may take there */
};

/* What is special about a buffer. */
#define MT_REHEARSAL_MAPPED  1u /* the engine's own mapping of the model file */
#define MT_REHEARSAL_PINNED  2u /* host memory of a device's pinned type */
#define MT_REHEARSAL_PLANNED 4u /* a dry run's answer: nothing was allocated */

/* One thing that happened, in order. */
struct mt_rehearsal_event {
    enum mt_rehearsal_event_kind kind;
    uint64_t time_ns; /* since the start */
    uint64_t pid;
    const char *place;         /* "gpu:0", "host" */
    enum mt_category category; /* MT_CATEGORY_NONE: the engine does not say */
    unsigned flags;            /* MT_REHEARSAL_MAPPED and so on */
    uint64_t bytes;
    uint64_t free_bytes;    /* of the place, when it was refused */
    uint64_t missing_bytes; /* of the place, that had to be freed for it to succeed; it counts what
                               the device's own unit of memory makes of `bytes` */
    const char *name;       /* the buffer's type, or the mark */
    const char *detail;     /* what it is of; "" where the engine does not say */
};

/* The events so far, in order. The event and its texts are borrowed until the rehearsal is
 * destroyed. What an allocation is for may be told later only, and is then put into its event. The
 * end of a process frees what it held, and leaves the mark "process ended". NULL past the last. */
const struct mt_rehearsal_event *mt_rehearsal_event_at(struct mt_rehearsal *rehearsal,
                                                       size_t index);

/* What an engine of PyTorch was about in one process, on one device as that process counts them. */
struct mt_rehearsal_phase {
    uint64_t pid;
    uint32_t device;
    const char *name; /* "load_model" */
    enum mt_category category;
    uint64_t begin_ns, end_ns; /* since the start; end_ns is UINT64_MAX where it never ended */
    uint64_t begin_bytes, end_bytes; /* in tensors */
    uint64_t peak_bytes;             /* most in tensors, while it lasted */
    uint64_t peak_segment_bytes;     /* most that PyTorch had from the driver */
};

/* A figure that the engine said: "weights" 14.99 GiB. */
struct mt_rehearsal_figure {
    uint64_t pid;
    uint64_t time_ns; /* since the start */
    double value;
    const char *name;
    const char *unit; /* "GiB", "tokens" */
};

/* Reads anew what processes of PyTorch have told so far: phases, figures, allocators, stacks. What
 * was borrowed of these ends. Without it they are as they were when one was first asked for.
 * Errors: MT_ENOTFOUND (nothing was told yet, or it cannot be read). */
int mt_rehearsal_refresh(struct mt_rehearsal *rehearsal);

/* The phases, process by process, each in the order in which it told of them. Texts are borrowed
 * until mt_rehearsal_refresh(). Errors: MT_ENOTFOUND (past the last, or there are none). */
int mt_rehearsal_phase_at(struct mt_rehearsal *rehearsal, size_t index,
                          struct mt_rehearsal_phase *phase);

/* The figures, in the same order. Texts and errors are those of the phases. */
int mt_rehearsal_figure_at(struct mt_rehearsal *rehearsal, size_t index,
                           struct mt_rehearsal_figure *figure);

/* The most that PyTorch's allocator counted in one process on one device: what the program would
 * print of torch.cuda.max_memory_allocated() and max_memory_reserved(), had it never started their
 * count anew. */
struct mt_rehearsal_allocator {
    uint64_t pid;
    uint32_t device;   /* as the process counts them */
    const char *place; /* "gpu:0" */
    uint64_t max_allocated_bytes;
    uint64_t max_reserved_bytes;
};

/* Those, process by process, of devices of which it had memory. Texts and errors are those of the
 * phases. */
int mt_rehearsal_allocator_at(struct mt_rehearsal *rehearsal, size_t index,
                              struct mt_rehearsal_allocator *allocator);

/* The calls in Python that asked for what was refused, innermost first: "train.py:31 step <
 * train.py:40 <module>", as far as PyTorch's allocator knew of it; else NULL. Borrowed as are the
 * texts of phases. */
const char *mt_rehearsal_stack_of(struct mt_rehearsal *rehearsal,
                                  const struct mt_rehearsal_event *refusal);

#ifdef __cplusplus
}
#endif
#endif
