/* SPDX-License-Identifier: MIT */
/* The code that 'estimate' and 'rehearse' share: it reads the options, makes the library's settings
 * of them, and keeps the answer for the document. Neither command calls the other. */
#ifndef CLI_MODEL_MODEL_H
#define CLI_MODEL_MODEL_H

#include <limits.h>
#include <memtally/gpu.h>
#include <memtally/model_file.h>
#include <memtally/settings.h>
#include <signal.h>

#include "cli/command.h"
#include "cli/document/document.h"

#define ESTIMATE_DEVICES_MAX   64
#define ESTIMATE_GPU_BYTES     32
#define ESTIMATE_OVERRIDES_MAX 64
#define ESTIMATE_NOTES_MAX     8
#define ESTIMATE_WORDS_BYTES   2048

/* What the user typed. Texts are NULL and numbers 0 where nothing was said. */
struct estimate_options {
    const char *engine;
    int program;
    uint64_t context;
    uint64_t batch;
    uint64_t ubatch;
    uint64_t sequences;
    const char *kv_type;
    const char *kv_type_k;
    const char *kv_type_v;
    int flash_attention;
    int kv_unified;
    int no_kv_unified;
    int swa_full;
    int no_mmap;
    int no_repack;
    int cpu;
    int no_fusion;
    int no_kv_offload;
    const char *gpu_layers;
    int split;
    const char *tensor_split;
    const char *cpu_moe;
    struct cli_texts overrides;
    const char *mla;
    uint64_t amb;
    uint64_t draft_tokens;
    uint64_t max_concurrency;
    uint64_t graph_batch;
    int graph_padding;
    double memory_share;
    uint64_t batched_tokens;
    uint64_t tensor_parallel;
    uint64_t pipeline_parallel;
    int eager;
    const char *weight_type;
    struct cli_texts devices;
    int device_kind;
    uint64_t host_bytes;
    int here;
    int remote;
    int max_context;
    int max_sequences;
    int max_batch;
    int smallest_device;
    int best_quant;
    int matrix;
    const char *changes;
    int no_rehearse;
    const char *engine_path;
    int explain;
    int format;
    const char *output;
};

/* Names that options choose from by index, ended by NULL. */
extern const char *const estimate_device_kinds[];
extern const char *const estimate_switches[]; /* enum mt_switch */
extern const char *const estimate_splits[];   /* enum mt_split */
extern const char *const estimate_programs[]; /* auto, then enum mt_program */

/* The program that was named; the server where none was. */
enum mt_program estimate_program(const struct estimate_options *options);

struct mt_advise_model_report;

/* A request to the library. It owns what `settings` refers to, but for texts of the options. Start
 * with {0}. */
struct estimate_request {
    struct mt_predict_settings settings;
    uint64_t device_bytes[ESTIMATE_DEVICES_MAX];
    char device_gpus[ESTIMATE_DEVICES_MAX][ESTIMATE_GPU_BYTES]; /* of the table; "": by size */
    uint64_t device_used_bytes[ESTIMATE_DEVICES_MAX];
    struct mt_device_known device_known[ESTIMATE_DEVICES_MAX];
    int is_here; /* the devices are this machine's */
    double tensor_split[ESTIMATE_DEVICES_MAX];
    struct mt_tensor_override overrides[ESTIMATE_OVERRIDES_MAX];
    char *override_texts[CLI_TEXTS_MAX]; /* owned */
    const char *notes[ESTIMATE_NOTES_MAX];
    size_t n_notes;
    const char *generation;          /* of devices that are rehearsed; NULL: the cards' */
    const char *const *device_names; /* of each of them, or NULL in it; NULL: none */
    uint64_t reserved_bytes;         /* of each of them; 0: what the context takes as a rule */
    uint64_t timeout_ns;             /* of each rehearsal; 0: ten minutes */
    int may_be_node; /* node-llama-cpp is rehearsed where no program of llama.cpp is at hand */
    const volatile sig_atomic_t *interrupted; /* looked at while an engine runs, or NULL */
    struct mt_advise_model_report *report;    /* what a rehearsal is to tell beside; or NULL */
};

/* Fills in a request. Errors: MT_EARG with a text fit for the user, MT_ENOMEM, and those of looking
 * at this machine. */
int estimate_request_init(struct estimate_request *request, const struct estimate_options *options,
                          struct mt_error *error);
void estimate_request_finish(struct estimate_request *request);

/* Complains as cli_fail() does. The options' own complaints begin with the command that they were
 * first made for: in its place stands `command`. */
int estimate_fail_as(const char *command, const struct mt_error *error);

/* Reads "24GiB,24GiB", "2x24GiB" or "2xH100-80GB" and appends the sizes, and to `names`, which may
 * be NULL, what GPUs are called in the table of GPUs, "" where only a size is said. Returns 0 or
 * MT_EARG. */
int estimate_parse_devices(const char *text, uint64_t *sizes, char (*names)[ESTIMATE_GPU_BYTES],
                           size_t *n, struct mt_error *error);

/* What drives the cards that are named, where the settings leave that open. Errors: MT_EARG where
 * they are driven by different things, or not by what was said. */
int estimate_take_kinds(struct estimate_request *request, struct mt_error *error);

/* Takes what 'doctor --calibrate' measured of the cards that are named. Errors: those of
 * cli_cards_load(). */
int estimate_take_measured(struct estimate_request *request, struct mt_error *error);

/* Names NVIDIA cards for devices that have a size alone: as `generation` says, or (NULL) what such
 * a size mostly is. Errors: MT_EARG (a named card is of another generation; where they `must` be
 * NVIDIA's also another kind, or no such generation). */
int estimate_choose_cards(struct estimate_request *request, const char *generation, int must,
                          struct mt_error *error);

/* Adds the capacities of this machine and what other processes hold of them: the host's, and those
 * of its devices where none were named. */
int estimate_look_here(struct estimate_request *request, struct mt_error *error);

/* What the cards of an answer are. */
struct estimate_cards {
    struct mt_rehearsal_gpu gpu[CLI_CARDS_MAX];
};

/* The smallest cards of the tables on which a model fits: of one, and of more where these may then
 * be smaller; of as many as the settings have devices where that is more than one. */
void estimate_name_cards(const struct mt_model *model, const struct mt_predict_settings *settings,
                         struct cli_document_answer *answer, struct estimate_cards *cards);

/* Opens what the user calls a model. The caller closes it. */
int estimate_open_model(const char *name, int remote, struct mt_model **model,
                        struct mt_error *error);

/* Writes a GGUF file with the header of a model that estimate_open_model() opened. */
int estimate_write_sparse(const struct mt_model *model, int remote, const char *path,
                          const struct mt_sparse_options *options, struct mt_error *error);

/* The same of a model that may be behind a URL. */
int estimate_write_remote(const struct mt_model *model, const char *path,
                          const struct mt_sparse_options *options, struct mt_error *error);

/* The goal that was asked for, or -1, and how the answer is called. Errors: MT_EARG where goals or
 * a goal and its own setting are given together. */
int estimate_goal(const struct estimate_options *options, int *goal, struct mt_error *error);

/* One model with its estimate and everything that a document of it refers to. Start with {0}. */
struct estimate_result {
    struct mt_model *model;
    struct mt_estimate *estimate;
    struct cli_document_model document_model;
    struct cli_document_answer answer;
    struct estimate_cards cards; /* that the answer names */
    int has_answer;
    int goal;                          /* enum mt_goal, of the answer */
    struct cli_document_engine engine; /* that was rehearsed; its path is NULL where none was */
    char engine_path[PATH_MAX];
    char note[PATH_MAX + ESTIMATE_WORDS_BYTES]; /* why none was, though one is there; or "" */
};

/* Opens the model and estimates, or answers the goal (-1: none). Where nothing fits, the answer's
 * value is 0 and the estimate is that of the smallest value, so that what is lacking can be seen.
 */
int estimate_make(struct estimate_result *result, const char *name, int remote,
                  const struct mt_predict_settings *settings, int goal, struct mt_error *error);
void estimate_result_finish(struct estimate_result *result);

/* How the stage is set for a result's model, which the user calls `name`. Borrows from all. */
struct mt_drive_stage_options;
struct mt_drive_stage_options estimate_stage(const struct estimate_result *result, const char *name,
                                             const struct estimate_request *request,
                                             const struct estimate_options *options);

/* Says in a document what the engine read instead of a model that was converted. */
struct mt_advise_staged;
void estimate_take_converted(const struct mt_advise_staged *staged,
                             struct cli_document_model *model);

/* Replaces the estimate of a result by what the engine itself says, rehearsed with the request's
 * settings, or with those that a search found. On failure the result is as it was. Errors: those of
 * mt_advise_staged_model(). */
int estimate_rehearse(struct estimate_result *result, const char *name,
                      const struct estimate_request *request,
                      const struct estimate_options *options, struct mt_error *error);

/* The exit code: whether what was asked is so. Where nothing was asked, nothing is denied. */
int estimate_exit_of(const struct estimate_result *result);

/* A document of a result. Borrows from all three. */
struct cli_document estimate_document(const struct estimate_result *result,
                                      const struct estimate_request *request,
                                      const struct estimate_options *options);

#endif
