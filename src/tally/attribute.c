/* SPDX-License-Identifier: MIT */
/* Painting the address space with claims, weakest first, and counting the picture's pages by them.
 *
 * From weakest to strongest: the shape of a mapping, what was mapped before the first event, where
 * the heap was seen, what the kernel calls a mapping, what the recorder saw mapped and the threads'
 * stacks, the recorder's own memory, heap blocks, engine buffers, labels. Every byte of a resident
 * page gets the strongest claim on it, so that claims add up to the picture whatever overlaps. */
#include "tally/attribute.h"

#include <stdlib.h>
#include <string.h>

#include <memtally/error_code.h>
#include <memtally/units.h>

#include "tally/callers.h"
#include "tally/held.h"
#include "tally/paint.h"

#define ARENA_BYTES      ((uint64_t)64 << 20)
#define MOST_GUARD_BYTES ((uint64_t)64 << 10)

struct painter {
    const struct mt_subject *subject;
    const struct mt_replay *replay;
    struct mt_claims *claims;
    struct mt_maps maps;
    struct mt_paint paint;
    struct mt_layer *layer; /* of the paint, that is painted now */
    struct mt_table models; /* files that an engine made buffers over, by mt_vma_file() */
    size_t heap;            /* the claim for the arenas' pages, divided at the end */
    size_t own;
    uint64_t labelled_bytes; /* of blocks that are counted, not located */
    uint64_t unseen_bytes;   /* unattributed, in mappings that no call was seen for */
    int failed;
};

static size_t claim(struct painter *painter, enum mt_category category,
                    enum mt_provenance provenance, const char *name)
{
    size_t made = mt_claim_of(painter->claims, category, provenance, name, strlen(name));
    painter->failed |= made == 0;
    return made;
}

static struct mt_claim *claim_at(struct painter *painter, size_t index)
{
    return &painter->claims->items[index];
}

static void put(struct painter *painter, uint64_t low, uint64_t high, size_t index)
{
    painter->failed |= mt_paint_put(painter->layer, low, high, index) < 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static int ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);
    size_t tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static int is_model_file(const char *name)
{
    return ends_with(name, ".gguf") || ends_with(name, ".safetensors");
}

static size_t claim_of_file(struct painter *painter, const struct mt_vma *vma)
{
    const char *name = base_name(vma->name);
    uint64_t any;
    if (mt_table_get(&painter->models, mt_vma_file(vma), &any))
        return claim(painter, MT_CATEGORY_WEIGHTS, MT_PROVENANCE_MEASURED, name);
    if (is_model_file(vma->name))
        return claim(painter, MT_CATEGORY_WEIGHTS, MT_PROVENANCE_INFERRED, name);
    if (ends_with(name, ".mtr") || strcmp(name, "libmemtally-record.so") == 0)
        return painter->own;
    return claim(painter, MT_CATEGORY_RUNTIME, MT_PROVENANCE_MEASURED, name);
}

static size_t unknown_size(struct painter *painter, size_t index)
{
    claim_at(painter, index)->allocated_unknown = 1;
    return index;
}

/* "[anon:NAME]": the program or its allocator named the mapping. glibc names its arenas so. */
static size_t claim_of_anonymous(struct painter *painter, const struct mt_vma *vma)
{
    if (!*vma->name)
        return 0;
    if (strncmp(vma->name, "[anon: glibc: malloc", 20) == 0)
        return painter->heap;
    return claim(painter, MT_CATEGORY_RUNTIME, MT_PROVENANCE_MEASURED, vma->name);
}

/* What a mapping is by itself; 0 where that says nothing. */
static size_t claim_of_vma(struct painter *painter, const struct mt_vma *vma)
{
    switch (vma->kind) {
    case MT_VMA_FILE:
        return claim_of_file(painter, vma);
    case MT_VMA_HEAP:
        return painter->heap;
    case MT_VMA_STACK:
        return unknown_size(painter,
                            claim(painter, MT_CATEGORY_RUNTIME, MT_PROVENANCE_MEASURED, "stacks"));
    case MT_VMA_SHARED_TENSORS:
        return claim(painter, MT_CATEGORY_ACTIVATIONS, MT_PROVENANCE_INFERRED, MT_SHARED_TENSORS);
    case MT_VMA_SPECIAL:
    case MT_VMA_SHARED_MEMORY:
        return claim(painter, MT_CATEGORY_RUNTIME, MT_PROVENANCE_MEASURED, vma->name);
    case MT_VMA_ANONYMOUS:
        return claim_of_anonymous(painter, vma);
    case MT_VMA_DEVICE:
    case MT_VMA_HUGETLB:
        return 0;
    }
    return 0;
}

static void paint_vmas(struct painter *painter)
{
    struct mt_mapped_file file = {0};
    for (size_t i = 0; i < painter->maps.n; i++) {
        const struct mt_vma *vma = &painter->maps.vmas[i];
        size_t index = claim_of_vma(painter, vma);
        if (vma->kind == MT_VMA_FILE) {
            mt_mapped_file_note(&file, vma, index);
        } else if (mt_mapped_file_is_zeroed(&file, vma, painter->replay != NULL)) {
            index = index ? index : file.claim;
            file.claim = 0;
        } else {
            file.claim = 0;
        }
        if (!index)
            continue;
        claim_at(painter, index)->count += vma->kind != MT_VMA_HEAP && vma->kind != MT_VMA_STACK;
        put(painter, vma->start, vma->end, index);
    }
}

/* Paints what of [low, high) has no claim yet. */
static void fill(struct painter *painter, uint64_t low, uint64_t high, size_t index)
{
    while (low < high) {
        struct mt_range range;
        int any = mt_ranges_at_or_after(&painter->layer->ranges, low, &range) && range.low < high;
        uint64_t gap_end = any ? range.low : high;
        if (gap_end > low)
            put(painter, low, gap_end, index);
        low = any ? range.high : high;
    }
}

static int is_plain(const struct mt_vma *vma)
{
    return vma->kind == MT_VMA_ANONYMOUS && !*vma->name && !vma->shared;
}

static int is_barred(const struct mt_vma *vma)
{
    return is_plain(vma) && !vma->readable && !vma->writable && !vma->executable;
}

/* Paints [low, high) but for files, since anonymous memory whose end went unseen does not hold what
 * was mapped in its place, and for what nobody may touch: that is reserved only. */
static void put_memory(struct painter *painter, uint64_t low, uint64_t high, size_t index)
{
    const struct mt_vma *end = painter->maps.vmas + painter->maps.n;
    for (const struct mt_vma *vma = mt_maps_at_or_after(&painter->maps, low);
         vma < end && vma->start < high; vma++) {
        if (vma->kind != MT_VMA_FILE && !is_barred(vma))
            continue;
        if (vma->start > low)
            put(painter, low, vma->start, index);
        low = vma->end;
    }
    if (low < high)
        put(painter, low, high, index);
}

/* Paints the unclaimed parts of the anonymous mappings within [low, high). */
static void paint_anonymous(struct painter *painter, uint64_t low, uint64_t high, size_t index)
{
    const struct mt_vma *end = painter->maps.vmas + painter->maps.n;
    for (const struct mt_vma *vma = mt_maps_at_or_after(&painter->maps, low);
         vma < end && vma->start < high; vma++) {
        uint64_t from = vma->start > low ? vma->start : low;
        uint64_t to = vma->end < high ? vma->end : high;
        if (vma->kind == MT_VMA_ANONYMOUS)
            fill(painter, from, to, index);
    }
}

static void paint_first_maps(struct painter *painter)
{
    const struct mt_maps *first = painter->subject->first_maps;
    size_t index = unknown_size(
        painter, claim(painter, MT_CATEGORY_RUNTIME, MT_PROVENANCE_MEASURED, "loader"));
    for (size_t i = 0; first && i < first->n; i++) {
        const struct mt_vma *vma = &first->vmas[i];
        if (vma->kind == MT_VMA_ANONYMOUS)
            paint_anonymous(painter, vma->start, vma->end, index);
    }
}

/* An arena of a thread: glibc reserves ARENA_BYTES at a multiple of them and opens as much as it
 * needs. */
static int is_arena(const struct mt_maps *maps, size_t i)
{
    const struct mt_vma *vma = &maps->vmas[i];
    return vma->start % ARENA_BYTES == 0 && i + 1 < maps->n && is_barred(&maps->vmas[i + 1]) &&
           maps->vmas[i + 1].start == vma->end && maps->vmas[i + 1].end == vma->start + ARENA_BYTES;
}

/* A thread's stack: memory behind a small piece that nobody may touch. */
static int is_guarded(const struct mt_maps *maps, size_t i)
{
    const struct mt_vma *guard = &maps->vmas[i] - 1;
    return i > 0 && is_barred(guard) && guard->end == maps->vmas[i].start &&
           guard->end - guard->start <= MOST_GUARD_BYTES;
}

/* What libc maps for itself is told by its shape where nothing else claims it: arenas that no block
 * was seen in, and stacks of threads that never allocated. Without the recorder's word on what the
 * program mapped itself, a guard says nothing. */
static void paint_shapes(struct painter *painter)
{
    size_t stacks = unknown_size(painter, claim(painter, MT_CATEGORY_RUNTIME,
                                                MT_PROVENANCE_INFERRED, "stacks, by their guard"));
    for (size_t i = 0; i < painter->maps.n; i++) {
        const struct mt_vma *vma = &painter->maps.vmas[i];
        if (!is_plain(vma) || !vma->writable)
            continue;
        if (is_arena(&painter->maps, i))
            fill(painter, vma->start, vma->end, painter->heap);
        else if (painter->replay && is_guarded(&painter->maps, i))
            fill(painter, vma->start, vma->end, stacks);
    }
}

/* Where the heap was seen wins over what was mapped at first. */
static void paint_regions(struct painter *painter)
{
    struct mt_range range;
    for (uint64_t at = 0; mt_ranges_at_or_after(&painter->replay->regions, at, &range);
         at = range.high)
        paint_anonymous(painter, range.low, range.high, painter->heap);
}

static void text_of(const struct mt_replay *replay, uint32_t index, struct mt_text *text)
{
    if (index && index < replay->texts.n && replay->texts.items[index].length)
        *text = replay->texts.items[index];
}

/* The claim of something with a scope's or label's category and name; 0 where it has none. */
static size_t claim_said(struct painter *painter, uint32_t category, uint32_t name)
{
    struct mt_text text = {"unnamed", 7};
    if (category == MT_CATEGORY_NONE)
        return 0;
    text_of(painter->replay, name, &text);
    size_t made = mt_claim_of(painter->claims, (enum mt_category)category, MT_PROVENANCE_EXACT,
                              text.text, text.length);
    painter->failed |= made == 0;
    return made;
}

static size_t claim_of_mapping(struct painter *painter, const struct mt_live *live)
{
    size_t said = claim_said(painter, live->category, live->name);
    if (said)
        return said;
    if (live->flags & MT_MAPPED_STACK)
        return unknown_size(painter,
                            claim(painter, MT_CATEGORY_RUNTIME, MT_PROVENANCE_MEASURED, "stacks"));
    if (live->flags & MT_MAPPED_FILE)
        return 0; /* the kernel's name for it says more */
    if (live->flags & MT_MAPPED_ALLOCATOR)
        return painter->heap;
    return claim(painter, MT_CATEGORY_RUNTIME, MT_PROVENANCE_EXACT, "anonymous mappings");
}

static void paint_mappings(struct painter *painter)
{
    struct mt_range range;
    for (uint64_t at = 0; mt_ranges_at_or_after(&painter->replay->maps, at, &range);
         at = range.high) {
        const struct mt_live *live = &painter->replay->live[range.value];
        size_t index = claim_of_mapping(painter, live);
        if (!index)
            continue;
        claim_at(painter, index)->count++;
        if (live->flags & MT_MAPPED_FILE)
            put(painter, range.low, range.high, index);
        else
            put_memory(painter, range.low, range.high, index);
    }
}

static size_t claim_of_leaving(struct painter *painter)
{
    return unknown_size(
        painter, claim(painter, MT_CATEGORY_CACHED, MT_PROVENANCE_INFERRED, "being given back"));
}

static void paint_leaving(struct painter *painter)
{
    const struct mt_leavings *leavings = &painter->replay->leavings;
    for (size_t i = 0; i < leavings->n; i++) {
        uint64_t low, high;
        mt_leaving_pages(leavings, i, painter->subject->page_bytes, &low, &high);
        fill(painter, low, high, claim_of_leaving(painter));
    }
}

static void paint_own(struct painter *painter)
{
    struct mt_range range;
    for (uint64_t at = 0; mt_ranges_at_or_after(&painter->replay->self, at, &range);
         at = range.high)
        put_memory(painter, range.low, range.high, painter->own);
}

static uint64_t end_of(const struct mt_live *live)
{
    return live->size > UINT64_MAX - live->address ? UINT64_MAX : live->address + live->size;
}

static int by_age(const void *a, const void *b)
{
    const struct mt_live *x = *(const struct mt_live *const *)a;
    const struct mt_live *y = *(const struct mt_live *const *)b;
    return x->born < y->born ? -1 : x->born > y->born;
}

/* What is alive in `table`, oldest first: of two that overlap the end of the older went unseen.
 * Owned by the caller; NULL where memory ran out. */
static const struct mt_live **sorted(struct painter *painter, const struct mt_table *table)
{
    const struct mt_live **items = malloc((table->n + 1) * sizeof *items);
    size_t n = 0;
    if (!items) {
        painter->failed = 1;
        return NULL;
    }
    for (size_t i = 0; i < table->capacity; i++)
        if (table->slots[i].key != UINT64_MAX)
            items[n++] = &painter->replay->live[table->slots[i].value];
    if (n)
        qsort(items, n, sizeof *items, by_age);
    return items;
}

/* The claim of blocks by who asked for them; a scope that has but a name says during what. */
static size_t claim_of_caller(struct painter *painter, uint32_t stack, uint32_t name)
{
    if (!stack)
        return painter->paint.plain_claim;
    const struct mt_stack calls = mt_replay_stack(painter->replay, stack);
    const struct mt_caller *caller = mt_caller_of(&painter->maps, &calls);
    if (!caller)
        return painter->paint.plain_claim;
    struct mt_text text = {caller->name, strlen(caller->name)};
    text_of(painter->replay, name, &text);
    size_t made = mt_claim_of(painter->claims, caller->category, MT_PROVENANCE_INFERRED, text.text,
                              text.length);
    painter->failed |= made == 0;
    return made;
}

/* The claims of blocks by their sites: of those in a scope, and of the others by their stack. */
static int find_claims_of_sites(struct painter *painter)
{
    struct mt_paint *paint = &painter->paint;
    const uint32_t n_sites = (uint32_t)painter->replay->sites.n;
    const uint32_t n_stacks = mt_replay_stacks(painter->replay);
    paint->claims = calloc(n_sites + 1u, sizeof *paint->claims);
    paint->stack_claims = calloc(n_stacks + 1u, sizeof *paint->stack_claims);
    if (!paint->claims || !paint->stack_claims)
        return MT_ENOMEM;
    for (uint32_t i = 1; i < n_sites; i++) {
        struct mt_site site = mt_replay_site(painter->replay, MT_SITE_IN_SCOPE | i);
        size_t index = claim_said(painter, site.category, site.name);
        paint->claims[i] =
            (uint32_t)(index ? index : claim_of_caller(painter, site.stack, site.name));
    }
    paint->stack_claims[0] = (uint32_t)paint->plain_claim;
    for (uint32_t i = 1; i <= n_stacks; i++)
        paint->stack_claims[i] = (uint32_t)claim_of_caller(painter, i, 0);
    return 0;
}

static void paint_blocks(struct painter *painter)
{
    const struct mt_blocks *blocks = &painter->replay->blocks;
    const struct mt_heap_block *block;
    const char *name = painter->subject->every_block ? "heap blocks" : "heap blocks from 64 KiB";
    if (!blocks->n)
        return;
    painter->paint.plain_claim = claim(painter, MT_CATEGORY_RUNTIME, MT_PROVENANCE_EXACT, name);
    painter->failed |= find_claims_of_sites(painter) < 0;
    if (painter->failed)
        return;
    for (uint64_t at = 0; (block = mt_blocks_next(blocks, &at));) {
        struct mt_claim *claim = claim_at(painter, mt_paint_claim_of(&painter->paint, block));
        claim->count++;
    }
    painter->failed |= mt_paint_blocks(&painter->paint, blocks) < 0;
}

/* llama.cpp's own words: its log speaks of a compute and of an output buffer of each type. */
static size_t claim_of_buffer(struct painter *painter, const struct mt_live *live)
{
    struct mt_text text = {"buffer", 6};
    char name[MT_MAX_STRING + 16];
    enum mt_category category = mt_buffer_category(live->category, live->usage, live->flags);
    const char *suffix = "";
    if (category == MT_CATEGORY_ACTIVATIONS)
        suffix = live->usage == MT_USAGE_COMPUTE   ? " compute"
                 : live->flags & MT_BUFFER_TENSORS ? " tensors"
                                                   : " output";
    text_of(painter->replay, live->name, &text);
    memcpy(name, text.text, text.length);
    memcpy(name + text.length, suffix, strlen(suffix));
    size_t made = mt_claim_of(painter->claims, category, MT_PROVENANCE_EXACT, name,
                              text.length + strlen(suffix));
    painter->failed |= made == 0;
    return made;
}

static void paint_buffers(struct painter *painter)
{
    const struct mt_table *buffers = &painter->replay->buffers;
    const struct mt_live **lives = sorted(painter, buffers);
    for (size_t i = 0; lives && i < buffers->n; i++) {
        if (!(lives[i]->flags & MT_BUFFER_HOST))
            continue;
        size_t index = claim_of_buffer(painter, lives[i]);
        claim_at(painter, index)->count++;
        put(painter, lives[i]->address, end_of(lives[i]), index);
    }
    free(lives);
}

static void paint_labels(struct painter *painter)
{
    struct mt_range range;
    for (uint64_t at = 0; mt_ranges_at_or_after(&painter->replay->labels, at, &range);
         at = range.high) {
        const struct mt_live *label = &painter->replay->live[range.value];
        size_t index = claim_said(painter, label->category, label->name);
        if (!index)
            continue;
        claim_at(painter, index)->count++;
        put(painter, range.low, range.high, index);
        if (label->flags & MT_LABEL_OF_BLOCK &&
            !mt_blocks_get(&painter->replay->blocks, label->address))
            painter->labelled_bytes += range.high - range.low;
    }
}

/* Without the recorder we cannot tell used heap from free heap. */
static size_t claim_of_heap(struct painter *painter)
{
    if (!painter->replay)
        return claim(painter, MT_CATEGORY_RUNTIME, MT_PROVENANCE_MEASURED, "heap");
    enum mt_provenance provenance =
        painter->subject->every_block ? MT_PROVENANCE_EXACT : MT_PROVENANCE_INFERRED;
    return unknown_size(painter,
                        claim(painter, MT_CATEGORY_CACHED, provenance, "free in heap arenas"));
}

/* A file that an engine made a buffer over is a model, whatever its name. */
static void find_models(struct painter *painter)
{
    const struct mt_table *buffers = &painter->replay->buffers;
    for (size_t i = 0; i < buffers->capacity; i++) {
        if (buffers->slots[i].key == UINT64_MAX)
            continue;
        const struct mt_live *live = &painter->replay->live[buffers->slots[i].value];
        const struct mt_vma *vma =
            live->flags & MT_BUFFER_HOST_PTR ? mt_maps_find(&painter->maps, live->address) : NULL;
        if (vma && vma->kind == MT_VMA_FILE)
            painter->failed |= mt_table_set(&painter->models, mt_vma_file(vma), 1) < 0;
    }
}

static void paint(struct painter *painter)
{
    if (painter->replay)
        find_models(painter);
    painter->layer = &painter->paint.below;
    painter->own = claim(painter, MT_CATEGORY_RUNTIME, MT_PROVENANCE_EXACT, "memtally recorder");
    painter->heap = claim_of_heap(painter);
    paint_vmas(painter);
    if (painter->replay) {
        paint_regions(painter);
        paint_first_maps(painter);
    }
    paint_shapes(painter);
    if (!painter->replay)
        return;
    paint_mappings(painter);
    paint_own(painter);
    paint_blocks(painter);
    paint_leaving(painter);
    painter->layer = &painter->paint.above;
    paint_buffers(painter);
    paint_labels(painter);
}

/* What runs, as far as the names of its files tell. */
static void find_names(struct painter *painter, struct mt_attribution *made)
{
    for (size_t i = 0; i < painter->maps.n; i++) {
        const struct mt_vma *vma = &painter->maps.vmas[i];
        if (vma->kind != MT_VMA_FILE)
            continue;
        uint64_t any;
        int is_model =
            mt_table_get(&painter->models, mt_vma_file(vma), &any) || is_model_file(vma->name);
        if (is_model && !made->model_path)
            painter->failed |= (made->model_path = strdup(vma->name)) == NULL;
        if (strncmp(base_name(vma->name), "libllama.", 9) == 0)
            made->engine_name = "llama.cpp";
    }
}

static void count_allocated(struct painter *painter)
{
    struct mt_range range;
    for (uint64_t at = 0; mt_paint_at_or_after(&painter->paint, at, &range); at = range.high) {
        struct mt_claim *claim = claim_at(painter, range.value);
        claim->allocated_bytes += range.high - range.low;
        claim->unplaced_bytes += range.low >= MT_UNPLACED_FROM ? range.high - range.low : 0;
    }
}

struct piece {
    uint64_t low;
    uint64_t high;
    size_t claim;
    uint64_t flags;
};

static void count_piece(struct painter *painter, struct mt_shared_pages *seen,
                        const struct piece *piece)
{
    struct mt_claim *claim = claim_at(painter, piece->claim);
    uint64_t bytes = piece->high - piece->low;
    uint64_t held = 0;
    claim->resident_bytes += bytes;
    claim->is_carried |= (piece->flags & MT_RUN_CARRIED) != 0;
    if (piece->low >= MT_UNPLACED_FROM)
        claim->unplaced_bytes -= bytes < claim->unplaced_bytes ? bytes : claim->unplaced_bytes;
    if (!(piece->flags & MT_RUN_FILE)) {
        const struct mt_vma *its = piece->claim ? NULL : mt_maps_find(&painter->maps, piece->low);
        painter->unseen_bytes += its && is_plain(its) && painter->replay ? bytes : 0;
        claim->anonymous_bytes += bytes;
        return;
    }
    const struct mt_vma *vma = seen ? mt_maps_find(&painter->maps, piece->low) : NULL;
    if (!vma || !vma->inode)
        return;
    uint64_t offset = vma->offset + (piece->low - vma->start);
    const struct mt_file_piece pages = {vma->device, vma->inode, offset, offset + bytes};
    painter->failed |= mt_shared_pages_note(seen, &pages, &held) < 0;
    claim->shared_bytes += held;
}

/* Divides [low, high), which lies in one mapping, by the paint. */
static void count_run(struct painter *painter, struct mt_shared_pages *seen, uint64_t low,
                      uint64_t high, uint64_t flags)
{
    while (low < high) {
        struct mt_range range;
        struct piece piece = {low, high, 0, flags};
        if (mt_paint_at_or_after(&painter->paint, low, &range)) {
            if (range.low <= low) {
                piece.claim = (size_t)range.value;
                piece.high = range.high < high ? range.high : high;
            } else if (range.low < high) {
                piece.high = range.low;
            }
        }
        count_piece(painter, seen, &piece);
        low = piece.high;
    }
}

/* Pages of devices and of hugetlbfs are not part of the resident set, nor is what lies in the
 * kernel's own special mappings of device pages. */
static int is_counted(const struct mt_vma *vma)
{
    if (vma && vma->kind == MT_VMA_SPECIAL)
        return strncmp(vma->name, "[vvar", 5) != 0;
    return !vma || (vma->kind != MT_VMA_DEVICE && vma->kind != MT_VMA_HUGETLB);
}

static uint64_t count_pages(struct painter *painter, struct mt_shared_pages *seen)
{
    const uint64_t page_bytes = painter->subject->page_bytes;
    uint64_t total = 0;
    const struct mt_vma *last = painter->maps.vmas + painter->maps.n;
    for (size_t i = 0; i < painter->subject->carried->picture.n_runs; i++) {
        const struct mt_run_pages *run = &painter->subject->carried->picture.runs[i];
        uint64_t low = run->first_page * page_bytes;
        uint64_t end = low + run->n_pages * page_bytes;
        while (low < end) {
            const struct mt_vma *next = mt_maps_at_or_after(&painter->maps, low);
            const struct mt_vma *vma = next < last && next->start <= low ? next : NULL;
            uint64_t high = vma ? vma->end : next < last ? next->start : end;
            if (high > end)
                high = end;
            if (is_counted(vma)) {
                count_run(painter, seen, low, high, run->flags);
                total += high - low;
            }
            low = high;
        }
    }
    return total;
}

/* Small blocks are counted, not located: so much of the arenas' pages is in use, the rest is free.
 * With every block located, what is left of the arenas is free. */
static void divide_heap(struct painter *painter)
{
    const struct mt_replay *replay = painter->replay;
    if (!replay)
        return;
    mt_claims_place(painter->claims, painter->heap);
    if (painter->subject->every_block)
        return;
    uint64_t in_use = mt_replay_small_bytes(replay);
    in_use -= painter->labelled_bytes < in_use ? painter->labelled_bytes : in_use;
    size_t index =
        claim(painter, MT_CATEGORY_RUNTIME, MT_PROVENANCE_INFERRED, "heap blocks below 64 KiB");
    if (!index)
        return;
    struct mt_claim *small = claim_at(painter, index);
    small->allocated_bytes = in_use;
    small->count =
        replay->small_allocs > replay->small_frees ? replay->small_allocs - replay->small_frees : 0;
    mt_claim_give(claim_at(painter, painter->heap), small, in_use);
}

/* Takes as much of what the kernel counts and nobody claims as threads may be giving back. */
static void take_leaving(struct painter *painter)
{
    uint64_t bytes = painter->subject->carried->beyond_bytes;
    uint64_t most = painter->replay ? mt_leaving_bytes(&painter->replay->leavings) : 0;
    if (most < bytes)
        bytes = most;
    if (!bytes)
        return;
    claim_at(painter, 0)->resident_bytes -= bytes;
    claim_at(painter, claim_of_leaving(painter))->resident_bytes += bytes;
}

/* Small blocks that nothing shows pages of. Those with a label are counted by it, and nobody can
 * say which of them are resident. */
static void add_small(struct painter *painter, uint64_t bytes)
{
    int every_block = painter->subject->every_block;
    struct mt_claim *small =
        claim_at(painter, claim(painter, MT_CATEGORY_RUNTIME, MT_PROVENANCE_INFERRED,
                                every_block ? "heap blocks" : "heap blocks below 64 KiB"));
    small->allocated_bytes += every_block ? bytes : 0;
    uint64_t room = small->allocated_bytes - small->resident_bytes;
    uint64_t held = bytes < room ? bytes : room;
    small->resident_bytes += held;
    small->anonymous_bytes += held;
    claim_at(painter, 0)->resident_bytes += bytes - held;
}

/* What is known to be resident without a place. */
static uint64_t add_unplaced(struct painter *painter)
{
    const struct mt_carried *carried = painter->subject->carried;
    enum mt_provenance provenance =
        carried->is_first_seen ? MT_PROVENANCE_MEASURED : MT_PROVENANCE_INFERRED;
    if (carried->first_bytes) {
        size_t first = unknown_size(
            painter, claim(painter, MT_CATEGORY_RUNTIME, provenance, "program and libraries"));
        claim_at(painter, first)->resident_bytes += carried->first_bytes;
    }
    if (carried->small_bytes)
        add_small(painter, carried->small_bytes);
    claim_at(painter, 0)->resident_bytes += carried->beyond_bytes;
    take_leaving(painter);
    return carried->first_bytes + carried->small_bytes + carried->beyond_bytes;
}

/* A process runs on while it is pictured from outside: the kernel's own sum behind it tells. */
static int is_of_one_instant(const struct painter *painter, const struct mt_attribution *made)
{
    return painter->subject->carried->picture.reason != MT_PICTURE_OUTSIDE ||
           made->rollup_bytes == made->total_resident_bytes;
}

/* What follows from events is no surer than that. Without a picture nobody saw the pages of files:
 * that they are mapped says nothing. */
static void lower_provenance(struct painter *painter, int is_consistent)
{
    int is_pictured = painter->subject->carried->picture.text[MT_TEXT_MAPS].data != NULL;
    for (size_t i = 1; i < painter->claims->n; i++) {
        struct mt_claim *claim = claim_at(painter, i);
        if (claim->provenance == MT_PROVENANCE_EXACT && !is_consistent)
            claim->provenance = MT_PROVENANCE_MEASURED;
        if (claim->is_carried && claim->provenance < MT_PROVENANCE_INFERRED)
            claim->provenance = MT_PROVENANCE_INFERRED;
        claim->allocated_unknown |= !is_pictured && claim->provenance == MT_PROVENANCE_MEASURED;
    }
}

/* A picture whose moment stands a little below the peak is shown as it was, and what the peak had
 * more is of nothing known: `raised_bytes`, in the total as in the kernel's figure. */
static void read_rollup(const struct mt_carried *carried, uint64_t raised_bytes,
                        struct mt_attribution *attribution)
{
    uint64_t resident = mt_picture_field(&carried->picture, MT_TEXT_ROLLUP, "Rss");
    if (resident == MT_UNKNOWN) /* not asked for where it says the same */
        resident = mt_picture_field(&carried->picture, MT_TEXT_STATUS, "VmRSS");
    attribution->rollup_bytes =
        carried->is_carried || resident == MT_UNKNOWN ? MT_UNKNOWN : resident + raised_bytes;
    attribution->swap_bytes = mt_picture_field(&carried->picture, MT_TEXT_STATUS, "VmSwap");
}

static void count(struct painter *painter, struct mt_shared_pages *seen,
                  struct mt_attribution *attribution)
{
    count_allocated(painter);
    attribution->total_resident_bytes = count_pages(painter, seen);
    if (seen && !painter->failed)
        painter->failed |= mt_shared_pages_commit(seen) < 0;
    divide_heap(painter);
    attribution->total_resident_bytes += add_unplaced(painter);
    const struct mt_carried *carried = painter->subject->carried;
    uint64_t raised = 0;
    if (carried->bytes != MT_UNKNOWN && carried->bytes > attribution->total_resident_bytes)
        raised = carried->bytes - attribution->total_resident_bytes;
    claim_at(painter, 0)->resident_bytes += raised;
    attribution->total_resident_bytes += raised;
    attribution->unseen_bytes = painter->unseen_bytes;
    read_rollup(carried, raised, attribution);
    lower_provenance(painter, is_of_one_instant(painter, attribution));
}

/* The mappings of the picture, or without one those from before the first event. */
static int read_maps(struct painter *painter)
{
    const struct mt_carried *carried = painter->subject->carried;
    const struct mt_bytes *text = &carried->picture.text[MT_TEXT_MAPS];
    if (text->data)
        return mt_maps_parse(text->data, text->length, &painter->maps);
    return mt_maps_copy(carried->maps, &painter->maps);
}

int mt_attribute(const struct mt_subject *subject, struct mt_shared_pages *seen,
                 struct mt_attribution *attribution)
{
    struct mt_attribution made = {0};
    struct painter painter = {
        .subject = subject, .replay = subject->replay, .claims = &made.claims};
    mt_paint_init(&painter.paint, &painter.maps);
    if (mt_claims_init(&made.claims) < 0)
        return MT_ENOMEM;
    painter.failed = read_maps(&painter) < 0;
    if (!painter.failed)
        paint(&painter);
    if (!painter.failed)
        count(&painter, seen, &made);
    if (!painter.failed)
        find_names(&painter, &made);
    mt_table_finish(&painter.models);
    mt_paint_finish(&painter.paint);
    mt_maps_finish(&painter.maps);
    if (painter.failed)
        mt_attribution_finish(&made);
    else
        *attribution = made;
    return painter.failed ? MT_ENOMEM : 0;
}

void mt_attribution_finish(struct mt_attribution *attribution)
{
    mt_claims_finish(&attribution->claims);
    free(attribution->model_path);
    attribution->model_path = NULL;
}
