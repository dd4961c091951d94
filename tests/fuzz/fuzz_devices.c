/* SPDX-License-Identifier: MIT */
/* Events of devices as a recording may have them, in any order, of several processes. Six bytes are
 * an event: which, and five fields; a byte above 200 is a number that nothing holds. */
#include <memtally/units.h>
#include <stdlib.h>
#include <string.h>

#include "tally/device_rows.h"
#include "tally/devices.h"

#define EVENT_BYTES 6u
#define LARGE_FROM  200u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static const uint8_t ops[] = {
    MT_EVENT_DEVICE,
    MT_EVENT_DEVICE_ALLOC,
    MT_EVENT_DEVICE_FREE,
    MT_EVENT_DEVICE_MAP,
    MT_EVENT_DEVICE_UNMAP,
    MT_EVENT_DEVICE_HELD,
    MT_EVENT_DEVICE_USED,
    MT_EVENT_DEVICE_REFUSED,
    MT_EVENT_DEVICE_RESET,
    MT_EVENT_DEVICE_POOL,
    MT_EVENT_DEVICE_CALLER,
    MT_EVENT_LABEL,
    MT_EVENT_BUFFER_ALLOC,
    MT_EVENT_BUFFER_USAGE,
    MT_EVENT_DEVICE_OTHERS,
    MT_EVENT_DEVICE_SEEN,
    MT_EVENT_PROCESS /* the next one begins */,
};

static uint64_t field_of(uint8_t byte)
{
    return byte < LARGE_FROM ? byte : UINT64_MAX >> (byte - LARGE_FROM);
}

static void must(int result)
{
    if (result < 0)
        abort();
}

static void take(struct mt_device_pass *pass, const uint8_t *data, uint64_t ns)
{
    static const char *const names[] = {"GPU-1", "GPU-2", "libnccl.so.2", "?"};
    struct mt_event event = {.op = ops[data[0] % sizeof ops]};
    const char *name = names[data[1] % 4];
    for (size_t i = 0; i < 5; i++)
        event.field[i] = field_of(data[1 + i]);
    if (event.op == MT_EVENT_DEVICE_OTHERS)
        must(mt_device_take_others(pass->devices, name, event.field[1], ns));
    else if (event.op == MT_EVENT_DEVICE_SEEN) {
        struct mt_device_sight sight = {name, name, event.field[2], event.field[3]};
        must(mt_device_take_seen(pass->devices, &sight, ns));
    } else if (event.op != MT_EVENT_PROCESS)
        must(mt_device_take(pass, &event, ns, name, name));
    else {
        struct mt_devices *devices = pass->devices;
        uint64_t pid = pass->pid + 1;
        must(mt_device_pass_finish(pass, ns));
        mt_device_pass_init(pass, devices, pid);
    }
}

/* Rows add up to what was taken, and where the driver says less than was allocated, to that. */
static void check(const struct mt_devices *devices, size_t place,
                  const struct mt_device_moment *moment, int adds_up)
{
    struct mt_claims claims;
    uint64_t sum = 0;
    uint64_t held = moment->allocated_bytes - moment->pooled_bytes + mt_device_reserved(moment);
    uint64_t taken = mt_device_taken(moment);
    must(mt_claims_init(&claims));
    must(mt_device_claims(devices, place, moment, 1, NULL, &claims));
    for (size_t i = 1; i < claims.n; i++)
        sum += claims.items[i].resident_bytes;
    mt_claims_finish(&claims);
    if (adds_up && sum != (taken == MT_UNKNOWN || taken < held ? held : taken))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length)
{
    struct mt_devices devices = {0};
    struct mt_device_pass pass;
    struct mt_device_moment moment;
    int is_small = 1;
    uint64_t ns = 1;
    mt_device_pass_init(&pass, &devices, 1);
    for (size_t at = 0; at + EVENT_BYTES <= length && ns < 4096; at += EVENT_BYTES) {
        for (size_t i = 1; i < EVENT_BYTES; i++)
            is_small &= data[at + i] < LARGE_FROM;
        take(&pass, data + at, ns++);
    }
    must(mt_device_pass_finish(&pass, ns));
    for (size_t place = 0; place < devices.n_places; place++) {
        must(mt_device_peak(&devices, place, &moment));
        check(&devices, place, &moment, is_small);
        must(mt_device_at(&devices, place, ns / 2, &moment));
        check(&devices, place, &moment, is_small);
    }
    mt_devices_finish(&devices);
    return 0;
}
