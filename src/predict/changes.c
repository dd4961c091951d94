/* SPDX-License-Identifier: MIT */
/* Two versions of an engine, rule by rule. A table is made that has some keys as the later version
 * has them and the others as the earlier one: one estimate by it for each step says what the step
 * did. */
#include <stdlib.h>
#include <string.h>

#include <memtally/units.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/out_of_memory.h"
#include "base/strbuf.h"
#include "engine/engine.h"
#include "sheet_internal.h"

enum { KEY_BYTES = 96, CHANGES_MAX = 128 };

/* Keys that changed together: those of one subject, at one version. `before` is the table at the
 * version before, `after` at this one. */
struct step {
    char rule[KEY_BYTES];
    struct mt_engine before;
    struct mt_engine after;
    struct mt_strbuf keys;
    const char *source;
    size_t source_length;
};

/* A comparison with what it owns. */
struct box {
    struct mt_estimate_changes changes; /* first: the caller's pointer */
    struct mt_arena arena;
    struct mt_engine from;
    struct mt_engine to;
    struct step *steps; /* of the arena */
    size_t n_steps;
    struct mt_estimate *before;
    struct mt_estimate *after;
};

/* A key's value at two versions. */
struct pair {
    struct mt_engine_value before;
    struct mt_engine_value after;
};

static int differs(const struct mt_engine *before, const struct mt_engine *after, const char *key,
                   struct pair *pair)
{
    *pair = (struct pair){.before = {.length = 0}};
    mt_engine_value(before, key, &pair->before);
    mt_engine_value(after, key, &pair->after);
    return pair->before.length != pair->after.length ||
           (pair->before.length &&
            memcmp(pair->before.text, pair->after.text, pair->after.length) != 0);
}

/* "activations" of "activations.logits". */
static void subject_of(const char *key, char rule[KEY_BYTES])
{
    size_t length = strcspn(key, ".");
    memcpy(rule, key, length);
    rule[length] = 0;
}

/* The step of a key, of those from `first` on; a new one where there is none yet, NULL where there
 * are too many. */
static struct step *step_of(struct box *box, size_t first, const char *key)
{
    char rule[KEY_BYTES];
    subject_of(key, rule);
    for (size_t i = first; i < box->n_steps; i++)
        if (!strcmp(box->steps[i].rule, rule))
            return &box->steps[i];
    if (box->n_steps == CHANGES_MAX)
        return NULL;
    struct step *step = &box->steps[box->n_steps++];
    *step = (struct step){.source = NULL};
    memcpy(step->rule, rule, sizeof rule);
    mt_strbuf_init(&step->keys);
    return step;
}

static void note_key(struct step *step, const char *key, const struct pair *pair)
{
    int was = pair->before.length != 0, is = pair->after.length != 0;
    mt_strbuf_printf(&step->keys, "%s%s %.*s -> %.*s", step->keys.length ? ", " : "", key,
                     was ? (int)pair->before.length : 4, was ? pair->before.text : "none",
                     is ? (int)pair->after.length : 4, is ? pair->after.text : "none");
    if (!step->source_length) {
        step->source = pair->after.source;
        step->source_length = pair->after.source_length;
    }
}

/* Finds the keys that differ at one version after another. */
static int find_steps(struct box *box, struct mt_error *error)
{
    struct mt_engine before = box->from, after;
    struct pair pair;
    char key[KEY_BYTES];
    for (; mt_engine_next_version(&before, &box->to.version, &after); before = after) {
        size_t first = box->n_steps;
        for (size_t at = 0; mt_engine_next_key(&before, &at, key, sizeof key);) {
            struct step *step = NULL;
            if (!differs(&before, &after, key, &pair))
                continue;
            step = step_of(box, first, key);
            if (!step)
                return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET,
                               "more than %d rules differ between %s and %s: choose closer "
                               "versions",
                               CHANGES_MAX, box->from.version_text, box->to.version_text);
            step->before = before;
            step->after = after;
            note_key(step, key, &pair);
            if (mt_strbuf_failed(&step->keys))
                return mt_out_of_memory(error);
        }
    }
    return 0;
}

/* Whether a key's step is among the `n` that are done, the last of which is of this version. */
static int is_done(const struct box *box, size_t n, const char *key)
{
    char rule[KEY_BYTES];
    subject_of(key, rule);
    for (size_t i = n;
         i-- && !mt_engine_compare(&box->steps[i].after.version, &box->steps[n - 1].after.version);)
        if (!strcmp(box->steps[i].rule, rule))
            return 1;
    return 0;
}

/* The table after the first `n` steps. */
static void write_table(const struct box *box, size_t n, struct mt_strbuf *text)
{
    char key[KEY_BYTES];
    char title[MT_ENGINE_TITLE_BYTES];
    struct pair pair;
    const struct mt_engine *before = n ? &box->steps[n - 1].before : &box->from;
    const struct mt_engine *after = n ? &box->steps[n - 1].after : &box->from;
    mt_strbuf_printf(text, "engine %s\ntitle %s\nnewest %s\n", box->from.name,
                     mt_engine_title(&box->from, title), box->from.newest_text);
    for (size_t at = 0; mt_engine_next_key(&box->from, &at, key, sizeof key);) {
        int is_later = differs(before, after, key, &pair) && is_done(box, n, key);
        const struct mt_engine_value *value = is_later ? &pair.after : &pair.before;
        if (value->length)
            mt_strbuf_printf(text, "%s 0 %.*s ; %.*s\n", key, (int)value->length, value->text,
                             (int)value->source_length, value->source ? value->source : "");
    }
}

static int estimate_step(const struct box *box, const struct mt_model *model,
                         const struct mt_predict_settings *settings, size_t n,
                         struct mt_estimate **estimate, struct mt_error *error)
{
    struct mt_strbuf text;
    struct mt_engine engine;
    mt_strbuf_init(&text);
    write_table(box, n, &text);
    int result = mt_strbuf_failed(&text) ? mt_out_of_memory(error)
                                         : mt_engine_parse(mt_strbuf_text(&text), text.length,
                                                           box->from.version_text, &engine, error);
    if (result == 0)
        result = mt_estimate_once(&engine, model, settings, NULL, estimate, error);
    mt_strbuf_finish(&text);
    return result;
}

/* What a place holds; of an engine that takes a budget beside its cache, which takes what is left.
 */
static int64_t taken(const struct mt_estimate *estimate, size_t place)
{
    const struct mt_tally_place *at = &estimate->tally.places[place];
    const struct mt_tally_row *cache = mt_tally_row_of(at, MT_CATEGORY_KV_CACHE);
    uint64_t bytes = at->total_allocated_bytes == MT_UNKNOWN ? 0 : at->total_allocated_bytes;
    if (estimate->pool.present && cache)
        bytes -= cache->allocated_bytes;
    return (int64_t)bytes;
}

static int note_change(struct box *box, const struct mt_estimate *one,
                       const struct mt_estimate *other, struct mt_estimate_change *change)
{
    size_t n = one->tally.n_places;
    int64_t *bytes = mt_arena_array(&box->arena, n, sizeof *bytes);
    if (!bytes)
        return MT_ENOMEM;
    for (size_t i = 0; i < n; i++)
        bytes[i] = taken(other, i) - taken(one, i);
    change->place_bytes = bytes;
    change->pool_tokens = (int64_t)other->pool.pool_tokens - (int64_t)one->pool.pool_tokens;
    return 0;
}

static int describe_step(struct box *box, const struct step *step,
                         struct mt_estimate_change *change)
{
    change->rule = step->rule;
    change->since = step->after.version_text;
    change->keys = mt_strbuf_text(&step->keys);
    if (!step->source_length)
        return 0;
    change->source = mt_arena_copy(&box->arena, step->source, step->source_length);
    return change->source ? 0 : MT_ENOMEM;
}

/* Does the steps one after another; `last` is the estimate after all of them. */
static int walk(struct box *box, const struct mt_model *model,
                const struct mt_predict_settings *settings, struct mt_estimate_change *changes,
                struct mt_error *error)
{
    struct mt_estimate *one = NULL;
    struct mt_estimate *other = NULL;
    int result = estimate_step(box, model, settings, 0, &one, error);
    for (size_t i = 0; result == 0 && i < box->n_steps; i++) {
        result = estimate_step(box, model, settings, i + 1, &other, error);
        if (result < 0)
            break;
        if (describe_step(box, &box->steps[i], &changes[i]) < 0 ||
            note_change(box, one, other, &changes[i]) < 0)
            result = mt_out_of_memory(error);
        mt_estimate_destroy(one);
        one = other;
    }
    if (result == 0 && note_change(box, one, box->after, &changes[box->n_steps]) < 0)
        result = mt_out_of_memory(error);
    mt_estimate_destroy(one);
    return result;
}

/* Whether the version itself did something that no key tells. */
static int did_something(const struct mt_estimate_change *change, size_t n_places)
{
    int does = change->pool_tokens != 0;
    for (size_t i = 0; i < n_places; i++)
        does |= change->place_bytes[i] != 0;
    return does;
}

static int compare(struct box *box, const struct mt_model *model,
                   const struct mt_predict_settings *settings, struct mt_error *error)
{
    int result = mt_estimate_once(&box->from, model, settings, NULL, &box->before, error);
    if (result == 0)
        result = mt_estimate_once(&box->to, model, settings, NULL, &box->after, error);
    if (result == 0)
        result = find_steps(box, error);
    if (result < 0)
        return result;
    struct mt_estimate_change *changes =
        mt_arena_array(&box->arena, box->n_steps + 1, sizeof *changes);
    if (!changes)
        return mt_out_of_memory(error);
    memset(changes, 0, (box->n_steps + 1) * sizeof *changes);
    result = walk(box, model, settings, changes, error);
    if (result < 0)
        return result;
    struct mt_estimate_change *last = &changes[box->n_steps];
    last->rule = "version";
    last->since = box->to.version_text;
    last->keys = "";
    box->changes = (struct mt_estimate_changes){
        .engine = box->from.name,
        .from = box->from.version_text,
        .to = box->to.version_text,
        .before = box->before,
        .after = box->after,
        .n = box->n_steps + (size_t)did_something(last, box->before->tally.n_places),
        .changes = changes};
    return 0;
}

/* Divides "vllm@0.16..0.19". */
static int find_both(struct box *box, const char *versions, struct mt_error *error)
{
    const char *at = strchr(versions, '@');
    const char *dots = at ? strstr(at, "..") : NULL;
    if (!dots || dots == at + 1 || !dots[2])
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%.60s names no two versions: write an engine and both, as "
                       "vllm@0.16..0.19",
                       versions);
    const char *from = mt_arena_copy(&box->arena, versions, (size_t)(dots - versions));
    const char *to =
        mt_arena_printf(&box->arena, "%.*s@%s", (int)(at - versions), versions, dots + 2);
    if (!from || !to)
        return mt_out_of_memory(error);
    int result = mt_engine_find(from, &box->from, error);
    if (result == 0)
        result = mt_engine_find(to, &box->to, error);
    if (result == 0 && mt_engine_compare(&box->from.version, &box->to.version) > 0)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "%s came after %s: name the older version first", box->from.version_text,
                       box->to.version_text);
    return result;
}

int mt_estimate_changes_create(const struct mt_model *model,
                               const struct mt_predict_settings *settings, const char *versions,
                               struct mt_estimate_changes **changes, struct mt_error *error)
{
    struct box *box = calloc(1, sizeof *box);
    struct mt_predict_settings plain = *settings;
    if (!box)
        return mt_out_of_memory(error);
    plain.engine = NULL;
    box->steps = mt_arena_array(&box->arena, CHANGES_MAX, sizeof *box->steps);
    if (!box->steps) {
        free(box);
        return mt_out_of_memory(error);
    }
    int result = find_both(box, versions, error);
    if (result == 0)
        result = compare(box, model, &plain, error);
    if (result < 0)
        mt_estimate_changes_destroy(&box->changes);
    else
        *changes = &box->changes;
    return result;
}

void mt_estimate_changes_destroy(struct mt_estimate_changes *changes)
{
    struct box *box = (struct box *)changes;
    if (!box)
        return;
    for (size_t i = 0; i < box->n_steps; i++)
        mt_strbuf_finish(&box->steps[i].keys);
    mt_estimate_destroy(box->before);
    mt_estimate_destroy(box->after);
    mt_arena_finish(&box->arena);
    free(box);
}
