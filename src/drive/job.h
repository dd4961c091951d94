/* SPDX-License-Identifier: MIT */
/* The parts of 'memtally rehearse': one program on pretended devices, and what came of it.
 *
 * A job may be run many times in one process, and several at a time in threads of their own; each
 * has a folder of its own. */
#ifndef DRIVE_JOB_H
#define DRIVE_JOB_H

#include <limits.h>
#include <memtally/rehearsal.h>
#include <memtally/rehearsal_events.h>
#include <signal.h>

#include "layer.h"
#include "outcome.h"
#include "rehearsed.h"
#include "serve.h"
#include "stage.h"

struct mt_estimate;         /* <memtally/predict.h> */
struct mt_predict_settings; /* <memtally/settings.h> */
struct mt_tally;            /* <memtally/tally.h> */

#define MT_DRIVE_WORDS_BYTES 4096
#define MT_DRIVE_SAID_BYTES  65536
#define MT_DRIVE_WHY_BYTES   960

/* What is to be rehearsed. All borrowed. Start with {0}. */
struct mt_drive_job {
    char *const *argv;        /* as the user would start it */
    char *const *environment; /* of the program; ends with NULL */
    const struct mt_rehearsal_device *devices;
    size_t n_devices;
    uint64_t host_bytes;                      /* 0: no limit */
    const char *device_kind;                  /* NULL: cuda */
    const char *generation;                   /* NULL: the cards' */
    const char *engine_version;               /* that rules are chosen by; NULL: as its ggml says */
    enum mt_drive_layer layer;                /* AUTO: by the program */
    const struct mt_drive_cuda_paths *cuda;   /* NULL: memtally looks for them */
    const char *pretend_path;                 /* NULL: memtally looks for it */
    const char *folder;                       /* kept; NULL: a temporary one */
    uint64_t n_requests;                      /* to a server, at most; 0: none */
    uint64_t timeout_ns;                      /* until it is ready or ends; 0: ten minutes */
    const struct mt_drive_listener *listener; /* or NULL */
    int hides_output;  /* the listener gets none of what the program writes */
    const char *label; /* of the progress line; NULL: as it is */
    const volatile sig_atomic_t *interrupted;
};

/* What came of it. The rehearsal is stopped; its events may be looked at until the result is
 * finished. */
struct mt_drive_result {
    int is_unseen; /* no process of it took the devices, or it failed by what cannot be rehearsed;
                      nothing below but `why` and `words` counts */
    int has_cuda;  /* look-alikes of CUDA's libraries were there for it */
    int is_cuda;   /* some process of it made a CUDA context, and none has ggml's devices */
    int has_bare_ggml; /* some process has ggml in it, and not the devices */
    int lacks_memory;  /* the engine ended because it foresaw that memory does not suffice */
    enum mt_drive_outcome outcome;
    struct mt_rehearsal *rehearsal;
    struct mt_drive_report report;
    struct mt_rehearsal_status status; /* at the end of it, before it was stopped */
    struct mt_tally *tally;            /* the peak of each place, as the engine says it */
    size_t n_refusals;
    const struct mt_rehearsal_event *refusal; /* the last one, or NULL */
    size_t refusal_index;
    struct mt_tally *held;            /* of a CUDA program, what was there then; or NULL */
    char phase[112];                  /* the engine's own phase then, or "" */
    enum mt_category phase_category;  /* that it is about */
    char why[MT_DRIVE_WHY_BYTES];     /* one sentence, "" where it ran */
    char spills[MT_DRIVE_WHY_BYTES];  /* what lies on the host and was meant for devices */
    char words[MT_DRIVE_WORDS_BYTES]; /* the last of the program's */
    char said[MT_DRIVE_SAID_BYTES];   /* the end of all that a CUDA program wrote, or "" */
    char version[64];                 /* of the engine, or "" */
    char folder[PATH_MAX];
    int is_temporary;
};

/* Runs a job until it has ended, or was ready and answered. Returns 0 also where it ran out of
 * memory or failed: the result says so. On success the caller finishes *result. Errors: those of
 * mt_rehearsal_start() and of finding the pretended devices, MT_ECANCELLED (interrupted). */
int mt_drive_run(const struct mt_drive_job *job, struct mt_drive_result *result,
                 struct mt_error *error);

/* The same, but an interrupted program also gets an answer, as far as it came. */
int mt_drive_run_to_answer(const struct mt_drive_job *job, struct mt_drive_result *result,
                           struct mt_error *error);

/* Makes the devices for a program that the caller starts in *environment, which is given back with
 * mt_rehearsal_free_environment(). Of the result only the rehearsal counts: call
 * mt_rehearsal_wait() while the program runs. On success the caller finishes *result. */
int mt_drive_open(const struct mt_drive_job *job, struct mt_drive_result *result,
                  char ***environment, struct mt_error *error);
void mt_drive_result_finish(struct mt_drive_result *result);

/* Fills in a result of a rehearsal that was run and stopped elsewhere, and is the result's from
 * here on. */
void mt_drive_result_take(struct mt_drive_result *result, struct mt_rehearsal *rehearsal,
                          const struct mt_drive_report *report,
                          const struct mt_rehearsal_status *status);

/* The library's options for a job; borrows from it. The folder is `folder`. */
void mt_drive_job_options(const struct mt_drive_job *job, const char *folder,
                          const char *pretend_path, struct mt_rehearsal_options *options);

/* Looks, before the program is ended, whether it runs a ggml that no devices came into
 * (program_file.c). */
void mt_drive_look_for_ggml(struct mt_drive_result *result);

/* Says in result->why why no process took the devices, and what would work (program_file.c). */
void mt_drive_explain_no_devices(const struct mt_drive_job *job, struct mt_drive_result *result);

/* One sentence in result->why on an allocation that was refused, or on how the program failed
 * (verdict.c). */
void mt_drive_explain_end(struct mt_drive_result *result);

/* Whether it had the memory that it wanted, or went on without. */
int mt_drive_ran(const struct mt_drive_result *result);

/* A program of CUDA that was ended while it worked, past its loading and without new memory, has an
 * answer: changes the outcome where that is so (verdict.c). */
void mt_drive_settle(struct mt_drive_result *result);

/* The tally with what the engine does not say, and the verdict of the whole. `model` may be NULL;
 * `settings` has the devices and the host. The caller frees *estimate. */
int mt_drive_estimate(const struct mt_drive_result *result, const struct mt_model *model,
                      const struct mt_predict_settings *settings, struct mt_estimate **estimate,
                      struct mt_error *error);

/* What the program took after it was ready, in order, into an array that the caller frees; 0 and
 * NULL where there is nothing (events.c). Texts are borrowed from the rehearsal. */
size_t mt_drive_late(const struct mt_drive_result *result, struct mt_rehearsed_late **late);

#endif
