/* SPDX-License-Identifier: MIT */
/* The UUID of a GPU as NVIDIA's tools write it: GPU-01234567-89ab-cdef-0123-456789abcdef. Without
 * libc, since the recorder writes it too. */
#ifndef MT_BASE_GPU_UUID_H
#define MT_BASE_GPU_UUID_H

#include <stdint.h>

#define MT_GPU_UUID_RAW_BYTES  16u
#define MT_GPU_UUID_TEXT_BYTES 41u /* with its end */

static inline void mt_format_gpu_uuid(const uint8_t uuid[MT_GPU_UUID_RAW_BYTES],
                                      char text[MT_GPU_UUID_TEXT_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    static const char head[] = "GPU-";
    for (unsigned i = 0; head[i]; i++)
        *text++ = head[i];
    for (unsigned i = 0; i < MT_GPU_UUID_RAW_BYTES; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *text++ = '-';
        *text++ = digits[uuid[i] >> 4];
        *text++ = digits[uuid[i] & 15];
    }
    *text = '\0';
}

#endif
