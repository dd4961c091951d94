/* SPDX-License-Identifier: MIT */
/* Kinds of processors, as far as engines keep weights in other layouts on them. */
#ifndef MEMTALLY_PROCESSOR_H
#define MEMTALLY_PROCESSOR_H

#ifdef __cplusplus
extern "C" {
#endif

/* Each kind of x86-64 has what stands below it too, and so has each of aarch64. X(NAME, "name"). */
#define MT_PROCESSOR_LIST(X)                                                                       \
    X(UNKNOWN, "unknown")                                                                          \
    X(AMX, "amx")       /* x86-64 with AMX for 8-bit integers and AVX-512 VNNI, both granted */    \
    X(AVX512, "avx512") /* x86-64 with AVX-512 */                                                  \
    X(AVX2, "avx2")     /* x86-64 with AVX2 */                                                     \
    X(X86_64, "x86-64") /* x86-64 without these */                                                 \
    X(KLEIDIAI, "kleidiai") /* aarch64 with an engine that was built with KleidiAI */              \
    X(DOTPROD, "dotprod")   /* aarch64 with dot products of 8-bit integers */                      \
    X(AARCH64, "aarch64")   /* aarch64 without them */

enum mt_processor {
#define MT_PROCESSOR_ENUM(NAME, name) MT_PROCESSOR_##NAME,
    MT_PROCESSOR_LIST(MT_PROCESSOR_ENUM)
#undef MT_PROCESSOR_ENUM
        MT_PROCESSOR_COUNT
};

/* The name of a kind ("amx"). Borrowed, static. Any thread. */
const char *mt_processor_name(enum mt_processor processor);

/* What kind this machine's processor is, and that the kernel lets programs use. Whether an engine
 * was built for it is not asked. Takes about 50 microseconds. Any thread. MT_PROCESSOR_UNKNOWN
 * where the machine does not say, or is neither x86-64 nor aarch64. */
enum mt_processor mt_processor_here(void);

#ifdef __cplusplus
}
#endif
#endif
