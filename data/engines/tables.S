/* SPDX-License-Identifier: MIT */
/* The engine tables and graph templates as they are in the tree, built into the library. */
    .section .rodata
    .macro table symbol, file
    .global \symbol
    .global \symbol\()_end
    .hidden \symbol
    .hidden \symbol\()_end
\symbol:
    .incbin "@TABLES@/\file"
\symbol\()_end:
    .byte 0
    .endm

    table mt_table_llama_cpp, "llama.cpp.table"
    table mt_table_ik_llama_cpp, "ik_llama.cpp.table"
    table mt_table_ollama, "ollama.table"
    table mt_table_vllm, "vllm.table"
    table mt_table_sglang, "sglang.table"
    table mt_table_trt_llm, "trt-llm.table"
    table mt_table_transformers, "transformers.table"
    table mt_table_exllamav3, "exllamav3.table"
    table mt_templates_11434, "llama.cpp/11434.templates"

    .section .note.GNU-stack, "", %progbits
