/* SPDX-License-Identifier: MIT */
/* The tests of a manifest, or of a list that ctest, meson or pytest prints. */
#ifndef CLI_BUDGET_TESTS_H
#define CLI_BUDGET_TESTS_H

#include <jansson.h>

#include "cli/budget/lists.h"
#include "cli/budget/needs.h"

struct budget_test {
    const char *name; /* texts are those of the document */
    char **argv;
    char **environment; /* of the program, those of memtally among them */
    const char *directory;
    struct budget_needs needs; /* none where they are not said */
    uint64_t timeout_ns;
    int fails_well;  /* it is meant to fail */
    int skip_status; /* with which it says that it cannot run here; 0: none */
    int is_alone;    /* nothing runs beside it */
    /* Arrays of names, or NULL: those that hold one lock never run at once; it starts once other
     * tests have ended; fixtures that it requires, sets up, or cleans up after all who do. */
    const json_t *locks, *after, *required, *sets_up, *cleans_up;
};

struct budget_tests {
    json_t *document;
    struct budget_test *items;
    size_t n;
    struct budget_needs fallback; /* of tests that say nothing and were not measured */
};

/* Reads a manifest, a list that was printed into a file, or asks the tool for that of a folder. On
 * success the caller finishes *tests. Errors: MT_EFORMAT, MT_EARG, MT_ENOTFOUND, MT_EIO, MT_ENOMEM,
 * MT_ECHILD (the tool failed), each with a text fit for the user. */
int budget_tests_load(struct budget_tests *tests, enum budget_list list, const char *path,
                      struct mt_error *error);
void budget_tests_finish(struct budget_tests *tests);

#endif
