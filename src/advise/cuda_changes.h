/* SPDX-License-Identifier: MIT */
/* What can be turned where an engine on CUDA has no room, least loss first: the keys "change.1",
 * "change.2" and so on of its table.
 *
 *   change.N SINCE SETTING HOW AGAINST COST
 *
 * SETTING is the name of a flag. HOW: to all "devices" that were given, to the "share_most" of a
 * device, to the "share_free" that the engine says is free, to "share_less" by what was missing,
 * "on", to a "quarter" of what it is, to the next narrower "type", to what the engine has "told"
 * would fit, to where a straight "line" through what was taken says that it fits. AGAINST is what
 * it helps against, with '|' between: "weights", "compute", "late", "graphs", "no_cache", "cache",
 * "share", "any", and "counted_graphs" for a cache where the engine counted its graphs. COST is the
 * rest of the line. */
#ifndef ADVISE_CUDA_CHANGES_H
#define ADVISE_CUDA_CHANGES_H

#include "cuda_settings.h"

#define MT_ADVISE_TABLE_MAX  16
#define MT_ADVISE_COST_BYTES 96

enum mt_advise_turn {
    MT_ADVISE_TURN_DEVICES,
    MT_ADVISE_TURN_SHARE_MOST,
    MT_ADVISE_TURN_SHARE_FREE,
    MT_ADVISE_TURN_SHARE_LESS,
    MT_ADVISE_TURN_ON,
    MT_ADVISE_TURN_QUARTER,
    MT_ADVISE_TURN_TYPE,
    MT_ADVISE_TURN_TOLD,
    MT_ADVISE_TURN_LINE
};

struct mt_advise_turning {
    enum mt_advise_setting setting;
    enum mt_advise_turn turn;
    unsigned against; /* bits of mt_advise_shortage_kind */
    int counts_graphs;
    char costs[MT_ADVISE_COST_BYTES];
    char narrow[MT_ADVISE_SETTING_BYTES]; /* the narrower type of the setting, or "" */
};

/* Reads an engine's changes, in their order; returns how many. A line that is no change ends them.
 */
size_t mt_advise_turnings(const char *engine,
                          struct mt_advise_turning turnings[MT_ADVISE_TABLE_MAX]);

#endif
