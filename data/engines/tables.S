/* SPDX-License-Identifier: MIT */
/* The engine tables and graph templates as they are in the tree, built into the library. */
    .section .rodata
    .macro table symbol, file, ending=
    .global \symbol
    .global \symbol\()_end
    .hidden \symbol
    .hidden \symbol\()_end
\symbol:
    .incbin "@TABLES@/\file\ending"
\symbol\()_end:
    .byte 0
    .endm

#define ENGINE(symbol, name) table mt_table_##symbol, name, /engine.table
#include "data/engines/engines.def"

    table mt_templates_11434, "llama.cpp/11434.templates"

    .section .note.GNU-stack, "", %progbits
