/* SPDX-License-Identifier: MIT */
/* Questions for a server, as JSON, and what its answers say. */
#include "requests.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/error_code.h>

#include "base/strbuf.h"
#include "engines.h"
#include "net/http_client.h"
#include "profile.h"

#define ANSWER_MAX ((size_t)64 * 1024 * 1024)

/* A black PNG of 2048 x 2048 points: as large as encoders take without cutting it to pieces. */
static const char black_image[] =
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAACAAAAAgAAQAAAACa3O6dAAACFUlEQVR42u3BMQEAAADCoPVP7W0HoAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAN4ACHgAAfotprsAAAAASUVORK5CYII=";

int mt_drive_ask(const struct mt_drive_endpoint *endpoint, const char *path, const char *body,
                 uint64_t timeout_ms, int *status, json_t **json, struct mt_error *error)
{
    char url[512];
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s%s", endpoint->port, endpoint->prefix, path);
    struct mt_http_request request = {
        .url = url, .body = body, .timeout_ms = timeout_ms, .max_body_bytes = ANSWER_MAX};
    struct mt_http_response response;
    int code = mt_http_fetch(&request, &response, error);
    if (code != MT_OK)
        return code;
    *status = response.status;
    if (json)
        *json = json_loadb(response.body, response.length, 0, NULL);
    mt_http_response_finish(&response);
    return MT_OK;
}

static uint64_t count_at(const json_t *object, const char *key)
{
    json_int_t count = json_integer_value(json_object_get(object, key));
    return count > 0 ? (uint64_t)count : 0;
}

void mt_drive_facts_take(struct mt_drive_server_facts *facts, const json_t *props,
                         const json_t *models, const json_t *adapters)
{
    const json_t *model = json_array_get(json_object_get(models, "data"), 0);
    const json_t *modalities = json_object_get(props, "modalities");
    const json_t *generation = json_object_get(props, "default_generation_settings");
    facts->n_slots = count_at(props, "total_slots");
    facts->slot_tokens = count_at(generation, "n_ctx");
    facts->vocabulary = count_at(json_object_get(model, "meta"), "n_vocab");
    facts->sees_images = json_is_true(json_object_get(modalities, "vision"));
    facts->n_adapters = json_array_size(adapters);
    const char *name = json_string_value(json_object_get(model, "id"));
    if (name && !facts->n_slots)
        snprintf(facts->model, sizeof facts->model, "%s", name);
    facts->model_tokens = count_at(model, "max_model_len");
}

const char *mt_drive_complaint(const json_t *answer)
{
    const json_t *error = json_object_get(answer, "error");
    return json_string_value(json_is_string(error) ? error : json_object_get(error, "message"));
}

/* The first ids are the seed's, so that no two prompts begin alike. */
static void put_tokens(struct mt_strbuf *text, const struct mt_drive_question *question)
{
    uint64_t state = question->seed * 2654435761u + 12345;
    mt_strbuf_puts(text, "[");
    for (uint64_t i = 0; i < question->n_tokens; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        mt_strbuf_printf(text, "%s%" PRIu64, i ? "," : "",
                         (state >> 33) % question->n_ids + question->first_id);
    }
    mt_strbuf_puts(text, "]");
}

static void put_adapters(struct mt_strbuf *text, const char *engine, uint64_t n_adapters)
{
    char line[MT_DRIVE_ENGINE_TEXT];
    mt_drive_engine_text(engine, "body.adapter", line);
    for (uint64_t i = 0; i < n_adapters; i++) {
        const struct mt_profile_value values[] = {{'d', NULL, i}, {0}};
        mt_strbuf_puts(text, i ? "," : "[");
        mt_profile_fill(text, line, values);
    }
    mt_strbuf_puts(text, n_adapters ? "]" : "[]");
}

char *mt_drive_body_of(const char *engine, const char *name, const struct mt_profile_value *values)
{
    char key[48];
    char line[MT_DRIVE_ENGINE_TEXT];
    struct mt_strbuf text = {0};
    snprintf(key, sizeof key, "body.%s", name);
    mt_profile_fill(&text, mt_drive_engine_text(engine, key, line), values);
    return mt_strbuf_take(&text);
}

char *mt_drive_body(const char *engine, const char *name, const struct mt_drive_question *question)
{
    struct mt_strbuf tokens = {0};
    struct mt_strbuf adapters = {0};
    json_t *model = json_string(question->model ? question->model : "");
    char *model_text = json_dumps(model, JSON_ENCODE_ANY);
    put_tokens(&tokens, question);
    put_adapters(&adapters, engine, question->n_adapters);
    const struct mt_profile_value values[] = {{'t', mt_strbuf_text(&tokens), 0},
                                              {'a', mt_strbuf_text(&adapters), 0},
                                              {'g', NULL, question->n_generated},
                                              {'m', model_text, 0},
                                              {'i', black_image, 0},
                                              {0}};
    char *body = model_text && !mt_strbuf_failed(&tokens) && !mt_strbuf_failed(&adapters)
                     ? mt_drive_body_of(engine, name, values)
                     : NULL;
    mt_strbuf_finish(&adapters);
    mt_strbuf_finish(&tokens);
    free(model_text);
    json_decref(model);
    return body;
}
