/* SPDX-License-Identifier: MIT */
/* What rehearsals of one model have in common: the engine, a folder of their own, the file. */
#ifndef DRIVE_STAGE_H
#define DRIVE_STAGE_H

#include <limits.h>
#include <memtally/model_file.h>
#include <memtally/settings.h>
#include <signal.h>

#define MT_DRIVE_DEVICES_MAX 15 /* ggml's scheduler takes 16 backends, the CPU among them */

struct mt_drive_stage {
    enum mt_program program;
    char program_path[PATH_MAX];
    char script_path[PATH_MAX];  /* of ours, that drives node-llama-cpp; else "" */
    char modules_path[PATH_MAX]; /* the folder that holds its node_modules */
    char version[64];            /* of the engine, as its program says it, or "" */
    char build[64];              /* the same as rules take it: "11434", "0.6.0-dev", or "" */
    char rules_build[64];        /* that devices behave by, "": that is left to its ggml */
    char engine_name[96]; /* "llama.cpp@11434", or "llama.cpp" where rules know no such version */
    char directory[PATH_MAX];
    char pretend_path[PATH_MAX];
    char model_path[PATH_MAX];
    int drops_vocabulary;            /* the engine reads a file without one */
    const struct mt_model *model;    /* borrowed */
    const char *file_type;           /* that weights were converted to; NULL: they were not */
    const char *generation;          /* of the devices; NULL: the cards'. Borrowed */
    const char *const *device_names; /* of each device, or NULL in it; NULL: none. Borrowed */
    uint64_t reserved_bytes;         /* of each device; 0: what the context takes as a rule */
    uint64_t timeout_ns;             /* of each rehearsal; 0: ten minutes */
    const volatile sig_atomic_t *interrupted; /* nonzero: give up; NULL: never */
    char *const *environment;                 /* of the programs. Borrowed */
};

/* What the stage is to hold. All borrowed. */
struct mt_drive_stage_options {
    enum mt_program program;
    int may_be_node;         /* in place of the program, where that is not at hand */
    const char *engine_name; /* as it was asked for: "llama.cpp", "llama.cpp@11434" */
    const char *engine_path; /* NULL: it is looked for. Where the engine there does not say its
                                version, it is taken to be the one that was asked for */
    const struct mt_model *model;
    const char *model_name; /* as it was asked for */
    /* Writes the model's header to a file; NULL: mt_model_write_sparse(). */
    int (*write_sparse)(const struct mt_model *model, const char *path,
                        const struct mt_sparse_options *options, struct mt_error *error);
    const char *generation;
    const char *const *device_names;
    uint64_t reserved_bytes;
    const char *file_type; /* of a model that is no GGUF file; NULL: its own */
    int drop_vocabulary;   /* the engine starts faster, and understands no text */
    uint64_t timeout_ns;   /* of each rehearsal; 0: ten minutes */
    const volatile sig_atomic_t *interrupted;
    char *const *environment; /* that says where programs are, and that they get; ends with NULL */
};

/* Finds the engine, makes a folder, and a file of the model that the engine can read: the model
 * itself where that is a local GGUF file, else a header with a hole. On success the caller owns
 * *stage; mt_drive_stage_finish() removes what was made.
 * Errors: MT_EUNSUPPORTED (no such engine here; a model that cannot be made into a GGUF file),
 * MT_EVERSION (the engine is of another version than was asked for), MT_EARG, MT_ENOTFOUND, MT_EIO,
 * MT_ENOMEM. */
int mt_drive_stage_init(struct mt_drive_stage *stage, const struct mt_drive_stage_options *options,
                        struct mt_error *error);
void mt_drive_stage_finish(struct mt_drive_stage *stage);

/* Whether an engine that says its version only once it runs, which is `found`, is of the one that
 * was asked for. Errors: MT_EVERSION. */
int mt_drive_check_version(const struct mt_drive_stage *stage, const char *found,
                           struct mt_error *error);

/* What the engine reads instead of a model that was converted: the bytes of its weights, which are
 * of stage->file_type. Returns 1, or 0 where nothing was converted or it cannot be told. */
int mt_drive_stage_converted(const struct mt_drive_stage *stage, uint64_t *weight_bytes);

/* Finds a program of llama.cpp, or the one that runs node-llama-cpp: at `given` (a folder, or a
 * program), else in the cache of engines and in PATH. Errors: those of mt_profile_find_engine(). */
int mt_drive_find_program(enum mt_program program, const char *given, char *const *environment,
                          char path[PATH_MAX], struct mt_error *error);

/* Asks a program of llama.cpp, a path or a name in PATH, for the number of its build; "" where it
 * does not say. */
void mt_drive_ask_build(const char *program, char *const *environment, char build[64]);

/* Errors: MT_EARG (more devices than the engine takes). */
int mt_drive_check_devices(size_t n_devices, struct mt_error *error);

/* Names a folder for one of several rehearsals at a time, which is not made. Errors: MT_ELIMIT. */
int mt_drive_stage_folder(const struct mt_drive_stage *stage, size_t number, char path[PATH_MAX],
                          struct mt_error *error);

/* Removes such a folder with its files. */
void mt_drive_folder_remove(const char *path);

#endif
