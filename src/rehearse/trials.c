/* SPDX-License-Identifier: MIT */
/* Engines that choose what goes to the devices plan it several times before they settle. Knows the
 * events, and which of them are of the plan that counts. */
#include <stdlib.h>
#include <string.h>

#include "rehearse/rehearsal.h"

/* A pass over the events. */
struct pass {
    const struct mt_account *account;
    uint64_t held[MT_ACCOUNT_DEVICES_MAX];
    uint64_t most[MT_ACCOUNT_DEVICES_MAX]; /* of the trial in hand */
    size_t n_planned;                      /* and not forgotten */
    int has_weights;                       /* were planned in the trial in hand */
    int is_fitting;                        /* the chosen one */
    size_t first;                          /* event of the trial in hand */
    struct mt_span chosen;
};

static void hold(struct pass *pass, const struct mt_rehearsal_event *event)
{
    static const char device[] = "gpu:";
    if (strncmp(event->place, device, sizeof device - 1) != 0)
        return;
    unsigned long number = strtoul(event->place + sizeof device - 1, NULL, 10);
    if (number >= MT_ACCOUNT_DEVICES_MAX)
        return;
    uint64_t *held = &pass->held[number];
    if (event->kind == MT_REHEARSAL_FREE)
        *held -= event->bytes < *held ? event->bytes : *held;
    else if (__builtin_add_overflow(*held, event->bytes, held))
        *held = UINT64_MAX;
    if (*held > pass->most[number])
        pass->most[number] = *held;
}

static int fits(const struct pass *pass)
{
    for (uint32_t i = 0; i < pass->account->n_devices && i < MT_ACCOUNT_DEVICES_MAX; i++)
        if (pass->most[i] > pass->account->device[i].free_bytes)
            return 0;
    return 1;
}

/* The engine goes by the last plan that fits, where one does. */
static void end_trial(struct pass *pass, size_t last)
{
    int is_fitting = fits(pass);
    if (is_fitting || !pass->is_fitting)
        pass->chosen = (struct mt_span){pass->first, last};
    pass->is_fitting |= is_fitting;
    pass->first = last + 1;
    pass->has_weights = 0;
    memcpy(pass->most, pass->held, sizeof pass->most);
}

static void take(struct pass *pass, const struct mt_rehearsal_event *event, size_t index)
{
    if (event->kind != MT_REHEARSAL_ALLOC && event->kind != MT_REHEARSAL_FREE)
        return;
    hold(pass, event);
    if (!(event->flags & MT_REHEARSAL_PLANNED))
        return;
    if (event->kind == MT_REHEARSAL_ALLOC) {
        pass->n_planned++;
        pass->has_weights |= event->category == MT_CATEGORY_WEIGHTS;
    } else if (pass->n_planned && --pass->n_planned == 0 && pass->has_weights) {
        end_trial(pass, index);
    }
}

struct mt_span mt_account_reader_settled(const struct mt_account_reader *reader, int counts_plans)
{
    struct pass pass = {.account = reader->account, .chosen = {0, SIZE_MAX}};
    const struct mt_noted *noted;
    int is_loaded = 0;
    size_t i = 0;
    for (; (noted = mt_account_reader_at(reader, i)) != NULL; i++) {
        take(&pass, &noted->event, i);
        if (pass.first == i + 1)
            is_loaded = 0;
        is_loaded |= noted->event.kind == MT_REHEARSAL_ALLOC &&
                     noted->event.category == MT_CATEGORY_WEIGHTS &&
                     !(noted->event.flags & MT_REHEARSAL_PLANNED);
    }
    if (counts_plans && pass.has_weights)
        end_trial(&pass, i);
    if (counts_plans)
        return pass.chosen;
    return (struct mt_span){is_loaded ? pass.first : 0, SIZE_MAX};
}
