/* SPDX-License-Identifier: MIT */
/* Sentences on what a device refused. */
#include "tally/device_notes.h"

#include <inttypes.h>
#include <memtally/error.h>
#include <memtally/tally.h>
#include <memtally/units.h>
#include <stdio.h>
#include <string.h>

#include "pytorch/torch.h"
#include "tally/device_rows.h"

/* The category that had most of the device at a moment. */
static int find_largest(const struct mt_devices *devices, size_t place, uint64_t ns,
                        struct mt_torch *torch, enum mt_category *category, uint64_t *bytes)
{
    uint64_t of[MT_CATEGORY_END] = {0};
    struct mt_device_moment moment;
    struct mt_claims claims;
    if (mt_device_at(devices, place, ns, &moment) < 0 || mt_claims_init(&claims) < 0)
        return MT_ENOMEM;
    int result = mt_device_claims(devices, place, &moment, 0, torch, &claims);
    for (size_t i = 1; i < claims.n && result == 0; i++)
        of[claims.items[i].category] += claims.items[i].resident_bytes;
    mt_claims_finish(&claims);
    *category = MT_CATEGORY_NONE;
    *bytes = 0;
    for (int i = 0; i < MT_CATEGORY_END; i++)
        if (of[i] > *bytes) {
            *bytes = of[i];
            *category = (enum mt_category)i;
        }
    return result;
}

/* The call in Python by which PyTorch asked for it: the first that its allocator gave up on then or
 * later. NULL where it had no part in it. */
static const char *stack_of(const struct mt_torch *torch, const struct mt_device_refusal *refusal)
{
    const struct mt_torch_asker *asker, *best = NULL;
    for (size_t i = 0; torch && (asker = mt_torch_asker_at(torch, i)) != NULL; i++)
        if (asker->pid == refusal->pid && asker->time_ns >= refusal->ns &&
            (!best || asker->time_ns < best->time_ns))
            best = asker;
    return best && *best->stack ? best->stack : NULL;
}

static const char *phase_of(const struct mt_torch *torch, const struct mt_device_refusal *refusal)
{
    const struct mt_torch_phase *phase;
    const char *name = NULL;
    for (size_t i = 0; torch && (phase = mt_torch_phase_at(torch, i)) != NULL; i++)
        if (phase->pid == refusal->pid && phase->begin_ns <= refusal->ns &&
            phase->end_ns > refusal->ns)
            name = phase->name;
    return name;
}

int mt_device_refusal_note(const struct mt_devices *devices, size_t place, uint64_t start_ns,
                           struct mt_torch *torch, char *text, size_t size)
{
    const struct mt_device_refusal *last = NULL;
    char asked[MT_SIZE_TEXT], left[MT_SIZE_TEXT], most[MT_SIZE_TEXT];
    enum mt_category category = MT_CATEGORY_NONE;
    uint64_t bytes = 0;
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < devices->n_refusals; i++)
        if (devices->refusals[i].place == place) {
            n++;
            if (!last || devices->refusals[i].ns >= last->ns)
                last = &devices->refusals[i];
        }
    if (!last)
        return 0;
    int result = find_largest(devices, place, last->ns, torch, &category, &bytes);
    int length =
        snprintf(text, size, "%.60s refused %s to process %" PRIu64 " %.1f s after the start",
                 devices->places[place].name, mt_format_size(last->bytes, asked), last->pid,
                 (double)(last->ns - start_ns) / 1e9);
    if (last->free_bytes)
        length += snprintf(text + length, size - (size_t)length, ", with %s free",
                           mt_format_size(last->free_bytes, left));
    const char *phase = phase_of(torch, last);
    const char *stack = stack_of(torch, last);
    if (phase)
        length += snprintf(text + length, size - (size_t)length, ", in %.40s", phase);
    if (stack)
        length += snprintf(text + length, size - (size_t)length, ", asked for by %.160s", stack);
    if (bytes)
        length += snprintf(text + length, size - (size_t)length, "; most of it was %s (%s)",
                           mt_category_name(category), mt_format_size(bytes, most));
    if (n > 1)
        snprintf(text + length, size - (size_t)length, "; it had refused %zu allocation%s before",
                 n - 1, n == 2 ? "" : "s");
    return result;
}
