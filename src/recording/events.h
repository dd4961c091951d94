/* SPDX-License-Identifier: MIT */
/* The bytes of single events. Inside this room only. */
#ifndef MT_RECORDING_EVENTS_H
#define MT_RECORDING_EVENTS_H

#include "recording/reader.h"

/* Reads what follows op and delta of an event: its fields and bytes, all addresses plain. The
 * caller has set event->op. Returns 0 where that breaks the grammar. */
int mt_event_body_get(const uint8_t **at, const uint8_t *end, struct mt_event *event);

/* Writes that, and returns the byte past it; there is room for mt_event_body_most(). */
uint8_t *mt_event_body_put(const struct mt_event *event, uint8_t *at);
size_t mt_event_body_most(const struct mt_event *event);

#endif
