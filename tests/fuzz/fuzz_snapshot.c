/* SPDX-License-Identifier: MIT */
/* Snapshots of PyTorch's allocator: any bytes give a tally that adds up, or an error within them.
 */
#include <stdlib.h>

#include <memtally/error.h>

#include "pytorch/snapshot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static void check_tally(const struct mt_snapshot *snapshot, enum mt_moment_kind kind)
{
    const struct mt_moment moment = {.kind = kind, .time_ns = 1000};
    struct mt_tally *tally;
    struct mt_stack_list *stacks;
    if (mt_snapshot_tally(snapshot, &moment, &tally, NULL) == 0) {
        if (!mt_tally_adds_up(tally))
            abort();
        mt_tally_destroy(tally);
    }
    if (mt_snapshot_stacks(snapshot, &moment, 10, &stacks, NULL) == 0) {
        if (stacks->n_entries > 10)
            abort();
        mt_stack_list_destroy(stacks);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length)
{
    struct mt_snapshot *snapshot;
    struct mt_error error = {.offset = MT_NO_OFFSET};
    if (mt_snapshot_read(data, length, "fuzz", &snapshot, &error) != 0) {
        if (error.offset != MT_NO_OFFSET && error.offset > length)
            abort();
        return 0;
    }
    check_tally(snapshot, MT_MOMENT_PEAK);
    check_tally(snapshot, MT_MOMENT_EXIT);
    check_tally(snapshot, MT_MOMENT_TIME);
    mt_snapshot_close(snapshot);
    return 0;
}
