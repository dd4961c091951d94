/* SPDX-License-Identifier: MIT */
/* CRC-32C, by instruction on x86-64 and aarch64, by a nibble table elsewhere. The table is small
 * because a preloaded object should not bring kilobytes of it into every process. */
#include "base/crc32c.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

uint32_t mt_crc32c_portable(uint32_t crc, const void *bytes, size_t length)
{
    static const uint32_t table[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
    };
    const uint8_t *byte = bytes;
    crc = ~crc;
    for (size_t i = 0; i < length; i++) {
        crc ^= byte[i];
        crc = (crc >> 4) ^ table[crc & 15];
        crc = (crc >> 4) ^ table[crc & 15];
    }
    return ~crc;
}

#if defined(__x86_64__)

/* Asked once, and not first whether it may be asked, as every such processor answers: in a virtual
 * machine each question goes to the host. */
static int has_instruction(void)
{
    enum { UNKNOWN, HAS_NONE, HAS };
    static int answer;
    unsigned a, b, c, d;
    int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);
    if (known == UNKNOWN) {
        __cpuid(1, a, b, c, d);
        known = c & bit_SSE4_2 ? HAS : HAS_NONE;
        __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
    }
    return known == HAS;
}

__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const void *bytes,
                                                                 size_t length)
{
    const uint8_t *byte = bytes;
    uint64_t state = (uint32_t)~crc;
    for (; length >= 8; length -= 8, byte += 8) {
        uint64_t word;
        memcpy(&word, byte, sizeof word);
        state = _mm_crc32_u64(state, word);
    }
    uint32_t rest = (uint32_t)state;
    for (; length; length--)
        rest = _mm_crc32_u8(rest, *byte++);
    return ~rest;
}

#elif defined(__aarch64__)

static int has_instruction(void)
{
    return (getauxval(AT_HWCAP) & (1u << 7)) != 0; /* HWCAP_CRC32 */
}

__attribute__((target("+crc"))) static uint32_t by_instruction(uint32_t crc, const void *bytes,
                                                               size_t length)
{
    const uint8_t *byte = bytes;
    crc = ~crc;
    for (; length >= 8; length -= 8, byte += 8) {
        uint64_t word;
        memcpy(&word, byte, sizeof word);
        crc = __builtin_aarch64_crc32cx(crc, word);
    }
    for (; length; length--)
        crc = __builtin_aarch64_crc32cb(crc, *byte++);
    return ~crc;
}

#else

static int has_instruction(void)
{
    return 0;
}

static uint32_t by_instruction(uint32_t crc, const void *bytes, size_t length)
{
    return mt_crc32c_portable(crc, bytes, length);
}

#endif

uint32_t mt_crc32c(uint32_t crc, const void *bytes, size_t length)
{
    return has_instruction() ? by_instruction(crc, bytes, length)
                             : mt_crc32c_portable(crc, bytes, length);
}
