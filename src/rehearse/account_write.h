/* SPDX-License-Identifier: MIT */
/* Writing the account of a rehearsal from inside the rehearsed program.
 *
 * Everything here may be called from any thread, at any time, also before main() and within a
 * loader's call: it takes no lock, allocates nothing and leaves errno alone. Without a rehearsal
 * every function does nothing. Texts are cut to what the account has room for. */
#ifndef MT_REHEARSAL_ACCOUNT_WRITE_H
#define MT_REHEARSAL_ACCOUNT_WRITE_H

#include <stdint.h>

#include <memtally/category.h>

#include "rehearse/account.h"

/* The account of this rehearsal, or NULL where there is none. */
struct mt_account *pretend_account(void);

/* A buffer at `object` of `bytes`; `place` is a device's number or MT_ACCOUNT_HOST, `flags` of
 * MT_ACCOUNT_MAPPED …. `detail` may be NULL. Does not count the bytes as used: see pretend_take. */
void pretend_note_alloc(uint32_t place, enum mt_category category, uint32_t flags,
                        const void *object, uint64_t bytes, const char *name, const char *detail);
void pretend_note_free(uint32_t place, const void *object, uint64_t bytes);
void pretend_note_usage(uint32_t place, enum mt_category category, const void *object,
                        uint64_t bytes, const char *detail);
/* The same of a part that was taken at `since_ns` (pretend_now_ns()). Without a category: it was
 * given back, and what was told of it is over. */
void pretend_note_part(uint32_t place, enum mt_category category, uint64_t since_ns,
                       const void *object, uint64_t bytes, const char *detail);
uint64_t pretend_now_ns(void);
/* Where an allocation lies that was made without an address of its own. */
void pretend_note_mapped(uint32_t place, const void *object, uint64_t address);
void pretend_note_refuse(uint32_t place, enum mt_category category, uint64_t bytes,
                         uint64_t free_bytes, const char *name, const char *detail);
void pretend_note_mark(const char *name);
/* A sentence for the reader; it may be as long as the name and the detail together. */
void pretend_note(const char *text);
/* The same of what the program went without in the rehearsal: it may take up to `bytes` more. */
void pretend_note_absent(uint32_t place, enum mt_category category, uint64_t bytes,
                         const char *text);

/* Takes `bytes` of a place over all processes, unless they do not fit: returns 0 and leaves in
 * *free_bytes what is free then. A place without a limit (the host, as a rule) always fits. */
int pretend_take(uint32_t place, uint64_t bytes, uint64_t *free_bytes);
void pretend_give_back(uint32_t place, uint64_t bytes);
/* What the process took is from now on held by several, or by it alone again before it gives it
 * back. */
void pretend_disown(uint32_t place, uint64_t bytes);
void pretend_own(uint32_t place, uint64_t bytes);

/* Where the process was another program before an exec(), that has given back what it held. Called
 * once in every program, and before it takes anything. */
void pretend_begin_image(void);

/* Where a process is gone that held memory of devices, the rehearsal gives it back in a moment:
 * waits for that, a second at most. Returns whether anything came back. */
int pretend_await_gone(void);

/* What the program would be told is free of a device. */
uint64_t pretend_free_bytes(uint32_t device);

#endif
