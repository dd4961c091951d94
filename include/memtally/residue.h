/* SPDX-License-Identifier: MIT */
/* Residues: what an engine's process holds beside what the rules say. A measurement teaches them,
 * and estimates on the same machine take them. Any function may be called from any thread. */
#ifndef MEMTALLY_RESIDUE_H
#define MEMTALLY_RESIDUE_H

#include <memtally/category.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error;            /* <memtally/error.h> */
struct mt_predict_settings; /* <memtally/settings.h> */
struct mt_tally;            /* <memtally/tally.h> */

/* What was learnt on this machine: bytes that the engine's process held beside what the rules say.
 */
struct mt_residue {
    const char *place_kind; /* "host" or "device" */
    enum mt_category category;
    int64_t low_bytes;
    int64_t mean_bytes;
    int64_t high_bytes;
    uint64_t n; /* runs that it was learnt from */
};

#define MT_RESIDUES_MAX 64

/* What a measurement held beside what the rules say, in the categories that rules cannot know:
 * context, runtime, cached, workspace. One for each of them and each kind of place, with n 1 and
 * low = mean = high; of several devices the mean of them. It is the resident bytes less what the
 * estimate derives there by a rule: what it assumed or had learnt is not taken off, since the
 * residue takes its place. Weights, cache and activations never get into it. Returns how many were
 * written to `residues`, which has room for MT_RESIDUES_MAX. */
size_t mt_residues_of(const struct mt_tally *measurement, const struct mt_tally *estimate,
                      struct mt_residue *residues);

/* Adds one run to what was learnt: n, low, mean and high. */
void mt_residue_add(struct mt_residue *residue, int64_t bytes);

/* What a process of the engine is expected to hold at `place`, a "device" ("gpu:1", of the
 * settings' devices; "device" is the first) or the "host", beside what the engine accounts for:
 * what was learnt, where the settings have it, else by the card and the engine's table, with `n` 0.
 * Errors: MT_ENOTFOUND, MT_EARG (no such engine or version). */
int mt_residue_expected(const struct mt_predict_settings *settings, const char *place,
                        struct mt_residue *residue, struct mt_error *error);

#ifdef __cplusplus
}
#endif
#endif
