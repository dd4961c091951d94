/* SPDX-License-Identifier: MIT */
/* What captures took beside their pools, against a plain model: a made-up run says of each byte
 * which bucket it is for, and writes the trace and the device's list as the helper and the recorder
 * would. */
#include "tests/support/unit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <memtally/graphs.h>
#include <memtally/units.h>

#include "pytorch/graphs.h"
#include "pytorch/torch.h"

enum { GRAPHS_MAX = 24, PROCESSES = 2, DEVICES = 2 };

struct buckets {
    uint64_t pool, workspace, driver, library, statics;
};

/* One process on one device. */
struct stage {
    uint32_t pid, device;
    uint64_t next_address;
    size_t n_graphs;
    struct buckets expected[GRAPHS_MAX];
};

struct run {
    char folder[64];
    FILE *trace[PROCESSES];
    struct stage stages[PROCESSES][DEVICES];
    struct mt_graph_takings takings;
    uint64_t ns;
    uint64_t held_bytes; /* of all devices */
    uint64_t outside_ns; /* added to the time of a taking: a lie */
    int64_t lie_bytes;   /* of which the device knows nothing */
    uint64_t random;
};

static uint64_t below(struct run *run, uint64_t limit)
{
    run->random = run->random * 6364136223846793005u + 1442695040888963407u;
    return (run->random >> 33) % limit;
}

static uint64_t pass(struct run *run)
{
    return run->ns += 1 + below(run, 1000);
}

static void take(struct run *run, const struct stage *stage, uint64_t address, uint64_t bytes)
{
    const struct mt_graph_taking taking = {stage->pid, run->ns + run->outside_ns, address, bytes};
    assert_int_equal(mt_graph_takings_add(&run->takings, &taking), 0);
    run->held_bytes += bytes;
}

/* A segment with one block that fills it. Returns its address. */
static uint64_t make_block(struct run *run, struct stage *stage, FILE *trace, uint64_t bytes,
                           int is_private)
{
    uint64_t address = stage->next_address;
    stage->next_address += bytes;
    take(run, stage, address, bytes);
    fprintf(trace, "s %u %" PRIu64 " %" PRIx64 " %" PRIu64 "\n", stage->device, run->ns, address,
            bytes);
    if (is_private)
        fprintf(trace, "p %" PRIx64 "\n", address);
    fprintf(trace, "a %u %" PRIu64 " %" PRIx64 " %" PRIu64 "\n", stage->device, run->ns, address,
            bytes);
    return address;
}

static uint64_t some_bytes(struct run *run)
{
    return 512 * (1 + below(run, 4096));
}

/* What a program does between two captures. */
static void prepare(struct run *run, struct stage *stage, FILE *trace)
{
    for (uint64_t n = below(run, 6); n > 0; n--) {
        uint64_t bytes = some_bytes(run), way = below(run, 5);
        pass(run);
        if (way == 0) { /* it takes its workspace itself, outside of any capture */
            take(run, stage, 0, bytes);
            continue;
        }
        uint64_t address =
            make_block(run, stage, trace, bytes, way == 4); /* of a pool, beside it */
        if (way == 4)
            continue;
        if (way == 1) {
            stage->expected[stage->n_graphs].statics += bytes;
        } else if (way == 2) {
            fprintf(trace, "h %" PRIu64 " %" PRIx64 " weights parameters\n", run->ns, address);
        } else {
            fprintf(trace, "f %u %" PRIu64 " %" PRIx64 "\n", stage->device, pass(run), address);
        }
    }
}

static void capture(struct run *run, struct stage *stage, FILE *trace)
{
    struct buckets *its = &stage->expected[stage->n_graphs];
    uint64_t begin_ns = pass(run), number = stage->device * 1000 + ++stage->n_graphs;
    for (uint64_t n = below(run, 5); n > 0; n--) {
        uint64_t bytes = some_bytes(run), way = below(run, 3);
        pass(run);
        if (way == 0) {
            take(run, stage, below(run, 2) ? 0 : UINT64_C(0x900000000000), bytes);
            its->library += bytes;
            continue;
        }
        uint64_t address = make_block(run, stage, trace, bytes, 1);
        its->pool += bytes;
        if (way == 1)
            continue;
        its->workspace += bytes;
        fprintf(trace, "h %" PRIu64 " %" PRIx64 " workspace cuBLAS\n", run->ns, address);
    }
    its->driver = below(run, 3) ? 0 : 4096 * below(run, 1000);
    run->held_bytes += its->driver;
    fprintf(trace,
            "x %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " 3 10 20 %" PRIu64 " %" PRIu64
            " 0 FULL\n",
            stage->device, pass(run), number, its->pool, its->driver + its->library, number,
            number);
    fprintf(trace, "w %" PRIu64 " %" PRIu64 " 0 0\n", number, begin_ns);
}

static void tell_nothing(void *context, struct mt_torch *torch)
{
    (void)context, (void)torch;
}

static int list(void *context, struct mt_graph_takings *takings)
{
    const struct run *run = context;
    for (size_t i = 0; i < run->takings.n; i++)
        assert_int_equal(mt_graph_takings_add(takings, &run->takings.items[i]), 0);
    return 0;
}

static int total(void *context, uint64_t ns, uint64_t *bytes)
{
    const struct run *run = context;
    assert_true(ns <= run->ns);
    *bytes = run->held_bytes + (uint64_t)run->lie_bytes;
    return 0;
}

static void begin(struct run *run, uint64_t seed)
{
    *run = (struct run){.ns = 1000000, .random = seed};
    snprintf(run->folder, sizeof run->folder, "/tmp/memtally-buckets-XXXXXX");
    assert_non_null(mkdtemp(run->folder));
    for (uint32_t p = 0; p < PROCESSES; p++) {
        char path[96];
        snprintf(path, sizeof path, "%s/torch-%u.trace", run->folder, p + 7);
        run->trace[p] = fopen(path, "w");
        assert_non_null(run->trace[p]);
        fputs("memtally-torch 1\n", run->trace[p]);
        for (uint32_t d = 0; d < DEVICES; d++)
            run->stages[p][d] =
                (struct stage){.pid = p + 7, .device = d, .next_address = (uint64_t)(d + 1) << 40};
    }
}

static struct mt_graphs *end(struct run *run)
{
    const struct mt_graph_source source = {run, tell_nothing, list, total};
    struct mt_graphs *graphs;
    for (size_t p = 0; p < PROCESSES; p++)
        fclose(run->trace[p]);
    assert_int_equal(mt_graphs_make(run->folder, &source, &graphs, NULL), 0);
    return graphs;
}

static void clean_up(struct run *run, struct mt_graphs *graphs)
{
    for (unsigned p = 0; p < PROCESSES; p++) {
        char path[96];
        snprintf(path, sizeof path, "%s/torch-%u.trace", run->folder, p + 7);
        unlink(path);
    }
    rmdir(run->folder);
    free(run->takings.items);
    mt_graphs_destroy(graphs);
}

/* Both devices of a process take turns, as ranks and their threads do. */
static void play(struct run *run)
{
    size_t n = 2 + below(run, GRAPHS_MAX - 2);
    for (size_t i = 0; i < n; i++)
        for (size_t p = 0; p < PROCESSES; p++)
            for (size_t d = 0; d < DEVICES; d++) {
                prepare(run, &run->stages[p][d], run->trace[p]);
                capture(run, &run->stages[p][d], run->trace[p]);
            }
}

static const struct buckets *expected_of(const struct run *run, const struct mt_graph *graph)
{
    return &run->stages[graph->pid - 7][graph->device].expected[graph->batch % 1000 - 1];
}

/* How many graphs have another bucket than the model says. */
static size_t count_wrong(const struct run *run, const struct mt_graphs *graphs)
{
    size_t n = 0;
    for (size_t i = 0; i < graphs->n; i++) {
        const struct mt_graph *graph = &graphs->graphs[i];
        const struct buckets *its = expected_of(run, graph);
        int is_first = graph->batch % 1000 == 1;
        n += graph->pool_bytes != its->pool || graph->workspace_bytes != its->workspace ||
             graph->driver_bytes != its->driver || graph->library_bytes != its->library ||
             graph->static_bytes != (is_first ? MT_UNKNOWN : its->statics);
    }
    return n;
}

static void test_each_byte_is_in_the_bucket_that_the_run_took_it_for(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct run run;
        begin(&run, seed);
        play(&run);
        struct mt_graphs *graphs = end(&run);
        assert_int_equal(graphs->n, PROCESSES * DEVICES * run.stages[0][0].n_graphs);
        assert_int_equal(count_wrong(&run, graphs), 0);
        clean_up(&run, graphs);
    }
}

static void test_buckets_and_the_rest_are_the_total(void **state)
{
    (void)state;
    struct run run;
    begin(&run, 77);
    play(&run);
    struct mt_graphs *graphs = end(&run);
    uint64_t pool = 0, driver = 0, library = 0, statics = 0;
    for (size_t i = 0; i < graphs->n; i++) {
        pool += graphs->graphs[i].pool_bytes;
        driver += graphs->graphs[i].driver_bytes;
        library += graphs->graphs[i].library_bytes;
        statics +=
            graphs->graphs[i].static_bytes == MT_UNKNOWN ? 0 : graphs->graphs[i].static_bytes;
    }
    assert_true(pool > 0 && driver > 0 && library > 0 && statics > 0);
    assert_int_equal(graphs->pool_bytes, pool);
    assert_int_equal(graphs->driver_bytes, driver);
    assert_int_equal(graphs->library_bytes, library);
    assert_int_equal(graphs->static_bytes, statics);
    assert_int_equal(graphs->total_bytes, run.held_bytes);
    assert_int_equal(pool + driver + library + statics + graphs->rest_bytes, run.held_bytes);
    clean_up(&run, graphs);
}

/* The device's list is late by a second: what libraries took lies in no capture then. */
static void test_takings_of_another_time_are_found_out(void **state)
{
    (void)state;
    struct run run;
    begin(&run, 5);
    run.outside_ns = 1000000000;
    play(&run);
    struct mt_graphs *graphs = end(&run);
    assert_true(count_wrong(&run, graphs) > 0);
    assert_int_equal(graphs->library_bytes, 0);
    clean_up(&run, graphs);
}

/* A total below the buckets is of other memory than they are. */
static void test_a_total_that_buckets_do_not_fit_into_is_not_told(void **state)
{
    (void)state;
    struct run run;
    begin(&run, 6);
    play(&run);
    run.lie_bytes = -(int64_t)run.held_bytes;
    struct mt_graphs *graphs = end(&run);
    assert_true(graphs->pool_bytes > 0);
    assert_true(graphs->total_bytes == MT_UNKNOWN && graphs->rest_bytes == MT_UNKNOWN);
    clean_up(&run, graphs);
}

static void test_without_a_source_libraries_stay_with_the_driver(void **state)
{
    (void)state;
    struct run run;
    struct mt_graphs *graphs;
    begin(&run, 8);
    play(&run);
    for (size_t p = 0; p < PROCESSES; p++)
        fclose(run.trace[p]);
    assert_int_equal(mt_graphs_make(run.folder, NULL, &graphs, NULL), 0);
    for (size_t i = 0; i < graphs->n; i++) {
        const struct mt_graph *graph = &graphs->graphs[i];
        const struct buckets *its = expected_of(&run, graph);
        assert_true(graph->library_bytes == MT_UNKNOWN);
        assert_int_equal(graph->driver_bytes, its->driver + its->library);
    }
    assert_true(graphs->total_bytes == MT_UNKNOWN);
    clean_up(&run, graphs);
}

/* A segment of a pool, whose place is a common one's later: each block is of the segment of its
 * time. */
static void test_a_block_is_of_the_segment_that_lived_there_then(void **state)
{
    (void)state;
    struct run run;
    struct mt_torch *torch;
    struct mt_torch_life life[2];
    begin(&run, 9);
    fputs("s 0 100 10000 4096\np 10000\na 0 110 10000 512\nf 0 200 10000\ne 0 210 10000\n"
          "s 0 300 10000 4096\na 0 310 10000 512\n",
          run.trace[0]);
    for (size_t p = 0; p < PROCESSES; p++)
        fclose(run.trace[p]);
    assert_int_equal(mt_torch_open(run.folder, &torch, NULL), 0);
    assert_true(mt_torch_life_at(torch, 7, 0, &life[0]) && mt_torch_life_at(torch, 7, 1, &life[1]));
    assert_true(life[0].begin_ns == 110 && life[0].is_private);
    assert_true(life[1].begin_ns == 310 && !life[1].is_private);
    mt_torch_close(torch);
    clean_up(&run, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_block_is_of_the_segment_that_lived_there_then),
        cmocka_unit_test(test_each_byte_is_in_the_bucket_that_the_run_took_it_for),
        cmocka_unit_test(test_buckets_and_the_rest_are_the_total),
        cmocka_unit_test(test_takings_of_another_time_are_found_out),
        cmocka_unit_test(test_a_total_that_buckets_do_not_fit_into_is_not_told),
        cmocka_unit_test(test_without_a_source_libraries_stay_with_the_driver),
    };
    return RUN_TESTS(tests);
}
