/* SPDX-License-Identifier: MIT */
/* An engine made ready for a model. mt_suggest() rehearses on it.
 *
 * A stage has the engine's program, a folder of its own and a file of the model that the engine can
 * read. Nothing runs yet but the engine's --version. A stage belongs to one thread. */
#ifndef MEMTALLY_DRIVE_H
#define MEMTALLY_DRIVE_H

#include <stdint.h>

#include <memtally/settings.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */
struct mt_model; /* <memtally/model_file.h> */

struct mt_stage;

/* Fill it from {0}. All is borrowed until mt_stage_close(). */
struct mt_stage_options {
    const char *engine;      /* "llama.cpp", "llama.cpp@11434"; NULL: llama.cpp of any version */
    const char *engine_path; /* a program of it, or the folder of its programs; NULL: looked for */
    enum mt_program program; /* that is started; 0: the server */
    const char *generation;  /* of the devices: "ampere", "gfx942"; NULL: as their size says */
    uint64_t timeout_ns;     /* of each run; 0: ten minutes */
    char *const
        *environment; /* mostly environ: says where programs are (PATH) and where folders
                         go (TMPDIR), and is the programs' own; ends with NULL. NULL: none */
};

/* Finds the engine and makes the model readable for it. On success the caller owns *stage;
 * mt_stage_close() frees it and removes its folder. The model must live as long.
 * Errors: MT_EUNSUPPORTED (no such engine on this machine; a model that it cannot read),
 * MT_EVERSION (the engine is of another version than was asked for), MT_EARG, MT_ENOTFOUND,
 * MT_EPERM, MT_EIO, MT_ENOMEM. */
int mt_stage_open(const struct mt_model *model, const struct mt_stage_options *options,
                  struct mt_stage **stage, struct mt_error *error);

/* The engine that was found, with its version where that is known: "llama.cpp@11434". Borrowed from
 * the stage. */
const char *mt_stage_engine(const struct mt_stage *stage);

/* The path of its program. Borrowed from the stage. */
const char *mt_stage_program(const struct mt_stage *stage);

/* Removes what the stage made and frees it. Takes NULL. */
void mt_stage_close(struct mt_stage *stage);

#ifdef __cplusplus
}
#endif
#endif
