/* SPDX-License-Identifier: MIT */
/* The requests that a rehearsed server is sent, in steps: each makes it take what another kind of
 * use would. A server that ends, or an hour glass that runs out, ends the steps. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/error_code.h>
#include <memtally/rehearsal_events.h>

#include "base/ticks.h"
#include "serve_internal.h"

#define MS               ((uint64_t)1000 * 1000)
#define SHORT_TOKENS     64
#define PROBE_TOKENS     512
#define SPARE_TOKENS     8 /* of a context, for what is generated */
#define AT_A_TIME_MAX    64
#define OPENAI_AT_A_TIME 8
#define SMALL_IDS        500  /* that any vocabulary has */
#define UNKNOWN_SLOT     4096 /* tokens, where the server does not say */
#define QUIET_PROMPTS    3    /* so many without the host taking more end the past prompts */
#define ONE_PROMPT_NS    (2500 * MS)

/* One request, in a thread of its own where there are several. */
struct sending {
    struct mt_drive_state *drive;
    const char *endpoint; /* by its name in the engine's table */
    char *body;
    uint64_t timeout_ms;
    int is_answered;
    int status;
    json_t *answer;
    pthread_t thread;
    int started;
};

static int is_interrupted(const struct mt_drive_state *drive)
{
    return drive->settings->interrupted && *drive->settings->interrupted;
}

int mt_drive_look(struct mt_drive_state *drive, uint64_t timeout_ns)
{
    struct mt_drive_report *report = drive->report;
    if (drive->code == MT_OK)
        drive->code =
            mt_rehearsal_wait(drive->rehearsal, timeout_ns, &report->status, drive->error);
    if (drive->settings->echo)
        mt_drive_echo_show(drive->settings->echo, drive->settings->listener);
    if (drive->code != MT_OK)
        return 0;
    if (!report->status.running) {
        report->end = MT_DRIVE_ENDED;
        return 0;
    }
    if (is_interrupted(drive)) {
        report->end = MT_DRIVE_INTERRUPTED;
        return 0;
    }
    return 1;
}

const char *mt_drive_path(const struct mt_drive_state *drive, const char *name,
                          char path[MT_DRIVE_ENGINE_TEXT])
{
    char key[48];
    snprintf(key, sizeof key, "endpoint.%s", name);
    return mt_drive_engine_text(drive->engine, key, path);
}

static uint64_t left_ns(const struct mt_drive_state *drive)
{
    uint64_t now_ns = mt_monotonic_ns();
    return now_ns < drive->requests_until_ns ? drive->requests_until_ns - now_ns : 0;
}

static void *send_one(void *argument)
{
    struct sending *sending = argument;
    char path[MT_DRIVE_ENGINE_TEXT];
    mt_drive_path(sending->drive, sending->endpoint, path);
    sending->is_answered =
        mt_drive_ask(&sending->drive->endpoint, path, sending->body, sending->timeout_ms,
                     &sending->status, &sending->answer, NULL) == MT_OK;
    return NULL;
}

/* Counts the request, keeps the first complaint, and frees what it holds. Returns its status, or 0
 * where there was no answer. */
static int take_answer(struct sending *sending)
{
    struct mt_drive_report *report = sending->drive->report;
    char path[MT_DRIVE_ENGINE_TEXT];
    const char *words = mt_drive_complaint(sending->answer);
    report->n_requests++;
    if (sending->is_answered && sending->status != 200) {
        report->n_refused++;
        if (!report->complaint[0])
            snprintf(report->complaint, sizeof report->complaint, "%s answered %d: %s",
                     mt_drive_path(sending->drive, sending->endpoint, path), sending->status,
                     words ? words : "no reason given");
    }
    json_decref(sending->answer);
    free(sending->body);
    return sending->is_answered ? sending->status : 0;
}

/* Whether there is time, a request left and a server to send it to. */
static int may_send(struct mt_drive_state *drive, size_t n)
{
    if (drive->report->end != MT_DRIVE_SERVED || !mt_drive_look(drive, 0))
        return 0;
    if (left_ns(drive) == 0 || drive->report->n_requests + n > drive->settings->n_requests) {
        drive->report->is_cut_short = 1;
        return 0;
    }
    return 1;
}

/* Sends `n` requests at a time; returns the first one's status. A server that does not answer is
 * given a moment to end, so that its end is seen. */
static int send_all(struct mt_drive_state *drive, struct sending *sendings, size_t n)
{
    uint64_t timeout_ms = left_ns(drive) / MS + 1;
    int is_lost = 0;
    for (size_t i = 0; i < n; i++) {
        sendings[i].drive = drive;
        sendings[i].timeout_ms = timeout_ms;
        sendings[i].started =
            n > 1 && pthread_create(&sendings[i].thread, NULL, send_one, &sendings[i]) == 0;
        if (!sendings[i].started)
            send_one(&sendings[i]);
    }
    for (size_t i = 0; i < n; i++)
        if (sendings[i].started)
            pthread_join(sendings[i].thread, NULL);
    int status = 0;
    for (size_t i = 0; i < n; i++) {
        int one = take_answer(&sendings[i]);
        status = i == 0 ? one : status;
        is_lost |= one == 0;
    }
    if (is_lost)
        mt_drive_look(drive, 500 * MS);
    return status;
}

/* Marks a step and sends its one request; frees `body`. Returns the status, or 0. */
static int step(struct mt_drive_state *drive, const char *mark, const char *endpoint, char *body)
{
    struct sending sending = {.endpoint = endpoint, .body = body};
    if (!body || !may_send(drive, 1)) {
        free(body);
        return 0;
    }
    mt_rehearsal_mark(drive->rehearsal, mark);
    mt_drive_say(drive->settings->listener, "rehearsing: %s", mark);
    return send_all(drive, &sending, 1);
}

/* Ids in the lower half of the vocabulary, where control tokens are few. */
static char *body_of(const struct mt_drive_state *drive, const char *name, uint64_t seed,
                     uint64_t n_tokens)
{
    uint64_t vocabulary = drive->facts.vocabulary;
    const struct mt_drive_question question = {.seed = seed,
                                               .n_tokens = n_tokens,
                                               .n_ids = vocabulary > 8 ? vocabulary / 2 : 4,
                                               .n_generated = 2,
                                               .n_adapters = drive->facts.n_adapters};
    return mt_drive_body(drive->engine, name, &question);
}

static char *prompt(const struct mt_drive_state *drive, uint64_t seed, uint64_t n_tokens)
{
    return body_of(drive, "complete", seed, n_tokens);
}

/* As long as fits in a sequence's context, and in the time that one prompt may take. */
static uint64_t long_tokens(const struct mt_drive_state *drive)
{
    uint64_t slot = drive->facts.slot_tokens ? drive->facts.slot_tokens : UNKNOWN_SLOT;
    uint64_t most = slot > SPARE_TOKENS + 1 ? slot - SPARE_TOKENS : 1;
    double timely = drive->ns_per_token > 0 ? (double)ONE_PROMPT_NS / drive->ns_per_token : 1e9;
    return (double)most < timely ? most : (uint64_t)timely + 1;
}

/* The bytes that the program took of the host since event number `first` and still has. */
static int64_t host_growth(struct mt_drive_state *drive, size_t first)
{
    int64_t bytes = 0;
    const struct mt_rehearsal_event *event;
    for (size_t i = first; (event = mt_rehearsal_event_at(drive->rehearsal, i)) != NULL; i++) {
        if (strcmp(event->place, "host") != 0)
            continue;
        if (event->kind == MT_REHEARSAL_ALLOC)
            bytes += (int64_t)event->bytes;
        else if (event->kind == MT_REHEARSAL_FREE)
            bytes -= (int64_t)event->bytes;
    }
    return bytes;
}

static size_t count_events(struct mt_drive_state *drive)
{
    mt_drive_look(drive, 0);
    return drive->report->status.n_events;
}

/* Reads one prompt to learn how long a token takes, then one as long as the context. */
static int long_prompt(struct mt_drive_state *drive)
{
    uint64_t slot = drive->facts.slot_tokens ? drive->facts.slot_tokens : UNKNOWN_SLOT;
    uint64_t probe = slot / 2 < PROBE_TOKENS ? slot / 2 : PROBE_TOKENS;
    uint64_t start_ns = mt_monotonic_ns();
    if (step(drive, "request: short prompt", "complete", prompt(drive, 1, probe)) != 200)
        return 0;
    drive->ns_per_token = (double)(mt_monotonic_ns() - start_ns) / (double)probe;
    drive->report->prompt_tokens = long_tokens(drive);
    return step(drive, "request: long prompt", "complete",
                prompt(drive, 2, drive->report->prompt_tokens)) == 200;
}

/* As many prompts at a time as there are sequences; together no more than one context, which they
 * may share. */
static void all_slots(struct mt_drive_state *drive)
{
    struct sending sendings[AT_A_TIME_MAX];
    size_t n = drive->facts.n_slots < AT_A_TIME_MAX ? (size_t)drive->facts.n_slots : AT_A_TIME_MAX;
    if (n < 2 || !may_send(drive, n))
        return;
    uint64_t tokens = long_tokens(drive) / n;
    mt_rehearsal_mark(drive->rehearsal, "requests: all sequences at a time");
    for (size_t i = 0; i < n; i++)
        sendings[i] = (struct sending){.endpoint = "complete",
                                       .body = prompt(drive, 100 + i, tokens > 1 ? tokens - 1 : 1)};
    send_all(drive, sendings, n);
}

/* Each prompt displaces another, which a server keeps on the host up to a limit of its own. */
static void past_prompts(struct mt_drive_state *drive)
{
    uint64_t slots = drive->facts.n_slots ? drive->facts.n_slots : 1;
    int n_quiet = 0;
    for (uint64_t i = 0; n_quiet < QUIET_PROMPTS; i++) {
        size_t first = count_events(drive);
        if (step(drive, "request: past prompts are kept", "complete",
                 prompt(drive, 1000 + i, drive->report->prompt_tokens)) != 200)
            return;
        n_quiet = i <= slots || host_growth(drive, first) > 0 ? 0 : n_quiet + 1;
    }
}

/* Embeddings are of one micro-batch, with what the tokenizer puts before and after; the server
 * refuses longer ones. */
static uint64_t embedding_tokens(const struct mt_drive_state *drive)
{
    uint64_t most = long_tokens(drive);
    uint64_t ubatch = drive->ubatch > 4 ? drive->ubatch - 2 : 2;
    return most < ubatch ? most : ubatch;
}

static void all_embeddings(struct mt_drive_state *drive)
{
    struct sending sendings[AT_A_TIME_MAX];
    size_t n = drive->facts.n_slots < AT_A_TIME_MAX ? (size_t)drive->facts.n_slots : AT_A_TIME_MAX;
    if (n < 2 || !may_send(drive, n))
        return;
    mt_rehearsal_mark(drive->rehearsal, "requests: all sequences at a time");
    for (size_t i = 0; i < n; i++)
        sendings[i] = (struct sending){
            .endpoint = "embed", .body = body_of(drive, "embed", 100 + i, embedding_tokens(drive))};
    send_all(drive, sendings, n);
}

/* A server of embeddings or ranks does not complete. */
static void embeddings(struct mt_drive_state *drive)
{
    uint64_t tokens = embedding_tokens(drive);
    if (drive->ranks) {
        step(drive, "request: ranking", "rank", body_of(drive, "rank", 0, 0));
        return;
    }
    if (step(drive, "request: embedding", "embed", body_of(drive, "embed", 3, tokens)) != 200)
        return;
    drive->report->prompt_tokens = tokens;
    all_embeddings(drive);
}

/* NULL where the engine has no such endpoint, or does not answer. */
static json_t *ask_for(struct mt_drive_state *drive, const char *endpoint)
{
    char path[MT_DRIVE_ENGINE_TEXT];
    json_t *answer = NULL;
    int status = 0;
    if (*mt_drive_path(drive, endpoint, path))
        mt_drive_ask(&drive->endpoint, path, NULL, 2000, &status, &answer, NULL);
    return answer;
}

static void learn_facts(struct mt_drive_state *drive)
{
    json_t *props = ask_for(drive, "properties");
    json_t *models = ask_for(drive, "models");
    json_t *adapters = ask_for(drive, "adapters");
    mt_drive_facts_take(&drive->facts, props, models, adapters);
    drive->report->n_slots = drive->facts.n_slots;
    drive->report->slot_tokens = drive->facts.slot_tokens;
    json_decref(props);
    json_decref(models);
    json_decref(adapters);
}

static char *openai_prompt(const struct mt_drive_state *drive, uint64_t seed, uint64_t n_tokens)
{
    const struct mt_drive_question question = {.seed = seed,
                                               .n_tokens = n_tokens,
                                               .first_id = 10,
                                               .n_ids = SMALL_IDS,
                                               .n_generated = 4,
                                               .model = drive->facts.model};
    return mt_drive_body(drive->engine, "openai", &question);
}

/* A server of OpenAI's interface: a short prompt, the longest one, and some at a time. */
static void openai_requests(struct mt_drive_state *drive)
{
    struct sending sendings[OPENAI_AT_A_TIME];
    static const char endpoint[] = "openai";
    drive->facts.slot_tokens = drive->facts.model_tokens;
    uint64_t longest = long_tokens(drive);
    uint64_t probe = longest < PROBE_TOKENS ? longest : PROBE_TOKENS;
    uint64_t start_ns = mt_monotonic_ns();
    if (step(drive, "request: short prompt", endpoint, openai_prompt(drive, 1, probe)) != 200)
        return;
    drive->ns_per_token = (double)(mt_monotonic_ns() - start_ns) / (double)probe;
    longest = long_tokens(drive);
    drive->report->prompt_tokens = longest;
    if (step(drive, "request: long prompt", endpoint, openai_prompt(drive, 2, longest)) != 200 ||
        !may_send(drive, OPENAI_AT_A_TIME))
        return;
    mt_rehearsal_mark(drive->rehearsal, "requests: some at a time");
    for (size_t i = 0; i < OPENAI_AT_A_TIME; i++)
        sendings[i] = (struct sending){.endpoint = endpoint,
                                       .body = openai_prompt(drive, 100 + i, longest / 2 + 1)};
    send_all(drive, sendings, OPENAI_AT_A_TIME);
}

void mt_drive_requests(struct mt_drive_state *drive)
{
    drive->requests_until_ns = mt_monotonic_ns() + drive->drive_limit_ns;
    learn_facts(drive);
    if (*drive->facts.model) {
        openai_requests(drive);
        return;
    }
    if (drive->embeds || drive->ranks) {
        embeddings(drive);
        return;
    }
    if (!long_prompt(drive))
        return;
    all_slots(drive);
    if (drive->facts.n_adapters)
        step(drive, "request: with adapters", "complete",
             body_of(drive, "adapters", 4, drive->report->prompt_tokens));
    if (drive->saves_slots) {
        step(drive, "request: short prompt", "complete", prompt(drive, 3, SHORT_TOKENS));
        step(drive, "request: a sequence is saved", "save", body_of(drive, "save", 0, 0));
    }
    if (drive->facts.sees_images)
        step(drive, "request: an image", "chat", body_of(drive, "chat", 0, 0));
    past_prompts(drive);
}
