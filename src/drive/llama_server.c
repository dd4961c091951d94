/* SPDX-License-Identifier: MIT */
/* The driver of llama-server: starts it on a free port of this machine and asks it. */
#include "llama_server.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "base/out_of_memory.h"
#include "base/ticks.h"
#include "engines.h"
#include "net/http_client.h"
#include "ports.h"
#include "profile.h"
#include "requests.h"

#define ANSWER_MAX ((size_t)64 * 1024 * 1024)

static int check(const struct mt_profile_settings *settings, struct mt_error *error)
{
    return mt_profile_refuse_package_settings(settings, error);
}

/* A prompt has at most as many tokens as bytes, and what the tokenizer puts before and after. */
static uint64_t prompt_tokens_at_most(const struct mt_profile_settings *settings)
{
    return settings->prompt ? strlen(settings->prompt) + 8 : settings->prompt_tokens;
}

/* Its exact number is not known yet where a text was given, so what is surely enough is taken. */
static uint64_t context_of(const struct mt_profile_settings *settings)
{
    uint64_t context_tokens = settings->context_tokens;
    if (context_tokens == 0)
        mt_profile_context_tokens(settings, prompt_tokens_at_most(settings), &context_tokens, NULL);
    return context_tokens;
}

static int command(struct mt_profile_job *job, struct mt_profile_command *words,
                   struct mt_error *error)
{
    const struct mt_profile_settings *settings = job->settings;
    /* Another program may take it before the server does; then the server says so and ends. */
    job->port = mt_drive_free_port("/proc");
    if (job->port == 0)
        return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET,
                       "no free port at 127.0.0.1 for llama-server; is the loopback interface up?");
    const struct mt_profile_value values[] = {
        {'m', settings->model_path, 0},
        {'p', NULL, (uint64_t)job->port},
        {'n', NULL, settings->batch_size},
        {'c', NULL, context_of(settings) * settings->batch_size},
        {0}};
    mt_profile_command_add(words, job->engine->program);
    mt_profile_command_put(words, NULL, "profile.server", values);
    mt_profile_command_common(words, settings);
    return MT_OK;
}

static int take_line(struct mt_profile_job *job, enum mt_profile_stream stream, const char *line,
                     size_t length, uint64_t time_ns)
{
    (void)job;
    (void)stream;
    (void)line;
    (void)length;
    (void)time_ns;
    return 0;
}

/* What the server itself says of an error: {"error": {"message": "…"}}. */
static const char *complaint_of(const json_t *answer)
{
    const char *message =
        json_string_value(json_object_get(json_object_get(answer, "error"), "message"));
    return message ? message : "no reason given";
}

/* Asks the server at an endpoint, by its name in the engine's table. On success *answer is owned by
 * the caller. */
static int ask(struct mt_profile_job *job, const char *endpoint, const char *body, json_t **answer,
               struct mt_error *error)
{
    char path[MT_DRIVE_ENGINE_TEXT];
    char url[128 + MT_DRIVE_ENGINE_TEXT];
    mt_drive_engine_text(NULL, endpoint, path);
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", job->port, path);
    struct mt_http_request request = {.url = url, .body = body, .max_body_bytes = ANSWER_MAX};
    struct mt_http_response response;
    int code = mt_http_fetch(&request, &response, error);
    if (code != MT_OK)
        return code;
    json_t *json = json_loadb(response.body, response.length, 0, NULL);
    mt_http_response_finish(&response);
    if (response.status != 200)
        code = mt_fail(error, MT_ECHILD, MT_NO_OFFSET, "llama-server answered %s with %d: %s", path,
                       response.status, complaint_of(json));
    else if (!json)
        code = mt_fail(error, MT_EFORMAT, MT_NO_OFFSET,
                       "llama-server answered %s with something that is not JSON", path);
    if (code == MT_OK)
        *answer = json;
    else
        json_decref(json);
    return code;
}

/* Waits until the server has loaded the model. Returns 0 when nobody waits any more. */
static int wait_until_healthy(struct mt_profile_job *job)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    char path[MT_DRIVE_ENGINE_TEXT];
    char url[64 + MT_DRIVE_ENGINE_TEXT];
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", job->port,
             mt_drive_engine_text(NULL, "endpoint.health", path));
    struct mt_http_request request = {.url = url, .timeout_ms = 2000, .max_body_bytes = 65536};
    while (!mt_profile_journal_is_closed(&job->journal)) {
        struct mt_http_response response;
        if (mt_http_fetch(&request, &response, NULL) == MT_OK) {
            mt_http_response_finish(&response);
            if (response.status == 200)
                return 1;
        }
        nanosleep(&pause, NULL);
    }
    return 0;
}

/* Older servers lack one or the other, so what they do not answer stays unknown. */
static void ask_facts(struct mt_profile_job *job)
{
    json_t *models = NULL;
    json_t *props = NULL;
    ask(job, "endpoint.models", NULL, &models, NULL);
    ask(job, "endpoint.properties", NULL, &props, NULL);
    struct mt_profile_facts *facts = mt_profile_journal_lock_facts(&job->journal);
    mt_profile_llama_server_models(facts, models);
    mt_profile_llama_server_props(facts, props);
    if (facts->context_tokens == UINT64_MAX)
        facts->context_tokens = context_of(job->settings);
    MT_PROFILE_SET_TEXT(facts->kv_type_k, job->settings->kv_type);
    MT_PROFILE_SET_TEXT(facts->kv_type_v, job->settings->kv_type);
    if (job->settings->threads)
        facts->threads = job->settings->threads;
    mt_profile_journal_unlock_facts(&job->journal);
    json_decref(models);
    json_decref(props);
}

/* The body of a request with a text or ids in it; the caller frees it. NULL where `prompt` is NULL,
 * or without memory. */
static char *body_with(const char *name, const json_t *prompt, uint64_t n_generated)
{
    char *text = prompt ? json_dumps(prompt, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    const struct mt_profile_value values[] = {{'t', text, 0}, {'g', NULL, n_generated}, {0}};
    char *body = text ? mt_drive_body_of(NULL, name, values) : NULL;
    free(text);
    return body;
}

/* The prompt as token ids; see mt_profile_llama_server_prompt(). */
static int ask_tokens(struct mt_profile_job *job, json_t **prompt, struct mt_error *error)
{
    const struct mt_profile_settings *settings = job->settings;
    json_t *text = json_string(settings->prompt ? settings->prompt : MT_PROFILE_FILLER);
    char *body = body_with("tokenize", text, 0);
    json_decref(text);
    if (!body)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "the prompt must be UTF-8 text");
    json_t *answer = NULL;
    int code = ask(job, "endpoint.tokenize", body, &answer, error);
    free(body);
    if (code != MT_OK)
        return code;
    json_t *tokens = mt_profile_llama_server_prompt(json_object_get(answer, "tokens"),
                                                    settings->prompt ? 0 : settings->prompt_tokens);
    json_decref(answer);
    if (!tokens)
        return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET,
                       "llama-server makes no tokens of the prompt");
    *prompt = tokens;
    return MT_OK;
}

/* One sequence of a run, in a thread of its own. */
struct request {
    struct mt_profile_job *job;
    const char *question;
    struct mt_profile_completion completion;
    struct mt_error error;
    pthread_t thread;
    int started;
};

static void *complete(void *context)
{
    struct request *request = context;
    json_t *answer = NULL;
    if (ask(request->job, "endpoint.complete", request->question, &answer, &request->error) ==
        MT_OK)
        mt_profile_llama_server_completion(answer, request->job->settings->max_tokens,
                                           &request->completion, &request->error);
    json_decref(answer);
    return NULL;
}

static void send_all(struct request *requests, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int failure = pthread_create(&requests[i].thread, NULL, complete, &requests[i]);
        requests[i].started = failure == 0;
        if (failure)
            mt_fail_errno(&requests[i].error, failure, "cannot start a thread");
    }
    for (size_t i = 0; i < n; i++)
        if (requests[i].started)
            pthread_join(requests[i].thread, NULL);
}

/* Together the sequences take as long as the slowest. */
static int gather(const struct request *requests, size_t n, struct mt_profile_completion *slowest,
                  struct mt_error *error)
{
    *slowest = requests[0].completion;
    for (size_t i = 0; i < n; i++) {
        const struct mt_profile_completion *one = &requests[i].completion;
        if (requests[i].error.code) {
            *error = requests[i].error;
            return error->code;
        }
        if (one->prefill_ms > slowest->prefill_ms)
            slowest->prefill_ms = one->prefill_ms;
        if (one->decode_ms > slowest->decode_ms)
            slowest->decode_ms = one->decode_ms;
    }
    return MT_OK;
}

/* The server states how long each part took, so where they meet is known when both are over. */
static void note_run(struct mt_profile_job *job, uint64_t run, uint64_t start_ns, uint64_t end_ns,
                     const struct mt_profile_completion *slowest)
{
    uint64_t prefill_ns = (uint64_t)(slowest->prefill_ms * 1e6);
    uint64_t first_ns = prefill_ns < end_ns - start_ns ? start_ns + prefill_ns : end_ns;
    mt_profile_journal_enter(&job->journal, MT_PROFILE_PREFILL, run, start_ns);
    mt_profile_journal_enter(&job->journal, MT_PROFILE_DECODE, run, first_ns);
    mt_profile_journal_enter(&job->journal, MT_PROFILE_IDLE, run, end_ns);
    mt_profile_journal_add_run(&job->journal,
                               &(struct mt_profile_run){run, (double)(end_ns - start_ns) / 1e6,
                                                        slowest->prefill_ms, slowest->decode_ms,
                                                        slowest->generated_tokens, UINT64_MAX});
}

static int do_run(struct mt_profile_job *job, uint64_t run, const char *question,
                  struct mt_error *error)
{
    size_t n = (size_t)job->settings->batch_size;
    struct request *requests = calloc(n, sizeof *requests);
    struct mt_profile_completion slowest;
    if (!requests)
        return mt_out_of_memory(error);
    for (size_t i = 0; i < n; i++)
        requests[i] = (struct request){.job = job, .question = question};
    mt_profile_journal_say(&job->journal, run ? "prefill and decode" : "warm-up", run);
    uint64_t start_ns = mt_monotonic_ns();
    send_all(requests, n);
    uint64_t end_ns = mt_monotonic_ns();
    int code = gather(requests, n, &slowest, error);
    if (code == MT_OK)
        note_run(job, run, start_ns, end_ns, &slowest);
    free(requests);
    return code;
}

static int do_runs(struct mt_profile_job *job, json_t *prompt, struct mt_error *error)
{
    uint64_t context_tokens = 0;
    struct mt_profile_facts *facts = mt_profile_journal_lock_facts(&job->journal);
    facts->prompt_tokens = json_array_size(prompt);
    mt_profile_journal_unlock_facts(&job->journal);
    int code =
        mt_profile_context_tokens(job->settings, json_array_size(prompt), &context_tokens, error);
    char *question = code == MT_OK ? body_with("run", prompt, job->settings->max_tokens) : NULL;
    if (code == MT_OK && !question)
        code = mt_out_of_memory(error);
    for (uint64_t run = 0; code == MT_OK && run <= job->settings->repeats; run++)
        code = do_run(job, run, question, error);
    free(question);
    return code;
}

static void drive(struct mt_profile_job *job)
{
    struct mt_error error = {0};
    json_t *prompt = NULL;
    mt_profile_journal_enter(&job->journal, MT_PROFILE_LOAD, 0, mt_monotonic_ns());
    if (!wait_until_healthy(job))
        return;
    mt_profile_journal_enter(&job->journal, MT_PROFILE_IDLE, 0, mt_monotonic_ns());
    ask_facts(job);
    int code = ask_tokens(job, &prompt, &error);
    if (code == MT_OK)
        code = do_runs(job, prompt, &error);
    json_decref(prompt);
    if (code == MT_OK)
        mt_profile_journal_complete(&job->journal, mt_monotonic_ns());
    else
        mt_profile_journal_fail(&job->journal, code, "%s", error.text);
}

const struct mt_profile_driver mt_profile_llama_server = {
    .name = "llama-server",
    .check = check,
    .command = command,
    .take_line = take_line,
    .drive = drive,
};
