/* SPDX-License-Identifier: MIT */
/* The settings that a sweep goes through. Knows how they are typed, runs nothing. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "sweep.h"

#define NUMBER_MOST (UINT64_C(1) << 31)

static const char *const names[MT_ADVISE_KEYS] = {
    [MT_ADVISE_KEY_CONTEXT] = "context",       [MT_ADVISE_KEY_BATCH] = "batch",
    [MT_ADVISE_KEY_UBATCH] = "ubatch",         [MT_ADVISE_KEY_SEQUENCES] = "sequences",
    [MT_ADVISE_KEY_KV_TYPE] = "kv-type",       [MT_ADVISE_KEY_FLASH_ATTENTION] = "flash-attn",
    [MT_ADVISE_KEY_GPU_LAYERS] = "gpu-layers", [MT_ADVISE_KEY_CPU_MOE] = "cpu-moe",
};

const char *mt_advise_key_name(enum mt_advise_key key)
{
    return names[key];
}

static int fail_at(const char *word, size_t length, const char *expected, struct mt_error *error)
{
    return mt_fail(error, MT_EARG, MT_NO_OFFSET, "rehearse: --sweep wants %s, not '%.*s'", expected,
                   (int)(length < 80 ? length : 80), word);
}

/* A whole number, of which 8k is 8192 and 1m a million of that kind. Returns the bytes read, or 0.
 */
static size_t read_number(const char *text, size_t length, uint64_t *number)
{
    uint64_t value = 0;
    size_t i = 0;
    for (; i < length && text[i] >= '0' && text[i] <= '9' && value < NUMBER_MOST; i++)
        value = value * 10 + (uint64_t)(text[i] - '0');
    if (!i)
        return 0;
    if (i < length && (text[i] == 'k' || text[i] == 'K')) {
        value <<= 10;
        i++;
    } else if (i < length && (text[i] == 'm' || text[i] == 'M')) {
        value <<= 20;
        i++;
    }
    *number = value;
    return value <= NUMBER_MOST ? i : 0;
}

static int add(struct mt_advise_axis *axis, uint64_t number, const char *word, size_t length,
               struct mt_error *error)
{
    char digits[24];
    if (axis->n == MT_ADVISE_VALUES_MAX)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "rehearse: --sweep takes at most %d values of a setting",
                       MT_ADVISE_VALUES_MAX);
    if (!word)
        length = (size_t)snprintf(digits, sizeof digits, "%" PRIu64, number);
    axis->words[axis->n] = strndup(word ? word : digits, length);
    if (!axis->words[axis->n])
        return mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "out of memory");
    axis->numbers[axis->n++] = number;
    return 0;
}

/* "8k", or "2k..128k". */
static int add_numbers(struct mt_advise_axis *axis, const char *word, size_t length,
                       struct mt_error *error)
{
    uint64_t first;
    uint64_t last;
    size_t used = read_number(word, length, &first);
    if (used == length)
        return add(axis, first, NULL, 0, error);
    if (!used || length < used + 3 || strncmp(word + used, "..", 2) != 0 ||
        read_number(word + used + 2, length - used - 2, &last) != length - used - 2 || !first ||
        last < first)
        return fail_at(word, length, "numbers such as 8k or ranges such as 2k..128k", error);
    int result = 0;
    for (uint64_t value = first; value < last && !result; value *= 2)
        result = add(axis, value, NULL, 0, error);
    return result ? result : add(axis, last, NULL, 0, error);
}

static int add_switch(struct mt_advise_axis *axis, const char *word, size_t length,
                      struct mt_error *error)
{
    for (int i = MT_SWITCH_AUTO; i <= MT_SWITCH_OFF; i++) {
        const char *name = mt_switch_name((enum mt_switch)i);
        if (strlen(name) == length && !strncmp(word, name, length))
            return add(axis, (uint64_t)i, word, length, error);
    }
    return fail_at(word, length, "auto, on or off of flash-attn", error);
}

static int add_values(struct mt_advise_axis *axis, const char *word, size_t length,
                      struct mt_error *error)
{
    int counts_layers = axis->key == MT_ADVISE_KEY_GPU_LAYERS || axis->key == MT_ADVISE_KEY_CPU_MOE;
    if (!length)
        return fail_at(word, length, "values", error);
    if (axis->key == MT_ADVISE_KEY_KV_TYPE)
        return add(axis, 0, word, length, error);
    if (axis->key == MT_ADVISE_KEY_FLASH_ATTENTION)
        return add_switch(axis, word, length, error);
    if (counts_layers && length == 3 && !strncmp(word, "all", 3))
        return add(axis, MT_ALL, word, length, error);
    if (counts_layers && length == 1 && *word == '0')
        return add(axis, 0, word, length, error);
    int result = add_numbers(axis, word, length, error);
    if (!result && !axis->numbers[axis->n - 1])
        return fail_at(word, length, "numbers above 0", error);
    return result;
}

/* The axis of a name; one that is not there yet is begun. NULL where there is no such setting. */
static struct mt_advise_axis *axis_of(struct mt_advise_axes *axes, const char *name, size_t length)
{
    size_t key = 0;
    while (key < MT_ADVISE_KEYS &&
           (strlen(names[key]) != length || strncmp(name, names[key], length) != 0))
        key++;
    if (key == MT_ADVISE_KEYS)
        return NULL;
    for (size_t i = 0; i < axes->n; i++)
        if (axes->items[i].key == (enum mt_advise_key)key)
            return &axes->items[i];
    axes->items[axes->n].key = (enum mt_advise_key)key;
    return &axes->items[axes->n++];
}

int mt_advise_axes_parse(struct mt_advise_axes *axes, const char *text, struct mt_error *error)
{
    struct mt_advise_axis *axis = NULL;
    int result = 0;
    for (const char *word = text; !result;) {
        size_t length = strcspn(word, ",");
        size_t name_length = strcspn(word, "=");
        size_t skipped = 0;
        if (name_length < length) {
            axis = axis_of(axes, word, name_length);
            skipped = name_length + 1;
        }
        if (!axis)
            return fail_at(word, name_length < length ? name_length : length,
                           "settings with values, as in context=2k..128k,ubatch=512,2048 (also "
                           "batch, sequences, kv-type, flash-attn, gpu-layers, cpu-moe)",
                           error);
        result = add_values(axis, word + skipped, length - skipped, error);
        if (!word[length])
            break;
        word += length + 1;
    }
    if (!result && mt_advise_axes_points(axes) > MT_ADVISE_POINTS_MAX)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "rehearse: --sweep makes more than %d combinations; name fewer values",
                       MT_ADVISE_POINTS_MAX);
    return result;
}

void mt_advise_axes_finish(struct mt_advise_axes *axes)
{
    for (size_t i = 0; i < axes->n; i++)
        for (size_t v = 0; v < axes->items[i].n; v++)
            free(axes->items[i].words[v]);
    *axes = (struct mt_advise_axes){0};
}

size_t mt_advise_axes_points(const struct mt_advise_axes *axes)
{
    size_t n = axes->n ? 1 : 0;
    for (size_t i = 0; i < axes->n; i++)
        if (__builtin_mul_overflow(n, axes->items[i].n, &n))
            return SIZE_MAX;
    return n;
}

size_t mt_advise_axes_value(const struct mt_advise_axes *axes, size_t point, size_t axis)
{
    for (size_t i = axes->n; i-- > axis + 1;)
        point /= axes->items[i].n;
    return point % axes->items[axis].n;
}

static void apply(const struct mt_advise_axis *axis, size_t value, struct mt_predict_settings *s)
{
    uint64_t number = axis->numbers[value];
    switch (axis->key) {
    case MT_ADVISE_KEY_CONTEXT:
        s->context_tokens = number;
        break;
    case MT_ADVISE_KEY_BATCH:
        s->batch = number;
        break;
    case MT_ADVISE_KEY_UBATCH:
        s->ubatch = number;
        break;
    case MT_ADVISE_KEY_SEQUENCES:
        s->sequences = number;
        break;
    case MT_ADVISE_KEY_KV_TYPE:
        s->kv_type_k = s->kv_type_v = axis->words[value];
        break;
    case MT_ADVISE_KEY_FLASH_ATTENTION:
        s->flash_attention = (enum mt_switch)number;
        break;
    case MT_ADVISE_KEY_GPU_LAYERS:
        s->has_gpu_layers = 1;
        s->gpu_layers = number;
        break;
    case MT_ADVISE_KEY_CPU_MOE:
        s->cpu_moe_layers = number;
        break;
    case MT_ADVISE_KEYS:
        break;
    }
}

void mt_advise_axes_apply(const struct mt_advise_axes *axes, size_t point,
                          struct mt_predict_settings *settings)
{
    for (size_t i = 0; i < axes->n; i++)
        apply(&axes->items[i], mt_advise_axes_value(axes, point, i), settings);
}
