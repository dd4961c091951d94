/* SPDX-License-Identifier: MIT */
/* What the files of the drive share. */
#ifndef DRIVE_SERVE_PARTS_H
#define DRIVE_SERVE_PARTS_H

#include "engines.h"
#include "requests.h"
#include "serve.h"

struct mt_drive_state {
    struct mt_rehearsal *rehearsal;
    const struct mt_drive_settings *settings;
    struct mt_drive_report *report;
    struct mt_error *error;
    int code;           /* of the first failure of waiting */
    const char *engine; /* that the server is of; NULL: taken for the first one's */
    struct mt_drive_endpoint endpoint;
    struct mt_drive_server_facts facts;
    int own_port; /* that the server was given, 0: not known */
    int http_started;
    int listens;            /* as it was seen to do */
    size_t n_looked_at;     /* events, for that */
    uint64_t start_ns;      /* by the monotonic clock */
    uint64_t next_ask_ns;   /* before which no server is asked whether it is ready */
    uint64_t next_ports_ns; /* when to look for ports without */
    int saves_slots;
    int embeds;
    int ranks;
    uint64_t ubatch; /* tokens of an embedding at most */
    uint64_t start_limit_ns;
    uint64_t drive_limit_ns;
    uint64_t requests_until_ns; /* by the monotonic clock */
    double ns_per_token;        /* of a prompt, as it was seen */
};

/* Waits for `timeout_ns` at most; returns whether the program runs and nobody interrupts. */
int mt_drive_look(struct mt_drive_state *drive, uint64_t timeout_ns);

/* The path at which the server answers, by its name in the engine's table; "" where it has none. */
const char *mt_drive_path(const struct mt_drive_state *drive, const char *name,
                          char path[MT_DRIVE_ENGINE_TEXT]);

/* How long memtally waits before it asks a server again that has been starting for so long. */
uint64_t mt_drive_ask_pause_ns(uint64_t waited_ns);

/* Sends the requests to the server that is ready. */
void mt_drive_requests(struct mt_drive_state *drive);

#endif
