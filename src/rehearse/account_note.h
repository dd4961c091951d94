/* SPDX-License-Identifier: MIT */
/* Writing into the account of a rehearsal, from inside the rehearsed program, what memory is for.
 * What account_write.h says of its functions holds of these, too. */
#ifndef MT_REHEARSAL_ACCOUNT_NOTE_H
#define MT_REHEARSAL_ACCOUNT_NOTE_H

#include <stdint.h>

#include <memtally/category.h>

/* A buffer at `object` of `bytes`; `place` is a device's number or MT_ACCOUNT_HOST, `flags` of
 * MT_ACCOUNT_MAPPED …. `detail` may be NULL. Does not count the bytes as used: see pretend_take. */
void pretend_note_alloc(uint32_t place, enum mt_category category, uint32_t flags,
                        const void *object, uint64_t bytes, const char *name, const char *detail);
void pretend_note_usage(uint32_t place, enum mt_category category, const void *object,
                        uint64_t bytes, const char *detail);
/* The same of a part that was taken at `since_ns` (pretend_now_ns()). Without a category: it was
 * given back, and what was told of it is over. */
void pretend_note_part(uint32_t place, enum mt_category category, uint64_t since_ns,
                       const void *object, uint64_t bytes, const char *detail);
uint64_t pretend_now_ns(void);
void pretend_note_refuse(uint32_t place, enum mt_category category, uint64_t bytes,
                         uint64_t free_bytes, const char *name, const char *detail);
/* A sentence of what the program went without in the rehearsal: it may take up to `bytes` more. */
void pretend_note_absent(uint32_t place, enum mt_category category, uint64_t bytes,
                         const char *text);

#endif
