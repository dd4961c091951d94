/* SPDX-License-Identifier: MIT */
/* The well-formed byte sequences of the Unicode standard's table 3-7. */
#include "model/utf8.h"

#include <stdint.h>
#include <string.h>

/* The length of the sequence that `first` begins, 0 where none does, and the range of the byte
 * after it. */
static size_t sequence(unsigned char first, unsigned char *low, unsigned char *high)
{
    *low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    *high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (first >= 0xc2 && first <= 0xdf)
        return 2;
    if (first >= 0xe0 && first <= 0xef)
        return 3;
    return first >= 0xf0 && first <= 0xf4 ? 4 : 0;
}

/* How many bytes from `at` on are printable ASCII, eight at a time; may stop early. */
static size_t count_plain(const unsigned char *at, size_t length)
{
    const uint64_t ones = UINT64_MAX / 255;
    size_t n = 0;
    uint64_t word;
    for (; length - n >= sizeof word; n += sizeof word) {
        memcpy(&word, at + n, sizeof word);
        uint64_t del = word ^ ones * 0x7f;
        uint64_t bad = word | ((word - ones * 0x20) & ~word) | ((del - ones) & ~del);
        if (bad & ones * 0x80)
            break;
    }
    return n;
}

int mt_is_text(const char *bytes, size_t length)
{
    const unsigned char *at = (const unsigned char *)bytes;
    const unsigned char *end = at + length;
    at += count_plain(at, length);
    while (at < end) {
        if (*at >= 0x20 && *at < 0x7f) {
            at++;
            continue;
        }
        unsigned char low, high;
        size_t n = sequence(*at, &low, &high);
        if (n == 0 || n > (size_t)(end - at) || at[1] < low || at[1] > high)
            return 0;
        for (size_t i = 2; i < n; i++)
            if ((at[i] & 0xc0) != 0x80)
                return 0;
        at += n;
    }
    return 1;
}
