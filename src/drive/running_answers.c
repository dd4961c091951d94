/* SPDX-License-Identifier: MIT */
/* What a running server answers, by the paths and the names that its engine's table has:
 *
 *   endpoint.properties, .models, .loaded, .version   answers of a known form
 *   endpoint.info         a JSON text, in which the key "tells" names what is where:
 *                         cache_tokens=internal_states.0.memory_usage.token_capacity
 *   endpoint.metrics      lines of Prometheus; the labels of the line "metric.cache" that
 *                         "metric.cache.labels" names are numbers, the value of the line
 *                         "metric.tokens" is how many tokens the cache has room for */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/error_code.h>
#include <memtally/units.h>

#include "base/ticks.h"
#include "drive/json_get.h"
#include "drive/requests.h"
#include "drive/running_internal.h"
#include "net/http_client.h"

#define ANSWER_MAX ((size_t)1 << 20)
#define GIB        1073741824.0

/* Fetches the path that the table has under `key`; 0 where nothing came. */
static int fetch(struct mt_drive_asking *asking, const char *key, struct mt_http_response *response)
{
    char path[128];
    char url[192];
    struct mt_http_request request = {.url = url, .max_body_bytes = ANSWER_MAX};
    uint64_t now_ns = mt_monotonic_ns();
    mt_engine_text(asking->engine, key, path, sizeof path);
    if (!*path || now_ns >= asking->until_ns)
        return 0;
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", asking->port, path);
    request.timeout_ms = (asking->until_ns - now_ns) / 1000000 + 1;
    int result = mt_http_fetch(&request, response, &asking->error);
    asking->is_foreign |= result == MT_ELIMIT || result == MT_EFORMAT;
    if (result != MT_OK)
        return 0;
    if (response->status >= 200 && response->status < 300)
        return 1;
    asking->refused = response->status;
    mt_http_response_finish(response);
    return 0;
}

static json_t *ask(struct mt_drive_asking *asking, const char *key)
{
    struct mt_http_response response;
    if (!fetch(asking, key, &response))
        return NULL;
    json_t *answer = json_loadb(response.body, response.length, 0, NULL);
    asking->is_foreign |= !answer;
    mt_http_response_finish(&response);
    return answer;
}

void mt_drive_running_take_text(char *text, size_t size, const char *said)
{
    if (!said || !*said)
        return;
    snprintf(text, size, "%s", said);
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 127)
            *at = '?';
}

static void take_properties(struct mt_drive_running *running, const json_t *properties)
{
    const char *build = mt_profile_json_text(properties, "build_info");
    if (build && strncmp(build, "b0-", 3) != 0) /* it does not know its number */
        mt_drive_running_take_text(running->version, sizeof running->version, build);
    mt_drive_running_take_text(running->model, sizeof running->model,
                               mt_profile_json_text(properties, "model_path"));
}

static void take_models(struct mt_drive_running *running, const json_t *models)
{
    const json_t *model = json_array_get(json_object_get(models, "data"), 0);
    const char *root = mt_profile_json_text(model, "root");
    if (!*running->model)
        mt_drive_running_take_text(running->model, sizeof running->model,
                                   root ? root : mt_profile_json_text(model, "id"));
}

/* Takes the first one's name of the models that a server has loaded, and what all of them take. */
static void take_loaded(struct mt_drive_running *running, const json_t *loaded)
{
    const json_t *models = json_object_get(loaded, "models");
    const json_t *model;
    size_t i;
    uint64_t context = mt_profile_json_count(json_array_get(models, 0), "context_length");
    mt_drive_running_take_text(running->model, sizeof running->model,
                               mt_profile_json_text(json_array_get(models, 0), "name"));
    running->context_tokens = context == MT_UNKNOWN ? 0 : context;
    json_array_foreach(models, i, model)
    {
        uint64_t size = mt_profile_json_count(model, "size");
        uint64_t on_device = mt_profile_json_count(model, "size_vram");
        if (size == MT_UNKNOWN || on_device == MT_UNKNOWN || on_device > size)
            continue;
        running->is_told_loaded = 1;
        running->loaded_bytes += size;
        running->loaded_device_bytes += on_device;
    }
}

/* ---- what the table says is where ---- */

/* "internal_states.0.memory_usage.kvcache": keys of objects and places in arrays. */
static const json_t *find(const json_t *answer, const char *path)
{
    char key[64];
    while (answer && *path) {
        size_t length = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)length, path);
        answer = json_is_array(answer) ? json_array_get(answer, strtoul(key, NULL, 10))
                                       : json_object_get(answer, key);
        path += length + (path[length] == '.');
    }
    return answer;
}

static const json_t *told(const struct mt_engine *engine, const json_t *answer, const char *name)
{
    char path[96];
    return mt_engine_word(engine, "tells", name, path, sizeof path) == 0 ? find(answer, path)
                                                                         : NULL;
}

static uint64_t told_number(const struct mt_engine *engine, const json_t *answer, const char *name)
{
    json_int_t value = json_integer_value(told(engine, answer, name));
    return value > 0 ? (uint64_t)value : 0;
}

/* SGLang rounds GiB to two digits. */
static uint64_t told_gib(const struct mt_engine *engine, const json_t *answer, const char *name)
{
    double value = json_number_value(told(engine, answer, name));
    return value > 0 && value < 1e6 ? (uint64_t)(value * GIB) : 0;
}

static void take_info(struct mt_drive_running *running, const struct mt_engine *engine,
                      const json_t *info)
{
    if (!info)
        return;
    mt_drive_running_take_text(running->version, sizeof running->version,
                               json_string_value(told(engine, info, "version")));
    mt_drive_running_take_text(running->model, sizeof running->model,
                               json_string_value(told(engine, info, "model")));
    uint64_t context = told_number(engine, info, "context");
    if (context)
        running->context_tokens = context;
    running->cache_tokens = told_number(engine, info, "cache_tokens");
    running->cache_bytes = told_gib(engine, info, "cache_gib");
    running->weight_bytes = told_gib(engine, info, "weights_gib");
    uint64_t ranks = told_number(engine, info, "ranks");
    if (ranks)
        running->ranks = ranks;
    mt_drive_running_take_text(running->kv_type_k, sizeof running->kv_type_k,
                               json_string_value(told(engine, info, "kv_type")));
}

/* The number of the label in `name{label="12",…} 1`; 0 where the line has none. */
static uint64_t label_of(const char *line, const char *end, const char *label)
{
    size_t length = strlen(label);
    for (const char *at = line + 1; (at = memmem(at, (size_t)(end - at), label, length)) != NULL;
         at += length)
        if ((at[-1] == '{' || at[-1] == ',') && strncmp(at + length, "=\"", 2) == 0)
            return strtoull(at + length + 2, NULL, 10);
    return 0;
}

/* The only line of that name, which `end` ends; NULL where there is none, or several: of several
 * engines behind one endpoint nobody says which device is whose. */
static const char *only_line(const char *text, const char *name, char end)
{
    const char *found = NULL;
    size_t length = strlen(name);
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        if (strncmp(line, name, length) != 0 || line[length] != end)
            continue;
        if (found)
            return NULL;
        found = line;
    }
    return found;
}

static void take_blocks(struct mt_drive_running *running, const struct mt_engine *engine,
                        const char *text)
{
    char name[64];
    char blocks[32];
    char tokens[32];
    mt_engine_text(engine, "metric.cache", name, sizeof name);
    if (!*name ||
        mt_engine_word(engine, "metric.cache.labels", "blocks", blocks, sizeof blocks) < 0 ||
        mt_engine_word(engine, "metric.cache.labels", "block_tokens", tokens, sizeof tokens) < 0)
        return;
    const char *line = only_line(text, name, '{');
    if (!line)
        return;
    const char *end = line + strcspn(line, "\n");
    uint64_t n = label_of(line, end, blocks);
    uint64_t each = label_of(line, end, tokens);
    if (n && each && n < UINT64_MAX / each)
        running->cache_tokens = n * each;
}

static void take_tokens(struct mt_drive_running *running, const struct mt_engine *engine,
                        const char *text)
{
    char name[64];
    mt_engine_text(engine, "metric.tokens", name, sizeof name);
    const char *line = *name ? only_line(text, name, ' ') : NULL;
    double value = line ? strtod(line + strlen(name), NULL) : 0;
    if (value >= 1 && value < 1e15)
        running->cache_tokens = (uint64_t)value;
}

static int ask_metrics(struct mt_drive_asking *asking, struct mt_drive_running *running)
{
    struct mt_http_response response;
    if (!fetch(asking, "endpoint.metrics", &response))
        return 0;
    take_blocks(running, asking->engine, response.body);
    take_tokens(running, asking->engine, response.body);
    mt_http_response_finish(&response);
    return 1;
}

int mt_drive_running_ask(struct mt_drive_asking *asking, struct mt_drive_running *running)
{
    struct mt_drive_server_facts facts = {0};
    json_t *properties = ask(asking, "endpoint.properties");
    json_t *models = ask(asking, "endpoint.models");
    json_t *loaded = ask(asking, "endpoint.loaded");
    json_t *info = ask(asking, "endpoint.info");
    if (!info)
        info = ask(asking, "endpoint.info.older");
    int answered = properties || models || loaded || info;
    json_t *version = answered ? ask(asking, "endpoint.version") : NULL;
    mt_drive_facts_take(&facts, properties, models, NULL);
    if (facts.slot_tokens || facts.model_tokens)
        running->context_tokens = facts.slot_tokens ? facts.slot_tokens : facts.model_tokens;
    if (facts.n_slots)
        running->sequences = facts.n_slots;
    take_properties(running, properties);
    if (loaded)
        take_loaded(running, loaded);
    take_info(running, asking->engine, info);
    take_models(running, models);
    mt_drive_running_take_text(running->version, sizeof running->version,
                               mt_profile_json_text(version, "version"));
    if (answered)
        ask_metrics(asking, running);
    json_decref(properties);
    json_decref(models);
    json_decref(loaded);
    json_decref(info);
    json_decref(version);
    return answered;
}
