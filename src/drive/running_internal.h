/* SPDX-License-Identifier: MIT */
/* What the parts of running.c share. */
#ifndef DRIVE_RUNNING_INTERNAL_H
#define DRIVE_RUNNING_INTERNAL_H

#include <memtally/error.h>

#include "drive/running.h"
#include "engine/engine.h"

/* Asking one server; `engine` is its table. */
struct mt_drive_asking {
    const struct mt_engine *engine;
    int port;
    uint64_t until_ns;
    int refused;    /* the status of an answer that was none */
    int is_foreign; /* an answer was not of the engine's form, or larger than any is */
    struct mt_error error;
};

/* Asks at every path that the engine's table has, and takes what is answered. Returns whether it
 * was the engine that answered (running_answers.c). */
int mt_drive_running_ask(struct mt_drive_asking *asking, struct mt_drive_running *running);

/* A question that is asked in the network of the server's process. */
struct mt_drive_elsewhere {
    struct mt_drive_running *running; /* what `ask` fills in */
    void (*ask)(void *context);       /* in another process */
    void *context;
    uint64_t timeout_ms; /* that it takes at most */
};

/* Returns 1 where it was asked, 0 where this user may not enter that network, -1 where that took
 * longer (running_network.c). */
int mt_drive_running_ask_elsewhere(const char *proc, const struct mt_drive_elsewhere *elsewhere);

/* Takes what the flags of a server's process say, and the listed names of its environment
 * (running_command.c). */
void mt_drive_running_command(const char *proc, pid_t pid, struct mt_drive_running *running);

/* Takes what the server's log tells and nothing else did, where its output is a file
 * (running_log.c). */
void mt_drive_running_read_log(const char *proc, struct mt_drive_running *running);

/* Copies what comes from outside and may have any bytes in it; leaves `text` where nothing is said.
 */
void mt_drive_running_take_text(char *text, size_t size, const char *said);

#endif
