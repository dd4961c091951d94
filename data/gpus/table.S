/* SPDX-License-Identifier: MIT */
/* The table of GPUs as it is in the tree, built into the library. */
    .section .rodata
    .global mt_gpu_table
    .global mt_gpu_table_end
    .hidden mt_gpu_table
    .hidden mt_gpu_table_end
mt_gpu_table:
    .incbin "@TABLES@/nvidia.table"
mt_gpu_table_end:
    .byte 0

    .section .note.GNU-stack, "", %progbits
