/* SPDX-License-Identifier: MIT */
/* Arrays that double. */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H

#include <stddef.h>

/* Makes room for one more item in `array`, a pointer from malloc() or NULL, of whose `capacity` (a
 * size_t) `n` items are in use; its first room is for `first` items. Evaluates to 0, or to
 * MT_ENOMEM, and then the array is as it was. */
#define mt_array_reserve(array, n, capacity, first)                                                \
    ((n) < (capacity) ? 0 : mt_array_double(&(array), &(capacity), sizeof *(array), (first)))

/* What the macro calls: `array` points to the pointer. */
int mt_array_double(void *array, size_t *capacity, size_t item_bytes, size_t first);

/* The same of an array without a capacity, whose room is the power of two from `n` on: it was never
 * longer than it is. */
#define mt_array_grow(array, n) mt_array_grow_from(&(array), (n), sizeof *(array))

int mt_array_grow_from(void *array, size_t n, size_t item_bytes);

#endif
