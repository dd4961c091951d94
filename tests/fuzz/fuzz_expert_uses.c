/* SPDX-License-Identifier: MIT */
/* Counts of how often experts are used. */
#include <memtally/memtally.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length)
{
    struct mt_expert_use *uses = NULL;
    size_t n = 0;
    if (mt_expert_uses_parse("fuzz", (const char *)data, length, &uses, &n, NULL))
        return 0;
    /* A line has five bytes at least, and the end of the last one may be missing. */
    if (6 * n > length + 1)
        abort();
    for (size_t i = 0; i < n; i++)
        if (!(uses[i].count >= 0))
            abort();
    mt_expert_uses_destroy(uses);
    return 0;
}
