/* SPDX-License-Identifier: MIT */
/* A library whose constructor allocates, and whose destructor, which comes after the recorder's,
 * fills what it is told: the child is linked with it. */
#include <stdlib.h>
#include <string.h>

void early_is_linked(void);
void early_fills_at_end(void *area, size_t length);

static void *block;
static void *filled;
static size_t filled_bytes;

__attribute__((constructor)) static void allocate(void)
{
    block = malloc(54321);
}

void early_is_linked(void)
{
    __asm__ volatile("" : : "r"(block));
}

void early_fills_at_end(void *area, size_t length)
{
    filled = area;
    filled_bytes = length;
}

__attribute__((destructor)) static void fill(void)
{
    if (filled)
        memset(filled, 1, filled_bytes);
}
