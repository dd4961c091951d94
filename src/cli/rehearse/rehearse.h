/* SPDX-License-Identifier: MIT */
/* The parts of 'memtally rehearse': one program on pretended devices, and what came of it.
 *
 * A job may be run many times in one process, and several at a time in threads of their own; each
 * has a folder of its own. */
#ifndef CLI_REHEARSE_REHEARSE_H
#define CLI_REHEARSE_REHEARSE_H

#include <limits.h>
#include <memtally/predict.h>
#include <memtally/rehearse.h>
#include <signal.h>

#include "cli/document.h"
#include "cli/rehearse/drive.h"

#define REHEARSE_WORDS_BYTES 4096
#define REHEARSE_WHY_BYTES   480
#define REHEARSE_DEVICES_MAX 15 /* ggml's scheduler takes 16 backends, the CPU among them */

/* What is to be rehearsed. All borrowed. Start with {0}. */
struct rehearse_job {
    char *const *argv;        /* as the user would start it */
    char *const *environment; /* NULL: ours */
    const struct mt_rehearse_device *devices;
    size_t n_devices;
    uint64_t host_bytes;        /* 0: no limit */
    const char *device_kind;    /* NULL: cuda */
    const char *generation;     /* NULL: the newest */
    const char *engine_version; /* that rules are chosen by; NULL: the newest */
    const char *pretend_path;   /* NULL: it is looked for */
    const char *folder;         /* kept; NULL: a temporary one */
    uint64_t n_requests;        /* to a server, at most; 0: none */
    uint64_t timeout_ns;        /* without a sign of work; 0: the default */
    struct cli_progress *progress;
    const volatile sig_atomic_t *interrupted;
};

enum rehearse_state {
    REHEARSE_RAN,      /* it ended well, or served and was ended by us */
    REHEARSE_RAN_OUT,  /* it failed after an allocation was refused */
    REHEARSE_CRASHED,  /* it failed by itself */
    REHEARSE_HUNG,     /* it neither worked nor ended */
    REHEARSE_NO_DEVICE /* no process of it took the devices */
};

/* What came of it. The rehearsal is stopped; its events may be looked at until the result is
 * finished. */
struct rehearse_result {
    enum rehearse_state state;
    struct mt_rehearsal *rehearsal;
    struct rehearse_drive_report report;
    struct mt_rehearse_status status; /* at the end of it, before it was stopped */
    struct mt_tally *tally;           /* the peak of each place, as the engine says it */
    size_t n_refusals;
    const struct mt_rehearse_event *refusal; /* the last one, or NULL */
    char why[REHEARSE_WHY_BYTES];            /* one sentence, "" where it ran */
    char words[REHEARSE_WORDS_BYTES];        /* the last of the program's */
    char version[64];                        /* of the engine, or "" */
    char folder[PATH_MAX];
    int is_temporary;
};

/* Runs a job until it has ended, or was ready and answered. Returns 0 also where it ran out of
 * memory or failed: the result says so. On success the caller finishes *result. Errors: those of
 * mt_rehearse_start() and of finding the pretended devices, MT_ECANCELLED (interrupted). */
int rehearse_run(const struct rehearse_job *job, struct rehearse_result *result,
                 struct mt_error *error);
void rehearse_result_finish(struct rehearse_result *result);

/* Says in result->why why no process took the devices, and what would work (unseen.c). */
void rehearse_explain_unseen(const struct rehearse_job *job, struct rehearse_result *result);

/* One sentence on an allocation that was refused, or on how the program failed (verdict.c). */
void rehearse_explain_end(const struct rehearse_job *job, struct rehearse_result *result);

/* The tally with what the engine does not say, and the verdict of the whole. `model` may be NULL;
 * `settings` has the devices and the host. The caller frees *estimate. */
int rehearse_estimate(const struct rehearse_result *result, const struct mt_model *model,
                      const struct mt_predict_settings *settings, struct mt_estimate **estimate,
                      struct mt_error *error);

/* What the program took after it was ready, in order, into an array that the caller frees; 0 and
 * NULL where there is nothing (events.c). Texts are borrowed from the rehearsal. */
size_t rehearse_late(const struct rehearse_result *result, struct cli_document_late **late);

#endif
