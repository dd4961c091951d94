/* SPDX-License-Identifier: MIT */
/* Running programs under the recorder and reading what it wrote. */
#ifndef MT_TESTS_RECORDER_HARNESS_H
#define MT_TESTS_RECORDER_HARNESS_H

#include <sys/types.h>

#include "recording/reader.h"
#include "support/unit.h"

#define DEPTH_DEFAULT 0
#define DEPTH_FULL    1
#define STACKS_FP     0
#define STACKS_UNWIND 1
#define STACKS_NONE   2

/* How to run a program. All zeros: recorded in default depth with frame pointers. */
struct how {
    int depth;
    int stacks;
    int unrecorded;
    const char *directory; /* in place of a new one */
    const char *preload;   /* preloaded after the recorder */
    const char *input;     /* standard input; NULL: empty */
    const char *setting;   /* one more NAME=VALUE */
    void (*prepare)(void); /* called in the child before exec */
    void (*meanwhile)(pid_t pid, const char *directory);
};

/* A program that has ended: how, what it said, and the files that it recorded. */
struct ran {
    pid_t pid;
    int status; /* as waitpid() gives it */
    char *out;
    char *err;
    char directory[256];
    size_t n_files;
    struct mt_record_file *files[256]; /* sorted by name */
};

/* Runs argv[0], looked up in PATH, to its end. The test fails if it cannot be started. */
struct ran *run(const struct how *how, const char *const argv[]);
void ran_free(struct ran *ran);

#define RUN(how, ...) run(how, (const char *const[]){__VA_ARGS__, NULL})

/* The multi-purpose child (child.c), as the build made it. */
#define CHILD       program_path("MEMTALLY_TEST_CHILD")
#define CHILD_NO_FP program_path("MEMTALLY_TEST_CHILD_NO_FP")
const char *program_path(const char *variable);

/* Whether the program ended by exit with `code`. Prints what it said where it did not. */
int exited(const struct ran *ran, int code);

/* The only file, or the only one of `pid`. */
const struct mt_record_file *the_file(const struct ran *ran);
const struct mt_record_file *file_of(const struct ran *ran, pid_t pid);

/* All events of a file in order of time. Free with free(). */
struct mt_event *events_of(const struct mt_record_file *file, size_t *n_events);

/* The first number after `key` in the program's output. The test fails where there is none. */
uint64_t number_after(const char *text, const char *key);

/* The text of a MARK or SCOPE_BEGIN event's name field, "" where it has none. */
const char *name_of(const struct mt_record_file *file, const struct mt_event *event,
                    uint64_t number);

/* The memory operations between the marks `name` and "end", one a line, as the child writes its
 * expectations: the operation's name and its fields in hexadecimal. Free with free(). */
char *operations_of(const struct mt_record_file *file, const char *name);

/* The last TOTALS of a file: small allocations, their bytes, small frees, their bytes. */
void totals_of(const struct mt_record_file *file, uint64_t totals[4]);

/* Checks that every FREE takes a live block and every ALLOC a free place, by the merged events of
 * the blocks that are `size` long (0: all). Returns how many were allocated; *n_live how many are
 * left. Frees of blocks from before the recording are passed over. */
size_t check_order(const struct mt_record_file *file, uint64_t size, size_t *n_live);

/* Leaves a test that cannot be done on this machine. cmocka's own skip() is "not ok" in the TAP of
 * version 1.1.5, which readers of TAP take for a failure. */
#define NOT_HERE()                                                                                 \
    do {                                                                                           \
        print_message("# not possible here\n");                                                    \
        return;                                                                                    \
    } while (0)

#endif
