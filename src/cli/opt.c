/* SPDX-License-Identifier: MIT */
/* The command-line parser. Knows the table, not what options mean. */
#include "cli/opt.h"

#include <ctype.h>
#include <errno.h>
#include <memtally/units.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/suggest.h"

/* Where the parser stands. `next` is the word to read next, `n_operands` of them were kept. */
struct parse {
    const struct cmd_entry *entry;
    int argc;
    char **argv;
    int next;
    size_t n_operands;
    void *options;
    struct mt_error *error;
    int has_dashes;
    size_t n_plain;
};

static int fail(struct parse *parse, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Fails with "COMMAND: text; see 'memtally help COMMAND'". */
static int fail(struct parse *parse, const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (parse->entry == &cmd_memtally)
        return mt_fail(parse->error, MT_EARG, MT_NO_OFFSET, "%s; see 'memtally help'", text);
    return mt_fail(parse->error, MT_EARG, MT_NO_OFFSET, "%s: %s; see 'memtally help %s'",
                   parse->entry->name, text, parse->entry->name);
}

typedef int option_test(const struct cli_option *option, const void *wanted);

static const struct cli_option *find_in(const struct cli_option *table, option_test *test,
                                        const void *wanted)
{
    for (; table && table->name; table++)
        if (test(table, wanted))
            return table;
    return NULL;
}

static const struct cli_option *find(const struct cmd_entry *entry, option_test *test,
                                     const void *wanted)
{
    const struct cli_option *option = find_in(entry->options, test, wanted);
    return option ? option : find_in(cli_common_options(), test, wanted);
}

/* A long name as it stands in a word: up to '=' or the end. */
struct long_name {
    const char *text;
    size_t length;
};

static int has_long_name(const struct cli_option *option, const void *wanted)
{
    const struct long_name *name = wanted;
    return strlen(option->name) == name->length &&
           memcmp(option->name, name->text, name->length) == 0;
}

static int has_letter(const struct cli_option *option, const void *wanted)
{
    return option->letter == *(const char *)wanted;
}

/* "8192", or "8k" for the same. Digits only: strtoull() alone takes "-1". */
static int parse_count(const char *text, uint64_t *count)
{
    size_t digits = strspn(text, "0123456789");
    int is_kilo = digits && (text[digits] == 'k' || text[digits] == 'K');
    if (!digits || text[digits + (size_t)is_kilo])
        return MT_EARG;
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno || value >= (is_kilo ? UINT64_MAX / 1024 : UINT64_MAX))
        return MT_ELIMIT;
    *count = is_kilo ? value * 1024 : value;
    return 0;
}

static int parse_real(const char *text, double *real)
{
    size_t digits = strspn(text, "0123456789.");
    if (!isdigit((unsigned char)*text) || text[digits])
        return MT_EARG;
    char *end;
    double value = strtod(text, &end);
    if (*end)
        return MT_EARG;
    *real = value;
    return 0;
}

static int in_range(const struct cli_option *option, double value)
{
    return value >= (double)option->least && (!option->most || value <= (double)option->most);
}

static int choice_index(const struct cli_option *option, const char *text)
{
    for (int i = 0; option->choices[i]; i++)
        if (strcmp(option->choices[i], text) == 0)
            return i;
    return -1;
}

static int append(struct cli_texts *texts, const char *text)
{
    if (!*text || texts->n == CLI_TEXTS_MAX)
        return MT_EARG;
    texts->items[texts->n++] = text;
    return 0;
}

/* Writes the value `text` to the option's member. Returns 0 or MT_EARG. */
static int store(void *options, const struct cli_option *option, const char *text)
{
    void *member = (char *)options + option->offset;
    uint64_t number;
    double real;
    int index;
    switch (option->kind) {
    case CLI_FLAG:
        *(int *)member = option->value ? option->value : 1;
        return 0;
    case CLI_TEXT:
        *(const char **)member = text;
        return 0;
    case CLI_TEXTS:
        return append(member, text);
    case CLI_FILE:
    case CLI_DIRECTORY:
        if (!*text)
            return MT_EARG;
        *(const char **)member = text;
        return 0;
    case CLI_SIZE:
        return mt_parse_size(text, member) ? MT_EARG : 0;
    case CLI_COUNT:
        if (parse_count(text, &number) || !in_range(option, (double)number))
            return MT_EARG;
        *(uint64_t *)member = number;
        return 0;
    case CLI_REAL:
        if (parse_real(text, &real) || !in_range(option, real))
            return MT_EARG;
        *(double *)member = real;
        return 0;
    case CLI_CHOICE:
        index = choice_index(option, text);
        if (index < 0)
            return MT_EARG;
        *(int *)member = index;
        return 0;
    }
    return MT_EARG;
}

/* What the option would have taken, as "one of table, json" or "a size such as 512M". */
static void describe_valid(const struct cli_option *option, char *text, size_t size)
{
    size_t used = 0;
    const char *noun = option->kind == CLI_COUNT ? "a whole number" : "a number";
    switch (option->kind) {
    case CLI_SIZE:
        snprintf(text, size, "a size such as 512M or 16GiB");
        return;
    case CLI_COUNT:
    case CLI_REAL:
        if (option->most)
            snprintf(text, size, "%s from %lu to %lu", noun, option->least, option->most);
        else if (option->least)
            snprintf(text, size, "%s of at least %lu", noun, option->least);
        else
            snprintf(text, size, "%s", noun);
        return;
    case CLI_TEXTS:
        snprintf(text, size, "a text, at most %d times", CLI_TEXTS_MAX);
        return;
    case CLI_CHOICE:
        used = (size_t)snprintf(text, size, "one of");
        for (size_t i = 0; option->choices[i] && used < size; i++)
            used += (size_t)snprintf(text + used, size - used, "%s %s", i ? "," : "",
                                     option->choices[i]);
        return;
    default:
        snprintf(text, size, "a path that is not empty");
    }
}

static int take_value(struct parse *parse, const struct cli_option *option, const char *text)
{
    if (store(parse->options, option, text) == 0)
        return 0;
    char valid[256];
    describe_valid(option, valid, sizeof valid);
    return fail(parse, "option '--%s' wants %s, not '%.80s'", option->name, valid, text);
}

/* The value that stands in the next word, or NULL. */
static const char *next_word(struct parse *parse)
{
    return parse->next < parse->argc ? parse->argv[parse->next++] : NULL;
}

static int fail_without_value(struct parse *parse, const struct cli_option *option)
{
    return fail(parse, "option '--%s' needs a value (%s)", option->name, option->argument);
}

static int is_help(const struct cli_option *option)
{
    return option == cli_common_options();
}

static int fail_unknown_long(struct parse *parse, const struct long_name *name)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%.*s", (int)(name->length < 63 ? name->length : 63),
             name->text);
    struct cli_suggestion suggestion = {.wanted = wanted};
    for (const struct cli_option *o = parse->entry->options; o && o->name; o++)
        cli_suggestion_offer(&suggestion, o->name);
    for (const struct cli_option *o = cli_common_options(); o->name; o++)
        cli_suggestion_offer(&suggestion, o->name);
    if (suggestion.best)
        return fail(parse, "unknown option '--%s' (did you mean '--%s'?)", wanted, suggestion.best);
    return fail(parse, "unknown option '--%s'", wanted);
}

static int parse_long(struct parse *parse, const char *word)
{
    struct long_name name = {word + 2, strcspn(word + 2, "=")};
    const struct cli_option *option = find(parse->entry, has_long_name, &name);
    if (!option)
        return fail_unknown_long(parse, &name);
    if (is_help(option))
        return CLI_PARSED_HELP;
    const char *value = name.text[name.length] ? name.text + name.length + 1 : NULL;
    if (option->kind == CLI_FLAG) {
        if (value)
            return fail(parse, "option '--%s' takes no value", option->name);
        return store(parse->options, option, NULL);
    }
    if (!value)
        value = next_word(parse);
    return value ? take_value(parse, option, value) : fail_without_value(parse, option);
}

/* A word of short options: flags may be written together, the last one may take a value. */
static int parse_short(struct parse *parse, const char *word)
{
    for (const char *letter = word + 1; *letter; letter++) {
        const struct cli_option *option = find(parse->entry, has_letter, letter);
        if (!option)
            return fail(parse, "unknown option '-%c'",
                        isprint((unsigned char)*letter) ? *letter : '?');
        if (is_help(option))
            return CLI_PARSED_HELP;
        if (option->kind == CLI_FLAG) {
            store(parse->options, option, NULL);
            continue;
        }
        const char *value = letter[1] ? letter + 1 : next_word(parse);
        return value ? take_value(parse, option, value) : fail_without_value(parse, option);
    }
    return CLI_PARSED;
}

static void keep_operand(struct parse *parse, char *word)
{
    /* Never ahead of the reading position, so nothing unread is overwritten. */
    parse->argv[parse->n_operands++] = word;
}

static void keep_the_rest(struct parse *parse)
{
    while (parse->next < parse->argc)
        keep_operand(parse, parse->argv[parse->next++]);
}

static int parse_word(struct parse *parse)
{
    char *word = parse->argv[parse->next++];
    if (strcmp(word, "--") == 0) {
        parse->has_dashes = 1;
        parse->n_plain = parse->n_operands;
        keep_the_rest(parse);
        return CLI_PARSED;
    }
    if (word[0] == '-' && word[1])
        return word[1] == '-' ? parse_long(parse, word) : parse_short(parse, word);
    keep_operand(parse, word);
    if (parse->entry->operands == CLI_OPERANDS_PROGRAM)
        keep_the_rest(parse);
    return CLI_PARSED;
}

static void store_fallbacks(const struct cli_option *table, void *options)
{
    for (; table && table->name; table++)
        if (table->fallback)
            store(options, table, table->fallback);
}

static int check_operands(struct parse *parse)
{
    const struct cmd_entry *entry = parse->entry;
    if (parse->n_operands < entry->least_operands)
        return fail(parse, "too few arguments; it is used as 'memtally %s %s'", entry->name,
                    entry->synopsis);
    int any_number = entry->operands != CLI_OPERANDS_NONE && entry->most_operands == 0;
    if (parse->n_operands > entry->most_operands && !any_number)
        return fail(parse, "unexpected argument '%.80s'", parse->argv[entry->most_operands]);
    return CLI_PARSED;
}

int cli_parse(const struct cmd_entry *entry, int argc, char **argv, void *options,
              struct cli_call *call, struct mt_error *error)
{
    struct parse parse = {
        .entry = entry, .argc = argc, .argv = argv, .options = options, .error = error};
    store_fallbacks(entry->options, options);
    while (parse.next < parse.argc) {
        int result = parse_word(&parse);
        if (result)
            return result;
    }
    int result = check_operands(&parse);
    if (result)
        return result;
    argv[parse.n_operands] = NULL;
    size_t n_plain = parse.has_dashes ? parse.n_plain : parse.n_operands;
    *call = (struct cli_call){entry, options, parse.n_operands, argv, parse.has_dashes, n_plain};
    return CLI_PARSED;
}
