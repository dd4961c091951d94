/* SPDX-License-Identifier: MIT */
/* Included before all else where the recorder is built for images with an older glibc: functions
 * that moved from other libraries into libc in glibc 2.34 are bound by the names that they had
 * before, which newer ones still answer to. */
#ifndef RECORDER_PORTABLE_H
#define RECORDER_PORTABLE_H

#if defined __ASSEMBLER__
#elif defined __x86_64__
#define OLD_GLIBC "GLIBC_2.2.5"
#elif defined __aarch64__
#define OLD_GLIBC "GLIBC_2.17"
#endif

#ifndef __ASSEMBLER__
#define BIND(name) __asm__(".symver " name "," name "@" OLD_GLIBC)
BIND("dladdr");
BIND("dlclose");
BIND("dlerror");
BIND("dlvsym");
BIND("pthread_key_create");
BIND("pthread_setspecific");
#undef BIND
#endif

#endif
