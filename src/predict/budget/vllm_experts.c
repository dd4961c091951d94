/* SPDX-License-Identifier: MIT */
/* Experts in MXFP4 as vLLM's kernels want them. Which kernels are taken depends on the GPU and on
 * what is installed beside vLLM; each pads the columns and rows to its tiles. */
#include <stdlib.h>
#include <string.h>

#include <memtally/settings.h>

#include "vllm.h"

#define BLOCK            32 /* numbers that share a scale */
#define SWIZZLED_ROWS    256
#define TILES_TEXT_BYTES 32

/* What a layout pads to, whether it has the scales as they are in the file, and what columns of
 * swizzled ones are padded to, where it has those. */
struct tiles {
    uint64_t inner;
    uint64_t hidden;
    uint64_t has_plain;
    uint64_t swizzled;
};

static uint64_t padded(uint64_t n, uint64_t tile)
{
    return tile ? mt_mul(mt_ceil_div(n, tile), tile) : n;
}

/* "64 32 1 1". */
static struct tiles tiles_of(const struct mt_engine *engine, const char *key)
{
    struct tiles tiles = {.has_plain = 1};
    uint64_t *const numbers[] = {&tiles.inner, &tiles.hidden, &tiles.has_plain, &tiles.swizzled};
    struct mt_engine_value value;
    char text[TILES_TEXT_BYTES] = "";
    if (mt_engine_value(engine, key, &value) == 0 && value.length < sizeof text)
        memcpy(text, value.text, value.length);
    char *at = text;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && *at; i++)
        *numbers[i] = strtoull(at, &at, 10);
    return tiles;
}

/* A matrix's scales in the order of the kernels that swizzle them. */
static uint64_t swizzled(uint64_t rows, uint64_t columns, const struct tiles *tiles)
{
    return mt_mul(padded(rows, SWIZZLED_ROWS), padded(columns / BLOCK, tiles->swizzled));
}

/* An expert's matrices: two from the hidden size to the rank's part of the inner one, and one back.
 * Kernels that swizzle the scales want biases in 32 bit, where the file has 16. */
static uint64_t expert_bytes(uint64_t hidden, uint64_t inner, const struct tiles *tiles)
{
    inner = padded(inner, tiles->inner);
    hidden = padded(hidden, tiles->hidden);
    uint64_t numbers = mt_mul(3, mt_mul(inner, hidden));
    uint64_t bytes = mt_add(numbers / 2, tiles->has_plain ? numbers / BLOCK : 0);
    if (!tiles->swizzled)
        return bytes;
    uint64_t scales =
        mt_add(swizzled(mt_mul(2, inner), hidden, tiles), swizzled(hidden, inner, tiles));
    uint64_t biases = mt_mul(2, mt_add(mt_mul(2, inner), hidden));
    return mt_add(bytes, mt_add(scales, biases));
}

/* A rank's part is of whole blocks. */
static uint64_t laid_out(const struct mt_predict_input *in, const struct mt_torch_stage *stage,
                         const char *key)
{
    const struct tiles tiles = tiles_of(in->engine, key);
    uint64_t bytes = 0;
    for (uint64_t i = stage->first; i < stage->end && i < in->d->n_layers; i++) {
        const struct mt_model_layer *layer = &in->d->layers[i];
        uint64_t blocks =
            mt_ceil_div(mt_ceil_div(layer->expert_ff_length, BLOCK), in->settings->tensor_parallel);
        uint64_t one = expert_bytes(in->d->embedding_length, mt_mul(blocks, BLOCK), &tiles);
        bytes = mt_add(bytes, mt_mul(layer->experts, one));
    }
    return bytes;
}

static uint64_t above(uint64_t bytes, uint64_t read)
{
    return bytes > read ? bytes - read : 0;
}

void mt_vllm_experts_of(const struct mt_predict_input *in, const struct mt_torch_stage *stage,
                        uint64_t read_bytes, struct mt_vllm_experts *experts)
{
    *experts = (struct mt_vllm_experts){0};
    if (!read_bytes)
        return;
    uint64_t usual = laid_out(in, stage, "weights.mxfp4");
    uint64_t least = laid_out(in, stage, "weights.mxfp4.low");
    uint64_t most = laid_out(in, stage, "weights.mxfp4.high");
    least = least < usual ? least : usual;
    most = most > usual ? most : usual;
    if (in->settings->tensor_parallel > 1) /* layouts differ more, and which it is is not known */
        usual = least + (most - least) / 2;
    experts->more_bytes = above(usual, read_bytes);
    experts->low_bytes = above(least, read_bytes);
    experts->high_bytes = above(most, read_bytes);
}
