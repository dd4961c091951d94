/* SPDX-License-Identifier: MIT */
/* Sizes as people write them. */
#ifndef MEMTALLY_UNITS_H
#define MEMTALLY_UNITS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A size that is not known; 0 is a size. */
#define MT_UNKNOWN UINT64_MAX

/* Long enough for any text that mt_format_size() writes, with its terminator. */
#define MT_SIZE_TEXT 16

/* Writes a size with two decimals and its unit, as "13.21 GiB", "512 B" or "unknown" (for
 * MT_UNKNOWN), into text. Returns text. Any thread. */
const char *mt_format_size(uint64_t bytes, char text[MT_SIZE_TEXT]);

/* Reads a size such as "16GiB", "16 GB", "512M", "1.5k" or "4096". The suffixes K M G T and
 * Ki Mi Gi Ti with or without B: "KiB", "K" and "Ki" are 1024, "KB" is 1000; upper and lower
 * case are the same. *bytes is set on success. Returns 0, MT_EARG for anything else,
 * MT_ELIMIT for a size past 2^64 - 2. Any thread. */
int mt_parse_size(const char *text, uint64_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
