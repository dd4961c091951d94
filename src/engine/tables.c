/* SPDX-License-Identifier: MIT */
/* The list of engine tables; their text comes from data/engines/. */
#include "engine/tables.h"

#include <stddef.h>

/* X(symbol, "name") */
#define TABLES(X)                                                                                  \
    X(mt_table_llama_cpp, "llama.cpp")                                                             \
    X(mt_table_ik_llama_cpp, "ik_llama.cpp")                                                       \
    X(mt_table_ollama, "ollama")                                                                   \
    X(mt_table_vllm, "vllm")                                                                       \
    X(mt_table_sglang, "sglang")                                                                   \
    X(mt_table_trt_llm, "trt-llm")                                                                 \
    X(mt_table_transformers, "transformers")                                                       \
    X(mt_table_exllamav3, "exllamav3")

#define DECLARE(symbol, name) extern const char symbol[], symbol##_end[];
TABLES(DECLARE)
#undef DECLARE

const struct mt_engine_table mt_engine_tables[] = {
#define ROW(symbol, name) {name, symbol, symbol##_end},
    TABLES(ROW)
#undef ROW
        {NULL, NULL, NULL},
};
