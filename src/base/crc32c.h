/* SPDX-License-Identifier: MIT */
/* CRC-32C (Castagnoli, RFC 3720 appendix B.4). Preload-safe: no libc, no state. */
#ifndef MT_BASE_CRC32C_H
#define MT_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of `length` bytes that continue what `crc` covers; start with 0. Uses the
 * processor's own instruction where there is one. */
uint32_t mt_crc32c(uint32_t crc, const void *bytes, size_t length);

/* The same in plain C, for tests. */
uint32_t mt_crc32c_portable(uint32_t crc, const void *bytes, size_t length);

#endif
