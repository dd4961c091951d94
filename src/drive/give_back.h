/* SPDX-License-Identifier: MIT */
/* Asks a server that runs to empty what it keeps for requests to come. Only engines whose table has
 * the endpoints are asked; whom a slot serves keeps it. */
#ifndef DRIVE_GIVE_BACK_H
#define DRIVE_GIVE_BACK_H

#include <stdint.h>
#include <sys/types.h>

struct mt_drive_given {
    char engine[32];   /* as its table is called, or "" */
    unsigned n_slots;  /* that were emptied */
    unsigned n_busy;   /* that serve a request */
    uint64_t n_tokens; /* in the emptied ones, as the server says */
    char problem[256]; /* a sentence on why less was done than could be, or "" */
};

/* Looks for the first known engine at `root` and its descendants, and takes `timeout_ms` at most.
 * `proc` is "/proc". mt_http_start() was called before. Any thread. */
void mt_drive_give_back(const char *proc, pid_t root, uint64_t timeout_ms,
                        struct mt_drive_given *given);

#endif
