/* SPDX-License-Identifier: MIT */
/* Pretended devices for a program that is recorded: --on of 'memtally run' and of
 * 'memtally profile'. */
#ifndef CLI_REHEARSE_RECORDED_H
#define CLI_REHEARSE_RECORDED_H

#include "cli/command.h"
#include "cli/model/model.h"

struct rehearse_recorded;

/* Makes devices as `named` says ("H100-80GB", "2x24GiB") for the command line `argv`, with as much
 * free on each as `free_bytes` says (NULL: all of it), the driver's context among it. It starts
 * from the environment `given`. On success *environment is that of the program, which lasts as long
 * as *recorded; the caller destroys it. Returns an exit status, having complained in the name of
 * `command` where that is none of success.
 */
int rehearse_open_recorded(const char *command, const struct cli_texts *named,
                           const uint64_t *free_bytes, char *const *argv, char *const *given,
                           struct rehearse_recorded **recorded, char *const **environment);

/* Gives back what processes held that have ended. Call it while the program runs. */
void rehearse_poll_recorded(struct rehearse_recorded *recorded);

/* How often a device refused memory so far, the most that was held of each, and what the processes
 * that live hold now; devices in the order in which they were named. */
struct rehearse_recorded_figures {
    size_t n_refusals;
    uint64_t peak_bytes[ESTIMATE_DEVICES_MAX];
    uint64_t held_bytes[ESTIMATE_DEVICES_MAX];
};
void rehearse_read_recorded(struct rehearse_recorded *recorded,
                            struct rehearse_recorded_figures *figures);

/* Complains, in the name of `command`, if the program could not use the devices because it brings
 * NVIDIA's own runtime. */
void rehearse_explain_recorded(const char *command, struct rehearse_recorded *recorded);

/* Ends what is left of the program. Takes NULL. */
void rehearse_close_recorded(struct rehearse_recorded *recorded);

#endif
