/* SPDX-License-Identifier: MIT */
/* The order of a guard's steps. */
#include "guard/ladder.h"

#define NEAR_SHARES 50u /* of the limit: who is nearer than one of them is at it */
#define LOOKS_AHEAD 2u

const char *mt_guard_step_name(enum mt_guard_step step)
{
    static const char *const names[] = {
        [MT_GUARD_CALL] = "call",     [MT_GUARD_SIGNAL] = "signal", [MT_GUARD_ASK] = "ask",
        [MT_GUARD_FREEZE] = "freeze", [MT_GUARD_END] = "end",       [MT_GUARD_KILL] = "kill",
    };
    return (unsigned)step < MT_N_GUARD_STEPS ? names[step] : "?";
}

static int has(const struct mt_ladder *ladder, unsigned step)
{
    return (ladder->steps & 1u << step) != 0;
}

static int is_near(const struct mt_ladder *ladder, uint64_t used_bytes)
{
    return used_bytes >= ladder->limit_bytes - ladder->limit_bytes / NEAR_SHARES;
}

/* Whether the program would be at its limit soon, if it went on as since the last look. */
static int grows_there(const struct mt_ladder *ladder, uint64_t used_bytes)
{
    uint64_t grown = used_bytes > ladder->last_bytes ? used_bytes - ladder->last_bytes : 0;
    return grown >= (ladder->limit_bytes - used_bytes) / LOOKS_AHEAD;
}

static unsigned take(struct mt_ladder *ladder, uint64_t now_ns)
{
    while (ladder->next < MT_N_GUARD_STEPS && !has(ladder, ladder->next))
        ladder->next++;
    if (ladder->next >= MT_N_GUARD_STEPS) /* what was forked meanwhile */
        ladder->next = MT_GUARD_KILL;
    unsigned step = ladder->next++;
    unsigned taken = 1u << step;
    ladder->since_ns = now_ns;
    if (step == MT_GUARD_FREEZE)
        ladder->is_frozen = 1;
    if (step >= MT_GUARD_END && ladder->is_frozen) {
        ladder->is_frozen = 0;
        taken |= MT_LADDER_THAW;
    }
    return taken;
}

/* Takes the steps up to `last`, which there is. */
static unsigned take_through(struct mt_ladder *ladder, uint64_t now_ns, unsigned last)
{
    unsigned taken = 0;
    while (ladder->next <= last)
        taken |= take(ladder, now_ns);
    return taken;
}

static unsigned calm_down(struct mt_ladder *ladder)
{
    unsigned taken = ladder->is_frozen ? MT_LADDER_THAW : 0;
    ladder->is_acting = ladder->is_frozen = 0;
    ladder->next = 0;
    return taken;
}

/* The step through which all is done at once; MT_N_GUARD_STEPS: one goes after the other. */
static unsigned at_once(const struct mt_ladder *ladder, uint64_t used_bytes)
{
    int near = is_near(ladder, used_bytes);
    if (!near && !grows_there(ladder, used_bytes))
        return MT_N_GUARD_STEPS;
    if (has(ladder, MT_GUARD_FREEZE))
        return MT_GUARD_FREEZE;
    if (ladder->is_held)
        return MT_N_GUARD_STEPS;
    return near                           ? MT_GUARD_END
           : has(ladder, MT_GUARD_ASK)    ? MT_GUARD_ASK
           : has(ladder, MT_GUARD_SIGNAL) ? MT_GUARD_SIGNAL
                                          : MT_N_GUARD_STEPS;
}

static unsigned look(struct mt_ladder *ladder, uint64_t now_ns, uint64_t used_bytes)
{
    /* Who was told to end ends, however little it has by then. */
    int is_ending = ladder->next > MT_GUARD_END;
    if (used_bytes < ladder->calm_bytes && !is_ending)
        return calm_down(ladder);
    if (!ladder->is_acting && used_bytes < ladder->act_bytes)
        return 0;
    unsigned last = at_once(ladder, used_bytes);
    if (last < MT_N_GUARD_STEPS && ladder->next <= last) {
        ladder->is_acting = 1;
        return take_through(ladder, now_ns, last);
    }
    if (ladder->is_acting && ladder->next > 0 &&
        now_ns < ladder->since_ns + ladder->time_ns[ladder->next - 1])
        return 0;
    ladder->is_acting = 1;
    return take(ladder, now_ns);
}

unsigned mt_ladder_look(struct mt_ladder *ladder, uint64_t now_ns, uint64_t used_bytes)
{
    unsigned due = look(ladder, now_ns, used_bytes);
    ladder->last_bytes = used_bytes;
    return due;
}
