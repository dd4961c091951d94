/* SPDX-License-Identifier: MIT */
/* Tells the recorder what memory is for. Runs the same without it; to see the rows:
 *
 *     memtally run -o rec -- ./scope && memtally report rec */
#include <memtally/scope.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHTS_BYTES ((size_t)16 << 20)
#define CACHE_BYTES   ((size_t)4 << 20)

int main(void)
{
    /* What a thread allocates inside a scope belongs to it. */
    mt_scope_begin(MT_CATEGORY_KV_CACHE, "cache of the example");
    char *cache = malloc(CACHE_BYTES);
    mt_scope_end();

    /* A label says what memory is that is there already, also a part of it. */
    char *memory = malloc(WEIGHTS_BYTES);
    if (!cache || !memory)
        return 1;
    mt_label(memory, WEIGHTS_BYTES, MT_CATEGORY_WEIGHTS, "weights of the example");

    memset(cache, 1, CACHE_BYTES);
    memset(memory, 1, WEIGHTS_BYTES);
    mt_mark("loaded");
    printf("%zu bytes of weights, %zu of cache\n", WEIGHTS_BYTES, CACHE_BYTES);

    free(memory); /* ends its label, too */
    free(cache);
    return 0;
}
