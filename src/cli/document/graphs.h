/* SPDX-License-Identifier: MIT */
/* The document of CUDA graphs: kind "graphs". */
#ifndef CLI_DOCUMENT_GRAPHS_H
#define CLI_DOCUMENT_GRAPHS_H

#include "cli/console.h"

struct mt_graphs; /* both of <memtally/graphs.h> */
struct mt_graphs_difference;

/* All borrowed. */
struct cli_graphs_document {
    const char *directories[2];
    const char *settings[2];         /* what differs, as "max_concurrency=16", or NULL */
    int was_cut[2];                  /* its rehearsal ended while the program still worked */
    const struct mt_graphs *runs[2]; /* the second is NULL where only one was given */
    const struct mt_graphs_difference *difference; /* NULL with one run */
    int show_all;                                  /* each graph, also with two runs */
};

void cli_graphs_table(const struct cli_graphs_document *document,
                      const struct cli_terminal *terminal, struct mt_strbuf *out);
void cli_graphs_json(const struct cli_graphs_document *document, struct mt_strbuf *out);

#endif
