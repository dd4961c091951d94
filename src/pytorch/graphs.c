/* SPDX-License-Identifier: MIT */
/* CUDA graphs one by one, by what traces say of their captures. Knows no engine. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memtally/graphs.h>
#include <memtally/tally.h>

#include "base/error.h"
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

/* The public list, and what it is made of. */
struct made {
    struct mt_graphs graphs; /* first */
    struct mt_torch *torch;  /* has the kinds' words */
    struct mt_graph *list;
    struct mt_graph_draft *drafts;
    uint64_t *expected;     /* of each graph of the list */
    uint32_t *pids;         /* of each draft, whose sizes were counted last */
    struct member *members; /* all graphs, also dropped ones */
    size_t n_members;
};

static const struct mt_torch_graph *last_of(const struct mt_torch *torch, uint32_t pid)
{
    const struct mt_torch_graph *last = NULL;
    const struct mt_torch_graph *graph;
    for (size_t i = 0; (graph = mt_torch_graph_at(torch, i)); i++)
        if (graph->pid == pid && (!last || graph->time_ns >= last->time_ns))
            last = graph;
    return last;
}

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

static void add_member(struct made *made, const struct mt_torch_graph *graph, size_t group)
{
    made->members[made->n_members++] = (struct member){.pid = graph->pid,
                                                       .device = graph->device,
                                                       .pool = graph->pool,
                                                       .bytes = graph->private_bytes,
                                                       .group = group};
}

static void add_piece(struct made *made, const struct mt_torch_graph *graph)
{
    struct mt_graph *group = group_of(made, graph);
    add_member(made, graph, (size_t)(group - made->list));
    made->expected[group - made->list] = graph->expected;
    group->pieces++;
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

/* Each process says how many sizes it was to capture, with each of its graphs. */
static void count_draft(struct made *made, const struct mt_graph *graph, uint64_t expected)
{
    struct mt_graphs *graphs = &made->graphs;
    size_t i = 0;
    while (i < graphs->n_drafts && made->drafts[i].draft != graph->draft)
        i++;
    struct mt_graph_draft *draft = &made->drafts[i];
    if (i == graphs->n_drafts) {
        *draft = (struct mt_graph_draft){.draft = graph->draft};
        graphs->n_drafts++;
    }
    if (!draft->n || made->pids[i] != graph->pid)
        draft->expected = add_known(draft->expected, expected);
    made->pids[i] = graph->pid;
    draft->n++;
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

/* Unknown is the largest number and goes to the end. */
static int by_draft(const void *a, const void *b)
{
    uint64_t one = ((const struct mt_graph_draft *)a)->draft + 1;
    uint64_t other = ((const struct mt_graph_draft *)b)->draft + 1;
    return one > other ? -1 : one < other;
}

static void add_memory(struct made *made, const struct mt_torch_most *most)
{
    struct mt_graphs *graphs = &made->graphs;
    const struct mt_torch_graph *last = NULL;
    const struct mt_torch_graph *graph;
    for (size_t i = 0; (graph = mt_torch_graph_at(made->torch, i)); i++)
        if (graph->pid == most->pid && graph->device == most->device)
            last = graph;
    graphs->allocated_bytes += last ? last->allocated_bytes : most->allocated_bytes;
    graphs->reserved_bytes += last ? last->reserved_bytes : most->reserved_bytes;
    graphs->most_allocated_bytes += most->allocated_bytes;
    graphs->most_reserved_bytes += most->reserved_bytes;
}

static void fill(struct made *made)
{
    const struct mt_torch_graph *graph;
    const struct mt_torch_graph *last = NULL;
    const struct mt_torch_most *most;
    for (size_t i = 0; (graph = mt_torch_graph_at(made->torch, i)); i++) {
        if (!last || last->pid != graph->pid)
            last = last_of(made->torch, graph->pid);
        if (graph->end_ns > last->time_ns)
            add_piece(made, graph);
        else
            add_dropped(made, graph);
    }
    for (size_t i = 0; i < made->graphs.n; i++) {
        count_draft(made, &made->list[i], made->expected[i]);
        if (strcmp(made->list[i].kind, "-") == 0)
            made->list[i].kind = "";
    }
    reclaim(made);
    qsort(made->drafts, made->graphs.n_drafts, sizeof *made->drafts, by_draft);
    for (size_t i = 0; (most = mt_torch_most_at(made->torch, i)); i++)
        add_memory(made, most);
    made->graphs.graphs = made->list;
    made->graphs.drafts = made->drafts;
}

static size_t count(const struct mt_torch *torch)
{
    size_t n = 0;
    while (mt_torch_graph_at(torch, n))
        n++;
    return n;
}

int mt_graphs_read(const char *directory, struct mt_graphs **graphs, struct mt_error *error)
{
    struct made *made = calloc(1, sizeof *made);
    if (!made)
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    int result = access(directory, F_OK) == 0 ? mt_torch_open(directory, &made->torch, error)
                                              : mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                                                        "there is no folder '%.200s'", directory);
    if (!result && !mt_torch_most_at(made->torch, 0) && !mt_torch_graph_at(made->torch, 0))
        result = mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET,
                         "'%.200s' holds nothing of PyTorch on CUDA; give the folder of 'memtally "
                         "run' or of 'memtally rehearse --folder'",
                         directory);
    size_t n = result ? 0 : count(made->torch) + 1;
    if (!result) {
        made->list = calloc(n, sizeof *made->list);
        made->drafts = calloc(n, sizeof *made->drafts);
        made->expected = calloc(n, sizeof *made->expected);
        made->pids = calloc(n, sizeof *made->pids);
        made->members = calloc(n, sizeof *made->members);
        if (!made->list || !made->drafts || !made->expected || !made->pids || !made->members)
            result = mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    }
    if (result) {
        mt_graphs_destroy(&made->graphs);
        return result;
    }
    fill(made);
    *graphs = &made->graphs;
    return 0;
}

void mt_graphs_destroy(struct mt_graphs *graphs)
{
    struct made *made = (struct made *)graphs;
    if (!made)
        return;
    mt_torch_close(made->torch);
    free(made->members);
    free(made->pids);
    free(made->expected);
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
                                     .driver_bytes = less(b->driver_bytes, a->driver_bytes)};
    uint64_t whole = a->reserved_bytes + a->driver_bytes;
    d.overhead_bytes = d.pool_bytes + d.driver_bytes;
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
