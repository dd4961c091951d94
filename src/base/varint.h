/* SPDX-License-Identifier: MIT */
/* Variable-length integers (LEB128) and zigzag. Preload-safe: no libc, no state. */
#ifndef MT_BASE_VARINT_H
#define MT_BASE_VARINT_H

#include <stddef.h>
#include <stdint.h>

/* The most bytes that a 64-bit value takes. */
#define MT_VARINT_MAX 10

/* Writes `value` at `at` and returns the byte past it. `at` has MT_VARINT_MAX bytes of room. */
static inline uint8_t *mt_varint_put(uint8_t *at, uint64_t value)
{
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

/* The same for values of which most are below 2^28, and their lengths vary: without a branch for
 * each byte. `at` has MT_VARINT_MAX bytes of room. */
static inline uint8_t *mt_varint_put_most(uint8_t *at, uint64_t value)
{
    if (__builtin_expect(value >> 28 != 0, 0))
        return mt_varint_put(at, value);
    uint32_t x = (uint32_t)value;
    uint32_t more = (31u - (uint32_t)__builtin_clz(x | 1)) * 37 >> 8; /* a seventh: bytes but one */
    uint32_t bytes = (x & 0x7f) | (x & 0x3f80) << 1 | (x & 0x1fc000) << 2 | (x & 0xfe00000) << 3;
    bytes |= 0x808080u & ((1u << 8 * more) - 1);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    bytes = __builtin_bswap32(bytes);
#endif
    __builtin_memcpy(at, &bytes, sizeof bytes);
    return at + more + 1;
}

/* Maps small negative numbers to small unsigned ones: 0, -1, 1, -2 … to 0, 1, 2, 3 … */
static inline uint64_t mt_zigzag(int64_t value)
{
    return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
}

static inline int64_t mt_unzigzag(uint64_t value)
{
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

/* Reads a value at *at, not past `end`. Returns 1 and moves *at past it; returns 0 and leaves
 * *at and *value alone where the bytes end too early or hold more than 64 bits. */
int mt_varint_get(const uint8_t **at, const uint8_t *end, uint64_t *value);

/* The same; quick for values of one and two bytes. */
static inline int mt_varint_next(const uint8_t **at, const uint8_t *end, uint64_t *value)
{
    const uint8_t *byte = *at;
    if (end - byte < 2)
        return mt_varint_get(at, end, value);
    if (byte[0] < 0x80) {
        *value = byte[0];
        *at = byte + 1;
        return 1;
    }
    if (byte[1] < 0x80) {
        *value = (uint64_t)(byte[0] & 0x7fu) | (uint64_t)byte[1] << 7;
        *at = byte + 2;
        return 1;
    }
    return mt_varint_get(at, end, value);
}

#endif
