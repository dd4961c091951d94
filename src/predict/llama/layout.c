/* SPDX-License-Identifier: MIT */
/* The layouts that llama.cpp keeps matrices in on the host: which of them a processor has, and what
 * a matrix takes there. Knows no buffers and no files. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "layout.h"
#include "model/ggml_type.h"
#include "predict/llama/internal.h"

#define KLEIDIAI_HEADER 64

/* Dimensions without those of 1 at the end. */
static uint32_t dimensions_of(const struct mt_model_tensor *tensor)
{
    uint32_t n = tensor->n_dims;
    while (n > 1 && tensor->dims[n - 1] == 1)
        n--;
    return n;
}

int mt_llama_is_matrix(const struct mt_model_tensor *tensor)
{
    return dimensions_of(tensor) == 2;
}

/* Weights of two dimensions that are of another operation than a product: convolutions, tables of
 * rows, states (src/llama-arch.cpp: LLM_TENSOR_INFOS). Norms are so by the end of their names. */
static int is_of_another_operation(const struct mt_model_tensor *tensor)
{
    static const char *const words[] = {".ssm_conv1d.", ".ssm_a.", ".shortconv.conv.", "_norm.",
                                        "_rel_b.",      "_ape.",   ".conv1d."};
    static const char *const ends[] = {".ssm_a", ".ssm_d", "_norm"};
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)tensor->name_length, tensor->name);
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(name, words[i]))
            return 1;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (length > strlen(ends[i]) && !strcmp(name + length - strlen(ends[i]), ends[i]))
            return 1;
    return strstr(name, ".time_mix_lerp") || strstr(name, ".time_mix_first") ||
           strstr(name, ".time_mix_decay.");
}

/* The words of `types` in the table are of the processor: "repack.avx2.types". */
static int is_of_types(const struct mt_engine *engine, const char *layout, const char *kind,
                       const char *type)
{
    char key[64];
    snprintf(key, sizeof key, "%s.%s.types", layout, kind);
    return mt_engine_has(engine, key, type);
}

static uint64_t rows_of(const struct mt_model_tensor *tensor)
{
    return tensor->n_dims > 1 ? tensor->dims[1] : 1;
}

/* Products of experts have a layout of their own in none but REPACK. */
static int is_repacked(const struct mt_engine *engine, enum mt_processor processor,
                       const struct mt_model_tensor *tensor)
{
    int is_arm = processor == MT_PROCESSOR_DOTPROD || processor == MT_PROCESSOR_KLEIDIAI;
    uint64_t step = is_arm && mt_engine_has(engine, "repack.by_four", tensor->type) ? 4 : 8;
    if (dimensions_of(tensor) != (mt_llama_is_expert(tensor) ? 3u : 2u) || rows_of(tensor) % step)
        return 0;
    if (is_arm)
        return is_of_types(engine, "repack", "dotprod", tensor->type);
    if (processor == MT_PROCESSOR_X86_64 || processor == MT_PROCESSOR_AARCH64)
        return 0;
    if (processor != MT_PROCESSOR_AVX2 && is_of_types(engine, "repack", "avx512", tensor->type))
        return 1;
    return is_of_types(engine, "repack", "avx2", tensor->type);
}

/* What is appended to each block of a type. */
static uint64_t with_appendix(const struct mt_engine *engine, const char *type, uint64_t bytes)
{
    char key[64];
    const struct mt_ggml_type *known = mt_ggml_type_by_name(type);
    snprintf(key, sizeof key, "amx.appended.%s", type);
    uint64_t appended = mt_engine_number(engine, key, 0);
    if (!appended || !known)
        return bytes;
    return mt_llama_add(bytes, mt_llama_times(bytes / known->block_bytes, appended));
}

/* Several matrices in one tensor are of a product too, but the buffer is made for the first one
 * where they are quantised. */
static uint64_t amx_bytes(const struct mt_engine *engine, const struct mt_model_tensor *tensor)
{
    uint64_t bytes = tensor->bytes;
    uint32_t n = dimensions_of(tensor);
    if (mt_llama_is_expert(tensor) || rows_of(tensor) % mt_engine_number(engine, "amx.rows", 32) ||
        n < 2 || (n > 2 && !mt_engine_has(engine, "amx.batched", "yes")) ||
        !mt_engine_has(engine, "amx.types", tensor->type))
        return 0;
    if (!mt_llama_is_quantised(tensor->type))
        return tensor->dims[0] % mt_engine_number(engine, "amx.columns", 1) ? 0 : bytes;
    for (uint32_t i = 2; i < n; i++)
        bytes /= tensor->dims[i] ? tensor->dims[i] : 1;
    return with_appendix(engine, tensor->type, bytes);
}

/* A header, and the rows packed as closely as they were. */
static uint64_t kleidiai_bytes(const struct mt_engine *engine, const struct mt_model_tensor *tensor)
{
    if (dimensions_of(tensor) != 2 || !mt_engine_has(engine, "kleidiai.types", tensor->type))
        return 0;
    return mt_llama_add(tensor->bytes, KLEIDIAI_HEADER);
}

struct mt_llama_layout mt_llama_layout_of(const struct mt_engine *engine,
                                          enum mt_processor processor,
                                          const struct mt_model_tensor *tensor, int is_product)
{
    struct mt_llama_layout layout = {MT_LAYOUT_PLAIN, tensor->bytes};
    /* KleidiAI looks up rows too. */
    if (processor == MT_PROCESSOR_KLEIDIAI &&
        (is_product || tensor->role == MT_TENSOR_TOKEN_EMBEDDING)) {
        layout.bytes = kleidiai_bytes(engine, tensor);
        if (layout.bytes) {
            layout.kind = MT_LAYOUT_KLEIDIAI;
            return layout;
        }
        layout.bytes = tensor->bytes;
    }
    if (!is_product || is_of_another_operation(tensor))
        return layout;
    if (processor == MT_PROCESSOR_AMX) {
        uint64_t bytes = amx_bytes(engine, tensor);
        if (bytes)
            return (struct mt_llama_layout){MT_LAYOUT_AMX, bytes};
    }
    if (is_repacked(engine, processor, tensor))
        layout.kind = MT_LAYOUT_REPACKED;
    return layout;
}
