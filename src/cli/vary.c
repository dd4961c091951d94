/* SPDX-License-Identifier: MIT */
/* Runs of one command that differ in one setting. The commands `rehearse` and `run` do the work. */
#include "vary.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <memtally/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "cli/console.h"
#include "cli/dispatch.h"
#include "cli/program.h"
#include "drive/stage.h"

enum { WORDS_MAX = 512, OWN_WORDS_MAX = 16 + 2 * CLI_TEXTS_MAX };

/* The comma that parts two values, or NULL. */
static char *parting_comma(char *text)
{
    int depth = 0;
    for (char *at = text; *at; at++) {
        depth += strchr("([{", *at) != NULL;
        depth -= strchr(")]}", *at) != NULL;
        if (*at == ',' && depth <= 0)
            return at;
    }
    return NULL;
}

int cli_vary_read(const char *text, struct cli_vary *vary, struct mt_error *error)
{
    *vary = (struct cli_vary){.name = vary->text};
    int length = snprintf(vary->text, sizeof vary->text, "%s", text);
    char *equals = strchr(vary->text, '=');
    char *comma = equals ? parting_comma(equals + 1) : NULL;
    if (length >= (int)sizeof vary->text || !comma || equals == vary->text || comma == equals + 1 ||
        !comma[1] || parting_comma(comma + 1))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "graphs: option '--vary' wants a name and two values, as "
                       "max_concurrency=none,16, not '%.80s'",
                       text);
    *equals = *comma = '\0';
    vary->values[0] = equals + 1;
    vary->values[1] = comma + 1;
    for (int i = 0; i < CLI_VARY_RUNS; i++)
        snprintf(vary->labels[i], sizeof vary->labels[i], "%s=%s", vary->name, vary->values[i]);
    return 0;
}

/* ---- the command's words ---- */

struct filling {
    char **words;
    size_t n, most;
    int failed;
};

static void add(struct filling *to, char *word)
{
    if (!word || to->n + 1 >= to->most) {
        to->failed = word ? MT_EARG : MT_ENOMEM;
        free(word);
        return;
    }
    to->words[to->n++] = word;
    to->words[to->n] = NULL;
}

static void add_text(struct filling *to, const char *text)
{
    add(to, strdup(text));
}

/* The word with the value in each of its places. */
static char *with_value(const char *word, const char *place, const char *value)
{
    struct mt_strbuf text = {0};
    for (const char *at; (at = strstr(word, place)); word = at + strlen(place)) {
        mt_strbuf_printf(&text, "%.*s", (int)(at - word), word);
        mt_strbuf_puts(&text, value);
    }
    mt_strbuf_puts(&text, word);
    char *made = strdup(mt_strbuf_text(&text));
    mt_strbuf_finish(&text);
    return made;
}

/* A flag whose value goes away: "--concurrency {max_concurrency}". */
static void drop_flag(struct filling *to)
{
    if (to->n && to->words[to->n - 1][0] == '-') {
        free(to->words[--to->n]);
        to->words[to->n] = NULL;
    }
}

int cli_vary_words(const struct cli_vary *vary, size_t which, const char *const *command,
                   char **words, size_t most, struct mt_error *error)
{
    char place[sizeof vary->text + 2], flag[sizeof vary->text + 2];
    struct filling to = {.words = words, .most = most};
    const char *value = vary->values[which];
    int is_none = strcmp(value, "none") == 0, is_placed = 0;
    snprintf(place, sizeof place, "{%s}", vary->name);
    snprintf(flag, sizeof flag, "--%s", vary->name);
    words[0] = NULL;
    for (; *command && !to.failed; command++) {
        int has_place = strstr(*command, place) != NULL;
        is_placed |= has_place;
        if (has_place && is_none && strcmp(*command, place) == 0)
            drop_flag(&to);
        else if (has_place)
            add(&to, with_value(*command, place, is_none ? "null" : value));
        else
            add_text(&to, *command);
    }
    if (!is_placed && !is_none) {
        add_text(&to, flag);
        add_text(&to, value);
    }
    if (!to.failed)
        return 0;
    while (to.n)
        free(to.words[--to.n]);
    return mt_fail(error, to.failed, MT_NO_OFFSET,
                   to.failed == MT_ENOMEM ? "out of memory" : "the command has too many words");
}

/* ---- the runs ---- */

static int make_folders(struct cli_vary *vary, const struct cli_vary_how *how,
                        struct mt_error *error)
{
    int result = cli_choose_folder(how->folder, "graphs", vary->base, error);
    if (result < 0)
        return result;
    if (how->folder && mkdir(vary->base, 0777) && errno != EEXIST)
        return mt_fail(error, MT_EIO, MT_NO_OFFSET, "cannot make the folder '%.200s': %s",
                       vary->base, strerror(errno));
    for (int i = 0; i < CLI_VARY_RUNS; i++)
        if (snprintf(vary->folders[i], PATH_MAX, "%.*s/%c", PATH_MAX - 3, vary->base, 'A' + i) >=
            PATH_MAX)
            return mt_fail(error, MT_EARG, MT_NO_OFFSET, "the name of the folder is too long");
    return 0;
}

/* Where a rehearsal's document goes. */
static void name_document(const struct cli_vary *vary, size_t which, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%.*s.json", PATH_MAX - 6, vary->folders[which]);
}

/* Whether the rehearsal was ended before the program was ready or at its end. */
static int was_cut(const struct cli_vary *vary, size_t which)
{
    char path[PATH_MAX];
    name_document(vary, which, path);
    json_t *document = json_load_file(path, 0, NULL);
    const char *outcome =
        json_string_value(json_object_get(json_object_get(document, "rehearsal"), "outcome"));
    int is = outcome && strcmp(outcome, "ran on") == 0;
    json_decref(document);
    return is;
}

/* memtally's own words before the command's. */
static void add_own(const struct cli_vary *vary, const struct cli_vary_how *how, size_t which,
                    const char *seconds, struct filling *to)
{
    if (!how->devices->n) {
        add_text(to, "--quiet");
        add_text(to, "--output");
        add_text(to, vary->folders[which]);
        add_text(to, "--");
        return;
    }
    for (size_t i = 0; i < how->devices->n; i++) {
        add_text(to, "--device");
        add_text(to, how->devices->items[i]);
    }
    char document[PATH_MAX];
    static const char *const words[] = {"--requests", "0",      "--no-suggest",
                                        "--quiet",    "--json", "--output"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        add_text(to, words[i]);
    name_document(vary, which, document);
    add_text(to, document);
    add_text(to, "--timeout");
    add_text(to, seconds);
    add_text(to, "--folder");
    add_text(to, vary->folders[which]);
    add_text(to, "--");
}

static int run_one(const struct cli_vary *vary, const struct cli_vary_how *how, size_t which,
                   const char *const *command)
{
    char *words[WORDS_MAX];
    char *call[WORDS_MAX]; /* parsing moves words about */
    char seconds[24];
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct filling to = {.words = words, .most = OWN_WORDS_MAX};
    snprintf(seconds, sizeof seconds, "%" PRIu64, how->timeout_s);
    add_own(vary, how, which, seconds, &to);
    int result = to.failed
                     ? mt_out_of_memory(&error)
                     : cli_vary_words(vary, which, command, words + to.n, WORDS_MAX - to.n, &error);
    size_t n = to.n;
    while (!result && words[n])
        n++;
    memcpy(call, words, (n + 1) * sizeof *words);
    int code = result ? cli_fail(&error)
                      : cli_dispatch(cli_command_by_name(how->devices->n ? "rehearse" : "run"),
                                     (int)n, call);
    for (size_t i = 0; i < n; i++)
        free(words[i]);
    return code;
}

int cli_vary_run(struct cli_vary *vary, const struct cli_vary_how *how, const char *const *command)
{
    struct mt_error error = {.offset = MT_NO_OFFSET};
    if (make_folders(vary, how, &error) < 0)
        return cli_fail(&error);
    for (size_t i = 0; i < CLI_VARY_RUNS; i++) {
        int code = run_one(vary, how, i, command);
        if (code == CLI_EXIT_OK) {
            vary->was_cut[i] = how->devices->n && was_cut(vary, i);
            continue;
        }
        cli_complain("graphs: the run with %s ended with status %d; run it by itself to see why",
                     vary->labels[i], code);
        return code == CLI_EXIT_USAGE ? CLI_EXIT_USAGE : CLI_EXIT_NO;
    }
    return CLI_EXIT_OK;
}

void cli_vary_finish(const struct cli_vary *vary, const struct cli_vary_how *how)
{
    if (how->folder || !*vary->base)
        return;
    for (size_t i = 0; i < CLI_VARY_RUNS; i++) {
        char path[PATH_MAX];
        mt_drive_folder_remove(vary->folders[i]);
        name_document(vary, i, path);
        unlink(path);
    }
    rmdir(vary->base);
}
