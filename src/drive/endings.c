/* SPDX-License-Identifier: MIT */
/* What a rehearsal comes to: why a program did not run, and the estimate of one that did. */
#include <inttypes.h>
#include <memtally/predict.h>
#include <memtally/units.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "job.h"
#include "last_words.h"
#include "sentences.h"
#include "words.h"

#define PHASE_BYTES 112
#define LINE_BYTES  240
#define QUIET_PART  4 /* of its time, in which a program took nothing more */

/* A mark for people: what a program does after the mark. */
static const char *words_of(const char *mark, char text[PHASE_BYTES])
{
    static const struct {
        const char *mark;
        const char *words;
    } marks[] = {{"listen", "while it loaded the model"},
                 {"plan", "while it loaded the model"},
                 {"model", "while it made the context"},
                 {"context", "after it made the context"},
                 {"serving", "while it served"},
                 {"ready", "while it served"},
                 {"process ended", "after a process of it had ended"}};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (!strcmp(mark, marks[i].mark))
            return marks[i].words;
    const char *step = strstr(mark, ": ");
    snprintf(text, PHASE_BYTES, step ? "while it served: %.80s" : "after the mark '%.80s'",
             step ? step + 2 : mark);
    return text;
}

/* What the program did when something happened: the last mark before it. */
static const char *phase_of(struct mt_rehearsal *rehearsal, const struct mt_rehearsal_event *until)
{
    const struct mt_rehearsal_event *event;
    const char *phase = NULL;
    for (size_t i = 0; (event = mt_rehearsal_event_at(rehearsal, i)) != NULL && event != until; i++)
        if (event->kind == MT_REHEARSAL_MARK)
            phase = event->name;
    return phase;
}

/* The engine's innermost phase of a process whose allocation a device refused. */
static void find_phase(struct mt_drive_result *result)
{
    struct mt_rehearsal *rehearsal = result->rehearsal;
    const struct mt_rehearsal_event *event = result->refusal;
    struct mt_rehearsal_phase phase;
    uint64_t begun_ns = 0;
    mt_rehearsal_refresh(rehearsal);
    for (size_t i = 0; mt_rehearsal_phase_at(rehearsal, i, &phase) == 0; i++) {
        if (phase.pid != event->pid || phase.begin_ns > event->time_ns ||
            phase.end_ns < event->time_ns || phase.begin_ns < begun_ns)
            continue;
        begun_ns = phase.begin_ns;
        snprintf(result->phase, sizeof result->phase, "%.80s", phase.name);
        result->phase_category = phase.category;
    }
}

/* Whether the process took more after the refusal: it coped, and then ended by something else. */
static int went_on(const struct mt_drive_result *result)
{
    const struct mt_rehearsal_event *event;
    for (size_t i = result->refusal_index + 1;
         (event = mt_rehearsal_event_at(result->rehearsal, i)) != NULL; i++)
        if (event->kind == MT_REHEARSAL_ALLOC && event->pid == result->refusal->pid &&
            !strcmp(event->place, result->refusal->place))
            return 1;
    return 0;
}

static void explain_refusal(struct mt_drive_result *result)
{
    const struct mt_rehearsal_event *refusal = result->refusal;
    char words[PHASE_BYTES];
    const char *mark = phase_of(result->rehearsal, refusal);
    const char *phase = NULL;
    if (*result->phase) {
        snprintf(words, sizeof words, "in the engine's phase '%.80s'", result->phase);
        phase = words;
    }
    if (result->is_cuda && went_on(result))
        phase = "the program took more after it; its last output may say why it ended";
    if (!phase && result->is_cuda && mt_drive_python_place(result->said, words, sizeof words))
        phase = words;
    if (!phase && mark)
        phase = words_of(mark, words);
    else if (!phase)
        phase = result->is_cuda ? "before it was ready" : "while it loaded the model";
    char asked[MT_SIZE_TEXT];
    char there[MT_SIZE_TEXT];
    char short_of[MT_SIZE_TEXT];
    snprintf(result->why, sizeof result->why,
             "%s has no room for %s of %s (%s%s%s): %s are free, %s are missing, %.2f s after the "
             "start (%s)",
             refusal->place, mt_format_size(refusal->bytes, asked),
             refusal->category ? mt_category_name(refusal->category) : "memory", refusal->name,
             *refusal->name && *refusal->detail ? ": " : "", refusal->detail,
             mt_format_size(refusal->free_bytes, there),
             mt_format_size(refusal->missing_bytes, short_of), (double)refusal->time_ns / 1e9,
             phase);
}

/* Limits that the program had from us, and what its words tell of why it failed. */
static const char *hint_of(const struct mt_drive_result *result)
{
    struct rlimit addresses;
    size_t length;
    if (result->status.n_missing)
        return "; it called functions of CUDA that a rehearsal does not have: see the notes";
    if (strstr(result->said, "CUDA out of memory. Tried to allocate"))
        return "; PyTorch refused an allocation by a limit of its own, as of "
               "set_per_process_memory_fraction()";
    if (mt_drive_words_find(result->words, "says.unknown_model", &length))
        return "; a newer build of the engine may know the model";
    if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY)
        return "; its addresses are limited (ulimit -v), and pretended devices take addresses too";
    return "";
}

static void explain_crash(struct mt_drive_result *result)
{
    const struct mt_rehearsal_status *status = &result->status;
    const char *when = result->report.is_ready ? "while it answered" : "before it was ready";
    double seconds = (double)status->elapsed_ns / 1e9;
    char end[64];
    char line[LINE_BYTES];
    int has_line = result->is_cuda && mt_drive_last_line(result->said, line, sizeof line);
    if (status->signal)
        snprintf(end, sizeof end, "killed by SIG%.20s",
                 sigabbrev_np(status->signal) ? sigabbrev_np(status->signal) : "?");
    else
        snprintf(end, sizeof end, "exit status %d", status->exit_code);
    snprintf(result->why, sizeof result->why,
             "the program itself failed, with no allocation refused: %s after %.2f s, %s%s%s%s",
             end, seconds, when, hint_of(result), has_line ? "; it said: " : "",
             has_line ? line : "");
}

int mt_drive_ran(const struct mt_drive_result *result)
{
    return result->outcome == MT_DRIVE_RUNS || result->outcome == MT_DRIVE_RUNS_SHORT ||
           result->outcome == MT_DRIVE_RUNS_ON;
}

/* Whether the engine is in one of its phases: loading, or a pass that does not come back. */
static int is_in_phase(struct mt_rehearsal *rehearsal)
{
    struct mt_rehearsal_phase phase;
    mt_rehearsal_refresh(rehearsal);
    for (size_t i = 0; mt_rehearsal_phase_at(rehearsal, i, &phase) == 0; i++)
        if (phase.end_ns == UINT64_MAX)
            return 1;
    return 0;
}

void mt_drive_settle(struct mt_drive_result *result)
{
    const struct mt_rehearsal_status *status = &result->status;
    int is_quiet = status->quiet_ns > status->elapsed_ns / QUIET_PART;
    if (result->outcome == MT_DRIVE_UNDECIDED && result->is_cuda && !result->refusal && is_quiet &&
        result->report.works_on && !is_in_phase(result->rehearsal))
        result->outcome = MT_DRIVE_RUNS_ON;
}

/* On ggml nothing is computed, and what takes so long is stuck. On CUDA the processors say whether
 * the program still works, on the host, at what it has begun. */
static void explain_no_end(struct mt_drive_result *result)
{
    if (result->report.end == MT_DRIVE_INTERRUPTED) {
        snprintf(result->why, sizeof result->why,
                 "the rehearsal was interrupted after %.1f s; the figures end there",
                 (double)result->status.elapsed_ns / 1e9);
        return;
    }
    snprintf(
        result->why, sizeof result->why,
        !result->is_cuda
            ? "the program itself hangs: neither ready nor at its end after %.0f s, the last "
              "%.0f s without a sign of work"
        : result->report.works_on
            ? "memtally ended the program while it computed: after %.0f s it was neither ready "
              "nor at its end, the last %.0f s without new memory; what it took until then is "
              "below, and --timeout gives it longer"
            : "the program hangs: after %.0f s it is neither ready nor at its end, and the last "
              "%.0f s it took no new memory and computed next to nothing; it waits for "
              "something that does not come",
        (double)result->status.elapsed_ns / 1e9, (double)result->status.quiet_ns / 1e9);
}

void mt_drive_explain_end(struct mt_drive_result *result)
{
    switch (result->outcome) {
    case MT_DRIVE_RUNS_OUT:
        if (result->is_cuda && result->refusal)
            find_phase(result);
        result->lacks_memory = result->is_cuda && mt_drive_explain_foresight(result);
        if (!result->lacks_memory)
            explain_refusal(result);
        break;
    case MT_DRIVE_FAILS:
        result->lacks_memory = mt_drive_explain_engine(result);
        if (result->lacks_memory)
            mt_drive_add_circumstances(result);
        else
            explain_crash(result);
        break;
    case MT_DRIVE_UNDECIDED:
        explain_no_end(result);
        break;
    case MT_DRIVE_RUNS:
    case MT_DRIVE_RUNS_SHORT:
    case MT_DRIVE_RUNS_ON:
        break;
    }
}

int mt_drive_estimate(const struct mt_drive_result *result, const struct mt_model *model,
                      const struct mt_predict_settings *settings, struct mt_estimate **estimate,
                      struct mt_error *error)
{
    struct mt_rehearsal_phase phase;
    int is_interrupted = result->report.end == MT_DRIVE_INTERRUPTED;
    int has_torch = result->is_cuda && mt_rehearsal_refresh(result->rehearsal) == 0 &&
                    mt_rehearsal_phase_at(result->rehearsal, 0, &phase) == 0;
    const struct mt_engine_plan said = {
        .tally = result->tally,
        .version = *result->version ? result->version : NULL,
        .engine = has_torch         ? "PyTorch"
                  : result->is_cuda ? "CUDA"
                                    : NULL,
        .cannot = *result->why && !is_interrupted ? result->why : NULL,
        .spills = *result->spills ? result->spills : NULL,
        .notes = result->tally->notes,
        .n_notes = result->tally->n_notes,
    };
    int code = mt_estimate_from_plan(model, settings, &said, estimate, error);
    if (code == 0 && is_interrupted) {
        (*estimate)->verdict = MT_VERDICT_UNKNOWN;
        (*estimate)->reason = result->why;
    }
    return code;
}
