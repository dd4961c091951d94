/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "base/crc32c.h"

#include <string.h>

/* The vectors of RFC 3720, appendix B.4. */
static void test_published_vectors(void **state)
{
    (void)state;
    uint8_t bytes[32];
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(mt_crc32c(0, bytes, sizeof bytes), 0x8a9136aa);
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(mt_crc32c(0, bytes, sizeof bytes), 0x62a8ab43);
    for (uint8_t i = 0; i < 32; i++)
        bytes[i] = i;
    assert_int_equal(mt_crc32c(0, bytes, sizeof bytes), 0x46dd794e);
    assert_int_equal(mt_crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(mt_crc32c_portable(0, "123456789", 9), 0xe3069283);
}

static void test_pieces_give_the_same_as_the_whole(void **state)
{
    (void)state;
    uint8_t bytes[301];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37 + (i >> 3));
    uint32_t whole = mt_crc32c(0, bytes, sizeof bytes);
    for (size_t cut = 0; cut <= sizeof bytes; cut++) {
        uint32_t first = mt_crc32c(0, bytes, cut);
        assert_int_equal(mt_crc32c(first, bytes + cut, sizeof bytes - cut), whole);
        first = mt_crc32c_portable(0, bytes, cut);
        assert_int_equal(mt_crc32c_portable(first, bytes + cut, sizeof bytes - cut), whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_vectors),
        cmocka_unit_test(test_pieces_give_the_same_as_the_whole),
    };
    return RUN_TESTS(tests);
}
