/* SPDX-License-Identifier: MIT */
/* A sweep as a table, CSV and JSON. */
#ifndef CLI_REHEARSE_SWEEP_OUTPUT_H
#define CLI_REHEARSE_SWEEP_OUTPUT_H

#include "advise/sweep.h"
#include "base/strbuf.h"
#include "cli/console.h"
#include "cli/document/document.h"

/* Appends the points that are done. */
void rehearse_sweep_table(const struct mt_advise_sweep *sweep,
                          const struct cli_document_model *model,
                          const struct cli_terminal *terminal, struct mt_strbuf *out);
void rehearse_sweep_csv(const struct mt_advise_sweep *sweep, struct mt_strbuf *out);
void rehearse_sweep_json(const struct mt_advise_sweep *sweep,
                         const struct cli_document_model *model, struct mt_strbuf *out);

#endif
