/* SPDX-License-Identifier: MIT */
/* Whether an engine left on the host what was meant for devices, and why. */
#ifndef ADVISE_SPILLS_H
#define ADVISE_SPILLS_H

#include <memtally/model_file.h>
#include <stddef.h>

struct mt_predict_settings; /* <memtally/settings.h> */
struct mt_tally;            /* <memtally/tally.h> */

#define MT_ADVISE_SPILLS_BYTES 400

/* A run of which it was left to the engine what goes to the devices. All borrowed. */
struct mt_advise_left_open {
    const struct mt_model *model;
    const struct mt_predict_settings *settings; /* as asked for, without a number of layers */
    const struct mt_tally *tally;               /* as the engine says it */
    uint64_t least_bytes;  /* of weights on the host in any case, beside what rules say */
    uint64_t margin_bytes; /* that the engine keeps free of each device; 0: none */
};

/* Writes into `text`, of `size` bytes, what weights and cache lie on the host that would lie on
 * devices with room for all, and why; "" where there are none. Errors: those of
 * mt_estimate_create(). */
int mt_advise_spills(const struct mt_advise_left_open *run, char *text, size_t size,
                     struct mt_error *error);

/* The same of a command line of llama.cpp's programs; "" too where it asks itself for what lies on
 * the host, or where its model or its flags are not known. */
void mt_advise_command_spills(char *const *argv, char *const *environment,
                              const struct mt_predict_settings *settings,
                              const struct mt_tally *tally, char *text, size_t size);

#endif
