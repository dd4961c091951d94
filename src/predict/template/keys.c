/* SPDX-License-Identifier: MIT */
/* Whether a model's keys have the values that a template was made with. Such keys change a graph
 * and no tensor shows it; a value is known by its kind, not to its last digit. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/gguf/gguf.h"
#include "template.h"

#define FLOAT_ONE  0x3f800000
#define DOUBLE_ONE UINT64_C(0x3ff0000000000000)

static const char *kind_of_real(uint64_t bits, uint64_t one)
{
    return !bits ? "0" : bits == one ? "1" : "set";
}

/* What docs/FORMATS.md calls the value: "none", "list", "true", a whole number, "set". */
static void name_value(const struct mt_gguf_pair *pair, char *out, size_t size)
{
    const char *text = "none";
    out[0] = 0;
    if (pair && pair->type == MT_GGUF_VALUE_ARRAY)
        text = "list";
    else if (pair && pair->type == MT_GGUF_VALUE_STRING)
        text = pair->text ? pair->text : "text";
    else if (pair && pair->type == MT_GGUF_VALUE_BOOL)
        text = pair->number ? "true" : "false";
    else if (pair && pair->type == MT_GGUF_VALUE_F32)
        text = kind_of_real(pair->number, FLOAT_ONE);
    else if (pair && pair->type == MT_GGUF_VALUE_F64)
        text = kind_of_real(pair->number, DOUBLE_ONE);
    else if (pair) {
        snprintf(out, size, "%" PRId64, (int64_t)pair->number);
        return;
    }
    snprintf(out, size, "%s", text);
}

static const struct mt_gguf_pair *pair_of(const struct mt_model *model,
                                          struct mt_template_word name)
{
    const struct mt_gguf *gguf = model->tensors;
    char key[192];
    if (!gguf || model->description.format != MT_MODEL_GGUF || !model->description.architecture)
        return NULL;
    snprintf(key, sizeof key, "%s.%.*s", model->description.architecture, (int)name.length,
             name.at);
    return mt_gguf_find(&gguf->pairs, key);
}

static int is_one_of(struct mt_template_word values, const char *value)
{
    size_t length = strlen(value);
    while (values.length) {
        const char *end = memchr(values.at, ' ', values.length);
        size_t n = end ? (size_t)(end - values.at) : values.length;
        if (n == length && memcmp(values.at, value, n) == 0)
            return 1;
        n += end != NULL;
        values = (struct mt_template_word){values.at + n, values.length - n};
    }
    return 0;
}

int mt_template_knows_keys(const struct mt_template *template, const struct mt_model *model)
{
    for (uint32_t i = 0; i < template->n_keys; i++) {
        char value[64];
        name_value(pair_of(model, template->keys[i].name), value, sizeof value);
        if (!is_one_of(template->keys[i].values, value))
            return 0;
    }
    return 1;
}
