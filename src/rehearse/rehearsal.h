/* SPDX-License-Identifier: MIT */
/* A rehearsal, shared by the files of this room that drive it and read its account. */
#ifndef MT_REHEARSAL_REHEARSAL_H
#define MT_REHEARSAL_REHEARSAL_H

#include <memtally/rehearsal.h>
#include <memtally/rehearsal_events.h>
#include <sys/types.h>

#include "base/arena.h"
#include "rehearse/account_file.h"
#include "rehearse/owned.h"

#define MT_READER_CHUNK  1024u
#define MT_READER_CHUNKS (2 * MT_ACCOUNT_EVENTS_MAX / MT_READER_CHUNK + 1)
#define MT_PROCESSES_MAX 256u /* of one rehearsal whose ends are noticed */
#define MT_ENDED_MARK    "process ended"

/* An event as it was read. An allocation is there from its own index up to `freed_at`. */
struct mt_noted {
    struct mt_rehearsal_event event;
    size_t freed_at; /* SIZE_MAX while it is there */
    uint64_t object; /* its identity in its process: the address of what CUDA gave out */
    struct mt_owned_entry owned;
    int was_told; /* what it is for was not known when it was made, and told later */
};

/* That a process holds what several share, and how often it said so: 0 where it does no more. */
struct mt_holder {
    struct mt_owned_entry owned;
    size_t n;
};

/* The purpose that a library named for a part of an allocation. */
struct mt_purpose {
    uint32_t pid;
    uint8_t place;
    enum mt_category category;
    uint64_t object;
    uint64_t bytes;
    uint64_t time_ns; /* by the monotonic clock, as end_ns */
    uint64_t end_ns;  /* of a part of a pool's: given back; UINT64_MAX where nobody said so */
    const char *name;
};

/* Whether an allocation is what a pool of the driver took, to give out parts of it. */
int mt_noted_is_pool(const struct mt_noted *noted);

/* The account as a list of events, read as it grows. Start with {0} and `account`. Events never
 * move, so that they can be lent out. */
struct mt_account_reader {
    struct mt_account *account;
    struct mt_arena texts;
    struct mt_noted *chunks[MT_READER_CHUNKS];
    size_t n_events;
    uint64_t next; /* event of the account that is read next */
    uint64_t last_ns;
    uint64_t hole_since_ns;   /* when an unwritten event was first waited for; 0: none is */
    uint64_t n_skipped;       /* events that make no sense */
    uint64_t n_unwritten;     /* events whose writers ended before they were whole */
    struct mt_owned_map live; /* events of buffers that are there, and the newest of each process */
    struct mt_owned_map holdings; /* the same of `holders`, and how many hold each object */
    struct mt_holder *holders;
    size_t n_holders, holders_capacity;
    struct mt_purpose *told;
    size_t n_told;
    struct mt_owned_map told_last; /* by process and object: which of them was told last */
    size_t told_capacity;
    int out_of_memory;
};

struct mt_rehearsal {
    char private_library[96]; /* that brings NVIDIA's own runtime, "" while none is known */
    struct mt_account *account;
    struct mt_account *spare; /* empty, in place of one that was cut off */
    struct mt_account_reader reader;
    uint32_t n_devices; /* as they were given: the account's own number is the program's to write */
    int is_cut;         /* the program has made the account's file shorter */
    char *directory;    /* absolute */
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
    size_t n_processes;     /* beside the program's own */
    struct mt_torch *torch; /* as it was last read, or NULL */
    size_t n_seen;          /* events that were looked through for processes */
};

/* Reads what is new. `now_ns` is CLOCK_MONOTONIC; `is_final` says that nobody writes any more.
 * (reader.c) */
void mt_account_reader_read(struct mt_account_reader *reader, uint64_t now_ns, int is_final);
/* NULL past the last. */
const struct mt_noted *mt_account_reader_at(const struct mt_account_reader *reader, size_t index);

/* Events from `first` to `last`, with both. */
struct mt_span {
    size_t first;
    size_t last;
};

/* The events past all that an engine only tried; where plans are all there is, those of the plan
 * that it settled for: the last one that fits, else the last one (trials.c). */
struct mt_span mt_account_reader_settled(const struct mt_account_reader *reader, int counts_plans);
/* What a process holds at a place, as the devices count it: in bytes, or with rules as a device
 * gives it out. */
uint64_t mt_account_reader_held(const struct mt_account_reader *reader, uint32_t pid,
                                const char *place, const struct mt_pretend_rules *rules);
/* A process is gone, and so is its part in what it shared with others: where it was the last one,
 * the device has it back. Call it once, before you read the account. */
void mt_account_reader_release_shared(struct mt_account_reader *reader, uint32_t pid);
void mt_account_reader_finish(struct mt_account_reader *reader);

#endif
