/* SPDX-License-Identifier: MIT */
/* How a verdict is drawn. */
#ifndef CLI_DOCUMENT_VERDICT_H
#define CLI_DOCUMENT_VERDICT_H

#include <memtally/verdict.h>

struct cli_terminal; /* "cli/console.h" */
struct mt_strbuf;    /* "base/strbuf.h" */

/* A verdict as a label in its colour, and the reason, wrapped. */
void cli_table_verdict(const struct cli_terminal *terminal, struct mt_strbuf *out,
                       enum mt_verdict verdict, const char *reason);

/* The colour of a verdict, "" where there are none. Borrowed, static. */
const char *cli_verdict_style(const struct cli_terminal *terminal, enum mt_verdict verdict);

#endif
