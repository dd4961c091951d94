/* SPDX-License-Identifier: MIT */
/* The resident size of this process and its high-water mark, as the kernel states them. */
#ifndef MT_MEASURE_RESIDENT_H
#define MT_MEASURE_RESIDENT_H

#include <stdint.h>

#include "measure/os.h"

struct mt_error; /* <memtally/error.h> */

/* One reading of /proc/self/status, both figures by the same count.
 * Invariant: mark_bytes >= now_bytes. */
struct mt_resident {
    uint64_t now_bytes;
    uint64_t mark_bytes;
};

/* Reads both. Errors of all three: MT_EPERM, MT_EUNSUPPORTED (the kernel does not tell), MT_EIO. */
int mt_resident_read(const struct mt_measure_os *os, struct mt_resident *resident,
                     struct mt_error *error);

/* Sets the mark down to the present resident size. */
int mt_resident_reset_mark(const struct mt_measure_os *os, struct mt_error *error);

/* The present resident size alone, from the cheaper /proc/self/statm. */
int mt_resident_sample(const struct mt_measure_os *os, uint64_t *bytes, struct mt_error *error);

#endif
