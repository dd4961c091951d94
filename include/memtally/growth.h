/* SPDX-License-Identifier: MIT */
/* What grew between two moments of a recording. */
#ifndef MEMTALLY_GROWTH_H
#define MEMTALLY_GROWTH_H

#include <stddef.h>
#include <stdint.h>

#include <memtally/category.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error;     /* <memtally/error.h> */
struct mt_recording; /* both of <memtally/recording.h> */
struct mt_stack_list;

/* A category of a place that grew: resident bytes, or allocated ones of a place that says no
 * others. What is unattributed is MT_CATEGORY_NONE. */
struct mt_grown_row {
    const char *place; /* as in a tally */
    enum mt_category category;
    uint64_t before_bytes;
    uint64_t after_bytes;
};

/* What grew between two moments. Rows and stacks have only what is larger at the later one, what
 * grew most first. `bytes` and `count` of a stack are what it has more. */
struct mt_recording_growth {
    uint64_t from_ns;
    uint64_t until_ns;
    size_t n_rows;
    const struct mt_grown_row *rows;
    const struct mt_stack_list *stacks;
};

/* Says which categories and which call stacks grew in the `span_ns` before `until_ns` after the
 * start of a recording, which may still be written. MT_UNKNOWN is its end so far, as is a moment
 * past it, and of a span its beginning. At most `limit` stacks, 0 for all. *growth is owned by the
 * caller; free it with mt_recording_growth_destroy(). Errors: MT_ENOTFOUND (nothing was seen yet),
 * MT_ENOMEM. */
int mt_recording_grown(const struct mt_recording *recording, uint64_t span_ns, uint64_t until_ns,
                       size_t limit, struct mt_recording_growth **growth, struct mt_error *error);

/* Takes NULL. */
void mt_recording_growth_destroy(struct mt_recording_growth *growth);

#ifdef __cplusplus
}
#endif
#endif
