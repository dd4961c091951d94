/* SPDX-License-Identifier: MIT */
/* Judging a session. */
#include "cli/profile/verdict.h"

#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <memtally/error.h>

#include "cli/command.h"
#include "cli/console.h"

/* The last lines of the engine's log, made fit for a terminal. */
static void show_tail(const struct mt_profile_outcome *outcome, const char *directory)
{
    struct cli_terminal terminal = cli_terminal_of(STDERR_FILENO);
    char text[PATH_MAX + 64];
    if (outcome->n_tail > 0)
        cli_complain_lines("the engine's last output:", "  ", terminal.utf8);
    for (size_t i = 0; i < outcome->n_tail; i++)
        cli_complain_lines(*outcome->tail[i] ? outcome->tail[i] : "\n", "  | ", terminal.utf8);
    snprintf(text, sizeof text, "the recording up to here and engine.log are in %s",
             directory ? directory : "");
    if (directory && outcome->recorded)
        cli_complain_lines(text, "  ", terminal.utf8);
}

static void complain_of_end(const struct mt_profile_job *job,
                            const struct mt_profile_outcome *outcome)
{
    const char *name = job->engine->driver->name;
    const char *doing = job->journal.doing;
    int signal = outcome->result.signal;
    if (signal)
        cli_complain("%s was killed by SIG%s (phase: %s)%s", name, sigabbrev_np(signal), doing,
                     signal == SIGKILL ? "; did the machine run out of memory?" : "");
    else
        cli_complain("%s failed with status %d (phase: %s)", name, outcome->result.exit_code,
                     doing);
}

/* An engine that ended by itself, and not well. A service that dies also fails its requests, which
 * says less. */
static int judge_end(const struct mt_profile_job *job, const struct mt_profile_outcome *outcome)
{
    const struct mt_error *error = &job->journal.error;
    if (error->code && !job->engine->driver->drive && !outcome->result.signal)
        cli_complain("%s", error->text);
    else
        complain_of_end(job, outcome);
    return outcome->result.exit_code;
}

static int judge_error(const struct mt_profile_job *job)
{
    cli_complain("%s", job->journal.error.text);
    return job->journal.error.code == MT_EARG ? CLI_EXIT_USAGE : CLI_EXIT_NO;
}

static uint64_t count_repeats(const struct mt_profile_job *job)
{
    uint64_t n = 0;
    for (size_t i = 0; i < job->journal.n_runs; i++)
        n += job->journal.runs[i].run > 0;
    return n;
}

static int judge_runs(const struct mt_profile_job *job)
{
    uint64_t n = count_repeats(job);
    if (n == job->settings->repeats)
        return CLI_EXIT_OK;
    cli_complain("%s ended after %" PRIu64 " of %" PRIu64
                 " runs, and printed something that memtally does not expect",
                 job->engine->driver->name, n, job->settings->repeats);
    return CLI_EXIT_NO;
}

static int judge(struct mt_profile_job *job, const struct mt_profile_outcome *outcome)
{
    const struct mt_profile_driver *driver = job->engine->driver;
    if (!outcome->ended_by_us && outcome->result.exit_code != 0)
        return judge_end(job, outcome);
    if (driver->conclude && !job->journal.error.code)
        driver->conclude(job);
    if (job->journal.error.code)
        return judge_error(job);
    return judge_runs(job);
}

int profile_verdict(struct mt_profile_job *job, const struct mt_profile_outcome *outcome,
                    const char *directory)
{
    if (outcome->interrupted) {
        cli_complain("stopped by SIG%s", sigabbrev_np(outcome->interrupted));
        return 128 + outcome->interrupted;
    }
    int code = judge(job, outcome);
    if (code != CLI_EXIT_OK)
        show_tail(outcome, directory);
    return code;
}
