/* SPDX-License-Identifier: MIT */
/* Turning llama.cpp's flags down until it fits, cheapest flags first.
 *
 * A knob is a number that memory grows with. The largest one that fits is found by a straight line
 * through what was left at two numbers that fit, held within the two numbers between which it must
 * lie; most knobs take four or five attempts. */
#include "search.h"

#include <memtally/error_code.h>
#include <stdio.h>
#include <string.h>

#define LEAST_CONTEXT    512
#define CONTEXT_STEP     256 /* llama.cpp rounds contexts up to it */
#define DEFAULT_UBATCH   512
#define LEAST_UBATCH_LOG 6
#define DEFAULT_SLOTS    4
#define DEFAULT_CACHE    8192 /* MiB of the prompt cache */
#define ATTEMPTS_EACH    7

/* A search under way. */
struct seeker {
    const struct mt_advise_search *search;
    struct mt_advise_changes *changes;
    const struct mt_drive_command *base; /* what knobs are turned of */
    int stopped;
    int failed; /* no memory */
};

struct knob {
    const char *costs;
    /* The number now and the least one; returns 0 where the knob cannot be turned. */
    int (*range)(const struct seeker *seeker, uint64_t *least, uint64_t *now, uint64_t *step);
    void (*turn)(const struct seeker *seeker, struct mt_drive_command *command, uint64_t number);
};

static const char *value_of(const struct seeker *seeker, enum mt_drive_flag flag)
{
    return mt_drive_flag_value(seeker->base, seeker->search->environment, flag);
}

static int is_one_of(const char *text, const char *const *words)
{
    for (size_t i = 0; text && words[i]; i++)
        if (strcmp(text, words[i]) == 0)
            return 1;
    return 0;
}

static void set_number(struct mt_drive_command *command, enum mt_drive_flag flag, uint64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    mt_drive_flag_set(command, flag, text);
}

/* Whether the knob's flag can be turned: known to the program, and not a list of values. */
static int can_turn(const struct seeker *seeker, enum mt_drive_flag flag)
{
    const char *value = value_of(seeker, flag);
    return mt_drive_flag_is_known(seeker->base, flag) &&
           !(value && *value && strpbrk(value + 1, ",-+*"));
}

/* The prompt cache of a server lies on the host and grows up to this. */
static int cache_range(const struct seeker *seeker, uint64_t *least, uint64_t *now, uint64_t *step)
{
    const char *value = value_of(seeker, MT_DRIVE_CACHE_RAM);
    *now = value && value[0] == '-' ? 1 << 20 : mt_drive_flag_number(value, DEFAULT_CACHE);
    *least = 0;
    *step = *now / 64 ? *now / 64 : 1;
    return seeker->search->is_host_short &&
           mt_drive_flag_is_known(seeker->base, MT_DRIVE_CACHE_RAM);
}

static void turn_cache(const struct seeker *seeker, struct mt_drive_command *command,
                       uint64_t number)
{
    (void)seeker;
    set_number(command, MT_DRIVE_CACHE_RAM, number);
}

static const char *const no_flash[] = {"off", "0", "false", "disabled", NULL};

static int flash_range(const struct seeker *seeker, uint64_t *least, uint64_t *now, uint64_t *step)
{
    *least = 0;
    *now = 1;
    *step = 1;
    return can_turn(seeker, MT_DRIVE_FLASH_ATTENTION) &&
           is_one_of(value_of(seeker, MT_DRIVE_FLASH_ATTENTION), no_flash);
}

static void turn_flash(const struct seeker *seeker, struct mt_drive_command *command,
                       uint64_t number)
{
    (void)seeker;
    (void)number;
    mt_drive_flag_set(command, MT_DRIVE_FLASH_ATTENTION, "on");
}

/* The number is the logarithm. */
static int ubatch_range(const struct seeker *seeker, uint64_t *least, uint64_t *now, uint64_t *step)
{
    uint64_t ubatch = mt_drive_flag_number(value_of(seeker, MT_DRIVE_UBATCH), DEFAULT_UBATCH);
    *least = LEAST_UBATCH_LOG;
    *step = 1;
    for (*now = 0; *now < 63 && (uint64_t)1 << *now < ubatch;)
        ++*now;
    return can_turn(seeker, MT_DRIVE_UBATCH);
}

static void turn_ubatch(const struct seeker *seeker, struct mt_drive_command *command,
                        uint64_t number)
{
    (void)seeker;
    set_number(command, MT_DRIVE_UBATCH, (uint64_t)1 << number);
}

static const char *const wide_types[] = {"f32", "f16", "bf16", NULL};

static int is_wide(const struct seeker *seeker, enum mt_drive_flag flag)
{
    const char *value = value_of(seeker, flag);
    return !value || is_one_of(value, wide_types);
}

static int type_range(const struct seeker *seeker, uint64_t *least, uint64_t *now, uint64_t *step)
{
    *least = 0;
    *now = 1;
    *step = 1;
    return can_turn(seeker, MT_DRIVE_KV_TYPE_K) && can_turn(seeker, MT_DRIVE_KV_TYPE_V) &&
           (is_wide(seeker, MT_DRIVE_KV_TYPE_K) || is_wide(seeker, MT_DRIVE_KV_TYPE_V));
}

/* A quantised cache of values needs flash attention. */
static void turn_type(const struct seeker *seeker, struct mt_drive_command *command,
                      uint64_t number)
{
    (void)number;
    if (is_wide(seeker, MT_DRIVE_KV_TYPE_K))
        mt_drive_flag_set(command, MT_DRIVE_KV_TYPE_K, "q8_0");
    if (is_wide(seeker, MT_DRIVE_KV_TYPE_V))
        mt_drive_flag_set(command, MT_DRIVE_KV_TYPE_V, "q8_0");
    if (is_one_of(value_of(seeker, MT_DRIVE_FLASH_ATTENTION), no_flash))
        mt_drive_flag_set(command, MT_DRIVE_FLASH_ATTENTION, "on");
}

static int slots_range(const struct seeker *seeker, uint64_t *least, uint64_t *now, uint64_t *step)
{
    int is_server = seeker->base->program == MT_DRIVE_SERVER;
    *least = 1;
    *now =
        mt_drive_flag_number(value_of(seeker, MT_DRIVE_SEQUENCES), is_server ? DEFAULT_SLOTS : 1);
    *step = 1;
    return mt_drive_flag_is_known(seeker->base, MT_DRIVE_SEQUENCES);
}

static void turn_slots(const struct seeker *seeker, struct mt_drive_command *command,
                       uint64_t number)
{
    (void)seeker;
    set_number(command, MT_DRIVE_SEQUENCES, number);
}

/* The number is of layers that keep their experts on the device. */
static int experts_range(const struct seeker *seeker, uint64_t *least, uint64_t *now,
                         uint64_t *step)
{
    uint64_t layers = seeker->search->layers;
    uint64_t moved = mt_drive_flag_number(value_of(seeker, MT_DRIVE_CPU_EXPERTS), 0);
    *least = 0;
    *now = moved < layers ? layers - moved : 0;
    *step = 1;
    return seeker->search->experts > 0 && !seeker->search->is_host_short &&
           can_turn(seeker, MT_DRIVE_CPU_EXPERTS) && !value_of(seeker, MT_DRIVE_ALL_CPU_EXPERTS);
}

static void turn_experts(const struct seeker *seeker, struct mt_drive_command *command,
                         uint64_t number)
{
    set_number(command, MT_DRIVE_CPU_EXPERTS, seeker->search->layers - number);
}

static int context_range(const struct seeker *seeker, uint64_t *least, uint64_t *now,
                         uint64_t *step)
{
    uint64_t given = mt_drive_flag_number(value_of(seeker, MT_DRIVE_CONTEXT), 0);
    *least = LEAST_CONTEXT;
    *now = given ? given : seeker->search->context;
    *step = CONTEXT_STEP;
    return can_turn(seeker, MT_DRIVE_CONTEXT);
}

static void turn_context(const struct seeker *seeker, struct mt_drive_command *command,
                         uint64_t number)
{
    (void)seeker;
    set_number(command, MT_DRIVE_CONTEXT, number);
}

/* The output counts as one layer more than the model has. */
static int layers_range(const struct seeker *seeker, uint64_t *least, uint64_t *now, uint64_t *step)
{
    uint64_t all = seeker->search->layers + 1;
    uint64_t given = mt_drive_flag_number(value_of(seeker, MT_DRIVE_GPU_LAYERS), all);
    *least = 0;
    *now = given < all ? given : all;
    *step = 1;
    return seeker->search->layers > 0 && !seeker->search->is_host_short &&
           can_turn(seeker, MT_DRIVE_GPU_LAYERS);
}

static void turn_layers(const struct seeker *seeker, struct mt_drive_command *command,
                        uint64_t number)
{
    (void)seeker;
    set_number(command, MT_DRIVE_GPU_LAYERS, number);
}

/* Cheapest first: what changes no answer, then what changes them little, then what does less, then
 * what is slower with every token. */
enum {
    KNOB_CACHE,
    KNOB_FLASH,
    KNOB_UBATCH,
    KNOB_TYPE,
    KNOB_SLOTS,
    KNOB_CONTEXT,
    KNOB_EXPERTS,
    KNOB_LAYERS
};

static const struct knob knobs[] = {
    [KNOB_CACHE] = {"fewer past prompts are kept, so that more is read again", cache_range,
                    turn_cache},
    [KNOB_FLASH] = {"nothing", flash_range, turn_flash},
    [KNOB_UBATCH] = {"prompts are read more slowly", ubatch_range, turn_ubatch},
    [KNOB_TYPE] = {"a little precision of the cache", type_range, turn_type},
    [KNOB_SLOTS] = {"fewer requests at a time", slots_range, turn_slots},
    [KNOB_CONTEXT] = {"shorter conversations", context_range, turn_context},
    [KNOB_EXPERTS] = {"every token takes longer: experts are computed by the processor",
                      experts_range, turn_experts},
    [KNOB_LAYERS] = {"every token takes longer: layers are computed by the processor", layers_range,
                     turn_layers},
};

#define N_KNOBS (sizeof knobs / sizeof *knobs)

/* Writes the flags among `wanted` (by bit) that differ between two command lines. */
static void describe(const struct seeker *seeker, const struct mt_drive_command *after,
                     struct mt_advise_change *change)
{
    const struct mt_drive_command *first = seeker->search->command;
    size_t n = 0;
    size_t m = 0;
    change->flags[0] = '\0';
    change->instead_of[0] = '\0';
    for (enum mt_drive_flag flag = 0; flag < MT_DRIVE_FLAGS; flag++) {
        const char *is = mt_drive_flag_value(after, seeker->search->environment, flag);
        const char *was = mt_drive_flag_value(first, seeker->search->environment, flag);
        if (!is || (was && strcmp(is, was) == 0))
            continue;
        const char *name = mt_drive_flag_spelling(first, flag);
        if (n < sizeof change->flags)
            n += (size_t)snprintf(change->flags + n, sizeof change->flags - n, "%s%s %s",
                                  n ? " " : "", name, is);
        if (was && m < sizeof change->instead_of)
            m += (size_t)snprintf(change->instead_of + m, sizeof change->instead_of - m, "%s%s %s",
                                  m ? " " : "", name, was);
    }
}

/* The last of what was tried is the least: cheap flags all turned down, and one more. */
static void note_least(struct seeker *seeker, const struct mt_drive_command *tried)
{
    struct mt_advise_change change;
    describe(seeker, tried, &change);
    snprintf(seeker->changes->least, sizeof seeker->changes->least, "%s", change.flags);
}

/* Tries a command line; 0 where it does not fit or the search is over. */
static int fits(struct seeker *seeker, const struct mt_drive_command *command, uint64_t *headroom)
{
    struct mt_advise_fit fit = {0};
    if (command->failed)
        seeker->failed = 1;
    if (seeker->failed || seeker->stopped)
        return 0;
    seeker->stopped = seeker->search->attempt(seeker->search->argument, command->words, &fit) != 0;
    if (seeker->stopped)
        return 0;
    seeker->changes->n_tried++;
    *headroom = fit.headroom_bytes;
    if (!fit.fits)
        note_least(seeker, command);
    return fit.fits;
}

static int fits_at(struct seeker *seeker, const struct knob *knob, uint64_t number,
                   uint64_t *headroom)
{
    struct mt_drive_command command;
    mt_drive_command_copy(seeker->base->words, &command);
    knob->turn(seeker, &command, number);
    int answer = fits(seeker, &command, headroom);
    mt_drive_command_finish(&command);
    return answer;
}

/* A number that fits, and what it left. */
struct point {
    uint64_t number;
    uint64_t headroom_bytes;
};

/* Where the line through two points reaches zero, on a step within (low, high). */
static uint64_t next_number(const struct point *before, const struct point *low, uint64_t high,
                            uint64_t step)
{
    uint64_t middle = low->number + (high - low->number) / 2;
    uint64_t guess = middle;
    if (before && before->headroom_bytes > low->headroom_bytes) {
        double slope = (double)(before->headroom_bytes - low->headroom_bytes) /
                       (double)(low->number - before->number);
        double ahead = (double)low->headroom_bytes / slope;
        guess = ahead < (double)(high - low->number) ? low->number + (uint64_t)ahead : high;
    }
    guess -= guess % step;
    if (guess >= high)
        guess = (high - 1) - (high - 1) % step;
    return guess > low->number ? guess : low->number + step;
}

/* The largest number below `now` that fits, within the attempts that a knob has. Returns 0 where
 * not even the least one does, or where only that is known when the search ends and there are
 * better changes. */
static int largest(struct seeker *seeker, const struct knob *knob, uint64_t *number,
                   uint64_t *headroom)
{
    struct point low = {0};
    struct point before = {0};
    int n_points = 1;
    uint64_t high = 0;
    uint64_t step = 1;
    if (!knob->range(seeker, &low.number, &high, &step) || high <= low.number ||
        !fits_at(seeker, knob, low.number, &low.headroom_bytes))
        return 0;
    for (int i = 1; i < ATTEMPTS_EACH && low.number + step < high && !seeker->stopped; i++) {
        struct point point = {next_number(n_points > 1 ? &before : NULL, &low, high, step), 0};
        if (point.number >= high)
            break;
        if (fits_at(seeker, knob, point.number, &point.headroom_bytes)) {
            before = low;
            low = point;
            n_points = 2;
        } else if (!seeker->stopped) {
            high = point.number;
        }
    }
    *number = low.number;
    *headroom = low.headroom_bytes;
    return n_points > 1 || !seeker->stopped || seeker->changes->n == 0;
}

static void add_change(struct seeker *seeker, const struct mt_drive_command *after,
                       const char *costs, uint64_t headroom)
{
    struct mt_advise_changes *changes = seeker->changes;
    if (after->failed || changes->n == MT_ADVISE_CHANGES_MAX)
        return;
    struct mt_advise_change *change = &changes->items[changes->n++];
    describe(seeker, after, change);
    change->headroom_bytes = headroom;
    snprintf(change->costs, sizeof change->costs, "%s", costs);
}

/* Turns one knob down from `base`, and notes the change where it then fits. */
static void try_knob(struct seeker *seeker, const struct knob *knob)
{
    uint64_t number = 0;
    uint64_t headroom = 0;
    struct mt_drive_command command;
    if (seeker->stopped || !largest(seeker, knob, &number, &headroom))
        return;
    mt_drive_command_copy(seeker->base->words, &command);
    knob->turn(seeker, &command, number);
    add_change(seeker, &command, knob->costs, headroom);
    mt_drive_command_finish(&command);
}

/* Turns the cheap knobs down as far as they go. */
static void turn_cheap(const struct seeker *seeker, struct mt_drive_command *command)
{
    static const int cheap[] = {KNOB_FLASH, KNOB_UBATCH, KNOB_TYPE};
    for (size_t i = 0; i < sizeof cheap / sizeof *cheap; i++) {
        uint64_t least = 0;
        uint64_t now = 0;
        uint64_t step = 1;
        if (knobs[cheap[i]].range(seeker, &least, &now, &step) && least < now)
            knobs[cheap[i]].turn(seeker, command, least);
    }
}

/* No knob was enough by itself: all cheap ones, alone and with each of the others. */
static void try_together(struct seeker *seeker)
{
    static const int others[] = {KNOB_CONTEXT, KNOB_EXPERTS, KNOB_LAYERS};
    struct mt_drive_command cheap;
    uint64_t headroom = 0;
    mt_drive_command_copy(seeker->base->words, &cheap);
    turn_cheap(seeker, &cheap);
    if (fits(seeker, &cheap, &headroom))
        add_change(seeker, &cheap, "prompts are read more slowly, a little precision of the cache",
                   headroom);
    seeker->base = &cheap;
    for (size_t i = 0; i < sizeof others / sizeof *others && seeker->changes->n == 0; i++)
        try_knob(seeker, &knobs[others[i]]);
    seeker->base = seeker->search->command;
    mt_drive_command_finish(&cheap);
}

int mt_advise_search(const struct mt_advise_search *search, struct mt_advise_changes *changes)
{
    struct seeker seeker = {.search = search, .changes = changes, .base = search->command};
    *changes = (struct mt_advise_changes){0};
    for (size_t i = search->is_weights_alone ? KNOB_EXPERTS : 0; i < N_KNOBS; i++)
        try_knob(&seeker, &knobs[i]);
    if (changes->n == 0)
        try_together(&seeker);
    changes->is_cut_short = seeker.stopped;
    return seeker.failed ? MT_ENOMEM : 0;
}
