/* SPDX-License-Identifier: MIT */
/* The list of engine tables; their text comes from data/engines/. */
#include "engine/tables.h"

#include <stddef.h>

#define ENGINE(symbol, name) extern const char mt_table_##symbol[], mt_table_##symbol##_end[];
#include "data/engines/engines.def"
#undef ENGINE

const struct mt_engine_table mt_engine_tables[] = {
#define ENGINE(symbol, name) {name, mt_table_##symbol, mt_table_##symbol##_end},
#include "data/engines/engines.def"
#undef ENGINE
    {NULL, NULL, NULL},
};
