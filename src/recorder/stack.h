/* SPDX-License-Identifier: MIT */
/* The short way to a stack's number: for a call from as deep as the one before, with frames where
 * the last chain had them, and a stack that has been written. */
#ifndef MT_RECORDER_STACK_H
#define MT_RECORDER_STACK_H

#include "recorder/recorder.h"

static inline uint32_t stack_home(uint64_t hash)
{
    return (uint32_t)(hash >> 32) % STACK_SLOTS;
}

/* The number of the stack that begins with the frame, 0 where it takes more to know it.
 *
 * The frames are read where the last chain had them, and compared when all are read: the processor
 * then waits neither for one frame to find the next, nor for a guess at where the chain ends. What
 * is remembered lies on the same stack, so that it can be read whatever the chain is; without frame
 * pointers nothing is. */
static inline uint32_t known_stack(const struct thread *thread, const void *frame)
{
    const struct chain *chain = &thread->chain;
    const uint64_t *keys = memtally_recorder.frame_keys;
    const uint32_t n = chain->n;
    uintptr_t differs = (uintptr_t)chain->at[0] ^ (uintptr_t)frame;
    uint64_t hash = 0;
    if (UNLIKELY(differs))
        return 0;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < n; i++) {
        const uintptr_t *at = chain->at[i];
        differs |= at[0] ^ (uintptr_t)chain->at[i + 1];
        hash += at[1] * keys[i];
    }
    const struct stack_slot *slot = &thread->stacks[stack_home(hash)];
    return LIKELY(!differs) && LIKELY(slot->hash == hash) ? slot->number : 0;
}

#endif
