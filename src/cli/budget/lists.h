/* SPDX-License-Identifier: MIT */
/* Lists of others as a manifest would have them. */
#ifndef CLI_BUDGET_LISTS_H
#define CLI_BUDGET_LISTS_H

#include <jansson.h>

#include "base/strbuf.h"

struct mt_error; /* <memtally/error.h> */

enum budget_list { BUDGET_LIST_TOML, BUDGET_LIST_CTEST, BUDGET_LIST_MESON, BUDGET_LIST_PYTEST };

/* Makes {"test": [{"name": …, "command": […], …}]} of what a tool printed. NULL with *error set. */
json_t *budget_read_list(enum budget_list list, const char *text, struct mt_error *error);

/* Asks the tool for the list of a folder. */
int budget_ask_tool(enum budget_list list, const char *folder, struct mt_strbuf *text,
                    struct mt_error *error);

#endif
