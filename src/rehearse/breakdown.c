/* SPDX-License-Identifier: MIT */
/* Splitting what was allocated by what it is for: the account's own word, PyTorch's allocator where
 * the program leaves a trace of it, the table of GPUs for what no program says. */
#include "breakdown.h"

#include <stdlib.h>
#include <string.h>

#include <memtally/error_code.h>
#include <memtally/provenance.h>

#include "base/array.h"
#include "base/bisect.h"
#include "base/invariant.h"
#include "gpu/gpus.h"
#include "pytorch/torch.h"

#define UNSPLIT "allocated, and not told what for"

/* A moment of a place. */
struct moment {
    uint64_t at_ns; /* by the monotonic clock, like the others */
    int is_peak;
    uint64_t from_ns, to_ns; /* of a peak: while PyTorch's allocator gave nothing back */
};

static int add(struct mt_breakdown *parts, const struct mt_breakdown_part *part)
{
    if (mt_array_reserve(parts->items, parts->n, parts->capacity, 256) < 0)
        return MT_ENOMEM;
    parts->items[parts->n++] = *part;
    return 0;
}

int mt_breakdown_compare(const struct mt_breakdown_part *one, const struct mt_breakdown_part *other)
{
    if (one->category != other->category)
        return one->category < other->category ? -1 : 1;
    if (one->provenance != other->provenance)
        return one->provenance < other->provenance ? -1 : 1;
    int order = strcmp(one->name, other->name);
    return order ? order : strcmp(one->detail, other->detail);
}

int mt_breakdown_is_valid(const struct mt_breakdown *parts)
{
    for (size_t i = 0; i < parts->n; i++) {
        const struct mt_breakdown_part *part = &parts->items[i];
        if (part->low_bytes > part->bytes || part->bytes > part->high_bytes || !part->name ||
            (i && mt_breakdown_compare(&parts->items[i - 1], part) > 0))
            return 0;
    }
    return 1;
}

static int by_kind(const void *a, const void *b)
{
    return mt_breakdown_compare(a, b);
}

static uint64_t scaled(uint64_t bytes, uint64_t by, uint64_t of)
{
    return of ? (uint64_t)((double)bytes * ((double)by / (double)of)) : bytes;
}

/* What the driver and NCCL take for themselves is a figure of the table, which has a band, unless
 * this very card was measured. */
static void bound_by_table(const struct mt_gpu_spec *gpu, struct mt_breakdown_part *part)
{
    struct mt_gpu_row row;
    if (mt_gpu_find(gpu->name, &row, NULL) < 0)
        return;
    struct mt_gpu_band band = row.context;
    int is_measured = 0;
    if (part->category == MT_CATEGORY_COMMUNICATION)
        band =
            part->bytes < row.communication_many.bytes ? row.communication : row.communication_many;
    else if (part->category == MT_CATEGORY_GRAPHS)
        band = row.graph_node;
    else if (strstr(part->name, "kernel"))
        band = row.modules;
    if (part->category == MT_CATEGORY_GRAPHS)
        is_measured = gpu->graph_node_bytes != band.bytes;
    else if (part->category == MT_CATEGORY_CONTEXT && !strstr(part->name, "kernel"))
        is_measured = gpu->context_bytes != band.bytes;
    if (is_measured) {
        part->provenance = MT_PROVENANCE_CALIBRATED;
        return;
    }
    part->provenance = MT_PROVENANCE_DERIVED;
    part->low_bytes = scaled(part->bytes, band.low_bytes, band.bytes);
    part->high_bytes = scaled(part->bytes, band.high_bytes, band.bytes);
}

/* Parts of pools that libraries were told of and that are there at a moment, by process and
 * address. */
struct told {
    const struct mt_purpose **at;
    size_t n;
};

static int by_address(const void *a, const void *b)
{
    const struct mt_purpose *one = *(const struct mt_purpose *const *)a;
    const struct mt_purpose *other = *(const struct mt_purpose *const *)b;
    if (one->pid != other->pid)
        return one->pid < other->pid ? -1 : 1;
    return (one->object > other->object) - (one->object < other->object);
}

static int find_told(const struct mt_account_reader *reader, uint8_t place,
                     const struct moment *moment, struct told *told)
{
    *told = (struct told){0};
    if (!reader->n_told)
        return 0;
    told->at = calloc(reader->n_told, sizeof *told->at);
    if (!told->at)
        return MT_ENOMEM;
    for (size_t i = 0; i < reader->n_told; i++) {
        const struct mt_purpose *one = &reader->told[i];
        if (one->place == place && one->time_ns <= moment->at_ns && one->end_ns > moment->at_ns)
            told->at[told->n++] = one;
    }
    qsort(told->at, told->n, sizeof *told->at, by_address);
    return 0;
}

static size_t first_told(const struct told *told, uint32_t pid, uint64_t address)
{
    struct mt_bisect place = {.end = told->n};
    while (mt_bisect_next(&place)) {
        const struct mt_purpose *one = told->at[place.middle];
        mt_bisect_turn(&place, one->pid < pid || (one->pid == pid && one->object < address));
    }
    return place.first;
}

/* What a pool of the driver took: parts of it are what libraries were told they are, and whether
 * the rest is free nobody says. */
static int add_pool(const struct told *told, const struct mt_noted *noted,
                    struct mt_breakdown *parts)
{
    const struct mt_rehearsal_event *event = &noted->event;
    uint64_t end = noted->object + event->bytes;
    uint64_t at = noted->object;
    struct mt_breakdown_part part = {
        .provenance = MT_PROVENANCE_DERIVED, .count = 1, .name = event->name};
    uint64_t left = event->bytes;
    for (size_t i = first_told(told, (uint32_t)event->pid, at); i < told->n; i++) {
        const struct mt_purpose *one = told->at[i];
        if (one->pid != (uint32_t)event->pid || one->object >= end)
            break;
        uint64_t first = one->object > at ? one->object : at;
        uint64_t last = one->bytes < end - one->object ? one->object + one->bytes : end;
        if (last <= first)
            continue;
        at = last;
        part.category = one->category;
        part.detail = one->name;
        part.bytes = part.low_bytes = part.high_bytes = at - first;
        left -= at - first;
        if (add(parts, &part) < 0)
            return MT_ENOMEM;
    }
    part.category = MT_CATEGORY_CACHED;
    part.provenance = MT_PROVENANCE_INFERRED;
    part.detail = UNSPLIT;
    part.bytes = part.low_bytes = part.high_bytes = left;
    parts->unsplit_bytes += left;
    return left ? add(parts, &part) : 0;
}

/* An allocation as the account has it. Buffers of ggml's whose use the engine does not tell are for
 * computing: outputs, as a rule. Of CUDA's what a library was told of another allocator's memory
 * may be over, and how much it takes for itself its look-alike knows by a rule. */
static int add_whole(const struct mt_breakdown_source *source, uint8_t place,
                     const struct mt_noted *noted, struct mt_breakdown *parts)
{
    const struct mt_rehearsal_event *event = &noted->event;
    struct mt_breakdown_part part = {.category = event->category,
                                     .provenance = MT_PROVENANCE_EXACT,
                                     .bytes = event->bytes,
                                     .low_bytes = event->bytes,
                                     .high_bytes = event->bytes,
                                     .count = 1,
                                     .name = event->name,
                                     .detail = event->detail};
    int is_device = place != MT_ACCOUNT_HOST;
    if (source->is_cuda && (noted->was_told || part.category == MT_CATEGORY_WORKSPACE))
        part.provenance = MT_PROVENANCE_DERIVED;
    if (!part.category && !source->is_cuda)
        part.category = MT_CATEGORY_ACTIVATIONS;
    if (!part.category && is_device && !strcmp(event->name, MT_ACCOUNT_SHARED_NAME)) {
        part.category = MT_CATEGORY_COMMUNICATION; /* all-reduces of an engine's own */
        part.provenance = MT_PROVENANCE_INFERRED;
    }
    if (!part.category) {
        part.category = is_device ? MT_CATEGORY_CACHED : MT_CATEGORY_RUNTIME;
        part.provenance = MT_PROVENANCE_INFERRED;
        part.detail = is_device ? UNSPLIT : event->detail;
        parts->unsplit_bytes += is_device ? event->bytes : 0;
    }
    if (source->is_cuda && is_device &&
        (event->category == MT_CATEGORY_CONTEXT || event->category == MT_CATEGORY_COMMUNICATION ||
         strcmp(event->name, PRETEND_GRAPH_NODES) == 0))
        bound_by_table(&source->reader->account->device[place].gpu, &part);
    return add(parts, &part);
}

/* An allocation as PyTorch's allocator divided it. Returns how many pieces, 0 where it is none of
 * PyTorch's. */
static int add_pieces(const struct mt_breakdown_source *source, const struct mt_noted *noted,
                      const struct moment *moment, struct mt_breakdown *parts)
{
    struct mt_torch_piece pieces[MT_TORCH_PIECES_MAX];
    uint32_t pid = (uint32_t)noted->event.pid;
    struct mt_torch_moments moments = {moment->at_ns, moment->at_ns};
    if (moment->is_peak)
        moments = mt_torch_peak(source->torch, pid, noted->object, moment->at_ns, moment->from_ns,
                                moment->to_ns);
    int n =
        mt_torch_pieces(source->torch, pid, noted->object, noted->event.bytes, &moments, pieces);
    for (int i = 0; i < n; i++) {
        const struct mt_breakdown_part part = {.category = pieces[i].category,
                                               .provenance = pieces[i].provenance,
                                               .bytes = pieces[i].bytes,
                                               .low_bytes = pieces[i].bytes,
                                               .high_bytes = pieces[i].bytes,
                                               .count = pieces[i].count,
                                               .name = pieces[i].name ? pieces[i].name : "",
                                               .detail = ""};
        if (add(parts, &part) < 0)
            return MT_ENOMEM;
    }
    return n;
}

/* Whether the driver gave it out for whatever the program wants: PyTorch's allocator may have had
 * it for several things in turn, of which a library was told of one. */
static int is_open(const struct mt_noted *noted)
{
    return !noted->event.category || noted->was_told;
}

static int add_noted(const struct mt_breakdown_source *source, uint8_t place,
                     const struct mt_noted *noted, const struct moment *moment,
                     const struct told *told, struct mt_breakdown *parts)
{
    int n = 0;
    if (source->torch && source->is_cuda && is_open(noted) && place != MT_ACCOUNT_HOST)
        n = add_pieces(source, noted, moment, parts);
    if (n)
        return n < 0 ? n : 0;
    if (source->is_cuda && mt_noted_is_pool(noted))
        return add_pool(told, noted, parts);
    return add_whole(source, place, noted, parts);
}

/* Whether an event changes of what memory PyTorch's allocator gives out at a place. */
static int is_of_torch(const struct mt_breakdown_source *source, const char *name,
                       const struct mt_noted *noted)
{
    const struct mt_rehearsal_event *event = &noted->event;
    return (event->kind == MT_REHEARSAL_ALLOC || event->kind == MT_REHEARSAL_FREE) &&
           is_open(noted) && strcmp(event->place, name) == 0 && source->torch &&
           mt_torch_has(source->torch, (uint32_t)event->pid, noted->object);
}

/* A peak lasts as long as PyTorch has the same segments: kernels' code, communicators and what else
 * the driver gives out meanwhile do not change how these are divided. Segments that came on the way
 * to it held nothing before. */
static struct moment moment_at(const struct mt_breakdown_source *source, const char *name,
                               size_t at, int is_peak)
{
    const struct mt_account_reader *reader = source->reader;
    const struct mt_noted *noted = mt_account_reader_at(reader, at);
    struct moment moment = {.is_peak = is_peak, .to_ns = UINT64_MAX};
    uint64_t start_ns = reader->account->start_ns;
    if (!noted)
        return moment;
    moment.at_ns = start_ns + noted->event.time_ns;
    if (!is_peak || !source->torch)
        return moment;
    for (size_t i = at + 1; i-- > 0 && !moment.from_ns;) {
        noted = mt_account_reader_at(reader, i);
        if (noted->event.kind == MT_REHEARSAL_FREE && is_of_torch(source, name, noted))
            moment.from_ns = start_ns + noted->event.time_ns;
    }
    while ((noted = mt_account_reader_at(reader, ++at)) != NULL &&
           !is_of_torch(source, name, noted))
        ;
    if (noted)
        moment.to_ns = start_ns + noted->event.time_ns;
    return moment;
}

int mt_breakdown_count(const struct mt_breakdown_source *source,
                       const struct mt_rehearsal_event *event)
{
    if (source->is_cuda && !(event->flags & MT_REHEARSAL_PINNED) && !strcmp(event->place, "host"))
        return 0;
    return source->counts_plans || !(event->flags & MT_REHEARSAL_PLANNED);
}

/* Events that found no room are missing from the sum, and not from what the device counts. */
static int add_rest(const struct mt_breakdown_source *source, uint8_t place,
                    struct mt_breakdown *parts)
{
    const struct mt_account *account = source->reader->account;
    struct mt_breakdown_part part = {.category = MT_CATEGORY_CACHED,
                                     .provenance = MT_PROVENANCE_INFERRED,
                                     .count = 1,
                                     .name = "allocations that found no room in the account",
                                     .detail = ""};
    uint64_t sum = 0;
    if (place == MT_ACCOUNT_HOST || !mt_account_is_full(account))
        return 0;
    for (size_t i = 0; i < parts->n; i++)
        sum += parts->items[i].bytes;
    uint64_t peak = __atomic_load_n(&account->device[place].peak_bytes, __ATOMIC_RELAXED);
    if (peak <= sum)
        return 0;
    part.bytes = part.low_bytes = part.high_bytes = peak - sum;
    parts->unsplit_bytes += part.bytes;
    return add(parts, &part);
}

/* What the program went without, and would take on a true device. */
static int add_absent(const struct mt_breakdown_source *source, const char *place,
                      struct mt_breakdown *parts)
{
    const struct mt_noted *noted;
    for (size_t i = 0; (noted = mt_account_reader_at(source->reader, i)) != NULL; i++) {
        const struct mt_rehearsal_event *event = &noted->event;
        const struct mt_breakdown_part part = {.category = event->category,
                                               .provenance = MT_PROVENANCE_ASSUMED,
                                               .high_bytes = event->bytes,
                                               .name = "switched itself off in the rehearsal",
                                               .detail = ""};
        if (event->kind == MT_REHEARSAL_NOTE && event->bytes && !strcmp(event->place, place) &&
            add(parts, &part) < 0)
            return MT_ENOMEM;
    }
    return 0;
}

int mt_breakdown_gather(const struct mt_breakdown_source *source, uint8_t place, size_t after,
                        int is_peak, struct mt_breakdown *parts)
{
    const char *name = mt_place_name(place);
    const struct moment moment = moment_at(source, name, after, is_peak);
    const struct mt_noted *noted;
    struct told told;
    parts->n = 0;
    parts->unsplit_bytes = 0;
    int result = find_told(source->reader, place, &moment, &told);
    for (size_t i = 0;
         result == 0 && i <= after && (noted = mt_account_reader_at(source->reader, i)) != NULL;
         i++) {
        const struct mt_rehearsal_event *event = &noted->event;
        if (event->kind != MT_REHEARSAL_ALLOC || noted->freed_at <= after ||
            strcmp(event->place, name) != 0 || !mt_breakdown_count(source, event))
            continue;
        result = add_noted(source, place, noted, &moment, &told, parts);
    }
    free(told.at);
    if (result < 0)
        return result;
    if (is_peak && (add_rest(source, place, parts) < 0 || add_absent(source, name, parts) < 0))
        return MT_ENOMEM;
    if (parts->n)
        qsort(parts->items, parts->n, sizeof *parts->items, by_kind);
    MT_HOLDS(mt_breakdown_is_valid(parts));
    return 0;
}

void mt_breakdown_finish(struct mt_breakdown *parts)
{
    free(parts->items);
    *parts = (struct mt_breakdown){0};
}
