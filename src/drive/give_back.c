/* SPDX-License-Identifier: MIT */
/* A server's slots: their list, and those emptied that serve nobody. */
#include "drive/give_back.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/ticks.h"
#include "drive/json_get.h"
#include "drive/ports.h"
#include "drive/running.h"
#include "engine/engine.h"
#include "net/http_client.h"

#define PORTS_MAX  8
#define ANSWER_MAX ((size_t)4 << 20) /* a slot tells its prompt */
#define PATH_BYTES 128
#define NOT_FOUND  404

struct giving {
    const struct mt_engine *engine;
    int port;
    uint64_t until_ns;
    int status; /* of the last answer; 0: nobody answered */
    struct mt_drive_given *given;
};

static void note_refusal(struct giving *giving, const json_t *answer)
{
    const char *why = mt_profile_json_text(json_object_get(answer, "error"), "message");
    char title[MT_ENGINE_TITLE_BYTES];
    mt_engine_title(giving->engine, title);
    snprintf(giving->given->problem, sizeof giving->given->problem, "%s refused with status %d%s%s",
             title, giving->status, why ? ": " : "", why ? why : "");
    for (char *at = giving->given->problem; *at; at++) /* comes from outside */
        if ((unsigned char)*at < ' ' || *at == 127)
            *at = '?';
}

/* The answer to a GET, or to a POST of `body`; NULL where there is none. */
static json_t *exchange(struct giving *giving, const char *path, const char *body)
{
    char url[PATH_BYTES + 64];
    uint64_t now_ns = mt_monotonic_ns();
    struct mt_http_request request = {.url = url, .body = body, .max_body_bytes = ANSWER_MAX};
    struct mt_http_response response;
    giving->status = 0;
    if (now_ns >= giving->until_ns)
        return NULL;
    request.timeout_ms = (giving->until_ns - now_ns) / 1000000 + 1;
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", giving->port, path);
    if (mt_http_fetch(&request, &response, NULL) != 0)
        return NULL;
    json_t *answer = json_loadb(response.body, response.length, 0, NULL);
    giving->status = response.status;
    mt_http_response_finish(&response);
    if (giving->status == 200)
        return answer;
    note_refusal(giving, answer);
    json_decref(answer);
    return NULL;
}

/* The path of the table with the slot's number in place of %d. */
static void path_of_slot(const struct mt_engine *engine, json_int_t slot, char path[PATH_BYTES])
{
    char text[PATH_BYTES];
    mt_engine_text(engine, "endpoint.empty", text, sizeof text);
    const char *number = strstr(text, "%d");
    int before = number ? (int)(number - text) : (int)strlen(text);
    snprintf(path, PATH_BYTES, "%.*s%" JSON_INTEGER_FORMAT "%s", before, text, slot,
             number ? number + 2 : "");
}

static void empty_slot(struct giving *giving, const json_t *slot)
{
    char path[PATH_BYTES];
    const json_t *id = json_object_get(slot, "id");
    if (!json_is_integer(id)) /* what names no slot is none, and not the first one */
        return;
    if (json_is_true(json_object_get(slot, "is_processing"))) {
        giving->given->n_busy++;
        return;
    }
    path_of_slot(giving->engine, json_integer_value(id), path);
    json_t *answer = exchange(giving, path, "{}");
    json_int_t n = json_integer_value(json_object_get(answer, "n_erased"));
    giving->given->n_slots += answer != NULL;
    giving->given->n_tokens += n > 0 ? (uint64_t)n : 0;
    json_decref(answer);
}

/* Whether this port is the server's: another service of the same program does not know the path. */
static int ask_port(struct giving *giving)
{
    char path[PATH_BYTES];
    mt_engine_text(giving->engine, "endpoint.slots", path, sizeof path);
    json_t *slots = exchange(giving, path, NULL);
    int answered = giving->status != 0 && giving->status != NOT_FOUND;
    if (slots)
        giving->given->problem[0] = '\0'; /* of another port */
    for (size_t i = 0; i < json_array_size(slots); i++)
        empty_slot(giving, json_array_get(slots, i));
    json_decref(slots);
    return answered;
}

static void ask_ports(struct giving *giving, const char *proc, pid_t root)
{
    int ports[PORTS_MAX];
    char title[MT_ENGINE_TITLE_BYTES];
    struct mt_drive_given *given = giving->given;
    size_t n = mt_drive_ports_of_tree(proc, root, ports, PORTS_MAX);
    for (size_t i = 0; i < n; i++) {
        giving->port = ports[i];
        if (ask_port(giving))
            return;
    }
    if (*given->problem) /* a refusal of one of them */
        return;
    mt_engine_title(giving->engine, title);
    snprintf(given->problem, sizeof given->problem,
             n ? "%s did not answer in time" : "memtally sees no port that %s listens on", title);
}

void mt_drive_give_back(const char *proc, pid_t root, uint64_t timeout_ms,
                        struct mt_drive_given *given)
{
    struct mt_engine engine;
    char title[MT_ENGINE_TITLE_BYTES];
    char path[PATH_BYTES] = "";
    struct giving giving = {
        .engine = &engine, .until_ns = mt_monotonic_ns() + timeout_ms * 1000000, .given = given};
    *given = (struct mt_drive_given){0};
    mt_drive_running_find(proc, root, given->engine);
    if (!*given->engine || mt_engine_find(given->engine, &engine, NULL) < 0) {
        snprintf(given->problem, sizeof given->problem, "no server of a known engine runs there");
        return;
    }
    mt_engine_title(&engine, title);
    mt_engine_text(&engine, "endpoint.empty", path, sizeof path);
    if (!*path)
        snprintf(given->problem, sizeof given->problem, "%s has no endpoint that gives memory back",
                 title);
    else if (!mt_drive_running_is_near(proc, root))
        snprintf(given->problem, sizeof given->problem,
                 "memtally did not ask %s: it cannot reach its network from here", title);
    else
        ask_ports(&giving, proc, root);
}
