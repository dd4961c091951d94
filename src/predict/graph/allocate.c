/* SPDX-License-Identifier: MIT */
/* Replays how ggml's graph allocator lays tensors out: best fit, freed after the last reader.
 *
 * The size of a buffer is the highest end that any tensor had. Which freed hole a tensor falls into
 * depends on the order of everything before it; there is no formula for that. */
#include <string.h>

#include <memtally/error_code.h>

#include "engine/flash_kernel.h"
#include "engine/row_padding.h"
#include "graph.h"

/* As many as ggml keeps; more would make it give up. */
#define HOLES_MAX 256

struct hole {
    uint64_t offset;
    uint64_t bytes;
};

/* Free space of one buffer, by offset. The last hole has no end. */
struct space {
    struct hole holes[HOLES_MAX];
    size_t n;
    uint64_t alignment;
    uint64_t inputs; /* alive now */
    uint64_t working;
    struct mt_graph_buffer peak;
};

struct walk {
    const struct mt_graph_machine *machine;
    struct space *spaces;
    int overflow;
};

static uint64_t padded(uint64_t bytes, uint64_t alignment)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

static int is_float(const struct mt_node *node)
{
    return node->type == MT_TYPE_F32 || node->type == MT_TYPE_F16 || node->type == MT_TYPE_BF16;
}

static enum mt_flash_type flash_type_of(const struct mt_node *node)
{
    static const uint8_t types[MT_TYPE_COUNT] = {[MT_TYPE_F16] = MT_FLASH_F16,
                                                 [MT_TYPE_F32] = MT_FLASH_F32,
                                                 [MT_TYPE_BF16] = MT_FLASH_BF16,
                                                 [MT_TYPE_Q4_0] = MT_FLASH_Q4_0,
                                                 [MT_TYPE_Q8_0] = MT_FLASH_Q8_0};
    return (enum mt_flash_type)types[node->type];
}

/* Where the device is not known, one that reads no other type than f16. */
static enum mt_flash_kernel kernel_of(const struct mt_graph_machine *machine, int device,
                                      const struct mt_node *node)
{
    const struct mt_node *q = node->sources[0], *k = node->sources[1], *v = node->sources[2];
    uint64_t ratio = k->ne[2] ? q->ne[2] / k->ne[2] : 1;
    struct mt_flash_attention a = {.capability = machine->capability[device],
                                   .build = machine->build,
                                   .head = q->ne[0],
                                   .rows = q->ne[1],
                                   .batches = q->ne[3],
                                   .ratio = ratio,
                                   .cells = k->ne[1],
                                   .is_quantised = !is_float(k) || !is_float(v)};
    a.is_grouped = ratio >= 2 && node->sources[3] && k->ne[1] % MT_FLASH_STRIDE_OF_KEYS == 0;
    return a.capability ? mt_flash_choose(&a) : MT_FLASH_TILE;
}

/* Flash attention on a device first turns a cache that is not f16 into f16, behind its result. */
static uint64_t with_scratch(const struct mt_graph_machine *machine, int device,
                             const struct mt_node *node, uint64_t alignment)
{
    const struct mt_node *k = node->sources[1];
    const struct mt_node *v = node->sources[2];
    const struct mt_flash_cache cache = {
        .k = flash_type_of(k),
        .v = flash_type_of(v),
        .k_elements = mt_node_elements(k),
        .v_elements = mt_node_elements(v),
        .values_are_keys = v->view_of && (v->view_of == k->view_of || v->view_of == k),
        .has_any_pair = machine->has_any_pair};
    return mt_flash_bytes(&cache, kernel_of(machine, device, node), node->bytes, alignment);
}

/* What a device appends to a quantised tensor, so that its last row has whole steps. */
static uint64_t row_padding(const struct mt_node *node, uint64_t step)
{
    uint64_t more = node->quantised ? mt_row_padding(node->ne[0], step) : 0;
    if (!more)
        return 0;
    uint64_t typed = mt_graph_row_bytes((enum mt_graph_type)node->type, more);
    return node->type == MT_TYPE_F32 ? node->nb[1] * more / node->ne[0] : typed;
}

static uint64_t bytes_in(const struct walk *walk, int buffer, const struct mt_node *node)
{
    const struct mt_graph_machine *machine = walk->machine;
    uint64_t alignment = walk->spaces[buffer].alignment;
    uint64_t bytes = node->bytes;
    if (buffer < machine->n_devices) {
        if (node->op == MT_OP_FLASH_ATTENTION && machine->attention_scratch)
            bytes = with_scratch(machine, buffer, node, alignment);
        bytes += row_padding(node, machine->quantised_row_padding);
    }
    return padded(bytes, alignment);
}

static void remove_hole(struct space *space, size_t i)
{
    memmove(space->holes + i, space->holes + i + 1, (space->n - i - 1) * sizeof *space->holes);
    space->n--;
}

static uint64_t take(struct space *space, uint64_t bytes)
{
    size_t best = space->n - 1;
    uint64_t best_bytes = UINT64_MAX;
    for (size_t i = 0; i + 1 < space->n; i++)
        if (space->holes[i].bytes >= bytes && space->holes[i].bytes <= best_bytes) {
            best = i;
            best_bytes = space->holes[i].bytes;
        }
    struct hole *hole = space->holes + best;
    uint64_t offset = hole->offset;
    hole->offset += bytes;
    hole->bytes -= bytes;
    if (!hole->bytes)
        remove_hole(space, best);
    return offset;
}

static void count(struct space *space, const struct mt_node *node, uint64_t bytes)
{
    if (node->flags & MT_NODE_INPUT)
        space->inputs += bytes;
    else
        space->working += bytes;
    if (node->offset + bytes > space->peak.bytes)
        space->peak = (struct mt_graph_buffer){node->offset + bytes, space->inputs, space->working,
                                               node->part};
}

static int give_back(struct space *space, uint64_t offset, uint64_t bytes)
{
    struct hole *holes = space->holes;
    for (size_t i = 0; i < space->n; i++) {
        if (holes[i].offset + holes[i].bytes == offset) {
            holes[i].bytes += bytes;
            if (i + 1 < space->n && holes[i].offset + holes[i].bytes == holes[i + 1].offset) {
                holes[i].bytes += holes[i + 1].bytes;
                remove_hole(space, i + 1);
            }
            return 0;
        }
        if (offset + bytes == holes[i].offset) {
            holes[i].offset = offset;
            holes[i].bytes += bytes;
            if (i && holes[i - 1].offset + holes[i - 1].bytes == offset) {
                holes[i - 1].bytes += holes[i].bytes;
                remove_hole(space, i);
            }
            return 0;
        }
    }
    if (space->n == HOLES_MAX)
        return -1;
    size_t at = 0;
    while (at < space->n && holes[at].offset < offset)
        at++;
    memmove(holes + at + 1, holes + at, (space->n - at) * sizeof *holes);
    holes[at] = (struct hole){offset, bytes};
    space->n++;
    return 0;
}

static void release(struct walk *walk, const struct mt_node *node, uint64_t offset, uint64_t bytes)
{
    struct space *space = walk->spaces + node->buffer;
    if (node->flags & MT_NODE_INPUT)
        space->inputs -= bytes;
    else
        space->working -= bytes;
    if (give_back(space, offset, bytes) < 0)
        walk->overflow = 1;
}

static int same_layout(const struct mt_node *a, const struct mt_node *b)
{
    return a->type == b->type && memcmp(a->ne, b->ne, sizeof a->ne) == 0 &&
           memcmp(a->nb, b->nb, sizeof a->nb) == 0;
}

/* Whether `node`, the last to read `parent`, may go on using its bytes. */
static int replaceable(const struct mt_node *node, const struct mt_node *parent)
{
    return parent->owned && !(parent->flags & MT_NODE_OUTPUT) && same_layout(node, parent) &&
           parent->readers == 1 && !parent->views;
}

static int take_place(struct walk *walk, struct mt_node *node)
{
    for (int i = 0; i < MT_GRAPH_SOURCES_MAX; i++) {
        struct mt_node *parent = node->sources[i];
        if (!parent || !replaceable(node, parent))
            continue;
        node->buffer = parent->buffer;
        node->offset = parent->offset;
        parent->owned = 0;
        uint64_t had = bytes_in(walk, parent->buffer, parent);
        uint64_t needs = bytes_in(walk, parent->buffer, node);
        if (had > needs)
            release(walk, parent, parent->offset + needs, had - needs);
        return 1;
    }
    return 0;
}

static void allocate(struct walk *walk, struct mt_node *node, int buffer)
{
    if (node->flags & MT_NODE_EXTERNAL || node->owned || node->view_of)
        return;
    node->owned = 1;
    if ((node->op == MT_OP_INPLACE || node->op == MT_OP_ROPE) && take_place(walk, node))
        return;
    node->buffer = (int8_t)buffer;
    uint64_t bytes = bytes_in(walk, buffer, node);
    node->offset = take(walk->spaces + buffer, bytes);
    count(walk->spaces + buffer, node, bytes);
}

static void free_node(struct walk *walk, struct mt_node *node)
{
    if (!node->owned || node->flags & MT_NODE_OUTPUT)
        return;
    node->owned = 0;
    release(walk, node, node->offset, bytes_in(walk, node->buffer, node));
}

static void read_once(struct walk *walk, struct mt_node *parent)
{
    if (--parent->readers || parent->views)
        return;
    struct mt_node *root = parent->view_of;
    if (!root)
        free_node(walk, parent);
    else if (--root->views == 0 && !root->readers)
        free_node(walk, root);
}

static void count_readers(struct walk *walk, const struct mt_schedule *schedule)
{
    for (size_t i = 0; i < schedule->nodes.n; i++) {
        struct mt_node *node = schedule->nodes.at[i];
        if (node->view_of && node->op != MT_OP_NONE)
            node->view_of->views++;
        if (node->flags & MT_NODE_INPUT)
            allocate(walk, node, schedule->node_backends[i]);
        for (int j = 0; j < MT_GRAPH_SOURCES_MAX; j++) {
            struct mt_node *source = node->sources[j];
            if (!source)
                continue;
            source->readers++;
            if (source->flags & MT_NODE_INPUT)
                allocate(walk, source, schedule->node_backends[i]);
        }
    }
}

static void run(struct walk *walk, const struct mt_schedule *schedule)
{
    for (size_t i = 0; i < schedule->nodes.n && !walk->overflow; i++) {
        struct mt_node *node = schedule->nodes.at[i];
        for (int j = 0; j < MT_GRAPH_SOURCES_MAX; j++)
            if (node->sources[j])
                allocate(walk, node->sources[j], schedule->node_backends[i]);
        allocate(walk, node, schedule->node_backends[i]);
        for (int j = 0; j < MT_GRAPH_SOURCES_MAX; j++)
            if (node->sources[j])
                read_once(walk, node->sources[j]);
    }
}

int mt_graph_allocate(struct mt_graph *graph, const struct mt_graph_machine *machine,
                      const struct mt_schedule *schedule, struct mt_graph_buffer *buffers)
{
    int n = machine->n_devices + 1;
    struct walk walk = {machine, mt_arena_array(graph->arena, (size_t)n, sizeof *walk.spaces), 0};
    if (!walk.spaces)
        return MT_ENOMEM;
    for (int i = 0; i < n; i++) {
        walk.spaces[i].holes[0] = (struct hole){0, UINT64_MAX / 4};
        walk.spaces[i].n = 1;
        walk.spaces[i].alignment =
            i < machine->n_devices ? machine->device_alignment : machine->host_alignment;
    }
    for (size_t i = 0; i < schedule->leafs.n; i++)
        allocate(&walk, schedule->leafs.at[i], schedule->leaf_backends[i]);
    count_readers(&walk, schedule);
    run(&walk, schedule);
    if (walk.overflow)
        return MT_ELIMIT;
    for (int i = 0; i < n; i++)
        buffers[i] = walk.spaces[i].peak;
    return 0;
}
