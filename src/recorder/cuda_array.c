/* SPDX-License-Identifier: MIT */
/* How large arrays are, by their descriptors (CUarray_format and CUDA_ARRAY3D_… of cuda.h 13.1). */
#include "recorder/cuda.h"

enum { LAYERED = 0x01, CUBEMAP = 0x04, SPARSE = 0x40, DEFERRED_MAPPING = 0x80 };

/* The bytes of one channel. The normalised forms carry how many there are in their names, and as
 * `channels` too. */
static uint64_t channel_bytes(int format)
{
    switch (format) {
    case 0x01: /* UNSIGNED_INT8 */
    case 0x08: /* SIGNED_INT8 */
    case 0xc0: /* UNORM_INT8X1, X2, X4 */
    case 0xc1:
    case 0xc2:
    case 0xc6: /* SNORM_INT8X1, X2, X4 */
    case 0xc7:
    case 0xc8:
        return 1;
    case 0x02: /* UNSIGNED_INT16 */
    case 0x09: /* SIGNED_INT16 */
    case 0x10: /* HALF */
    case 0xc3: /* UNORM_INT16X1, X2, X4 */
    case 0xc4:
    case 0xc5:
    case 0xc9: /* SNORM_INT16X1, X2, X4 */
    case 0xca:
    case 0xcb:
        return 2;
    case 0x03: /* UNSIGNED_INT32 */
    case 0x0a: /* SIGNED_INT32 */
    case 0x20: /* FLOAT */
        return 4;
    default:
        return 0;
    }
}

static uint64_t at_level(uint64_t length, unsigned level)
{
    uint64_t half = level < 64 ? length >> level : 0;
    return half ? half : 1;
}

uint64_t cuda_array_bytes(const struct cuda_array_3d *form, unsigned levels)
{
    uint64_t element = channel_bytes(form->format) * form->channels;
    uint64_t sum = 0;
    int has_layers = (form->flags & (LAYERED | CUBEMAP)) != 0;
    if (form->flags & (SPARSE | DEFERRED_MAPPING) || form->width >> 32 || form->height >> 32 ||
        form->depth >> 20)
        return 0;
    for (unsigned level = 0; level < levels && level < 33; level++) {
        uint64_t depth = has_layers ? at_level(form->depth, 0) : at_level(form->depth, level);
        uint64_t rows, bytes;
        if (__builtin_mul_overflow(at_level(form->width, level) * element,
                                   at_level(form->height, level), &rows) ||
            __builtin_mul_overflow(rows, depth, &bytes))
            return 0;
        sum += bytes;
    }
    return sum;
}
