/* SPDX-License-Identifier: MIT */
/* One run of a program on pretended devices, until it is ready or has ended. */
#ifndef DRIVE_ONCE_H
#define DRIVE_ONCE_H

#include <memtally/category.h>
#include <memtally/rehearsal.h>
#include <signal.h>

#include "engine_log.h"
#include "serve.h"

struct mt_predict_settings; /* <memtally/settings.h> */
struct mt_tally;            /* <memtally/tally.h> */

#define MT_DRIVE_TAIL_BYTES 1024

/* What is to be run. All borrowed. */
struct mt_drive_start {
    char *const *argv;
    char *const *environment; /* of the program; ends with NULL */
    const char *directory;    /* for the account and the log */
    const char *pretend_path; /* the object that pretends devices */
    const char *engine_version;
    const char *const *device_names;            /* of each device; NULL: none */
    const char *generation;                     /* of the devices; NULL: the cards' */
    const struct mt_predict_settings *settings; /* devices and the host */
    const uint64_t *reserved_bytes; /* of each device, taken before the program starts */
    uint64_t scale;       /* devices and host are as many times as large; 1 for as they are */
    int is_server;        /* it does not end by itself */
    uint64_t patience_ns; /* without any sign of it, before it is taken to hang */
    uint64_t limit_ns;    /* in all, whatever it says of itself; 0: none */
    uint64_t n_requests;  /* that a server is sent at most once it is ready */
    int keeps_events;     /* until the trial is finished */
    const struct mt_drive_listener *listener; /* or NULL */
    const volatile sig_atomic_t *interrupted; /* nonzero: give up; may be NULL */
};

/* How it went. Start with {0}; mt_drive_trial_finish() frees the tally. */
struct mt_drive_trial {
    struct mt_tally *tally; /* when it was ready, or of its end */
    struct mt_drive_log log;
    struct mt_rehearsal_status status;
    char version[64];  /* of the engine, as its libraries say it, or "" */
    char refusal[160]; /* why its ggml got no devices, or "" */
    int was_refused;
    char refused_place[32];
    enum mt_category refused_category;
    uint64_t refused_bytes;
    uint64_t refused_free_bytes;
    char refused_what[96];
    char last_words[MT_DRIVE_TAIL_BYTES];
    int hung;                       /* it showed no sign of itself, and was ended */
    int is_late;                    /* its time was over, and it was ended */
    int works_on;                   /* in either case: it computed all the same */
    struct mt_rehearsal *rehearsal; /* stopped, where its events were to be kept */
    struct mt_drive_report report;
};

/* Runs a program. Returns 0 also where it was refused memory or failed by itself: the outcome says
 * so. Errors: those of mt_rehearsal_start(), MT_ECHILD (interrupted). */
int mt_drive_trial_run(const struct mt_drive_start *run, struct mt_drive_trial *outcome,
                       struct mt_error *error);
void mt_drive_trial_finish(struct mt_drive_trial *outcome);

/* The engine's version as a document tells it: as its libraries say it, or the build that it was
 * taken for by its ggml's version. "" where neither is known. */
void mt_drive_name_version(const struct mt_rehearsal_status *status, char version[64]);

/* Whether the program came as far as it should: a server was ready, another ended well. */
int mt_drive_went_well(const struct mt_drive_start *run, const struct mt_drive_trial *outcome);

#endif
