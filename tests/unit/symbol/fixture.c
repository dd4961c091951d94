/* SPDX-License-Identifier: MIT */
/* A library with one function that others see, and one between two of them that they do not. */
#include <stdint.h>

__attribute__((visibility("default"))) int fixture_first(int n);
__attribute__((visibility("default"))) uintptr_t fixture_inside(void);

__attribute__((visibility("default"), noinline)) int fixture_first(int n)
{
    return n * 3 + 1;
}

static __attribute__((noinline)) int hidden_function(int n)
{
    __asm__ volatile("" : "+r"(n));
    return n * 5 + 2;
}

__attribute__((visibility("default"), noinline)) uintptr_t fixture_inside(void)
{
    return hidden_function(1) ? (uintptr_t)hidden_function : 0;
}
