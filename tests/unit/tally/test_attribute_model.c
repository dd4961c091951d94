/* SPDX-License-Identifier: MIT */
/* Random processes of 64 pages, attributed by the library and by an array with an owner for each
 * byte. Both must agree on every part, and so the parts on the whole. */
#include "recorded.h"

#include <stdio.h>
#include <string.h>

#define LOW    0x10000000ull
#define PAGES  64u
#define SPACE  (PAGES * PAGE)
#define OWNERS 16

enum owner {
    NOBODY,
    MODEL,
    LIBRARY,
    HEAP,
    LOADER,
    MAPPED,
    OWN,
    BLOCK,
    SCOPED,
    BUFFER,
    COMPUTE,
    LABEL_A,
    LABEL_B
};

static const struct {
    enum mt_category category;
    const char *name;
    int allocated_unknown;
} owners[] = {
    [MODEL] = {MT_CATEGORY_WEIGHTS, "model.gguf", 0},
    [LIBRARY] = {MT_CATEGORY_RUNTIME, "libx.so", 0},
    [HEAP] = {MT_CATEGORY_CACHED, "free in heap arenas", 1},
    [LOADER] = {MT_CATEGORY_RUNTIME, "loader", 1},
    [MAPPED] = {MT_CATEGORY_RUNTIME, "anonymous mappings", 0},
    [OWN] = {MT_CATEGORY_RUNTIME, "memtally recorder", 0},
    [BLOCK] = {MT_CATEGORY_RUNTIME, "heap blocks", 0},
    [SCOPED] = {MT_CATEGORY_KV_CACHE, "scope", 0},
    [BUFFER] = {MT_CATEGORY_WEIGHTS, "T", 0},
    [COMPUTE] = {MT_CATEGORY_ACTIVATIONS, "T compute", 0},
    [LABEL_A] = {MT_CATEGORY_GRAPHS, "a", 0},
    [LABEL_B] = {MT_CATEGORY_WORKSPACE, "b", 0},
};

enum kind { GAP, FILE_MODEL, FILE_LIBRARY, ANONYMOUS, KIND_HEAP, DEVICE };

/* A thing of a table: blocks and buffers paint in the order of their birth. */
struct thing {
    uint64_t low;
    uint64_t high;
    enum owner owner;
    int is_buffer;
};

struct process {
    struct recorded recorded;
    uint64_t random;
    uint64_t names[4]; /* scope, T, a, b */
    int in_scope;
    uint8_t kind[PAGES];
    uint8_t first[PAGES]; /* mapped before the first event */
    uint8_t mapped[SPACE];
    uint8_t own[SPACE];
    uint8_t label[SPACE];
    struct thing things[400];
    size_t n_things;
    char maps[PAGES * 80];
    char first_maps[PAGES * 80];
};

static struct process process;
static uint8_t owner[SPACE];

static uint64_t below(uint64_t limit)
{
    process.random = process.random * 6364136223846793005u + 1442695040888963407u;
    return (process.random >> 33) % limit;
}

static void fill(uint8_t *map, uint64_t low, uint64_t high, uint8_t value)
{
    memset(map + low, value, high - low);
}

static void put_line(char *text, uint64_t first, uint64_t n, const char *rest)
{
    size_t length = strlen(text);
    sprintf(text + length, "%llx-%llx %s\n", (unsigned long long)(LOW + first * PAGE),
            (unsigned long long)(LOW + (first + n) * PAGE), rest);
}

static void make_mappings(void)
{
    static const char *const lines[] = {"",
                                        "r--s 00000000 fe:00 11 /m/model.gguf",
                                        "r-xp 00000000 fe:00 12 /l/libx.so",
                                        "rw-p 00000000 00:00 0 ",
                                        "rw-p 00000000 00:00 0 [heap]",
                                        "rw-s 00000000 00:06 4 /dev/card0"};
    for (uint64_t at = 0; at < PAGES;) {
        enum kind kind = (enum kind)below(6);
        uint64_t n = 1 + below(8);
        if (n > PAGES - at)
            n = PAGES - at;
        memset(process.kind + at, (int)kind, n);
        if (kind != GAP)
            put_line(process.maps, at, n, lines[kind]);
        at += n;
    }
    for (uint64_t at = 0; at < PAGES; at++)
        if (below(4) == 0) {
            process.first[at] = 1;
            put_line(process.first_maps, at, 1, lines[ANONYMOUS]);
        }
}

/* A byte range, or one of pages. */
static void range(uint64_t *low, uint64_t *high, uint64_t unit)
{
    *low = below(SPACE / unit) * unit;
    *high = *low + (1 + below(6 * PAGE / unit)) * unit;
    if (*high > SPACE)
        *high = SPACE;
}

static void do_map(void)
{
    uint64_t low, high;
    uint64_t choice = below(4);
    uint64_t by_allocator = choice == 1 ? MT_MAP_BY_ALLOCATOR : 0;
    range(&low, &high, PAGE);
    EVENT(&process.recorded, MMAP, LOW + low, high - low, 3, by_allocator, choice == 2, 0, 0);
    fill(process.label, low, high, NOBODY);
    uint8_t value = by_allocator ? HEAP : process.in_scope ? SCOPED : MAPPED;
    if (choice == 2) /* of a file: it counts where a scope says what it is */
        value = process.in_scope ? SCOPED | 0x80 : NOBODY;
    fill(process.mapped, low, high, value);
}

static void do_unmap(void)
{
    uint64_t low, high;
    range(&low, &high, PAGE);
    EVENT(&process.recorded, MUNMAP, LOW + low, high - low);
    fill(process.mapped, low, high, NOBODY);
    fill(process.label, low, high, NOBODY);
}

static struct thing *thing_at(uint64_t low, int is_buffer)
{
    for (size_t i = 0; i < process.n_things; i++)
        if (process.things[i].low == low && process.things[i].is_buffer == is_buffer)
            return &process.things[i];
    return NULL;
}

static void drop(const struct thing *thing)
{
    size_t i = (size_t)(thing - process.things);
    memmove(&process.things[i], &process.things[i + 1],
            (--process.n_things - i) * sizeof *process.things);
}

static void do_block(void)
{
    uint64_t low, high;
    range(&low, &high, 8);
    high -= below(8);
    struct thing *old = thing_at(low, 0);
    if (old)
        drop(old); /* freed unseen */
    recorded_alloc(&process.recorded, MT_EVENT_ALLOC, LOW + low, high - low, 0);
    fill(process.label, low, high, NOBODY);
    process.things[process.n_things++] =
        (struct thing){low, high, process.in_scope ? SCOPED : BLOCK, 0};
}

static void do_buffer(void)
{
    uint64_t low, high;
    range(&low, &high, 32);
    uint64_t handle = LOW + low;
    int compute = below(2) == 0;
    struct thing *old = thing_at(low, 1);
    if (old)
        drop(old);
    EVENT(&process.recorded, BUFFER_ALLOC, handle, LOW + low, high - low, MT_BUFFER_HOST, 0,
          process.names[1], 0);
    EVENT(&process.recorded, BUFFER_USAGE, handle, compute ? MT_USAGE_COMPUTE : MT_USAGE_WEIGHTS);
    process.things[process.n_things++] = (struct thing){low, high, compute ? COMPUTE : BUFFER, 1};
}

static void do_free(void)
{
    if (!process.n_things)
        return;
    const struct thing *thing = &process.things[below(process.n_things)];
    if (thing->is_buffer) {
        EVENT(&process.recorded, BUFFER_FREE, LOW + thing->low);
    } else {
        recorded_free(&process.recorded, MT_EVENT_FREE, LOW + thing->low);
        fill(process.label, thing->low, thing->high, NOBODY);
    }
    drop(thing);
}

static void do_label(void)
{
    uint64_t low, high;
    uint64_t choice = below(4);
    range(&low, &high, 1 + below(100));
    if (choice == 3) {
        EVENT(&process.recorded, UNLABEL, LOW + low, high - low);
        fill(process.label, low, high, NOBODY);
        return;
    }
    static const enum owner labels[] = {NOBODY, LABEL_A, LABEL_B};
    EVENT(&process.recorded, LABEL, LOW + low, high - low, owners[labels[choice]].category,
          process.names[1 + choice]);
    fill(process.label, low, high, (uint8_t)labels[choice]);
}

static void do_own(void)
{
    uint64_t low, high;
    range(&low, &high, PAGE);
    EVENT(&process.recorded, SELF, LOW + low, high - low);
    fill(process.own, low, high, 1);
}

static void do_scope(void)
{
    if (process.in_scope)
        recorded_event(&process.recorded, MT_EVENT_SCOPE_END, NULL, 0);
    else
        EVENT(&process.recorded, SCOPE_BEGIN, MT_CATEGORY_KV_CACHE, process.names[0]);
    process.in_scope = !process.in_scope;
}

static void live(void)
{
    static void (*const doings[])(void) = {do_map,  do_unmap, do_block, do_block, do_buffer,
                                           do_free, do_label, do_label, do_scope};
    for (int i = 0; i < 80; i++)
        doings[below(sizeof doings / sizeof *doings)]();
    if (below(2))
        do_own();
}

/* The owner of a byte by the kernel's and the recorder's word, before blocks. */
static uint8_t owner_of_mapping(uint64_t at, int heap_was_here)
{
    enum kind kind = (enum kind)process.kind[at / PAGE];
    int is_file = kind == FILE_MODEL || kind == FILE_LIBRARY;
    uint8_t mapped = process.mapped[at];
    if (process.own[at] && !is_file)
        return OWN;
    if (mapped & 0x80)
        return mapped & 0x7f;
    if (mapped && !is_file)
        return mapped;
    if (kind == FILE_MODEL)
        return MODEL;
    if (kind == FILE_LIBRARY)
        return LIBRARY;
    if (kind == KIND_HEAP)
        return HEAP;
    if (kind != ANONYMOUS)
        return NOBODY;
    return heap_was_here ? HEAP : process.first[at / PAGE] ? LOADER : NOBODY;
}

static void paint(int heap_was_here)
{
    for (uint64_t at = 0; at < SPACE; at++)
        owner[at] = owner_of_mapping(at, heap_was_here);
    for (int buffers = 0; buffers < 2; buffers++)
        for (size_t i = 0; i < process.n_things; i++) {
            const struct thing *thing = &process.things[i];
            for (uint64_t at = thing->low; thing->is_buffer == buffers && at < thing->high; at++) {
                enum kind kind = (enum kind)process.kind[at / PAGE];
                if (buffers || (kind != FILE_MODEL && kind != FILE_LIBRARY))
                    owner[at] = (uint8_t)thing->owner;
            }
        }
    for (uint64_t at = 0; at < SPACE; at++)
        if (process.label[at])
            owner[at] = process.label[at];
}

static void assert_owners(const struct mt_tally_place *place, const uint8_t present[PAGES])
{
    uint64_t resident[OWNERS] = {0};
    uint64_t allocated[OWNERS] = {0};
    uint64_t total = 0;
    for (uint64_t at = 0; at < SPACE; at++) {
        int counts = present[at / PAGE] && process.kind[at / PAGE] != DEVICE;
        resident[owner[at]] += (uint64_t)counts;
        allocated[owner[at]]++;
        total += (uint64_t)counts;
    }
    assert_int_equal(place->total_resident_bytes, total);
    assert_int_equal(place->unattributed_bytes, resident[NOBODY]);
    for (int i = MODEL; i <= LABEL_B; i++) {
        assert_int_equal(resident_of(place, owners[i].category, owners[i].name), resident[i]);
        if (!owners[i].allocated_unknown)
            assert_int_equal(allocated_of(place, owners[i].category, owners[i].name), allocated[i]);
    }
}

static void begin(uint64_t seed)
{
    static const char *const names[] = {"scope", "T", "a", "b"};
    process = (struct process){.random = seed, .recorded = {.header = {.pid = 7}, .ns = 1000}};
    recorded_begin(&process.recorded, "7-0");
    make_mappings();
    for (size_t i = 0; i < 4; i++)
        process.names[i] = recorded_string(&process.recorded, names[i]);
    EVENT(&process.recorded, PICTURE_BEGIN, 0, MT_PICTURE_START, 0, 0);
    mt_write_bytes(&process.recorded.writer, MT_EVENT_PICTURE_TEXT, 1000, MT_TEXT_MAPS,
                   process.first_maps, strlen(process.first_maps));
    EVENT(&process.recorded, PICTURE_END, 0, 0, 0);
}

static void attribute_random_process(uint64_t seed)
{
    uint64_t runs[PAGES][3];
    uint8_t present[PAGES] = {0};
    size_t n = 0;
    begin(seed);
    int heap_was_here = below(2) == 0;
    if (heap_was_here)
        EVENT(&process.recorded, HEAP_REGION, LOW / MIB, 1);
    live();
    for (uint64_t page = 0; page < PAGES; page++)
        if (below(3)) {
            present[page] = 1;
            memcpy(runs[n++], (uint64_t[]){LOW / PAGE + page, 1, below(2)}, sizeof *runs);
        }
    process.recorded.ns = 5000;
    recorded_picture(&process.recorded,
                     &(struct recorded_picture){.reason = MT_PICTURE_EXIT,
                                                .maps = process.maps,
                                                .runs = (const uint64_t(*)[3])runs,
                                                .n_runs = n});
    recorded_end(&process.recorded, 6000);
    paint(heap_was_here);
    struct mt_tally *tally = recorded_tally(MT_MOMENT_EXIT, 0);
    assert_owners(tally->processes[0].places, present);
    assert_owners(tally->places, present); /* a tree of one */
    mt_tally_destroy(tally);
}

static void test_library_and_model_agree_on_every_part(void **state)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        assert_int_equal(recorded_setup(state), 0);
        attribute_random_process(seed);
        assert_int_equal(recorded_teardown(state), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_library_and_model_agree_on_every_part),
    };
    return RUN_TESTS(tests);
}
