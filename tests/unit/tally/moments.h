/* SPDX-License-Identifier: MIT */
/* Recordings of a few processes at times in milliseconds, for tests of moments. */
#ifndef MT_TESTS_MOMENTS_H
#define MT_TESTS_MOMENTS_H

#include "recorded.h"

#define MS 1000000ull

static inline void look(struct recorded *recorded, uint64_t ms, uint64_t pages)
{
    recorded->ns = ms * MS;
    EVENT(recorded, LOOK, pages * PAGE);
}

static inline struct recorded process_at(uint64_t ms, uint32_t pid)
{
    return (struct recorded){.header = {.pid = pid}, .ns = ms * MS};
}

static inline struct recorded watch_at(uint64_t ms)
{
    return (struct recorded){.header = {.pid = 1, .kind = MT_FILE_WATCH}, .ns = ms * MS};
}

static inline void seen(struct recorded *watch, uint64_t ms, uint64_t pid, uint64_t parent,
                        const char *command, int reason)
{
    watch->ns = ms * MS;
    EVENT(watch, PROCESS, pid, parent, ms * MS, recorded_string(watch, command));
    if (reason >= 0)
        EVENT(watch, OUTSIDE_ONLY, pid, (uint64_t)reason);
}

static inline void ended(struct recorded *watch, uint64_t ms, uint64_t pid, uint64_t how,
                         uint64_t value)
{
    watch->ns = ms * MS;
    EVENT(watch, PROCESS_END, pid, how, value);
}

#endif
