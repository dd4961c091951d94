/* SPDX-License-Identifier: MIT */
/* What would fit, for other programs than ours: the engine's own answer where there is one to ask,
 * and what follows from rules where that says nothing. */
#include <inttypes.h>
#include <memtally/advise.h>
#include <memtally/predict.h>
#include <memtally/tally.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "drive/engines.h"
#include "drive/open_stage.h"
#include "model.h"

#define GOALS           4
#define SUGGESTIONS_MAX (MT_ADVISE_CHANGES_MAX + GOALS)
#define FLAGS_BYTES     512

struct mt_suggestions {
    struct mt_estimate *estimate;
    size_t n;
    struct mt_suggestion items[SUGGESTIONS_MAX];
    struct mt_advise_change changes[MT_ADVISE_CHANGES_MAX]; /* whose texts items borrow */
    char flags[GOALS][2][FLAGS_BYTES];                      /* now, and as they were */
    char note[sizeof((struct mt_advise_answer *)NULL)->note];
};

/* A flag with its values within a command line: "-c 8192". */
struct flag {
    const char *text;
    size_t name_length;
    size_t length;
};

static int starts_flag(const char *word)
{
    return word[0] == '-' && (word[1] < '0' || word[1] > '9');
}

/* Steps to the next flag; 0 at the end. */
static int next_flag(const char **at, struct flag *flag)
{
    const char *text = *at + strspn(*at, " ");
    if (!*text)
        return 0;
    flag->text = text;
    flag->name_length = strcspn(text, " ");
    const char *end = text + flag->name_length;
    while (*end && !starts_flag(end + strspn(end, " ")) && end[strspn(end, " ")]) {
        end += strspn(end, " ");
        end += strcspn(end, " ");
    }
    flag->length = (size_t)(end - text);
    *at = end;
    return 1;
}

static int find_flag(const char *line, const struct flag *wanted, struct flag *found)
{
    while (next_flag(&line, found))
        if (found->name_length == wanted->name_length &&
            !strncmp(found->text, wanted->text, wanted->name_length))
            return 1;
    return 0;
}

static void append(char text[FLAGS_BYTES], const struct flag *flag)
{
    size_t length = strlen(text);
    snprintf(text + length, FLAGS_BYTES - length, "%s%.*s", length ? " " : "", (int)flag->length,
             flag->text);
}

/* The flags of `now` that `before` has not, and how it has them. */
static void compare_flags(const char *before, const char *now, char flags[2][FLAGS_BYTES])
{
    struct flag flag, old;
    flags[0][0] = flags[1][0] = '\0';
    while (next_flag(&now, &flag)) {
        int had = find_flag(before, &flag, &old);
        if (had && old.length == flag.length && !strncmp(old.text, flag.text, flag.length))
            continue;
        append(flags[0], &flag);
        if (had)
            append(flags[1], &old);
    }
}

/* The device with the least room left, or the host where there is none. */
static const struct mt_tally_place *fullest(const struct mt_estimate *estimate)
{
    const struct mt_tally *tally = &estimate->tally;
    const struct mt_tally_place *found = &tally->places[0];
    for (size_t i = 1; i < tally->n_places; i++)
        if (i == 1 ||
            (double)tally->places[i].total_allocated_bytes * (double)found->capacity_bytes >
                (double)found->total_allocated_bytes * (double)tally->places[i].capacity_bytes)
            found = &tally->places[i];
    return found;
}

/* The number that a run asks of a goal's setting; the smallest device is always worth naming. */
static uint64_t asked_of(enum mt_goal goal, const struct mt_predict_settings *settings)
{
    switch (goal) {
    case MT_GOAL_CONTEXT:
        return settings->context_tokens;
    case MT_GOAL_SEQUENCES:
        return settings->sequences;
    case MT_GOAL_BATCH:
        return settings->batched_tokens ? settings->batched_tokens : settings->ubatch;
    case MT_GOAL_SMALLEST_DEVICE:
        break;
    }
    return UINT64_MAX;
}

/* An engine without a command line has settings all the same: "batch_size=4". */
static void spell_setting(const struct mt_predict_settings *asked, enum mt_goal goal,
                          uint64_t answer, char flags[2][FLAGS_BYTES])
{
    static const char *const settings[GOALS] = {[MT_GOAL_CONTEXT] = "context",
                                                [MT_GOAL_SEQUENCES] = "sequences",
                                                [MT_GOAL_BATCH] = "batched_tokens"};
    char word[MT_DRIVE_ENGINE_TEXT];
    if (*flags[0] || !settings[goal])
        return;
    const char *spelt = mt_drive_engine_word(asked->engine, "flags", settings[goal], word);
    const char *name = *spelt ? spelt : settings[goal];
    snprintf(flags[0], FLAGS_BYTES, "%s=%" PRIu64, name, answer);
    snprintf(flags[1], FLAGS_BYTES, "%s=%" PRIu64, name, asked_of(goal, asked));
}

/* What the engine cannot be asked this way is left out. `asked` is the run by rules. */
static int add_goal(const struct mt_model *model, const struct mt_predict_settings *settings,
                    const struct mt_estimate *asked, enum mt_goal goal, const char *costs,
                    struct mt_suggestions *made)
{
    struct mt_estimate *found = NULL;
    uint64_t answer = 0;
    int result = mt_estimate_solve(model, settings, goal, &answer, &found, NULL);
    if (result == MT_ENOMEM)
        return result;
    if (result < 0 || !answer)
        return 0;
    if (answer < asked_of(goal, &asked->settings)) {
        int is_device = goal == MT_GOAL_SMALLEST_DEVICE;
        const struct mt_tally_place *place = fullest(found);
        compare_flags(asked->flags ? asked->flags : "", found->flags ? found->flags : "",
                      made->flags[goal]);
        spell_setting(&asked->settings, goal, answer, made->flags[goal]);
        made->items[made->n++] = (struct mt_suggestion){.kind = MT_TERM_RULE,
                                                        .flags = made->flags[goal][0],
                                                        .instead_of = made->flags[goal][1],
                                                        .costs = costs,
                                                        .device_bytes = is_device ? answer : 0,
                                                        .held_bytes = place->total_allocated_bytes,
                                                        .capacity_bytes = place->capacity_bytes};
    }
    mt_estimate_destroy(found);
    return 0;
}

static int add_goals(const struct mt_model *model, const struct mt_predict_settings *settings,
                     const struct mt_estimate *asked, struct mt_suggestions *made)
{
    static const struct {
        enum mt_goal goal;
        const char *costs;
    } goals[GOALS] = {{MT_GOAL_BATCH, "prompts are read more slowly"},
                      {MT_GOAL_SEQUENCES, "fewer requests at a time"},
                      {MT_GOAL_CONTEXT, "shorter conversations"},
                      {MT_GOAL_SMALLEST_DEVICE, "another device"}};
    for (size_t i = 0; i < GOALS; i++) {
        if (goals[i].goal == MT_GOAL_SMALLEST_DEVICE && !settings->n_devices)
            continue;
        int result = add_goal(model, settings, asked, goals[i].goal, goals[i].costs, made);
        if (result < 0)
            return result;
    }
    if (!made->n && !*made->note)
        snprintf(made->note, sizeof made->note,
                 "By rules no context, number of sequences or batch fits, and no device of any "
                 "size does.");
    return 0;
}

/* What follows from rules, where the run does not fit. */
static int add_rules(const struct mt_model *model, const struct mt_predict_settings *settings,
                     struct mt_suggestions *made)
{
    struct mt_estimate *asked = NULL;
    enum mt_verdict verdict = made->estimate->verdict;
    if (made->n || verdict == MT_VERDICT_FITS || verdict == MT_VERDICT_UNKNOWN)
        return 0;
    int result = mt_estimate_create(model, settings, &asked, NULL);
    if (result == 0)
        result = add_goals(model, settings, asked, made);
    mt_estimate_destroy(asked);
    return result == MT_ENOMEM ? result : 0;
}

static void take_changes(const struct mt_advise_answer *answer, struct mt_suggestions *made)
{
    for (size_t i = 0; i < answer->changes.n; i++) {
        struct mt_advise_change *change = &made->changes[i];
        *change = answer->changes.items[i];
        made->items[made->n++] = (struct mt_suggestion){
            .kind = MT_TERM_REHEARSED,
            .flags = change->flags,
            .instead_of = change->instead_of,
            .costs = change->costs,
            .held_bytes = change->held_bytes ? change->held_bytes : MT_UNKNOWN,
            .capacity_bytes = change->capacity_bytes ? change->capacity_bytes : MT_UNKNOWN};
    }
    snprintf(made->note, sizeof made->note, "%s", answer->note);
}

static int rehearse(const struct mt_stage *stage, const struct mt_predict_settings *settings,
                    struct mt_suggestions *made, struct mt_error *error)
{
    int result = mt_drive_check_devices(settings->n_devices, error);
    struct mt_advise_model_report *report = calloc(1, sizeof *report);
    if (!report)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    report->with_changes = 1;
    if (result == 0)
        result = mt_advise_model(&stage->drive, settings, 0, report, &made->estimate, error);
    if (result == 0)
        take_changes(&report->answer, made);
    mt_advise_model_report_finish(report);
    free(report);
    return result;
}

int mt_suggest(const struct mt_model *model, struct mt_stage *stage,
               const struct mt_predict_settings *settings, struct mt_suggestions **suggestions,
               struct mt_error *error)
{
    struct mt_predict_settings asked = *settings;
    struct mt_suggestions *made = calloc(1, sizeof *made);
    if (!made)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    if (stage) {
        asked.engine = stage->drive.engine_name;
        asked.program = stage->drive.program;
    }
    int result = stage ? rehearse(stage, &asked, made, error)
                       : mt_estimate_create(model, &asked, &made->estimate, error);
    if (result == 0 && add_rules(model, &asked, made) < 0)
        result = mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    if (result < 0) {
        mt_suggestions_destroy(made);
        return result;
    }
    *suggestions = made;
    return 0;
}

const struct mt_estimate *mt_suggestions_estimate(const struct mt_suggestions *suggestions)
{
    return suggestions->estimate;
}

const struct mt_suggestion *mt_suggestions_at(const struct mt_suggestions *suggestions,
                                              size_t index)
{
    return index < suggestions->n ? &suggestions->items[index] : NULL;
}

const char *mt_suggestions_note(const struct mt_suggestions *suggestions)
{
    return suggestions->note;
}

void mt_suggestions_destroy(struct mt_suggestions *suggestions)
{
    if (suggestions)
        mt_estimate_destroy(suggestions->estimate);
    free(suggestions);
}
