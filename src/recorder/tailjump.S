/* SPDX-License-Identifier: MIT */
/* dlopen and dlsym without a frame of their own: save the arguments, ask the C function what to
 * do, then either return its value or jump to the real function with nothing changed. */

#if defined(__x86_64__)

.macro TAIL_JUMP name
    .globl \name
    .type \name, @function
\name:
    .cfi_startproc
    endbr64
    push %rdi
    .cfi_adjust_cfa_offset 8
    push %rsi
    .cfi_adjust_cfa_offset 8
    sub $8, %rsp
    .cfi_adjust_cfa_offset 8
    call memtally_decide_\name
    add $8, %rsp
    .cfi_adjust_cfa_offset -8
    pop %rsi
    .cfi_adjust_cfa_offset -8
    pop %rdi
    .cfi_adjust_cfa_offset -8
    test %rax, %rax
    jz 1f
    jmp *%rax
1:  mov %rdx, %rax
    ret
    .cfi_endproc
    .size \name, . - \name
.endm

#elif defined(__aarch64__)

.macro TAIL_JUMP name
    .globl \name
    .type \name, %function
\name:
    .cfi_startproc
    stp x29, x30, [sp, #-32]!
    .cfi_adjust_cfa_offset 32
    .cfi_rel_offset x30, 8
    mov x29, sp
    stp x0, x1, [sp, #16]
    bl memtally_decide_\name
    mov x16, x0
    mov x17, x1
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_adjust_cfa_offset -32
    cbz x16, 1f
    br x16
1:  mov x0, x17
    ret
    .cfi_endproc
    .size \name, . - \name
.endm

#else
#error "tailjump.S knows x86-64 and aarch64"
#endif

    .text
    .hidden memtally_decide_dlopen
    .hidden memtally_decide_dlsym
    TAIL_JUMP dlopen
    TAIL_JUMP dlsym

    .section .note.GNU-stack, "", %progbits
