/* SPDX-License-Identifier: MIT */
/* The formats of a document, one function each, and the figures that they share. */
#ifndef CLI_DOCUMENT_PARTS_H
#define CLI_DOCUMENT_PARTS_H

#include "document.h"
#include "emit/json.h"
#include "emit/text_table.h"

struct mt_predict_settings; /* <memtally/settings.h> */
struct mt_stack_entry;      /* both of <memtally/recording.h> */
struct mt_stack_list;
struct mt_tally; /* all of <memtally/tally.h> */
struct mt_tally_place;
struct mt_tally_process;
struct mt_tally_row;

void cli_document_json(const struct cli_document *document, struct mt_strbuf *out);
void cli_document_csv(const struct cli_document *document, struct mt_strbuf *out);
void cli_document_folded(const struct cli_document *document, struct mt_strbuf *out);
void cli_document_speedscope(const struct cli_document *document, struct mt_strbuf *out);
void cli_document_memory_viz(const struct cli_document *document, struct mt_strbuf *out);
void cli_document_perfetto(const struct cli_document *document, struct mt_strbuf *out);
void cli_document_table(const struct cli_document *document, const struct cli_terminal *terminal,
                        struct mt_strbuf *out);

/* The sections that LLM profilers write: memory_breakdown, model_info, gpu_info. */
void cli_json_profiler_sections(const struct cli_document *document, struct mt_json *json);

/* A call stack and what it has. */
void cli_json_stack(const struct mt_stack_entry *entry, struct mt_json *json);

/* What only an estimate has: settings as they were completed, verdict, terms, flags, pool. */
void cli_json_estimate_settings(const struct mt_predict_settings *settings, struct mt_json *json);
/* The same where only the machine is known, and not how a model is run on it. */
void cli_json_machine_settings(const struct mt_predict_settings *settings, struct mt_json *json);
void cli_json_estimate(const struct cli_document *document, struct mt_json *json);
void cli_csv_estimate(const struct cli_document *document, struct mt_strbuf *out);
void cli_table_estimate(const struct cli_document *document, const struct cli_terminal *terminal,
                        struct mt_strbuf *out);
void cli_table_estimate_place(const struct mt_tally_place *place, const char *name,
                              uint64_t used_bytes, const struct cli_terminal *terminal,
                              struct mt_strbuf *out);

/* What only a rehearsal has: the command line, how it went, what it took late. */
void cli_table_rehearsal(const struct cli_document *document, const struct cli_terminal *terminal,
                         struct mt_strbuf *out);
void cli_table_rehearsal_phases(const struct cli_document *document,
                                const struct cli_terminal *terminal, struct mt_strbuf *out);
void cli_table_rehearsal_late(const struct cli_document *document,
                              const struct cli_terminal *terminal, struct mt_strbuf *out);
void cli_json_rehearsal(const struct cli_document *document, struct mt_json *json);
int cli_estimate_rows_are_same(const struct mt_tally_row *a, const struct mt_tally_row *b);

/* The container, where there is one (container.c). */
void cli_json_container(const struct cli_document *document, struct mt_json *json);
void cli_table_container(const struct cli_document *document, const struct cli_terminal *terminal,
                         struct mt_strbuf *out);

/* Parts of the table. */
void cli_table_notes(const struct cli_document *document, const struct cli_terminal *terminal,
                     struct mt_strbuf *out);
void cli_table_places(const struct cli_document *document, const struct cli_terminal *terminal,
                      size_t details_shown, struct mt_strbuf *out);
void cli_table_processes(const struct cli_document *document, const struct cli_terminal *terminal,
                         struct mt_strbuf *out);

/* A heading with an empty line before it. */
void cli_table_heading(const struct cli_terminal *terminal, const char *text,
                       struct mt_strbuf *out);

/* Draws a table after an empty line and finishes it. */
void cli_table_draw(struct mt_text_table *table, const struct cli_terminal *terminal,
                    struct mt_strbuf *out);

/* A label and what is said of it, wrapped. */
void cli_table_fact(const struct cli_terminal *terminal, struct mt_strbuf *out, const char *label,
                    const char *format, ...) __attribute__((format(printf, 4, 5)));

/* A time such as "812 ms", "3.40 s" or "2 min 05 s"; "?" where it is MT_UNKNOWN. Returns text. */
#define CLI_TIME_TEXT 40
const char *cli_format_time(uint64_t time_ns, char text[CLI_TIME_TEXT]);

/* The stack of the blocks for which none was taken, and whether no entry has another. */
int cli_is_no_stack(const struct mt_stack_entry *entry);
int cli_has_no_stacks(const struct mt_stack_list *stacks);

/* Sums where a part that is not known makes the sum unknown. */
uint64_t cli_sum(uint64_t a, uint64_t b);

/* How a row's figures are known; NULL where nobody knows them. */
const char *cli_row_provenance(const struct mt_tally_row *row);

/* The process that was run, as what it was in the end: the last image of the first process of the
 * tally, or NULL. */
const struct mt_tally_process *cli_main_process(const struct mt_tally *tally);

#endif
