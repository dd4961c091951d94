/* SPDX-License-Identifier: MIT */
/* Libraries whose heap blocks are of one kind. PyTorch's c10 takes blocks from 64 KiB on for
 * storages of tensors alone (c10::alloc_cpu(), core/impl/alloc_cpu.cpp). */
#include "tally/callers.h"

#include <string.h>

#include "base/varint.h"

static const struct mt_caller callers[] = {
    {"libc10.so", MT_CATEGORY_ACTIVATIONS, "tensors"},
};

const struct mt_caller *mt_caller_of(const struct mt_maps *maps, const struct mt_stack *stack)
{
    uint64_t frame;
    const uint8_t *at = stack->bytes;
    if (!stack->length || !mt_varint_get(&at, at + stack->length, &frame))
        return NULL;
    const struct mt_vma *vma = mt_maps_find(maps, (uint64_t)mt_unzigzag(frame) - 1);
    if (!vma || vma->kind != MT_VMA_FILE)
        return NULL;
    const char *slash = strrchr(vma->name, '/');
    for (size_t i = 0; i < sizeof callers / sizeof *callers; i++)
        if (slash && strncmp(slash + 1, callers[i].library, strlen(callers[i].library)) == 0)
            return &callers[i];
    return NULL;
}
