/* SPDX-License-Identifier: MIT */
/* How a config.json says that weights are packed, and what tensors a packed matrix becomes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/units.h>

#include "build.h"

#include "base/bisect.h"
#include "base/error.h"

#define SKIPPED_MAX 8192 /* patterns that are read */
#define GENERAL_MAX 64   /* of them without a layer */

/* The fields that quantisers of a kind nest more deeply. */
static struct mt_hf_value entry(const struct mt_hf_build *build, const char *key)
{
    return mt_hf_entry(build->config, MT_HF_quantization_config, key);
}

static uint64_t number(const struct mt_hf_build *build, const char *key, uint64_t otherwise)
{
    struct mt_hf_value value = entry(build, key);
    return value.number == MT_UNKNOWN ? otherwise : value.number;
}

static int value_is(const struct mt_hf_value *value, const char *text)
{
    return value->is_there && value->token.type == MT_JSON_STRING &&
           mt_json_is(&value->token, text);
}

static int value_holds(const struct mt_hf_value *value, const char *text)
{
    return value->is_there &&
           memmem(value->token.text, value->token.length, text, strlen(text)) != NULL;
}

/* The first number after `"key":` within a value: what lies deeper than one level. */
static uint64_t deep_number(const struct mt_hf_value *value, const char *key, uint64_t otherwise)
{
    struct mt_json json;
    struct mt_json_token token;
    int found = 0;
    uint64_t n;
    if (!value->is_there || value->token.type != MT_JSON_OBJECT)
        return otherwise;
    mt_json_start(&json, "", value->token.text, value->token.length, 0);
    while (mt_json_next(&json, &token, NULL) == 0 && token.type != MT_JSON_END) {
        if (found && token.type == MT_JSON_NUMBER && mt_json_u64(&token, &n) == 0)
            return n;
        found = token.type == MT_JSON_KEY && mt_json_is(&token, key);
    }
    return otherwise;
}

/* Removes every `part` from a text; returns its new length. */
static size_t without(char *text, size_t length, const char *part)
{
    size_t part_length = strlen(part);
    char *at;
    while ((at = memmem(text, length, part, part_length)) != NULL) {
        memmove(at, at + part_length, length - (size_t)(at - text) - part_length);
        length -= part_length;
    }
    return length;
}

/* The layer that a pattern names, counted from 1; 0 where it names none. */
static uint64_t layer_of(const char *pattern)
{
    const char *at = strstr(pattern, "layers.");
    uint64_t number = 0;
    if (!at || at[7] < '0' || at[7] > '9')
        return 0;
    for (at += 7; *at >= '0' && *at <= '9' && number < MT_HF_LAYERS_MAX; at++)
        number = number * 10 + (uint64_t)(*at - '0');
    return number + 1;
}

/* A pattern is kept as what must lie in a module's name, a '*' at its end where what follows may be
 * anything. Regular expressions lose their dressing; those with more than ".*" in them are left
 * out. */
static int take_skipped(void *to, size_t index, const struct mt_json_token *value)
{
    struct mt_hf_build *build = to;
    char text[256];
    (void)index;
    if (value->type != MT_JSON_STRING || value->length >= sizeof text ||
        build->n_skipped == SKIPPED_MAX)
        return 0;
    size_t length = mt_json_unescape(value, text);
    int open = length > 0 && text[length - 1] == '*';
    length = without(text, length, "re:");
    length = without(text, length, ".*");
    length = without(text, length, "*");
    length = without(text, length, "\\");
    length = without(text, length, "language_model.");
    text[length] = '\0';
    if (length == 0 || strpbrk(text, "([|?+{^"))
        return 0;
    char *copy = mt_arena_printf(&build->model->arena, "%s%s", text, open ? "*" : "");
    if (copy)
        build->skipped[build->n_skipped++] =
            (struct mt_hf_skipped){.pattern = copy, .layer = layer_of(copy)};
    return 0;
}

static int compare_skipped(const void *left, const void *right)
{
    const struct mt_hf_skipped *a = left;
    const struct mt_hf_skipped *b = right;
    return (a->layer > b->layer) - (a->layer < b->layer);
}

static void read_skipped(struct mt_hf_build *build)
{
    static const char *const keys[] = {"modules_to_not_convert", "ignore", "exclude_modules",
                                       "ignored_layers", "llm_int8_skip_modules"};
    struct mt_hf_config part = {.path = build->config->path};
    build->skipped = mt_arena_array(&build->model->arena, SKIPPED_MAX, sizeof *build->skipped);
    for (size_t i = 0; build->skipped && i < sizeof keys / sizeof *keys; i++) {
        part.values[MT_HF_layer_types] = entry(build, keys[i]);
        mt_hf_each(&part, MT_HF_layer_types, take_skipped, build);
    }
    if (build->n_skipped)
        qsort(build->skipped, build->n_skipped, sizeof *build->skipped, compare_skipped);
}

static void read_fp8(struct mt_hf_build *build)
{
    struct mt_hf_value block = entry(build, "weight_block_size");
    struct mt_hf_value scale = entry(build, "scale_fmt");
    build->packing = MT_HF_FP8;
    build->scale_is_e8m0 = value_is(&scale, "ue8m0") && mt_hf_trait(build, MT_HF_DEEPSEEK4);
    if (block.is_there && block.token.type == MT_JSON_ARRAY) {
        build->block_rows = 128;
        build->block_columns = 128;
    }
}

static void read_compressed(struct mt_hf_build *build)
{
    struct mt_hf_value all = build->config->values[MT_HF_quantization_config];
    struct mt_hf_value groups = entry(build, "config_groups");
    build->bits = (unsigned)deep_number(&groups, "num_bits", 8);
    build->group = deep_number(&groups, "group_size", 32);
    if (value_holds(&all, "nvfp4"))
        build->packing = MT_HF_NVFP4;
    else if (value_holds(&all, "mxfp4"))
        build->packing = MT_HF_MXFP4;
    else if (build->bits == 4)
        build->packing = MT_HF_PACKED_INT4;
    else if (value_holds(&groups, "\"float\""))
        build->packing = MT_HF_FP8;
    else
        build->packing = MT_HF_INT8;
    if (build->packing == MT_HF_FP8 && value_holds(&groups, "\"channel\""))
        build->block_rows = 1;
}

static void read_modelopt(struct mt_hf_build *build)
{
    struct mt_hf_value all = build->config->values[MT_HF_quantization_config];
    build->packing = value_holds(&all, "NVFP4") ? MT_HF_NVFP4 : MT_HF_FP8;
}

static void read_bitsandbytes(struct mt_hf_build *build)
{
    build->packing = number(build, "load_in_4bit", 0) ? MT_HF_BNB4 : MT_HF_INT8;
    build->group = 64;
}

static void read_grouped(struct mt_hf_build *build, enum mt_hf_packing packing)
{
    build->packing = packing;
    build->bits = (unsigned)number(build, "bits", number(build, "w_bit", 4));
    build->group = number(build, "group_size", number(build, "q_group_size", 128));
}

static void read_mxfp4(struct mt_hf_build *build)
{
    build->expert_packing = MT_HF_MXFP4;
}

static const struct {
    const char *method;
    void (*read)(struct mt_hf_build *build);
    const char *words;
} methods[] = {
    {"fp8", read_fp8, "8-bit floats (fp8)"},
    {"fbgemm_fp8", read_fp8, "8-bit floats (fbgemm_fp8)"},
    {"compressed-tensors", read_compressed, "compressed-tensors"},
    {"modelopt", read_modelopt, "ModelOpt"},
    {"bitsandbytes", read_bitsandbytes, "bitsandbytes"},
    {"mxfp4", read_mxfp4, "mxfp4 for the experts"},
};

static int note_packing(struct mt_hf_build *build, const char *words)
{
    return mt_model_note(build->model, "The weights are packed: %s.", words);
}

static int read_method(struct mt_hf_build *build, const struct mt_hf_value *method)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (value_is(method, methods[i].method)) {
            methods[i].read(build);
            return note_packing(build, methods[i].words);
        }
    }
    if (value_is(method, "awq") || value_is(method, "gptq")) {
        read_grouped(build, value_is(method, "awq") ? MT_HF_AWQ : MT_HF_GPTQ);
        if (build->bits >= 2 && build->bits <= 8 && build->group <= MT_HF_NUMBER_MAX)
            return note_packing(build, value_is(method, "awq") ? "AWQ" : "GPTQ");
    }
    build->packing = MT_HF_UNPACKED;
    int length = (int)(method->token.length < 60 ? method->token.length : 60);
    return mt_model_note(build->model,
                         "memtally does not know the packing \"%.*s\" of the weights: it counts "
                         "them as unpacked.",
                         length, method->token.text ? method->token.text : "");
}

int mt_hf_quantization(struct mt_hf_build *build, struct mt_error *error)
{
    struct mt_hf_value method = entry(build, "quant_method");
    if (!build->config->values[MT_HF_quantization_config].is_there)
        return 0;
    int code = read_method(build, &method);
    if (code)
        return mt_fail(error, code, MT_NO_OFFSET, "%s: out of memory", build->config->path);
    if (build->packing != MT_HF_UNPACKED)
        build->expert_packing = build->packing;
    if (build->packing == MT_HF_FP8 && mt_hf_is(build->config, MT_HF_expert_dtype, "fp4"))
        build->expert_packing = MT_HF_FP4_PAIRS;
    read_skipped(build);
    return 0;
}

/* Whether `pattern` stands in `name` as whole words between dots; with a '*' its end is open. */
static int stands_in(const char *name, const char *pattern)
{
    const char *end = name + strlen(name);
    size_t length = strlen(pattern);
    int open = pattern[length - 1] == '*';
    length -= (size_t)open;
    for (const char *at = name; (at = memmem(at, (size_t)(end - at), pattern, length)) != NULL;
         at++) {
        if ((at == name || at[-1] == '.') && (open || at[length] == '\0' || at[length] == '.'))
            return 1;
    }
    return 0;
}

/* The first pattern of a layer or a later one. */
static size_t first_of(const struct mt_hf_build *build, uint64_t layer)
{
    struct mt_bisect place = {.end = build->n_skipped};
    while (mt_bisect_next(&place))
        mt_bisect_turn(&place, build->skipped[place.middle].layer < layer);
    return place.first;
}

static int stands_in_any(const struct mt_hf_build *build, const char *name, uint64_t layer,
                         size_t limit)
{
    size_t first = first_of(build, layer);
    for (size_t i = first; i < build->n_skipped && i - first < limit; i++) {
        if (build->skipped[i].layer != layer)
            break;
        if (stands_in(name, build->skipped[i].pattern))
            return 1;
    }
    return 0;
}

static int is_skipped(const struct mt_hf_build *build, const char *name)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s", build->prefix, name);
    if (strcmp(name, "lm_head") == 0 || stands_in_any(build, full, 0, GENERAL_MAX))
        return 1;
    return build->layer != MT_NO_LAYER &&
           stands_in_any(build, full, build->layer + UINT64_C(1), SKIPPED_MAX);
}

/* A matrix, or one for each expert, as it is packed. */
struct packed {
    struct mt_hf_build *build;
    const char *name;
    uint64_t n; /* 0: no experts */
    uint64_t out;
    uint64_t in;
};

static uint64_t parts(uint64_t number, uint64_t size)
{
    return size ? number / size + (number % size != 0) : 1;
}

/* "NAMEsuffix" of `a` by `b` values, for each expert. A `b` of 0 makes it one dimension less. */
static void put(const struct packed *packed, const char *suffix, enum mt_st_type type, uint64_t a,
                uint64_t b)
{
    char name[128];
    uint64_t dims[3];
    unsigned n = 0;
    if (packed->n)
        dims[n++] = packed->n;
    dims[n++] = a;
    if (b)
        dims[n++] = b;
    snprintf(name, sizeof name, "%s%s", packed->name, suffix);
    mt_hf_add(packed->build, name, type, dims, n);
}

static void put_fp8(const struct packed *packed)
{
    const struct mt_hf_build *build = packed->build;
    put(packed, ".weight", MT_ST_F8_E4M3, packed->out, packed->in);
    if (build->block_columns)
        put(packed, ".weight_scale_inv", build->scale_is_e8m0 ? MT_ST_F8_E8M0 : MT_ST_F32,
            parts(packed->out, build->block_rows), parts(packed->in, build->block_columns));
    else if (build->block_rows)
        put(packed, ".weight_scale", build->type, packed->out, 1);
    else
        put(packed, ".weight_scale", MT_ST_F32, 1, 0);
}

static void put_grouped(const struct packed *packed, enum mt_hf_packing packing)
{
    const struct mt_hf_build *build = packed->build;
    uint64_t groups = build->group ? parts(packed->in, build->group) : 1;
    uint64_t out_words = parts(packed->out * build->bits, 32);
    if (packing == MT_HF_AWQ)
        put(packed, ".qweight", MT_ST_I32, packed->in, out_words);
    else
        put(packed, ".qweight", MT_ST_I32, parts(packed->in * build->bits, 32), packed->out);
    put(packed, ".qzeros", MT_ST_I32, groups, out_words);
    put(packed, ".scales", MT_ST_F16, groups, packed->out);
    if (packing == MT_HF_GPTQ)
        put(packed, ".g_idx", MT_ST_I32, packed->in, 0);
}

/* Blocks of 64 have a byte for their largest value, blocks of 256 of those a float. */
static void put_bnb4(const struct packed *packed)
{
    uint64_t n = packed->out * packed->in;
    put(packed, ".weight", MT_ST_U8, parts(n, 2), 1);
    put(packed, ".weight.absmax", MT_ST_U8, parts(n, 64), 0);
    put(packed, ".weight.nested_absmax", MT_ST_F32, parts(parts(n, 64), 256), 0);
    put(packed, ".weight.quant_map", MT_ST_F32, 16, 0);
    put(packed, ".weight.nested_quant_map", MT_ST_F32, 256, 0);
}

static void put_fp4(const struct packed *packed, enum mt_hf_packing packing)
{
    if (packing == MT_HF_MXFP4) {
        put(packed, "_blocks", MT_ST_U8, packed->out, parts(packed->in, 32) * 16);
        put(packed, "_scales", MT_ST_U8, packed->out, parts(packed->in, 32));
    } else if (packing == MT_HF_FP4_PAIRS) {
        put(packed, ".weight", MT_ST_I8, packed->out, parts(packed->in, 2));
        put(packed, ".scale", MT_ST_F8_E8M0, packed->out, parts(packed->in, 32));
    } else {
        put(packed, ".weight", MT_ST_U8, packed->out, parts(packed->in, 2));
        put(packed, ".weight_scale", MT_ST_F8_E4M3, packed->out, parts(packed->in, 16));
        put(packed, ".weight_scale_2", MT_ST_F32, 1, 0);
        put(packed, ".input_scale", MT_ST_F32, 1, 0);
    }
}

static void put_packed(const struct packed *packed, enum mt_hf_packing packing)
{
    switch (packing) {
    case MT_HF_FP8:
        put_fp8(packed);
        break;
    case MT_HF_AWQ:
    case MT_HF_GPTQ:
        put_grouped(packed, packing);
        break;
    case MT_HF_BNB4:
        put_bnb4(packed);
        break;
    case MT_HF_INT8:
        put(packed, ".weight", MT_ST_I8, packed->out, packed->in);
        put(packed, ".SCB", MT_ST_F32, packed->out, 0);
        break;
    case MT_HF_MXFP4:
    case MT_HF_FP4_PAIRS:
    case MT_HF_NVFP4:
        put_fp4(packed, packing);
        break;
    case MT_HF_PACKED_INT4:
        put(packed, ".weight_packed", MT_ST_I32, packed->out, parts(packed->in, 8));
        put(packed, ".weight_scale", packed->build->type, packed->out,
            parts(packed->in, packed->build->group));
        put(packed, ".weight_shape", MT_ST_I32, 2, 0);
        break;
    case MT_HF_UNPACKED:
    default:
        put(packed, ".weight", packed->build->type, packed->out, packed->in);
    }
}

void mt_hf_linear(struct mt_hf_build *build, const char *name, uint64_t out, uint64_t in, int bias)
{
    struct packed packed = {build, name, 0, out, in};
    char full[128];
    if (!out || !in)
        return;
    mt_hf_count(build, 1, out, in);
    if (build->list)
        put_packed(&packed, build->packing != MT_HF_UNPACKED && is_skipped(build, name)
                                ? MT_HF_UNPACKED
                                : build->packing);
    snprintf(full, sizeof full, "%s.bias", name);
    if (bias)
        mt_hf_vector(build, full, out);
}

void mt_hf_experts(struct mt_hf_build *build, const char *name, uint64_t n, uint64_t out,
                   uint64_t in)
{
    struct packed packed = {build, name, n, out, in};
    if (!n || !out || !in)
        return;
    mt_hf_count(build, n, out, in);
    if (build->list)
        put_packed(&packed, build->expert_packing != MT_HF_UNPACKED && is_skipped(build, name)
                                ? MT_HF_UNPACKED
                                : build->expert_packing);
}
