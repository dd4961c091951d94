/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/secrets.h"

/* Arguments are written with '|' between them. */
static const char *joined(const char *arguments)
{
    static char text[512];
    char bytes[512];
    size_t n = strlen(arguments);
    memcpy(bytes, arguments, n);
    for (size_t i = 0; i < n; i++)
        if (bytes[i] == '|')
            bytes[i] = '\0';
    mt_join_arguments(bytes, n, text, sizeof text);
    return text;
}

static void test_options_that_name_a_secret_lose_their_value(void **state)
{
    (void)state;
    assert_string_equal(joined("llama-server|--api-key|swordfish|-c|4096"),
                        "llama-server --api-key [hidden] -c 4096");
    assert_string_equal(joined("vllm|serve|m|--api-key=swordfish"),
                        "vllm serve m --api-key=[hidden]");
    assert_string_equal(joined("serve|--hf-token|swordfish"), "serve --hf-token [hidden]");
    assert_string_equal(joined("env|HF_TOKEN=swordfish|AWS_SECRET_ACCESS_KEY=swordfish|python"),
                        "env HF_TOKEN=[hidden] AWS_SECRET_ACCESS_KEY=[hidden] python");
    assert_string_equal(joined("curl|-H|Authorization: Bearer swordfish"), "curl -H [hidden]");
    assert_string_equal(joined("serve|--PASSWORD|swordfish"), "serve --PASSWORD [hidden]");
    assert_string_equal(joined("serve|--accessToken|swordfish|--apiKey=swordfish"),
                        "serve --accessToken [hidden] --apiKey=[hidden]");
    assert_string_equal(joined("serve|--api-key|-swordfish"), "serve --api-key [hidden]");
}

static void test_a_text_in_json_that_names_a_secret_is_hidden(void **state)
{
    (void)state;
    assert_string_equal(joined("serve|--config|{\"a\": 1, \"api_key\" : \"swordfish\"}"),
                        "serve --config [hidden]");
    assert_string_equal(joined("serve|--config={\"hub\":{\"authToken\":\"swordfish\"}}"),
                        "serve [hidden]");
    const char *plain = "serve --config {\"max_tokens\":\"key\",\"a\":[\"token\",\"";
    assert_string_equal(joined("serve|--config|{\"max_tokens\":\"key\",\"a\":[\"token\",\""),
                        plain);
}

static void test_what_only_looks_like_it_stays(void **state)
{
    (void)state;
    const char *plain = "vllm serve m --max-num-batched-tokens 8192 --tokenizer t --max-tokens 200 "
                        "--model=a/keyboard --monkey 3 --maxTokens 7";
    char arguments[256];
    snprintf(arguments, sizeof arguments, "%s", plain);
    for (char *at = arguments; *at; at++)
        if (*at == ' ')
            *at = '|';
    assert_string_equal(joined(arguments), plain);
    assert_string_equal(joined("serve|--require-key|--port|80"), "serve --require-key --port 80");
    assert_string_equal(joined("serve|--require-key|-p|80"), "serve --require-key -p 80");
}

static void test_tokens_and_logins_are_known_by_form(void **state)
{
    (void)state;
    assert_string_equal(joined("login|hf_abcdefghijkl"), "login [hidden]");
    assert_string_equal(joined("x|hf_short"), "x hf_short");
    assert_string_equal(joined("x|--flag=sk-abcdefghijkl"), "x --flag=[hidden]");
    assert_string_equal(joined("pull|https://me:sword@fish@host/path@2"),
                        "pull https://[hidden]@host/path@2");
    assert_string_equal(joined("pull|https://host/a@b"), "pull https://host/a@b");
}

static void test_a_query_of_an_address_loses_what_its_secret_is(void **state)
{
    (void)state;
    assert_string_equal(joined("pull|https://me:swordfish@host/a?access_token=swordfish"),
                        "pull https://[hidden]@host/a?access_token=[hidden]");
    assert_string_equal(joined("pull|https://host/?rev=2&token=swordfish"),
                        "pull https://host/?rev=2&token=[hidden]");
    assert_string_equal(joined("pull|--url=https://me:sword=fish@host/?key=swordfish"),
                        "pull --url=https://[hidden]@host/?key=[hidden]");
    assert_string_equal(joined("serve|--api-key=https://me:swordfish@host"),
                        "serve --api-key=[hidden]");
    assert_string_equal(joined("pull|https://host/?max_tokens=2&q=key&r=a=key=b"),
                        "pull https://host/?max_tokens=2&q=key&r=a=key=b");
}

static void test_the_text_is_cut_and_ended(void **state)
{
    (void)state;
    char text[8];
    mt_join_arguments("a\0--key\0swordfish", 17, text, sizeof text);
    assert_string_equal(text, "a --key");
    mt_join_arguments("abc", 3, text, 1);
    assert_string_equal(text, "");
    mt_join_arguments("", 0, text, sizeof text);
    assert_string_equal(text, "");
    mt_join_arguments("a\0\0b", 4, text, sizeof text);
    assert_string_equal(text, "a  b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_that_name_a_secret_lose_their_value),
        cmocka_unit_test(test_a_text_in_json_that_names_a_secret_is_hidden),
        cmocka_unit_test(test_what_only_looks_like_it_stays),
        cmocka_unit_test(test_tokens_and_logins_are_known_by_form),
        cmocka_unit_test(test_a_query_of_an_address_loses_what_its_secret_is),
        cmocka_unit_test(test_the_text_is_cut_and_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
