/* SPDX-License-Identifier: MIT */
/* Phases and figures that engines of PyTorch go through and say, and who asked for what was
 * refused. */
#include <memtally/error_code.h>

#include "pytorch/torch.h"
#include "rehearse/rehearsal.h"

static uint64_t since_start(const struct mt_rehearsal *rehearsal, uint64_t time_ns)
{
    uint64_t start_ns = rehearsal->account->start_ns;
    return time_ns == UINT64_MAX ? UINT64_MAX : time_ns > start_ns ? time_ns - start_ns : 0;
}

int mt_rehearsal_refresh(struct mt_rehearsal *rehearsal)
{
    mt_torch_close(rehearsal->torch);
    rehearsal->torch = NULL;
    mt_torch_open(rehearsal->directory, &rehearsal->torch, NULL);
    return rehearsal->torch ? 0 : MT_ENOTFOUND;
}

/* The traces as they were last read. */
static const struct mt_torch *traces(struct mt_rehearsal *rehearsal)
{
    if (!rehearsal->torch)
        mt_rehearsal_refresh(rehearsal);
    return rehearsal->torch;
}

int mt_rehearsal_phase_at(struct mt_rehearsal *rehearsal, size_t index,
                          struct mt_rehearsal_phase *phase)
{
    const struct mt_torch *torch = traces(rehearsal);
    const struct mt_torch_phase *seen = torch ? mt_torch_phase_at(torch, index) : NULL;
    if (!seen)
        return MT_ENOTFOUND;
    *phase = (struct mt_rehearsal_phase){.pid = seen->pid,
                                         .device = seen->device,
                                         .name = seen->name,
                                         .category = seen->category,
                                         .begin_ns = since_start(rehearsal, seen->begin_ns),
                                         .end_ns = since_start(rehearsal, seen->end_ns),
                                         .begin_bytes = seen->begin_bytes,
                                         .end_bytes = seen->end_bytes,
                                         .peak_bytes = seen->peak_bytes,
                                         .peak_segment_bytes = seen->peak_segment_bytes};
    return 0;
}

int mt_rehearsal_figure_at(struct mt_rehearsal *rehearsal, size_t index,
                           struct mt_rehearsal_figure *figure)
{
    const struct mt_torch *torch = traces(rehearsal);
    const struct mt_torch_figure *seen = torch ? mt_torch_figure_at(torch, index) : NULL;
    if (!seen)
        return MT_ENOTFOUND;
    *figure = (struct mt_rehearsal_figure){.pid = seen->pid,
                                           .time_ns = since_start(rehearsal, seen->time_ns),
                                           .value = seen->value,
                                           .name = seen->name,
                                           .unit = seen->unit};
    return 0;
}

/* A process counts the devices that it sees: which one it is shows where its memory lies. */
static const char *place_of(const struct mt_rehearsal *rehearsal, const struct mt_torch *torch,
                            const struct mt_torch_most *most)
{
    const struct mt_noted *noted;
    for (size_t i = 0; (noted = mt_account_reader_at(&rehearsal->reader, i)) != NULL; i++)
        if (noted->event.kind == MT_REHEARSAL_ALLOC && noted->event.pid == most->pid &&
            mt_torch_has_of(torch, most->pid, most->device, noted->object))
            return noted->event.place;
    return mt_place_name((uint8_t)most->device);
}

int mt_rehearsal_allocator_at(struct mt_rehearsal *rehearsal, size_t index,
                              struct mt_rehearsal_allocator *allocator)
{
    const struct mt_torch *torch = traces(rehearsal);
    const struct mt_torch_most *seen = torch ? mt_torch_most_at(torch, index) : NULL;
    if (!seen)
        return MT_ENOTFOUND;
    *allocator = (struct mt_rehearsal_allocator){.pid = seen->pid,
                                                 .device = seen->device,
                                                 .place = place_of(rehearsal, torch, seen),
                                                 .max_allocated_bytes = seen->allocated_bytes,
                                                 .max_reserved_bytes = seen->reserved_bytes};
    return 0;
}

const char *mt_rehearsal_stack_of(struct mt_rehearsal *rehearsal,
                                  const struct mt_rehearsal_event *refusal)
{
    const struct mt_torch *torch = traces(rehearsal);
    const struct mt_torch_asker *asker;
    for (size_t i = 0; torch && (asker = mt_torch_asker_at(torch, i)) != NULL; i++)
        if (asker->pid == refusal->pid &&
            since_start(rehearsal, asker->time_ns) >= refusal->time_ns)
            return asker->stack;
    return NULL;
}
