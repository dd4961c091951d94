/* SPDX-License-Identifier: MIT */
/* The tables of GPUs as they are in the tree, built into the library one after the other. */
    .section .rodata
    .global mt_gpu_table
    .global mt_gpu_table_end
    .hidden mt_gpu_table
    .hidden mt_gpu_table_end
mt_gpu_table:
    .incbin "@TABLES@/nvidia.table"
    .incbin "@TABLES@/amd.table"
    .incbin "@TABLES@/apple.table"
mt_gpu_table_end:
    .byte 0

    .section .note.GNU-stack, "", %progbits
