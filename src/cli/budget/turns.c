/* SPDX-License-Identifier: MIT */
/* Turns: locks, tests that are alone, those that come after others, and fixtures, as ctest has
 * them. */
#include "cli/budget/turns.h"

#include <string.h>

static int has_name(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_string_value(json_array_get(list, i)), name) == 0)
            return 1;
    return 0;
}

const char *budget_common_name(const json_t *list, const json_t *other)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (has_name(other, name))
            return name;
    }
    return NULL;
}

int budget_is_fixture(const struct budget_test *test)
{
    return json_array_size(test->sets_up) || json_array_size(test->cleans_up);
}

static int is_done(const struct budget_suite *suite, size_t test)
{
    return suite->results[test].outcome != BUDGET_WAITS;
}

/* Whether one that runs keeps the test from running. */
static int is_kept_from(const struct budget_test *test, const struct budget_test *running)
{
    return test->is_alone || running->is_alone || budget_common_name(test->locks, running->locks);
}

/* Whether `other` has to have ended before `test` starts. */
static int comes_before(const struct budget_test *other, const struct budget_test *test)
{
    return has_name(test->after, other->name) ||
           budget_common_name(test->required, other->sets_up) ||
           budget_common_name(test->cleans_up, other->required) ||
           budget_common_name(test->cleans_up, other->sets_up);
}

enum budget_turn budget_turn_of(const struct budget_suite *suite, size_t test,
                                const size_t *running, size_t n, struct mt_strbuf *why)
{
    const struct budget_test *tests = suite->tests->items;
    enum budget_turn turn = BUDGET_TURN_NOW;
    for (size_t i = 0; i < n; i++)
        if (is_kept_from(&tests[test], &tests[running[i]]))
            turn = BUDGET_TURN_LATER;
    for (size_t i = 0; i < suite->tests->n; i++) {
        const char *fixture = budget_common_name(tests[test].required, tests[i].sets_up);
        if (i == test || !comes_before(&tests[i], &tests[test]))
            continue;
        if (!is_done(suite, i)) {
            turn = BUDGET_TURN_LATER;
        } else if (fixture && suite->results[i].outcome != BUDGET_PASSED &&
                   suite->results[i].outcome != BUDGET_LEAKED) {
            mt_strbuf_printf(why, "its fixture '%s' was not set up by '%s'\n", fixture,
                             tests[i].name);
            return BUDGET_TURN_NEVER;
        }
    }
    return turn;
}
