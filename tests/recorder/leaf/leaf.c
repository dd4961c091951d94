/* SPDX-License-Identifier: MIT */
/* A library that only the RUNPATH of the library beside it finds. */
#include <stdlib.h>

const char *leaf_name(void);
void *leaf_block(void);

const char *leaf_name(void)
{
    return "the leaf";
}

/* For the caller to free: opened with RTLD_DEEPBIND, this is libc's own malloc. */
void *leaf_block(void)
{
    return malloc(99);
}
