/* SPDX-License-Identifier: MIT */
/* dlopen, dlsym and syscall without a frame of their own. */
#include "base/tail_jump.inc"

    .text
    TAIL_JUMP dlopen, memtally_decide_dlopen
    TAIL_JUMP dlsym, memtally_decide_dlsym

/* syscall() has up to seven arguments, all kept. */
    .hidden memtally_decide_syscall
    .globl syscall
    .type syscall, %function
syscall:
    .cfi_startproc
#if defined(__x86_64__)
    endbr64
    push %rdi
    push %rsi
    push %rdx
    push %rcx
    push %r8
    push %r9
    sub $8, %rsp
    .cfi_adjust_cfa_offset 56
    call memtally_decide_syscall
    add $8, %rsp
    pop %r9
    pop %r8
    pop %rcx
    pop %rdx
    pop %rsi
    pop %rdi
    .cfi_adjust_cfa_offset -56
    jmp *%rax
#else
    stp x29, x30, [sp, #-80]!
    .cfi_adjust_cfa_offset 80
    .cfi_rel_offset x30, 8
    mov x29, sp
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    bl memtally_decide_syscall
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x2, x3, [sp, #32]
    ldp x4, x5, [sp, #48]
    ldp x6, x7, [sp, #64]
    ldp x29, x30, [sp], #80
    .cfi_adjust_cfa_offset -80
    br x16
#endif
    .cfi_endproc
    .size syscall, . - syscall

    .section .note.GNU-stack, "", %progbits
