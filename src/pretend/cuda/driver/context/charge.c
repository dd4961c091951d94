/* SPDX-License-Identifier: MIT */
/* The bytes that ranges take of a device, and their events in the account. */
#include "pretend/cuda/driver/memory/linear.h"
#include "pretend/cuda/driver/memory/memory.h"
#include "rehearse/account_note.h"
#include "rehearse/account_write.h"

uint32_t pretend_place(int device)
{
    return pretend_device(device)->place;
}

static const void *object_of(const struct pretend_range *range)
{
    return (const void *)(uintptr_t)range->base;
}

static int try_charge(const struct pretend_range *range, const char *name, uint64_t *free_bytes)
{
    uint32_t place = pretend_place(range->device);
    if (!pretend_take(place, range->held, free_bytes))
        return 0;
    pretend_note_alloc(place, (enum mt_category)range->category, 0, object_of(range), range->held,
                       name, NULL);
    return 1;
}

CUresult pretend_charge_quietly(const struct pretend_range *range, const char *name)
{
    uint64_t free_bytes;
    return try_charge(range, name, &free_bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult pretend_refuse_addresses(int device, enum mt_category category, uint64_t asked,
                                  const char *name)
{
    uint64_t free_bytes = pretend_free_bytes(pretend_place(device));
    pretend_note_refuse(pretend_place(device), category, asked, free_bytes, name, NULL);
    if (asked <= free_bytes)
        pretend_cuda_note("A pretended device has no more addresses, and an allocation was refused "
                          "for want of these: give the program more devices of less memory.");
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* What pools keep without using it is given back before anything is refused, and what processes
 * held that have ended. */
CUresult pretend_charge(const struct pretend_range *range, uint64_t asked, const char *name)
{
    uint64_t free_bytes;
    if (try_charge(range, name, &free_bytes) ||
        (pretend_pools_release(range->device) && try_charge(range, name, &free_bytes)) ||
        (pretend_await_gone() && try_charge(range, name, &free_bytes)))
        return CUDA_SUCCESS;
    pretend_note_refuse(pretend_place(range->device), (enum mt_category)range->category, asked,
                        free_bytes, name, NULL);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The account hears of the end first: a process that is killed between the two has then taken too
 * much, never too little. */
void pretend_discharge(const struct pretend_range *range)
{
    pretend_note_free(pretend_place(range->device), object_of(range), range->held);
    pretend_give_back(pretend_place(range->device), range->held);
}
