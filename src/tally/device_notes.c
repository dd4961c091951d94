/* SPDX-License-Identifier: MIT */
/* Sentences on what a device refused. */
#include "tally/device_notes.h"

#include <inttypes.h>
#include <memtally/error_code.h>
#include <memtally/units.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "pytorch/torch.h"
#include "tally/device_rows.h"

/* What each category had of a device at a moment. */
static int compose(const struct mt_devices *devices, size_t place, uint64_t ns,
                   struct mt_torch *torch, uint64_t of[MT_CATEGORY_END])
{
    struct mt_device_moment moment;
    struct mt_claims claims;
    memset(of, 0, MT_CATEGORY_END * sizeof *of);
    if (mt_device_at(devices, place, ns, &moment) < 0 || mt_claims_init(&claims) < 0)
        return MT_ENOMEM;
    int result = mt_device_claims(devices, place, &moment, 0, torch, &claims);
    for (size_t i = 1; i < claims.n && result == 0; i++)
        of[claims.items[i].category] += claims.items[i].resident_bytes;
    mt_claims_finish(&claims);
    return result;
}

/* The category that has most more than in `before`, and how much; none where all have less. */
static enum mt_category find_most(const uint64_t of[MT_CATEGORY_END],
                                  const uint64_t before[MT_CATEGORY_END], uint64_t *bytes)
{
    enum mt_category most = MT_CATEGORY_NONE;
    *bytes = 0;
    for (int i = 0; i < MT_CATEGORY_END; i++)
        if (of[i] > before[i] && of[i] - before[i] > *bytes) {
            *bytes = of[i] - before[i];
            most = (enum mt_category)i;
        }
    return most;
}

static void add_words(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add_words(char *text, size_t size, const char *format, ...)
{
    size_t length = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + length, size - length, format, arguments);
    va_end(arguments);
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

/* What had most of the device then, and what had grown most since it was half as full. */
static int add_composition(const struct mt_devices *devices,
                           const struct mt_device_refusal *refusal, struct mt_torch *torch,
                           char *text, size_t size)
{
    static const uint64_t nothing[MT_CATEGORY_END] = {0};
    uint64_t now[MT_CATEGORY_END], before[MT_CATEGORY_END], half_ns, bytes;
    char written[MT_SIZE_TEXT];
    if (mt_device_half_full(devices, refusal->place, refusal->ns, &half_ns) < 0 ||
        compose(devices, refusal->place, refusal->ns, torch, now) < 0 ||
        compose(devices, refusal->place, half_ns, torch, before) < 0)
        return MT_ENOMEM;
    enum mt_category category = find_most(now, nothing, &bytes);
    if (bytes)
        add_words(text, size, "; most of it was %s (%s)", mt_category_name(category),
                  mt_format_size(bytes, written));
    category = find_most(now, before, &bytes);
    if (bytes && half_ns)
        add_words(text, size, "; %s had grown most since it was half as full, by %s",
                  mt_category_name(category), mt_format_size(bytes, written));
    return 0;
}

static const struct mt_device_refusal *last_of(const struct mt_devices *devices, size_t place)
{
    const struct mt_device_refusal *last = NULL;
    for (size_t i = 0; i < devices->n_refusals; i++)
        if (devices->refusals[i].place == place && (!last || devices->refusals[i].ns >= last->ns))
            last = &devices->refusals[i];
    return last;
}

/* PyTorch asks again for the same once it has let go of what it keeps. */
static void add_others(const struct mt_devices *devices, const struct mt_device_refusal *last,
                       char *text, size_t size)
{
    size_t n_same = 0, n_others = 0;
    for (size_t i = 0; i < devices->n_refusals; i++) {
        const struct mt_device_refusal *refusal = &devices->refusals[i];
        int is_same = refusal->pid == last->pid && refusal->bytes == last->bytes;
        n_same += refusal->place == last->place && is_same;
        n_others += refusal->place == last->place && !is_same;
    }
    if (n_same > 1)
        add_words(text, size, "; the process asked for as much %zu times", n_same);
    if (n_others)
        add_words(text, size, "; %zu other allocation%s had been refused", n_others,
                  n_others == 1 ? "" : "s");
}

int mt_device_refusal_note(const struct mt_devices *devices, size_t place, uint64_t start_ns,
                           struct mt_torch *torch, char *text, size_t size)
{
    char written[MT_SIZE_TEXT];
    const struct mt_device_refusal *last = last_of(devices, place);
    text[0] = '\0';
    if (!last)
        return 0;
    add_words(text, size, "%.60s refused %s to process %" PRIu64 " %.1f s after the start",
              devices->places[place].name, mt_format_size(last->bytes, written), last->pid,
              (double)(last->ns - start_ns) / 1e9);
    if (last->free_bytes)
        add_words(text, size, ", with %s free", mt_format_size(last->free_bytes, written));
    const char *phase = phase_of(torch, last);
    const char *stack = stack_of(torch, last);
    if (phase)
        add_words(text, size, ", in %.40s", phase);
    if (stack)
        add_words(text, size, ", asked for by %.160s", stack);
    if (add_composition(devices, last, torch, text, size) < 0)
        return MT_ENOMEM;
    add_others(devices, last, text, size);
    return 0;
}
