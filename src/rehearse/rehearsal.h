/* SPDX-License-Identifier: MIT */
/* A rehearsal, shared by the files of this room that drive it and read its account. */
#ifndef MT_REHEARSAL_REHEARSAL_H
#define MT_REHEARSAL_REHEARSAL_H

#include <memtally/rehearsal.h>
#include <sys/types.h>

#include "base/arena.h"
#include "rehearse/account.h"
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

/* Whether the account is one of ours, and devices' bytes are those of processes and of what these
 * share. The program writes it: that it holds is known of our own accounts and our own programs
 * only, once they rest. */
int mt_account_is_valid(const struct mt_account *account);

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

/* Makes the account's file and maps it (account_file.c). The caller unmaps *account. */
int mt_account_create(const struct mt_rehearsal_options *options, const char *path,
                      struct mt_account **account, struct mt_error *error);
void mt_account_unmap(struct mt_account *account);

/* Writes an event of the driver's own. */
void mt_account_note(struct mt_account *account, enum mt_account_kind kind, uint32_t pid,
                     const char *name);

/* Gives back what a process held that is gone: its bytes at a place, and what they took of it. */
void mt_account_give_back(struct mt_account *account, uint8_t place, uint64_t bytes, uint64_t held);

/* Whether the list of events was full, so that some are not there. */
int mt_account_is_full(const struct mt_account *account);
/* What a process took of a device by its own row: its bytes, or what these take of it. */
uint64_t mt_account_of_process(const struct mt_account *account, uint32_t pid, uint32_t device,
                               int is_held);
/* A process is gone: its row is free. */
void mt_account_drop_process(struct mt_account *account, uint32_t pid);

/* Where the look-alikes of CUDA's libraries lie for a program. All owned. */
struct mt_cuda_stage {
    char *directory; /* with each under its soname */
    char *preload;   /* parted by colons, in the order in which they must stand */
    char *helper;    /* for PYTHONPATH, or NULL */
    char *caches;    /* folder for what compilers keep */
    char *temporary; /* folder for the program's temporary files */
    char *programs;  /* folder of the look-alikes of programs, for PATH */
};

/* The major version of CUDA that the PyTorch of a program was built with: of an interpreter, or of
 * what stands beside one, by its path. 0 where that cannot be told (cuda_major.c). */
int mt_cuda_major_beside(const char *program);

/* Copies the look-alikes into the rehearsal's folder (cuda_stage.c); those of another version than
 * `major` are not preloaded, with 0 all are. Errors: MT_ENOTFOUND (one is missing), MT_EARG (a
 * folder whose path cannot be preloaded from), MT_ELIMIT (a path that is too long), MT_EIO,
 * MT_ENOMEM. */
int mt_cuda_stage(const struct mt_rehearsal_options *options, const char *directory, int major,
                  struct mt_cuda_stage *stage, struct mt_error *error);
void mt_cuda_stage_finish(struct mt_cuda_stage *stage);

/* The environment that a program is rehearsed in (environment.c): `given` with the pretended
 * devices in and the real ones out; `stage` is NULL where CUDA programs are to find none. NULL
 * where memory ran out; freed with mt_environment_free(). */
char **mt_environment_make(char *const *given, const char *pretend_path, const char *account_path,
                           const struct mt_cuda_stage *stage);
void mt_environment_free(char **environment);

/* Looks a program up as mt_environment_find() does (program.c). Errors: MT_ENOTFOUND, MT_EPERM. */
int mt_program_find(const char *name, char *const *environment, char *found,
                    struct mt_error *error);
/* Finds and starts the program (program.c), as the leader of a process group. Returns its pid or an
 * MT_E code. */
int mt_program_start(const struct mt_rehearsal_options *options, char **environment,
                     const int output_fd[2], struct mt_error *error);
/* Kills every process that has `account_path` in its environment, whoever's child it is, and those
 * of `group`, if that is not 0; what cleans up after the others has a moment to do so. */
void mt_program_kill_rest(const char *account_path, pid_t group);
/* Whether a process has ended, taken by its parent or not. */
int mt_program_is_gone(uint32_t pid);

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

/* "gpu:0" and so on, "host" for MT_ACCOUNT_HOST. Borrowed, static. */
const char *mt_place_name(uint8_t place);

#endif
