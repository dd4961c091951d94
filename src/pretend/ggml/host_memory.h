/* SPDX-License-Identifier: MIT */
/* Memory of the host that is given out and never filled: address space, read as zeros. Small data
 * is kept, because an engine may read it back. */
#ifndef MT_REHEARSAL_GGML_HOST_MEMORY_H
#define MT_REHEARSAL_GGML_HOST_MEMORY_H

#include <stddef.h>

/* Writes from this many bytes on into such memory are dropped. */
#define HOST_MEMORY_DROPPED_BYTES 65536u

/* Address space of `size` bytes at a page's start, or NULL. Where the rehearsal computes, it is
 * memory like any other, and nothing below tells it apart. */
void *host_memory_map(size_t size);
void host_memory_unmap(void *memory, size_t size);

/* Whether all of a range lies in memory given out by host_memory_map(). */
int host_memory_owns(const void *address, size_t size);

/* Fills with zeros; whole pages of memory given out here are given back to the kernel instead. */
void host_memory_zero(void *to, size_t size);

/* As memcpy() where it matters: what is large and goes into such memory is dropped. */
void host_memory_copy(void *to, const void *from, size_t size);

/* Gives the whole pages of a private anonymous range back, so that they read as zeros, and clears
 * the rest. Returns 0 where the kernel would not. */
int host_memory_forget(void *from, size_t size);

#endif
