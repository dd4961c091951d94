/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include "cli/opt.h"
#include "cli/suggest.h"

#include <stdio.h>
#include <string.h>

struct options {
    int quiet;
    int format;
    const char *output;
    uint64_t limit_bytes;
    uint64_t top;
    double share;
    struct cli_texts only;
};

static const char *const formats[] = {"table", "json", "csv", NULL};

#define AT(member) offsetof(struct options, member)

static const struct cli_option table[] = {
    {.name = "quiet", .letter = 'q', .kind = CLI_FLAG, .offset = AT(quiet), .help = "say less"},
    {.name = "format",
     .letter = 'f',
     .kind = CLI_CHOICE,
     .argument = "FORMAT",
     .choices = formats,
     .fallback = "csv",
     .offset = AT(format),
     .help = "how"},
    {.name = "json", .kind = CLI_FLAG, .offset = AT(format), .value = 1, .help = "as JSON"},
    {.name = "output",
     .letter = 'o',
     .kind = CLI_FILE,
     .argument = "FILE",
     .offset = AT(output),
     .help = "where"},
    {.name = "limit",
     .kind = CLI_SIZE,
     .argument = "SIZE",
     .fallback = "16MiB",
     .offset = AT(limit_bytes),
     .help = "how much"},
    {.name = "top",
     .kind = CLI_COUNT,
     .argument = "N",
     .least = 1,
     .offset = AT(top),
     .help = "how many"},
    {.name = "share",
     .kind = CLI_REAL,
     .argument = "PERCENT",
     .most = 100,
     .offset = AT(share),
     .help = "how much of it"},
    {.name = "only",
     .kind = CLI_TEXTS,
     .argument = "PATTERN",
     .offset = AT(only),
     .help = "which; as often as wanted"},
    {0},
};

static const struct cmd_entry files_entry = {
    .name = "show",
    .synopsis = "[options] FILE...",
    .options = table,
    .options_size = sizeof(struct options),
    .operands = CLI_OPERANDS_FILES,
    .least_operands = 1,
};

static const struct cmd_entry program_entry = {
    .name = "watch",
    .synopsis = "[options] -- CMD...",
    .options = table,
    .options_size = sizeof(struct options),
    .operands = CLI_OPERANDS_PROGRAM,
    .least_operands = 1,
};

/* One parse, with everything that it gave. */
struct parsed {
    int result;
    struct options options;
    struct cli_call call;
    struct mt_error error;
    char line[256];
    char *argv[16];
};

/* Splits `line` at blanks and parses it. */
static void parse(struct parsed *parsed, const struct cmd_entry *entry, const char *line)
{
    *parsed = (struct parsed){0};
    strncpy(parsed->line, line, sizeof parsed->line - 1);
    int argc = 0;
    for (char *word = strtok(parsed->line, " "); word; word = strtok(NULL, " "))
        parsed->argv[argc++] = word;
    parsed->result =
        cli_parse(entry, argc, parsed->argv, &parsed->options, &parsed->call, &parsed->error);
}

static void assert_refused(const struct cmd_entry *entry, const char *line, const char *words)
{
    struct parsed p;
    parse(&p, entry, line);
    assert_int_equal(p.result, MT_EARG);
    if (!strstr(p.error.text, words))
        fail_msg("'%s' is not in '%s'", words, p.error.text);
}

static void test_defaults_come_from_the_table(void **state)
{
    (void)state;
    struct parsed p;
    parse(&p, &files_entry, "a");
    assert_int_equal(p.result, CLI_PARSED);
    assert_int_equal(p.options.format, 2);
    assert_int_equal(p.options.limit_bytes, 16u << 20);
    assert_null(p.options.output);
    assert_int_equal(p.options.quiet, 0);
}

static void test_values_may_stand_in_all_four_places(void **state)
{
    (void)state;
    struct parsed p;
    parse(&p, &files_entry, "--format=json --limit 2GB -ox -q a");
    assert_int_equal(p.result, CLI_PARSED);
    assert_int_equal(p.options.format, 1);
    assert_int_equal(p.options.limit_bytes, 2000000000);
    assert_string_equal(p.options.output, "x");
    assert_int_equal(p.options.quiet, 1);
    parse(&p, &files_entry, "-qo y a --share 12.5 --top=7 --json");
    assert_int_equal(p.result, CLI_PARSED);
    assert_string_equal(p.options.output, "y");
    assert_true(p.options.share == 12.5);
    assert_int_equal(p.options.top, 7);
    assert_int_equal(p.options.format, 1);
}

static void test_the_last_of_several_values_wins(void **state)
{
    (void)state;
    struct parsed p;
    parse(&p, &files_entry, "--top 1 --top 2 a");
    assert_int_equal(p.options.top, 2);
}

static void test_a_list_keeps_all_its_values_in_order(void **state)
{
    (void)state;
    struct parsed p;
    parse(&p, &files_entry, "--only b a --only=a --only b");
    assert_int_equal(p.result, CLI_PARSED);
    assert_int_equal(p.options.only.n, 3);
    assert_string_equal(p.options.only.items[0], "b");
    assert_string_equal(p.options.only.items[1], "a");
    assert_string_equal(p.options.only.items[2], "b");
    assert_refused(&files_entry, "--only= a", "option '--only' wants a text, at most 64 times");
}

static void test_a_list_has_an_end(void **state)
{
    (void)state;
    struct options options = {0};
    struct cli_call call;
    struct mt_error error;
    static char words[CLI_TEXTS_MAX + 2][16];
    char *argv[CLI_TEXTS_MAX + 3] = {0};
    for (int i = 0; i < CLI_TEXTS_MAX + 2; i++) {
        snprintf(words[i], sizeof words[i], i ? "--only=%d" : "a", i);
        argv[i] = words[i];
    }
    assert_int_equal(cli_parse(&files_entry, CLI_TEXTS_MAX + 2, argv, &options, &call, &error),
                     MT_EARG);
    assert_int_equal(options.only.n, CLI_TEXTS_MAX);
}

static void test_operands_may_stand_between_options(void **state)
{
    (void)state;
    struct parsed p;
    parse(&p, &files_entry, "a --json b -q - -- --top c");
    assert_int_equal(p.result, CLI_PARSED);
    assert_int_equal(p.call.n_operands, 5);
    const char *const expected[] = {"a", "b", "-", "--top", "c"};
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(p.call.operands[i], expected[i]);
    assert_null(p.call.operands[5]);
}

static void test_the_options_of_a_program_are_its_own(void **state)
{
    (void)state;
    struct parsed p;
    parse(&p, &program_entry, "-q ls --json -q");
    assert_int_equal(p.result, CLI_PARSED);
    assert_int_equal(p.call.n_operands, 3);
    assert_string_equal(p.call.operands[1], "--json");
    assert_int_equal(p.options.format, 2);
    parse(&p, &program_entry, "-q -- ls -- x");
    assert_int_equal(p.call.n_operands, 3);
    assert_string_equal(p.call.operands[0], "ls");
    assert_string_equal(p.call.operands[1], "--");
}

static void test_help_is_found_before_anything_is_missing(void **state)
{
    (void)state;
    struct parsed p;
    parse(&p, &files_entry, "--help");
    assert_int_equal(p.result, CLI_PARSED_HELP);
    parse(&p, &files_entry, "-h --nonsense");
    assert_int_equal(p.result, CLI_PARSED_HELP);
    parse(&p, &program_entry, "ls --help");
    assert_int_equal(p.result, CLI_PARSED);
}

static void test_what_is_not_known_is_named_with_the_nearest(void **state)
{
    (void)state;
    assert_refused(&files_entry, "--fromat=x a", "'--fromat' (did you mean '--format'?)");
    assert_refused(&files_entry, "--out x a", "'--out' (did you mean '--output'?)");
    assert_refused(&files_entry, "--zzzzzz a", "unknown option '--zzzzzz'; see");
    assert_refused(&files_entry, "-z a", "unknown option '-z'");
    assert_refused(&files_entry, "--forma=json a", "unknown option '--forma'");
}

static void test_bad_values_say_what_is_valid(void **state)
{
    (void)state;
    assert_refused(&files_entry, "--format xml a", "one of table, json, csv, not 'xml'");
    assert_refused(&files_entry, "--limit lots a", "a size such as");
    assert_refused(&files_entry, "--top -1 a", "a whole number of at least 1, not '-1'");
    assert_refused(&files_entry, "--top 0 a", "at least 1");
    assert_refused(&files_entry, "--top 18446744073709551616 a", "'--top'");
    assert_refused(&files_entry, "--top 1x a", "'1x'");
    assert_refused(&files_entry, "--share 101 a", "a number from 0 to 100");
    assert_refused(&files_entry, "--share nan a", "'nan'");
    assert_refused(&files_entry, "--share 0x1 a", "'0x1'");
    assert_refused(&files_entry, "--output= a", "a path that is not empty");
    assert_refused(&files_entry, "--quiet=1 a", "takes no value");
}

static void test_what_is_missing_is_named(void **state)
{
    (void)state;
    assert_refused(&files_entry, "a --top", "option '--top' needs a value (N)");
    assert_refused(&files_entry, "a -o", "option '--output' needs a value (FILE)");
    assert_refused(&files_entry, "-q", "memtally show [options] FILE...");
    assert_refused(&program_entry, "--", "too few arguments");
}

static void test_counts_may_be_in_units_of_1024(void **state)
{
    (void)state;
    struct parsed p;
    parse(&p, &files_entry, "--top 32k a");
    assert_int_equal(p.options.top, 32768);
    parse(&p, &files_entry, "--top 1K a");
    assert_int_equal(p.options.top, 1024);
    assert_refused(&files_entry, "--top k a", "'k'");
    assert_refused(&files_entry, "--top 2kB a", "'2kB'");
    assert_refused(&files_entry, "--top 1.5k a", "'1.5k'");
    assert_refused(&files_entry, "--top 18446744073709551615k a", "--top");
}

static void test_distance_counts_swaps_as_one(void **state)
{
    (void)state;
    assert_int_equal(cli_name_distance("report", "report"), 0);
    assert_int_equal(cli_name_distance("rpeort", "report"), 1);
    assert_int_equal(cli_name_distance("", "abc"), 3);
    assert_int_equal(cli_name_distance("kitten", "sitting"), 3);
    char longer[80];
    memset(longer, 'a', sizeof longer - 1);
    longer[79] = '\0';
    assert_int_equal(cli_name_distance(longer, "a"), 79);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_come_from_the_table),
        cmocka_unit_test(test_values_may_stand_in_all_four_places),
        cmocka_unit_test(test_the_last_of_several_values_wins),
        cmocka_unit_test(test_a_list_keeps_all_its_values_in_order),
        cmocka_unit_test(test_a_list_has_an_end),
        cmocka_unit_test(test_operands_may_stand_between_options),
        cmocka_unit_test(test_the_options_of_a_program_are_its_own),
        cmocka_unit_test(test_help_is_found_before_anything_is_missing),
        cmocka_unit_test(test_what_is_not_known_is_named_with_the_nearest),
        cmocka_unit_test(test_bad_values_say_what_is_valid),
        cmocka_unit_test(test_what_is_missing_is_named),
        cmocka_unit_test(test_counts_may_be_in_units_of_1024),
        cmocka_unit_test(test_distance_counts_swaps_as_one),
    };
    return RUN_TESTS(tests);
}
