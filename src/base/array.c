/* SPDX-License-Identifier: MIT */
#include <memtally/error_code.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* Pointers of any type have one representation here, but may not be read as pointers to void. */
int mt_array_double(void *array, size_t *capacity, size_t item_bytes, size_t first)
{
    void *items;
    memcpy(&items, array, sizeof items);
    size_t more;
    if (__builtin_mul_overflow(*capacity, 2, &more))
        return MT_ENOMEM;
    if (more == 0)
        more = first;
    void *grown = reallocarray(items, more, item_bytes);
    if (!grown)
        return MT_ENOMEM;
    memcpy(array, &grown, sizeof grown);
    *capacity = more;
    return 0;
}

int mt_array_grow_from(void *array, size_t n, size_t item_bytes)
{
    size_t room = n;
    return n & (n - 1) ? 0 : mt_array_double(array, &room, item_bytes, 1);
}
