/* SPDX-License-Identifier: MIT */
/* What an allocation is for, known before it is made: the hooks around it say, whoever allocates
 * asks. One chain for each thread, in the frames of the hooks. */
#ifndef MT_REHEARSAL_GGML_PURPOSE_H
#define MT_REHEARSAL_GGML_PURPOSE_H

#include <memtally/category.h>

struct purpose {
    enum mt_category category;
    char detail[96];
    const struct purpose *outer;
};

/* `detail` may be NULL, and `of` where nothing is known of whose it is. */
void purpose_begin(struct purpose *purpose, enum mt_category category, const char *detail,
                   const char *of);

/* For __attribute__((cleanup)), so that an exception ends it too. */
void purpose_end(struct purpose *purpose);

/* What the thread's next allocation is for. *detail is "" where that is not known; it is borrowed
 * while the allocation lasts. `detail` may be NULL. */
enum mt_category current_purpose(const char **detail);

#define PURPOSE __attribute__((cleanup(purpose_end))) struct purpose

#endif
