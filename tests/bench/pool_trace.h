/* SPDX-License-Identifier: MIT */
/* Requests of a program, as a CSV has them: a,ID,BYTES or f,ID,BYTES; or id,lower,upper,size. */
#ifndef MT_BENCH_POOL_TRACE_H
#define MT_BENCH_POOL_TRACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct event {
    uint64_t time; /* of an interval trace */
    uint64_t id, bytes;
    int is_free;
};

struct trace {
    struct event *events;
    size_t n, room;
    uint64_t n_ids, peak_bytes; /* the largest sum of what lives */
};

/* Reads a file, each size so many times as large. 0, or -1 where it cannot be read. */
int trace_read(const char *path, uint64_t times, struct trace *trace);

/* Other allocators, as models: what each would hold at most to serve a trace, in bytes. */
enum allocator { TORCH, TORCH_EXPANDABLE, CUPY, RMM, ALLOCATORS };
uint64_t allocator_peak(enum allocator allocator, const struct trace *trace);

#ifdef __cplusplus
}
#endif
#endif
