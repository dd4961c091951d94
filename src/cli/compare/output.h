/* SPDX-License-Identifier: MIT */
/* A comparison in each of its formats. */
#ifndef CLI_COMPARE_OUTPUT_H
#define CLI_COMPARE_OUTPUT_H

#include "base/strbuf.h"
#include "cli/compare/side.h"
#include "cli/console.h"

/* The formats, in the order of compare_format_names. */
enum compare_format { COMPARE_TABLE, COMPARE_JSON, COMPARE_CSV };

extern const char *const compare_format_names[]; /* ends with NULL */

#define COMPARE_NOTES_MAX 8

/* What is shown. `notes` are sentences. `learnt` is what is known now, where something was to be
 * learnt. */
struct compare_view {
    const struct compare_loaded *a;
    const struct compare_loaded *b;
    const struct mt_comparison *comparison;
    const char *notes[COMPARE_NOTES_MAX];
    size_t n_notes;
    const struct mt_residue *learnt;
    size_t n_learnt;
    int show_all;
};

void compare_write(const struct compare_view *view, enum compare_format format,
                   const struct cli_terminal *terminal, struct mt_strbuf *out);

/* The formats' own. */
void compare_write_table(const struct compare_view *view, const struct cli_terminal *terminal,
                         struct mt_strbuf *out);
void compare_write_json(const struct compare_view *view, struct mt_strbuf *out);
void compare_write_csv(const struct compare_view *view, struct mt_strbuf *out);

#endif
