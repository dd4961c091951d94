/* SPDX-License-Identifier: MIT */
/* Words for completion, from the lists that have them. */
#include "cli/words.h"
#include "drive/engines.h"

#include <memtally/gpu.h>
#include <memtally/model_file.h>
#include <memtally/settings.h>
#include <memtally/tally.h>
#include <string.h>

static void put(struct mt_strbuf *out, const char *word)
{
    mt_strbuf_printf(out, " %s", word);
}

void cli_words_engines(struct mt_strbuf *out)
{
    const char *name;
    for (size_t i = 0; (name = mt_engine_name_at(i)) != NULL; i++)
        put(out, name);
}

void cli_words_rehearsed_engines(struct mt_strbuf *out)
{
    char how[MT_DRIVE_ENGINE_TEXT];
    for (size_t i = 0; mt_engine_name_at(i); i++)
        if (*mt_drive_engine_text(mt_engine_name_at(i), "rehearsed", how))
            put(out, mt_engine_name_at(i));
}

void cli_words_gpus(struct mt_strbuf *out)
{
    struct mt_rehearsal_gpu gpu;
    for (size_t i = 0; mt_rehearsal_gpu_at(i, &gpu) == 0; i++)
        put(out, gpu.key);
}

/* The card of the least capability above `than`; 0 where there is none. */
static int next_capability(uint32_t than, struct mt_rehearsal_gpu *least)
{
    struct mt_rehearsal_gpu gpu;
    int is_found = 0;
    for (size_t i = 0; mt_rehearsal_gpu_at(i, &gpu) == 0; i++) {
        if (gpu.capability <= than || (is_found && gpu.capability >= least->capability))
            continue;
        *least = gpu;
        is_found = 1;
    }
    return is_found;
}

/* Each once, the oldest first. */
void cli_words_generations(struct mt_strbuf *out)
{
    char before[sizeof((struct mt_rehearsal_gpu *)0)->generation] = "";
    struct mt_rehearsal_gpu gpu = {.capability = 0};
    while (next_capability(gpu.capability, &gpu)) {
        if (strcmp(gpu.generation, before) != 0)
            put(out, gpu.generation);
        memcpy(before, gpu.generation, sizeof before);
    }
}

/* Types of llama.cpp, then of engines on PyTorch. */
void cli_words_cache_types(struct mt_strbuf *out)
{
    static const char *const names[] = {"f16",  "bf16", "f32",    "q8_0", "q5_1", "q5_0",
                                        "q4_1", "q4_0", "iq4_nl", "auto", "fp8"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        put(out, names[i]);
}

void cli_words_weight_types(struct mt_strbuf *out)
{
#define WORD(NAME, name) put(out, name);
    MT_FILE_TYPE_LIST(WORD)
#undef WORD
    put(out, "fp8");
}

void cli_words_moments(struct mt_strbuf *out)
{
    static const enum mt_moment_kind named[] = {MT_MOMENT_PEAK, MT_MOMENT_STEADY, MT_MOMENT_EXIT,
                                                MT_MOMENT_HEAP_PEAK};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        put(out, mt_moment_name(named[i]));
    for (int category = 1; category < MT_CATEGORY_END; category++) {
        const struct mt_moment moment = {.kind = MT_MOMENT_CATEGORY_PEAK,
                                         .category = (enum mt_category)category};
        put(out, mt_moment_text(&moment));
    }
}
