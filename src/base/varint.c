/* SPDX-License-Identifier: MIT */
/* Reading variable-length integers from bytes that nobody vouches for. */
#include "base/varint.h"

int mt_varint_get(const uint8_t **at, const uint8_t *end, uint64_t *value)
{
    uint64_t result = 0;
    const uint8_t *byte = *at;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (byte == end)
            return 0;
        uint64_t bits = *byte & 0x7fu;
        if (shift == 63 && bits > 1)
            return 0;
        result |= bits << shift;
        if (!(*byte++ & 0x80)) {
            *value = result;
            *at = byte;
            return 1;
        }
    }
    return 0;
}
