/* SPDX-License-Identifier: MIT */
/* What can be measured on this machine, and what to do about what cannot. */
#ifndef MEMTALLY_DOCTOR_H
#define MEMTALLY_DOCTOR_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */

enum mt_check_state {
    MT_CHECK_OK,      /* all of it works */
    MT_CHECK_LIMITED, /* less precise, slower, or only in part */
    MT_CHECK_MISSING  /* not there */
};

/* One thing that was looked at. Without an essential one, memtally cannot do its main job. `advice`
 * is what to do, "" where nothing is to be done. Texts are one line, in English. */
struct mt_check {
    const char *name; /* a stable word: "pictures" */
    int essential;
    enum mt_check_state state;
    char finding[256];
    char advice[256];
};

/* What the caller knows and the library does not ask the environment for. */
struct mt_doctor_options {
    const char *search_path; /* folders with ':' between them, as in PATH; NULL: no engines */
    const char *directory;   /* where recordings will be written; NULL: the current one */
};

/* Looks at the machine; takes some milliseconds and changes nothing. *checks is owned by the
 * caller; mt_checks_destroy() frees it. What is missing is a finding and no error. Any thread.
 * Errors: MT_ENOMEM. */
int mt_doctor_run(const struct mt_doctor_options *options, struct mt_check **checks,
                  size_t *n_checks, struct mt_error *error);

/* Frees what mt_doctor_run() found. Takes NULL. */
void mt_checks_destroy(struct mt_check *checks);

/* The name of a state ("limited"). Borrowed, static. Any thread. */
const char *mt_check_state_name(enum mt_check_state state);

#ifdef __cplusplus
}
#endif
#endif
