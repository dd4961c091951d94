/* SPDX-License-Identifier: MIT */
/* What the files of the drive share. */
#ifndef CLI_REHEARSE_DRIVE_PARTS_H
#define CLI_REHEARSE_DRIVE_PARTS_H

#include "cli/rehearse/drive.h"
#include "cli/rehearse/requests.h"

struct rehearse_drive {
    struct mt_rehearsal *rehearsal;
    const struct rehearse_drive_settings *settings;
    struct rehearse_drive_report *report;
    struct mt_error *error;
    int code; /* of the first failure of waiting */
    struct rehearse_endpoint endpoint;
    struct rehearse_server_facts facts;
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
int rehearse_drive_look(struct rehearse_drive *drive, uint64_t timeout_ns);

/* How long a server that has been starting for so long is not asked again. */
uint64_t rehearse_ask_pause_ns(uint64_t waited_ns);

/* Sends the requests to the server that is ready. */
void rehearse_drive_requests(struct rehearse_drive *drive);

#endif
