/* SPDX-License-Identifier: MIT */
/* Placements of models whose sizes are published or chosen so that the answer is plain. */
#include "tests/support/unit.h"

#include <memtally/memtally.h>
#include <stdlib.h>
#include <string.h>

#define GIB (UINT64_C(1) << 30)
#define KIB (UINT64_C(1) << 10)

enum { MIXTRAL_LAYERS = 32, MIXTRAL_UNITS = MIXTRAL_LAYERS + 3 };

/* Mixtral-8x7B (config.json of mistralai/Mixtral-8x7B-v0.1) with bitsandbytes' nf4, absmax in f32
 * for each 64 weights: 4 + 32 / 64 = 4.5 bits. Expert 3 * 4096 * 14336 = 176,160,768 weights;
 * attention 2 * 4096 * 4096 + 2 * 4096 * 1024 = 41,943,040; embedding and output 32000 * 4096 in
 * f16; cache 2 * 8 * 128 * 2 B for each token and layer. */
#define NF4(weights)   ((uint64_t)(weights)*9 / 16)
#define MIXTRAL_EXPERT NF4(176160768)
#define MIXTRAL_DENSE  NF4(41943040)
#define MIXTRAL_EDGE   (UINT64_C(32000) * 4096 * 2)

static void mixtral(struct mt_place_unit *units)
{
    for (size_t i = 0; i < MIXTRAL_UNITS; i++)
        units[i] =
            (struct mt_place_unit){.name = "part", .layer = MT_NO_LAYER, .pinned = MT_PLACE_ANY};
    units[0].dense_bytes = units[MIXTRAL_UNITS - 1].dense_bytes = MIXTRAL_EDGE;
    for (uint32_t i = 0; i < MIXTRAL_LAYERS; i++)
        units[i + 1] = (struct mt_place_unit){.name = "layer",
                                              .layer = i,
                                              .experts = 8,
                                              .experts_used = 2,
                                              .dense_bytes = MIXTRAL_DENSE,
                                              .expert_bytes = 8 * MIXTRAL_EXPERT,
                                              .token_bytes = 4 * KIB,
                                              .pinned = MT_PLACE_ANY};
}

/* Two cards that show 15.60 GiB, of which 1 GiB is left free. */
static const uint64_t card_bytes = 156 * GIB / 10;
static struct mt_place_device cards[2];

static struct mt_place_problem mixtral_on_two(struct mt_place_unit *units)
{
    mixtral(units);
    for (size_t d = 0; d < 2; d++)
        cards[d] =
            (struct mt_place_device){.capacity_bytes = card_bytes, .limit_bytes = card_bytes - GIB};
    return (struct mt_place_problem){
        .units = units, .n_units = MIXTRAL_UNITS, .devices = cards, .n_devices = 2};
}

static double share_of(const struct mt_placement *placement, size_t device)
{
    return (double)placement->devices[device].used_bytes / (double)card_bytes;
}

/* The hand-made map that is known for it: 14 and 18 layers, 132 and 124 experts. Of 8 experts 4 are
 * elsewhere, of two that are chosen at least one with 1 - C(4,2) / C(8,2) = 22 / 28: 31 layers
 * cross there and back, 48.71 times, and the layers, the norm and the output three times more. */
static void test_the_known_map_of_mixtral(void **state)
{
    struct mt_place_unit units[MIXTRAL_UNITS];
    const struct mt_place_problem problem = mixtral_on_two(units);
    struct mt_placement *placement;
    (void)state;
    assert_int_equal(
        mt_place_by_policy(&problem, MT_PLACE_POLICY_BALANCED_EXPERTS, &placement, NULL), 0);
    assert_int_equal(placement->devices[0].layers, 14);
    assert_int_equal(placement->devices[1].layers, 18);
    assert_int_equal(placement->devices[0].experts, 132);
    assert_int_equal(placement->devices[1].experts, 124);
    assert_true(placement->crossings > 51.70 && placement->crossings < 51.72);
    assert_int_equal(placement->devices[0].used_bytes,
                     132 * MIXTRAL_EXPERT + 14 * MIXTRAL_DENSE + MIXTRAL_EDGE);
    assert_true(share_of(placement, 0) > 0.815 && share_of(placement, 0) < 0.817);
    assert_true(share_of(placement, 1) > 0.774 && share_of(placement, 1) < 0.776);
    mt_placement_destroy(placement);
}

/* Each half is 16 layers and one edge, 12.409 GiB: no placement has less than half on its fullest
 * card, and none without a crossing fits. */
static void test_the_best_of_mixtral(void **state)
{
    struct mt_place_unit units[MIXTRAL_UNITS];
    const struct mt_place_problem problem = mixtral_on_two(units);
    struct mt_placement *placement;
    (void)state;
    assert_int_equal(mt_place_units(&problem, &placement, NULL), 0);
    assert_int_equal(placement->devices[0].layers, 16);
    assert_int_equal(placement->devices[1].layers, 16);
    assert_true(placement->crossings > 0.99 && placement->crossings < 1.01);
    uint64_t half = 16 * (8 * MIXTRAL_EXPERT + MIXTRAL_DENSE) + MIXTRAL_EDGE;
    assert_int_equal(placement->devices[0].used_bytes, half);
    assert_int_equal(placement->devices[1].used_bytes, half);
    assert_true(placement->highest_share > 0.7950 && placement->highest_share < 0.7959);
    assert_true(placement->is_best);
    assert_int_equal(placement->least_devices, 2);
    assert_true(placement->highest_share - placement->least_share < 1e-9);
    assert_int_equal(placement->further_tokens, (card_bytes - GIB - half) / (16 * 4 * KIB));
    mt_placement_destroy(placement);
}

/* What the author of the known map counted: 0.045 GB for a layer, 0.095 for an expert, 0.1 for the
 * embedding, 0.045 for each end, and had 13.32 and 12.63 GB of it. */
static void test_the_published_sizes_follow_from_their_constants(void **state)
{
    struct mt_place_unit units[MIXTRAL_UNITS];
    const struct mt_place_problem problem = mixtral_on_two(units);
    const uint64_t mb = 1000000;
    struct mt_placement *placement;
    (void)state;
    for (size_t i = 0; i < MIXTRAL_UNITS; i++) {
        units[i].dense_bytes = i ? 45 * mb : 100 * mb;
        units[i].expert_bytes = units[i].experts ? 8 * 95 * mb : 0;
    }
    assert_int_equal(
        mt_place_by_policy(&problem, MT_PLACE_POLICY_BALANCED_EXPERTS, &placement, NULL), 0);
    assert_int_equal(placement->devices[0].used_bytes, 13315 * mb);
    assert_int_equal(placement->devices[1].used_bytes, 12635 * mb);
    mt_placement_destroy(placement);
}

static struct mt_place_unit layer(uint32_t number, uint64_t bytes)
{
    return (struct mt_place_unit){
        .name = "layer", .layer = number, .dense_bytes = bytes, .pinned = MT_PLACE_ANY};
}

/* 10 + 10 on the small card and 10 on the large one is the only way in two. */
static void test_devices_that_differ_are_tried_in_each_order(void **state)
{
    struct mt_place_unit units[] = {layer(0, 10), layer(1, 10), layer(2, 40)};
    const struct mt_place_device devices[] = {{.capacity_bytes = 50, .limit_bytes = 45},
                                              {.capacity_bytes = 25, .limit_bytes = 20}};
    const struct mt_place_problem problem = {
        .units = units, .n_units = 3, .devices = devices, .n_devices = 2};
    struct mt_placement *placement;
    (void)state;
    assert_int_equal(mt_place_units(&problem, &placement, NULL), 0);
    assert_int_equal(placement->unit_device[0], 1);
    assert_int_equal(placement->unit_device[1], 1);
    assert_int_equal(placement->unit_device[2], 0);
    mt_placement_destroy(placement);
}

static void test_objectives_differ(void **state)
{
    struct mt_place_unit units[] = {layer(0, 10), layer(1, 10), layer(2, 10), layer(3, 10)};
    const struct mt_place_device devices[] = {
        {.capacity_bytes = 100, .limit_bytes = 100, .bytes_per_second = 1},
        {.capacity_bytes = 100, .limit_bytes = 100, .bytes_per_second = 4}};
    struct mt_place_problem problem = {
        .units = units, .n_units = 4, .devices = devices, .n_devices = 2};
    struct mt_placement *placement;
    (void)state;
    assert_int_equal(mt_place_units(&problem, &placement, NULL), 0);
    assert_true(placement->crossings < 0.5);
    mt_placement_destroy(placement);
    problem.objective = MT_OBJECTIVE_BALANCE;
    assert_int_equal(mt_place_units(&problem, &placement, NULL), 0);
    assert_int_equal(placement->devices[0].n_units, 2);
    assert_int_equal(placement->devices[1].n_units, 2);
    mt_placement_destroy(placement);
    problem.objective = MT_OBJECTIVE_SPEED;
    assert_int_equal(mt_place_units(&problem, &placement, NULL), 0);
    assert_int_equal(placement->devices[1].n_units, 4);
    mt_placement_destroy(placement);
    /* Two stretches of two: each of the layers takes a byte for a token, and 80 are free. */
    for (size_t i = 0; i < 4; i++)
        units[i].token_bytes = 1;
    problem.objective = MT_OBJECTIVE_ROOM;
    assert_int_equal(mt_place_units(&problem, &placement, NULL), 0);
    assert_int_equal(placement->further_tokens, 40);
    mt_placement_destroy(placement);
}

static void test_pins_are_kept_and_contradictions_named(void **state)
{
    struct mt_place_unit units[] = {layer(0, 10), layer(1, 10), layer(2, 10), layer(3, 10)};
    const struct mt_place_device devices[] = {{.capacity_bytes = 100, .limit_bytes = 100},
                                              {.capacity_bytes = 100, .limit_bytes = 100}};
    const struct mt_place_problem problem = {
        .units = units, .n_units = 4, .devices = devices, .n_devices = 2};
    struct mt_placement *placement;
    struct mt_error error;
    (void)state;
    units[0].pinned = 1;
    units[3].pinned = 0;
    assert_int_equal(mt_place_units(&problem, &placement, &error), 0);
    assert_int_equal(placement->unit_device[0], 1);
    assert_int_equal(placement->unit_device[3], 0);
    assert_true(placement->crossings > 0.5 && placement->crossings < 1.5);
    mt_placement_destroy(placement);
    units[1].pinned = 0;
    units[2].pinned = 1;
    assert_int_equal(mt_place_units(&problem, &placement, &error), MT_EARG);
    assert_non_null(strstr(error.text, "pinned to device 1"));
    units[1].pinned = 2;
    assert_int_equal(mt_place_units(&problem, &placement, &error), MT_EARG);
}

/* 70 bytes on two devices of 30: ten are missing, and 35 and 35 is possible with 5 more on each. */
static void test_what_is_missing_is_told(void **state)
{
    struct mt_place_unit units[14];
    const struct mt_place_device devices[] = {{.capacity_bytes = 30, .limit_bytes = 30},
                                              {.capacity_bytes = 30, .limit_bytes = 30}};
    const struct mt_place_problem problem = {
        .units = units, .n_units = 14, .devices = devices, .n_devices = 2};
    struct mt_placement *placement;
    struct mt_error error;
    (void)state;
    for (uint32_t i = 0; i < 14; i++)
        units[i] = layer(i, 5);
    assert_int_equal(mt_place_units(&problem, &placement, &error), MT_ELIMIT);
    assert_non_null(strstr(error.text, "(5 B) more on each device"));
}

/* Experts leave first, of the first layers; whole layers only where that is too little. */
static void test_what_leaves_for_the_host(void **state)
{
    struct mt_place_unit units[6];
    struct mt_place_device device = {.capacity_bytes = 100, .limit_bytes = 100};
    const struct mt_place_problem problem = {.units = units,
                                             .n_units = 6,
                                             .devices = &device,
                                             .n_devices = 1,
                                             .experts_may_leave = 1,
                                             .layers_may_leave = 1};
    struct mt_placement *placement;
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        units[i] = layer(i, 5);
        units[i].experts = 4;
        units[i].experts_used = 2;
        units[i].expert_bytes = 20;
    }
    /* 30 + 6 * 20 = 150: three layers' experts are 60. */
    assert_int_equal(mt_place_units(&problem, &placement, NULL), 0);
    assert_int_equal(placement->host_expert_layers, 3);
    assert_int_equal(placement->host_layers, 0);
    assert_int_equal(placement->host_bytes, 60);
    assert_true(placement->crossings > 5.99 && placement->crossings < 6.01); /* there and back */
    assert_int_equal(placement->expert_device[2], MT_PLACE_HOST);
    assert_int_equal(placement->expert_device[3], 0);
    mt_placement_destroy(placement);
    /* 12 bytes hold two dense layers, whose experts are gone too. */
    device.limit_bytes = 12;
    assert_int_equal(mt_place_units(&problem, &placement, NULL), 0);
    assert_int_equal(placement->host_layers, 4);
    assert_int_equal(placement->host_expert_layers, 2);
    assert_int_equal(placement->devices[0].used_bytes, 10);
    mt_placement_destroy(placement);
}

/* A token goes back to the embedding's device for an output that is the embedding. */
static void test_a_tied_output_costs_a_crossing(void **state)
{
    struct mt_place_unit units[] = {layer(0, 30), layer(1, 30)};
    const struct mt_place_device devices[] = {{.capacity_bytes = 40, .limit_bytes = 40},
                                              {.capacity_bytes = 40, .limit_bytes = 40}};
    const struct mt_place_problem problem = {
        .units = units, .n_units = 2, .devices = devices, .n_devices = 2, .output_is_input = 1};
    struct mt_placement *placement;
    (void)state;
    assert_int_equal(mt_place_units(&problem, &placement, NULL), 0);
    assert_true(placement->crossings > 1.99 && placement->crossings < 2.01);
    mt_placement_destroy(placement);
}

/* The fast card has room for one of the two: a dense layer of 30 is read whole, of a layer with
 * experts 10 and a tenth of 40. */
static void test_the_fast_card_gets_what_is_read_most(void **state)
{
    struct mt_place_unit units[] = {layer(0, 10), layer(1, 30)};
    const struct mt_place_device devices[] = {
        {.capacity_bytes = 60, .limit_bytes = 60, .bytes_per_second = 1},
        {.capacity_bytes = 60, .limit_bytes = 60, .bytes_per_second = 4}};
    const struct mt_place_problem problem = {.units = units,
                                             .n_units = 2,
                                             .devices = devices,
                                             .n_devices = 2,
                                             .objective = MT_OBJECTIVE_SPEED};
    struct mt_placement *placement;
    (void)state;
    units[0].experts = 10;
    units[0].experts_used = 1;
    units[0].expert_bytes = 40;
    assert_int_equal(mt_place_units(&problem, &placement, NULL), 0);
    assert_int_equal(placement->unit_device[1], 1);
    /* Where a token uses all experts, their layer is the one that is read most. */
    mt_placement_destroy(placement);
    units[0].experts_used = 10;
    assert_int_equal(mt_place_units(&problem, &placement, NULL), 0);
    assert_int_equal(placement->unit_device[0], 1);
    mt_placement_destroy(placement);
}

/* Seven cards of which six are needed, with random links: no order of six of them is faster. */
enum { LINKED = 6, OF_CARDS = 7 };

static double fastest_path(const double *seconds, unsigned taken, size_t last, size_t more)
{
    double best = more ? 1e9 : 0;
    for (size_t d = 0; more && d < OF_CARDS; d++) {
        if (taken >> d & 1)
            continue;
        double path = taken ? seconds[last * OF_CARDS + d] : 0;
        path += fastest_path(seconds, taken | 1u << d, d, more - 1);
        best = path < best ? path : best;
    }
    return best;
}

static void test_the_path_takes_the_fastest_links(void **state)
{
    struct mt_place_unit units[LINKED];
    struct mt_place_device devices[OF_CARDS];
    double seconds[OF_CARDS * OF_CARDS];
    uint64_t random = 88172645463325252u;
    (void)state;
    for (uint32_t i = 0; i < LINKED; i++)
        units[i] = layer(i, 30);
    for (size_t d = 0; d < OF_CARDS; d++)
        devices[d] = (struct mt_place_device){.capacity_bytes = 40, .limit_bytes = 40};
    for (int round = 0; round < 50; round++) {
        const struct mt_place_problem problem = {.units = units,
                                                 .n_units = LINKED,
                                                 .devices = devices,
                                                 .n_devices = OF_CARDS,
                                                 .link_seconds = seconds};
        struct mt_placement *placement;
        for (size_t a = 0; a < OF_CARDS; a++)
            for (size_t b = a; b < OF_CARDS; b++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                seconds[a * OF_CARDS + b] = seconds[b * OF_CARDS + a] =
                    (double)(random >> 40 & 15) / 16;
            }
        assert_int_equal(mt_place_units(&problem, &placement, NULL), 0);
        assert_true(placement->link_seconds < fastest_path(seconds, 0, 0, LINKED) + 1e-9);
        mt_placement_destroy(placement);
    }
}

/* The small card has room for the middle layer alone, however slow its links are. */
static void test_links_change_nothing_where_cards_differ(void **state)
{
    const struct mt_place_unit units[] = {layer(0, 80), layer(1, 30), layer(2, 90)};
    const struct mt_place_device devices[] = {{.capacity_bytes = 100, .limit_bytes = 100},
                                              {.capacity_bytes = 40, .limit_bytes = 40},
                                              {.capacity_bytes = 100, .limit_bytes = 100}};
    const double seconds[] = {0, 1, 0.125, 1, 0, 0.25, 0.125, 0.25, 0};
    const struct mt_place_problem problem = {
        .units = units, .n_units = 3, .devices = devices, .n_devices = 3, .link_seconds = seconds};
    struct mt_placement *placement;
    (void)state;
    assert_int_equal(mt_place_units(&problem, &placement, NULL), 0);
    assert_int_equal(placement->unit_device[1], 1);
    assert_true(placement->link_seconds > 1.24 && placement->link_seconds < 1.26);
    mt_placement_destroy(placement);
}

/* More cards than are tried in every order: pairs are bridged, and two cards are enough. */
static void test_two_of_many_cards_are_a_pair(void **state)
{
    enum { CARDS = 20 };
    const struct mt_place_unit units[] = {layer(0, 30), layer(1, 30)};
    struct mt_place_device devices[CARDS];
    double seconds[CARDS * CARDS];
    struct mt_placement *placement;
    (void)state;
    for (size_t d = 0; d < CARDS; d++)
        devices[d] = (struct mt_place_device){.capacity_bytes = 40, .limit_bytes = 40};
    for (size_t i = 0; i < CARDS * CARDS; i++)
        seconds[i] = 1;
    seconds[7 * CARDS + 13] = seconds[13 * CARDS + 7] = 0.25;
    struct mt_place_problem problem = {
        .units = units, .n_units = 2, .devices = devices, .n_devices = 2, .link_seconds = seconds};
    assert_int_equal(mt_place_units(&problem, &placement, NULL), 0);
    mt_placement_destroy(placement);
    problem.n_devices = CARDS;
    assert_int_equal(mt_place_units(&problem, &placement, NULL), 0);
    int a = placement->unit_device[0];
    int b = placement->unit_device[1];
    assert_true((a == 7 && b == 13) || (a == 13 && b == 7));
    mt_placement_destroy(placement);
}

/* Two layers of 30 stay with the embedding of 10: 70, and room for one of the layers that left, 30.
 * Their caches of 2 stay, too, and each further token takes 4 there. */
static void test_what_a_host_only_keeps_is_computed_on_the_first_device(void **state)
{
    struct mt_place_unit units[] = {layer(MT_NO_LAYER, 10), layer(0, 30), layer(1, 30),
                                    layer(2, 30), layer(3, 30)};
    struct mt_place_device device = {.capacity_bytes = 200, .limit_bytes = 110};
    struct mt_place_problem problem = {.units = units,
                                       .n_units = 5,
                                       .devices = &device,
                                       .n_devices = 1,
                                       .layers_may_leave = 1,
                                       .host_keeps_only = 1};
    struct mt_placement *placement;
    (void)state;
    for (size_t i = 1; i < 5; i++) {
        units[i].cache_bytes = 2;
        units[i].token_bytes = 1;
    }
    assert_int_equal(mt_place_units(&problem, &placement, NULL), 0);
    assert_int_equal(placement->unit_device[0], 0);
    assert_int_equal(placement->unit_device[1], MT_PLACE_HOST);
    assert_int_equal(placement->unit_device[2], MT_PLACE_HOST);
    assert_int_equal(placement->unit_device[3], 0);
    assert_int_equal(placement->host_bytes, 60);
    assert_int_equal(placement->devices[0].used_bytes, 10 + 60 + 30 + 4 * 2);
    assert_int_equal(placement->further_tokens, (110 - 108) / 4);
    assert_true(placement->crossings < 0.01);
    mt_placement_destroy(placement);
    /* The host has room for one of the two. */
    problem.host_limit_bytes = 59;
    assert_int_equal(mt_place_units(&problem, &placement, NULL), 0);
    assert_int_equal(placement->unit_device[1], MT_PLACE_HOST);
    assert_int_equal(placement->unit_device[2], MT_PLACE_DISK);
    assert_int_equal(placement->host_bytes, 30);
    assert_int_equal(placement->disk_bytes, 30);
    mt_placement_destroy(placement);
    /* Without 2 of the 108 bytes, a cache's, one more leaves. */
    device.limit_bytes = 107;
    assert_int_equal(mt_place_units(&problem, &placement, NULL), 0);
    assert_int_equal(placement->host_layers, 3);
    mt_placement_destroy(placement);
    /* What is pinned stays: with layer 0 nothing can leave. */
    units[1].pinned = 0;
    assert_int_equal(mt_place_units(&problem, &placement, NULL), MT_ELIMIT);
}

/* One of four experts is drawn, nine times of ten the first: only the others are elsewhere. */
static void test_crossings_follow_the_use_of_experts(void **state)
{
    struct mt_place_unit units[] = {layer(0, 10), layer(1, 10)};
    const struct mt_place_device devices[] = {{.capacity_bytes = 50, .limit_bytes = 50},
                                              {.capacity_bytes = 50, .limit_bytes = 50}};
    const double use[] = {9, 1, 0, 0, 0, 0, 1, 9};
    struct mt_place_problem problem = {
        .units = units, .n_units = 2, .devices = devices, .n_devices = 2, .expert_use = use};
    struct mt_placement *placement;
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        units[i].experts = 4;
        units[i].experts_used = 1;
        units[i].expert_bytes = 40;
    }
    /* Experts 0 and 2 lie on the first device, 1 and 3 on the last: of the first layer one token in
     * ten goes there and back, of the second one in ten goes back to the first. */
    assert_int_equal(mt_place_by_policy(&problem, MT_PLACE_POLICY_ROUND_ROBIN, &placement, NULL),
                     0);
    assert_true(placement->crossings > 1 + 2 * 0.1 + 2 * 0.1 - 1e-9);
    assert_true(placement->crossings < 1 + 2 * 0.1 + 2 * 0.1 + 1e-9);
    mt_placement_destroy(placement);
    /* All experts of a layer without counts are alike: half of its tokens go there and back. */
    const double of_one[] = {9, 1, 0, 0, 0, 0, 0, 0};
    problem.expert_use = of_one;
    assert_int_equal(mt_place_by_policy(&problem, MT_PLACE_POLICY_ROUND_ROBIN, &placement, NULL),
                     0);
    assert_true(placement->crossings > 1 + 2 * 0.1 + 2 * 0.5 - 1e-9);
    assert_true(placement->crossings < 1 + 2 * 0.1 + 2 * 0.5 + 1e-9);
    mt_placement_destroy(placement);
    problem.expert_use = NULL;
    assert_int_equal(mt_place_by_policy(&problem, MT_PLACE_POLICY_ROUND_ROBIN, &placement, NULL),
                     0);
    assert_true(placement->crossings > 3 - 1e-9 && placement->crossings < 3 + 1e-9);
    mt_placement_destroy(placement);
}

/* The first device has room for three experts of its layer: the one that is used least leaves. */
static void test_traffic_sends_away_what_is_used_least(void **state)
{
    struct mt_place_unit units[] = {layer(0, 10), layer(1, 10)};
    const struct mt_place_device devices[] = {{.capacity_bytes = 50, .limit_bytes = 44},
                                              {.capacity_bytes = 99, .limit_bytes = 99}};
    const double use[] = {5, 1, 7, 7, 1, 1, 1, 1};
    const struct mt_place_problem problem = {
        .units = units, .n_units = 2, .devices = devices, .n_devices = 2, .expert_use = use};
    struct mt_placement *placement;
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        units[i].experts = 4;
        units[i].experts_used = 2;
        units[i].expert_bytes = 40;
    }
    assert_int_equal(mt_place_by_policy(&problem, MT_PLACE_POLICY_TRAFFIC, &placement, NULL), 0);
    const int where[] = {0, 1, 0, 0, 1, 1, 1, 1};
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(placement->expert_at[i], where[i]);
    mt_placement_destroy(placement);
}

/* Counts of two layers have nothing to do with each other: of the first an eighth is less than a
 * quarter of the second. The first device has room for seven of eight experts. */
static void test_counts_are_shares_of_their_layer(void **state)
{
    struct mt_place_unit units[] = {layer(0, 10), layer(1, 10), layer(2, 10), layer(3, 10)};
    const struct mt_place_device devices[] = {{.capacity_bytes = 99, .limit_bytes = 94},
                                              {.capacity_bytes = 199, .limit_bytes = 199}};
    const double use[] = {1000, 1000, 2000, 4000, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const struct mt_place_problem problem = {
        .units = units, .n_units = 4, .devices = devices, .n_devices = 2, .expert_use = use};
    struct mt_placement *placement;
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        units[i].experts = 4;
        units[i].experts_used = 2;
        units[i].expert_bytes = 40;
    }
    assert_int_equal(mt_place_by_policy(&problem, MT_PLACE_POLICY_TRAFFIC, &placement, NULL), 0);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(placement->expert_at[i], i == 1);
    mt_placement_destroy(placement);
}

static void test_a_file_of_uses(void **state)
{
    static const char text[] = "layer,expert,count\n0,1,5\n\n# nothing\n3,7,2.5 # twice\r\n3,7,1";
    static const char *const wrong[] = {"0,1,2\n0,1\n",         "0,0,1\n0,x,1",   "0,0,1\n-1,0,1",
                                        "0,0,1\n0,0,-1",        "0,0,1\n0,0,nan", "0,0,1\n0,0,1,2",
                                        "0,0,1\n4294967296,0,1"};
    struct mt_expert_use *uses;
    struct mt_error error;
    size_t n;
    (void)state;
    assert_int_equal(mt_expert_uses_parse("t", text, sizeof text - 1, &uses, &n, &error), 0);
    assert_int_equal(n, 3);
    assert_int_equal(uses[0].expert, 1);
    assert_int_equal(uses[1].layer, 3);
    assert_true(uses[1].count > 2.4 && uses[1].count < 2.6);
    mt_expert_uses_destroy(uses);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(mt_expert_uses_parse("t", wrong[i], strlen(wrong[i]), &uses, &n, &error),
                         MT_EFORMAT);
        assert_non_null(strstr(error.text, "t: line 2"));
    }
}

/* Two ends of 1050 and 32 layers of 453 on 11003 and 5797: 8 layers go with both ends, 8 * 453 + 2
 * * 1050 = 5724, and 24 * 453 = 10872. No stretch is cut so, and there are 2^34 maps. */
static void test_many_layers_that_are_alike_are_packed(void **state)
{
    struct mt_place_unit units[34];
    const struct mt_place_device devices[] = {{.capacity_bytes = 11003, .limit_bytes = 11003},
                                              {.capacity_bytes = 5797, .limit_bytes = 5797}};
    struct mt_place_problem problem = {
        .units = units, .n_units = 34, .devices = devices, .n_devices = 2};
    struct mt_placement *placement;
    (void)state;
    for (uint32_t i = 0; i < 34; i++)
        units[i] = layer(i, i == 0 || i == 33 ? 1050 : 453);
    assert_int_equal(mt_place_units(&problem, &placement, NULL), MT_ELIMIT);
    problem.stretches_may_break = 1;
    assert_int_equal(mt_place_units(&problem, &placement, NULL), 0);
    assert_int_equal(placement->devices[0].used_bytes, 10872);
    assert_int_equal(placement->devices[1].used_bytes, 5724);
    mt_placement_destroy(placement);
}

static void test_no_problem_is_refused(void **state)
{
    struct mt_place_unit unit = layer(0, 5);
    struct mt_place_device device = {.capacity_bytes = 0};
    struct mt_place_problem problem = {.units = &unit, .n_units = 1};
    struct mt_placement *placement;
    (void)state;
    assert_int_equal(mt_place_units(&problem, &placement, NULL), MT_EARG);
    problem.devices = &device;
    problem.n_devices = 1;
    assert_int_equal(mt_place_units(&problem, &placement, NULL), MT_EARG);
    device.capacity_bytes = device.limit_bytes = 10;
    problem.n_units = 0;
    assert_int_equal(mt_place_units(&problem, &placement, NULL), MT_EARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_known_map_of_mixtral),
        cmocka_unit_test(test_the_best_of_mixtral),
        cmocka_unit_test(test_the_published_sizes_follow_from_their_constants),
        cmocka_unit_test(test_devices_that_differ_are_tried_in_each_order),
        cmocka_unit_test(test_objectives_differ),
        cmocka_unit_test(test_pins_are_kept_and_contradictions_named),
        cmocka_unit_test(test_what_is_missing_is_told),
        cmocka_unit_test(test_what_leaves_for_the_host),
        cmocka_unit_test(test_a_tied_output_costs_a_crossing),
        cmocka_unit_test(test_the_fast_card_gets_what_is_read_most),
        cmocka_unit_test(test_the_path_takes_the_fastest_links),
        cmocka_unit_test(test_links_change_nothing_where_cards_differ),
        cmocka_unit_test(test_two_of_many_cards_are_a_pair),
        cmocka_unit_test(test_what_a_host_only_keeps_is_computed_on_the_first_device),
        cmocka_unit_test(test_crossings_follow_the_use_of_experts),
        cmocka_unit_test(test_traffic_sends_away_what_is_used_least),
        cmocka_unit_test(test_counts_are_shares_of_their_layer),
        cmocka_unit_test(test_a_file_of_uses),
        cmocka_unit_test(test_many_layers_that_are_alike_are_packed),
        cmocka_unit_test(test_no_problem_is_refused),
    };
    return RUN_TESTS(tests);
}
