/* SPDX-License-Identifier: MIT */
/* Recordings of any size, as a program with so many events, threads and call stacks would leave
 * them: written by the recorder's own writer, in the time that it takes to write them. */
#ifndef MT_TESTS_BIG_RECORDING_H
#define MT_TESTS_BIG_RECORDING_H

#include <stdint.h>

struct big_recording {
    uint64_t n_events; /* allocations and frees */
    uint32_t n_threads;
    uint32_t n_live;   /* blocks that live at a time, once so many were made */
    uint32_t n_stacks; /* different ones, of 12 frames */
};

/* What a report of it has to say. */
struct big_truth {
    uint64_t live_blocks;
    uint64_t live_bytes;
    uint64_t resident_bytes; /* of the one picture, at the end */
};

/* Writes PATH, a raw recording file. Ends the program where that fails. */
struct big_truth big_recording_write(const struct big_recording *big, const char *path);

#endif
