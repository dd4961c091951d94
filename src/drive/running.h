/* SPDX-License-Identifier: MIT */
/* What a server that already runs says of itself: which engine it is, by its command line and the
 * engines' tables, and what its endpoint answers. Nothing but known engines is asked, and only what
 * changes nothing. */
#ifndef DRIVE_RUNNING_H
#define DRIVE_RUNNING_H

#include <stdint.h>
#include <sys/types.h>

#define MT_RUNNING_MODEL_BYTES 512

/* Texts are "" and numbers 0 where nothing says. */
struct mt_drive_running {
    char engine[32];  /* as its table is called */
    char version[64]; /* the server's own word */
    char model[MT_RUNNING_MODEL_BYTES];
    uint64_t context_tokens; /* of a request */
    uint64_t sequences;      /* at a time */
    int port;                /* that answered */
    char problem[192];       /* a sentence on why nobody answered, or "" */
};

/* Looks at `root` and its descendants, parents first, and asks the first known engine's endpoint
 * for at most `timeout_ms` in all. `proc` is "/proc". mt_http_start() was called before. */
void mt_drive_running_look(const char *proc, pid_t root, uint64_t timeout_ms,
                           struct mt_drive_running *running);

/* The table's name of the first known engine at `root` and its descendants, or "". */
void mt_drive_running_find(const char *proc, pid_t root, char engine[32]);

/* Whether the process has our network, so that its ports are those of this machine. */
int mt_drive_running_is_near(const char *proc, pid_t pid);

/* The engine whose program a command line starts: `arguments` are n bytes, each argument ended by a
 * NUL. Writes the table's name, or "". For tests. */
void mt_drive_running_engine(const char *arguments, size_t n, char engine[32]);

#endif
