/* SPDX-License-Identifier: MIT */
/* What came of a rehearsal, as the part of a document that only a rehearsal has. Knows no model and
 * no estimate. */
#include "answer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memtally/error.h>
#include <memtally/units.h>

#include "advise/search.h"
#include "advise/suggest.h"
#include "base/strbuf.h"
#include "drive/engines.h"
#include "drive/pretend_path.h"

#define PHASES_MAX 1024

void mt_advise_answer_note(struct mt_advise_answer *answer, const char *format, ...)
{
    size_t length = strlen(answer->note);
    va_list arguments;
    if (length && length + 1 < sizeof answer->note)
        answer->note[length++] = ' ';
    va_start(arguments, format);
    vsnprintf(answer->note + length, sizeof answer->note - length, format, arguments);
    va_end(arguments);
}

void mt_advise_answer_count(struct mt_advise_answer *answer)
{
    const struct mt_advise_changes *changes = &answer->changes;
    if (changes->n)
        return;
    if (!changes->n_tried)
        mt_advise_answer_note(answer, changes->is_cut_short
                                          ? "The search for flags that fit was broken off."
                                          : "memtally knows no change of flags that would make "
                                            "room.");
    else
        mt_advise_answer_note(
            answer, "No change of flags that was tried fits%s%s, in %zu more rehearsal%s%s.",
            *changes->least ? ": not even " : "", changes->least, changes->n_tried,
            changes->n_tried == 1 ? "" : "s",
            changes->is_cut_short ? ", and then the search was broken off" : "");
}

/* Looks for flags that fit. What keeps it from looking is no failure of the rehearsal: a note. */
void mt_advise_answer_find_changes(const struct mt_drive_job *job, struct mt_advise_answer *answer)
{
    const struct mt_drive_result *result = &answer->result;
    struct mt_rehearsal_options options;
    struct mt_error error = {.offset = MT_NO_OFFSET};
    char pretend[PATH_MAX];
    if (!job->pretend_path &&
        mt_drive_find_pretend(job->environment, pretend, sizeof pretend, NULL) < 0)
        return;
    mt_drive_job_options(job, result->folder, job->pretend_path ? job->pretend_path : pretend,
                         &options);
    const struct mt_advise_suggest_settings settings = {
        .options = &options,
        .rehearsal = result->rehearsal,
        .place = result->refusal->place,
        .was = result->outcome,
        .n_requests = result->report.is_ready ? job->n_requests : 0,
        .listener = job->listener,
        .interrupted = job->interrupted,
    };
    int code = mt_advise_suggest(&settings, &answer->changes, &error);
    mt_drive_hush(job->listener);
    if (code < 0)
        mt_advise_answer_note(answer, "memtally suggests no flags: %s.", error.text);
    else
        mt_advise_answer_count(answer);
}

/* Flags of llama.cpp's as memtally's options; "" where a flag has no option. */
static void write_options(const char *flags, char *text, size_t size)
{
    static const char *const pairs[][2] = {
        {"context", "--context"},     {"gpu_layers", "--gpu-layers"},
        {"batch", "--batch"},         {"ubatch", "--ubatch"},
        {"sequences", "--sequences"}, {"kv_type_k", "--kv-type-k"},
        {"kv_type_v", "--kv-type-v"}, {"flash_attention", "--flash-attn"},
        {"cpu_experts", "--cpu-moe"},
    };
    struct mt_strbuf out = {0};
    char *copy = strdup(flags);
    char *rest = copy;
    int is_flag = 1;
    for (char *word; (word = strsep(&rest, " ")) != NULL; is_flag = !is_flag) {
        const char *option = is_flag ? NULL : word;
        for (size_t i = 0; is_flag && i < sizeof pairs / sizeof *pairs; i++)
            if (mt_drive_engine_spells(NULL, pairs[i][0], word))
                option = pairs[i][1];
        if (!option) {
            out.length = 0;
            break;
        }
        mt_strbuf_printf(&out, "%s%s", out.length ? " " : "", option);
    }
    snprintf(text, size, "%s", out.length ? mt_strbuf_text(&out) : "");
    mt_strbuf_finish(&out);
    free(copy);
}

static const char *name_of(const struct mt_drive_result *result)
{
    static const char *const names[] = {
        [MT_DRIVE_RUNS] = "ran",         [MT_DRIVE_RUNS_SHORT] = "coped",
        [MT_DRIVE_RUNS_OUT] = "ran out", [MT_DRIVE_FAILS] = "crashed",
        [MT_DRIVE_UNDECIDED] = "hung",   [MT_DRIVE_RUNS_ON] = "ran on"};
    if (result->report.end == MT_DRIVE_INTERRUPTED)
        return "interrupted";
    int is_busy =
        result->outcome == MT_DRIVE_UNDECIDED && result->is_cuda && result->report.works_on;
    return is_busy ? "busy" : names[result->outcome];
}

void mt_advise_note_runs_on(struct mt_advise_answer *answer)
{
    const struct mt_rehearsal_status *status = &answer->result.status;
    mt_advise_answer_note(
        answer,
        "memtally ended the program while it worked, after %.0f s, the last %.0f s without new "
        "memory. The figures leave out what it would take later; --timeout gives it longer.",
        (double)status->elapsed_ns / 1e9, (double)status->quiet_ns / 1e9);
}

/* The engine's phases and figures, as many as a document takes. */
static void tell_phases(struct mt_advise_answer *answer)
{
    struct mt_rehearsal *rehearsal = answer->result.rehearsal;
    struct mt_rehearsed *document = &answer->rehearsal;
    if (!answer->result.is_cuda || !rehearsal)
        return;
    answer->phases = calloc(PHASES_MAX, sizeof *answer->phases);
    answer->figures = calloc(PHASES_MAX, sizeof *answer->figures);
    answer->allocators = calloc(PHASES_MAX, sizeof *answer->allocators);
    if (!answer->phases || !answer->figures || !answer->allocators)
        return;
    size_t n = 0;
    mt_rehearsal_refresh(rehearsal);
    while (n < PHASES_MAX && mt_rehearsal_phase_at(rehearsal, n, &answer->phases[n]) == 0)
        n++;
    document->phases = answer->phases;
    document->n_phases = n;
    for (n = 0; n < PHASES_MAX && mt_rehearsal_figure_at(rehearsal, n, &answer->figures[n]) == 0;)
        n++;
    document->figures = answer->figures;
    document->n_figures = n;
    for (n = 0;
         n < PHASES_MAX && mt_rehearsal_allocator_at(rehearsal, n, &answer->allocators[n]) == 0;)
        n++;
    document->allocators = answer->allocators;
    document->n_allocators = n;
}

void mt_advise_answer_fill(const struct mt_drive_job *job, int with_options,
                           struct mt_advise_answer *answer)
{
    const struct mt_drive_result *result = &answer->result;
    const struct mt_drive_report *report = &result->report;
    size_t n_late = mt_drive_late(result, &answer->late);
    for (size_t i = 0; i < answer->changes.n; i++) {
        const struct mt_advise_change *change = &answer->changes.items[i];
        snprintf(answer->options[i], sizeof answer->options[i], "%s", change->options);
        if (with_options)
            write_options(change->flags, answer->options[i], sizeof answer->options[i]);
        answer->document_changes[i] = (struct mt_rehearsed_change){
            .flags = change->flags,
            .instead_of = change->instead_of,
            .costs = change->costs,
            .options = *answer->options[i] ? answer->options[i] : NULL,
            .held_bytes = change->held_bytes ? change->held_bytes : MT_UNKNOWN,
            .capacity_bytes = change->held_bytes ? change->capacity_bytes : MT_UNKNOWN};
    }
    answer->rehearsal = (struct mt_rehearsed){
        .argv = job->argv,
        .outcome = name_of(result),
        .ran = mt_drive_ran(result),
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
        .late = answer->late,
        .n_late = n_late,
        .changes = answer->document_changes,
        .n_changes = answer->changes.n,
        .n_tried = answer->changes.n_tried,
        .phase = *result->phase ? result->phase : NULL,
        .held = result->held,
    };
    tell_phases(answer);
    if (result->is_cuda && result->refusal && result->rehearsal)
        answer->rehearsal.stack = mt_rehearsal_stack_of(result->rehearsal, result->refusal);
}

void mt_advise_answer_finish(struct mt_advise_answer *answer)
{
    free(answer->late);
    free(answer->phases);
    free(answer->figures);
    free(answer->allocators);
    mt_drive_result_finish(&answer->result);
    *answer = (struct mt_advise_answer){0};
}
