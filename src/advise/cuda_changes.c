/* SPDX-License-Identifier: MIT */
/* Reading the changes of an engine's table. */
#include "cuda_changes.h"

#include <stdio.h>
#include <string.h>

#include "advise/cuda_shortage.h"
#include "drive/engines.h"

#define NONE (-1)

static const char *const setting_names[] = {[MT_ADVISE_SET_TENSOR_PARALLEL] = "tensor_parallel",
                                            [MT_ADVISE_SET_PIPELINE_PARALLEL] = "pipeline_parallel",
                                            [MT_ADVISE_SET_SHARE] = "memory_share",
                                            [MT_ADVISE_SET_EAGER] = "eager",
                                            [MT_ADVISE_SET_BATCHED_TOKENS] = "batched_tokens",
                                            [MT_ADVISE_SET_KV_OFFLOAD] = "kv_offload",
                                            [MT_ADVISE_SET_WEIGHT_TYPE] = "weight_type",
                                            [MT_ADVISE_SET_KV_TYPE] = "kv_type",
                                            [MT_ADVISE_SET_SEQUENCES] = "sequences",
                                            [MT_ADVISE_SET_CONTEXT] = "context",
                                            NULL};

static const char *const turn_names[] = {[MT_ADVISE_TURN_DEVICES] = "devices",
                                         [MT_ADVISE_TURN_SHARE_MOST] = "share_most",
                                         [MT_ADVISE_TURN_SHARE_FREE] = "share_free",
                                         [MT_ADVISE_TURN_SHARE_LESS] = "share_less",
                                         [MT_ADVISE_TURN_ON] = "on",
                                         [MT_ADVISE_TURN_QUARTER] = "quarter",
                                         [MT_ADVISE_TURN_TYPE] = "type",
                                         [MT_ADVISE_TURN_TOLD] = "told",
                                         [MT_ADVISE_TURN_LINE] = "line",
                                         NULL};

static const char *const kind_names[] = {[MT_ADVISE_NOT_SHORT] = "none",
                                         [MT_ADVISE_SHORT_WEIGHTS] = "weights",
                                         [MT_ADVISE_SHORT_COMPUTE] = "compute",
                                         [MT_ADVISE_SHORT_LATE] = "late",
                                         [MT_ADVISE_SHORT_GRAPHS] = "graphs",
                                         [MT_ADVISE_SHORT_NO_CACHE] = "no_cache",
                                         [MT_ADVISE_SHORT_CACHE] = "cache",
                                         [MT_ADVISE_SHORT_SHARE] = "share",
                                         NULL};

static int index_of(const char *const *names, const char *name)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return NONE;
}

/* "graphs|late" as bits; 0 where a word is none. */
static int read_against(char *text, struct mt_advise_turning *turning)
{
    const unsigned any = ((1u << (MT_ADVISE_SHORT_SHARE + 1)) - 2) & ~(1u << MT_ADVISE_SHORT_SHARE);
    for (char *word; (word = strsep(&text, "|")) != NULL;) {
        int kind = index_of(kind_names, word);
        if (strcmp(word, "any") == 0)
            turning->against |= any;
        else if (strcmp(word, "counted_graphs") == 0)
            turning->counts_graphs = 1;
        else if (kind == NONE)
            return 0;
        else
            turning->against |= 1u << kind;
    }
    return 1;
}

static int read_turning(const char *engine, size_t n, struct mt_advise_turning *turning)
{
    char key[24];
    char line[MT_DRIVE_ENGINE_TEXT];
    char setting[32];
    char turn[32];
    char against[64];
    char narrow[MT_DRIVE_ENGINE_TEXT];
    int rest = 0;
    snprintf(key, sizeof key, "change.%zu", n);
    mt_drive_engine_text(engine, key, line);
    *turning = (struct mt_advise_turning){.against = 0};
    if (sscanf(line, "%31s %31s %63s %n", setting, turn, against, &rest) != 3 || !rest)
        return 0;
    int setting_index = index_of(setting_names, setting);
    int turn_index = index_of(turn_names, turn);
    if (setting_index == NONE || turn_index == NONE || !read_against(against, turning))
        return 0;
    turning->setting = (enum mt_advise_setting)setting_index;
    turning->turn = (enum mt_advise_turn)turn_index;
    snprintf(turning->costs, sizeof turning->costs, "%.95s", line + rest);
    snprintf(turning->narrow, sizeof turning->narrow, "%.31s",
             mt_drive_engine_word(engine, "narrow", setting, narrow));
    return 1;
}

size_t mt_advise_turnings(const char *engine,
                          struct mt_advise_turning turnings[MT_ADVISE_TABLE_MAX])
{
    size_t n = 0;
    while (n < MT_ADVISE_TABLE_MAX && read_turning(engine, n + 1, &turnings[n]))
        n++;
    return n;
}
