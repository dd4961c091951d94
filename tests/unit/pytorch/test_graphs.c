/* SPDX-License-Identifier: MIT */
/* CUDA graphs one by one, by traces made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <memtally/graphs.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

struct runs {
    char folder[64];
    char path[2][96];
    struct mt_graphs *graphs;
};

static int set_up(void **state)
{
    struct runs *runs = calloc(1, sizeof *runs);
    snprintf(runs->folder, sizeof runs->folder, "/tmp/memtally-graphs-XXXXXX");
    assert_non_null(mkdtemp(runs->folder));
    for (int i = 0; i < 2; i++)
        snprintf(runs->path[i], sizeof runs->path[i], "%s/torch-%d.trace", runs->folder, i + 7);
    *state = runs;
    return 0;
}

static int tear_down(void **state)
{
    struct runs *runs = *state;
    mt_graphs_destroy(runs->graphs);
    unlink(runs->path[0]);
    unlink(runs->path[1]);
    rmdir(runs->folder);
    free(runs);
    return 0;
}

static void write_trace(const struct runs *runs, int which, const char *text)
{
    FILE *file = fopen(runs->path[which], "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static const struct mt_graphs *read_run(struct runs *runs)
{
    mt_graphs_destroy(runs->graphs);
    runs->graphs = NULL;
    assert_int_equal(mt_graphs_read(runs->folder, &runs->graphs, NULL), 0);
    return runs->graphs;
}

static void test_pieces_of_a_batch_are_one_graph_whose_bytes_add_up(void **state)
{
    write_trace(*state, 0,
                "memtally-torch 1\n"
                "x 0 100 1 4096 100 3 10 20 - 64 - PIECEWISE\n"
                "x 0 200 2 1000 50 4 10 20 - 64 - PIECEWISE\n"
                "x 0 300 3 0 7 5 11 30 - 32 - PIECEWISE\n");
    const struct mt_graphs *run = read_run(*state);
    assert_int_equal(run->n, 2);
    assert_int_equal(run->pieces, 3);
    assert_int_equal(run->graphs[0].pieces, 2);
    assert_int_equal(run->graphs[0].nodes, 7);
    assert_int_equal(run->graphs[0].pool_bytes, 5096);
    assert_int_equal(run->graphs[0].driver_bytes, 150);
    assert_int_equal(run->graphs[1].tokens, 32);
    assert_true(run->graphs[1].batch == MT_UNKNOWN);
    assert_int_equal(run->pool_bytes, 5096);
    assert_int_equal(run->driver_bytes, 157);
}

static void
test_a_graph_that_was_gone_before_the_last_capture_gives_back_its_pool_alone(void **state)
{
    write_trace(*state, 0,
                "memtally-torch 1\n"
                "x 0 100 1 4096 70 3 10 20 8 8 0 FULL\n"
                "x 0 200 2 4096 0 3 10 20 8 8 0 FULL\n"
                "y 250 1\n"
                "x 0 300 3 1 0 3 10 20 4 4 0 FULL\n"
                "y 400 2\n");
    const struct mt_graphs *run = read_run(*state);
    assert_int_equal(run->n, 2);
    assert_int_equal(run->dropped, 1);
    assert_int_equal(run->pool_bytes, 4097);
    assert_int_equal(run->driver_bytes, 70);
    assert_int_equal(run->dropped_driver_bytes, 70);
    assert_int_equal(run->graphs[0].driver_bytes, 0);
}

static void
test_a_graph_alone_in_its_pool_can_be_reclaimed_with_what_dropped_ones_took(void **state)
{
    write_trace(*state, 0,
                "memtally-torch 1\n"
                "s 0 50 a000 200\n"
                "p a000\n"
                "s 0 60 b000 100\n" /* of PyTorch's own pool */
                "x 0 100 1 300 0 3 10 20 16 16 0 FULL\n"
                "z 1 4096 1 3\n"
                "y 150 1\n"
                "s 0 160 c000 50\n"
                "p c000\n"
                "x 0 200 2 50 0 3 10 20 8 8 0 FULL\n"
                "z 2 8192 1 3\n"
                "x 0 300 3 700 0 3 10 20 4 4 0 FULL\n"
                "z 3 1 2 3\n"
                "s 0 310 d000 700\n"
                "p d000\n"
                "x 0 400 4 700 0 3 10 20 2 2 0 FULL\n"
                "z 4 0 2 3\n"
                "x 0 500 5 9 0 3 10 20 1 1 0 FULL\n");
    const struct mt_graphs *run = read_run(*state);
    assert_int_equal(run->n, 4);
    assert_int_equal(run->graphs[0].reclaimable_bytes, 250);
    assert_int_equal(run->graphs[0].host_bytes, 8192);
    assert_int_equal(run->graphs[1].reclaimable_bytes, 0);
    assert_int_equal(run->graphs[2].reclaimable_bytes, 0);
    assert_true(run->graphs[3].reclaimable_bytes == MT_UNKNOWN);
    assert_true(run->graphs[3].host_bytes == MT_UNKNOWN);
}

static void test_pieces_that_share_a_pool_give_it_back_together(void **state)
{
    write_trace(*state, 0,
                "memtally-torch 1\n"
                "s 0 90 a000 30\n"
                "p a000\n"
                "x 0 100 1 30 0 3 10 20 - 64 - PIECEWISE\n"
                "z 1 5 1 -\n"
                "s 0 190 b000 4\n"
                "p b000\n"
                "x 0 200 2 4 0 3 10 20 - 64 - PIECEWISE\n"
                "z 2 6 1 -\n");
    const struct mt_graphs *run = read_run(*state);
    assert_int_equal(run->n, 1);
    assert_int_equal(run->graphs[0].reclaimable_bytes, 34);
    assert_int_equal(run->graphs[0].host_bytes, 11);
}

static void test_a_pools_segment_is_of_a_graph_on_its_device(void **state)
{
    write_trace(*state, 0,
                "memtally-torch 1\n"
                "s 1 90 a000 30\n"
                "p a000\n"
                "x 0 100 1 0 0 3 10 20 8 8 0 FULL\n"
                "z 1 0 1 -\n"
                "x 1 200 2 30 0 3 10 20 8 8 0 FULL\n"
                "z 2 0 2 -\n");
    const struct mt_graphs *run = read_run(*state);
    assert_int_equal(run->n, 2);
    assert_int_equal(run->graphs[0].reclaimable_bytes, 0);
    assert_int_equal(run->graphs[1].reclaimable_bytes, 30);
}

static void test_sizes_of_all_ranks_are_expected(void **state)
{
    for (int i = 0; i < 2; i++)
        write_trace(*state, i,
                    "memtally-torch 1\n"
                    "x 0 100 1 0 0 3 10 20 8 40 4 FULL\n"
                    "z 1 0 1 3\n"
                    "x 0 200 2 0 0 3 10 20 4 20 4 FULL\n"
                    "z 2 0 1 3\n"
                    "x 0 300 3 0 0 3 10 20 8 8 0 FULL\n");
    const struct mt_graphs *run = read_run(*state);
    assert_int_equal(run->n_drafts, 2);
    assert_int_equal(run->drafts[0].expected, 6);
    assert_int_equal(run->drafts[0].n, 4);
    assert_true(run->drafts[1].expected == MT_UNKNOWN);
}

static void test_ranks_are_apart_and_their_memory_adds_up(void **state)
{
    for (int i = 0; i < 2; i++)
        write_trace(*state, i,
                    "memtally-torch 1\n"
                    "x 0 100 1 0 0 3 10 20 8 40 4 FULL\n"
                    "x 0 200 2 0 0 3 11 21 8 8 0 FULL\n"
                    "m 0 500 15 25\n");
    const struct mt_graphs *run = read_run(*state);
    assert_int_equal(run->n, 4);
    assert_int_equal(run->n_drafts, 2);
    assert_int_equal(run->drafts[0].draft, 4);
    assert_int_equal(run->drafts[0].n, 2);
    assert_int_equal(run->drafts[1].draft, 0);
    assert_int_equal(run->allocated_bytes, 22);
    assert_int_equal(run->reserved_bytes, 42);
    assert_int_equal(run->most_allocated_bytes, 30);
    assert_int_equal(run->most_reserved_bytes, 50);
}

static void test_a_run_without_graphs_has_what_its_allocator_held_most(void **state)
{
    write_trace(*state, 0, "memtally-torch 1\ns 0 1 7f00 25\na 0 2 7f00 15\nm 0 500 15 25\n");
    const struct mt_graphs *run = read_run(*state);
    assert_int_equal(run->n, 0);
    assert_int_equal(run->n_drafts, 0);
    assert_int_equal(run->reserved_bytes, 25);
}

static void test_lines_that_make_no_sense_are_no_graphs(void **state)
{
    static const char *const bad[] = {
        "x 0 100 1 4096 0 3 10 20 8 8 0",
        "x 0 100 1 4096 0 3 10 20 8 8 0 FULL more",
        "x 0 100 1 - 0 3 10 20 8 8 0 FULL",
        "x 0 100 1 4096 0 -3 10 20 8 8 0 FULL",
        "x 99 100 1 4096 0 3 10 20 8 8 0 FULL",
        "x",
        "y 1",
        "z 1 0 1",
        "z 1 - 1 2",
        "z 1 0 1 2 3",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[256];
        snprintf(text, sizeof text, "memtally-torch 1\n%s\nx 0 9 9 1 1 1 1 1 1 1 0 FULL\n", bad[i]);
        write_trace(*state, 0, text);
        assert_int_equal(read_run(*state)->n, 1);
        assert_int_equal(read_run(*state)->pool_bytes, 1);
    }
}

/* 500 MiB and 2 GiB are the bounds of the case for fewer graphs. */
static void test_advice_changes_above_its_bounds(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *name;
    } cases[] = {{0, "none"},
                 {500 * MIB - 1, "none"},
                 {500 * MIB, "moderate"},
                 {2048 * MIB, "moderate"},
                 {2048 * MIB + 1, "strong"}};
    const struct mt_graphs a = {.reserved_bytes = 1000 * MIB};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct mt_graphs b = {.n = 4, .pool_bytes = cases[i].bytes};
        struct mt_graphs_difference difference = mt_graphs_compare(&a, &b);
        assert_string_equal(mt_graphs_advice_name(difference.advice), cases[i].name);
        assert_int_equal(difference.bytes_of_each, cases[i].bytes / 4);
        assert_true(difference.overhead_ratio == (double)cases[i].bytes / (double)(1000 * MIB));
    }
}

static void test_fewer_graphs_are_a_negative_overhead(void **state)
{
    (void)state;
    const struct mt_graphs a = {.n = 4, .pool_bytes = 100, .driver_bytes = 300};
    const struct mt_graphs b = {.n = 1, .pool_bytes = 50};
    struct mt_graphs_difference difference = mt_graphs_compare(&a, &b);
    assert_int_equal(difference.graphs, -3);
    assert_int_equal(difference.overhead_bytes, -350);
    assert_int_equal(difference.bytes_of_each, 0);
    assert_string_equal(mt_graphs_advice_name(difference.advice), "none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define ON_TRACES(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        ON_TRACES(test_pieces_of_a_batch_are_one_graph_whose_bytes_add_up),
        ON_TRACES(test_a_graph_that_was_gone_before_the_last_capture_gives_back_its_pool_alone),
        ON_TRACES(test_a_graph_alone_in_its_pool_can_be_reclaimed_with_what_dropped_ones_took),
        ON_TRACES(test_pieces_that_share_a_pool_give_it_back_together),
        ON_TRACES(test_a_pools_segment_is_of_a_graph_on_its_device),
        ON_TRACES(test_sizes_of_all_ranks_are_expected),
        ON_TRACES(test_ranks_are_apart_and_their_memory_adds_up),
        ON_TRACES(test_a_run_without_graphs_has_what_its_allocator_held_most),
        ON_TRACES(test_lines_that_make_no_sense_are_no_graphs),
        cmocka_unit_test(test_advice_changes_above_its_bounds),
        cmocka_unit_test(test_fewer_graphs_are_a_negative_overhead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
