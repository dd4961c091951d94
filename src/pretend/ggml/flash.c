/* SPDX-License-Identifier: MIT */
/* Flash attention as CUDA and ROCm have it: which kernel a generation would run, and so whether the
 * operation is taken at all, and what it allocates behind its output (ggml-cuda/fattn.cu). */
#include <string.h>

#include "build.h"
#include "engine/flash_kernel.h"
#include "world.h"

#define AMD   0x1000000u
#define CDNA1 0x1000908u
#define RDNA1 0x1001010u
#define RDNA3 0x1001100u

#define PADDING_OF_COPY 128u

struct attention {
    struct pretend_ggml *ggml;
    const struct mt_pretend_rules *rules;
    uint32_t capability; /* of the device */
    const struct ggml_tensor *q, *k, *v, *mask;
    int64_t ratio; /* heads that share a key head */
    float max_bias;
    int is_grouped; /* the kernels' way to take such heads together applies */
};

static int is_quantized(const struct attention *a, const struct ggml_tensor *tensor)
{
    return pretend_type_of(a->ggml, tensor->type).is_quantized;
}

static int is_aligned(const struct attention *a, const struct ggml_tensor *tensor)
{
    if (!tensor || is_quantized(a, tensor))
        return 1;
    return tensor->nb[1] % 16 == 0 && tensor->nb[2] % 16 == 0 && tensor->nb[3] % 16 == 0;
}

static int read_attention(struct pretend_world *world, const struct pretend_device *device,
                          const struct ggml_tensor *op, struct attention *a)
{
    *a = (struct attention){.ggml = &world->ggml,
                            .rules = rules_of(world),
                            .capability = capability_of(world, device),
                            .q = op->src[0],
                            .k = op->src[1],
                            .v = op->src[2],
                            .mask = op->src[3]};
    if (!a->q || !a->k || !a->v || a->k->ne[2] <= 0 || a->q->ne[2] % a->k->ne[2] != 0)
        return 0;
    a->ratio = a->q->ne[2] / a->k->ne[2];
    memcpy(&a->max_bias, &op->op_params[1], sizeof a->max_bias);
    a->is_grouped = a->ratio >= 2 && a->mask && !(a->max_bias > 0 || a->max_bias < 0) &&
                    a->k->ne[1] % MT_FLASH_STRIDE_OF_KEYS == 0 && is_aligned(a, a->q) &&
                    is_aligned(a, a->k) && is_aligned(a, a->v) && is_aligned(a, a->mask);
    return 1;
}

static int heads_are_taken(const struct attention *a)
{
    int64_t keys = a->k->ne[0], values = a->v->ne[0];
    switch (keys) {
    case 40:
    case 64:
    case 72:
    case 80:
    case 96:
    case 112:
    case 128:
    case 256:
        return values == keys;
    case 192:
        return values == 128 && a->is_grouped && a->ratio % 8 == 0;
    case 320:
        return values == 256 && a->is_grouped && a->ratio % 32 == 0;
    case 512:
        return values == keys && a->is_grouped;
    case 576:
        return values == 512 && a->is_grouped;
    default:
        return 0;
    }
}

/* Types that every build takes. */
static int types_are_a_pair(const struct attention *a)
{
    uint64_t any = TYPES(F32) | TYPES(F16) | TYPES(BF16) | TYPES(Q4_0) | TYPES(Q8_0);
    return a->k->type == a->v->type && (pretend_types_of(a->ggml, a->k) & any);
}

static int types_are_taken(const struct attention *a)
{
    uint64_t any = TYPES(F32) | TYPES(F16) | TYPES(BF16) | TYPES(Q4_0) | TYPES(Q8_0);
    if (a->rules->flash_types == MT_PRETEND_FLASH_TYPES_PAIRS)
        return types_are_a_pair(a);
    any |= TYPES(Q4_1) | TYPES(Q5_0) | TYPES(Q5_1);
    return (pretend_types_of(a->ggml, a->k) & any) && (pretend_types_of(a->ggml, a->v) & any);
}

/* Whether the device has a kernel for it at all. */
static int is_taken(const struct attention *a)
{
    return heads_are_taken(a) && types_are_taken(a) && !(a->mask && a->mask->ne[2] != 1);
}

static enum mt_flash_kernel choose(const struct attention *a)
{
    const struct mt_flash_attention of = {.capability = a->capability,
                                          .build = a->rules->build,
                                          .head = (uint64_t)a->q->ne[0],
                                          .rows = (uint64_t)a->q->ne[1],
                                          .batches = (uint64_t)a->q->ne[3],
                                          .ratio = (uint64_t)a->ratio,
                                          .cells = (uint64_t)a->k->ne[1],
                                          .is_grouped = a->is_grouped,
                                          .has_bias = a->max_bias > 0 || a->max_bias < 0,
                                          .is_quantised =
                                              is_quantized(a, a->k) || is_quantized(a, a->v)};
    return mt_flash_choose(&of);
}

static enum mt_flash_type flash_type_of(const struct attention *a, const struct ggml_tensor *tensor)
{
    switch (pretend_type_of(a->ggml, tensor->type).id) {
    case TYPE_F16:
        return MT_FLASH_F16;
    case TYPE_F32:
        return MT_FLASH_F32;
    case TYPE_BF16:
        return MT_FLASH_BF16;
    case TYPE_Q4_0:
        return MT_FLASH_Q4_0;
    case TYPE_Q8_0:
        return MT_FLASH_Q8_0;
    default:
        return MT_FLASH_OTHER;
    }
}

int pretend_flash_is_taken(const struct pretend_device *device, const struct ggml_tensor *op)
{
    struct pretend_world *world = device->world;
    struct attention a;
    if (!read_attention(world, device, op, &a))
        return 0;
    if (!types_are_a_pair(&a))
        pretend_meet_doubt(world->account, MT_PRETEND_DOUBT_FLASH_TYPES);
    return is_taken(&a);
}

static uint64_t with_copies(const struct attention *a, uint64_t bytes)
{
    if (!is_taken(a))
        return bytes;
    const struct ggml_tensor *k = a->k, *v = a->v;
    const struct mt_flash_cache cache = {
        .k = flash_type_of(a, k),
        .v = flash_type_of(a, v),
        .k_elements = pretend_elements(k),
        .v_elements = pretend_elements(v),
        .values_are_keys = v->view_src && (v->view_src == k || (v->view_src == k->view_src &&
                                                                v->view_offs == k->view_offs)),
        .has_any_pair = a->rules->flash_types == MT_PRETEND_FLASH_TYPES_ANY};
    return mt_flash_bytes(&cache, choose(a), bytes, PADDING_OF_COPY);
}

/* Whether another generation of AMD's would take another size: one of each that choose() parts. */
static int generations_differ(const struct attention *a, uint64_t bytes)
{
    static const uint32_t others[] = {AMD + 0x906, CDNA1, RDNA1, RDNA3};
    struct attention other = *a;
    uint64_t taken = with_copies(a, bytes);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        other.capability = others[i];
        if (with_copies(&other, bytes) != taken)
            return 1;
    }
    return 0;
}

uint64_t pretend_flash_bytes(struct pretend_world *world, const struct pretend_device *device,
                             const struct ggml_tensor *op)
{
    struct attention a;
    uint64_t bytes = pretend_bytes(&world->ggml, op);
    if (!read_attention(world, device, op, &a))
        return bytes;
    if (a.rules->is_generation_assumed && a.capability > AMD && generations_differ(&a, bytes))
        __atomic_store_n(&world->account->builds.generations_differ, 1, __ATOMIC_RELAXED);
    return with_copies(&a, bytes);
}
