/* SPDX-License-Identifier: MIT */
/* What layers of models hold and what operators of PyTorch take, of a recording. */
#ifndef CLI_DOCUMENT_TORCH_TABLE_H
#define CLI_DOCUMENT_TORCH_TABLE_H

#include <stdio.h>

#include "cli/document/document.h"
#include "pytorch/torch_table.h"

/* Writes the recording's table of a kind as a document of its own; of a table at most `most` rows,
 * 0 for all. Errors: MT_ENOTFOUND (it has none), MT_EARG (the format has none), MT_ENOMEM. */
int cli_document_torch_table(const char *recording, enum mt_torch_table_kind kind,
                             enum cli_format format, size_t most,
                             const struct cli_terminal *terminal, struct mt_strbuf *out,
                             struct mt_error *error);

/* Prints the beginning of the table after what stands on `stream`. Where there is none it complains
 * in the name of `command`. */
void cli_print_torch_table(const char *command, const char *recording,
                           enum mt_torch_table_kind kind, FILE *stream);

#endif
