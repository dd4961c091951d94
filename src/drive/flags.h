/* SPDX-License-Identifier: MIT */
/* Flags in a command line of the user's: finding, changing, dropping them.
 *
 * Knows how an engine spells its flags (dialect.h), not what they do. Memory that cannot be had is
 * remembered in the command line's `failed`. */
#ifndef DRIVE_FLAGS_H
#define DRIVE_FLAGS_H

#include <stdint.h>

#include "dialect.h"

/* A command line of one's own; `words` ends with NULL. */
struct mt_drive_command {
    char **words;
    size_t n_words;
    size_t program_index; /* of the program's name: 0, or later behind env, nice and the like */
    enum mt_drive_program program;
    const char *engine;               /* that the program is of, or NULL */
    struct mt_drive_dialect *dialect; /* of the program; NULL where it is not known */
    int failed;
};

/* Copies `argv`, which ends with NULL, and finds the program in it. The caller frees the copy with
 * mt_drive_command_finish(). */
void mt_drive_command_copy(char *const *argv, struct mt_drive_command *command);
void mt_drive_command_finish(struct mt_drive_command *command);

/* Whether its engine's table has `value` for `key`, as "ggml" for "devices". */
int mt_drive_command_is(const struct mt_drive_command *command, const char *key, const char *value);

/* The words as an array of the caller's, who frees it with mt_drive_argv_free(); finishes the rest.
 * NULL where it failed. */
char **mt_drive_command_take(struct mt_drive_command *command);

/* Whether the program knows the flag at all. */
int mt_drive_flag_is_known(const struct mt_drive_command *command, enum mt_drive_flag flag);

/* The flag's value: the last one of the command line, else that of its variable in `environment`
 * (which ends with NULL, or is NULL), else NULL. A flag without a value is "1". Borrowed. */
const char *mt_drive_flag_value(const struct mt_drive_command *command, char *const *environment,
                                enum mt_drive_flag flag);

/* Gives the flag a value, in the user's spelling where it stands there, else by its short name at
 * the end. */
void mt_drive_flag_set(struct mt_drive_command *command, enum mt_drive_flag flag,
                       const char *value);

/* Takes the flag out, wherever it stands. */
void mt_drive_flag_drop(struct mt_drive_command *command, enum mt_drive_flag flag);

/* How the user spells the flag, or its short name: "-c", "--ctx-size". Borrowed. */
const char *mt_drive_flag_spelling(const struct mt_drive_command *command, enum mt_drive_flag flag);

/* A whole number in `text`; `otherwise` where it is NULL, "auto", a list or anything else. */
uint64_t mt_drive_flag_number(const char *text, uint64_t otherwise);

#endif
