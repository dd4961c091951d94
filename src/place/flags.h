/* SPDX-License-Identifier: MIT */
/* A placement in the words of an engine. */
#ifndef MT_PLACE_FLAGS_H
#define MT_PLACE_FLAGS_H

#include "base/strbuf.h"
#include "units.h"

/* A pattern that no tensor's name matches. */
#define MT_PLACE_NO_TENSOR "^$"

/* Devices in the order of their stretches, those not in use behind them; n_devices of them. Returns
 * how many are in use. */
size_t mt_place_order(const struct mt_placement *placement, size_t *order);

/* The layers whose experts alone are on the host, as the end of a regular expression: "3|4|5"; the
 * number of them. `are_first` tells whether they are the first layers of all. */
size_t mt_place_expert_layers(const struct mt_placement *placement,
                              const struct mt_place_unit *units, struct mt_strbuf *pattern,
                              int *are_first);

/* `environment` gets what stands before the command, as "A=1 B=2"; `flags` what stands behind it.
 */
void mt_place_flags(const struct mt_placed *placed, enum mt_place_way way,
                    const struct mt_engine *engine, struct mt_strbuf *environment,
                    struct mt_strbuf *flags);

#endif
