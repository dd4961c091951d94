/* SPDX-License-Identifier: MIT */
/* Reading what the tables say of programs and their flags. */
#include "dialect.h"

#include <stdio.h>
#include <string.h>

#include <memtally/settings.h>

#include "engine/engine.h"

#define START_BYTES 96

static const char *const flag_names[MT_DRIVE_FLAGS] = {
#define X(symbol, name) [MT_DRIVE_##symbol] = name,
    MT_DRIVE_FLAG_LIST(X)
#undef X
};

static const char *const program_names[] = {[MT_DRIVE_UNKNOWN_PROGRAM] = "",
                                            [MT_DRIVE_SERVER] = "server",
                                            [MT_DRIVE_BENCH] = "bench",
                                            [MT_DRIVE_TOOL] = "tool",
                                            [MT_DRIVE_SCRIPT] = "script"};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A star at the end of `pattern` stands for anything. */
static int is_like(const char *word, const char *pattern, size_t length)
{
    if (length && pattern[length - 1] == '*')
        return strncmp(word, pattern, length - 1) == 0;
    return strlen(word) == length && memcmp(word, pattern, length) == 0;
}

/* How many words `start` has, where the command line begins with them; else 0. The first one may be
 * the path of a program. */
static size_t started_by(char *const *words, const char *start)
{
    size_t n = 0;
    for (const char *at = start;; at++) {
        size_t length = strcspn(at, ",");
        if (!words[n] || !is_like(n ? words[n] : base_name(words[n]), at, length))
            return 0;
        n++;
        at += length;
        if (!*at)
            return n;
    }
}

static size_t find_of(const struct mt_engine *engine, char *const *words,
                      enum mt_drive_program *program)
{
    char start[START_BYTES];
    size_t n;
    for (*program = MT_DRIVE_SERVER; *program < MT_DRIVE_SCRIPT; (*program)++)
        for (size_t i = 0; mt_engine_part_at(engine, "programs", program_names[*program], i, start,
                                             sizeof start) == 0;
             i++)
            if ((n = started_by(words, start)) > 0)
                return n;
    /* Our own program has a model and its settings behind it. */
    mt_engine_text(engine, "script", start, sizeof start);
    return *start && words[1] && words[2] ? started_by(words, start) : 0;
}

size_t mt_drive_program_find(char *const *words, size_t *index, const char **engine,
                             enum mt_drive_program *program)
{
    struct mt_engine table;
    const char *name;
    size_t n_words = 0;
    size_t found = 0;
    *engine = NULL;
    *program = MT_DRIVE_UNKNOWN_PROGRAM;
    while (words[n_words])
        n_words++;
    *index = n_words;
    for (size_t k = 0; (name = mt_engine_name_at(k)) != NULL; k++) {
        if (mt_engine_find(name, &table, NULL) < 0)
            continue;
        for (size_t i = 0; i < *index; i++) {
            enum mt_drive_program one;
            size_t n = find_of(&table, words + i, &one);
            if (n == 0)
                continue;
            *index = i;
            *engine = name;
            *program = one;
            found = n;
        }
    }
    return found;
}

/* The spellings of one flag; 0 where the key has none. */
static int load_names(const struct mt_engine *engine, const char *key, const char *name,
                      struct mt_drive_spelling *spelling)
{
    size_t n = 0;
    while (n < MT_DRIVE_SPELLINGS && mt_engine_part_at(engine, key, name, n, spelling->names[n],
                                                       MT_DRIVE_SPELLING_BYTES) == 0)
        n++;
    return n > 0;
}

void mt_drive_dialect_load(const char *engine, enum mt_drive_program program,
                           struct mt_drive_dialect *dialect)
{
    struct mt_engine table;
    char own[32];
    char without[32];
    *dialect = (struct mt_drive_dialect){.engine = engine, .program = program};
    if (!engine || mt_engine_find(engine, &table, NULL) < 0)
        return;
    snprintf(own, sizeof own, "flags.%s", program_names[program]);
    snprintf(without, sizeof without, "flags.without.%s", program_names[program]);
    int has_variables = !mt_engine_has(&table, "flags.variables.without", program_names[program]);
    for (enum mt_drive_flag flag = 0; flag < MT_DRIVE_FLAGS; flag++) {
        struct mt_drive_spelling *spelling = &dialect->flags[flag];
        const char *name = flag_names[flag];
        spelling->is_known = load_names(&table, "flags", name, spelling)
                                 ? !mt_engine_has(&table, without, name)
                                 : load_names(&table, own, name, spelling);
        spelling->is_known &= program != MT_DRIVE_SCRIPT;
        spelling->is_bare = mt_engine_has(&table, "flags.bare", name) != 0;
        spelling->is_many = mt_engine_has(&table, "flags.many", name) != 0;
        if (has_variables)
            (void)mt_engine_word(&table, "flags.variables", name, spelling->variable,
                                 MT_DRIVE_SPELLING_BYTES);
    }
}
