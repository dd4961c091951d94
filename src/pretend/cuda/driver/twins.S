/* SPDX-License-Identifier: MIT */
/* The forms of functions whose default stream is the thread's own. Work is done when it is asked
 * for here, so both default streams are alike, and each form goes on to the plain one. */
#if defined(__x86_64__)
#define GO(of) jmp of@PLT
#elif defined(__aarch64__)
#define GO(of) b of
#else
#error "twins.S knows x86-64 and aarch64"
#endif
#define CALL(symbol, name, version)
#define MISSING(symbol, name, version)
#define ALSO(symbol, name, version)
#define TWIN(symbol, of, name, version) .globl symbol; .type symbol, %function; symbol: GO(of);

    .text
#include "driver.def"

    .section .note.GNU-stack, "", %progbits
