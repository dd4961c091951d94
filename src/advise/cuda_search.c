/* SPDX-License-Identifier: MIT */
/* Turning an engine's settings until it fits: one at a time, then all that may help together.
 *
 * We take the length of a request for which the engine said that its cache has room, and do not
 * search then. An engine that sets nothing aside takes memory that grows with a number at least as
 * fast as a straight line from nothing to the whole: the line's answer fits, and a line through
 * what was held there comes closer. */
#include "cuda_search.h"

#include <memtally/error_code.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_changes.h"
#include "cuda_settings.h"

#define MOST_SHARE    0.95
#define LEAST_SHARE   0.1
#define LEAST_BATCHED 512
#define LEAST_CONTEXT 16
#define CONTEXT_STEP  64
#define KEPT_TOGETHER 2 /* attempts, for all changes together */
#define LINE_ATTEMPTS 3
#define LONGER        1.25 /* times the context, that are worth more changes */
#define WORTH         8    /* of a number, the part that one more attempt must bring */
#define USABLE        0.98 /* of a device: its allocator leaves holes */

/* A search under way. */
struct seeker {
    const struct mt_advise_cuda_search *search;
    struct mt_advise_turning table[MT_ADVISE_TABLE_MAX]; /* the engine's changes */
    size_t n_table;
    struct mt_advise_changes *changes;
    const struct mt_drive_command *base; /* what settings are turned of */
    struct mt_advise_shortage shortage;  /* of the base */
    char base_costs[MT_ADVISE_CHANGE_BYTES];
    struct mt_drive_command divided; /* over all devices, where that is the base */
    size_t n_tried;
    int stopped;
    int failed;                     /* no memory */
    struct mt_drive_command answer; /* failed for a cache that is too small alone */
    uint64_t told_tokens;           /* that it has room for; 0: there is none */
    char told_costs[MT_ADVISE_CHANGE_BYTES];
};

static int helps(const struct mt_advise_turning *change, const struct mt_advise_shortage *shortage)
{
    int lacks_cache =
        shortage->kind == MT_ADVISE_SHORT_NO_CACHE || shortage->kind == MT_ADVISE_SHORT_CACHE;
    return (change->counts_graphs && shortage->graph_bytes && lacks_cache) ||
           (change->against & 1u << shortage->kind) != 0;
}

/* A setting's number: as given, else as the engine said it, else 0. */
static uint64_t number_of(const struct seeker *seeker, const struct mt_drive_command *command,
                          enum mt_advise_setting setting)
{
    char value[MT_ADVISE_SETTING_BYTES];
    uint64_t otherwise = seeker->search->now[setting];
    return mt_advise_setting_get(command, setting, value) ? mt_drive_flag_number(value, otherwise)
                                                          : otherwise;
}

static int put_number(char value[MT_ADVISE_SETTING_BYTES], uint64_t number)
{
    snprintf(value, MT_ADVISE_SETTING_BYTES, "%llu", (unsigned long long)number);
    return 1;
}

/* Two decimals, rounded down. */
static int put_share(char value[MT_ADVISE_SETTING_BYTES], double share)
{
    int hundredths = (int)(share * 100 + 1e-6);
    snprintf(value, MT_ADVISE_SETTING_BYTES, "%d.%02d", hundredths / 100, hundredths % 100);
    return share >= LEAST_SHARE;
}

/* All devices, in a number that heads divide by: a power of two. */
static int take_devices(const struct seeker *seeker, const struct mt_drive_command *command,
                        char value[MT_ADVISE_SETTING_BYTES])
{
    uint64_t now = number_of(seeker, command, MT_ADVISE_SET_TENSOR_PARALLEL);
    uint64_t stages = number_of(seeker, command, MT_ADVISE_SET_PIPELINE_PARALLEL);
    uint64_t most = seeker->search->n_devices / (stages ? stages : 1);
    uint64_t number = 1;
    while (number * 2 <= most)
        number *= 2;
    return number > (now ? now : 1) && put_number(value, number);
}

static int take_share(const struct seeker *seeker, enum mt_advise_turn turn,
                      const struct mt_advise_shortage *shortage,
                      char value[MT_ADVISE_SETTING_BYTES])
{
    const struct mt_advise_cuda_search *search = seeker->search;
    double missing =
        search->device_bytes ? (double)shortage->missing_bytes / (double)search->device_bytes : 0;
    if (turn == MT_ADVISE_TURN_SHARE_MOST)
        return search->share > 0 && search->share < MOST_SHARE - 0.005 &&
               put_share(value, MOST_SHARE);
    if (turn == MT_ADVISE_TURN_SHARE_FREE)
        return shortage->free_share > 0 && put_share(value, shortage->free_share);
    return search->share > 0 && put_share(value, search->share - missing - 0.02);
}

static int take_quarter(const struct seeker *seeker, const struct mt_advise_turning *change,
                        const struct mt_drive_command *command, char value[MT_ADVISE_SETTING_BYTES])
{
    uint64_t now = number_of(seeker, command, change->setting);
    uint64_t least = change->setting == MT_ADVISE_SET_BATCHED_TOKENS ? LEAST_BATCHED : 1;
    uint64_t number = now / 4 > least ? now / 4 : least;
    return number < now && put_number(value, number);
}

/* The number of bytes that the engine said shows weights of four bytes. */
static int take_type(const struct seeker *seeker, const struct mt_advise_turning *change,
                     const struct mt_drive_command *command, char value[MT_ADVISE_SETTING_BYTES])
{
    char given[MT_ADVISE_SETTING_BYTES] = "";
    mt_advise_setting_get(command, change->setting, given);
    int is_weights = change->setting == MT_ADVISE_SET_WEIGHT_TYPE;
    int is_narrow = is_weights ? seeker->search->now[change->setting] != 4
                               : strstr(given, "8") || strstr(given, "fp4");
    snprintf(value, MT_ADVISE_SETTING_BYTES, "%s", change->narrow);
    return !is_narrow && *value;
}

/* The value to turn a setting to; 0 where it cannot be turned, or not by this. */
static int value_for(const struct seeker *seeker, const struct mt_advise_turning *change,
                     const struct mt_drive_command *command,
                     const struct mt_advise_shortage *shortage, char value[MT_ADVISE_SETTING_BYTES])
{
    char given[MT_ADVISE_SETTING_BYTES];
    switch (change->turn) {
    case MT_ADVISE_TURN_DEVICES:
        return take_devices(seeker, command, value);
    case MT_ADVISE_TURN_SHARE_MOST:
    case MT_ADVISE_TURN_SHARE_FREE:
    case MT_ADVISE_TURN_SHARE_LESS:
        return take_share(seeker, change->turn, shortage, value);
    case MT_ADVISE_TURN_ON:
        return put_number(value, 1) && !mt_advise_setting_get(command, change->setting, given);
    case MT_ADVISE_TURN_QUARTER:
        return take_quarter(seeker, change, command, value);
    case MT_ADVISE_TURN_TYPE:
        return take_type(seeker, change, command, value);
    case MT_ADVISE_TURN_TOLD:
        return shortage->fits_tokens > 0 && put_number(value, shortage->fits_tokens);
    case MT_ADVISE_TURN_LINE:
        break;
    }
    return 0;
}

/* What a change can bring at most, where the engine's words tell; else all. */
static uint64_t gain_of(const struct seeker *seeker, const struct mt_advise_turning *change)
{
    const struct mt_advise_cuda_search *search = seeker->search;
    const struct mt_advise_shortage *shortage = &seeker->shortage;
    uint64_t gain = 0;
    if (change->turn == MT_ADVISE_TURN_SHARE_MOST)
        return (uint64_t)((MOST_SHARE - search->share) * (double)search->device_bytes);
    if (change->turn == MT_ADVISE_TURN_QUARTER)
        gain = shortage->activation_bytes - shortage->activation_bytes / 4;
    else if (change->turn == MT_ADVISE_TURN_TYPE && change->setting == MT_ADVISE_SET_KV_TYPE)
        gain = shortage->cache_bytes / 2;
    else if (change->turn == MT_ADVISE_TURN_ON && change->setting == MT_ADVISE_SET_EAGER)
        gain = shortage->graph_bytes;
    return gain ? gain : UINT64_MAX;
}

/* Whether we know how much is missing in all. */
static int is_counted(const struct mt_advise_shortage *shortage)
{
    return shortage->kind == MT_ADVISE_SHORT_CACHE || shortage->kind == MT_ADVISE_SHORT_NO_CACHE;
}

/* Whether a change by itself may be enough: what was refused is less than what is missing in all.
 */
static int may_be_enough(const struct seeker *seeker, const struct mt_advise_turning *change)
{
    const struct mt_advise_shortage *shortage = &seeker->shortage;
    if (seeker->search->fixed_bytes > seeker->search->device_bytes &&
        !(change->against & 1u << MT_ADVISE_SHORT_WEIGHTS))
        return 0;
    return !is_counted(shortage) || gain_of(seeker, change) >= shortage->missing_bytes;
}

static void append(char text[MT_ADVISE_CHANGE_BYTES], const char *separator, const char *more)
{
    size_t length = strlen(text);
    if (*more)
        snprintf(text + length, MT_ADVISE_CHANGE_BYTES - length, "%s%s", length ? separator : "",
                 more);
}

/* Several settings may cost the same; the text says it once. */
static void append_cost(char costs[MT_ADVISE_CHANGE_BYTES], const char *cost)
{
    if (!strstr(costs, cost))
        append(costs, ", ", cost);
}

/* The settings in which a command line differs from the one that did not fit. */
static void describe(const struct seeker *seeker, const struct mt_drive_command *after,
                     struct mt_advise_change *change)
{
    const struct mt_drive_command *first = seeker->search->command;
    for (enum mt_advise_setting setting = 0; setting < MT_ADVISE_SETTINGS; setting++) {
        char is[MT_ADVISE_SETTING_BYTES];
        char was[MT_ADVISE_SETTING_BYTES];
        char flag[64];
        char option[64];
        int was_given = mt_advise_setting_get(first, setting, was);
        if (!mt_advise_setting_get(after, setting, is) || (was_given && !strcmp(is, was)))
            continue;
        mt_advise_setting_spell(first, setting, is, flag, option);
        append(change->flags, " ", flag);
        append(change->options, " ", option);
        if (!was_given)
            continue;
        mt_advise_setting_spell(first, setting, was, flag, option);
        append(change->instead_of, " ", flag);
    }
}

static void add_change(struct seeker *seeker, const struct mt_drive_command *command,
                       const char *costs, const struct mt_advise_cuda_fit *fit)
{
    struct mt_advise_changes *changes = seeker->changes;
    if (changes->n == MT_ADVISE_CHANGES_MAX)
        return;
    struct mt_advise_change *change = &changes->items[changes->n++];
    *change = (struct mt_advise_change){.held_bytes = fit->held_bytes,
                                        .capacity_bytes = fit->capacity_bytes};
    describe(seeker, command, change);
    snprintf(change->costs, sizeof change->costs, "%s", costs);
}

/* Tries a command line; 0 where it does not fit or the search is over. One that lacks room in its
 * cache alone is remembered. */
static int fits(struct seeker *seeker, const struct mt_drive_command *command, const char *costs,
                struct mt_advise_cuda_fit *fit)
{
    const struct mt_advise_cuda_search *search = seeker->search;
    struct mt_advise_change what = {.capacity_bytes = 0};
    *fit = (struct mt_advise_cuda_fit){0};
    seeker->failed |= command->failed;
    seeker->stopped |= seeker->n_tried >= search->attempts_max;
    if (seeker->failed || seeker->stopped)
        return 0;
    describe(seeker, command, &what);
    seeker->stopped = search->attempt(search->argument, command->words, what.flags, fit) != 0;
    if (seeker->stopped)
        return 0;
    seeker->n_tried++;
    seeker->changes->n_tried++;
    if (fit->fits)
        return 1;
    snprintf(seeker->changes->least, sizeof seeker->changes->least, "%s", what.flags);
    if (fit->shortage.kind == MT_ADVISE_SHORT_CACHE &&
        fit->shortage.fits_tokens > seeker->told_tokens) {
        mt_drive_command_finish(&seeker->answer);
        mt_drive_command_copy(command->words, &seeker->answer);
        seeker->told_tokens = fit->shortage.fits_tokens;
        snprintf(seeker->told_costs, sizeof seeker->told_costs, "%s", costs);
    }
    return 0;
}

/* A setting's number, and what was held there. */
struct point {
    uint64_t number;
    double held;
};

/* A number that is no odd one. */
static uint64_t rounded(const struct mt_advise_turning *change, uint64_t number)
{
    if (change->setting == MT_ADVISE_SET_CONTEXT && number > CONTEXT_STEP)
        number -= number % CONTEXT_STEP;
    return number;
}

/* What is held at a number, by the parabola from nothing through two points; `fixed` is always
 * held. */
static double held_at(double fixed, struct point low, struct point high, uint64_t number)
{
    double at_low = low.number ? (low.held - fixed) / (double)low.number : 0;
    double at_high = (high.held - fixed) / (double)high.number;
    double curve = low.number ? (at_high - at_low) / (double)(high.number - low.number) : 0;
    double slope = at_high - curve * (double)high.number;
    return fixed + (slope + curve * (double)number) * (double)number;
}

/* The number at which a device is full, below the one that did not fit. */
static uint64_t where_it_fits(const struct seeker *seeker, const struct mt_advise_turning *change,
                              struct point low, struct point high, uint64_t failed)
{
    const struct mt_advise_cuda_search *search = seeker->search;
    double room = USABLE * (double)search->device_bytes;
    uint64_t number = low.number;
    for (uint64_t too_large = high.number; number + 1 < too_large;) {
        uint64_t middle = number + (too_large - number) / 2;
        if (held_at((double)search->fixed_bytes, low, high, middle) <= room)
            number = middle;
        else
            too_large = middle;
    }
    if (!failed && number + 1 >= high.number)
        number = high.number - (high.number + 9) / 10;
    if (failed && !low.number && number > failed - (failed + 3) / 4)
        number = failed - (failed + 3) / 4;
    else if (failed && number > low.number + (failed - low.number) / 2)
        number = low.number + (failed - low.number) / 2;
    return rounded(change, number);
}

/* The largest number that fits, within a few attempts. */
static void try_line(struct seeker *seeker, const struct mt_advise_turning *change)
{
    const struct mt_advise_cuda_search *search = seeker->search;
    struct point low = {0, 0};
    const struct point high = {number_of(seeker, seeker->base, change->setting),
                               (double)search->whole_bytes};
    uint64_t least = change->setting == MT_ADVISE_SET_CONTEXT ? LEAST_CONTEXT : 1;
    uint64_t failed = 0;
    struct mt_drive_command best = {0};
    struct mt_advise_cuda_fit best_fit = {0};
    if (!high.number || high.held <= (double)search->fixed_bytes)
        return;
    for (int i = 0; i < LINE_ATTEMPTS; i++) {
        struct mt_drive_command command;
        struct mt_advise_cuda_fit fit;
        char value[MT_ADVISE_SETTING_BYTES];
        uint64_t number = where_it_fits(seeker, change, low, high, failed);
        if (number < least || number < low.number + low.number / WORTH + 1)
            break;
        put_number(value, number);
        mt_drive_command_copy(seeker->base->words, &command);
        mt_advise_setting_set(&command, change->setting, value);
        if (fits(seeker, &command, change->costs, &fit)) {
            mt_drive_command_finish(&best);
            best = command;
            best_fit = fit;
            low = (struct point){number, (double)fit.held_bytes};
        } else {
            mt_drive_command_finish(&command);
            failed = number;
        }
    }
    if (best.words)
        add_change(seeker, &best, change->costs, &best_fit);
    mt_drive_command_finish(&best);
}

/* All devices were not enough: what else is turned is turned beside. */
static void divide(struct seeker *seeker, struct mt_drive_command *command, const char *costs,
                   const struct mt_advise_shortage *shortage)
{
    seeker->divided = *command;
    *command = (struct mt_drive_command){0};
    seeker->base = &seeker->divided;
    seeker->shortage = *shortage;
    snprintf(seeker->base_costs, sizeof seeker->base_costs, "%s", costs);
}

static void try_alone(struct seeker *seeker, const struct mt_advise_turning *change)
{
    struct mt_drive_command command;
    struct mt_advise_cuda_fit fit;
    char value[MT_ADVISE_SETTING_BYTES];
    char costs[MT_ADVISE_CHANGE_BYTES];
    int is_surest = change->turn == MT_ADVISE_TURN_TOLD || change->turn == MT_ADVISE_TURN_DEVICES;
    if (!is_surest && seeker->changes->n > 0 && !is_counted(&seeker->shortage))
        return;
    if (!is_surest && seeker->changes->n == 0 &&
        seeker->n_tried + KEPT_TOGETHER >= seeker->search->attempts_max)
        return;
    if (!value_for(seeker, change, seeker->base, &seeker->shortage, value) ||
        !may_be_enough(seeker, change))
        return;
    mt_drive_command_copy(seeker->base->words, &command);
    mt_advise_setting_set(&command, change->setting, value);
    snprintf(costs, sizeof costs, "%s", seeker->base_costs);
    append_cost(costs, change->costs);
    if (fits(seeker, &command, costs, &fit))
        add_change(seeker, &command, costs, &fit);
    else if (change->turn == MT_ADVISE_TURN_DEVICES && !seeker->stopped && !seeker->failed &&
             fit.shortage.kind != MT_ADVISE_NOT_SHORT)
        divide(seeker, &command, costs, &fit.shortage);
    mt_drive_command_finish(&command);
}

/* How the table turns a setting, or NULL. */
static const struct mt_advise_turning *
turning_of(const struct seeker *seeker, enum mt_advise_setting setting, enum mt_advise_turn turn)
{
    for (size_t i = 0; i < seeker->n_table; i++)
        if (seeker->table[i].setting == setting && seeker->table[i].turn == turn)
            return &seeker->table[i];
    return NULL;
}

/* A command line that failed for its cache alone, with the length that the engine said. */
static void try_told(struct seeker *seeker)
{
    struct mt_advise_cuda_fit fit;
    char value[MT_ADVISE_SETTING_BYTES];
    char costs[MT_ADVISE_CHANGE_BYTES];
    const struct mt_advise_turning *shorter =
        turning_of(seeker, MT_ADVISE_SET_CONTEXT, MT_ADVISE_TURN_TOLD);
    if (!seeker->told_tokens || !shorter)
        return;
    put_number(value, seeker->told_tokens);
    seeker->told_tokens = 0;
    struct mt_drive_command command = seeker->answer;
    seeker->answer = (struct mt_drive_command){0};
    mt_advise_setting_set(&command, MT_ADVISE_SET_CONTEXT, value);
    snprintf(costs, sizeof costs, "%s", seeker->told_costs);
    append_cost(costs, shorter->costs);
    if (fits(seeker, &command, costs, &fit))
        add_change(seeker, &command, costs, &fit);
    mt_drive_command_finish(&command);
}

/* All that may help, whatever one of them would bring. */
static void try_together(struct seeker *seeker)
{
    struct mt_drive_command command;
    struct mt_advise_cuda_fit fit;
    char costs[MT_ADVISE_CHANGE_BYTES];
    size_t n = 0;
    snprintf(costs, sizeof costs, "%s", seeker->base_costs);
    mt_drive_command_copy(seeker->base->words, &command);
    for (size_t i = 0; i < seeker->n_table; i++) {
        const struct mt_advise_turning *change = &seeker->table[i];
        char value[MT_ADVISE_SETTING_BYTES];
        if (!helps(change, &seeker->shortage) ||
            !value_for(seeker, change, seeker->base, &seeker->shortage, value))
            continue;
        mt_advise_setting_set(&command, change->setting, value);
        append_cost(costs, change->costs);
        n++;
    }
    if (n > 1 && fits(seeker, &command, costs, &fit))
        add_change(seeker, &command, costs, &fit);
    mt_drive_command_finish(&command);
}

/* A request that must be shorter can be less so with a larger and a narrower cache, whose room
 * follows from what the engine said of this one. */
static void try_longer(struct seeker *seeker)
{
    const struct mt_advise_cuda_search *search = seeker->search;
    const struct mt_advise_shortage *shortage = &seeker->shortage;
    const struct mt_advise_turning *const turned[] = {
        turning_of(seeker, MT_ADVISE_SET_SHARE, MT_ADVISE_TURN_SHARE_MOST),
        turning_of(seeker, MT_ADVISE_SET_KV_TYPE, MT_ADVISE_TURN_TYPE),
        turning_of(seeker, MT_ADVISE_SET_CONTEXT, MT_ADVISE_TURN_TOLD)};
    char costs[MT_ADVISE_CHANGE_BYTES] = "";
    const uint64_t now = shortage->asked_tokens;
    struct mt_drive_command command;
    struct mt_advise_cuda_fit fit;
    char share[MT_ADVISE_SETTING_BYTES];
    char value[MT_ADVISE_SETTING_BYTES];
    double room = (double)(shortage->cache_bytes - shortage->missing_bytes);
    double more = (MOST_SHARE - search->share) * (double)search->device_bytes;
    for (size_t i = 0; i < sizeof turned / sizeof *turned; i++) {
        if (!turned[i])
            return;
        append_cost(costs, turned[i]->costs);
    }
    if (!now || !shortage->cache_bytes || shortage->cache_bytes < shortage->missing_bytes ||
        !take_share(seeker, MT_ADVISE_TURN_SHARE_MOST, shortage, share) ||
        !take_type(seeker, turned[1], seeker->base, value))
        return;
    double tokens = USABLE * (room + more) / ((double)shortage->cache_bytes / (double)now / 2);
    if (tokens < LONGER * (double)shortage->fits_tokens)
        return;
    mt_drive_command_copy(seeker->base->words, &command);
    mt_advise_setting_set(&command, MT_ADVISE_SET_SHARE, share);
    mt_advise_setting_set(&command, MT_ADVISE_SET_KV_TYPE, value);
    if (tokens < (double)now) {
        put_number(value, (uint64_t)tokens - (uint64_t)tokens % CONTEXT_STEP);
        mt_advise_setting_set(&command, MT_ADVISE_SET_CONTEXT, value);
    }
    if (fits(seeker, &command, costs, &fit))
        add_change(seeker, &command, costs, &fit);
    mt_drive_command_finish(&command);
}

int mt_advise_cuda_search(const struct mt_advise_cuda_search *search,
                          struct mt_advise_changes *changes)
{
    struct seeker seeker = {.search = search,
                            .changes = changes,
                            .base = search->command,
                            .shortage = search->shortage};
    const char *engine = mt_advise_cuda_engine_of(search->command);
    size_t enough = changes->n + search->fits_max;
    seeker.n_table = engine ? mt_advise_turnings(engine, seeker.table) : 0;
    for (size_t i = 0; i < seeker.n_table && !seeker.stopped && changes->n < enough; i++) {
        const struct mt_advise_turning *change = &seeker.table[i];
        if (!helps(change, &seeker.shortage))
            continue;
        if (change->turn == MT_ADVISE_TURN_LINE)
            try_line(&seeker, change);
        else
            try_alone(&seeker, change);
    }
    if (changes->n + 1 == enough && seeker.shortage.kind == MT_ADVISE_SHORT_CACHE)
        try_longer(&seeker);
    if (changes->n == 0)
        try_told(&seeker);
    if (changes->n == 0)
        try_together(&seeker);
    if (changes->n == 0)
        try_told(&seeker);
    changes->is_cut_short |= seeker.stopped && changes->n == 0;
    mt_drive_command_finish(&seeker.answer);
    mt_drive_command_finish(&seeker.divided);
    return seeker.failed ? MT_ENOMEM : 0;
}
