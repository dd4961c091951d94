/* SPDX-License-Identifier: MIT */
/* The budget of a rank, the rank that bounds all, and what follows from it for every place. */
#include "budget.h"

#include <inttypes.h>
#include <string.h>

#include <memtally/predict.h>

#include "base/error.h"
#include "flags.h"
#include "graphs.h"
#include "model/families.h"
#include "predict/sheet.h"
#include "predict/sums.h"

#define STEPS_MIB 42 /* of PyTorch's allocator */

struct sums {
    uint64_t bytes;
    uint64_t low;
    uint64_t high;
};

void mt_budget_add(struct mt_budget_rank *rank, struct mt_budget_part part)
{
    if (rank->n_parts < MT_BUDGET_PARTS_MAX)
        rank->parts[rank->n_parts++] = part;
}

int mt_budget_graphs_part(const struct mt_predict_input *in, const struct mt_torch_stage *stage,
                          struct mt_budget_part *part)
{
    struct mt_estimate_graphs graphs;
    mt_budget_graphs(in, &graphs);
    if (!graphs.present)
        return 0;
    mt_budget_weigh_graphs(in, stage, &graphs);
    uint64_t sure = mt_add(graphs.pool_bytes, graphs.driver_bytes);
    uint64_t wide = mt_add(mt_scale(graphs.driver_bytes, 2), mt_scale(graphs.static_bytes, 3));
    part->bytes = mt_add(sure, graphs.static_bytes);
    part->low = mt_scale(sure, 0.5);
    part->high = mt_add(mt_add(mt_scale(graphs.pool_bytes, 1.5), wide), STEPS_MIB * MT_MIB);
    return 1;
}

uint64_t mt_budget_smallest_device(const struct mt_predict_settings *settings)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < settings->n_devices; i++)
        least = settings->device_bytes[i] < least ? settings->device_bytes[i] : least;
    return least;
}

struct mt_gpu_spec mt_budget_card(const struct mt_predict_input *in)
{
    const struct mt_predict_settings *settings = in->settings;
    struct mt_gpu_row row = {.key = ""};
    const char *name = settings->device_known ? settings->device_known[0].gpu : "";
    if (!*name || mt_gpu_find(name, &row, NULL) < 0)
        mt_gpu_of_size(mt_budget_smallest_device(settings), NULL, &row, NULL);
    return row.gpu;
}

int mt_budget_complete_share(const struct mt_engine *engine, struct mt_predict_settings *settings,
                             struct mt_error *error)
{
    char flag[MT_BUDGET_FLAG_BYTES];
    int takes_all = !mt_engine_has(engine, "memory_share.all", "no");
    if (settings->memory_share == 0)
        settings->memory_share = mt_engine_real(engine, "memory_share", 0.9);
    double share = settings->memory_share;
    if (share > 0 && (takes_all ? share <= 1 : share < 1))
        return 0;
    return mt_fail(error, MT_EARG, MT_NO_OFFSET, "%s is %s, not %g",
                   mt_budget_flag(engine, "memory_share", flag),
                   takes_all ? "above 0 and at most 1" : "between 0 and 1", share);
}

/* What other programs hold of a rank's device. */
static uint64_t used_of(const struct mt_predict_input *in, const struct mt_budget_rank *rank)
{
    return in->settings->device_used_bytes ? in->settings->device_used_bytes[rank->device] : 0;
}

/* What the engine takes its share of: the device, or what is free of it. */
static uint64_t divided_bytes(const struct mt_predict_input *in, const struct mt_budget_rank *rank)
{
    uint64_t capacity = in->settings->device_bytes[rank->device];
    uint64_t used = used_of(in, rank);
    if (!mt_engine_has(in->engine, "memory_share.of", "free"))
        return capacity;
    return capacity > used ? capacity - used : 0;
}

/* The sums of the parts that stand so. The bands of what is fitted or assumed are wider of a
 * version that was not read, as those of the sheet's terms are. */
static struct sums sum(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                       unsigned stands)
{
    struct sums sums = {0};
    for (size_t i = 0; i < rank->n_parts; i++) {
        struct mt_budget_part part = rank->parts[i];
        if (!(stands >> part.stand & 1))
            continue;
        if (part.low < part.high)
            mt_widen_unread(in->engine, "unread", &part.low, &part.high);
        sums.bytes = mt_add(sums.bytes, part.bytes);
        sums.low = mt_add(sums.low, part.low);
        sums.high = mt_add(sums.high, part.high);
    }
    return sums;
}

/* What the engine asks for where `before` of the device is taken. It is below 0 where more is taken
 * than there is. */
static int64_t requested_of(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                            uint64_t before)
{
    int64_t free_bytes = (int64_t)divided_bytes(in, rank) - (int64_t)before;
    return free_bytes > 0 ? (int64_t)mt_scale((uint64_t)free_bytes, in->settings->memory_share)
                          : free_bytes;
}

#define BEFORE (1u << MT_BUDGET_BEFORE)
#define WITHIN (1u << MT_BUDGET_WITHIN | 1u << MT_BUDGET_SET_ASIDE)
#define BESIDE (1u << MT_BUDGET_BESIDE)
#define ASIDE  (1u << MT_BUDGET_SET_ASIDE)

static struct sums with_used(struct sums sums, uint64_t used)
{
    sums.bytes = mt_add(sums.bytes, used);
    sums.low = mt_add(sums.low, used);
    sums.high = mt_add(sums.high, used);
    return sums;
}

static void divide(const struct mt_budget_engine *engine, const struct mt_predict_input *in,
                   struct mt_budget_rank *rank, uint64_t device)
{
    rank->device = (int)device;
    if (engine->place)
        engine->place(in, rank);
    struct sums before = sum(in, rank, BEFORE);
    struct sums within = sum(in, rank, WITHIN);
    int64_t requested = requested_of(in, rank, before.bytes);
    /* If an engine leaves a part of the device free, what others hold is in the rest. */
    if (mt_engine_has(in->engine, "memory_share.of", "rest"))
        within = with_used(within, used_of(in, rank));
    rank->requested = requested > 0 ? (uint64_t)requested : 0;
    rank->left = requested - (int64_t)within.bytes;
    rank->left_low = requested_of(in, rank, before.high) - (int64_t)within.high;
    rank->left_high = requested_of(in, rank, before.low) - (int64_t)within.low;
}

static void make(const struct mt_budget_engine *engine, const struct mt_predict_input *in,
                 const struct mt_torch_walk *walk, int float_bytes, struct mt_budget_rank *rank)
{
    const struct mt_torch_load load = {
        .tensor_parallel = in->settings->tensor_parallel,
        .vocabulary_padding = mt_engine_number(in->engine, "weights", 64),
        .float_bytes = float_bytes,
        .whole_bytes = mt_engine_number(in->engine, "blocks.whole", 0),
        .rotation_bytes = mt_mul(mt_budget_rotations(in), sizeof(float)) / 2,
        .keeps_rotations = mt_budget_rotation_width(in) == sizeof(float),
        .attention_bytes =
            in->d->kv_lora_rank ? mt_engine_number(in->engine, "weights.latent.tensor", 0) : 0,
        .is_fused = engine->is_fused};
    memset(rank, 0, engine->rank_bytes);
    mt_torch_stage_of(in, walk->stage, in->settings->pipeline_parallel, &rank->stage);
    mt_torch_weights_of(in, &load, &rank->stage, &rank->weights);
    engine->make(in, rank);
}

static uint64_t units_in(const struct mt_budget_engine *engine, const struct mt_predict_input *in,
                         const struct mt_budget_rank *rank, int64_t bytes)
{
    return bytes > 0 ? engine->units(in, rank, (uint64_t)bytes) : 0;
}

static void lower(uint64_t *value, uint64_t other)
{
    if (other < *value)
        *value = other;
}

/* All ranks hold as many units as the one with the fewest. */
static void find_tightest(const struct mt_budget_engine *engine, const struct mt_predict_input *in,
                          int float_bytes, struct mt_budget_rank *rank,
                          struct mt_budget_rank *tightest, struct mt_budget_units *units)
{
    struct mt_torch_room least = {MT_FAR, INT64_MAX};
    *units = (struct mt_budget_units){MT_FAR, MT_FAR, MT_FAR};
    for (struct mt_torch_walk walk = {0}; mt_torch_next_rank(in, &walk);) {
        if (walk.opens_stage)
            make(engine, in, &walk, float_bytes, rank);
        divide(engine, in, rank, walk.device);
        const struct mt_torch_room room = {units_in(engine, in, rank, rank->left), rank->left};
        if (mt_torch_is_tighter(room, least)) {
            memcpy(tightest, rank, engine->rank_bytes);
            least = room;
        }
        if (room.units == MT_FAR)
            continue;
        lower(&units->n, room.units);
        lower(&units->low, units_in(engine, in, rank, rank->left_low));
        lower(&units->high, units_in(engine, in, rank, rank->left_high));
    }
    if (units->n == MT_FAR) /* a model without a cache */
        *units = (struct mt_budget_units){0};
}

/* What a rank takes beside its cache, where the cache takes what is left of the request. */
static uint64_t full(const struct mt_predict_input *in, const struct mt_budget_rank *rank,
                     uint64_t before)
{
    int64_t requested = requested_of(in, rank, before);
    return before + (requested > 0 ? (uint64_t)requested : 0);
}

/* Where the rank's cache takes what is left, its parts make up for each other. Where another rank
 * is tighter they do not: the cache stays as it is. */
static void bound_total(const struct mt_budget_engine *engine, const struct mt_predict_input *in,
                        const struct mt_budget_rank *rank, const struct mt_budget_units *units,
                        struct mt_sheet *sheet)
{
    const struct sums before = sum(in, rank, BEFORE);
    const struct sums parts = sum(in, rank, BEFORE | WITHIN);
    const struct sums beside = sum(in, rank, BESIDE);
    const struct sums aside = sum(in, rank, ASIDE);
    uint64_t cache = engine->cache_bytes(in, rank, units->n);
    uint64_t used = mt_add(mt_add(parts.bytes, cache), beside.bytes);
    uint64_t most = full(in, rank, before.high) + (aside.high - aside.bytes) + beside.high;
    uint64_t low = mt_add(mt_add(parts.low, engine->cache_bytes(in, rank, units->low)), beside.low);
    uint64_t high =
        mt_add(mt_add(parts.high, engine->cache_bytes(in, rank, units->high)), beside.high);
    if (!cache)
        return;
    if (units_in(engine, in, rank, rank->left) <= units->n) {
        uint64_t less = full(in, rank, before.bytes) - full(in, rank, before.low);
        low = used - beside.bytes + beside.low - less;
        high = most;
    }
    high = high < most ? high : most;
    mt_sheet_bound(sheet, rank->device, low, high > used ? high : used);
}

static void write_ranks(const struct mt_budget_engine *engine, const struct mt_predict_input *in,
                        int float_bytes, struct mt_budget_rank *rank,
                        const struct mt_budget_units *units, struct mt_sheet *sheet)
{
    for (struct mt_torch_walk walk = {0}; mt_torch_next_rank(in, &walk);) {
        if (walk.opens_stage)
            make(engine, in, &walk, float_bytes, rank);
        divide(engine, in, rank, walk.device);
        engine->write(in, rank, units, sheet);
        bound_total(engine, in, rank, units, sheet);
    }
}

static void fill_pool(const struct mt_budget_engine *engine, const struct mt_predict_input *in,
                      const struct mt_budget_rank *rank, const struct mt_budget_units *units,
                      struct mt_sheet *sheet)
{
    struct mt_estimate_pool *pool = mt_sheet_pool(sheet);
    *pool = (struct mt_estimate_pool){
        .present = 1, .requested_bytes = rank->requested, .pool_bytes = rank->left};
    engine->fill_pool(in, rank, units, pool);
}

/* An engine that asks for a share of a whole device refuses to start where so much is not free. */
static void judge_used(const struct mt_predict_input *in, struct mt_sheet *sheet)
{
    const struct mt_predict_settings *settings = in->settings;
    char title[MT_ENGINE_TITLE_BYTES];
    char flag[MT_BUDGET_FLAG_BYTES];
    if (!settings->device_used_bytes || !mt_engine_has(in->engine, "memory_share.of", "device"))
        return;
    for (struct mt_torch_walk walk = {0}; mt_torch_next_rank(in, &walk);) {
        uint64_t capacity = settings->device_bytes[walk.device];
        uint64_t used = settings->device_used_bytes[walk.device];
        uint64_t requested = mt_scale(capacity, settings->memory_share);
        if (used > capacity - requested)
            mt_sheet_cannot(sheet,
                            "%s asks for %.2f GiB of device %" PRIu64 ", and %.2f are free: "
                            "lower %s",
                            mt_engine_title(in->engine, title), mt_gib(requested), walk.device,
                            mt_gib(used < capacity ? capacity - used : 0),
                            mt_budget_flag(in->engine, "memory_share", flag));
    }
}

static void judge_context(const struct mt_predict_input *in, struct mt_sheet *sheet)
{
    uint64_t trained = in->d->context_length;
    char title[MT_ENGINE_TITLE_BYTES];
    char flag[MT_BUDGET_FLAG_BYTES];
    if (trained && in->settings->context_tokens > trained &&
        mt_engine_has(in->engine, "context.above_trained", "refused"))
        mt_sheet_cannot(
            sheet, "%s refuses %s %" PRIu64 " above the %" PRIu64 " that the model was trained for",
            mt_engine_title(in->engine, title), mt_budget_flag(in->engine, "context", flag),
            in->settings->context_tokens, trained);
}

static void note_idle(const struct mt_predict_input *in, struct mt_sheet *sheet)
{
    char flag[MT_BUDGET_FLAG_BYTES];
    size_t used = (size_t)(in->settings->tensor_parallel * in->settings->pipeline_parallel);
    if (used < in->settings->n_devices)
        mt_sheet_note(sheet, "%zu of %zu devices are used; %s takes more", used,
                      in->settings->n_devices, mt_budget_flag(in->engine, "tensor_parallel", flag));
}

int mt_budget_predict(const struct mt_budget_engine *engine, const struct mt_predict_input *in,
                      struct mt_budget_rank *rank, struct mt_budget_rank *tightest,
                      struct mt_sheet *sheet, struct mt_error *error)
{
    struct mt_budget_units units;
    char idle[MT_IDLE_TEXT];
    int float_bytes;
    int result = mt_torch_float_bytes(in, &float_bytes, error);
    if (result < 0)
        return result;
    find_tightest(engine, in, float_bytes, rank, tightest, &units);
    write_ranks(engine, in, float_bytes, rank, &units, sheet);
    fill_pool(engine, in, tightest, &units, sheet);
    mt_budget_graphs(in, mt_sheet_graphs(sheet));
    mt_budget_weigh_graphs(in, &tightest->stage, mt_sheet_graphs(sheet));
    judge_used(in, sheet);
    note_idle(in, sheet);
    engine->judge(in, tightest, &units, mt_torch_idle_devices(in, idle), sheet);
    judge_context(in, sheet);
    mt_budget_write_flags(in, sheet);
    return 0;
}

uint64_t mt_budget_rotations(const struct mt_predict_input *in)
{
    const struct mt_model_description *d = in->d;
    uint64_t width = d->qk_rope_head_size;
    for (uint64_t i = 0; i < d->n_layers && !d->kv_lora_rank; i++)
        width = d->layers[i].key_size > width ? d->layers[i].key_size : width;
    int two = mt_is_of_lineage(d->architecture, MT_LINEAGE_GEMMA3) ||
              mt_is_of_lineage(d->architecture, MT_LINEAGE_GEMMA4);
    if (mt_is_of_lineage(d->architecture, MT_LINEAGE_NEMOTRON_H)) /* states say where a token is */
        return 0;
    return mt_mul(mt_mul(d->context_length, width), two ? 2 : 1);
}

uint64_t mt_budget_rotation_width(const struct mt_predict_input *in)
{
    int is_wide = mt_is_of_lineage(in->d->architecture, MT_LINEAGE_GPT_OSS); /* asks for 32 bit */
    return is_wide ? sizeof(float) : mt_torch_float_width(in->settings);
}

void mt_budget_write_rotations(uint64_t bytes, int place, struct mt_sheet *sheet)
{
    mt_sheet_add(sheet,
                 &(struct mt_sheet_term){.place = place,
                                         .category = MT_CATEGORY_WEIGHTS,
                                         .name = "rotary cache",
                                         .rule = "rope_cache",
                                         .bytes = bytes,
                                         .provenance = MT_PROVENANCE_DERIVED},
                 "positions * rotated width * bytes of a float");
}
