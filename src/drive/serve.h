/* SPDX-License-Identifier: MIT */
/* Watching a rehearsed program to its end, and asking it where it is a server.
 *
 * A program that listens on a port of this machine and answers llama.cpp's HTTP interface is driven
 * with a few requests that make it take what it takes late: long prompts, all sequences at a time,
 * past prompts that are kept, saved sequences, an image. Others run until they end. Each step is a
 * mark of the rehearsal, so that its events tell what was taken when. */
#ifndef DRIVE_SERVE_H
#define DRIVE_SERVE_H

#include <memtally/rehearsal.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include "echo.h"
#include "listener.h"

struct mt_error; /* <memtally/error.h> */

#define MT_DRIVE_DEFAULT_REQUESTS 32
#define MT_DRIVE_DEFAULT_START_NS ((uint64_t)60 * 1000 * 1000 * 1000)
#define MT_DRIVE_DEFAULT_DRIVE_NS ((uint64_t)10 * 1000 * 1000 * 1000)

struct mt_drive_settings {
    char *const *argv;        /* of the program, for flags that say how it is to be asked */
    char *const *environment; /* its variables, ending with NULL; or NULL */
    uint64_t n_requests;      /* at most; 0: only until it is ready */
    uint64_t start_ns;        /* to be ready, or to show any sign of work, within; 0: the default */
    uint64_t limit_ns;        /* to be ready or at its end within; 0: none */
    uint64_t drive_ns;        /* for all requests; 0: the default */
    const struct mt_drive_listener *listener; /* or NULL */
    struct mt_drive_echo *echo;               /* shows what the program writes, or NULL */
    const char *label;                        /* of the progress line; NULL: "rehearsing" */
    const volatile sig_atomic_t *interrupted; /* looked at, or NULL */
};

enum mt_drive_end {
    MT_DRIVE_ENDED,      /* by itself, driven or not; the status says how */
    MT_DRIVE_SERVED,     /* a server that was ready and still runs after the requests */
    MT_DRIVE_STUCK,      /* neither was it ready nor did it end */
    MT_DRIVE_INTERRUPTED /* by the caller's flag */
};

struct mt_drive_report {
    enum mt_drive_end end;
    struct mt_rehearsal_status status; /* as it was last seen */
    int works_on;                      /* where it was stuck: it computed all the same */
    int is_server;
    int is_ready;
    size_t n_events_ready;  /* events before the server was ready */
    uint64_t n_slots;       /* sequences at a time; 0: not said */
    uint64_t slot_tokens;   /* context of each; 0: not said */
    uint64_t prompt_tokens; /* of the longest prompt that was sent */
    size_t n_requests;      /* that were sent */
    size_t n_refused;       /* of these, such that the server answered with an error */
    char complaint[200];    /* the first such error, or "" */
    int is_cut_short;       /* time or requests ran out before all kinds were sent */
};

/* The program's command line as it is rehearsed: a server listens on a free port of this machine
 * alone, without a key or encryption, and saves sequences in `directory`. The same words where it
 * is no server that is known. NULL without memory; mt_drive_argv_free() frees them. */
char **mt_drive_argv(char *const *argv, const char *directory);
void mt_drive_argv_free(char **argv);

/* Waits for the started program to end; drives it where it is a server. Does not stop it. Never
 * longer than start_ns without a sign of work, and drive_ns. Errors: what waiting fails with. */
int mt_drive_to_end(struct mt_rehearsal *rehearsal, const struct mt_drive_settings *settings,
                    struct mt_drive_report *report, struct mt_error *error);

#endif
