/* SPDX-License-Identifier: MIT */
/* Splitting a driver's allocation by a trace of PyTorch's allocator. The traces are made by hand:
 * the helper's own are tested beside it and with PyTorch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memtally/error.h>

#include "pytorch/torch.h"

#define MIB   (UINT64_C(1) << 20)
#define FIRST UINT64_C(0x7000000000)
#define MS    UINT64_C(1000000)

struct traces {
    char folder[64];
    char path[96];
    struct mt_torch *torch;
    struct mt_torch_piece pieces[MT_TORCH_PIECES_MAX];
    int n;
};

static int set_up(void **state)
{
    struct traces *traces = calloc(1, sizeof *traces);
    snprintf(traces->folder, sizeof traces->folder, "/tmp/memtally-torch-XXXXXX");
    assert_non_null(mkdtemp(traces->folder));
    snprintf(traces->path, sizeof traces->path, "%s/torch-7.trace", traces->folder);
    *state = traces;
    return 0;
}

static int tear_down(void **state)
{
    struct traces *traces = *state;
    mt_torch_close(traces->torch);
    unlink(traces->path);
    rmdir(traces->folder);
    free(traces);
    return 0;
}

static void read_trace(struct traces *traces, const char *text)
{
    FILE *file = fopen(traces->path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    mt_torch_close(traces->torch);
    traces->torch = NULL;
    assert_int_equal(mt_torch_open(traces->folder, &traces->torch, NULL), 0);
}

static void split_at(struct traces *traces, uint64_t address, uint64_t bytes,
                     struct mt_torch_moments moments)
{
    uint64_t sum = 0;
    traces->n = mt_torch_pieces(traces->torch, 7, address, bytes, &moments, traces->pieces);
    assert_true(traces->n >= 0);
    for (int i = 0; i < traces->n; i++)
        sum += traces->pieces[i].bytes;
    assert_int_equal(sum, traces->n ? bytes : 0);
}

static void split(struct traces *traces, uint64_t address, uint64_t bytes, uint64_t time_ns)
{
    split_at(traces, address, bytes, (struct mt_torch_moments){time_ns, time_ns});
}

static uint64_t fullest(struct traces *traces, uint32_t pid, uint64_t at_ns, uint64_t from_ns,
                        uint64_t to_ns)
{
    return mt_torch_peak(traces->torch, pid, FIRST, at_ns, from_ns, to_ns).fullest_ns;
}

static uint64_t bytes_of(const struct traces *traces, enum mt_category category)
{
    uint64_t sum = 0;
    for (int i = 0; i < traces->n; i++)
        sum += traces->pieces[i].category == category ? traces->pieces[i].bytes : 0;
    return sum;
}

static void test_what_a_phase_keeps_is_for_its_category(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "memtally-torch 1\n"
                       "b 1000000 1 weights load_model\n"
                       "s 0 2000000 7000000000 20971520\n"
                       "a 0 2000000 7000000000 1048576\n"
                       "a 0 3000000 7000100000 2097152\n"
                       "f 0 4000000 7000100000\n"
                       "d 5000000 1\n");
    split(traces, FIRST, 20 * MIB, 6 * MS);
    assert_int_equal(traces->n, 2);
    assert_int_equal(traces->pieces[0].category, MT_CATEGORY_CACHED);
    assert_int_equal(traces->pieces[0].bytes, 19 * MIB);
    assert_int_equal(traces->pieces[1].category, MT_CATEGORY_WEIGHTS);
    assert_int_equal(traces->pieces[1].bytes, MIB);
    assert_int_equal(traces->pieces[1].provenance, MT_PROVENANCE_DERIVED);
    assert_string_equal(traces->pieces[1].name, "load_model");

    /* While it loaded, what was given back before its end was in use, and for no weights. */
    split(traces, FIRST, 20 * MIB, 3500000);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_ACTIVATIONS), 2 * MIB);
}

static void test_blocks_without_a_phase_are_derived_activations(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "s 0 1000000 7000000000 2097152\n"
                       "a 0 1000000 7000000000 1000\n");
    split(traces, FIRST, 2 * MIB, 2 * MS);
    assert_int_equal(traces->n, 2);
    assert_int_equal(traces->pieces[1].category, MT_CATEGORY_ACTIVATIONS);
    assert_int_equal(traces->pieces[1].provenance, MT_PROVENANCE_DERIVED);
    assert_int_equal(traces->pieces[1].bytes, 1024); /* in units of 512 */
}

static void test_what_a_block_is_told_to_be_for_wins_and_ends_with_it(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "s 0 1000000 7000000000 2097152\n"
                       "a 0 1000000 7000000000 1048576\n"
                       "h 2000000 7000000000 training gradients\n"
                       "f 0 3000000 7000000000\n"
                       "a 0 4000000 7000000000 1048576\n");
    split(traces, FIRST, 2 * MIB, 2500000);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_TRAINING), MIB);
    split(traces, FIRST, 2 * MIB, 4500000);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_TRAINING), 0);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_ACTIVATIONS), MIB);
}

static void test_a_name_may_come_a_little_before_its_block_as_clocks_go(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "s 0 1000000 7000000000 2097152\n"
                       "h 1990000 7000000000 kv_cache keys\n"
                       "a 0 2000000 7000000000 1048576\n");
    split(traces, FIRST, 2 * MIB, 3 * MS);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_KV_CACHE), MIB);
}

static void test_a_private_pool_is_for_graphs_with_what_it_holds_free(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "s 0 1000000 7000000000 2097152\n"
                       "p 7000000000\n"
                       "a 0 1000000 7000000000 1048576\n");
    split(traces, FIRST, 2 * MIB, 2 * MS);
    assert_int_equal(traces->n, 1);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_GRAPHS), 2 * MIB);
}

static void test_what_is_left_of_a_private_pool_is_cached_once_its_graphs_are_gone(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "s 0 1000000 7000000000 2097152\n"
                       "p 7000000000\n"
                       "a 0 1000000 7000000000 1048576\n"
                       "f 0 2000000 7000000000\n"
                       "q 3000000 7000000000\n");
    split(traces, FIRST, 2 * MIB, 2500000);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_GRAPHS), 2 * MIB);
    split(traces, FIRST, 2 * MIB, 3500000);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_GRAPHS), 0);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_CACHED), 2 * MIB);
}

static void test_inner_phases_say_it_more_exactly(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "b 1000000 1 kv_cache initialize\n"
                       "b 1000000 2 workspace attention\n"
                       "s 0 1000000 7000000000 4194304\n"
                       "a 0 1000000 7000000000 1048576\n"
                       "d 2000000 2\n"
                       "a 0 3000000 7000100000 2097152\n"
                       "d 4000000 1\n");
    split(traces, FIRST, 4 * MIB, 5 * MS);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_WORKSPACE), MIB);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_KV_CACHE), 2 * MIB);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_CACHED), MIB);
}

static void test_a_part_of_an_allocation_has_the_blocks_that_lie_in_it(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "s 0 1000000 7000000000 2097152\n"
                       "s 0 1000000 7000200000 2097152\n"
                       "a 0 1000000 7000000000 3145728\n");
    split(traces, FIRST + 2 * MIB, 2 * MIB, 2 * MS);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_ACTIVATIONS), MIB);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_CACHED), MIB);
}

static void test_what_is_free_between_blocks_is_cached(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "s 0 1000000 7000000000 8388608\n"
                       "a 0 1000000 7000100000 1048576\n"
                       "a 0 1000000 7000400000 1048576\n");
    split(traces, FIRST, 8 * MIB, 2 * MS);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_ACTIVATIONS), 2 * MIB);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_CACHED), 6 * MIB);
}

static void test_memory_that_is_not_pytorchs_is_not_split(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "s 0 1000000 7000000000 2097152\n");
    split(traces, FIRST + 2 * MIB, MIB, 2 * MS);
    assert_int_equal(traces->n, 0);
    const struct mt_torch_moments moments = {2 * MS, 2 * MS};
    assert_int_equal(mt_torch_pieces(traces->torch, 8, FIRST, MIB, &moments, traces->pieces), 0);
}

static void test_a_segment_that_is_just_made_is_free(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "s 0 1000000 7000000000 2097152\n");
    split(traces, FIRST, 2 * MIB, 999000);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_CACHED), 2 * MIB);
}

static void test_a_workspace_is_what_the_library_was_told(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "s 0 1000000 7000000000 2097152\n"
                       "a 0 1000000 7000000000 1048576\n");
    mt_torch_usage(traces->torch, 7, FIRST, MIB, 2 * MS, MT_CATEGORY_WORKSPACE, "cuBLAS");
    split(traces, FIRST, 2 * MIB, 3 * MS);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_WORKSPACE), MIB);
}

static void test_the_fullest_moment_is_found_between_two_others(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "s 0 1000000 7000000000 20971520\n"
                       "a 0 1000000 7000000000 1048576\n"
                       "a 0 2000000 7000100000 1048576\n"
                       "a 0 3000000 7000200000 1048576\n"
                       "f 0 4000000 7000200000\n"
                       "a 0 5000000 7000200000 512\n");
    assert_int_equal(fullest(traces, 7, MS, MS, 6 * MS), 3 * MS);
    assert_int_equal(fullest(traces, 7, MS, 4 * MS, 6 * MS), 5 * MS);
    assert_int_equal(fullest(traces, 7, MS, MS, 2 * MS), 2 * MS);
    assert_int_equal(fullest(traces, 9, 4 * MS, MS, 2 * MS), 4 * MS);
}

static void test_what_is_freed_in_the_same_moment_makes_room_for_what_is_taken(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "s 0 1000000 7000000000 20971520\n"
                       "a 0 1000000 7000000000 1048576\n"
                       "a 0 2000000 7000100000 1048576\n"
                       "f 0 3000000 7000100000\n"
                       "a 0 3000000 7000200000 1048576\n");
    assert_int_equal(fullest(traces, 7, MS, MS, 5 * MS), 2 * MS);
}

/* 6 MiB at 2 are the most, before there was a cache, a gradient or a graph of 1 MiB, for which the
 * driver gave out memory a little before; with that, the 3 at 6 are fewer. */
static void test_what_came_to_stay_is_told_beside_the_fullest_moment(void **state)
{
    struct traces *traces = *state;
    static const char text[] = "s 0 1000000 7000000000 20971520\n"
                               "a 0 2000000 7000000000 6291456\n"
                               "f 0 3000000 7000000000\n"
                               "%s"
                               "a 0 6000000 7000000000 3145728\n"
                               "f 0 7000000 7000000000\n";
    static const struct {
        const char *lines;
        enum mt_category category;
        uint64_t within; /* of it, in the first segment */
    } kept[] = {
        {"b 4000000 1 kv_cache initialize\na 0 5000000 7001000000 1048576\nd 5500000 1\n",
         MT_CATEGORY_KV_CACHE, MIB},
        {"a 0 5000000 7001000000 1048576\nh 5000000 7001000000 training gradients\n",
         MT_CATEGORY_TRAINING, MIB},
        {"s 0 4000000 7100000000 2097152\np 7100000000\na 0 5000000 7100000000 1048576\n",
         MT_CATEGORY_GRAPHS, 0},
    };
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        char whole[1024];
        snprintf(whole, sizeof whole, text, kept[i].lines);
        read_trace(traces, whole);
        const struct mt_torch_moments moments =
            mt_torch_peak(traces->torch, 7, FIRST, 4900000, 0, 9 * MS);
        assert_int_equal(moments.fullest_ns, 2 * MS);
        assert_int_equal(moments.last_ns, 6 * MS);
        split_at(traces, FIRST, 20 * MIB, moments);
        assert_int_equal(bytes_of(traces, MT_CATEGORY_ACTIVATIONS), 6 * MIB);
        assert_int_equal(bytes_of(traces, kept[i].category), kept[i].within);
        assert_int_equal(bytes_of(traces, MT_CATEGORY_CACHED), 14 * MIB - kept[i].within);
    }
    split_at(traces, UINT64_C(0x7100000000), 2 * MIB, (struct mt_torch_moments){2 * MS, 6 * MS});
    assert_int_equal(bytes_of(traces, MT_CATEGORY_GRAPHS), 2 * MIB);
}

/* A tensor that comes late and goes again takes what was free; so does one in a new segment. */
static void test_what_came_late_and_goes_is_no_more_than_cached(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "s 0 1000000 7000000000 20971520\n"
                       "a 0 2000000 7000000000 6291456\n"
                       "f 0 3000000 7000000000\n"
                       "s 0 4000000 7100000000 2097152\n"
                       "a 0 5000000 7001000000 1048576\n"
                       "a 0 5000000 7100000000 1048576\n");
    const struct mt_torch_moments moments =
        mt_torch_peak(traces->torch, 7, FIRST, 4 * MS, 0, 9 * MS);
    split_at(traces, FIRST, 20 * MIB, moments);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_ACTIVATIONS), 6 * MIB);
    split_at(traces, UINT64_C(0x7100000000), 2 * MIB, moments);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_CACHED), 2 * MIB);
}

/* A cache of 1 MiB at the fullest moment, beside 6 MiB; made anew for each token it has 1.5 MiB in
 * the end, in a segment of its own. */
static void test_a_cache_that_is_made_anew_is_told_once(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "s 0 1000000 7000000000 20971520\n"
                       "a 0 2000000 7000000000 1048576\n"
                       "h 2000000 7000000000 kv_cache cache\n"
                       "a 0 3000000 7000100000 6291456\n"
                       "f 0 4000000 7000100000\n"
                       "s 0 5000000 7100000000 2097152\n"
                       "a 0 5000000 7100000000 1572864\n"
                       "h 5000000 7100000000 kv_cache cache\n"
                       "f 0 6000000 7000000000\n"
                       "a 0 7000000 7000000000 512\n");
    const struct mt_torch_moments moments =
        mt_torch_peak(traces->torch, 7, FIRST, 5 * MS, 0, 9 * MS);
    split_at(traces, FIRST, 20 * MIB, moments);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_KV_CACHE), MIB);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_ACTIVATIONS), 6 * MIB);
    split_at(traces, UINT64_C(0x7100000000), 2 * MIB, moments);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_KV_CACHE), 0);
}

/* cuBLAS had the block for 2 us, and is heard of a little after its end; 2 us later a gradient has
 * its place, of the same size or smaller. */
static void test_a_workspace_that_was_given_back_is_not_what_took_its_place(void **state)
{
    struct traces *traces = *state;
    static const unsigned sizes[] = {1048576, 524288};
    for (size_t i = 0; i < 2; i++) {
        char text[400];
        snprintf(text, sizeof text,
                 "s 0 1000000 7000000000 2097152\n"
                 "a 0 1000000 7000000000 1048576\n"
                 "f 0 1002000 7000000000\n"
                 "a 0 1004000 7000000000 %u\n"
                 "h 1004000 7000000000 training gradients\n",
                 sizes[i]);
        read_trace(traces, text);
        mt_torch_usage(traces->torch, 7, FIRST, MIB, i ? 1003900 : 1002400, MT_CATEGORY_WORKSPACE,
                       "cuBLAS");
        split(traces, FIRST, 2 * MIB, 2 * MS);
        assert_int_equal(bytes_of(traces, MT_CATEGORY_TRAINING), sizes[i]);
        assert_int_equal(bytes_of(traces, MT_CATEGORY_WORKSPACE), 0);
        split(traces, FIRST, 2 * MIB, 1001000);
        assert_int_equal(bytes_of(traces, MT_CATEGORY_WORKSPACE), MIB);
    }
}

/* The program starts the count anew after 5 MiB. Another device's is its own. */
static void test_the_most_that_pytorch_counted_is_that_of_the_whole_run(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "m 0 1000000 5242880 20971520\n"
                       "m 0 2000000 1048576 23068672\n"
                       "m 2 3000000 512 2097152\n"
                       "m 3 3000000 0 0\n"
                       "m 1 3000000 7\n");
    const struct mt_torch_most *most = mt_torch_most_at(traces->torch, 0);
    assert_int_equal(most->device, 0);
    assert_int_equal(most->allocated_bytes, 5 * MIB);
    assert_int_equal(most->reserved_bytes, 22 * MIB);
    most = mt_torch_most_at(traces->torch, 1);
    assert_int_equal(most->device, 2);
    assert_int_equal(most->allocated_bytes, 512);
    assert_null(mt_torch_most_at(traces->torch, 2));
}

static void test_phases_say_what_was_there_and_their_peak(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "s 1 1000000 7000000000 20971520\n"
                       "a 1 1000000 7000000000 1048576\n"
                       "b 2000000 5 activations profile_run\n"
                       "a 1 3000000 7000100000 2097152\n"
                       "f 1 3500000 7000100000\n"
                       "a 1 3600000 7000100000 512\n"
                       "d 4000000 5\n");
    const struct mt_torch_phase *phase = mt_torch_phase_at(traces->torch, 1);
    assert_non_null(phase); /* the first one is of device 0, where nothing was */
    assert_int_equal(phase->device, 1);
    assert_string_equal(phase->name, "profile_run");
    assert_int_equal(phase->begin_bytes, MIB);
    assert_int_equal(phase->peak_bytes, 3 * MIB);
    assert_int_equal(phase->end_bytes, MIB + 512);
    assert_int_equal(phase->peak_segment_bytes, 20 * MIB);
    assert_int_equal(phase->end_ns, 4 * MS);
    assert_null(mt_torch_phase_at(traces->torch, 2));
}

static void test_figures_and_notes_are_kept(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "g 1000000 14.99 GiB weights\n"
                       "g 2000000 1048576 tokens kv cache\n"
                       "n 3000000 sizes here came from device values: train.py:3\n");
    const struct mt_torch_figure *figure = mt_torch_figure_at(traces->torch, 0);
    assert_non_null(figure);
    assert_true(figure->value > 14.98999 && figure->value < 14.99001);
    assert_string_equal(figure->unit, "GiB");
    assert_string_equal(mt_torch_figure_at(traces->torch, 1)->name, "kv cache");
    assert_null(mt_torch_figure_at(traces->torch, 2));
    assert_string_equal(mt_torch_note_at(traces->torch, 0)->text,
                        "sizes here came from device values: train.py:3");
}

/* Nothing of the device was seen before, so that the phase is told by it, too. */
static void test_who_ran_out_of_memory_is_kept_with_the_phase_of_it(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "b 1000000 1 weights load_model\n"
                       "o 2000000 1 4096 train.py:31 step < train.py:40 <module>\n"
                       "d 3000000 1\n"
                       "o 4000000 99 4096 a device that cannot be\n"
                       "o 4000000 0 4096\n");
    const struct mt_torch_asker *asker = mt_torch_asker_at(traces->torch, 0);
    assert_non_null(asker);
    assert_int_equal(asker->time_ns, 2 * MS);
    assert_int_equal(asker->bytes, 4096);
    assert_string_equal(asker->stack, "train.py:31 step < train.py:40 <module>");
    assert_null(mt_torch_asker_at(traces->torch, 1));
    const struct mt_torch_phase *phase = mt_torch_phase_at(traces->torch, 0);
    assert_non_null(phase);
    assert_int_equal(phase->device, 1);
    assert_int_equal(phase->begin_ns, MS);
    assert_int_equal(phase->end_ns, 3 * MS);
}

static void test_a_line_that_is_cut_short_is_left_out(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "s 0 1000000 7000000000 2097152\n"
                       "a 0 1000000 7000000000 10485");
    split(traces, FIRST, 2 * MIB, 2 * MS);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_CACHED), 2 * MIB);
}

static void test_lines_without_sense_are_passed_over(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "s 0 1000000 7000000000 2097152\n"
                       "a 0 1000000 7000000000 99999999999999999999\n"
                       "a 99 1000000 7000000000 512\n"
                       "a 0 1000000 ffffffffffffffff 1024\n"
                       "a 0 1000000\n"
                       "a 0 1000000 7000000000 12x\n"
                       "f 0 1000000 7000000000\n"
                       "h 1000000 7000000000 nonsense name\n"
                       "d 1000000 7\n"
                       "b 1000000 7 weights\n"
                       "z what a later helper may say\n"
                       "\n"
                       " \n");
    split(traces, FIRST, 2 * MIB, 2 * MS);
    assert_int_equal(traces->n, 1);
    assert_null(mt_torch_phase_at(traces->torch, 0));
}

static void test_more_kinds_of_pieces_than_there_is_room_for_still_add_up(void **state)
{
    struct traces *traces = *state;
    static char text[64 * 1024];
    size_t length = (size_t)snprintf(text, sizeof text, "s 0 1000000 7000000000 2097152\n");
    for (unsigned i = 0; i < 100; i++)
        length += (size_t)snprintf(text + length, sizeof text - length,
                                   "a 0 1000000 %llx 512\nh 1000000 %llx weights name%u\n",
                                   (unsigned long long)(FIRST + i * 512ull),
                                   (unsigned long long)(FIRST + i * 512ull), i);
    read_trace(traces, text);
    split(traces, FIRST, 2 * MIB, 2 * MS);
    assert_int_equal(traces->n, MT_TORCH_PIECES_MAX);
}

/* The program has this folder: a reader of a pipe would wait, one of /dev/zero never end. */
static void test_what_is_no_file_is_left_out_and_said_to_be(void **state)
{
    struct traces *traces = *state;
    assert_int_equal(mkfifo(traces->path, 0600), 0);
    assert_int_equal(mt_torch_open(traces->folder, &traces->torch, NULL), 0);
    assert_int_equal(mt_torch_lost(traces->torch), 1);
    unlink(traces->path);
    mt_torch_close(traces->torch);
    assert_int_equal(symlink("/dev/zero", traces->path), 0);
    assert_int_equal(mt_torch_open(traces->folder, &traces->torch, NULL), 0);
    assert_int_equal(mt_torch_lost(traces->torch), 1);
    split(traces, FIRST, MIB, MS);
    assert_int_equal(traces->n, 0);
}

/* A hole of a terabyte: what is read has an end. */
static void test_a_trace_without_end_is_read_up_to_a_limit(void **state)
{
    struct traces *traces = *state;
    read_trace(traces, "s 0 1000000 7000000000 2097152\n");
    assert_int_equal(mt_torch_lost(traces->torch), 0);
    assert_int_equal(truncate(traces->path, (off_t)1 << 40), 0);
    mt_torch_close(traces->torch);
    assert_int_equal(mt_torch_open(traces->folder, &traces->torch, NULL), 0);
    assert_int_equal(mt_torch_lost(traces->torch), 1);
    split(traces, FIRST, 2 * MIB, 2 * MS);
    assert_int_equal(bytes_of(traces, MT_CATEGORY_CACHED), 2 * MIB);
}

/* There is room for 4194304 blocks; what comes after them is not in the split. */
static void test_blocks_without_room_are_counted(void **state)
{
    struct traces *traces = *state;
    FILE *file = fopen(traces->path, "w");
    assert_non_null(file);
    for (unsigned i = 0; i < 4194304 + 3; i++)
        fputs("a 0 1 10 1\n", file);
    fclose(file);
    assert_int_equal(mt_torch_open(traces->folder, &traces->torch, NULL), 0);
    assert_int_equal(mt_torch_lost(traces->torch), 3);
}

static void test_a_folder_without_traces_splits_nothing(void **state)
{
    struct traces *traces = *state;
    assert_int_equal(mt_torch_open(traces->folder, &traces->torch, NULL), 0);
    split(traces, FIRST, MIB, MS);
    assert_int_equal(traces->n, 0);
    assert_int_equal(mt_torch_open("/nonexistent", &traces->torch, NULL), MT_ENOTFOUND);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_a_phase_keeps_is_for_its_category),
        TEST(test_blocks_without_a_phase_are_derived_activations),
        TEST(test_what_a_block_is_told_to_be_for_wins_and_ends_with_it),
        TEST(test_a_name_may_come_a_little_before_its_block_as_clocks_go),
        TEST(test_a_private_pool_is_for_graphs_with_what_it_holds_free),
        TEST(test_what_is_left_of_a_private_pool_is_cached_once_its_graphs_are_gone),
        TEST(test_inner_phases_say_it_more_exactly),
        TEST(test_a_part_of_an_allocation_has_the_blocks_that_lie_in_it),
        TEST(test_what_is_free_between_blocks_is_cached),
        TEST(test_memory_that_is_not_pytorchs_is_not_split),
        TEST(test_a_segment_that_is_just_made_is_free),
        TEST(test_a_workspace_is_what_the_library_was_told),
        TEST(test_the_fullest_moment_is_found_between_two_others),
        TEST(test_what_came_to_stay_is_told_beside_the_fullest_moment),
        TEST(test_what_came_late_and_goes_is_no_more_than_cached),
        TEST(test_a_cache_that_is_made_anew_is_told_once),
        TEST(test_a_workspace_that_was_given_back_is_not_what_took_its_place),
        TEST(test_the_most_that_pytorch_counted_is_that_of_the_whole_run),
        TEST(test_what_is_freed_in_the_same_moment_makes_room_for_what_is_taken),
        TEST(test_phases_say_what_was_there_and_their_peak),
        TEST(test_figures_and_notes_are_kept),
        TEST(test_who_ran_out_of_memory_is_kept_with_the_phase_of_it),
        TEST(test_a_line_that_is_cut_short_is_left_out),
        TEST(test_lines_without_sense_are_passed_over),
        TEST(test_more_kinds_of_pieces_than_there_is_room_for_still_add_up),
        TEST(test_what_is_no_file_is_left_out_and_said_to_be),
        TEST(test_a_trace_without_end_is_read_up_to_a_limit),
        TEST(test_blocks_without_room_are_counted),
        TEST(test_a_folder_without_traces_splits_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
