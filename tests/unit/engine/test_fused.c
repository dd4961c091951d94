/* SPDX-License-Identifier: MIT */
/* What devices keep for fused operations, on small graphs as llama.cpp builds them for its layers
 * of experts (llama-graph.cpp: build_moe_ffn), each spoilt in one place at a time. */
#include "tests/support/unit.h"

#include <string.h>

#include "engine/fused.h"

#define NODES_MAX 40

/* A node with its operation. */
struct node {
    enum mt_kind kind;
    struct mt_fused_node it;
};

static struct node nodes[NODES_MAX];
static size_t n_nodes;
static struct node leaves[8]; /* what lies outside of the graph */
static struct {
    const void *node;
    const void *until;
} kept[NODES_MAX * MT_FUSED_SOURCES_MAX];
static size_t n_kept;
static int may_fuse;
static size_t moved_to, moved_from;

static void *at(const struct mt_fused_graph *graph, size_t i)
{
    (void)graph;
    return &nodes[i];
}

static enum mt_kind kind(const struct mt_fused_graph *graph, const void *node)
{
    (void)graph;
    return ((const struct node *)node)->kind;
}

static void read_node(const struct mt_fused_graph *graph, const void *node,
                      struct mt_fused_node *read)
{
    (void)graph;
    *read = ((const struct node *)node)->it;
}

static int can_fuse(const struct mt_fused_graph *graph, const size_t *places, size_t n,
                    const size_t *outputs, size_t n_outputs)
{
    (void)graph;
    for (size_t i = 0; i < n_outputs; i++)
        assert_in_range(outputs[i], places[0], places[n - 1]);
    return may_fuse;
}

static void keep(const struct mt_fused_graph *graph, void *node, void *until)
{
    (void)graph;
    kept[n_kept].node = node;
    kept[n_kept++].until = until;
}

static void move_three(const struct mt_fused_graph *graph, size_t to, size_t from)
{
    struct node three[3];
    (void)graph;
    moved_to = to;
    moved_from = from;
    memcpy(three, &nodes[from], sizeof three);
    memmove(&nodes[to + 3], &nodes[to], (from - to) * sizeof *nodes);
    memcpy(&nodes[to], three, sizeof three);
}

/* Runs the patterns over the graph; there is one node behind it, unless `ends`. */
static unsigned fuse(unsigned wanted, int ends)
{
    const struct mt_fused_graph graph = {.n = n_nodes,
                                         .n_to_end = n_nodes + (ends ? 0 : 1),
                                         .at = at,
                                         .kind = kind,
                                         .read = read_node,
                                         .can_fuse = can_fuse,
                                         .keep = keep,
                                         .move_three = move_three};
    n_kept = 0;
    return mt_fused_keep(&graph, wanted);
}

/* Who is the last that `node` is kept until; NULL: it is not kept. */
static const void *kept_until(const void *node)
{
    const void *until = NULL;
    for (size_t i = 0; i < n_kept; i++)
        if (kept[i].node == node)
            until = kept[i].until;
    return until;
}

/* A node of f32 that is contiguous, of the shape {a, b, c, 1}. */
static struct node *add(enum mt_kind of, uint64_t a, uint64_t b, uint64_t c, void *first,
                        void *second)
{
    struct node *made = &nodes[n_nodes++];
    *made = (struct node){.kind = of,
                          .it = {.sources = {first, second},
                                 .ne = {a, b, c, 1},
                                 .nb = {4, 4 * a, 4 * a * b, 4 * a * b * c},
                                 .type = "f32",
                                 .is_f32 = 1,
                                 .is_contiguous = 1}};
    return made;
}

static struct node *leaf(size_t i, uint64_t a, uint64_t b, uint64_t c)
{
    struct node *made = &leaves[i];
    *made = (struct node){.it = {.ne = {a, b, c, 1},
                                 .nb = {4, 4 * a, 4 * a * b, 4 * a * b * c},
                                 .type = "f32",
                                 .is_f32 = 1,
                                 .is_contiguous = 1,
                                 .is_leaf = 1}};
    return made;
}

static int reset(void **state)
{
    (void)state;
    memset(nodes, 0, sizeof nodes);
    memset(leaves, 0, sizeof leaves);
    n_nodes = 0;
    may_fuse = 1;
    moved_to = moved_from = 0;
    return 0;
}

/* ---- choosing experts ---- */

/* Eight of `experts` are chosen for four tokens: probabilities, reshaped, sorted, the first eight,
 * their weights; then the norm and the scale. Strides of the chosen numbers are those of the sort.
 */
static void build_topk(uint64_t experts, int has_norm, int has_scale)
{
    struct node *logits = leaf(0, experts, 4, 1);
    struct node *chances = add(MT_KIND_SOFT_MAX, experts, 4, 1, logits, NULL);
    struct node *reshaped = add(MT_KIND_RESHAPE, 1, experts, 4, chances, NULL);
    struct node *sorted = add(MT_KIND_ARGSORT, experts, 4, 1, chances, NULL);
    struct node *chosen = add(MT_KIND_VIEW, 8, 4, 1, sorted, NULL);
    chosen->it.view_of = sorted;
    chosen->it.nb[1] = 4 * experts;
    struct node *weights = add(MT_KIND_GET_ROWS, 1, 8, 4, reshaped, chosen);
    if (has_norm) {
        struct node *rows = add(MT_KIND_RESHAPE, 8, 4, 1, weights, NULL);
        struct node *sums = add(MT_KIND_SUM_ROWS, 1, 4, 1, rows, NULL);
        struct node *clamped = add(MT_KIND_CLAMP, 1, 4, 1, sums, NULL);
        struct node *shares = add(MT_KIND_DIV, 8, 4, 1, rows, clamped);
        weights = add(MT_KIND_RESHAPE, 1, 8, 4, shares, NULL);
    }
    if (has_scale)
        add(MT_KIND_SCALE, 1, 8, 4, weights, NULL);
}

static void test_all_of_a_choice_is_kept_until_the_node_after_it(void **state)
{
    (void)state;
    for (int norm = 0; norm < 2; norm++)
        for (int scale = 0; scale < 2; scale++) {
            reset(NULL);
            build_topk(128, norm, scale);
            assert_int_equal(n_nodes, 5 + 5 * norm + scale);
            assert_int_equal(fuse(MT_KEEP_TOPK, 0), MT_KEEP_TOPK);
            for (size_t i = 0; i < n_nodes; i++)
                assert_ptr_equal(kept_until(&nodes[i]), &nodes[n_nodes]);
            assert_ptr_equal(kept_until(&leaves[0]), &nodes[n_nodes]);
        }
}

/* DeepSeek-V3 adds a bias to what is sorted, and GLM takes sigmoid for the gate. */
static void test_a_bias_and_other_gates_are_known(void **state)
{
    (void)state;
    build_topk(256, 0, 0);
    nodes[0].kind = MT_KIND_SIGMOID;
    struct node sort = nodes[2], view = nodes[3], rows = nodes[4];
    n_nodes = 2;
    struct node *biased = add(MT_KIND_ADD, 256, 4, 1, &nodes[0], leaf(1, 256, 1, 1));
    nodes[n_nodes] = sort;
    nodes[n_nodes++].it.sources[0] = biased;
    nodes[n_nodes] = view;
    nodes[n_nodes++].it.sources[0] = &nodes[3];
    nodes[n_nodes] = rows;
    nodes[n_nodes++].it.sources[1] = &nodes[4];
    assert_int_equal(fuse(MT_KEEP_TOPK, 0), MT_KEEP_TOPK);
    assert_ptr_equal(kept_until(&leaves[1]), &nodes[n_nodes]);
    /* A bias on what is looked up would be another operation. */
    biased->it.sources[0] = &nodes[1];
    assert_int_equal(fuse(MT_KEEP_TOPK, 0), 0);
}

/* The kernel has counts of experts up to 512 that are powers of two, and 288 and 576. */
static void test_a_choice_is_fused_for_counts_that_have_a_kernel(void **state)
{
    static const uint64_t with[] = {8, 128, 512, 288, 576}, without[] = {60, 160, 384, 1024};
    (void)state;
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        reset(NULL);
        build_topk(with[i], 1, 0);
        assert_int_equal(fuse(MT_KEEP_TOPK, 0), MT_KEEP_TOPK);
    }
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        reset(NULL);
        build_topk(without[i], 1, 0);
        assert_int_equal(fuse(MT_KEEP_TOPK, 0), 0);
        assert_int_equal(n_kept, 0);
    }
}

static void test_a_choice_that_is_spoilt_is_not_fused(void **state)
{
    (void)state;
    build_topk(128, 1, 1);
    assert_int_equal(fuse(MT_KEEP_REDUCTION | MT_KEEP_SHARED, 0), 0); /* not asked for */
    assert_int_equal(fuse(MT_KEEP_TOPK, 1), 0);                       /* nothing comes after it */
    may_fuse = 0;
    assert_int_equal(fuse(MT_KEEP_TOPK, 0), 0);
    may_fuse = 1;
    nodes[0].it.sources[1] = &leaves[1]; /* a mask */
    assert_int_equal(fuse(MT_KEEP_TOPK, 0), 0);
    nodes[0].it.sources[1] = NULL;
    leaves[0].it.is_contiguous = 0;
    assert_int_equal(fuse(MT_KEEP_TOPK, 0), 0);
    leaves[0].it.is_contiguous = 1;
    nodes[4].it.sources[1] = &leaves[1]; /* other numbers are looked up */
    assert_int_equal(fuse(MT_KEEP_TOPK, 0), 0);
    nodes[4].it.sources[1] = &nodes[3];
    assert_int_equal(fuse(MT_KEEP_TOPK, 0), MT_KEEP_TOPK);
}

/* Without its division the norm is none: the choice ends before it. */
static void test_a_norm_that_is_spoilt_is_no_part_of_the_choice(void **state)
{
    (void)state;
    build_topk(128, 1, 0);
    nodes[8].it.sources[1] = &leaves[1];
    assert_int_equal(fuse(MT_KEEP_TOPK, 0), MT_KEEP_TOPK);
    assert_ptr_equal(kept_until(&nodes[4]), &nodes[5]);
    assert_null(kept_until(&nodes[6]));
}

/* ---- adding up what they made ---- */

/* What `experts` made of 64 columns for four tokens is weighed, looked at one by one, and added. */
static void build_reduction(uint64_t experts, int is_scaled)
{
    struct node *made = leaf(0, 64, experts, 4);
    struct node *weights = leaf(1, 1, experts, 4);
    struct node *scales = leaf(2, 1, experts, 4);
    struct node *weighed = made;
    struct node *views[NODES_MAX];
    if (is_scaled)
        weighed = add(MT_KIND_MUL, 64, experts, 4, weighed, scales);
    weighed = add(MT_KIND_MUL, 64, experts, 4, weighed, weights);
    for (uint64_t i = 0; i < experts; i++) {
        views[i] = add(MT_KIND_VIEW, 64, 4, 1, weighed, NULL);
        views[i]->it.view_of = weighed;
        views[i]->it.view_offset = i * weighed->it.nb[1];
        views[i]->it.nb[1] = weighed->it.nb[2];
        views[i]->it.is_contiguous = 0;
    }
    struct node *sum = views[0];
    for (uint64_t i = 1; i < experts; i++)
        sum = add(MT_KIND_ADD, 64, 4, 1, sum, views[i]);
}

static void test_experts_and_weights_are_kept_until_their_sum(void **state)
{
    (void)state;
    for (uint64_t experts = 2; experts <= 15; experts++) {
        reset(NULL);
        build_reduction(experts, 0);
        assert_int_equal(fuse(MT_KEEP_REDUCTION, 1), MT_KEEP_REDUCTION);
        assert_int_equal(n_kept, 2);
        assert_ptr_equal(kept_until(&leaves[0]), &nodes[n_nodes - 1]);
        assert_ptr_equal(kept_until(&leaves[1]), &nodes[n_nodes - 1]);
    }
}

static void test_a_scale_of_each_expert_is_kept_too(void **state)
{
    (void)state;
    build_reduction(4, 1);
    assert_int_equal(fuse(MT_KEEP_REDUCTION, 1), MT_KEEP_REDUCTION);
    assert_int_equal(n_kept, 3);
    assert_ptr_equal(kept_until(&leaves[2]), &nodes[n_nodes - 1]);
}

/* Thirty-one nodes become one at the most: 15 experts are 30, and 16 would be 32. */
static void test_one_expert_and_more_than_fifteen_are_not_fused(void **state)
{
    (void)state;
    build_reduction(1, 0);
    assert_int_equal(fuse(MT_KEEP_REDUCTION, 1), 0);
    reset(NULL);
    build_reduction(16, 0);
    assert_int_equal(fuse(MT_KEEP_REDUCTION, 1), 0);
}

static void test_a_sum_that_is_spoilt_is_not_fused(void **state)
{
    (void)state;
    build_reduction(4, 0);
    nodes[2].it.view_offset += 4;
    assert_int_equal(fuse(MT_KEEP_REDUCTION, 1), 0);
    nodes[2].it.view_offset = MT_FUSED_ANYWHERE; /* a rule's graph does not know where */
    assert_int_equal(fuse(MT_KEEP_REDUCTION, 1), MT_KEEP_REDUCTION);
    nodes[7].it.sources[1] = &nodes[2]; /* one expert twice */
    assert_int_equal(fuse(MT_KEEP_REDUCTION, 1), 0);
    nodes[7].it.sources[1] = &nodes[4];
    assert_int_equal(fuse(MT_KEEP_REDUCTION, 1), MT_KEEP_REDUCTION);
    leaves[1].it.is_f32 = 0;
    assert_int_equal(fuse(MT_KEEP_REDUCTION, 1), 0);
    leaves[1].it.is_f32 = 1;
    nodes[n_nodes - 1].it.is_contiguous = 0;
    assert_int_equal(fuse(MT_KEEP_REDUCTION, 1), 0);
    nodes[n_nodes - 1].it.is_contiguous = 1;
    n_nodes--; /* the last sum is in another split */
    assert_int_equal(fuse(MT_KEEP_REDUCTION, 0), 0);
}

/* ---- the shared expert ---- */

static struct node *quantised(size_t i, uint64_t experts)
{
    struct node *weight = leaf(i, 64, 32, experts);
    weight->it.type = "q4_K";
    weight->it.is_f32 = 0;
    weight->it.is_quantised_weight = 1;
    return weight;
}

/* Gate, up and the gated unit of chosen experts, two nodes of something else, and the same of the
 * shared expert, for one token. */
static void build_shared(void)
{
    struct node *input = leaf(0, 64, 1, 1);
    struct node *reshaped = &leaves[1];
    leaf(1, 64, 1, 1)->kind = MT_KIND_RESHAPE;
    reshaped->it.sources[0] = input;
    reshaped->it.is_leaf = 0;
    struct node *ids = leaf(2, 8, 1, 1);
    struct node *gate = add(MT_KIND_EXPERTS, 32, 8, 1, quantised(3, 16), reshaped);
    struct node *up = add(MT_KIND_EXPERTS, 32, 8, 1, quantised(4, 16), reshaped);
    gate->it.sources[2] = up->it.sources[2] = ids;
    add(MT_KIND_GLU, 32, 8, 1, gate, up);
    add(MT_KIND_OTHER, 1, 1, 1, NULL, NULL);
    add(MT_KIND_OTHER, 1, 1, 1, NULL, NULL);
    gate = add(MT_KIND_MUL_MAT, 32, 1, 1, quantised(5, 1), input);
    up = add(MT_KIND_MUL_MAT, 32, 1, 1, quantised(6, 1), input);
    add(MT_KIND_GLU, 32, 1, 1, gate, up);
}

static void test_the_shared_expert_is_brought_beside_the_chosen_ones(void **state)
{
    (void)state;
    build_shared();
    assert_int_equal(fuse(MT_KEEP_SHARED, 1), MT_KEEP_SHARED);
    assert_int_equal(moved_to, 3);
    assert_int_equal(moved_from, 5);
    /* The input and the numbers of experts, until the shared unit, which is the sixth node now. */
    assert_ptr_equal(kept_until(&leaves[1]), &nodes[5]);
    assert_ptr_equal(kept_until(&leaves[2]), &nodes[5]);
    assert_int_equal(nodes[5].kind, MT_KIND_GLU);
}

static void assert_not_shared(void)
{
    moved_from = 0;
    assert_int_equal(fuse(MT_KEEP_SHARED, 1), 0);
    assert_int_equal(moved_from + n_kept, 0);
}

static void test_experts_that_are_not_alike_stay_where_they_are(void **state)
{
    (void)state;
    build_shared();
    leaves[6].it.type = "q6_K"; /* weights of another type */
    assert_not_shared();
    n_nodes = 0;
    build_shared();
    leaves[3].it.is_quantised_weight = leaves[4].it.is_quantised_weight = 0;
    assert_not_shared();
    n_nodes = 0;
    build_shared();
    nodes[2].it.variant = 1; /* one is swiglu, the other geglu */
    assert_not_shared();
    n_nodes = 0;
    build_shared();
    leaves[1].it.ne[1] = 2; /* two tokens */
    assert_not_shared();
    n_nodes = 0;
    build_shared();
    nodes[5].it.sources[1] = &leaves[2]; /* gate and up of two inputs */
    assert_not_shared();
    n_nodes = 0;
    build_shared();
    nodes[3].kind = nodes[4].kind = MT_KIND_EXPERTS; /* the next layer's experts come first */
    assert_not_shared();
}

#define TEST(name) cmocka_unit_test_setup(name, reset)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_all_of_a_choice_is_kept_until_the_node_after_it),
        TEST(test_a_bias_and_other_gates_are_known),
        TEST(test_a_choice_is_fused_for_counts_that_have_a_kernel),
        TEST(test_a_choice_that_is_spoilt_is_not_fused),
        TEST(test_a_norm_that_is_spoilt_is_no_part_of_the_choice),
        TEST(test_experts_and_weights_are_kept_until_their_sum),
        TEST(test_a_scale_of_each_expert_is_kept_too),
        TEST(test_one_expert_and_more_than_fifteen_are_not_fused),
        TEST(test_a_sum_that_is_spoilt_is_not_fused),
        TEST(test_the_shared_expert_is_brought_beside_the_chosen_ones),
        TEST(test_experts_that_are_not_alike_stay_where_they_are),
    };
    return RUN_TESTS(tests);
}
