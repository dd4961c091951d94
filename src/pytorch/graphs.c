/* SPDX-License-Identifier: MIT */
/* CUDA graphs one by one, by what traces say of their captures. Knows no engine. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memtally/graphs.h>
#include <memtally/units.h>

#include "base/error.h"
#include "base/invariant.h"
#include "base/out_of_memory.h"
#include "pytorch/graph_buckets.h"
#include "pytorch/torch.h"

#define MODERATE (INT64_C(500) << 20)
#define STRONG   (INT64_C(2) << 30)

/* A graph in its pool. */
struct member {
    uint32_t pid, device;
    uint64_t pool;
    uint64_t bytes;
    size_t group; /* NONE: it was dropped */
};

#define NONE SIZE_MAX

/* A draft length of a graph of the list, by its number there. */
struct draft_of {
    uint64_t draft;
    size_t graph;
};

/* The public list, and what it is made of. */
struct made {
    struct mt_graphs graphs; /* first */
    struct mt_torch *torch;  /* has the kinds' words */
    struct mt_graph *list;
    struct mt_graph_draft *drafts;
    const char **notes;
    struct draft_of *by_draft; /* of each graph of the list */
    uint64_t *expected;        /* likewise */
    uint64_t *dated;           /* likewise, its pieces of which it is known when they began */
    struct member *members;    /* all captures, also dropped ones */
    size_t n_members;
    struct mt_graph_span *spans; /* those of which it is known when they began */
    size_t n_spans;
    uint64_t last_ns; /* when the last one was captured, of all processes */
};

static int is_same(const struct mt_graph *group, const struct mt_torch_graph *graph)
{
    return group->pid == graph->pid && group->device == graph->device &&
           group->batch == graph->batch && group->tokens == graph->tokens &&
           group->draft == graph->draft && strcmp(group->kind, graph->kind) == 0;
}

/* Engines capture the pieces of a batch one after the other. A graph of which nothing is known
 * stands for itself. */
static struct mt_graph *group_of(struct made *made, const struct mt_torch_graph *graph)
{
    struct mt_graphs *graphs = &made->graphs;
    int has_name = graph->batch != MT_UNKNOWN || graph->tokens != MT_UNKNOWN;
    if (has_name && graphs->n && is_same(&made->list[graphs->n - 1], graph))
        return &made->list[graphs->n - 1];
    struct mt_graph *group = &made->list[graphs->n++];
    *group = (struct mt_graph){.pid = graph->pid,
                               .device = graph->device,
                               .kind = graph->kind,
                               .batch = graph->batch,
                               .tokens = graph->tokens,
                               .draft = graph->draft,
                               .reclaimable_bytes = MT_UNKNOWN};
    return group;
}

static uint64_t add_known(uint64_t sum, uint64_t more)
{
    return sum == MT_UNKNOWN || more == MT_UNKNOWN ? MT_UNKNOWN : sum + more;
}

static uint64_t known(uint64_t bytes)
{
    return bytes == MT_UNKNOWN ? 0 : bytes;
}

static void add_member(struct made *made, const struct mt_torch_graph *graph, size_t group)
{
    made->members[made->n_members++] = (struct member){.pid = graph->pid,
                                                       .device = graph->device,
                                                       .pool = graph->pool,
                                                       .bytes = graph->private_bytes,
                                                       .group = group};
    if (graph->time_ns > made->last_ns)
        made->last_ns = graph->time_ns;
    if (graph->begin_ns == MT_UNKNOWN)
        return;
    made->spans[made->n_spans++] = (struct mt_graph_span){.pid = graph->pid,
                                                          .device = graph->device,
                                                          .begin_ns = graph->begin_ns,
                                                          .end_ns = graph->time_ns,
                                                          .driver_bytes = graph->driver_bytes,
                                                          .pool_bytes = graph->pool_bytes,
                                                          .owner = group};
}

static void add_piece(struct made *made, const struct mt_torch_graph *graph)
{
    struct mt_graph *group = group_of(made, graph);
    add_member(made, graph, (size_t)(group - made->list));
    made->expected[group - made->list] = graph->expected;
    group->pieces++;
    group->is_late |= graph->is_late;
    group->nodes = add_known(group->nodes, graph->nodes);
    group->pool_bytes += graph->pool_bytes;
    group->driver_bytes += graph->driver_bytes;
    group->host_bytes = add_known(group->host_bytes, graph->host_bytes);
    made->graphs.pieces++;
    made->graphs.pool_bytes += graph->pool_bytes;
    made->graphs.driver_bytes += graph->driver_bytes;
}

/* Its pool goes back to PyTorch's allocator. The driver keeps the space of its nodes. */
static void add_dropped(struct made *made, const struct mt_torch_graph *graph)
{
    add_member(made, graph, NONE);
    made->graphs.dropped++;
    made->graphs.driver_bytes += graph->driver_bytes;
    made->graphs.dropped_driver_bytes += graph->driver_bytes;
}

/* Longest first, unknown last; then as they were captured. */
static int by_draft(const void *a, const void *b)
{
    const struct draft_of *one = a, *other = b;
    if (one->draft != other->draft)
        return one->draft + 1 > other->draft + 1 ? -1 : 1;
    return one->graph < other->graph ? -1 : 1;
}

/* Each process says how many sizes it was to capture, with each of its graphs. */
static void count_drafts(struct made *made)
{
    struct mt_graphs *graphs = &made->graphs;
    for (size_t i = 0; i < graphs->n; i++)
        made->by_draft[i] = (struct draft_of){made->list[i].draft, i};
    qsort(made->by_draft, graphs->n, sizeof *made->by_draft, by_draft);
    for (size_t i = 0; i < graphs->n; i++) {
        size_t graph = made->by_draft[i].graph;
        int is_new = !i || made->by_draft[i - 1].draft != made->by_draft[i].draft;
        if (is_new)
            made->drafts[graphs->n_drafts++] =
                (struct mt_graph_draft){.draft = made->by_draft[i].draft};
        struct mt_graph_draft *draft = &made->drafts[graphs->n_drafts - 1];
        if (is_new || made->list[made->by_draft[i - 1].graph].pid != made->list[graph].pid)
            draft->expected = add_known(draft->expected, made->expected[graph]);
        draft->n++;
    }
}

static int by_pool(const void *a, const void *b)
{
    const struct member *one = a, *other = b;
    if (one->pid != other->pid)
        return one->pid < other->pid ? -1 : 1;
    if (one->device != other->device)
        return one->device < other->device ? -1 : 1;
    return one->pool < other->pool ? -1 : one->pool > other->pool;
}

/* What members from `first` to before `end`, all of one pool, can give back. PyTorch frees a pool
 * once no graph is in it: one that shares it frees nothing. */
static void reclaim_pool(struct made *made, size_t first, size_t end)
{
    size_t only = NONE;
    uint64_t bytes = 0;
    int is_shared = 0;
    for (size_t i = first; i < end; i++) {
        const struct member *member = &made->members[i];
        bytes += member->bytes;
        if (member->group == NONE)
            continue;
        is_shared |= only != NONE && only != member->group;
        only = member->group;
    }
    for (size_t i = first; i < end; i++) {
        struct mt_graph *graph =
            made->members[i].group == NONE ? NULL : &made->list[made->members[i].group];
        if (graph && graph->reclaimable_bytes == MT_UNKNOWN && made->members[i].pool)
            graph->reclaimable_bytes = 0;
    }
    if (only != NONE && !is_shared && made->members[first].pool)
        made->list[only].reclaimable_bytes += bytes;
}

static void reclaim(struct made *made)
{
    qsort(made->members, made->n_members, sizeof *made->members, by_pool);
    for (size_t first = 0, end; first < made->n_members; first = end) {
        for (end = first + 1; end < made->n_members; end++)
            if (by_pool(&made->members[first], &made->members[end]) != 0)
                break;
        reclaim_pool(made, first, end);
    }
}

/* ---- buckets ---- */

static void add_memory(struct made *made, const struct mt_torch_most *most)
{
    struct mt_graphs *graphs = &made->graphs;
    graphs->allocated_bytes +=
        most->has_graphs ? most->last_allocated_bytes : most->allocated_bytes;
    graphs->reserved_bytes += most->has_graphs ? most->last_reserved_bytes : most->reserved_bytes;
    graphs->most_allocated_bytes += most->allocated_bytes;
    graphs->most_reserved_bytes += most->reserved_bytes;
}

static uint64_t at_most(uint64_t bytes, uint64_t limit)
{
    return bytes < limit ? bytes : limit;
}

/* What libraries took is a part of what the device had less free: the driver's share is the rest.
 * Those of captures that nobody dated stay with the driver. */
static void give_span(struct made *made, const struct mt_graph_span *span)
{
    struct mt_graphs *graphs = &made->graphs;
    uint64_t library = at_most(span->library_bytes, span->driver_bytes);
    graphs->driver_bytes -= library;
    graphs->library_bytes += library;
    if (span->owner == NONE) {
        graphs->dropped_driver_bytes -= library;
        graphs->dropped_library_bytes += library;
        return;
    }
    struct mt_graph *graph = &made->list[span->owner];
    uint64_t workspace = at_most(span->workspace_bytes, span->pool_bytes);
    graph->driver_bytes -= library;
    graph->library_bytes = add_known(graph->library_bytes, library);
    graph->workspace_bytes = add_known(graph->workspace_bytes, workspace);
    graph->static_bytes = add_known(graph->static_bytes, span->static_bytes);
    graphs->workspace_bytes += workspace;
}

/* A graph with a piece that nobody dated has buckets that are not known, and without a source
 * nobody says what libraries took. */
static void begin_buckets(struct made *made, int has_source)
{
    for (size_t i = 0; i < made->n_spans; i++)
        if (made->spans[i].owner != NONE)
            made->dated[made->spans[i].owner]++;
    for (size_t i = 0; i < made->graphs.n; i++) {
        struct mt_graph *graph = &made->list[i];
        uint64_t none = made->dated[i] == graph->pieces ? 0 : MT_UNKNOWN;
        graph->workspace_bytes = graph->static_bytes = none;
        graph->library_bytes = has_source ? none : MT_UNKNOWN;
    }
}

static int fill_buckets(struct made *made, const struct mt_graph_source *source)
{
    struct mt_graph_takings takings = {0};
    int result = source ? source->list(source->context, &takings) : 0;
    if (result == 0) {
        mt_graph_spans_prepare(made->spans, made->n_spans);
        mt_graph_spans_take(made->spans, made->n_spans, made->torch, &takings);
        mt_graph_spans_look(made->spans, made->n_spans, made->torch);
        begin_buckets(made, source != NULL);
        for (size_t i = 0; i < made->n_spans; i++)
            give_span(made, &made->spans[i]);
        for (size_t i = 0; i < made->graphs.n; i++)
            if (made->list[i].static_bytes != MT_UNKNOWN)
                made->graphs.static_bytes += made->list[i].static_bytes;
        if (!source)
            made->graphs.library_bytes = made->graphs.dropped_library_bytes = MT_UNKNOWN;
        if (!made->n_spans)
            made->graphs.static_bytes = made->graphs.workspace_bytes = MT_UNKNOWN;
    }
    free(takings.items);
    return result;
}

/* Buckets of all graphs and the rest are what the run held when the last one was captured. Where
 * they are more than that, the total is of other memory than the buckets are, and nothing is said.
 */
static int fill_total(struct made *made, const struct mt_graph_source *source)
{
    struct mt_graphs *graphs = &made->graphs;
    uint64_t buckets = graphs->pool_bytes + graphs->driver_bytes + known(graphs->library_bytes) +
                       known(graphs->static_bytes);
    uint64_t total = MT_UNKNOWN;
    graphs->total_bytes = graphs->rest_bytes = MT_UNKNOWN;
    int result =
        source && made->n_members ? source->total(source->context, made->last_ns, &total) : 0;
    if (result < 0 || total == MT_UNKNOWN || total < buckets)
        return result;
    graphs->total_bytes = total;
    graphs->rest_bytes = total - buckets;
    MT_HOLDS(graphs->total_bytes == graphs->rest_bytes + buckets);
    return 0;
}

/* ---- the list ---- */

static void add_captures(struct made *made)
{
    const struct mt_torch_graph *graph;
    for (size_t i = 0; (graph = mt_torch_graph_at(made->torch, i)); i++) {
        if (graph->end_ns > mt_torch_last_graph_ns(made->torch, graph->pid))
            add_piece(made, graph);
        else
            add_dropped(made, graph);
    }
    for (size_t i = 0; i < made->graphs.n; i++)
        if (strcmp(made->list[i].kind, "-") == 0)
            made->list[i].kind = "";
}

/* Sentences about graphs: captures that failed, that came late. */
static void add_notes(struct made *made)
{
    const struct mt_torch_note *note;
    for (size_t i = 0; (note = mt_torch_note_at(made->torch, i)); i++)
        if (strstr(note->text, "CUDA graph"))
            made->notes[made->graphs.n_notes++] = note->text;
    made->graphs.notes = made->notes;
}

static int fill(struct made *made, const struct mt_graph_source *source)
{
    const struct mt_torch_most *most;
    if (source)
        source->tell(source->context, made->torch);
    add_captures(made);
    count_drafts(made);
    reclaim(made);
    for (size_t i = 0; (most = mt_torch_most_at(made->torch, i)); i++)
        add_memory(made, most);
    for (size_t i = 0; i < made->graphs.n; i++)
        made->graphs.late += made->list[i].is_late != 0;
    add_notes(made);
    made->graphs.graphs = made->list;
    made->graphs.drafts = made->drafts;
    int result = fill_buckets(made, source);
    return result < 0 ? result : fill_total(made, source);
}

static int make_room(struct made *made)
{
    size_t n = 1, n_notes = 1;
    while (mt_torch_graph_at(made->torch, n - 1))
        n++;
    while (mt_torch_note_at(made->torch, n_notes - 1))
        n_notes++;
    made->list = calloc(n, sizeof *made->list);
    made->drafts = calloc(n, sizeof *made->drafts);
    made->by_draft = calloc(n, sizeof *made->by_draft);
    made->expected = calloc(n, sizeof *made->expected);
    made->dated = calloc(n, sizeof *made->dated);
    made->members = calloc(n, sizeof *made->members);
    made->spans = calloc(n, sizeof *made->spans);
    made->notes = calloc(n_notes, sizeof *made->notes);
    return made->list && made->drafts && made->by_draft && made->expected && made->dated &&
           made->members && made->spans && made->notes;
}

static int open_traces(struct made *made, const char *directory, struct mt_error *error)
{
    if (access(directory, F_OK) != 0)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET, "there is no folder '%.200s'", directory);
    int result = mt_torch_open(directory, &made->torch, error);
    if (!result && !mt_torch_most_at(made->torch, 0) && !mt_torch_graph_at(made->torch, 0))
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                       "'%.200s' holds nothing of PyTorch on CUDA; give the folder of 'memtally "
                       "run' or of 'memtally rehearse --folder'",
                       directory);
    return result;
}

int mt_graphs_make(const char *directory, const struct mt_graph_source *source,
                   struct mt_graphs **graphs, struct mt_error *error)
{
    struct made *made = calloc(1, sizeof *made);
    int result = made ? open_traces(made, directory, error) : MT_ENOMEM;
    if (result == 0)
        result = make_room(made) ? fill(made, source) : MT_ENOMEM;
    if (result == MT_ENOMEM)
        mt_out_of_memory(error);
    if (result < 0) {
        mt_graphs_destroy(made ? &made->graphs : NULL);
        return result;
    }
    *graphs = &made->graphs;
    return 0;
}

void mt_graphs_destroy(struct mt_graphs *graphs)
{
    struct made *made = (struct made *)graphs;
    if (!made)
        return;
    mt_torch_close(made->torch);
    free(made->notes);
    free(made->spans);
    free(made->members);
    free(made->dated);
    free(made->expected);
    free(made->by_draft);
    free(made->drafts);
    free(made->list);
    free(made);
}

static int64_t less(uint64_t b, uint64_t a)
{
    return (int64_t)(b - a);
}

struct mt_graphs_difference mt_graphs_compare(const struct mt_graphs *a, const struct mt_graphs *b)
{
    struct mt_graphs_difference d = {.graphs = less(b->n, a->n),
                                     .pieces = less(b->pieces, a->pieces),
                                     .pool_bytes = less(b->pool_bytes, a->pool_bytes),
                                     .driver_bytes = less(b->driver_bytes, a->driver_bytes),
                                     .library_bytes =
                                         less(known(b->library_bytes), known(a->library_bytes))};
    uint64_t whole = a->reserved_bytes + a->driver_bytes + known(a->library_bytes);
    d.overhead_bytes = d.pool_bytes + d.driver_bytes + d.library_bytes;
    d.overhead_ratio = whole ? (double)d.overhead_bytes / (double)whole : -1;
    d.bytes_of_each = d.graphs > 0 ? d.overhead_bytes / d.graphs : 0;
    d.advice = d.overhead_bytes > STRONG      ? MT_GRAPHS_ADVICE_STRONG
               : d.overhead_bytes >= MODERATE ? MT_GRAPHS_ADVICE_MODERATE
                                              : MT_GRAPHS_ADVICE_NONE;
    return d;
}

const char *mt_graphs_advice_name(enum mt_graphs_advice advice)
{
    static const char *const names[] = {
#define X(NAME, name) name,
        MT_GRAPHS_ADVICE_LIST(X)
#undef X
    };
    return (size_t)advice < sizeof names / sizeof *names ? names[advice] : "?";
}
