/* SPDX-License-Identifier: MIT */
/* A program's command line, rehearsed and told as a document. */
#include <memtally/error.h>
#include <memtally/predict.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advise/answer.h"
#include "advise/cuda_suggest.h"
#include "advise/spills.h"
#include "base/out_of_memory.h"
#include "cli/command.h"
#include "cli/rehearse/command.h"

/* What the document refers to. */
struct command_answer {
    struct mt_advise_answer answer;
    struct mt_estimate *estimate;
    const char *notes[3];
    size_t n_notes;
    struct mt_strbuf placed;
    struct rehearse_excess excess;
};

static int write_document(const struct command_answer *answer, const struct rehearse_output *output)
{
    struct cli_document document = CLI_DOCUMENT_EMPTY;
    struct cli_terminal terminal = cli_terminal_of_output(output->path);
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct mt_strbuf out = {0};
    document.tally = &answer->estimate->tally;
    document.estimate = answer->estimate;
    document.rehearsal = &answer->answer.rehearsal;
    document.explain = output->explain;
    document.notes = answer->notes;
    document.n_notes = answer->n_notes;
    int code = cli_document_render(&document, output->format, &terminal, &out, &error)
                   ? cli_fail(&error)
                   : cli_write_output(&out, output->path);
    mt_strbuf_finish(&out);
    return code;
}

/* Nothing can be said of memory, so there is no document. */
static int fail_unseen(const struct mt_drive_job *job, const struct mt_drive_result *result)
{
    cli_complain("rehearse: %s", result->why);
    if (!(job->listener && job->listener->output) && *result->words &&
        (result->status.running || result->status.exit_code)) {
        const char *words = result->words;
        size_t length = strlen(words);
        cli_complain("the program's last output:");
        if (length > 1000 && strchr(words + length - 1000, '\n'))
            words = strchr(words + length - 1000, '\n') + 1;
        cli_complain_lines(words, "", 0);
    }
    return CLI_EXIT_CANNOT;
}

static int exit_of(const struct command_answer *answer)
{
    enum mt_verdict verdict = answer->estimate->verdict;
    int fits =
        verdict == MT_VERDICT_FITS || verdict == MT_VERDICT_TIGHT || verdict == MT_VERDICT_UNKNOWN;
    return answer->answer.rehearsal.ran && fits ? CLI_EXIT_OK : CLI_EXIT_NO;
}

/* A server that goes on with fewer past prompts on a small host would do so with a smaller cache of
 * them from the start. What else a program copes with is its own affair. */
static int wants_changes(const struct mt_drive_result *result)
{
    return result->outcome == MT_DRIVE_RUNS_OUT ||
           (result->outcome == MT_DRIVE_RUNS_SHORT && !strcmp(result->refusal->place, "host"));
}

/* What ran may have taken more than it was allowed. What did not, and is new, is kept. */
static int hold_to_bounds(const struct mt_drive_job *job, struct rehearse_bounds *bounds,
                          struct command_answer *answer, struct mt_error *error)
{
    struct rehearse_excess *excess = &answer->excess;
    struct mt_rehearsed *rehearsal = &answer->answer.rehearsal;
    struct mt_estimate *estimate = answer->estimate;
    rehearsal->limit_bytes = bounds->limit_bytes;
    rehearsal->baseline = bounds->path;
    rehearsal->tolerance_ratio = bounds->tolerance_ratio;
    if (!mt_drive_ran(&answer->answer.result) ||
        answer->answer.result.report.end == MT_DRIVE_INTERRUPTED)
        return 0;
    if (rehearse_bounds_tell(job, &answer->answer.result, &estimate->tally, bounds, excess))
        return mt_out_of_memory(error);
    if (!excess->n)
        return rehearse_baseline_keep(bounds, &estimate->tally, &rehearsal->is_added, error);
    rehearsal->beyond = excess->list;
    rehearsal->n_beyond = excess->n;
    estimate->verdict = MT_VERDICT_EXCEEDS;
    estimate->reason = mt_strbuf_text(&excess->reason);
    answer->notes[answer->n_notes++] = mt_strbuf_text(&excess->note);
    return 0;
}

static int conclude(const struct mt_drive_job *job, const struct mt_predict_settings *settings,
                    const struct rehearse_output *output, struct command_answer *answer)
{
    struct mt_error error = {.offset = MT_NO_OFFSET};
    if (answer->answer.result.is_unseen)
        return fail_unseen(job, &answer->answer.result);
    if (answer->answer.result.outcome == MT_DRIVE_RUNS_ON)
        mt_advise_note_runs_on(&answer->answer);
    if (mt_drive_ran(&answer->answer.result))
        mt_advise_command_spills(job->argv, job->environment, settings, answer->answer.result.tally,
                                 answer->answer.result.spills, sizeof answer->answer.result.spills);
    if (output->with_changes && answer->answer.result.is_cuda) {
        if (answer->answer.result.outcome == MT_DRIVE_RUNS_OUT ||
            answer->answer.result.lacks_memory)
            mt_advise_cuda_suggest(job, &answer->answer);
    } else if (output->with_changes && wants_changes(&answer->answer.result))
        mt_advise_answer_find_changes(job, &answer->answer);
    if (*answer->answer.note)
        answer->notes[answer->n_notes++] = answer->answer.note;
    if (mt_drive_estimate(&answer->answer.result, NULL, settings, &answer->estimate, &error) < 0)
        return cli_fail(&error);
    mt_advise_answer_fill(job, 0, &answer->answer);
    if (output->placed) {
        rehearse_placed_tell(output->placed, answer->estimate, &answer->placed);
        answer->notes[answer->n_notes++] = mt_strbuf_text(&answer->placed);
    }
    if (hold_to_bounds(job, output->bounds, answer, &error))
        return cli_fail(&error);
    int code = write_document(answer, output);
    return code ? code : exit_of(answer);
}

/* Without room for the account nothing was rehearsed: that is no answer. */
static int fail(const struct mt_error *error)
{
    int code = cli_fail(error);
    return error->code == MT_EIO ? CLI_EXIT_CANNOT : code;
}

int rehearse_answer_command(struct mt_drive_job *job, const struct mt_predict_settings *settings,
                            const struct rehearse_output *output)
{
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct command_answer *answer = calloc(1, sizeof *answer);
    if (!answer) {
        cli_complain("out of memory");
        return CLI_EXIT_CANNOT;
    }
    int code = mt_drive_run_to_answer(job, &answer->answer.result, &error) < 0
                   ? fail(&error)
                   : conclude(job, settings, output, answer);
    mt_estimate_destroy(answer->estimate);
    mt_advise_answer_finish(&answer->answer);
    mt_strbuf_finish(&answer->placed);
    rehearse_excess_finish(&answer->excess);
    free(answer);
    return code;
}
