/* SPDX-License-Identifier: MIT */
/* Running tests beside each other as far as the budget goes. */
#ifndef CLI_BUDGET_SUITE_H
#define CLI_BUDGET_SUITE_H

#include <signal.h>

#include "cli/budget/tests.h"

enum budget_outcome {
    BUDGET_WAITS, /* not run yet */
    BUDGET_PASSED,
    BUDGET_FAILED,
    BUDGET_MEMORY,  /* failed because it was refused memory, or killed for it */
    BUDGET_LEAKED,  /* passed, and left memory behind */
    BUDGET_TIMEOUT, /* was ended by memtally */
    BUDGET_CANNOT,  /* was not started: it needs what there never is, or it cannot be run */
    BUDGET_SKIPPED
};

/* What came of one test, and of the last run of it. */
struct budget_result {
    enum budget_outcome outcome;
    int n_tries;
    int exit_code;
    double seconds;
    uint64_t host_peak_bytes;
    uint64_t device_peak_bytes; /* largest of a device */
    struct budget_needs needs;  /* that it ran with */
    char *why;                  /* sentences, or NULL. Owned */
    char *output;               /* the end of what it wrote, or NULL. Owned */
    /* Before: */
    int was_measured;
    int passed_last; /* in the last run, finished or not */
    double last_seconds;
    uint64_t last_host_bytes;
    uint64_t last_device_bytes;
};

struct budget_suite {
    struct budget_world *world;
    const struct budget_tests *tests;
    struct budget_result *results; /* as many */
    size_t n_jobs;
    int cap;
    int leaves_out_passed;
    const char *history; /* file; NULL: none is kept */
    int number;          /* of the run */
    const volatile sig_atomic_t *interrupted;
    /* Called when a test has ended. */
    void (*tell)(void *context, size_t test);
    void *context;
    double planned_seconds; /* by the last run's times; 0 where there are none */
    double least_seconds;
};

/* "passed", "failed for memory" (results.c). */
const char *budget_outcome_name(enum budget_outcome outcome);

/* Runs all tests. Returns an exit status: CLI_EXIT_NO where one did not pass. A failure of memtally
 * itself is complained of. */
int budget_suite_run(struct budget_suite *suite);

/* Reads what is known of the last run into suite->results, and writes it (history.c). */
int budget_history_read(struct budget_suite *suite, struct mt_error *error);
int budget_history_write(const struct budget_suite *suite, struct mt_error *error);

/* What a test is to have, by what it says or what was measured (order.c). */
void budget_needs_of(const struct budget_suite *suite, size_t test, struct budget_needs *needs);

/* The order to start them in, with suite->planned_seconds (order.c). Returns how many are left. */
size_t budget_order(struct budget_suite *suite, size_t *order);

/* Appends a test's lines of TAP (results.c), and all of them as JUnit. */
void budget_put_tap(const struct budget_suite *suite, size_t test, size_t number,
                    struct mt_strbuf *out);
void budget_put_junit(const struct budget_suite *suite, struct mt_strbuf *out);

#endif
