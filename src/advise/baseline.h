/* SPDX-License-Identifier: MIT */
/* Peaks of device memory that are kept by test or command line, in a text file that is read well in
 * a review. pytest's plug-in (python/memtally/baselines.py) keeps the same file. A line is one of
 *
 *   # a comment
 *   tests/test_train.py::test_step                        a name
 *       gpu:0   total      1235222528  1.15 GiB           a peak of the name before it
 *
 * A peak begins with blanks: place, category, bytes; what follows is for people. "total" is all of
 * a place. Names stand in the order of their bytes. */
#ifndef ADVISE_BASELINE_H
#define ADVISE_BASELINE_H

#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

struct mt_error; /* <memtally/error.h> */
struct mt_tally; /* both of <memtally/tally.h> */
struct mt_tally_place;

/* The peaks of one name in a file. Borrows the file's text. */
struct mt_baseline {
    const char *text;
    const char *end;
    const char *peaks; /* the first line below the name; NULL: the file does not have the name */
    const char *peaks_end;
    const char *before; /* where the name would be added */
    size_t n_peaks;
};

/* Checks the whole text and looks for the name. Returns 0, or MT_EFORMAT with the byte and the line
 * in the sentence. */
int mt_baseline_find(const char *text, size_t length, const char *name,
                     struct mt_baseline *baseline, struct mt_error *error);

/* The most that a device may take: `tolerance_ratio` more than its total there. A place that the
 * baseline does not have may take nothing. */
uint64_t mt_baseline_most_bytes(const struct mt_baseline *baseline, const char *place,
                                double tolerance_ratio);

/* Writes what a place takes more than its baseline, and which categories grew, one sentence. */
void mt_baseline_tell(const struct mt_baseline *baseline, const struct mt_tally_place *place,
                      struct mt_strbuf *out);

/* Writes the file's text with the devices' peaks of a tally under a name that it does not have. */
void mt_baseline_add(const struct mt_baseline *baseline, const char *name,
                     const struct mt_tally *tally, struct mt_strbuf *out);

/* Whether a place is a device of which the tally knows what it held. */
int mt_baseline_has(const struct mt_tally_place *place);

#endif
