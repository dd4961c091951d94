/* SPDX-License-Identifier: MIT */
/* State of recurrent layers: for each sequence the last inputs of a convolution (R) and what has
 * been accumulated (S), both in single precision. With drafts each drafted token has its own copy,
 * so that it can be taken back. */
#include <inttypes.h>
#include <memtally/category.h>
#include <memtally/provenance.h>
#include <stdlib.h>

#include <memtally/settings.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "internal.h"
#include "predict/term.h"

/* Where a model does not say. */
#define KIMI_HEAD_SIZE 128
#define RWKV_HEAD_SIZE 64
#define RWKV_SHIFTS    2

/* Numbers in one sequence's state of one layer. */
struct state {
    uint64_t convolution;
    uint64_t accumulated;
};

static uint64_t or_else(uint64_t value, uint64_t otherwise)
{
    return value ? value : otherwise;
}

static struct state state_of(const struct mt_model_description *d,
                             const struct mt_model_layer *layer)
{
    uint64_t kernel = d->conv_kernel ? d->conv_kernel - 1 : 0;
    uint64_t head;
    uint64_t inner;
    switch (layer->recurrence) {
    case MT_RECURRENCE_MAMBA:
    case MT_RECURRENCE_MAMBA2:
    case MT_RECURRENCE_DELTA_NET:
        inner = mt_llama_times(2, mt_llama_times(d->group_count, d->state_size));
        return (struct state){mt_llama_times(kernel, mt_llama_add(d->inner_size, inner)),
                              mt_llama_times(d->state_size, d->inner_size)};
    case MT_RECURRENCE_KIMI_DELTA:
        head = or_else(d->state_size, KIMI_HEAD_SIZE);
        inner = or_else(d->inner_size, mt_llama_times(or_else(layer->heads, d->heads), head));
        return (struct state){mt_llama_times(3 * or_else(kernel, 3), inner),
                              mt_llama_times(head, inner)};
    case MT_RECURRENCE_SHORT_CONVOLUTION:
        kernel = d->short_conv_cache ? d->short_conv_cache - 1 : 0;
        return (struct state){mt_llama_times(d->embedding_length, kernel), 0};
    case MT_RECURRENCE_RWKV:
        return (struct state){
            mt_llama_times(RWKV_SHIFTS, d->embedding_length),
            mt_llama_times(d->embedding_length, or_else(d->state_size, RWKV_HEAD_SIZE))};
    default:
        return (struct state){0, 0};
    }
}

/* What one place holds. */
struct holding {
    uint64_t n;
    uint64_t bytes;
    struct state state;
};

static void add_layer(struct holding *holding, struct state state, uint64_t rows, int place)
{
    uint64_t r = mt_llama_times(mt_llama_times(state.convolution, rows), 4);
    uint64_t s = mt_llama_times(mt_llama_times(state.accumulated, rows), 4);
    uint64_t bytes = place == MT_HOST_PLACE
                         ? mt_llama_add(mt_llama_host_bytes(r), mt_llama_host_bytes(s))
                         : mt_llama_add(mt_llama_padded(r, 128), mt_llama_padded(s, 128));
    holding->n++;
    holding->bytes = mt_llama_add(holding->bytes, bytes);
    holding->state = state;
}

static void hold_layers(const struct mt_llama_plan *plan, struct holding *holdings, uint64_t rows)
{
    const struct mt_model_description *d = plan->in->d;
    for (uint64_t i = 0; i < d->n_layers; i++) {
        struct state state = state_of(d, &d->layers[i]);
        int place = plan->in->settings->kv_on_host ? MT_HOST_PLACE : plan->device_of[i];
        if (state.convolution || state.accumulated)
            add_layer(&holdings[place + 1], state, rows, place);
    }
}

static int write_holdings(const struct mt_llama_plan *plan, const struct holding *holdings,
                          uint64_t rows, struct mt_sheet *sheet, struct mt_error *error)
{
    for (int place = MT_HOST_PLACE; place < (int)plan->n_devices; place++) {
        const struct holding *holding = &holdings[place + 1];
        struct mt_sheet_term term = {.place = place,
                                     .category = MT_CATEGORY_RECURRENT_STATE,
                                     .name = "state of recurrent layers",
                                     .rule = "recurrent_state",
                                     .bytes = holding->bytes,
                                     .provenance = MT_PROVENANCE_DERIVED};
        if (holding->bytes > MT_LLAMA_SANE_BYTES)
            return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET,
                           "the state of recurrent layers is too large to add up");
        mt_sheet_add(sheet, &term,
                     "%" PRIu64 " layers x %" PRIu64 " rows x (R %" PRIu64 " + S %" PRIu64
                     ") x 4 B",
                     holding->n, rows, holding->state.convolution, holding->state.accumulated);
    }
    return 0;
}

int mt_llama_state(const struct mt_llama_plan *plan, struct mt_sheet *sheet, struct mt_error *error)
{
    uint64_t rows =
        mt_llama_times(plan->sequences, mt_llama_add(1, plan->in->settings->draft_tokens));
    struct holding *holdings = calloc(plan->n_devices + 1, sizeof *holdings);
    if (!holdings)
        return mt_out_of_memory(error);
    hold_layers(plan, holdings, rows);
    int result = write_holdings(plan, holdings, rows, sheet, error);
    free(holdings);
    return result;
}
