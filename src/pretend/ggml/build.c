/* SPDX-License-Identifier: MIT */
/* From what a ggml says of itself to the builds that it may be of, and the rules of these. It knows
 * no build itself: what is known of them stands in the account. */
#include "build.h"

#include <stdio.h>
#include <string.h>

struct range {
    uint32_t low, high;
};

/* Builds between which a number that only grows was seen to be smaller and to be larger. */
static void narrow(struct range *range, uint32_t build, uint32_t seen, uint32_t wanted)
{
    if (!seen || !wanted)
        return;
    if (seen < wanted && build >= range->low)
        range->low = build + 1;
    if (seen > wanted && build <= range->high)
        range->high = build - 1;
}

static struct range range_of(const struct mt_pretend_builds *builds, uint32_t ggml,
                             uint32_t api_version)
{
    struct range range = {0, UINT32_MAX};
    for (uint32_t i = 0; i < builds->n_seen; i++) {
        narrow(&range, builds->seen[i].build, builds->seen[i].ggml, ggml);
        narrow(&range, builds->seen[i].build, builds->seen[i].api_version, api_version);
    }
    return range.low <= range.high ? range : (struct range){0, UINT32_MAX};
}

/* The newest build in a range of which just this version of ggml was seen, else the range's last,
 * or the newest that is known. */
static uint32_t likely(const struct mt_pretend_builds *builds, struct range range, uint32_t ggml)
{
    for (uint32_t i = 0; ggml && i < builds->n_seen; i++)
        if (builds->seen[i].ggml == ggml && builds->seen[i].build >= range.low &&
            builds->seen[i].build <= range.high)
            return builds->seen[i].build;
    if (range.high == UINT32_MAX && builds->n_eras)
        return builds->era[0].rules.build;
    return range.high;
}

/* Whether rules differ in more than the fields that doubts are noted of one by one. A program that
 * asks for split buffers is of a build that has them. */
static int others_differ(const struct mt_pretend_rules *one, const struct mt_pretend_rules *other)
{
    struct mt_pretend_rules rules[2];
    memcpy(&rules[0], one, sizeof *one);
    memcpy(&rules[1], other, sizeof *other);
    for (int i = 0; i < 2; i++) {
        rules[i].graph_dependencies = rules[i].perhaps_dependencies = rules[i].flash_types = 0;
        rules[i].has_split_buffers = rules[i].build = 0;
    }
    return memcmp(&rules[0], &rules[1], sizeof rules[0]) != 0;
}

static uint32_t difference(const struct mt_pretend_rules *one, const struct mt_pretend_rules *other)
{
    uint32_t doubts = (one->graph_dependencies ^ other->graph_dependencies) |
                      (other->perhaps_dependencies & ~other->graph_dependencies);
    if (one->flash_types != other->flash_types)
        doubts |= MT_PRETEND_DOUBT_FLASH_TYPES;
    return others_differ(one, other) ? doubts | MT_PRETEND_DOUBT_OTHERS : doubts;
}

/* The rules of a build: the account lists eras newest first. */
static const struct mt_pretend_rules *rules_at(const struct mt_pretend_builds *builds,
                                               uint32_t build)
{
    uint32_t i = 0;
    while (i + 1 < builds->n_eras && builds->era[i].since > build)
        i++;
    return &builds->era[i].rules;
}

static uint32_t doubts_in(const struct mt_pretend_builds *builds, struct range range,
                          const struct mt_pretend_rules *rules)
{
    uint32_t doubts = 0;
    uint64_t end = UINT64_MAX; /* of the era in hand, itself not in it */
    for (uint32_t i = 0; i < builds->n_eras; end = builds->era[i++].since)
        if (builds->era[i].since <= range.high && end > range.low)
            doubts |= difference(rules, &builds->era[i].rules);
    return doubts;
}

void pretend_choose_build(struct mt_account *account, const char *ggml_version,
                          uint32_t api_version, uint32_t build)
{
    struct mt_pretend_builds *builds = &account->builds;
    uint32_t ggml = ggml_version ? mt_pretend_ggml_number(ggml_version) : 0;
    struct range range = build ? (struct range){build, build} : range_of(builds, ggml, api_version);
    snprintf(builds->ggml_version, sizeof builds->ggml_version, "%s",
             ggml_version ? ggml_version : "");
    builds->low = range.low;
    builds->high = range.high == UINT32_MAX ? 0 : range.high;
    if (!builds->n_eras)
        return;
    if (!builds->is_told) {
        uint32_t taken = build ? build : likely(builds, range, ggml);
        account->rules = *rules_at(builds, taken);
        account->rules.build = taken;
    } else {
        range = (struct range){account->rules.build, account->rules.build};
    }
    builds->doubts = doubts_in(builds, range, &account->rules);
    pretend_meet_doubt(account, MT_PRETEND_DOUBT_OTHERS);
}
