/* SPDX-License-Identifier: MIT */
/* Which operations a device computes, and which it takes over from the host though the weights lie
 * there. What it does not take lands on the processor and changes how the graph is split. */
#include <string.h>

#include "takes.h"

/* Weights on another device of the same kind are that device's work. */
static int is_elsewhere(const struct pretend_device *device, const struct ggml_tensor *source)
{
    const struct pretend_buffer_type *type =
        source && source->buffer ? pretend_own_type(device->world, source->buffer->type) : NULL;
    return type && type->memory == PRETEND_ON_DEVICE && type->device != device;
}

/* Split weights are for products only, and a device without a row of them does not multiply. */
static int split_is_taken(const struct pretend_device *device, const struct ggml_tensor *op,
                          enum pretend_op what, const struct ggml_tensor *source)
{
    const struct pretend_buffer_type *type =
        source && source->buffer ? pretend_own_type(device->world, source->buffer->type) : NULL;
    int64_t low, high;
    if (!type || type->memory != PRETEND_SPLIT)
        return 1;
    if (what != OP_MUL_MAT)
        return 0;
    if (source != op->src[0])
        return 1;
    if (source->ne[2] > 1 || source->ne[3] > 1)
        return 0;
    pretend_split_rows(type, source, device->number, &low, &high);
    return low != high;
}

static pretend_answer *answer_of(const struct mt_pretend_rules *rules, enum pretend_op what)
{
    if (strcmp(rules->kind, "vulkan") == 0)
        return pretend_answer_vulkan(what);
    if (strcmp(rules->kind, "metal") == 0)
        return pretend_answer_metal(what);
    return pretend_answer_cuda(what);
}

int pretend_takes(const struct pretend_device *device, const struct ggml_tensor *op)
{
    struct pretend_world *world = device->world;
    struct pretend_ask ask = {.device = device,
                              .world = world,
                              .ggml = &world->ggml,
                              .rules = rules_of(world),
                              .op = op,
                              .a = op->src[0],
                              .b = op->src[1],
                              .tr = pretend_types_of(&world->ggml, op),
                              .what = pretend_op_of(&world->ggml, op)};
    for (int i = 0; i < GGML_SOURCES; i++)
        if (is_elsewhere(device, op->src[i]) || !split_is_taken(device, op, ask.what, op->src[i]))
            return 0;
    ask.ta = ask.a ? pretend_types_of(ask.ggml, ask.a) : 0;
    ask.tb = ask.b ? pretend_types_of(ask.ggml, ask.b) : 0;
    pretend_answer *answer = answer_of(ask.rules, ask.what);
    return answer && answer(&ask);
}

/* Rows that an operation works on, as all backends that take work over count them. */
static uint64_t batch_of(enum pretend_op what, const struct ggml_tensor *op)
{
    switch (what) {
    case OP_GET_ROWS:
        return 0;
    case OP_MUL_MAT:
        return (uint64_t)op->ne[1];
    case OP_MUL_MAT_ID:
    case OP_ROPE:
    case OP_ROPE_BACK:
        return (uint64_t)op->ne[2];
    default:
        return pretend_rows(op);
    }
}

int pretend_takes_over(const struct pretend_device *device, const struct ggml_tensor *op)
{
    struct pretend_world *world = device->world;
    enum pretend_op what = pretend_op_of(&world->ggml, op);
    if (!rules_of(world)->offload_batch)
        return 0;
    if (rules_of(world)->is_unified && what != OP_MUL_MAT && what != OP_MUL_MAT_ID)
        return 0;
    return batch_of(what, op) >= world->offload_batch;
}
