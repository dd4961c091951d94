/* SPDX-License-Identifier: MIT */
/* Placing a model: an estimate tells what devices have beside weights and cache, the solver places,
 * and where an engine's rules take a split, an estimate of just that split has the last word. */
#include <inttypes.h>
#include <memtally/category.h>
#include <memtally/predict.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/units.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "flags.h"
#include "internal.h"
#include "machine.h"
#include "modules.h"
#include "parallel.h"
#include "traffic.h"

#define CONTEXT_TOKENS 8192
#define BUFFER_BYTES   (UINT64_C(1) << 30)
#define TRIES          6
#define LOOKS          32
#define NOTES_MAX      4

/* What a placed model owns. */
struct box {
    struct mt_placed placed; /* first: the caller's pointer */
    struct mt_place_units units;
    struct mt_place_device devices[MT_PLACE_DEVICES_MAX];
    char device_names[MT_PLACE_DEVICES_MAX][16];
    uint64_t context_bytes[MT_PLACE_DEVICES_MAX];
    double *link_seconds;
    double *expert_use;
    struct mt_placement *placement;
    struct mt_estimate *estimate;
    struct mt_strbuf environment;
    struct mt_strbuf flags;
    struct mt_place_modules modules;
    struct mt_place_memory memory[MT_PLACE_DEVICES_MAX + 1];
    struct mt_place_parallel *parallel;
    const char *notes[NOTES_MAX];
};

/* The settings of an estimate with the arrays that they refer to. */
struct split_settings {
    struct mt_predict_settings settings;
    uint64_t bytes[MT_PLACE_DEVICES_MAX];
    uint64_t used[MT_PLACE_DEVICES_MAX];
    struct mt_device_known known[MT_PLACE_DEVICES_MAX];
    double shares[MT_PLACE_DEVICES_MAX];
    size_t order[MT_PLACE_DEVICES_MAX];
    struct mt_tensor_override override;
    struct mt_strbuf pattern;
};

/* ---- what an estimate says ---- */

/* What the estimate says of a device, by what the bytes are for. */
struct said {
    uint64_t chain; /* weights and cache */
    uint64_t all;
    uint64_t rest_high;    /* the upper end of all but the chain, and what it may be longer */
    uint64_t context_high; /* the part of it that follows from the card */
};

static struct said said_of(const struct mt_estimate *estimate, size_t device)
{
    char place[16];
    struct said said = {0};
    snprintf(place, sizeof place, "gpu:%zu", device);
    for (size_t i = 0; i < estimate->n_terms; i++) {
        const struct mt_estimate_term *term = &estimate->terms[i];
        if (strcmp(term->place, place))
            continue;
        int is_chain = term->category == MT_CATEGORY_WEIGHTS ||
                       term->category == MT_CATEGORY_KV_CACHE ||
                       term->category == MT_CATEGORY_RECURRENT_STATE;
        /* A pool takes what is left, and its band says nothing of what it must have. */
        uint64_t fixed = is_chain ? estimate->pool.present ? term->high_bytes : term->bytes : 0;
        said.chain += is_chain ? term->bytes : 0;
        said.all += term->bytes;
        said.rest_high += term->high_bytes - fixed;
        said.context_high += term->category == MT_CATEGORY_CONTEXT ? term->high_bytes : 0;
    }
    return said;
}

static uint64_t sum_of(const struct mt_estimate *estimate, enum mt_category category)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < estimate->n_terms; i++)
        if (estimate->terms[i].category == category)
            bytes += estimate->terms[i].bytes;
    return bytes;
}

/* A pool holds more tokens, or fewer, than the context that was asked for. */
static uint64_t cache_of(const struct mt_estimate *estimate, uint64_t tokens)
{
    uint64_t bytes = sum_of(estimate, MT_CATEGORY_KV_CACHE);
    uint64_t pool = estimate->pool.present ? estimate->pool.pool_tokens : 0;
    return pool ? (uint64_t)((double)bytes * (double)tokens / (double)pool) : bytes;
}

/* ---- settings ---- */

/* The settings of the call with devices in the order of the stretches. */
static void take_order(struct split_settings *split, const struct mt_predict_settings *settings,
                       size_t n_devices)
{
    struct mt_predict_settings *s = &split->settings;
    *s = *settings;
    s->n_devices = n_devices;
    for (size_t i = 0; i < s->n_devices; i++) {
        size_t d = split->order[i];
        split->bytes[i] = settings->device_bytes[d];
        split->used[i] = settings->device_used_bytes ? settings->device_used_bytes[d] : 0;
        if (settings->device_known)
            split->known[i] = settings->device_known[d];
    }
    s->device_bytes = split->bytes;
    s->device_used_bytes = split->used;
    s->device_known = settings->device_known ? split->known : NULL;
}

/* With all layers on the devices, as many on each: what they need then beside their layers. */
static void set_evenly(struct split_settings *split, const struct mt_predict_settings *settings,
                       enum mt_place_way way, uint64_t n_layers)
{
    for (size_t i = 0; i < settings->n_devices; i++) {
        split->order[i] = i;
        split->shares[i] = 1;
    }
    take_order(split, settings, settings->n_devices);
    if (way == MT_PLACE_TENSOR_SPLIT || way == MT_PLACE_LAYERS) {
        split->settings.has_gpu_layers = 1;
        split->settings.gpu_layers = MT_ALL;
    }
    if (way == MT_PLACE_TENSOR_SPLIT) {
        split->settings.tensor_split = split->shares;
        split->settings.n_tensor_split = settings->n_devices;
    }
    if (way == MT_PLACE_STAGES)
        split->settings.pipeline_parallel =
            settings->n_devices < n_layers ? settings->n_devices : n_layers;
}

static void leave_out_copies(struct split_settings *split)
{
    split->override = (struct mt_tensor_override){MT_PLACE_NO_TENSOR, "CPU"};
    split->settings.overrides = &split->override;
    split->settings.n_overrides = 1;
}

/* As the engine will load the placement. */
static void set_as_placed(struct split_settings *split, const struct mt_predict_settings *settings,
                          const struct box *box, enum mt_place_way way)
{
    const struct mt_placement *placement = box->placement;
    struct mt_strbuf layers = {0};
    int are_first;
    uint64_t counted = 0;
    take_order(split, settings, mt_place_order(placement, split->order));
    for (size_t i = 0; i < split->settings.n_devices; i++) {
        uint64_t count = placement->devices[split->order[i]].n_units; /* with the output */
        split->shares[i] = (double)count;
        counted += count;
    }
    split->settings.has_gpu_layers = 1;
    split->settings.gpu_layers = counted;
    if (way == MT_PLACE_TENSOR_SPLIT) {
        split->settings.tensor_split = split->shares;
        split->settings.n_tensor_split = split->settings.n_devices;
    }
    size_t n = mt_place_expert_layers(placement, box->units.units, &layers, &are_first);
    if (n && are_first)
        split->settings.cpu_moe_layers = placement->host_layers + n;
    else if (n) {
        mt_strbuf_printf(&split->pattern, "blk\\.(%s)\\.ffn_.*_exps\\.", mt_strbuf_text(&layers));
        split->override = (struct mt_tensor_override){mt_strbuf_text(&split->pattern), "CPU"};
        split->settings.overrides = &split->override;
        split->settings.n_overrides = 1;
    } else if (box->placed.drops_copies) {
        leave_out_copies(split);
    }
    mt_strbuf_finish(&layers);
}

/* The caller destroys *even. */
static int estimate_evenly(const struct box *box, const struct mt_model *model,
                           const struct mt_predict_settings *settings, enum mt_place_way way,
                           struct mt_estimate **even, struct mt_error *error)
{
    struct split_settings split = {0};
    set_evenly(&split, settings, way, box->units.n_layers);
    if (box->placed.drops_copies)
        leave_out_copies(&split);
    return mt_estimate_create(model, &split.settings, even, error);
}

/* ---- the problem ---- */

static void set_limits(struct box *box, const struct mt_predict_settings *settings,
                       const struct mt_place_options *options, double share)
{
    uint64_t buffer = options->buffer_bytes == MT_UNKNOWN ? BUFFER_BYTES : options->buffer_bytes;
    for (size_t d = 0; d < settings->n_devices; d++) {
        struct mt_place_device *device = &box->devices[d];
        uint64_t held = settings->device_used_bytes ? settings->device_used_bytes[d] : 0;
        uint64_t kept = held > UINT64_MAX - buffer ? UINT64_MAX : held + buffer;
        snprintf(box->device_names[d], sizeof box->device_names[d], "gpu:%zu", d);
        device->name = box->device_names[d];
        if (settings->device_known && settings->device_known[d].gpu[0])
            device->card = settings->device_known[d].gpu;
        device->capacity_bytes = settings->device_bytes[d];
        device->limit_bytes = device->capacity_bytes > kept ? device->capacity_bytes - kept : 0;
        /* A budget is a share of the card, whatever the buffer. */
        if (share > 0 && share < 1) {
            uint64_t budget = (uint64_t)((double)device->capacity_bytes * share);
            device->limit_bytes = budget < device->limit_bytes ? budget : device->limit_bytes;
        }
    }
    box->placed.problem = (struct mt_place_problem){
        .units = box->units.units,
        .n_units = box->units.n,
        .devices = box->devices,
        .n_devices = settings->n_devices,
        .objective = options->objective,
        .output_is_input = box->units.output_is_input,
        .host_limit_bytes = options->host_bytes,
    };
}

/* What a device has beside the chain and the driver's context. */
static uint64_t work_of(const struct mt_estimate *estimate, size_t device)
{
    struct said said = said_of(estimate, device);
    return said.rest_high - said.context_high;
}

static void take_contexts(struct box *box, const struct mt_estimate *even)
{
    for (size_t d = 0; d < box->placed.problem.n_devices; d++)
        box->context_bytes[d] = said_of(even, d).context_high;
}

/* Some models keep the output's matrix on each stage, though the last one alone uses it. */
static void put_output_on_each(struct box *box, const struct mt_model_description *d,
                               const struct mt_engine *engine)
{
    struct mt_place_unit *output = &box->units.units[box->units.output];
    if (d->tied_output || !mt_engine_has(engine, "output.every_stage", d->architecture))
        return;
    box->placed.problem.each_bytes = box->units.output_bytes;
    output->dense_bytes -= box->units.output_bytes;
}

/* Overheads from an estimate of `n` devices in use. The context follows from the card. Of the rest
 * each has what one in the middle has, for which of them has which stretch is not known yet. What
 * the first one has more, copies of the input, is the first unit's; what the last one has more, the
 * logits, is the output's. */
static void set_overheads(struct box *box, const struct mt_estimate *estimate, size_t n)
{
    uint64_t first = work_of(estimate, 0);
    uint64_t last = work_of(estimate, n - 1);
    uint64_t middle = n > 2 ? 0 : first < last ? first : last;
    for (size_t d = 1; d + 1 < n; d++) {
        uint64_t work = work_of(estimate, d);
        middle = work > middle ? work : middle;
    }
    for (size_t d = 0; d < box->placed.problem.n_devices; d++)
        box->devices[d].overhead_bytes =
            box->context_bytes[d] + middle + box->placed.problem.each_bytes;
    box->units.units[0].work_bytes = first > middle ? first - middle : 0;
    if (n > 1)
        box->units.units[box->units.output].work_bytes = last > middle ? last - middle : 0;
}

/* ---- the last word ---- */

/* Puts what the estimate says in place of what the solver counted. Returns by how many bytes the
 * worst device is over its limit. */
static uint64_t take_figures(struct box *box, const struct split_settings *split,
                             const struct mt_estimate *estimate)
{
    struct mt_placement_made *made = (struct mt_placement_made *)box->placement;
    uint64_t over = 0;
    double used = 0;
    double capacity = 0;
    made->it.highest_share = 0;
    for (size_t i = 0; i < split->settings.n_devices; i++) {
        size_t d = split->order[i];
        struct mt_placement_device *device = &made->devices[d];
        uint64_t chain = device->dense_bytes + device->expert_bytes + device->cache_bytes;
        struct said said = said_of(estimate, i);
        device->used_bytes = said.chain + said.rest_high;
        device->expected_bytes = said.all;
        device->overhead_bytes = device->used_bytes > chain ? device->used_bytes - chain : 0;
        double share = (double)device->used_bytes / (double)box->devices[d].capacity_bytes;
        if (share > made->it.highest_share)
            made->it.highest_share = share;
        used += device->n_units ? (double)device->used_bytes : 0;
        capacity += device->n_units ? (double)box->devices[d].capacity_bytes : 0;
        if (device->n_units && device->used_bytes > box->devices[d].limit_bytes &&
            device->used_bytes - box->devices[d].limit_bytes > over)
            over = device->used_bytes - box->devices[d].limit_bytes;
    }
    if (capacity > 0)
        made->it.least_share = used / capacity;
    return over;
}

/* Estimates the box's placement as the engine will load it, and takes the figures. `over` is by how
 * many bytes the worst device is over its limit. */
static int estimate_it(struct box *box, const struct mt_model *model,
                       const struct mt_predict_settings *settings, enum mt_place_way way,
                       uint64_t *over, struct mt_error *error)
{
    struct split_settings split = {0};
    set_as_placed(&split, settings, box, way);
    int result = mt_estimate_create(model, &split.settings, &box->estimate, error);
    *over = result ? 0 : take_figures(box, &split, box->estimate);
    mt_strbuf_finish(&split.pattern);
    return result;
}

/* ---- a last look around ---- */

/* The box's placement with the first or the last unit of a stretch given to its neighbour; NULL
 * where the stretch has no other unit, or without memory. */
static struct mt_placement_made *with_one_moved(const struct box *box, size_t boundary, int forward)
{
    const struct mt_placement *from = box->placement;
    size_t moved = forward ? boundary - 1 : boundary;
    int to = from->unit_device[forward ? boundary : boundary - 1];
    const struct mt_place_unit *unit = &box->units.units[moved];
    if (from->devices[from->unit_device[moved]].n_units < 2 || unit->pinned != MT_PLACE_ANY)
        return NULL;
    struct mt_placement_made *made = mt_placement_new(&box->placed.problem, 0);
    for (size_t i = 0; made && i < from->n_units; i++) {
        made->unit_device[i] = i == moved ? to : from->unit_device[i];
        made->expert_device[i] =
            i == moved && !mt_place_is_left(from->expert_device[i]) ? to : from->expert_device[i];
    }
    if (made) {
        mt_placement_count(&box->placed.problem, made);
        made->it.is_best = from->is_best;
        made->it.least_seconds = from->least_seconds;
    }
    return made;
}

static int is_better(const struct mt_placement *a, const struct mt_placement *b,
                     enum mt_objective objective)
{
    uint64_t left = a->host_bytes + a->disk_bytes;
    uint64_t other = b->host_bytes + b->disk_bytes;
    if (left != other)
        return left < other;
    double crossings = objective == MT_OBJECTIVE_CROSSINGS ? a->crossings - b->crossings : 0;
    return crossings < -0.5 || (crossings < 0.5 && a->highest_share < b->highest_share);
}

/* Takes a placement instead of the box's if it fits by its estimate, and leaves less on the host,
 * has fewer crossings, or a fullest device that is less full. */
static int take_if_better(struct box *box, struct mt_placement_made *made,
                          const struct mt_model *model, const struct mt_predict_settings *settings,
                          enum mt_place_way way)
{
    struct mt_placement *placement = box->placement;
    struct mt_estimate *estimate = box->estimate;
    uint64_t over;
    box->placement = &made->it;
    box->estimate = NULL;
    if (!estimate_it(box, model, settings, way, &over, NULL) && !over &&
        is_better(box->placement, placement, box->placed.problem.objective)) {
        mt_placement_destroy(placement);
        mt_estimate_destroy(estimate);
        return 1;
    }
    mt_placement_destroy(box->placement);
    mt_estimate_destroy(box->estimate);
    box->placement = placement;
    box->estimate = estimate;
    return 0;
}

/* The solver counts as much beside the layers on each device but the first and the last; estimates
 * know what each has. So the neighbours of its answer may be better, and theirs. */
static void look_around(struct box *box, const struct mt_model *model,
                        const struct mt_predict_settings *settings, enum mt_place_way way)
{
    int found = 1;
    for (int step = 0; found && step < LOOKS; step++) {
        found = 0;
        for (size_t i = 1; !found && i < box->units.n; i++) {
            const int *device = box->placement->unit_device;
            if (device[i] == device[i - 1] || mt_place_is_left(device[i - 1]))
                continue;
            for (int forward = 0; !found && forward < 2; forward++) {
                struct mt_placement_made *made = with_one_moved(box, i, forward);
                found = made && take_if_better(box, made, model, settings, way);
            }
        }
    }
}

/* Solves again with what the devices of the answer have beside their layers, while that helps. */
static void solve_again(struct box *box, const struct mt_model *model,
                        const struct mt_predict_settings *settings, enum mt_place_way way)
{
    int found = 1;
    for (int step = 0; found && step < TRIES; step++) {
        struct mt_placement *placement = NULL;
        size_t order[MT_PLACE_DEVICES_MAX];
        set_overheads(box, box->estimate, mt_place_order(box->placement, order));
        found = !mt_place_units(&box->placed.problem, &placement, NULL) &&
                take_if_better(box, (struct mt_placement_made *)placement, model, settings, way);
    }
}

/* Places, estimates what was placed, and gives devices that much more overhead as one was over its
 * limit, until none is. */
static int place_until_it_holds(struct box *box, const struct mt_model *model,
                                const struct mt_predict_settings *settings, enum mt_place_way way,
                                struct mt_error *error)
{
    for (int i = 0; i < TRIES; i++) {
        uint64_t over;
        mt_placement_destroy(box->placement);
        mt_estimate_destroy(box->estimate);
        box->placement = NULL;
        box->estimate = NULL;
        int result = mt_place_units(&box->placed.problem, &box->placement, error);
        if (result ||
            (way != MT_PLACE_TENSOR_SPLIT && !(way == MT_PLACE_LAYERS && settings->n_devices == 1)))
            return result;
        result = estimate_it(box, model, settings, way, &over, error);
        if (!result && !over && box->placed.problem.objective <= MT_OBJECTIVE_BALANCE) {
            solve_again(box, model, settings, way);
            look_around(box, model, settings, way);
        }
        if (result || !over)
            return result;
        for (size_t d = 0; d < settings->n_devices; d++)
            box->devices[d].overhead_bytes += over;
    }
    return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET,
                   "no placement was found that keeps to the limits once it is estimated; a larger "
                   "--buffer or a shorter --context helps");
}

/* ---- all of it ---- */

static uint64_t context_of(const struct mt_model_description *d,
                           const struct mt_predict_settings *settings)
{
    uint64_t trained = d->context_length;
    if (settings->context_tokens)
        return settings->context_tokens;
    return trained && trained < CONTEXT_TOKENS ? trained : CONTEXT_TOKENS;
}

/* The share of each device that keeps to the limits of all in use, in hundredths. */
static void take_share(struct box *box, const struct mt_engine *engine)
{
    char flag[64];
    double least = 1;
    if (!*mt_engine_text(engine, "place.share", flag, sizeof flag))
        return;
    for (size_t d = 0; d < box->placed.problem.n_devices; d++) {
        double share = (double)box->devices[d].limit_bytes / (double)box->devices[d].capacity_bytes;
        least = box->placement->devices[d].n_units && share < least ? share : least;
    }
    box->placed.memory_share = (double)(uint64_t)(least * 100 + 1e-9) / 100;
}

static void add_note(struct box *box, const char *note)
{
    box->notes[box->placed.n_notes++] = note;
    box->placed.notes = box->notes;
}

static void add_notes(struct box *box, const struct mt_model_description *d, enum mt_place_way way,
                      const char *quantisation)
{
    if (d->experts && box->units.experts_are_whole)
        add_note(box, "All experts of a layer are one tensor: they lie together on one device, or "
                      "on the host.");
    if (d->experts && box->units.experts_are_whole && quantisation)
        add_note(box,
                 "bitsandbytes may leave experts that are one tensor in 16 bits, without a word: "
                 "look at what was loaded.");
    if (way == MT_PLACE_LAYERS && box->placed.problem.n_devices > 1)
        add_note(box, "Ollama takes a number of layers and divides them among devices by itself.");
    if (box->placed.drops_copies)
        add_note(box,
                 "llama.cpp keeps no copies of its inputs for devices that work at once (-ot with "
                 "a pattern that matches nothing): more fits, and long prompts take longer.");
    if (way == MT_PLACE_STAGES)
        add_note(box,
                 "What weights leave of each device's budget becomes the cache; the stage with "
                 "the fewest tokens decides for all.");
}

/* The problem: units, devices and what they have beside the units, by an even split. */
static int prepare(struct box *box, const struct mt_model *model,
                   const struct mt_predict_settings *settings,
                   const struct mt_place_options *options, const struct mt_engine *engine,
                   enum mt_place_way way, struct mt_error *error)
{
    const struct mt_model_description *d = mt_model_describe(model);
    struct mt_place_problem *problem = &box->placed.problem;
    struct mt_estimate *even = NULL;
    int result = estimate_evenly(box, model, settings, way, &even, error);
    if (result)
        return result;
    mt_place_units_add_cache(d, &box->units, settings->context_tokens,
                             cache_of(even, settings->context_tokens),
                             sum_of(even, MT_CATEGORY_RECURRENT_STATE));
    set_limits(box, settings, options, even->settings.memory_share);
    mt_place_speeds(settings, box->devices);
    if (way == MT_PLACE_STAGES)
        put_output_on_each(box, d, engine);
    take_contexts(box, even);
    set_overheads(box, even, settings->n_devices);
    mt_estimate_destroy(even);
    result = mt_place_links(d, options, problem, &box->link_seconds, error);
    if (!result)
        result = mt_place_expert_use(options, &box->units, &box->expert_use, error);
    int may_leave = !options->keep_on_devices;
    int is_llama = way == MT_PLACE_TENSOR_SPLIT;
    int is_map = way == MT_PLACE_DEVICE_MAP;
    problem->expert_use = box->expert_use;
    problem->stretches_may_break = is_map;
    problem->experts_may_leave = may_leave && is_llama;
    problem->layers_may_leave = may_leave && (is_llama || is_map || way == MT_PLACE_LAYERS);
    problem->host_keeps_only = is_map;
    return result;
}

static uint64_t left_by(const struct mt_placement *placement)
{
    return placement ? placement->host_bytes + placement->disk_bytes : UINT64_MAX;
}

/* llama.cpp keeps copies of its inputs so that devices work at once, unless tensors are placed by
 * hand. Where not all fits with them, it may without: a pattern that matches nothing is enough. */
static int solve_without_copies(struct box *box, const struct mt_model *model,
                                const struct mt_predict_settings *settings, int result)
{
    struct mt_placement *placement = box->placement;
    struct mt_estimate *estimate = box->estimate;
    struct mt_estimate *even = NULL;
    if (settings->n_devices < 2 || box->placed.drops_copies || (result && result != MT_ELIMIT) ||
        (!result && !left_by(placement)))
        return result;
    box->placement = NULL;
    box->estimate = NULL;
    box->placed.drops_copies = 1;
    int again = estimate_evenly(box, model, settings, MT_PLACE_TENSOR_SPLIT, &even, NULL);
    if (!again) {
        set_overheads(box, even, settings->n_devices);
        again = place_until_it_holds(box, model, settings, MT_PLACE_TENSOR_SPLIT, NULL);
    }
    mt_estimate_destroy(even);
    if (!again && left_by(box->placement) < (result ? UINT64_MAX : left_by(placement))) {
        mt_placement_destroy(placement);
        mt_estimate_destroy(estimate);
        /* With a part on the host there are none in any case. */
        box->placed.drops_copies = !left_by(box->placement);
        return 0;
    }
    mt_placement_destroy(box->placement);
    mt_estimate_destroy(box->estimate);
    box->placement = placement;
    box->estimate = estimate;
    box->placed.drops_copies = 0;
    return result;
}

/* What the caller is told of the box's placement. */
static int tell(struct box *box, const struct mt_model_description *d,
                const struct mt_engine *engine, enum mt_place_way way,
                const struct mt_place_options *options, struct mt_error *error)
{
    struct mt_placed *placed = &box->placed;
    placed->placement = box->placement;
    placed->estimate = box->estimate;
    placed->parallel = box->parallel;
    placed->modules = box->modules.all;
    placed->n_modules = box->modules.n;
    if (way == MT_PLACE_DEVICE_MAP) {
        placed->memory = box->memory;
        placed->n_memory = mt_place_memory_of(&placed->problem, box->placement, box->memory);
    }
    placed->way = mt_place_way_name(way);
    placed->experts_are_whole = box->units.experts_are_whole;
    take_share(box, engine);
    add_notes(box, d, way, options->quantisation);
    mt_place_flags(placed, way, engine, &box->environment, &box->flags);
    placed->environment = mt_strbuf_text(&box->environment);
    placed->flags = mt_strbuf_text(&box->flags);
    return mt_strbuf_failed(&box->flags) ? mt_out_of_memory(error) : 0;
}

static int make(struct box *box, const struct mt_model *model,
                const struct mt_predict_settings *given, const struct mt_place_options *options,
                struct mt_error *error)
{
    const struct mt_model_description *d = mt_model_describe(model);
    struct mt_predict_settings settings = *given;
    struct mt_engine engine;
    enum mt_place_way way = MT_PLACE_WAY_COUNT;
    settings.context_tokens = box->placed.context_tokens = context_of(d, given);
    int result = mt_engine_find(settings.engine, &engine, error);
    if (!result)
        result = mt_place_way_of(&engine, &way, error);
    if (!result)
        result = mt_place_units_of(model, way, options, &box->units, error);
    if (result)
        return result;
    /* Weights are placed as they are in the files, which dtype="auto" asks for. */
    if (way == MT_PLACE_DEVICE_MAP && !settings.weight_type)
        settings.weight_type = "auto";
    box->units.experts_are_whole = !mt_engine_has(&engine, "place.experts", "apart");
    box->placed.drops_copies =
        options->drops_copies && way == MT_PLACE_TENSOR_SPLIT && settings.n_devices > 1;
    result = prepare(box, model, &settings, options, &engine, way, error);
    if (!result)
        result = place_until_it_holds(box, model, &settings, way, error);
    if (way == MT_PLACE_TENSOR_SPLIT)
        result = solve_without_copies(box, model, &settings, result);
    if (!result && way == MT_PLACE_DEVICE_MAP)
        result = mt_place_modules_of(model, &box->units, box->placement, &box->modules, error);
    if (!result && way == MT_PLACE_STAGES)
        result = mt_place_parallel_ways(model, &settings, &box->parallel, &box->placed.n_parallel,
                                        error);
    return result ? result : tell(box, d, &engine, way, options, error);
}

int mt_place_model(const struct mt_model *model, const struct mt_predict_settings *settings,
                   const struct mt_place_options *options, struct mt_placed **placed,
                   struct mt_error *error)
{
    if (!settings->n_devices || settings->n_devices > MT_PLACE_DEVICES_MAX)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       settings->n_devices ? "there are %zu devices; the most are %d"
                                           : "there is no device to place anything on",
                       settings->n_devices, MT_PLACE_DEVICES_MAX);
    struct box *box = calloc(1, sizeof *box);
    if (!box)
        return mt_out_of_memory(error);
    int result = make(box, model, settings, options, error);
    if (result)
        mt_placed_destroy(&box->placed);
    else
        *placed = &box->placed;
    return result;
}

void mt_placed_destroy(struct mt_placed *placed)
{
    struct box *box = (struct box *)placed;
    if (!box)
        return;
    mt_place_units_finish(&box->units);
    mt_placement_destroy(box->placement);
    mt_estimate_destroy(box->estimate);
    mt_strbuf_finish(&box->environment);
    mt_strbuf_finish(&box->flags);
    mt_place_modules_finish(&box->modules);
    free(box->parallel);
    free(box->link_seconds);
    free(box->expert_use);
    free(box);
}
