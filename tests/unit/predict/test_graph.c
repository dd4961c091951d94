/* SPDX-License-Identifier: MIT */
/* Graphs: what is placed where, copied and laid out, on graphs small enough to work out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "predict/graph/graph.h"

/* A tensor of this many rows of 256 numbers has this many KiB. */
#define KIB 1024u

struct fixture {
    struct mt_arena arena;
    struct mt_graph graph;
    struct mt_graph_buffer buffers[3];
};

static struct mt_graph_machine machine_of(int n_devices, unsigned n_copies)
{
    return (struct mt_graph_machine){.n_devices = n_devices,
                                     .n_copies = n_copies,
                                     .device_alignment = 128,
                                     .host_alignment = 32,
                                     .quantised_row_padding = 512,
                                     .attention_scratch = 1,
                                     .offload_batch = 32};
}

static void begin(struct fixture *f)
{
    *f = (struct fixture){0};
    mt_graph_init(&f->graph, &f->arena);
}

static void reserve(struct fixture *f, const struct mt_graph_machine *machine)
{
    assert_int_equal(mt_graph_reserve(&f->graph, machine, f->buffers), 0);
    mt_arena_finish(&f->arena);
}

static struct mt_node *input(struct fixture *f, uint64_t rows)
{
    return mt_op_input(&f->graph, MT_TYPE_F32, (uint64_t[4]){256, rows, 1, 1});
}

static struct mt_node *weight(struct fixture *f, uint64_t out, int backend)
{
    struct mt_node *node =
        mt_op_external(&f->graph, MT_TYPE_F32, (uint64_t[4]){256, out, 1, 1}, backend);
    node->flags |= MT_NODE_WEIGHT;
    return node;
}

static void test_element_by_element_takes_the_place_of_its_source(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    struct mt_node *x = mt_op_like(&f.graph, input(&f, 4)); /* 4 KiB beside the input's 4 */
    for (int i = 0; i < 10; i++)
        x = mt_op_map(&f.graph, x, NULL);
    mt_graph_expand(&f.graph, x);
    struct mt_graph_machine machine = machine_of(0, 1);
    reserve(&f, &machine);
    assert_int_equal(f.buffers[0].bytes, 8 * KIB);
}

static void test_a_source_with_another_reader_keeps_its_place(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    struct mt_node *x = mt_op_cont(&f.graph, input(&f, 2), 256, 4, 1);
    struct mt_node *y = mt_op_map(&f.graph, x, NULL);
    struct mt_node *sums = mt_op_sum_rows(&f.graph, y);
    mt_graph_expand(&f.graph, sums);
    mt_graph_expand(&f.graph, mt_op_map(&f.graph, x, sums));
    struct mt_graph_machine machine = machine_of(0, 1);
    reserve(&f, &machine);
    /* The input's 2, x and y; the sums go where the input was, what comes of them where x is. */
    assert_int_equal(f.buffers[0].bytes, (2 + 4 + 4) * KIB);
}

static void test_a_freed_tensor_leaves_a_hole_that_only_a_smaller_one_fills(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    struct mt_node *in = input(&f, 2);
    struct mt_node *small = mt_op_cont(&f.graph, in, 256, 2, 1);
    struct mt_node *after = mt_op_cont(&f.graph, small, 256, 1, 1);
    struct mt_node *large = mt_op_cont(&f.graph, after, 256, 8, 1);
    mt_graph_expand(&f.graph, mt_op_map(&f.graph, large, after));
    struct mt_graph_machine machine = machine_of(0, 1);
    reserve(&f, &machine);
    /* in 0-2, small 2-4, after 0-1 in the hole of in; small's end is free: large 1-9. */
    assert_int_equal(f.buffers[0].bytes, 9 * KIB);
}

static void test_the_smallest_hole_that_is_large_enough_is_taken(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    struct mt_node *in = input(&f, 2);
    struct mt_node *first = mt_op_cont(&f.graph, in, 256, 1, 1);
    struct mt_node *wide = mt_op_cont(&f.graph, first, 256, 8, 1);
    struct mt_node *second = mt_op_cont(&f.graph, wide, 256, 3, 1);
    struct mt_node *small = mt_op_cont(&f.graph, second, 256, 2, 1);
    struct mt_node *large = mt_op_cont(&f.graph, small, 256, 8, 1);
    mt_graph_expand(&f.graph, large);
    mt_graph_expand(&f.graph,
                    mt_op_make(&f.graph, (uint64_t[4]){256, 1, 1, 1}, first, second, large));
    struct mt_graph_machine machine = machine_of(0, 1);
    reserve(&f, &machine);
    /* in 0-2, first 2-3, wide 3-11, second 11-14; then small in the hole of in, so that large finds
     * the one of wide whole. */
    assert_int_equal(f.buffers[0].bytes, 14 * KIB);
}

static void test_devices_get_copies_of_what_they_read_from_elsewhere(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    struct mt_node *x = input(&f, 4);
    x = mt_op_mul_mat(&f.graph, weight(&f, 256, 0), x);
    x = mt_op_mul_mat(&f.graph, weight(&f, 256, 1), x);
    mt_graph_expand(&f.graph, x);
    struct mt_graph_machine machine = machine_of(2, 4);
    reserve(&f, &machine);
    /* Four copies of 4 KiB of what is read, and the result. */
    assert_int_equal(f.buffers[0].bytes, (4 * 4 + 4) * KIB);
    assert_int_equal(f.buffers[1].bytes, (4 * 4 + 4) * KIB);
    assert_int_equal(f.buffers[2].bytes, 4 * 4 * KIB);
}

static void test_large_batches_bring_weights_of_the_host_to_the_device(void **state)
{
    (void)state;
    struct mt_graph_machine machine = machine_of(1, 1);
    for (uint64_t rows = 31; rows <= 32; rows++) {
        struct fixture f;
        begin(&f);
        mt_graph_expand(&f.graph, mt_op_mul_mat(&f.graph, weight(&f, 256, 1), input(&f, rows)));
        reserve(&f, &machine);
        /* The weight's 256 KiB, the input's copy and the result. */
        assert_int_equal(f.buffers[0].bytes, rows < 32 ? 0 : (256 + 2 * rows) * KIB);
        assert_int_equal(f.buffers[1].bytes, rows < 32 ? 2 * rows * KIB : rows * KIB);
    }
}

static void test_a_quantised_cache_is_turned_into_halves_for_flash_attention(void **state)
{
    (void)state;
    struct mt_graph_machine machine = machine_of(1, 1);
    const uint64_t types[2] = {MT_TYPE_F16, MT_TYPE_Q8_0};
    uint64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        begin(&f);
        const uint64_t cache[4] = {512, 1024, 2, 1};
        struct mt_node *k = mt_op_external(&f.graph, (enum mt_graph_type)types[i], cache, 0);
        struct mt_node *v = mt_op_external(&f.graph, (enum mt_graph_type)types[i], cache, 0);
        struct mt_node *q = mt_op_input(&f.graph, MT_TYPE_F32, (uint64_t[4]){512, 8, 2, 1});
        struct mt_node *x = mt_op_flash_attention(&f.graph, q, k, v, NULL, NULL);
        mt_graph_expand(&f.graph, mt_op_mul_mat(&f.graph, weight(&f, 256, 0), x));
        reserve(&f, &machine);
        bytes[i] = f.buffers[0].bytes;
    }
    assert_int_equal(bytes[1] - bytes[0], 2 * 512 * 1024 * 2 * 2);
}

/* A tensor of 8 KiB that is computed on the device, for 8 tokens. */
static struct mt_node *computed(struct fixture *f)
{
    return mt_op_mul_mat(&f->graph, weight(f, 256, 0), input(f, 8));
}

static uint64_t device_bytes(struct fixture *f, unsigned keeps)
{
    struct mt_graph_machine machine = machine_of(1, 1);
    machine.keeps = keeps;
    reserve(f, &machine);
    return f->buffers[0].bytes;
}

/* The outputs of two experts for each of 4 tokens, times weights, added up. */
static void add_experts_up(struct fixture *f)
{
    struct mt_graph *g = &f->graph;
    begin(f);
    struct mt_node *x = computed(f);
    struct mt_node *experts = mt_op_cont(g, x, 256, 2, 4);
    struct mt_node *weights = mt_op_make(g, (uint64_t[4]){1, 2, 4, 1}, x, NULL, NULL);
    struct mt_node *all = mt_node_of_kind(mt_op_map(g, experts, weights), MT_KIND_MUL);
    mt_graph_expand(g, all);
    const uint64_t ne[4] = {256, 4, 1, 1};
    const uint64_t nb[4] = {4, all->nb[2], 4 * all->nb[2], 4 * all->nb[2]};
    struct mt_node *first = mt_op_view(g, all, ne, nb);
    struct mt_node *second = mt_op_view(g, all, ne, nb);
    mt_graph_expand(g, first);
    mt_graph_expand(g, second);
    mt_graph_expand(g, mt_node_of_kind(mt_op_map(g, first, second), MT_KIND_ADD));
}

static void test_what_a_fused_sum_of_experts_reads_is_kept_until_its_end(void **state)
{
    (void)state;
    struct fixture f;
    /* The input's copy 0-8, x 8-16; experts take the copy's place, weights 128 bytes at 16. Their
     * product takes the experts' place, and the sum that of x. */
    add_experts_up(&f);
    assert_int_equal(device_bytes(&f, MT_KEEP_TOPK), 16 * KIB + 128);
    /* Kept, the product has to take the place of x, and the sum 4 KiB behind the weights. */
    add_experts_up(&f);
    assert_int_equal(device_bytes(&f, MT_KEEP_REDUCTION), 20 * KIB + 128);
}

/* Two of 256 experts for each of 8 tokens; `others` also read what the gate's function makes. */
static void choose_experts(struct fixture *f, int others)
{
    struct mt_graph *g = &f->graph;
    begin(f);
    struct mt_node *gate = mt_node_of_kind(mt_op_map(g, computed(f), NULL), MT_KIND_SIGMOID);
    struct mt_node *ids = mt_op_top_k(g, gate, 2);
    struct mt_node *weights = mt_op_get_rows(g, mt_op_reshape(g, gate, 1, 256, 8, 1), ids);
    mt_graph_expand(g, weights);
    mt_graph_expand(g, mt_op_make(g, (uint64_t[4]){16, 1, 1, 1}, weights, ids, NULL));
    if (others)
        mt_graph_expand(g, mt_op_make(g, (uint64_t[4]){16, 1, 1, 1}, gate, NULL, NULL));
}

static void test_what_a_fused_choice_of_experts_reads_is_kept_until_the_node_after_it(void **state)
{
    (void)state;
    struct fixture f;
    /* The copy 0-8, logits 8-16. The gate takes the logits' place, the order of 256 numbers of each
     * token the copy's, and the chosen weights 128 bytes at 16; what reads them the gate's. */
    choose_experts(&f, 0);
    assert_int_equal(device_bytes(&f, MT_KEEP_REDUCTION | MT_KEEP_SHARED), 16 * KIB + 128);
    /* Kept, the gate takes the copy's place, the order 16-24, and two times 128 bytes follow. */
    choose_experts(&f, 0);
    assert_int_equal(device_bytes(&f, MT_KEEP_TOPK), 24 * KIB + 2 * 128);
    /* What others read as well is not fused. */
    choose_experts(&f, 1);
    assert_true(device_bytes(&f, MT_KEEP_TOPK) <= 16 * KIB + 2 * 128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_element_by_element_takes_the_place_of_its_source),
        cmocka_unit_test(test_a_source_with_another_reader_keeps_its_place),
        cmocka_unit_test(test_a_freed_tensor_leaves_a_hole_that_only_a_smaller_one_fills),
        cmocka_unit_test(test_the_smallest_hole_that_is_large_enough_is_taken),
        cmocka_unit_test(test_devices_get_copies_of_what_they_read_from_elsewhere),
        cmocka_unit_test(test_large_batches_bring_weights_of_the_host_to_the_device),
        cmocka_unit_test(test_a_quantised_cache_is_turned_into_halves_for_flash_attention),
        cmocka_unit_test(test_what_a_fused_sum_of_experts_reads_is_kept_until_its_end),
        cmocka_unit_test(test_what_a_fused_choice_of_experts_reads_is_kept_until_the_node_after_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
