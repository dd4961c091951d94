/* SPDX-License-Identifier: MIT */
/* A JSON file as a side of a comparison: what memtally writes, or another profiler's breakdown.
 *
 * Files are untrusted. Everything that is used is checked; what is wrong is named with the file,
 * the key and its byte position. */
#ifndef CLI_COMPARE_FILE_H
#define CLI_COMPARE_FILE_H

#include <jansson.h>
#include <memtally/compare.h>

/* The two meanings of a gigabyte, in the order of compare_unit_names. */
enum compare_unit { COMPARE_GB, COMPARE_GIB };

extern const char *const compare_unit_names[]; /* "GB", "GiB"; ends with NULL */

double compare_unit_bytes(enum compare_unit unit);

/* The largest size that is believed: an exbibyte. */
#define COMPARE_BYTES_MAX (UINT64_C(1) << 60)

/* `tally` is used where `is_tally` is set, else the figures are. `root` is the whole document;
 * texts are borrowed from it. */
struct compare_file {
    json_t *root;
    int is_tally;
    struct mt_tally tally;
    struct mt_components figures;
    struct mt_tally_place *places;
    struct mt_tally_row *rows;
    struct mt_tally_detail *details;
};

/* Reads a file. `unit` is what a foreign profiler's gigabytes are. On success the caller owns
 * *file. Errors: MT_ENOTFOUND, MT_EPERM, MT_EIO, MT_ELIMIT (too large), MT_EFORMAT, MT_ENOMEM. */
int compare_file_read(const char *path, enum compare_unit unit, struct compare_file **file,
                      struct mt_error *error);

/* Takes NULL. */
void compare_file_destroy(struct compare_file *file);

#endif
