/* SPDX-License-Identifier: MIT */
/* Files that lie where a model was meant are named for what they are. The bytes are those of the
 * formats' own specifications. */
#include "tests/support/unit.h"

#include <memtally/model_file.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BYTES(text) text, sizeof text - 1

static void expect(const void *bytes, size_t length, const char *what)
{
    const struct mt_file_kind *kind = mt_file_kind_of(bytes, length);
    assert_non_null(kind);
    if (!strstr(kind->what, what))
        fail_msg("%s, expected %s", kind->what, what);
}

static void test_files_are_named_by_their_first_bytes(void **state)
{
    (void)state;
    expect(BYTES("GGUF\3\0\0\0"), "GGUF");
    expect(BYTES("\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), "PNG");
    expect(BYTES("\xff\xd8\xff\xe0\0\x10JFIF"), "JPEG");
    expect(BYTES("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), "git-lfs");
    expect(BYTES("<!DOCTYPE html>\n<html>"), "HTML");
    expect(BYTES("\n\n  <HTML lang=en>"), "HTML");
    expect(BYTES("PK\3\4\x14\0"), "zip");
    expect(BYTES("\x80\2}q\0"), "pickle");
    expect(BYTES("tjgg\3\0\0\0"), "older than GGUF");
    expect(BYTES("\x10\0\0\0\0\0\0\0{\"a\":"), "safetensors");
    expect(BYTES(" {\"model_type\""), "JSON");
    expect("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16, "zeros");
}

static void test_what_is_cut_or_unknown_has_no_name(void **state)
{
    (void)state;
    assert_null(mt_file_kind_of("", 0));
    assert_null(mt_file_kind_of(BYTES("\x89PN")));
    assert_null(mt_file_kind_of(BYTES("Entry not found")));
    assert_null(mt_file_kind_of(BYTES("\1\2\3\4\5\6\7\10\11")));
}

/* Every prefix: nothing is read past its end (the sanitizers would see it). */
static void test_any_length_will_do(void **state)
{
    static const char text[] = "version https://git-lfs.github.com/spec/v1";
    (void)state;
    for (size_t length = 0; length < sizeof text; length++) {
        char bytes[sizeof text];
        memcpy(bytes, text, length);
        assert_int_equal(mt_file_kind_of(bytes, length) != NULL, length >= 39);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_are_named_by_their_first_bytes),
        cmocka_unit_test(test_what_is_cut_or_unknown_has_no_name),
        cmocka_unit_test(test_any_length_will_do),
    };
    return RUN_TESTS(tests);
}
