/* SPDX-License-Identifier: MIT */
/* The list of template files; their text comes from data/engines/llama.cpp/. */
#include <string.h>

#include <memtally/error_code.h>

#include "engine/engine.h"
#include "template.h"

/* X(symbol, "build") */
#define FILES(X) X(mt_templates_11434, "11434")

#define DECLARE(symbol, build) extern const char symbol[], symbol##_end[];
FILES(DECLARE)
#undef DECLARE

int mt_template_of_engine(const struct mt_engine *engine, const char *architecture,
                          struct mt_template_word *file, struct mt_template_word *found)
{
#define FIND(symbol, build)                                                                        \
    if (mt_engine_has(engine, "compute.templates", build)) {                                       \
        *file = (struct mt_template_word){symbol, (size_t)(symbol##_end - (symbol))};              \
        return mt_template_find(file->at, file->length, architecture, found);                      \
    }
    FILES(FIND)
#undef FIND
    return MT_ENOTFOUND;
}
