/* SPDX-License-Identifier: MIT */
/* Bands as the user writes them. */
#ifndef CLI_COMPARE_BANDS_H
#define CLI_COMPARE_BANDS_H

#include <memtally/compare.h>

/* Reads "weights=2%,kv=15%,total=0.1" into the bands; those that are not named stay. Errors:
 * MT_EARG naming what is wrong. */
int compare_parse_bands(const char *text, double band_ratio[MT_COMPONENT_COUNT],
                        struct mt_error *error);

#endif
