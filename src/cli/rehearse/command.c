/* SPDX-License-Identifier: MIT */
/* A program's command line, rehearsed and told as a document. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/command.h"
#include "cli/rehearse/pretend_path.h"
#include "cli/rehearse/rehearse.h"
#include "cli/rehearse/spills.h"
#include "emit/text.h"

/* What a document of a rehearsal refers to. */
struct told {
    struct rehearse_result result;
    struct rehearse_changes changes;
    struct cli_document_change document_changes[REHEARSE_CHANGES_MAX];
    struct cli_document_late *late;
    struct cli_document_rehearsal rehearsal;
    struct mt_estimate *estimate;
    const char *notes[1];
    char note[600];
};

/* Looks for flags that fit. What keeps it from looking is no failure of the rehearsal: a note. */
static void find_changes(const struct rehearse_job *job, struct told *told)
{
    const struct rehearse_result *result = &told->result;
    struct mt_rehearse_options options;
    struct mt_error error = {.offset = MT_NO_OFFSET};
    char pretend[PATH_MAX];
    if (!job->pretend_path && rehearse_find_pretend(pretend, sizeof pretend, NULL) < 0)
        return;
    rehearse_job_options(job, result->folder, job->pretend_path ? job->pretend_path : pretend,
                         &options);
    options.environment = job->environment ? job->environment : environ;
    const struct rehearse_suggest_settings settings = {
        .options = &options,
        .rehearsal = result->rehearsal,
        .place = result->refusal->place,
        .was = result->outcome,
        .n_requests = result->report.is_ready ? job->n_requests : 0,
        .progress = job->progress,
        .interrupted = job->interrupted,
    };
    int code = rehearse_suggest(&settings, &told->changes, &error);
    if (job->progress)
        cli_progress_clear(job->progress);
    if (code < 0)
        snprintf(told->note, sizeof told->note, "No flags are suggested: %s.", error.text);
    else if (!told->changes.n)
        snprintf(told->note, sizeof told->note,
                 "No change of flags was found with which it would fit, in %zu more rehearsals%s.",
                 told->changes.n_tried, told->changes.is_cut_short ? ", which were cut short" : "");
}

static const char *name_of(enum rehearse_outcome outcome)
{
    static const char *const names[] = {[REHEARSE_RUNS] = "ran",
                                        [REHEARSE_RUNS_SHORT] = "coped",
                                        [REHEARSE_RUNS_OUT] = "ran out",
                                        [REHEARSE_FAILS] = "crashed",
                                        [REHEARSE_UNDECIDED] = "hung"};
    return names[outcome];
}

static void tell(const struct rehearse_job *job, struct told *told)
{
    const struct rehearse_result *result = &told->result;
    const struct rehearse_drive_report *report = &result->report;
    size_t n_late = rehearse_late(result, &told->late);
    for (size_t i = 0; i < told->changes.n; i++) {
        const struct rehearse_change *change = &told->changes.items[i];
        told->document_changes[i] =
            (struct cli_document_change){change->flags, change->instead_of, change->costs};
    }
    told->rehearsal = (struct cli_document_rehearsal){
        .argv = job->argv,
        .outcome = name_of(result->outcome),
        .ran = result->outcome == REHEARSE_RUNS || result->outcome == REHEARSE_RUNS_SHORT,
        .device_kind = !job->n_devices    ? NULL
                       : job->device_kind ? job->device_kind
                                          : "cuda",
        .api_version = result->status.api_version,
        .is_ready = report->is_ready,
        .n_requests = report->n_requests,
        .n_requests_refused = report->n_refused,
        .complaint = report->complaint,
        .prompt_tokens = report->prompt_tokens,
        .elapsed_ns = result->status.elapsed_ns,
        .exit_code = result->status.running ? -1 : result->status.exit_code,
        .signal = result->status.signal,
        .refusal = result->refusal,
        .n_refusals = result->n_refusals,
        .words = result->words,
        .late = told->late,
        .n_late = n_late,
        .changes = told->document_changes,
        .n_changes = told->changes.n,
    };
}

static int write_document(const struct told *told, const struct rehearse_output *output)
{
    struct cli_document document = CLI_DOCUMENT_EMPTY;
    struct cli_terminal terminal = cli_terminal_of(STDOUT_FILENO);
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct mt_strbuf out = {0};
    document.tally = &told->estimate->tally;
    document.estimate = told->estimate;
    document.rehearsal = &told->rehearsal;
    document.explain = output->explain;
    document.notes = told->notes;
    document.n_notes = told->notes[0] != NULL;
    if (output->path)
        terminal.colour = 0;
    int code = cli_document_render(&document, output->format, &terminal, &out, &error)
                   ? cli_fail(&error)
                   : cli_write_output(&out, output->path);
    mt_strbuf_finish(&out);
    return code;
}

/* Nothing can be said of memory, so there is no document. */
static int fail_unseen(const struct rehearse_result *result)
{
    cli_complain("rehearse: %s", result->why);
    if (*result->words && (result->status.running || result->status.exit_code)) {
        struct mt_strbuf escaped = {0};
        const char *words = result->words;
        size_t length = strlen(words);
        cli_complain("the program's last words:");
        if (length > 1000 && strchr(words + length - 1000, '\n'))
            words = strchr(words + length - 1000, '\n') + 1;
        for (; *words; words += strcspn(words, "\n"), words += *words == '\n') {
            struct mt_strbuf line = {0};
            mt_strbuf_append(&line, words, strcspn(words, "\n"));
            mt_text_escape(&escaped, mt_strbuf_text(&line), 0);
            mt_strbuf_puts(&escaped, "\n");
            mt_strbuf_finish(&line);
        }
        fputs(mt_strbuf_text(&escaped), stderr);
        mt_strbuf_finish(&escaped);
    }
    return CLI_EXIT_CANNOT;
}

static int exit_of(const struct told *told)
{
    enum mt_verdict verdict = told->estimate->verdict;
    int fits =
        verdict == MT_VERDICT_FITS || verdict == MT_VERDICT_TIGHT || verdict == MT_VERDICT_UNKNOWN;
    return told->rehearsal.ran && fits ? CLI_EXIT_OK : CLI_EXIT_NO;
}

/* A server that goes on with fewer past prompts on a small host would do so with a smaller cache of
 * them from the start. What else a program copes with is its own affair. */
static int wants_changes(const struct rehearse_result *result)
{
    return result->outcome == REHEARSE_RUNS_OUT ||
           (result->outcome == REHEARSE_RUNS_SHORT && !strcmp(result->refusal->place, "host"));
}

static int conclude(const struct rehearse_job *job, const struct mt_predict_settings *settings,
                    const struct rehearse_output *output, struct told *told)
{
    struct mt_error error = {.offset = MT_NO_OFFSET};
    if (told->result.is_unseen)
        return fail_unseen(&told->result);
    if (told->result.outcome == REHEARSE_RUNS || told->result.outcome == REHEARSE_RUNS_SHORT)
        rehearse_command_spills(job->argv, job->environment ? job->environment : environ, settings,
                                told->result.tally, told->result.spills,
                                sizeof told->result.spills);
    if (output->with_changes && wants_changes(&told->result))
        find_changes(job, told);
    if (*told->note)
        told->notes[0] = told->note;
    if (rehearse_estimate(&told->result, NULL, settings, &told->estimate, &error) < 0)
        return cli_fail(&error);
    tell(job, told);
    int code = write_document(told, output);
    return code ? code : exit_of(told);
}

/* Without room for the account nothing was rehearsed: that is no answer. */
static int fail(const struct mt_error *error)
{
    int code = cli_fail(error);
    return error->code == MT_EIO ? CLI_EXIT_CANNOT : code;
}

int rehearse_command(struct rehearse_job *job, const struct mt_predict_settings *settings,
                     const struct rehearse_output *output)
{
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct told *told = calloc(1, sizeof *told);
    if (!told) {
        cli_complain("out of memory");
        return CLI_EXIT_CANNOT;
    }
    int code = rehearse_run(job, &told->result, &error) < 0 ? fail(&error)
                                                            : conclude(job, settings, output, told);
    mt_estimate_destroy(told->estimate);
    free(told->late);
    rehearse_result_finish(&told->result);
    free(told);
    return code;
}
