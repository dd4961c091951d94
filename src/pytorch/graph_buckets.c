/* SPDX-License-Identifier: MIT */
/* Which capture something was taken in or made for. All is found by binary search: a trace may have
 * millions of blocks and of captures. */
#include "pytorch/graph_buckets.h"

#include <stdlib.h>

#include <memtally/error_code.h>
#include <memtally/units.h>

#include "base/array.h"
#include "base/bisect.h"
#include "pytorch/torch.h"
#include "pytorch/trace.h"

int mt_graph_takings_add(struct mt_graph_takings *takings, const struct mt_graph_taking *taking)
{
    if (mt_array_reserve(takings->items, takings->n, takings->capacity, 64) < 0)
        return MT_ENOMEM;
    takings->items[takings->n++] = *taking;
    return 0;
}

static int compare(uint64_t one, uint64_t other)
{
    return one < other ? -1 : one > other;
}

static int by_time(const void *a, const void *b)
{
    const struct mt_graph_span *one = a, *other = b;
    if (one->pid != other->pid)
        return compare(one->pid, other->pid);
    if (one->device != other->device)
        return compare(one->device, other->device);
    return compare(one->begin_ns, other->begin_ns);
}

static int is_of(const struct mt_graph_span *span, uint32_t pid, uint32_t device)
{
    return span->pid == pid && span->device == device;
}

/* The first span of a process and device that begins after `ns`, or what stands behind those. */
static size_t first_after(const struct mt_graph_span *spans, size_t n, uint32_t pid,
                          uint32_t device, uint64_t ns)
{
    const struct mt_graph_span key = {.pid = pid, .device = device, .begin_ns = ns};
    struct mt_bisect place = {.end = n};
    while (mt_bisect_next(&place))
        mt_bisect_turn(&place, by_time(&spans[place.middle], &key) <= 0);
    return place.first;
}

/* The capture of a device that goes on at `ns`; NULL. */
static struct mt_graph_span *span_at(struct mt_graph_span *spans, size_t n, uint32_t pid,
                                     uint32_t device, uint64_t ns)
{
    size_t next = first_after(spans, n, pid, device, ns);
    if (!next || !is_of(&spans[next - 1], pid, device) || spans[next - 1].end_ns < ns)
        return NULL;
    return &spans[next - 1];
}

void mt_graph_spans_prepare(struct mt_graph_span *spans, size_t n)
{
    if (n)
        qsort(spans, n, sizeof *spans, by_time);
    for (size_t i = 0; i < n; i++) {
        int is_first = !i || !is_of(&spans[i - 1], spans[i].pid, spans[i].device);
        spans[i].library_bytes = spans[i].workspace_bytes = 0;
        spans[i].static_bytes = is_first ? MT_UNKNOWN : 0;
    }
}

static void add_bytes(uint64_t *sum, uint64_t bytes)
{
    if (__builtin_add_overflow(*sum, bytes, sum))
        *sum = UINT64_MAX - 1; /* known, and as large as can be */
}

void mt_graph_spans_take(struct mt_graph_span *spans, size_t n, const struct mt_torch *torch,
                         const struct mt_graph_takings *takings)
{
    for (size_t i = 0; i < takings->n; i++) {
        const struct mt_graph_taking *taking = &takings->items[i];
        struct mt_graph_span *its = NULL;
        uint32_t pid = (uint32_t)taking->pid;
        for (uint32_t device = 0; device < MT_TORCH_DEVICES_MAX; device++) {
            struct mt_graph_span *span = span_at(spans, n, pid, device, taking->ns);
            if (span && (!its || span->begin_ns > its->begin_ns))
                its = span;
        }
        if (its && !(taking->address && mt_torch_has(torch, pid, taking->address)))
            add_bytes(&its->library_bytes, taking->bytes);
    }
}

static int may_be_static(const struct mt_torch_life *life)
{
    return !life->is_private && life->category != MT_CATEGORY_WEIGHTS &&
           life->category != MT_CATEGORY_KV_CACHE && life->category != MT_CATEGORY_WORKSPACE &&
           life->category != MT_CATEGORY_COMMUNICATION;
}

/* `last_ns` is when the process captured its last graph. */
static void give_life(struct mt_graph_span *spans, size_t n, uint32_t pid, uint64_t last_ns,
                      const struct mt_torch_life *life)
{
    struct mt_graph_span *span = span_at(spans, n, pid, life->device, life->begin_ns);
    if (span) {
        if (life->category == MT_CATEGORY_WORKSPACE)
            add_bytes(&span->workspace_bytes, life->bytes);
        return;
    }
    size_t next = first_after(spans, n, pid, life->device, life->begin_ns);
    if (next < n && is_of(&spans[next], pid, life->device) &&
        spans[next].static_bytes != MT_UNKNOWN && life->end_ns > last_ns && may_be_static(life))
        add_bytes(&spans[next].static_bytes, life->bytes);
}

void mt_graph_spans_look(struct mt_graph_span *spans, size_t n, const struct mt_torch *torch)
{
    struct mt_torch_life life;
    for (size_t first = 0, end; first < n; first = end) {
        uint64_t last_ns = 0;
        for (end = first; end < n && spans[end].pid == spans[first].pid; end++)
            last_ns = spans[end].end_ns > last_ns ? spans[end].end_ns : last_ns;
        for (size_t i = 0; mt_torch_life_at(torch, spans[first].pid, i, &life); i++)
            give_life(spans, n, spans[first].pid, last_ns, &life);
    }
}
