/* SPDX-License-Identifier: MIT */
/* A rehearsal, shared by the files of this room that drive it and read its account. */
#ifndef MT_REHEARSE_REHEARSAL_H
#define MT_REHEARSE_REHEARSAL_H

#include <memtally/rehearse.h>
#include <sys/types.h>

#include "base/arena.h"
#include "rehearse/account.h"

#define MT_READER_CHUNK  1024u
#define MT_READER_CHUNKS (2 * MT_ACCOUNT_EVENTS_MAX / MT_READER_CHUNK + 1)
#define MT_PROCESSES_MAX 256u /* of one rehearsal whose ends are noticed */

/* An event as it was read. An allocation is there from its own index up to `freed_at`. */
struct mt_noted {
    struct mt_rehearse_event event;
    size_t freed_at; /* SIZE_MAX while it is there */
};

/* A buffer that is there; `event` is 0 where the slot is empty, else its event's index + 1. */
struct mt_live {
    uint64_t pid;
    uint64_t object;
    size_t event;
};

/* The account as a list of events, read as it grows. Start with {0} and `account`. Events never
 * move, so that they can be lent out. */
struct mt_reader {
    struct mt_account *account;
    struct mt_arena texts;
    struct mt_noted *chunks[MT_READER_CHUNKS];
    size_t n_events;
    uint64_t next; /* event of the account that is read next */
    uint64_t last_ns;
    uint64_t hole_since_ns; /* when an unwritten event was first waited for; 0: none is */
    uint64_t n_skipped;     /* events that make no sense */
    struct mt_live *live;
    size_t live_capacity; /* a power of two, or 0 */
    size_t n_live;
    int out_of_memory;
};

struct mt_rehearsal {
    struct mt_account *account;
    struct mt_reader reader;
    char *directory; /* absolute */
    char *account_path;
    int output_fd[2]; /* our own look at the files of its output and errors, or -1 */
    pid_t pid;
    int pidfd;    /* -1 where the kernel has none */
    int alive_fd; /* of the pipe that says so to the program, or -1 */
    int ended;
    int is_swept; /* what it left behind was looked for */
    int status;   /* as waitpid() gave it, -1 where somebody else took it */
    uint64_t ended_ns;
    uint64_t next_look_ns; /* at processes and files */
    uint32_t processes[MT_PROCESSES_MAX];
    size_t n_processes; /* beside the program's own */
    size_t n_seen;      /* events that were looked through for processes */
};

/* Makes the account's file and maps it (account_file.c). The caller unmaps *account. */
int mt_account_create(const struct mt_rehearse_options *options, const char *path,
                      struct mt_account **account, struct mt_error *error);
void mt_account_unmap(struct mt_account *account);

/* Writes an event of the driver's own. */
void mt_account_note(struct mt_account *account, enum mt_account_kind kind, uint32_t pid,
                     const char *name);

/* Gives back what a process held that is gone: its bytes at a place, and what they took of it. */
void mt_account_give_back(struct mt_account *account, uint8_t place, uint64_t bytes, uint64_t held);

/* The environment that a program is rehearsed in (environment.c): `given` with the pretended
 * devices in and the real ones out. NULL where memory ran out; freed with mt_environment_free(). */
char **mt_environment_make(char *const *given, const char *pretend_path, const char *account_path);
void mt_environment_free(char **environment);
/* The value of `name` ("PATH") in an environment, or NULL. */
const char *mt_environment_get(char *const *environment, const char *name);

/* Finds and starts the program (program.c), as the leader of a process group. Returns its pid or an
 * MT_E code. */
int mt_program_start(const struct mt_rehearse_options *options, char **environment,
                     const int output_fd[2], struct mt_error *error);
/* Kills every process that has `account_path` in its environment, whoever's child it is. */
void mt_program_kill_rest(const char *account_path);
/* Whether a process has ended, taken by its parent or not. */
int mt_program_is_gone(uint32_t pid);

/* Reads what is new. `now_ns` is CLOCK_MONOTONIC; `is_final` says that nobody writes any more.
 * (reader.c) */
void mt_reader_read(struct mt_reader *reader, uint64_t now_ns, int is_final);
/* NULL past the last. */
const struct mt_noted *mt_reader_at(const struct mt_reader *reader, size_t index);

/* Events from `first` to `last`, with both. */
struct mt_span {
    size_t first;
    size_t last;
};

/* The events past all that an engine only tried; where plans are all there is, those of the plan
 * that it settled for: the last one that fits, else the last one (trials.c). */
struct mt_span mt_reader_settled(const struct mt_reader *reader, int counts_plans);
/* What a process holds at a place, as the devices count it: in bytes, or with rules as a device
 * gives it out. */
uint64_t mt_reader_held(const struct mt_reader *reader, uint64_t pid, const char *place,
                        const struct mt_pretend_rules *rules);
void mt_reader_finish(struct mt_reader *reader);

/* "gpu:0" and so on, "host" for MT_ACCOUNT_HOST. Borrowed, static. */
const char *mt_place_name(uint8_t place);

#endif
