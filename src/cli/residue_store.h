/* SPDX-License-Identifier: MIT */
/* What was learnt on this machine, kept in $XDG_STATE_HOME/memtally/residues.json (else
 * ~/.local/state).
 *
 * Entries are keyed by engine, version, device ("cpu", or a GPU's name) and family of the model
 * (its architecture). The file is replaced as a whole, by one writer at a time; readers need no
 * lock. A file that cannot be read is never overwritten: a writer puts it aside under another name.
 */
#ifndef CLI_RESIDUE_STORE_H
#define CLI_RESIDUE_STORE_H

#include <stddef.h>

#include <memtally/settings.h>

#include "base/strbuf.h"

struct mt_error;    /* <memtally/error.h> */
struct mt_estimate; /* <memtally/predict.h> */
struct mt_model;    /* <memtally/model_file.h> */

struct cli_residue_key {
    const char *engine;
    const char *version;
    const char *device;
    const char *family;
};

/* Appends the path of the file. Errors: MT_ENOTFOUND where neither XDG_STATE_HOME nor HOME is set.
 */
int cli_residues_path(struct mt_strbuf *path, struct mt_error *error);

/* What was learnt for this engine, version, device and family. On success the caller frees
 * *residues with free(); NULL and 0 where nothing was. Errors: MT_EFORMAT (with file and byte
 * position), MT_EPERM, MT_EIO, MT_ENOMEM. Without a home nothing was learnt. */
int cli_residues_load(const char *engine, const char *version, const char *device,
                      const char *family, struct mt_residue **residues, size_t *n,
                      struct mt_error *error);

/* Adds what one run taught. `run` names the run; one that is known already is not added again, and
 * *is_new tells. On success *after is what is known now, freed by the caller with free(); those of
 * the key. Errors: as cli_residues_load(); a damaged file has then been put aside, the text says
 * where. */
int cli_residues_learn(const struct cli_residue_key *key, const struct mt_residue *residues,
                       size_t n, const char *run, int *is_new, struct mt_residue **after,
                       size_t *n_after, struct mt_error *error);

/* Forgets what was learnt for `engine` ("llama.cpp", or "llama.cpp@b11434"), or all where it is
 * NULL. *forgotten is the number of entries. Errors: as cli_residues_learn(). */
int cli_residues_forget(const char *engine, size_t *forgotten, struct mt_error *error);

/* What was learnt for an estimate of these settings: for the engine and version that they come down
 * to, the devices that they name and the family of the model. Nothing where the settings bring
 * residues of their own. Errors and ownership as cli_residues_load(); settings that cannot be
 * estimated are no error here. */
int cli_residues_for(const struct mt_model *model, const struct mt_predict_settings *settings,
                     struct mt_residue **residues, size_t *n, struct mt_error *error);

/* mt_estimate_create() with what was learnt. */
int cli_estimate_calibrated(const struct mt_model *model,
                            const struct mt_predict_settings *settings,
                            struct mt_estimate **estimate, struct mt_error *error);

#endif
