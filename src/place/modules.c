/* SPDX-License-Identifier: MIT */
/* A device for each module of a model in Python. */
#include "modules.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/out_of_memory.h"
#include "flags.h"

/* The length of a tensor's module: up to the number of its layer, else to its last dot. */
static size_t module_length(const struct mt_model_tensor *tensor)
{
    char number[24];
    size_t digits = (size_t)snprintf(number, sizeof number, ".%" PRIu32 ".", tensor->layer);
    size_t last = 0;
    for (size_t i = 0; i < tensor->name_length; i++) {
        if (tensor->layer != MT_NO_LAYER && i + digits <= tensor->name_length &&
            !memcmp(tensor->name + i, number, digits))
            return i + digits - 1;
        last = tensor->name[i] == '.' ? i : last;
    }
    return last ? last : tensor->name_length;
}

static int device_of_tensor(const struct mt_place_units *units, const int *device,
                            const struct mt_model_tensor *tensor)
{
    if (tensor->layer != MT_NO_LAYER)
        return tensor->layer < units->n_layers ? device[units->first + tensor->layer] : device[0];
    if (tensor->role == MT_TENSOR_OUTPUT)
        return units->output_is_input ? device[0] : device[units->output];
    return tensor->role == MT_TENSOR_OUTPUT_OTHER ? device[units->first + units->n_layers]
                                                  : device[0];
}

static void add(struct mt_place_modules *modules, const char *name, int device)
{
    modules->all[modules->n++] = (struct mt_place_module){name, device};
}

/* Modules of which no file has a tensor: a tied output, which accelerate wants to see where the
 * embedding is, and the rotary embedding's frequencies. Names of modules that a model does not have
 * are passed over. */
static void add_unwritten(const struct mt_model_description *d, const int *device,
                          struct mt_place_modules *modules)
{
    if (d->tied_output)
        add(modules, "lm_head", device[0]);
    add(modules, "model.rotary_emb", device[0]);
}

static int allocate(const struct mt_model *model, struct mt_place_modules *modules)
{
    const struct mt_model_description *d = mt_model_describe(model);
    struct mt_model_tensor tensor;
    size_t room = 1;
    for (uint64_t i = 0; i < d->n_tensors; i++)
        if (mt_model_tensor_at(model, i, &tensor) == 0)
            room += tensor.name_length + 1;
    modules->all = calloc(d->n_tensors + 2, sizeof *modules->all);
    modules->names = malloc(room);
    return modules->all && modules->names;
}

int mt_place_modules_of(const struct mt_model *model, const struct mt_place_units *units,
                        const struct mt_placement *placement, struct mt_place_modules *modules,
                        struct mt_error *error)
{
    const struct mt_model_description *d = mt_model_describe(model);
    const int *device = placement->unit_device;
    size_t used = 0;
    uint8_t *seen = calloc(units->n_layers + 1, 1);
    if (!allocate(model, modules) || !seen) {
        free(seen);
        return mt_out_of_memory(error);
    }
    for (uint64_t i = 0; i < d->n_tensors; i++) {
        struct mt_model_tensor tensor;
        if (mt_model_tensor_at(model, i, &tensor) < 0)
            continue;
        int is_layer = tensor.layer != MT_NO_LAYER && tensor.layer < units->n_layers;
        if (is_layer && seen[tensor.layer])
            continue;
        size_t length = module_length(&tensor);
        char *name = modules->names + used;
        memcpy(name, tensor.name, length);
        name[length] = '\0';
        used += length + 1;
        if (is_layer)
            seen[tensor.layer] = 1;
        add(modules, name, device_of_tensor(units, device, &tensor));
    }
    free(seen);
    add_unwritten(d, device, modules);
    return 0;
}

void mt_place_modules_finish(struct mt_place_modules *modules)
{
    free(modules->all);
    free(modules->names);
    *modules = (struct mt_place_modules){0};
}

/* ---- limits for accelerate ---- */

static uint64_t weights_of(const struct mt_place_unit *unit)
{
    return unit->dense_bytes + unit->expert_bytes;
}

static uint64_t largest_from(const struct mt_place_problem *problem, size_t first)
{
    uint64_t most = 0;
    for (size_t i = first; i < problem->n_units; i++)
        most = weights_of(&problem->units[i]) > most ? weights_of(&problem->units[i]) : most;
    return most;
}

static int is_in_stretches(const struct mt_placement *placement)
{
    for (size_t d = 0; d < placement->n_devices; d++)
        for (size_t i = 0; i < placement->devices[d].n_units; i++)
            if (placement->unit_device[placement->devices[d].first_unit + i] != (int)d)
                return 0;
    return !placement->host_bytes && !placement->disk_bytes;
}

/* accelerate goes on to the next device with the first module that has no room there. Of the first
 * device it keeps room for the largest module that is still to come (utils/modeling.py,
 * infer_auto_device_map). Half of the next unit is what limits are above the weights. */
static uint64_t limit_of(const struct mt_place_problem *problem,
                         const struct mt_placement *placement, size_t device, int is_first)
{
    const struct mt_placement_device *held = &placement->devices[device];
    size_t next = held->first_unit + held->n_units;
    uint64_t bytes = held->dense_bytes + held->expert_bytes;
    if (!is_in_stretches(placement) || next >= problem->n_units)
        return problem->devices[device].limit_bytes;
    return bytes + weights_of(&problem->units[next]) / 2 +
           (is_first ? largest_from(problem, next) : 0);
}

size_t mt_place_memory_of(const struct mt_place_problem *problem,
                          const struct mt_placement *placement, struct mt_place_memory *memory)
{
    size_t order[MT_PLACE_DEVICES_MAX];
    size_t n = mt_place_order(placement, order);
    for (size_t i = 0; i < n; i++)
        memory[i] =
            (struct mt_place_memory){(int)order[i], limit_of(problem, placement, order[i], i == 0)};
    if (placement->host_bytes && problem->host_limit_bytes)
        memory[n++] = (struct mt_place_memory){MT_PLACE_HOST, problem->host_limit_bytes};
    return n;
}
