/* SPDX-License-Identifier: MIT */
/* Looking a place up in sorted items by halves. The caller says of each item that is asked for
 * whether it comes before the place:
 *
 *     struct mt_bisect place = {.end = n};
 *     while (mt_bisect_next(&place))
 *         mt_bisect_turn(&place, items[place.middle].key < key);
 *     return place.first;
 *
 * That is the first item that does not come before; n where all do. */
#ifndef MT_BASE_BISECT_H
#define MT_BASE_BISECT_H

#include <stddef.h>

struct mt_bisect {
    size_t first;  /* all items before it come before the place */
    size_t end;    /* none from here on does */
    size_t middle; /* of these two: the item that is asked for */
};

/* Whether there is an item to ask for. */
static inline int mt_bisect_next(struct mt_bisect *place)
{
    place->middle = place->first + (place->end - place->first) / 2;
    return place->first < place->end;
}

static inline void mt_bisect_turn(struct mt_bisect *place, int comes_before)
{
    if (comes_before)
        place->first = place->middle + 1;
    else
        place->end = place->middle;
}

#endif
