/* SPDX-License-Identifier: MIT */
/* From what was typed to a document of a rehearsal, or to the table of a sweep. */
#include "cli/rehearse/model_command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advise/model.h"
#include "base/error.h"
#include "base/out_of_memory.h"
#include "cli/interrupt.h"
#include "cli/rehearse/device_names.h"
#include "cli/rehearse/sweep_output.h"
#include "cli/residue_store.h"
#include "cli/teller.h"
#include "drive/engines.h"

static int check(const struct rehearse_model_options *options, struct mt_error *error)
{
    const struct estimate_options *estimate = options->estimate;
    const char *engine = estimate->engine;
    if (!mt_drive_engine_is(engine, "rehearsed", "plan"))
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "rehearse: llama.cpp, vllm, sglang and transformers take a MODEL, %.60s "
                       "does not; give its own command after --",
                       engine);
    if (estimate->cpu)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "rehearse: '--cpu' works with estimates by rules only: a rehearsed engine "
                       "runs on this machine's processor");
    if (options->sweep->n && estimate->explain)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "rehearse: '--explain' works with one rehearsal, not with a sweep");
    if (options->sweep->n && (options->folder || options->n_requests))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "rehearse: '%s' works with one rehearsal, not with a sweep",
                       options->folder ? "--folder" : "--requests");
    if (options->n_requests && estimate_program(estimate) != MT_PROGRAM_SERVER)
        return mt_fail(
            error, MT_EARG, MT_NO_OFFSET,
            "rehearse: '--requests' needs a server, and --program names another program");
    return 0;
}

static int render_sweep(const struct mt_advise_sweep *sweep, const struct estimate_result *result,
                        const struct estimate_options *options, struct mt_strbuf *out,
                        struct mt_error *error)
{
    struct cli_terminal terminal = cli_terminal_of_output(options->output);
    if (options->format == CLI_FORMAT_CSV)
        rehearse_sweep_csv(sweep, out);
    else if (options->format == CLI_FORMAT_JSON)
        rehearse_sweep_json(sweep, &result->document_model, out);
    else
        rehearse_sweep_table(sweep, &result->document_model, &terminal, out);
    return mt_strbuf_failed(out) ? mt_out_of_memory(error) : 0;
}

/* All points of a sweep that failed are a failure; some are lines of its table. */
static int exit_of_sweep(const struct mt_advise_sweep *sweep)
{
    for (size_t i = 0; i < sweep->n_points; i++)
        if (sweep->points[i].totals)
            return CLI_EXIT_OK;
    return CLI_EXIT_NO;
}

static int parse_axes(const struct rehearse_model_options *options, struct mt_advise_axes *axes,
                      struct mt_error *error)
{
    for (size_t i = 0; i < options->sweep->n; i++) {
        int result = mt_advise_axes_parse(axes, options->sweep->items[i], error);
        if (result)
            return result;
    }
    return 0;
}

static int sweep_with(struct mt_advise_sweep *sweep, struct estimate_result *made,
                      const struct estimate_request *request,
                      const struct rehearse_model_options *options, const char *name,
                      struct mt_strbuf *out, int *code, struct mt_error *error)
{
    struct mt_residue *residues = NULL;
    struct cli_teller teller;
    sweep->settings = request->settings;
    sweep->listener = &teller.listener;
    sweep->interrupted = request->interrupted;
    const struct mt_drive_stage_options wanted =
        estimate_stage(made, name, request, options->estimate);
    struct mt_advise_staged staged;
    cli_teller_init(&teller, !options->quiet, 0);
    int result = parse_axes(options, &sweep->axes, error);
    if (!result)
        result = cli_residues_for(made->model, &request->settings, &residues,
                                  &sweep->settings.n_residues, error);
    sweep->settings.residues = residues;
    if (!result)
        result = mt_advise_sweep_stage(sweep, &wanted, error);
    if (!result) {
        mt_advise_tell_stage(&sweep->stage, &staged);
        estimate_take_converted(&staged, &made->document_model);
        result = mt_advise_sweep_run(sweep, error);
    }
    if (!result)
        result = render_sweep(sweep, made, options->estimate, out, error);
    *code = result ? CLI_EXIT_NO : exit_of_sweep(sweep);
    free(residues);
    mt_advise_sweep_finish(sweep);
    return result;
}

static int sweep_model(struct estimate_result *made, const struct estimate_request *request,
                       const struct rehearse_model_options *options, const char *name,
                       struct mt_strbuf *out, int *code, struct mt_error *error)
{
    struct mt_advise_sweep *sweep = calloc(1, sizeof *sweep);
    if (!sweep)
        return mt_out_of_memory(error);
    int result = sweep_with(sweep, made, request, options, name, out, code, error);
    free(sweep);
    return result;
}

/* A rehearsal with its document. */
static int rehearse_one(struct estimate_result *made, struct estimate_request *request,
                        const struct rehearse_model_options *all, const char *name,
                        struct mt_strbuf *out, int *code, struct mt_error *error)
{
    const struct estimate_options *options = all->estimate;
    struct cli_teller teller;
    size_t n_notes = request->n_notes;
    struct mt_advise_model_report *report = calloc(1, sizeof *report);
    if (!report)
        return mt_out_of_memory(error);
    report->folder = all->folder;
    report->n_requests = all->n_requests;
    report->with_changes = !all->no_suggest;
    report->listener = &teller.listener;
    cli_teller_init(&teller, !all->quiet, 0);
    struct cli_terminal terminal = cli_terminal_of_output(options->output);
    request->report = report;
    int result = estimate_rehearse(made, name, request, options, error);
    if (!result) {
        if (*report->answer.note && request->n_notes < ESTIMATE_NOTES_MAX)
            request->notes[request->n_notes++] = report->answer.note;
        struct cli_document document = estimate_document(made, request, options);
        document.rehearsal = &report->answer.rehearsal;
        *code = estimate_exit_of(made);
        result =
            cli_document_render(&document, (enum cli_format)options->format, &terminal, out, error);
    }
    request->report = NULL;
    request->n_notes = n_notes;
    mt_advise_model_report_finish(report);
    free(report);
    return result;
}

/* What a command has while it runs, all zero at first. */
struct work {
    struct estimate_request request;
    struct estimate_result made;
    struct rehearse_device_names names;
};

static int perform(const char *name, const struct rehearse_model_options *options,
                   struct work *work, struct mt_strbuf *out, int *code, struct mt_error *error)
{
    const struct estimate_options *estimate = options->estimate;
    struct estimate_request *request = &work->request;
    int result = check(options, error);
    if (!result)
        result = estimate_request_init(request, estimate, error);
    if (!result && options->generation)
        result = estimate_choose_cards(request, options->generation, 0, error);
    if (!result)
        result = rehearse_name_devices(options->device_names, request->settings.n_devices,
                                       &work->names, error);
    request->device_names = work->names.of;
    if (!result) {
        struct mt_predict_settings plain = request->settings;
        plain.weight_type = NULL;
        result = estimate_make(&work->made, name, estimate->remote, &plain, -1, error);
    }
    if (!result && options->sweep->n)
        result = sweep_model(&work->made, request, options, name, out, code, error);
    else if (!result)
        result = rehearse_one(&work->made, request, options, name, out, code, error);
    estimate_result_finish(&work->made);
    request->device_names = NULL;
    return result;
}

/* What is not supported is about the input, and an engine that failed is an answer. */
static int fail(const struct mt_error *error)
{
    int code = estimate_fail_as("rehearse", error);
    return error->code == MT_EIO ? CLI_EXIT_CANNOT : code;
}

int rehearse_model_command(const char *model, const struct rehearse_model_options *options)
{
    struct work *work = calloc(1, sizeof *work);
    struct mt_strbuf out = {0};
    struct mt_error error = {.offset = MT_NO_OFFSET};
    int code = CLI_EXIT_OK;
    if (!work) {
        cli_complain("rehearse: out of memory");
        return CLI_EXIT_CANNOT;
    }
    struct estimate_request *request = &work->request;
    request->generation = options->generation;
    request->reserved_bytes = options->reserved_bytes;
    request->timeout_ns = options->timeout_ns;
    request->may_be_node = !options->estimate->program && !options->n_requests;
    request->interrupted = cli_catch_signals();
    int result = perform(model, options, work, &out, &code, &error);
    int signal_number = *request->interrupted;
    if (!result) {
        int written = cli_write_output(&out, options->estimate->output);
        code = written ? written : code;
    } else if (signal_number) {
        cli_complain("rehearse: interrupted before the engine had planned the model; 'memtally "
                     "estimate --no-rehearse' answers by rules, without it");
    } else {
        code = fail(&error);
    }
    estimate_request_finish(request);
    free(work);
    mt_strbuf_finish(&out);
    return signal_number ? 128 + signal_number : code;
}
