/* SPDX-License-Identifier: MIT */
/* Words for what a description holds, and its notes. */
#include "model/model.h"

#include <stdarg.h>
#include <string.h>

#include <memtally/error_code.h>

const char *mt_model_format_name(enum mt_model_format format)
{
    static const char *const names[] = {
        [MT_MODEL_GGUF] = "GGUF",
        [MT_MODEL_SAFETENSORS] = "safetensors",
        [MT_MODEL_CONFIG] = "config.json",
    };
    return (unsigned)format < sizeof names / sizeof *names ? names[format] : "?";
}

const char *mt_attention_name(enum mt_attention attention)
{
    static const char *const names[] = {
        [MT_ATTENTION_NONE] = "none",       [MT_ATTENTION_GLOBAL] = "global",
        [MT_ATTENTION_SLIDING] = "sliding", [MT_ATTENTION_CHUNKED] = "chunked",
        [MT_ATTENTION_LATENT] = "latent",   [MT_ATTENTION_CROSS] = "cross",
    };
    return (unsigned)attention < sizeof names / sizeof *names ? names[attention] : "?";
}

const char *mt_recurrence_name(enum mt_recurrence recurrence)
{
    static const char *const names[] = {
        [MT_RECURRENCE_NONE] = "none",
        [MT_RECURRENCE_MAMBA] = "mamba",
        [MT_RECURRENCE_MAMBA2] = "mamba2",
        [MT_RECURRENCE_DELTA_NET] = "delta_net",
        [MT_RECURRENCE_KIMI_DELTA] = "kimi_delta",
        [MT_RECURRENCE_SHORT_CONVOLUTION] = "short_convolution",
        [MT_RECURRENCE_RWKV] = "rwkv",
    };
    return (unsigned)recurrence < sizeof names / sizeof *names ? names[recurrence] : "?";
}

static int has_note(const struct mt_model_description *description, const char *note)
{
    for (size_t i = 0; i < description->n_notes; i++)
        if (strcmp(description->notes[i], note) == 0)
            return 1;
    return 0;
}

int mt_model_note(struct mt_model *model, const char *format, ...)
{
    struct mt_model_description *description = &model->description;
    va_list arguments;
    va_start(arguments, format);
    const char *note = mt_arena_vprintf(&model->arena, format, arguments);
    va_end(arguments);
    if (!note)
        return MT_ENOMEM;
    if (has_note(description, note))
        return 0;
    if (description->n_notes == model->notes_capacity) {
        size_t capacity = model->notes_capacity ? model->notes_capacity * 2 : 8;
        const char **notes = mt_arena_array(&model->arena, capacity, sizeof *notes);
        if (!notes)
            return MT_ENOMEM;
        for (size_t i = 0; i < description->n_notes; i++)
            notes[i] = description->notes[i];
        description->notes = notes;
        model->notes_capacity = capacity;
    }
    /* The list is the arena's own; only readers see it as constant. */
    ((const char **)(uintptr_t)description->notes)[description->n_notes++] = note;
    return 0;
}
