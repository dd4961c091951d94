/* SPDX-License-Identifier: MIT */
/* System calls without libc: they leave errno alone and reach the kernel past every hook. */
#ifndef MT_RECORDER_SYS_H
#define MT_RECORDER_SYS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#if defined(__x86_64__)

static inline long mt_sys(long number, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

#elif defined(__aarch64__)

static inline long mt_sys(long number, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc #0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}

#else
#error "the recorder knows the system calls of x86-64 and aarch64"
#endif

#define MT_SYS0(n)             mt_sys(n, 0, 0, 0, 0, 0, 0)
#define MT_SYS1(n, a)          mt_sys(n, (long)(a), 0, 0, 0, 0, 0)
#define MT_SYS2(n, a, b)       mt_sys(n, (long)(a), (long)(b), 0, 0, 0, 0)
#define MT_SYS3(n, a, b, c)    mt_sys(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define MT_SYS4(n, a, b, c, d) mt_sys(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define MT_SYS6(n, a, b, c, d, e, f)                                                               \
    mt_sys(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/* Private anonymous memory, NULL where there is none. */
void *mt_sys_map(size_t length);

#endif
