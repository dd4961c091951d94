/* SPDX-License-Identifier: MIT */
/* Runs of the child program, for tests. Waiting has no limit here: the test runner's is the limit.
 */
#ifndef MT_TESTS_WATCHED_H
#define MT_TESTS_WATCHED_H

#include "tests/support/unit.h"

#include <memtally/run.h>
#include <memtally/tally.h>

#define MIB (1024ull * 1024)

/* A run with pipes to the program's standard input and from its standard output. */
struct watched_run {
    struct mt_run_options options;
    struct mt_run *run;
    struct mt_run_result result;
    char directory[96];
    char *argv[24];
    int input; /* its other end is the program's */
    int output;
    int fds[2]; /* the program's ends */
};

extern char watched_folder[64]; /* for recordings; made and removed by these two */
int watched_setup(void **state);
int watched_teardown(void **state);

/* The paths of the child program, of the same linked statically, and of the recorder. */
const char *watched_child(void);
const char *watched_static_child(void);
const char *watched_recorder(void);

/* Prepares a run of `program` with what it is to do; the last is NULL. */
void watched_prepare(struct watched_run *run, const char *program, const char *const *doings);
#define PREPARE(run, program, ...)                                                                 \
    watched_prepare(run, program, (const char *const[]){__VA_ARGS__, NULL})

void watched_start(struct watched_run *run);

/* Watches until the program has written a line, which is put into `line`. */
void watched_read_line(struct watched_run *run, char line[256]);

/* Lets the program's input end, watches until it has ended, and finishes the run. */
void watched_finish(struct watched_run *run);

/* Watches once. */
void watched_poll(struct watched_run *run);

/* The same; fails where the program has ended. */
void watched_poll_alive(struct watched_run *run);

void watched_close(struct watched_run *run);

/* The tally of a run's folder; NULL where there is none yet. */
struct mt_tally *watched_tally(const struct watched_run *run, enum mt_moment_kind kind,
                               uint64_t time_ns);

const struct mt_tally_process *watched_process(const struct mt_tally *tally, uint64_t pid);

/* What the kernel says of a process, in bytes. */
uint64_t watched_rollup(int pid, const char *name);

/* The state letter of a process, 0 where it is gone. */
char watched_state(int pid);

#endif
