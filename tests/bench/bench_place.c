/* SPDX-License-Identifier: MIT */
/* How long the best placement takes to find: large models on many cards, alike and all different.
 */
#include <memtally/memtally.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ticks.h"

enum { UNITS_MAX = 128, DEVICES_MAX = 16, ROUNDS = 5 };

#define GIB (UINT64_C(1) << 30)

/* Layers of about a GiB, or with 256 experts of 10 GiB; an embedding and an output. */
static void make(struct mt_place_unit *units, size_t layers, uint32_t experts)
{
    for (size_t i = 0; i < layers + 2; i++) {
        int is_layer = i && i <= layers;
        units[i] = (struct mt_place_unit){.name = "unit",
                                          .layer = is_layer ? (uint32_t)(i - 1) : UINT32_MAX,
                                          .experts = is_layer ? experts : 0,
                                          .experts_used = 8,
                                          .dense_bytes = GIB + i * 37 % 11 * 1000003,
                                          .expert_bytes = is_layer && experts ? 10 * GIB : 0,
                                          .token_bytes = is_layer ? 4096 : 0,
                                          .pinned = MT_PLACE_ANY};
    }
}

static void measure(size_t layers, uint32_t experts, size_t n_devices, int differ)
{
    struct mt_place_unit units[UNITS_MAX];
    struct mt_place_device devices[DEVICES_MAX];
    make(units, layers, experts);
    for (size_t d = 0; d < n_devices; d++) {
        uint64_t bytes = (experts ? 60 : 20) * GIB + (differ ? d * GIB / 4 : 0);
        devices[d] = (struct mt_place_device){.name = "gpu",
                                              .capacity_bytes = bytes,
                                              .limit_bytes = bytes - GIB,
                                              .overhead_bytes = GIB};
    }
    for (int objective = 0; objective < MT_OBJECTIVE_COUNT; objective++) {
        const struct mt_place_problem problem = {.units = units,
                                                 .n_units = layers + 2,
                                                 .devices = devices,
                                                 .n_devices = n_devices,
                                                 .objective = (enum mt_objective)objective};
        double best_ms = 1e9;
        int is_best = 0;
        for (int i = 0; i < ROUNDS; i++) {
            struct mt_placement *placement;
            uint64_t start = mt_monotonic_ns();
            if (mt_place_units(&problem, &placement, NULL) < 0)
                exit(1);
            double ms = (double)(mt_monotonic_ns() - start) / 1e6;
            best_ms = ms < best_ms ? ms : best_ms;
            is_best = placement->is_best;
            mt_placement_destroy(placement);
        }
        printf("%zu layers, %u experts, %zu %s devices, %-9s %8.2f ms%s\n", layers, experts,
               n_devices, differ ? "different" : "equal", mt_objective_name(problem.objective),
               best_ms, is_best ? "" : " (not proved best)");
    }
}

int main(void)
{
    measure(126, 0, 8, 0);
    measure(126, 0, 8, 1);
    measure(61, 256, 16, 0);
    measure(61, 256, 16, 1);
    return 0;
}
