/* SPDX-License-Identifier: MIT */
/* The Python functions that the calling thread is in. */
#ifndef MT_RECORDER_PYTHON_H
#define MT_RECORDER_PYTHON_H

#include "recorder/recorder.h"

#define PYTHON_MOST_FRAMES 40u

/* A function and where in it: enough to know it again. */
struct python_place {
    uintptr_t code;
    uintptr_t instruction; /* an address; up to 3.10 an index */
    uint64_t key;
    uint32_t is_entry; /* called from C: the interpreter was entered for it */
};

struct python_stack {
    uint32_t n;
    uint32_t is_cut; /* there are more */
    uint64_t hash;
    struct python_place place[PYTHON_MOST_FRAMES]; /* innermost first */
};

/* Whether the thread has a Python state at all; if so its places, of which there may be none. */
HIDDEN int python_walk(struct python_stack *stack);

/* The number that stands for a place among a stack's frames, which is written with its name when
 * the stream has not had it yet; 0 where it cannot be told. */
HIDDEN uint64_t python_frame(struct thread *thread, const struct python_place *place,
                             uint64_t ticks);

#endif
