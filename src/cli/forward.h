/* SPDX-License-Identifier: MIT */
/* Passing signals on to the program that is run. */
#ifndef CLI_FORWARD_H
#define CLI_FORWARD_H

struct mt_job; /* <memtally/job.h> */
struct mt_run; /* <memtally/run.h> */

/* From here on, signals that would end memtally do not. Those that were ignored stay ignored, for
 * the program too. Call it before the program is started: the program gets the defaults. */
void cli_forward_begin(void);

/* Signals are passed on to `run`, or to `job`, one that came before too. NULL: to none. */
void cli_forward_to(struct mt_run *run);
void cli_forward_to_job(struct mt_job *job);

#endif
