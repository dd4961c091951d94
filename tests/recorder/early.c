/* SPDX-License-Identifier: MIT */
/* A library whose constructor allocates: the child is linked with it. */
#include <stdlib.h>

void early_is_linked(void);

static void *block;

__attribute__((constructor)) static void allocate(void)
{
    block = malloc(54321);
}

void early_is_linked(void)
{
    __asm__ volatile("" : : "r"(block));
}
