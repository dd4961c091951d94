/* SPDX-License-Identifier: MIT */
/* dlopen and dlsym without a frame of their own. */
#include "base/tail_jump.inc"

    .text
    TAIL_JUMP dlopen, memtally_decide_dlopen
    TAIL_JUMP dlsym, memtally_decide_dlsym

    .section .note.GNU-stack, "", %progbits
