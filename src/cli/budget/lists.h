/* SPDX-License-Identifier: MIT */
/* Lists of others as a manifest would have them. */
#ifndef CLI_BUDGET_LISTS_H
#define CLI_BUDGET_LISTS_H

#include "base/strbuf.h"
#include "cli/budget/tests.h"

/* Makes {"test": [{"name": …, "command": […], …}]} of what a tool printed. NULL with *error set. */
json_t *budget_read_list(enum budget_list list, const char *text, struct mt_error *error);

/* Asks the tool for the list of a folder. */
int budget_ask_tool(enum budget_list list, const char *folder, struct mt_strbuf *text,
                    struct mt_error *error);

#endif
