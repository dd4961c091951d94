/* SPDX-License-Identifier: MIT */
/* A rehearsal as text for people: the command line, how it went, what would fit, what came late. */
#include <inttypes.h>
#include <memtally/rehearsal_events.h>
#include <memtally/tally.h>
#include <memtally/units.h>
#include <stdio.h>
#include <string.h>

#include "cli/document/shell.h"
#include "drive/rehearsed.h"
#include "emit/text.h"
#include "internal.h"

#define LATE_SHOWN  20
#define LATE_BYTES  (UINT64_C(16) << 20)
#define WORDS_SHOWN 12

/* The command line as a shell would take it. */
static void put_command(const struct mt_rehearsed *rehearsal, const struct cli_terminal *terminal,
                        struct mt_strbuf *out)
{
    struct mt_strbuf text = {0};
    for (char *const *word = rehearsal->argv; *word; word++) {
        mt_strbuf_puts(&text, word == rehearsal->argv ? "" : " ");
        cli_put_shell_word(&text, *word);
    }
    cli_table_fact(terminal, out, "command", "%s", mt_strbuf_text(&text));
    mt_strbuf_finish_part(&text, out);
}

static void put_requests(const struct mt_rehearsed *rehearsal, const struct cli_terminal *terminal,
                         struct mt_strbuf *out)
{
    struct mt_strbuf text = {0};
    if (!rehearsal->is_ready)
        return;
    mt_strbuf_printf(&text, "ready; %" PRIu64 " request%s", rehearsal->n_requests,
                     rehearsal->n_requests == 1 ? "" : "s");
    if (rehearsal->prompt_tokens)
        mt_strbuf_printf(&text, ", the longest prompt of %" PRIu64 " tokens",
                         rehearsal->prompt_tokens);
    if (rehearsal->n_requests_refused)
        mt_strbuf_printf(&text, "; %" PRIu64 " answered with an error: %s",
                         rehearsal->n_requests_refused, rehearsal->complaint);
    cli_table_fact(terminal, out, "served", "%s", mt_strbuf_text(&text));
    mt_strbuf_finish_part(&text, out);
}

static void put_end(const struct mt_rehearsed *rehearsal, const struct cli_terminal *terminal,
                    struct mt_strbuf *out)
{
    char time[CLI_TIME_TEXT];
    cli_format_time(rehearsal->elapsed_ns, time);
    if (rehearsal->signal)
        cli_table_fact(terminal, out, "program", "killed by signal %d (%s) after %s",
                       rehearsal->signal, strsignal(rehearsal->signal), time);
    else if (rehearsal->exit_code < 0)
        cli_table_fact(terminal, out, "program", "ended by memtally after %s", time);
    else
        cli_table_fact(terminal, out, "program", "exited with status %d after %s",
                       rehearsal->exit_code, time);
}

/* An engine that was refused memory and went on with less. */
static void put_coped(const struct mt_rehearsed *rehearsal, const struct cli_terminal *terminal,
                      struct mt_strbuf *out)
{
    const struct mt_rehearsal_event *refusal = rehearsal->refusal;
    char size[MT_SIZE_TEXT];
    if (!rehearsal->ran || !refusal)
        return;
    cli_table_fact(terminal, out, "coped",
                   "%" PRIu64 " allocation%s did not fit, the last of %s at %s (%s), and the "
                   "program went on without",
                   rehearsal->n_refusals, rehearsal->n_refusals == 1 ? "" : "s",
                   mt_format_size(refusal->bytes, size), refusal->place, refusal->name);
}

static void put_held(const struct mt_rehearsed_change *change, char text[2 * MT_SIZE_TEXT + 32])
{
    char held[MT_SIZE_TEXT];
    char capacity[MT_SIZE_TEXT];
    snprintf(text, 2 * MT_SIZE_TEXT + 32, "; would hold %s of %s",
             mt_format_size(change->held_bytes, held),
             mt_format_size(change->capacity_bytes, capacity));
}

static void put_changes(const struct mt_rehearsed *rehearsal, const struct cli_terminal *terminal,
                        struct mt_strbuf *out)
{
    for (size_t i = 0; i < rehearsal->n_changes; i++) {
        const struct mt_rehearsed_change *change = &rehearsal->changes[i];
        char held[2 * MT_SIZE_TEXT + 32] = "";
        if (change->held_bytes != MT_UNKNOWN)
            put_held(change, held);
        cli_table_fact(terminal, out, i ? "" : "would fit", "%s%s%s%s%s%s%s%s%s", change->flags,
                       change->options ? " (" : "", change->options ? change->options : "",
                       change->options ? ")" : "", *change->instead_of ? " instead of " : "",
                       change->instead_of, change->costs ? ": " : "",
                       change->costs ? change->costs : "", held);
    }
    if (rehearsal->n_changes && rehearsal->n_tried)
        cli_table_fact(terminal, out, "", "%zu change%s of flags %s rehearsed for this",
                       rehearsal->n_tried, rehearsal->n_tried == 1 ? "" : "s",
                       rehearsal->n_tried == 1 ? "was" : "were");
}

/* What was at the place that had no room when it had none, largest first. */
static void put_held_then(const struct mt_rehearsed *rehearsal, const struct cli_terminal *terminal,
                          struct mt_strbuf *out)
{
    const struct mt_rehearsal_event *refusal = rehearsal->refusal;
    struct mt_strbuf text = {0};
    char size[MT_SIZE_TEXT];
    for (size_t i = 0; refusal && rehearsal->held && i < rehearsal->held->n_places; i++) {
        const struct mt_tally_place *place = &rehearsal->held->places[i];
        for (size_t k = 0; !strcmp(place->place, refusal->place) && k < place->n_rows; k++)
            mt_strbuf_printf(&text, "%s %s, ", mt_category_name(place->rows[k].category),
                             mt_format_size(place->rows[k].allocated_bytes, size));
    }
    if (text.length && !rehearsal->ran)
        cli_table_fact(terminal, out, "held then", "%s%s free", mt_strbuf_text(&text),
                       mt_format_size(refusal->free_bytes, size));
    mt_strbuf_finish_part(&text, out);
    if (rehearsal->stack && !rehearsal->ran)
        cli_table_fact(terminal, out, "asked by", "%s", rehearsal->stack);
}

/* The last lines of the last words. */
static const char *tail_of(const char *words)
{
    const char *at = words + strlen(words);
    if (at > words && at[-1] == '\n')
        at--;
    for (int n = 0; at > words; at--)
        if (at[-1] == '\n' && ++n == WORDS_SHOWN)
            break;
    return at;
}

static void put_words(const struct mt_rehearsed *rehearsal, const struct cli_terminal *terminal,
                      struct mt_strbuf *out)
{
    if (rehearsal->ran || !*rehearsal->words)
        return;
    cli_table_heading(terminal, "The program's last output", out);
    for (const char *line = tail_of(rehearsal->words); *line;) {
        size_t length = strcspn(line, "\n");
        struct mt_strbuf raw = {0};
        struct mt_strbuf escaped = {0};
        mt_strbuf_append(&raw, line, length);
        mt_text_escape(&escaped, mt_strbuf_text(&raw), terminal->utf8);
        mt_text_wrap(out, mt_strbuf_text(&escaped), 0, (size_t)terminal->columns);
        mt_strbuf_finish_part(&raw, out);
        mt_strbuf_finish_part(&escaped, out);
        line += length + (line[length] == '\n');
    }
}

void cli_table_rehearsal(const struct cli_document *document, const struct cli_terminal *terminal,
                         struct mt_strbuf *out)
{
    const struct mt_rehearsed *rehearsal = document->rehearsal;
    put_command(rehearsal, terminal, out);
    put_requests(rehearsal, terminal, out);
    put_end(rehearsal, terminal, out);
    put_coped(rehearsal, terminal, out);
    put_held_then(rehearsal, terminal, out);
    put_changes(rehearsal, terminal, out);
    put_words(rehearsal, terminal, out);
}

/* By how much a place came to hold more, 0 where it did not. */
static uint64_t growth_of(const struct mt_rehearsed_late *late)
{
    if (late->was_freed || late->was_refused)
        return 0;
    return late->bytes > late->ready_bytes ? late->bytes - late->ready_bytes : 0;
}

static int is_like(const struct mt_rehearsed_late *a, const struct mt_rehearsed_late *b)
{
    return a->category == b->category && growth_of(b) && a->was_refused == b->was_refused &&
           !strcmp(a->place, b->place) && !strcmp(a->name, b->name) &&
           !strcmp(a->detail, b->detail) && !strcmp(a->step, b->step);
}

/* Below these bytes growth is told in one line for all: 16 MiB, or 1 % of a small place. */
static uint64_t least_shown(const struct cli_document *document, const char *name)
{
    for (size_t i = 0; i < document->tally->n_places; i++) {
        const struct mt_tally_place *place = &document->tally->places[i];
        if (!strcmp(place->place, name) && place->capacity_bytes != MT_UNKNOWN &&
            place->capacity_bytes / 100 < LATE_BYTES)
            return place->capacity_bytes / 100;
    }
    return LATE_BYTES;
}

/* What was taken late, as it is shown. */
struct late_table {
    const struct cli_document *document;
    struct mt_text_table text;
    size_t n_shown;
    size_t n_hidden; /* for want of room */
    size_t n_small;
    uint64_t small_bytes;
};

static void add_late(struct late_table *table, const struct mt_rehearsed_late *late, size_t n,
                     uint64_t bytes)
{
    char time[CLI_TIME_TEXT];
    char growth[MT_SIZE_TEXT + 16];
    char size[MT_SIZE_TEXT];
    char what[200];
    char times[32] = "";
    if (n > 1)
        snprintf(times, sizeof times, "%zu times ", n);
    snprintf(what, sizeof what, "%s%s %s%s%s", times,
             late->category ? mt_category_name(late->category) : "memory", late->name,
             *late->detail ? ": " : "", late->detail);
    snprintf(growth, sizeof growth, "%s%s", late->was_refused ? "refused " : "+",
             mt_format_size(bytes, size));
    const char *step = strstr(late->step, ": ");
    const struct mt_cell cells[] = {{.text = what},
                                    {.text = late->place},
                                    {.text = growth},
                                    {.text = cli_format_time(late->time_ns, time)},
                                    {.text = step ? step + 2 : late->step}};
    mt_text_table_add(&table->text, 0, late->was_refused ? MT_ROW_BOLD : MT_ROW_PLAIN, cells);
    table->n_shown++;
}

/* Takes the late ones from `first` on that are alike and follow each other. Returns past them. */
static size_t take_late(struct late_table *table, size_t first)
{
    const struct mt_rehearsed *rehearsal = table->document->rehearsal;
    const struct mt_rehearsed_late *late = &rehearsal->late[first];
    uint64_t bytes = late->was_refused ? late->bytes : growth_of(late);
    size_t next = first + 1;
    size_t n = 1;
    if (!bytes)
        return next;
    for (; !late->was_refused && next < rehearsal->n_late; next++) {
        const struct mt_rehearsed_late *other = &rehearsal->late[next];
        if (!growth_of(other) && !other->was_refused)
            continue;
        if (!is_like(late, other))
            break;
        bytes += growth_of(other);
        n++;
    }
    if (!late->was_refused && bytes < least_shown(table->document, late->place)) {
        table->n_small += n;
        table->small_bytes += bytes;
    } else if (table->n_shown < LATE_SHOWN) {
        add_late(table, late, n, bytes);
    } else {
        table->n_hidden += n;
    }
    return next;
}

void cli_table_rehearsal_late(const struct cli_document *document,
                              const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    static const struct mt_text_table_column columns[] = {
        {"taken late", MT_CELL_TEXT, 0},  {"place", MT_CELL_TEXT, 0},
        {"bytes", MT_CELL_TEXT_RIGHT, 0}, {"after", MT_CELL_TEXT_RIGHT, 0},
        {"step", MT_CELL_TEXT, 1},
    };
    struct late_table table = {.document = document};
    char size[MT_SIZE_TEXT];
    mt_text_table_init(&table.text, columns, 5, terminal->utf8);
    for (size_t i = 0; i < document->rehearsal->n_late;)
        i = take_late(&table, i);
    if (table.n_shown)
        cli_table_draw(&table.text, terminal, out);
    if (table.n_hidden)
        cli_table_fact(terminal, out, "", "and %zu more; --json has them all", table.n_hidden);
    if (table.n_small)
        cli_table_fact(terminal, out, table.n_shown ? "" : "taken late",
                       "%zu small block%s of %s together", table.n_small,
                       table.n_small == 1 ? "" : "s", mt_format_size(table.small_bytes, size));
}
