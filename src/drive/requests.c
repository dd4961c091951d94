/* SPDX-License-Identifier: MIT */
/* Questions for a server that has llama.cpp's HTTP interface, as JSON. */
#include "requests.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "net/http_client.h"

#define SMALL_IDS  500 /* that any vocabulary has */
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

/* Ids in the lower half of the vocabulary, where control tokens are few. The first ones are the
 * seed's, so that no two prompts begin alike. */
static void put_tokens(struct mt_strbuf *text, uint64_t seed, uint64_t n_tokens,
                       uint64_t vocabulary)
{
    uint64_t range = vocabulary > 8 ? vocabulary / 2 : 4;
    uint64_t state = seed * 2654435761u + 12345;
    mt_strbuf_puts(text, "[");
    for (uint64_t i = 0; i < n_tokens; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        mt_strbuf_printf(text, "%s%" PRIu64, i ? "," : "", (state >> 33) % range);
    }
    mt_strbuf_puts(text, "]");
}

/* A completion without its end. */
static void put_completion(struct mt_strbuf *text, uint64_t seed, uint64_t n_tokens,
                           uint64_t vocabulary, uint64_t n_generated)
{
    mt_strbuf_puts(text, "{\"prompt\":");
    put_tokens(text, seed, n_tokens, vocabulary);
    mt_strbuf_printf(text,
                     ",\"n_predict\":%" PRIu64 ",\"cache_prompt\":true,\"ignore_eos\":true,"
                     "\"temperature\":0",
                     n_generated);
}

char *mt_drive_completion_body(uint64_t seed, uint64_t n_tokens, uint64_t vocabulary,
                               uint64_t n_generated)
{
    struct mt_strbuf text;
    mt_strbuf_init(&text);
    put_completion(&text, seed, n_tokens, vocabulary, n_generated);
    mt_strbuf_puts(&text, "}");
    return mt_strbuf_take(&text);
}

char *mt_drive_adapters_body(uint64_t seed, uint64_t n_tokens, uint64_t vocabulary,
                             uint64_t n_adapters)
{
    struct mt_strbuf text;
    mt_strbuf_init(&text);
    put_completion(&text, seed, n_tokens, vocabulary, 2);
    mt_strbuf_puts(&text, ",\"lora\":[");
    for (uint64_t i = 0; i < n_adapters; i++)
        mt_strbuf_printf(&text, "%s{\"id\":%" PRIu64 ",\"scale\":1}", i ? "," : "", i);
    mt_strbuf_puts(&text, "]}");
    return mt_strbuf_take(&text);
}

char *mt_drive_openai_body(const char *model, uint64_t seed, uint64_t n_tokens,
                           uint64_t n_generated)
{
    json_t *prompt = json_array();
    uint64_t state = seed * 2654435761u + 12345;
    for (uint64_t i = 0; i < n_tokens; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        json_array_append_new(prompt, json_integer((json_int_t)((state >> 33) % SMALL_IDS) + 10));
    }
    json_t *body =
        json_pack("{s:s, s:o, s:I, s:b, s:i}", "model", model, "prompt", prompt, "max_tokens",
                  (json_int_t)n_generated, "ignore_eos", 1, "temperature", 0);
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return text;
}

char *mt_drive_embedding_body(uint64_t seed, uint64_t n_tokens, uint64_t vocabulary)
{
    struct mt_strbuf text;
    mt_strbuf_init(&text);
    mt_strbuf_puts(&text, "{\"input\":");
    put_tokens(&text, seed, n_tokens, vocabulary);
    mt_strbuf_puts(&text, "}");
    return mt_strbuf_take(&text);
}

char *mt_drive_rerank_body(void)
{
    return strdup("{\"query\":\"memory\",\"documents\":[\"bytes\",\"pages\"]}");
}

char *mt_drive_image_body(void)
{
    struct mt_strbuf text;
    mt_strbuf_init(&text);
    mt_strbuf_printf(&text,
                     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
                     "\"?\"},{\"type\":\"image_url\",\"image_url\":{\"url\":\"%s\"}}]}],"
                     "\"max_tokens\":1}",
                     black_image);
    return mt_strbuf_take(&text);
}
