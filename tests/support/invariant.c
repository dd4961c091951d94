/* SPDX-License-Identifier: MIT */
/* A broken equation ends the program that found it. For tests, fuzz harnesses and the command of a
 * build for debugging. */
#include "base/invariant.h"

#include <stdio.h>
#include <stdlib.h>

void mt_invariant_broken(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    abort();
}
