/* SPDX-License-Identifier: MIT */
/* Counters over time for Perfetto: a Trace of protos/perfetto/trace/perfetto_trace.proto (v49),
 * with TrackDescriptor, CounterDescriptor and TrackEvent. */
#ifndef MT_EMIT_PERFETTO_H
#define MT_EMIT_PERFETTO_H

#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

/* Start with {0} and `out`. */
struct mt_perfetto {
    struct mt_strbuf *out;
    uint64_t n_tracks;
};

/* Begins a track of bytes, or one of events; returns its number. */
uint64_t mt_perfetto_counter(struct mt_perfetto *perfetto, const char *name);
uint64_t mt_perfetto_track(struct mt_perfetto *perfetto, const char *name);

void mt_perfetto_value(struct mt_perfetto *perfetto, uint64_t track, uint64_t ns, uint64_t bytes);
void mt_perfetto_slice(struct mt_perfetto *perfetto, uint64_t track, const char *name,
                       uint64_t begin_ns, uint64_t end_ns);
void mt_perfetto_instant(struct mt_perfetto *perfetto, uint64_t track, const char *name,
                         uint64_t ns);

#endif
