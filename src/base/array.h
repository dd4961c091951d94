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

#endif
