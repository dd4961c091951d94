/* SPDX-License-Identifier: MIT */
#include "drive/running.h"

#include <inttypes.h>
#include <limits.h>
#include <memtally/predict.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ticks.h"
#include "drive/dialect.h"
#include "drive/json_get.h"
#include "drive/ports.h"
#include "drive/requests.h"
#include "engine/engine.h"
#include "net/http_client.h"

#define TREE_MAX   512
#define PORTS_MAX  8
#define WORDS_MAX  6 /* among which the program's name, a script's or a module's is */
#define LINE_BYTES 4096
#define ANSWER_MAX ((size_t)1 << 20)

/* ---- which engine ---- */

/* A word that ends in "::" is how the names of an engine's workers begin, which write over their
 * command lines; another is a program's. */
static int has_title(const struct mt_engine *engine, const char *title)
{
    char words[256];
    char *rest = words;
    const char *slash = strrchr(title, '/');
    mt_engine_text(engine, "titles", words, sizeof words);
    for (char *word; (word = strsep(&rest, " ")) != NULL;) {
        size_t length = strlen(word);
        int is_prefix = length > 2 && strcmp(word + length - 2, "::") == 0;
        if (length && (is_prefix ? strncmp(title, word, length) == 0
                                 : strcmp(slash ? slash + 1 : title, word) == 0))
            return 1;
    }
    return 0;
}

/* The first words of a command line, which end with NULL; `bytes` ends with a NUL. */
static void split(char *bytes, size_t n, char *words[WORDS_MAX + 1])
{
    size_t n_words = 0;
    for (size_t at = 0; at < n && n_words < WORDS_MAX; at += strlen(bytes + at) + 1)
        words[n_words++] = bytes + at;
    words[n_words] = NULL;
}

static const char *engine_of_title(const char *title)
{
    struct mt_engine engine;
    const char *name;
    for (size_t i = 0; (name = mt_engine_name_at(i)) != NULL; i++)
        if (mt_engine_find(name, &engine, NULL) == 0 && has_title(&engine, title))
            return name;
    return NULL;
}

void mt_drive_running_engine(const char *arguments, size_t n, char name[32])
{
    char bytes[LINE_BYTES];
    char *words[WORDS_MAX + 1];
    enum mt_drive_program program;
    const char *engine = NULL;
    size_t index;
    n = n < sizeof bytes - 1 ? n : sizeof bytes - 1;
    memcpy(bytes, arguments, n);
    bytes[n] = '\0';
    split(bytes, n, words);
    mt_drive_program_find(words, &index, &engine, &program);
    if (engine && program != MT_DRIVE_SERVER)
        engine = NULL;
    if (!engine && words[0])
        engine = engine_of_title(words[0]);
    snprintf(name, 32, "%s", engine ? engine : "");
}

static void find_engine(const char *proc, pid_t pid, char engine[32])
{
    char path[PATH_MAX];
    char bytes[LINE_BYTES];
    snprintf(path, sizeof path, "%s/%ld/cmdline", proc, (long)pid);
    FILE *file = fopen(path, "re");
    *engine = '\0';
    if (!file)
        return;
    size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    mt_drive_running_engine(bytes, n, engine);
}

void mt_drive_running_find(const char *proc, pid_t root, char engine[32])
{
    pid_t *pids = malloc(TREE_MAX * sizeof *pids);
    find_engine(proc, root, engine);
    size_t n = pids && !*engine ? mt_drive_descendants(proc, root, pids, TREE_MAX) : 0;
    for (size_t i = 0; i < n && !*engine; i++)
        find_engine(proc, pids[i], engine);
    free(pids);
}

/* ---- what it answers ---- */

struct asking {
    const struct mt_engine *engine;
    int port;
    uint64_t until_ns;
    int refused; /* the status of an answer that was none */
    struct mt_error error;
};

/* The answer to a GET at the path that the engine's table has under `key`; NULL where there is
 * none. */
static json_t *ask(struct asking *asking, const char *key)
{
    char path[128];
    char url[192];
    struct mt_http_request request = {.url = url, .max_body_bytes = ANSWER_MAX};
    struct mt_http_response response;
    uint64_t now_ns = mt_monotonic_ns();
    mt_engine_text(asking->engine, key, path, sizeof path);
    if (!*path || now_ns >= asking->until_ns)
        return NULL;
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", asking->port, path);
    request.timeout_ms = (asking->until_ns - now_ns) / 1000000 + 1;
    if (mt_http_fetch(&request, &response, &asking->error) != MT_OK)
        return NULL;
    int is_fine = response.status >= 200 && response.status < 300;
    json_t *answer = is_fine ? json_loadb(response.body, response.length, 0, NULL) : NULL;
    if (!is_fine)
        asking->refused = response.status;
    mt_http_response_finish(&response);
    return answer;
}

/* What comes from outside may have any bytes in it. */
static void take_text(char *text, size_t size, const char *said)
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
        take_text(running->version, sizeof running->version, build);
    take_text(running->model, sizeof running->model,
              mt_profile_json_text(properties, "model_path"));
}

static void take_models(struct mt_drive_running *running, const json_t *models)
{
    const json_t *model = json_array_get(json_object_get(models, "data"), 0);
    const char *root = mt_profile_json_text(model, "root");
    if (!*running->model)
        take_text(running->model, sizeof running->model,
                  root ? root : mt_profile_json_text(model, "id"));
}

/* Of the models that a server has loaded, the first. */
static void take_loaded(struct mt_drive_running *running, const json_t *loaded)
{
    const json_t *model = json_array_get(json_object_get(loaded, "models"), 0);
    json_int_t context = json_integer_value(json_object_get(model, "context_length"));
    take_text(running->model, sizeof running->model, mt_profile_json_text(model, "name"));
    running->context_tokens = context > 0 ? (uint64_t)context : 0;
}

static int ask_port(struct asking *asking, struct mt_drive_running *running)
{
    struct mt_drive_server_facts facts = {0};
    json_t *properties = ask(asking, "endpoint.properties");
    json_t *models = ask(asking, "endpoint.models");
    json_t *loaded = ask(asking, "endpoint.loaded");
    json_t *version = ask(asking, "endpoint.version");
    int answered = properties || models || loaded;
    mt_drive_facts_take(&facts, properties, models, NULL);
    running->context_tokens = facts.slot_tokens ? facts.slot_tokens : facts.model_tokens;
    running->sequences = facts.n_slots;
    take_properties(running, properties);
    take_models(running, models);
    if (loaded)
        take_loaded(running, loaded);
    take_text(running->version, sizeof running->version, mt_profile_json_text(version, "version"));
    json_decref(properties);
    json_decref(models);
    json_decref(loaded);
    json_decref(version);
    return answered;
}

/* ---- whom to ask ---- */

/* A port of another network is another server's. */
int mt_drive_running_is_near(const char *proc, pid_t pid)
{
    char path[PATH_MAX];
    char theirs[64] = "";
    char ours[64] = "";
    snprintf(path, sizeof path, "%s/%ld/ns/net", proc, (long)pid);
    ssize_t n = readlink(path, theirs, sizeof theirs - 1);
    ssize_t own = readlink("/proc/self/ns/net", ours, sizeof ours - 1);
    return n > 0 && n == own && memcmp(theirs, ours, (size_t)n) == 0;
}

static void ask_engine(const char *proc, pid_t root, uint64_t timeout_ms,
                       struct mt_drive_running *running)
{
    struct mt_engine engine;
    char title[MT_ENGINE_TITLE_BYTES];
    int ports[PORTS_MAX];
    struct asking asking = {
        .engine = &engine,
        .until_ns = mt_monotonic_ns() + timeout_ms * 1000000,
    };
    if (mt_engine_find(running->engine, &engine, NULL) < 0)
        return;
    mt_engine_title(&engine, title);
    if (!mt_drive_running_is_near(proc, root)) {
        snprintf(
            running->problem, sizeof running->problem,
            "%s was not asked: its network cannot be reached from here, or may not be looked at",
            title);
        return;
    }
    size_t n = mt_drive_ports_of_tree(proc, root, ports, PORTS_MAX);
    for (size_t i = 0; i < n; i++) {
        asking.port = ports[i];
        if (!ask_port(&asking, running))
            continue;
        running->port = ports[i];
        return;
    }
    if (!n)
        snprintf(running->problem, sizeof running->problem,
                 "%s listens on no port that can be seen from here", title);
    else if (asking.refused)
        snprintf(running->problem, sizeof running->problem,
                 "%s answered with status %d; it may ask for a key", title, asking.refused);
    else
        snprintf(running->problem, sizeof running->problem,
                 "%s did not answer within %" PRIu64 " ms", title, timeout_ms);
}

void mt_drive_running_look(const char *proc, pid_t root, uint64_t timeout_ms,
                           struct mt_drive_running *running)
{
    *running = (struct mt_drive_running){0};
    mt_drive_running_find(proc, root, running->engine);
    if (*running->engine)
        ask_engine(proc, root, timeout_ms, running);
}
