/* SPDX-License-Identifier: MIT */
/* Which tests may run beside each other and after each other, memory aside. */
#ifndef CLI_BUDGET_TURNS_H
#define CLI_BUDGET_TURNS_H

#include "cli/budget/suite.h"

enum budget_turn {
    BUDGET_TURN_NOW,
    BUDGET_TURN_LATER,
    BUDGET_TURN_NEVER /* what it requires was not set up */
};

/* Whether a test that waits may start beside tests[0..n) that run. Where it never may, `why` gets a
 * line. */
enum budget_turn budget_turn_of(const struct budget_suite *suite, size_t test,
                                const size_t *running, size_t n, struct mt_strbuf *why);

/* Whether others need it to have run in this run. */
int budget_is_fixture(const struct budget_test *test);

/* The names in `list` of which `other` has one too; NULL: none. */
const char *budget_common_name(const json_t *list, const json_t *other);

#endif
