/* SPDX-License-Identifier: MIT */
/* What a device's memory was for: an engine's own word for its buffers, the calls by which the
 * driver took memory for itself, and what is left of the driver's figure. */
#include "tally/device_rows.h"

#include <stdio.h>
#include <string.h>

#include <memtally/error_code.h>
#include <memtally/units.h>

#include "pytorch/torch.h"

#define NOT_TOLD "allocated, and not told what for"

struct sums {
    uint64_t allocated; /* outside pools */
    uint64_t pooled;
    uint64_t reserved; /* by pools */
    uint64_t graphs;   /* that the driver took while graphs were made */
    uint64_t modules;  /* while kernels were loaded */
    uint64_t arrays;
    uint64_t in_arrays; /* of what was allocated */
};

static int add(struct mt_claims *claims, enum mt_category category, enum mt_provenance provenance,
               const char *name, uint64_t bytes, uint64_t count)
{
    if (!bytes)
        return 0;
    size_t index = mt_claim_of(claims, category, provenance, name, strlen(name));
    if (!index)
        return MT_ENOMEM;
    claims->items[index].allocated_bytes += bytes;
    claims->items[index].resident_bytes += bytes;
    claims->items[index].count += count;
    return 0;
}

static int is_of_torch(struct mt_torch *torch, const struct mt_device_block *block)
{
    return torch && !block->name && mt_torch_has(torch, (uint32_t)block->pid, block->address);
}

/* A peak lasts as long as PyTorch has the same segments: from the last that it gave back before it
 * to the next one that comes or goes. */
struct span {
    uint64_t from_ns, to_ns;
};

static struct span span_of(const struct mt_devices *devices, size_t place,
                           const struct mt_device_moment *moment, struct mt_torch *torch)
{
    struct span span = {0, UINT64_MAX};
    for (size_t i = 0; torch && i < devices->n_blocks; i++) {
        const struct mt_device_block *block = &devices->blocks[i];
        if (block->place != place || !is_of_torch(torch, block))
            continue;
        if (block->end_ns <= moment->ns && block->end_ns > span.from_ns)
            span.from_ns = block->end_ns;
        if (block->begin_ns > moment->ns && block->begin_ns < span.to_ns)
            span.to_ns = block->begin_ns;
        if (block->end_ns > moment->ns && block->end_ns < span.to_ns)
            span.to_ns = block->end_ns;
    }
    return span;
}

/* Returns how many pieces, 0 where PyTorch knows nothing of it. */
static int add_pieces(struct mt_claims *claims, const struct mt_device_block *block,
                      const struct mt_device_moment *moment, const struct span *span,
                      struct mt_torch *torch)
{
    struct mt_torch_piece pieces[MT_TORCH_PIECES_MAX];
    struct mt_torch_moments moments = {moment->ns, moment->ns};
    uint32_t pid = (uint32_t)block->pid;
    if (span)
        moments = mt_torch_peak(torch, pid, block->address, moment->ns, span->from_ns, span->to_ns);
    int n = mt_torch_pieces(torch, pid, block->address, block->bytes, &moments, pieces);
    for (int i = 0; i < n; i++)
        if (add(claims, pieces[i].category, pieces[i].provenance,
                pieces[i].name ? pieces[i].name : "", pieces[i].bytes, pieces[i].count) < 0)
            return MT_ENOMEM;
    return n;
}

static int add_block(struct mt_claims *claims, const struct mt_device_block *block)
{
    if (!block->name && block->library)
        return add(claims, block->library->category, MT_PROVENANCE_DERIVED, block->library->name,
                   block->bytes, 1);
    if (!block->name && block->kind == MT_DEVICE_ARRAY)
        return add(claims, MT_CATEGORY_CACHED, MT_PROVENANCE_INFERRED, "arrays", block->bytes, 1);
    if (!block->name)
        return add(claims, MT_CATEGORY_CACHED, MT_PROVENANCE_INFERRED, NOT_TOLD, block->bytes, 1);
    enum mt_category category =
        block->category == MT_CATEGORY_NONE ? MT_CATEGORY_ACTIVATIONS : block->category;
    return add(claims, category, MT_PROVENANCE_DERIVED, block->name, block->bytes, 1);
}

int64_t mt_device_taken_in_call(const struct mt_devices *devices, size_t use,
                                enum mt_device_reason reason)
{
    const struct mt_device_use *after = &devices->uses[use];
    const struct mt_device_use *before = use ? after - 1 : after;
    if (after->reason != reason || before->reason != MT_DEVICE_BEFORE ||
        before->place != after->place || before->pid != after->pid)
        return 0;
    return (int64_t)(after->used_bytes - before->used_bytes);
}

/* What the driver took during calls of a kind. */
static uint64_t taken_by(const struct mt_devices *devices, size_t place,
                         enum mt_device_reason reason, const struct mt_device_moment *moment)
{
    int64_t sum = 0;
    for (size_t i = 0; i < devices->n_uses; i++)
        if (devices->uses[i].place == place && devices->uses[i].ns <= moment->ns)
            sum += mt_device_taken_in_call(devices, i, reason);
    return sum > 0 ? (uint64_t)sum : 0;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t at_most(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What the driver says that the recorded processes use, less what was allocated, is what it holds
 * itself. Where it says so of all processes together, other programs' memory is in it. */
static int add_driver(struct mt_claims *claims, const struct sums *sums,
                      const struct mt_device_moment *moment)
{
    int is_told = moment->others_bytes != MT_UNKNOWN;
    uint64_t rest = less(mt_device_taken(moment), sums->allocated + sums->reserved);
    uint64_t graphs = at_most(sums->graphs, rest);
    uint64_t modules = at_most(sums->modules, rest - graphs);
    uint64_t arrays = at_most(sums->arrays, rest - graphs - modules);
    int result = add(claims, MT_CATEGORY_GRAPHS, MT_PROVENANCE_MEASURED,
                     "taken by the driver as graphs were made", graphs, 0);
    if (result == 0)
        result = add(claims, MT_CATEGORY_CONTEXT, MT_PROVENANCE_MEASURED,
                     "taken by the driver as kernels were loaded", modules, 0);
    if (result == 0)
        result = add(claims, MT_CATEGORY_CACHED, MT_PROVENANCE_MEASURED,
                     "taken by the driver for arrays", arrays, 0);
    if (result < 0)
        return result;
    return add(claims, MT_CATEGORY_CONTEXT,
               is_told ? MT_PROVENANCE_MEASURED : MT_PROVENANCE_INFERRED,
               is_told ? "used by the driver for these processes"
                       : "used by the driver's word, less what was allocated; other programs' too",
               rest - graphs - modules - arrays, 0);
}

void mt_device_tell_torch(const struct mt_devices *devices, struct mt_torch *torch)
{
    for (size_t i = 0; torch && i < devices->n_labels; i++) {
        const struct mt_device_label *label = &devices->labels[i];
        mt_torch_usage(torch, (uint32_t)label->pid, label->address, label->bytes, label->ns,
                       label->category, label->name);
    }
}

int mt_device_claims(const struct mt_devices *devices, size_t place,
                     const struct mt_device_moment *moment, int is_peak, struct mt_torch *torch,
                     struct mt_claims *claims)
{
    struct span span = span_of(devices, place, moment, torch);
    struct sums sums = {.graphs = taken_by(devices, place, MT_DEVICE_BY_GRAPH, moment),
                        .modules = taken_by(devices, place, MT_DEVICE_BY_MODULE, moment),
                        .arrays = taken_by(devices, place, MT_DEVICE_BY_ARRAY, moment),
                        .reserved = mt_device_reserved(moment)};
    int result = 0;
    for (size_t i = 0; i < devices->n_blocks && result == 0; i++) {
        const struct mt_device_block *block = &devices->blocks[i];
        if (block->place != place || !mt_device_block_counts(block) ||
            !mt_device_block_is_there(block, moment))
            continue;
        *(block->kind == MT_DEVICE_POOLED ? &sums.pooled : &sums.allocated) += block->bytes;
        sums.in_arrays += block->kind == MT_DEVICE_ARRAY ? block->bytes : 0;
        if (is_of_torch(torch, block))
            result = add_pieces(claims, block, moment, is_peak ? &span : NULL, torch);
        if (result >= 0)
            result = result ? 0 : add_block(claims, block);
    }
    /* From outside nobody says what for. */
    if (moment->seen_bytes != MT_UNKNOWN && !moment->allocated_bytes &&
        moment->used_bytes == MT_UNKNOWN)
        claims->items[0].resident_bytes += moment->seen_bytes;
    sums.arrays = less(sums.arrays, sums.in_arrays);
    sums.graphs = less(sums.graphs, moment->graph_bytes);
    if (result == 0)
        result = add(claims, MT_CATEGORY_CACHED, MT_PROVENANCE_MEASURED,
                     "held free by pools of the driver",
                     less(sums.reserved, moment->graph_bytes + sums.pooled), 0);
    if (result == 0)
        result = add(claims, MT_CATEGORY_GRAPHS, MT_PROVENANCE_MEASURED,
                     "memory of the nodes of graphs", moment->graph_bytes, 0);
    if (result < 0 || moment->used_bytes == MT_UNKNOWN)
        return result;
    return add_driver(claims, &sums, moment);
}
