/* SPDX-License-Identifier: MIT */
/* Which cards do, by estimates of each: what the driver takes differs from card to card, so that a
 * size alone does not tell. */
#include <memtally/predict.h>
#include <stdlib.h>
#include <string.h>

#include "cli/model/model.h"

#define KNOWN_MAX        256
#define CAPABILITY_LEAST 75 /* of CUDA 13: 7.5, Turing */
#define GIB              (UINT64_C(1) << 30)

/* Cards of one kind, the smallest first. */
struct known {
    struct mt_rehearsal_gpu gpu[KNOWN_MAX];
    size_t n;
};

/* GiB as a card is sold with. */
static uint64_t sold_gib(const struct mt_rehearsal_gpu *gpu)
{
    return (gpu->memory_bytes + GIB - 1) / GIB;
}

/* If several cards are sold with the same memory, the one that is mostly meant comes first. */
static int by_memory(const void *a, const void *b)
{
    const struct mt_rehearsal_gpu *one = a, *other = b;
    if (sold_gib(one) != sold_gib(other))
        return sold_gib(one) < sold_gib(other) ? -1 : 1;
    if (one->is_typical != other->is_typical)
        return other->is_typical - one->is_typical;
    return (one->memory_bytes > other->memory_bytes) - (one->memory_bytes < other->memory_bytes);
}

/* Gathers only such of NVIDIA's as CUDA of today knows. */
static void gather(const char *kind, struct known *known)
{
    struct mt_rehearsal_gpu gpu;
    int is_cuda = !strcmp(kind, "cuda");
    known->n = 0;
    for (size_t i = 0; known->n < KNOWN_MAX && mt_rehearsal_gpu_at(i, &gpu) == 0; i++)
        if (!strcmp(gpu.kind, kind) && (!is_cuda || gpu.capability >= CAPABILITY_LEAST))
            known->gpu[known->n++] = gpu;
    qsort(known->gpu, known->n, sizeof *known->gpu, by_memory);
}

static int fits(const struct mt_model *model, const struct mt_predict_settings *asked,
                const struct mt_rehearsal_gpu *gpu, size_t n)
{
    uint64_t bytes[ESTIMATE_DEVICES_MAX];
    struct mt_device_known cards[ESTIMATE_DEVICES_MAX];
    struct mt_predict_settings settings = *asked;
    struct mt_estimate *estimate;
    memset(cards, 0, sizeof cards);
    for (size_t i = 0; i < n; i++) {
        bytes[i] = gpu->memory_bytes;
        memcpy(cards[i].gpu, gpu->key, sizeof gpu->key);
    }
    settings.device_bytes = bytes;
    settings.device_known = cards;
    settings.device_used_bytes = NULL;
    settings.n_devices = n;
    if (mt_estimate_create(model, &settings, &estimate, NULL) < 0)
        return 0;
    int is_well = estimate->verdict == MT_VERDICT_FITS || estimate->fits_as_counted;
    mt_estimate_destroy(estimate);
    return is_well;
}

/* The first card of which `n` do, up to `end`; `end` where none does. */
static size_t first_of(const struct mt_model *model, const struct mt_predict_settings *settings,
                       const struct known *known, size_t n, size_t end)
{
    size_t i = 0;
    while (i < end && !fits(model, settings, &known->gpu[i], n))
        i++;
    return i;
}

static void add(const struct mt_rehearsal_gpu *gpu, size_t n, struct cli_document_answer *answer,
                struct estimate_cards *cards)
{
    struct mt_rehearsal_gpu *kept = &cards->gpu[answer->n_cards];
    *kept = *gpu;
    answer->cards[answer->n_cards++] = (struct cli_document_cards){n, kept->key};
}

void estimate_name_cards(const struct mt_model *model, const struct mt_predict_settings *settings,
                         struct cli_document_answer *answer, struct estimate_cards *cards)
{
    struct known *known = malloc(sizeof *known);
    answer->n_cards = 0;
    if (!known)
        return;
    gather(settings->device_kind ? settings->device_kind : "cuda", known);
    size_t asked = settings->n_devices > 1 ? settings->n_devices : 0;
    size_t end = known->n;
    for (size_t n = asked ? asked : 1; n <= (asked ? asked : 8); n *= 2) {
        size_t first = first_of(model, settings, known, n, end);
        if (first == end)
            continue;
        add(&known->gpu[first], n, answer, cards);
        end = first;
    }
    free(known);
}
