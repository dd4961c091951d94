/* SPDX-License-Identifier: MIT */
/* Equations that a struct's comment states, held where the struct was made.
 *
 * The library never ends its program: it tells mt_invariant_broken(), where the program has such a
 * function. Tests, fuzz harnesses and a command built for debugging have one, which aborts; in a
 * release build nothing is looked at. */
#ifndef MT_BASE_INVARIANT_H
#define MT_BASE_INVARIANT_H

#ifdef MT_INVARIANTS
/* Told of `what` does not hold. The library has no such function: a program may. */
void mt_invariant_broken(const char *what, const char *file, int line) __attribute__((weak));

#define MT_HOLDS(condition)                                                                        \
    do {                                                                                           \
        if (mt_invariant_broken && !(condition))                                                   \
            mt_invariant_broken(#condition, __FILE__, __LINE__);                                   \
    } while (0)
#else
#define MT_HOLDS(condition) ((void)0)
#endif

#endif
