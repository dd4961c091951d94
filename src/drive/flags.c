/* SPDX-License-Identifier: MIT */
/* Flags in a command line, by the spellings that the engine's table has. */
#include "flags.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engines.h"

/* Words before the program's belong to what starts it: `env A=b nice -n 5 llama-server`. */
static void find_program(struct mt_drive_command *command)
{
    size_t index;
    size_t n = mt_drive_program_find(command->words, &index, &command->engine, &command->program);
    if (n == 0)
        return;
    command->program_index = index + n - 1;
    command->dialect = malloc(sizeof *command->dialect);
    command->failed = !command->dialect;
    if (command->dialect)
        mt_drive_dialect_load(command->engine, command->program, command->dialect);
}

void mt_drive_command_copy(char *const *argv, struct mt_drive_command *command)
{
    size_t n = 0;
    *command = (struct mt_drive_command){0};
    while (argv[n])
        n++;
    command->words = calloc(n + 1, sizeof *command->words);
    command->failed = !command->words;
    for (size_t i = 0; !command->failed && i < n; i++) {
        command->words[i] = strdup(argv[i]);
        command->failed = !command->words[i];
        command->n_words += !command->failed;
    }
    if (!command->failed)
        find_program(command);
}

void mt_drive_command_finish(struct mt_drive_command *command)
{
    for (size_t i = 0; i < command->n_words; i++)
        free(command->words[i]);
    free(command->words);
    free(command->dialect);
    *command = (struct mt_drive_command){0};
}

char **mt_drive_command_take(struct mt_drive_command *command)
{
    char **words = command->words;
    if (command->failed) {
        mt_drive_command_finish(command);
        return NULL;
    }
    free(command->dialect);
    *command = (struct mt_drive_command){0};
    return words;
}

int mt_drive_command_is(const struct mt_drive_command *command, const char *key, const char *value)
{
    return command->engine && mt_drive_engine_is(command->engine, key, value);
}

static const struct mt_drive_spelling *spelling_for(const struct mt_drive_command *command,
                                                    enum mt_drive_flag flag)
{
    static const struct mt_drive_spelling none = {.is_known = 0};
    return command->dialect ? &command->dialect->flags[flag] : &none;
}

int mt_drive_flag_is_known(const struct mt_drive_command *command, enum mt_drive_flag flag)
{
    return spelling_for(command, flag)->is_known;
}

/* As long as `name` where `word` begins with it, else 0. llama.cpp takes --ctx_size too. */
static size_t matched_length(const char *word, const char *name)
{
    size_t i = 0;
    int is_long = strncmp(name, "--", 2) == 0;
    for (; name[i]; i++) {
        char c = is_long && i > 1 && word[i] == '_' ? '-' : word[i];
        if (c != name[i])
            return 0;
    }
    return i;
}

/* The spelling of the flag that `word` is, or NULL; *value is then what follows its '=', or NULL.
 */
static const char *spelling_of(const struct mt_drive_spelling *spelling, const char *word,
                               const char **value)
{
    for (size_t i = 0; i < MT_DRIVE_SPELLINGS && *spelling->names[i]; i++) {
        const char *name = spelling->names[i];
        size_t length = matched_length(word, name);
        int is_joined = length > 0 && word[length] == '=' && strncmp(name, "--", 2) == 0;
        if (length > 0 && (word[length] == '\0' || is_joined)) {
            *value = is_joined ? word + length + 1 : NULL;
            return name;
        }
    }
    return NULL;
}

/* The flag that a word is, of those that the program knows, or MT_DRIVE_FLAGS. */
static enum mt_drive_flag flag_of(const struct mt_drive_command *command, const char *word,
                                  const char **value)
{
    for (enum mt_drive_flag flag = 0; flag < MT_DRIVE_FLAGS; flag++)
        if (mt_drive_flag_is_known(command, flag) &&
            spelling_of(spelling_for(command, flag), word, value))
            return flag;
    return MT_DRIVE_FLAGS;
}

/* A flag, and no value: negative numbers are values, and older programs' -fa has none. */
static int looks_like_flag(const char *word)
{
    return word[0] == '-' && (word[1] == '-' || (word[1] >= 'A' && word[1] <= 'z'));
}

/* One flag of the command line: `n` words from `index` on. */
struct place {
    size_t index;
    size_t n;
    const char *value;
    int is_joined; /* "--ctx-size=4096" */
};

/* How many words after a flag are its values. */
static size_t n_values(const struct mt_drive_command *command, enum mt_drive_flag flag, size_t from)
{
    size_t most = spelling_for(command, flag)->is_many ? command->n_words : 1;
    size_t n = 0;
    while (n < most && from + n < command->n_words && !looks_like_flag(command->words[from + n]))
        n++;
    return n;
}

/* Finds the next place of `flag` from word `from` on. Steps over the values of other flags. */
static int next_place(const struct mt_drive_command *command, enum mt_drive_flag wanted,
                      size_t from, struct place *place)
{
    for (size_t i = from; i < command->n_words; i++) {
        const char *value = NULL;
        enum mt_drive_flag flag = flag_of(command, command->words[i], &value);
        if (flag == MT_DRIVE_FLAGS)
            continue;
        size_t n =
            value || spelling_for(command, flag)->is_bare ? 0 : n_values(command, flag, i + 1);
        if (flag == wanted) {
            *place = (struct place){i, n + 1, n ? command->words[i + 1] : value, value != NULL};
            return 1;
        }
        i += n;
    }
    return 0;
}

/* The last place decides: llama.cpp takes the last one too. */
static int last_place(const struct mt_drive_command *command, enum mt_drive_flag flag,
                      struct place *last)
{
    struct place place;
    int found = 0;
    size_t from = command->program_index + 1;
    while (next_place(command, flag, from, &place)) {
        *last = place;
        from = place.index + place.n;
        found = 1;
    }
    return found;
}

static const char *variable_value(char *const *environment, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; length && environment && environment[i]; i++)
        if (strncmp(environment[i], name, length) == 0 && environment[i][length] == '=')
            return environment[i] + length + 1;
    return NULL;
}

const char *mt_drive_flag_value(const struct mt_drive_command *command, char *const *environment,
                                enum mt_drive_flag flag)
{
    struct place place;
    if (!mt_drive_flag_is_known(command, flag))
        return NULL;
    if (last_place(command, flag, &place))
        return spelling_for(command, flag)->is_bare ? "1" : place.value;
    return variable_value(environment, spelling_for(command, flag)->variable);
}

static void replace_word(struct mt_drive_command *command, size_t index, char *word)
{
    if (!word) {
        command->failed = 1;
        return;
    }
    free(command->words[index]);
    command->words[index] = word;
}

/* "--ctx-size=4096" with another value. */
static char *joined(const char *word, const char *value)
{
    size_t length = strcspn(word, "=") + 1;
    char *text = malloc(length + strlen(value) + 1);
    if (text) {
        memcpy(text, word, length);
        strcpy(text + length, value);
    }
    return text;
}

static void insert_word(struct mt_drive_command *command, size_t index, const char *word)
{
    char *copy = strdup(word);
    char **words = copy ? realloc(command->words, (command->n_words + 2) * sizeof *words) : NULL;
    if (!words) {
        free(copy);
        command->failed = 1;
        return;
    }
    memmove(words + index + 1, words + index, (command->n_words + 1 - index) * sizeof *words);
    words[index] = copy;
    command->words = words;
    command->n_words++;
}

void mt_drive_flag_set(struct mt_drive_command *command, enum mt_drive_flag flag, const char *value)
{
    const struct mt_drive_spelling *spelling = spelling_for(command, flag);
    struct place place;
    if (command->failed || !*spelling->names[0])
        return;
    if (!last_place(command, flag, &place)) {
        insert_word(command, command->n_words, spelling->names[0]);
        if (!command->failed && !spelling->is_bare)
            insert_word(command, command->n_words, value);
    } else if (place.is_joined) {
        replace_word(command, place.index, joined(command->words[place.index], value));
    } else if (place.n > 1) {
        replace_word(command, place.index + 1, strdup(value));
    } else if (!spelling->is_bare) {
        insert_word(command, place.index + 1, value);
    }
}

void mt_drive_flag_drop(struct mt_drive_command *command, enum mt_drive_flag flag)
{
    struct place place;
    while (!command->failed && mt_drive_flag_is_known(command, flag) &&
           last_place(command, flag, &place)) {
        for (size_t i = 0; i < place.n; i++)
            free(command->words[place.index + i]);
        memmove(command->words + place.index, command->words + place.index + place.n,
                (command->n_words - place.index - place.n + 1) * sizeof *command->words);
        command->n_words -= place.n;
    }
}

const char *mt_drive_flag_spelling(const struct mt_drive_command *command, enum mt_drive_flag flag)
{
    struct place place;
    const char *value = NULL;
    if (!last_place(command, flag, &place))
        return spelling_for(command, flag)->names[0];
    return spelling_of(spelling_for(command, flag), command->words[place.index], &value);
}

uint64_t mt_drive_flag_number(const char *text, uint64_t otherwise)
{
    char *end = NULL;
    if (!text || text[0] < '0' || text[0] > '9')
        return otherwise;
    errno = 0;
    uint64_t number = strtoull(text, &end, 10);
    return errno || *end ? otherwise : number;
}
