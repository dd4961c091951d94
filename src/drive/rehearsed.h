/* SPDX-License-Identifier: MIT */
/* What a document says of a rehearsal beside its estimate. Everything here is borrowed
 * from the rehearsal. */
#ifndef DRIVE_REHEARSED_H
#define DRIVE_REHEARSED_H

#include <memtally/category.h>
#include <stddef.h>
#include <stdint.h>

struct mt_rehearsal_allocator; /* all of <memtally/rehearsal.h> */
struct mt_rehearsal_event;
struct mt_rehearsal_figure;
struct mt_rehearsal_phase;
struct mt_tally; /* <memtally/tally.h> */

/* A buffer that a rehearsed program took after it was ready, or asked for in vain. */
struct mt_rehearsed_late {
    uint64_t time_ns; /* since the start */
    const char *step; /* what it was asked to do: the last mark */
    const char *place;
    enum mt_category category;
    const char *name; /* the buffer's type */
    const char *detail;
    uint64_t bytes;
    uint64_t before_bytes; /* of the smaller buffer that it takes the place of, 0 where it is new */
    uint64_t ready_bytes;  /* the same, of the one that was there when the program was ready */
    int was_freed;         /* it was not there at the end any more */
    int was_refused;
};

/* A change of flags with which a program that ran out would fit. */
struct mt_rehearsed_change {
    const char *flags;
    const char *instead_of; /* the same flags as they were, or "" */
    const char *costs;
    const char *options; /* the flags in memtally's own options; NULL where it was not asked so */
    uint64_t held_bytes; /* with the change, of the place that had no room or of the fullest */
    uint64_t capacity_bytes;
};

/* A device that held more than it was allowed. */
struct mt_rehearsed_excess {
    const char *place;
    const char *bound; /* "limit" or "baseline" */
    uint64_t held_bytes;
    uint64_t allowed_bytes;
};

/* A rehearsal of a command line, beside the estimate that it came to. */
struct mt_rehearsed {
    char *const *argv;   /* as the user would start it; ends with NULL */
    const char *outcome; /* "ran", "ran out", "crashed", "hung", "ran on" */
    int ran;
    const char *device_kind;
    uint64_t api_version; /* of ggml's devices */
    int is_ready;         /* a server that was */
    uint64_t n_requests;  /* that it was sent, and refused */
    uint64_t n_requests_refused;
    const char *complaint;  /* of the first refused request, or "" */
    uint64_t prompt_tokens; /* of the longest prompt; 0: none */
    uint64_t elapsed_ns;
    int exit_code; /* -1 where it was still running */
    int signal;
    const struct mt_rehearsal_event *refusal; /* the last one, or NULL */
    uint64_t n_refusals;
    const char *words; /* the program's last, or "" */
    const struct mt_rehearsed_late *late;
    size_t n_late;
    const struct mt_rehearsed_change *changes;
    size_t n_changes;
    size_t n_tried;              /* changes that were rehearsed */
    const char *phase;           /* the engine's own when memory was refused; NULL: none */
    const char *stack;           /* of calls in Python that asked for it; NULL: not known */
    const struct mt_tally *held; /* what was there then; NULL: not known */
    const struct mt_rehearsal_phase *phases; /* of an engine on PyTorch */
    size_t n_phases;
    const struct mt_rehearsal_figure *figures; /* that it said */
    size_t n_figures;
    const struct mt_rehearsal_allocator *allocators; /* what PyTorch's own counted */
    size_t n_allocators;
    uint64_t limit_bytes;   /* of each device; 0: none was given */
    const char *baseline;   /* the file; NULL: none was given */
    double tolerance_ratio; /* beyond it */
    int is_added;           /* to the baseline, which did not have it */
    const struct mt_rehearsed_excess *beyond;
    size_t n_beyond;
};

#endif
