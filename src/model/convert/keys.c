/* SPDX-License-Identifier: MIT */
/* The keys of a converted model. Knows the tables' grammar, no family. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "convert.h"

#define KEY_BYTES  128
#define N_SECTIONS 4

/* What the functions below share. */
struct putting {
    struct mt_convert *convert;
    struct mt_gguf_header *header;
    const struct mt_convert_key *row;
    char key[KEY_BYTES];
};

static int evaluate(const struct putting *p, uint64_t *result)
{
    int code = mt_convert_evaluate(p->row->value, p->convert->values, result, NULL);
    if (code)
        return mt_fail(p->convert->error, code, MT_NO_OFFSET, "%s: its numbers give %s no value",
                       p->convert->description->path, p->key);
    if (*result > UINT32_MAX)
        return mt_fail(p->convert->error, MT_ELIMIT, MT_NO_OFFSET,
                       "%s: %s would be %llu, over 2^32", p->convert->description->path, p->key,
                       (unsigned long long)*result);
    return 0;
}

static uint64_t layers(const struct putting *p)
{
    uint64_t n = p->convert->values[MT_V_layers];
    return p->row->kind == MT_CONVERT_TRUNK_FLAGS ? n - p->convert->values[MT_V_drafts] : n;
}

/* Evaluates for every layer; *differs says whether one is unlike the first, whose is *value. */
static int evaluate_layers(const struct putting *p, uint64_t *value, int *differs)
{
    *differs = 0;
    for (uint64_t i = 0; i < layers(p); i++) {
        uint64_t number = 0;
        mt_convert_set_layer(p->convert, i);
        int code = evaluate(p, &number);
        if (code)
            return code;
        if (i == 0)
            *value = number;
        *differs |= number != *value;
    }
    mt_convert_set_layer(p->convert, 0);
    return 0;
}

static int put_array(const struct putting *p, enum mt_gguf_type type)
{
    int code = 0;
    mt_gguf_array(p->header, p->key, type, layers(p));
    for (uint64_t i = 0; i < layers(p) && !code; i++) {
        uint64_t number = 0;
        mt_convert_set_layer(p->convert, i);
        code = evaluate(p, &number);
        if (type == MT_GGUF_BOOL)
            mt_gguf_bool_value(p->header, number != 0);
        else
            mt_gguf_i32_value(p->header, (int32_t)(uint32_t)number);
    }
    mt_convert_set_layer(p->convert, 0);
    return code;
}

static int put_count(const struct putting *p)
{
    uint64_t value = 0;
    int differs = 0;
    int code = evaluate_layers(p, &value, &differs);
    if (code)
        return code;
    if (differs)
        return put_array(p, MT_GGUF_U32);
    mt_gguf_u32(p->header, p->key, value);
    return 0;
}

static int put_real(const struct putting *p)
{
    double value = 0;
    int said = mt_convert_real(p->convert, p->row->value, &value);
    if (said > 0)
        mt_gguf_f32(p->header, p->key, value);
    return said < 0 ? said : 0;
}

static int take_section(void *to, size_t index, const struct mt_json_token *value)
{
    uint64_t *sections = to;
    if (index < N_SECTIONS && mt_json_u64(value, &sections[index]))
        sections[index] = 0;
    return 0;
}

/* "11,11,10,0", or what the config says in its place. */
static int put_sections(const struct putting *p)
{
    uint64_t sections[N_SECTIONS] = {0};
    struct mt_hf_config part = {.path = p->convert->config->path, .text = p->convert->config->text};
    const char *at = p->row->value;
    for (int i = 0; i < N_SECTIONS; i++, at += *at == ',')
        mt_convert_evaluate(at, p->convert->values, &sections[i], &at);
    part.values[MT_HF_layer_types] = mt_convert_rope_entry(p->convert->config, "mrope_section");
    if (part.values[MT_HF_layer_types].is_there)
        memset(sections, 0, sizeof sections);
    mt_hf_each(&part, MT_HF_layer_types, take_section, sections);
    mt_gguf_array(p->header, p->key, MT_GGUF_I32, N_SECTIONS);
    for (int i = 0; i < N_SECTIONS; i++)
        mt_gguf_i32_value(p->header, (int32_t)(sections[i] & INT32_MAX));
    return 0;
}

static int put_switch(const struct putting *p)
{
    uint64_t value = 0;
    int code = evaluate(p, &value);
    if (!code)
        mt_gguf_bool(p->header, p->key, value != 0);
    return code;
}

static int put_row(const struct putting *p)
{
    switch (p->row->kind) {
    case MT_CONVERT_COUNT:
        return put_count(p);
    case MT_CONVERT_FLAGS:
    case MT_CONVERT_TRUNK_FLAGS:
        return put_array(p, MT_GGUF_BOOL);
    case MT_CONVERT_SWITCH:
        return put_switch(p);
    case MT_CONVERT_REAL:
        return put_real(p);
    case MT_CONVERT_TEXT:
        mt_gguf_string(p->header, p->key, p->row->value);
        return 0;
    case MT_CONVERT_SECTIONS:
        return put_sections(p);
    }
    return MT_EARG;
}

static int put_group(struct putting *p, const char *group, size_t length)
{
    int code = 0;
    for (p->row = mt_convert_keys; p->row->group && !code; p->row++) {
        uint64_t wanted = 0;
        if (strncmp(p->row->group, group, length) != 0 || p->row->group[length])
            continue;
        if (mt_convert_evaluate(p->row->when, p->convert->values, &wanted, NULL) || !wanted)
            continue;
        snprintf(p->key, sizeof p->key, "%s.%s", mt_arch_name(p->convert->family->arch),
                 p->row->key);
        code = put_row(p);
    }
    return code;
}

int mt_convert_put_keys(struct mt_convert *convert, struct mt_gguf_header *header)
{
    struct putting putting = {.convert = convert, .header = header};
    const char *at = convert->family->keys;
    int code = 0;
    mt_convert_set_layer(convert, 0);
    while (*at && !code) {
        size_t length = strcspn(at, " ");
        code = put_group(&putting, at, length);
        at += length;
        at += strspn(at, " ");
    }
    return code;
}
