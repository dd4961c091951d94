/* SPDX-License-Identifier: MIT */
/* Choosing a picture by time and size. The processes of a tree are rarely pictured at once; a
 * picture of the right size from another time says more than a nearer one from before the process
 * grew. Of those of about the right size it is the nearest in time. */
#include "tally/nearest.h"
#include "base/bisect.h"

#define SAME_SIZE_BYTES ((uint64_t)1 << 20)

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* How far a picture's size is from the size at the moment, nothing where it is about the same. */
static uint64_t size_apart(const struct mt_picture *picture, uint64_t resident_bytes)
{
    uint64_t apart = distance(picture->resident_bytes, resident_bytes);
    return apart <= resident_bytes / 64 + SAME_SIZE_BYTES ? 0 : apart;
}

static size_t first_from(const struct mt_picture *pictures, size_t n, uint64_t ns)
{
    struct mt_bisect place = {.end = n};
    while (mt_bisect_next(&place))
        mt_bisect_turn(&place, pictures[place.middle].ns < ns);
    return place.first;
}

/* The search goes from the time outward, and ends at the first of the right size. A hostile
 * recording has many forks without a picture, and as many pictures of their parent, none of the
 * right size. */
const struct mt_picture *mt_picture_nearest(const struct mt_picture *pictures, size_t n,
                                            uint64_t ns, uint64_t resident_bytes, size_t *looked_at)
{
    size_t after = first_from(pictures, n, ns);
    size_t before = after; /* 1 + the next that is earlier */
    const struct mt_picture *found = NULL;
    uint64_t best = UINT64_MAX;
    if (after < n && pictures[after].ns == ns)
        return &pictures[after];
    for (size_t i = 0; i < MT_NEAREST_MOST && best && (before || after < n); i++) {
        int is_earlier =
            before && (after == n || ns - pictures[before - 1].ns <= pictures[after].ns - ns);
        const struct mt_picture *picture = &pictures[is_earlier ? --before : after++];
        uint64_t apart = size_apart(picture, resident_bytes);
        if (!found || apart < best) {
            found = picture;
            best = apart;
        }
        if (looked_at)
            ++*looked_at;
    }
    return found;
}
