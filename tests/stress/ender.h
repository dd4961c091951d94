/* SPDX-License-Identifier: MIT */
/* What a program that ends at a random moment says of its own events, in a page that outlives it.
 */
#ifndef MT_TESTS_ENDER_H
#define MT_TESTS_ENDER_H

#include <stdint.h>

#define ENDER_THREADS     2
#define ENDER_BLOCK_BYTES 70001u /* an event in both depths */

struct ender_counts {
    struct {
        uint64_t allocating; /* calls that began */
        uint64_t allocated;  /* and those that returned */
        uint64_t freeing;
        uint64_t freed;
        uint64_t apart[4];
    } thread[ENDER_THREADS];
};

#endif
