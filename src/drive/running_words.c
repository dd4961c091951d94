/* SPDX-License-Identifier: MIT */
/* What a running server's words, its model's header and the rules of its version make of a tally.
 * A rule's bytes are derived, an engine's own word of bytes is inferred: neither is ever exact. */
#include <memtally/error.h>
#include <memtally/model_file.h>
#include <memtally/predict.h>
#include <memtally/units.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drive/running.h"
#include "engine/engine.h"

#define DEVICES_MAX   16u
#define USUAL_DEVICE  ((uint64_t)80 << 30) /* where nobody says how large one is */
#define UNSEEN_DEVICE "gpu:?"

/* The words while they are made. */
struct speech {
    const struct mt_drive_running *running;
    const struct mt_tally *tally;
    struct mt_drive_words *words;
    const struct mt_tally_place *host;
    const struct mt_tally_place *devices[DEVICES_MAX];
    size_t n_devices;
    int is_whole; /* the rules tell of each place: one of which they say nothing has none */
    int is_model; /* it is known to compute a model */
};

static void say(struct speech *speech, const char *place, enum mt_category category, uint64_t bytes,
                enum mt_provenance provenance, const char *name)
{
    struct mt_drive_words *words = speech->words;
    if (words->n == MT_RUNNING_WORDS || !bytes)
        return;
    snprintf(words->names[words->n], sizeof words->names[0], "%s", name);
    words->items[words->n] =
        (struct mt_tally_word){place, category, words->names[words->n], bytes, provenance};
    words->n++;
}

static void say_unknown(struct speech *speech, const char *place, enum mt_category category)
{
    say(speech, place, category, MT_UNKNOWN, MT_PROVENANCE_ASSUMED, "unknown");
}

static void why(struct speech *speech, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The first reason is the one that counts. */
static void why(struct speech *speech, const char *format, ...)
{
    va_list arguments;
    if (*speech->words->why)
        return;
    va_start(arguments, format);
    vsnprintf(speech->words->why, sizeof speech->words->why, format, arguments);
    va_end(arguments);
}

/* Memory of the machine that is held for a device is a place, and none of the devices'. */
static int is_device(const char *place)
{
    size_t length = strlen(place);
    return strncmp(place, "gpu:", 4) == 0 &&
           !(length > 5 && strcmp(place + length - 5, "/host") == 0);
}

static void find_places(struct speech *speech)
{
    for (size_t i = 0; i < speech->tally->n_places; i++) {
        const struct mt_tally_place *place = &speech->tally->places[i];
        if (strcmp(place->place, "host") == 0)
            speech->host = place;
        else if (is_device(place->place) && speech->n_devices < DEVICES_MAX)
            speech->devices[speech->n_devices++] = place;
    }
}

static uint64_t resident(const struct mt_tally_place *place, enum mt_category category)
{
    const struct mt_tally_row *row = place ? mt_tally_row_of(place, category) : NULL;
    return row && row->resident_bytes != MT_UNKNOWN ? row->resident_bytes : 0;
}

/* Libraries by which a process has the driver of a device, and by which it computes a model: what
 * their names begin with. */
static const char *const drivers[] = {"libcuda.so",      "libamdhip64.so", "libhsa-runtime64.so",
                                      "libze_loader.so", "libvulkan.so",   NULL};
static const char *const computing[] = {"libtorch_cpu.so", "libllama.so",
                                        "libggml",         "libonnxruntime.so",
                                        "onnxruntime_py",  "libtensorflow",
                                        "libjax_common",   "xla_extension.so",
                                        "libnvinfer.so",   "libopenvino.so",
                                        "libtvm",          "libctranslate2",
                                        "libmlx.so",       NULL};

/* Whether it has mapped one of the libraries, by the names of the tally's parts. */
static int has_mapped(const struct speech *speech, const char *const *libraries)
{
    const struct mt_tally_row *row =
        speech->host ? mt_tally_row_of(speech->host, MT_CATEGORY_RUNTIME) : NULL;
    for (size_t i = 0; row && i < row->n_details; i++)
        for (size_t j = 0; libraries[j]; j++)
            if (strncmp(row->details[i].name, libraries[j], strlen(libraries[j])) == 0)
                return 1;
    return 0;
}

static int uses_a_driver(const struct speech *speech)
{
    return has_mapped(speech, drivers);
}

/* Whether there is a process that had memory and whose mappings nobody saw. */
static int is_hidden(const struct speech *speech)
{
    for (size_t i = 0; i < speech->tally->n_processes; i++) {
        const struct mt_tally_process *process = &speech->tally->processes[i];
        if (process->picture_time_ns == MT_UNKNOWN && process->n_places)
            return 1;
    }
    return 0;
}

/* Whether it may have a device that nobody measured; says so. */
static int may_have_a_device(struct speech *speech)
{
    if (uses_a_driver(speech))
        why(speech, "it has mapped the driver of a device, and what it has of that was not seen");
    else if (is_hidden(speech))
        why(speech, "whether it uses a device is in its mappings, which were not seen");
    else
        return 0;
    return 1;
}

/* The engine as settings name it; `name` lives as long as they. An unknown version is the newest.
 */
static const char *engine_of(const struct mt_drive_running *running, char name[128])
{
    struct mt_engine engine;
    int is_own = strcmp(running->engine, running->rules) == 0;
    if (is_own && *running->version) {
        snprintf(name, 128, "%s@%.*s", running->rules, (int)strcspn(running->version, "-+ "),
                 running->version);
        if (mt_engine_find(name, &engine, NULL) == 0)
            return name;
    }
    snprintf(name, 128, "%s", running->rules);
    return name;
}

static const char *or_null(const char *text)
{
    return *text ? text : NULL;
}

/* ---- llama.cpp: weights and cells by the header ---- */

static struct mt_predict_settings settings_of(const struct speech *speech, char engine[128])
{
    const struct mt_drive_running *running = speech->running;
    uint64_t n = running->sequences ? running->sequences : 1;
    int is_unified = running->is_unified || !running->has_sequences;
    return (struct mt_predict_settings){
        .engine = engine_of(running, engine),
        .program = MT_PROGRAM_SERVER,
        .context_tokens = is_unified ? running->context_tokens : running->context_tokens * n,
        .sequences = n,
        .unified_kv = is_unified && n > 1 ? MT_SWITCH_ON : MT_SWITCH_AUTO,
        .kv_type_k = or_null(running->kv_type_k),
        .kv_type_v = or_null(running->kv_type_v),
        .kv_on_host = running->keeps_kv_on_host,
        .processor = mt_processor_here(),
    };
}

static int is_mapped(const struct mt_tally_detail *detail)
{
    const char *rule = detail->rule ? strrchr(detail->rule, '/') : NULL;
    return rule && strcmp(rule, "/weights_mapped") == 0;
}

/* What is told of a place of an estimate goes to a place of the tally. Weights that the kernel
 * shows to be mapped are measured already. */
static void say_rows(struct speech *speech, const struct mt_tally_place *from, const char *to,
                     int is_measured)
{
    static const enum mt_category categories[] = {MT_CATEGORY_WEIGHTS, MT_CATEGORY_KV_CACHE,
                                                  MT_CATEGORY_RECURRENT_STATE};
    for (size_t c = 0; c < sizeof categories / sizeof *categories; c++) {
        const struct mt_tally_row *row = mt_tally_row_of(from, categories[c]);
        if (!row)
            continue;
        if (categories[c] != MT_CATEGORY_WEIGHTS && !speech->running->context_tokens) {
            say_unknown(speech, to, categories[c]);
            continue;
        }
        for (size_t i = 0; i < row->n_details; i++)
            if (!is_measured || !is_mapped(&row->details[i]))
                say(speech, to, categories[c], row->details[i].allocated_bytes,
                    MT_PROVENANCE_DERIVED, row->details[i].name);
    }
}

/* Whether the device may hold all of the model: it was told so, or was told nothing and has as
 * much. */
static int holds_all(const struct speech *speech, const struct mt_tally_place *all)
{
    const char *asked = speech->running->gpu_layers;
    uint64_t least = 0;
    if (*asked && strcmp(asked, "auto") != 0 && strcmp(asked, "all") != 0)
        return 0;
    for (size_t i = 0; i < all->n_rows; i++)
        if (all->rows[i].category == MT_CATEGORY_WEIGHTS ||
            all->rows[i].category == MT_CATEGORY_KV_CACHE)
            least += all->rows[i].allocated_bytes;
    return speech->devices[0]->total_resident_bytes >= least;
}

static const struct mt_tally_place *place_named(const struct mt_tally *tally, const char *name)
{
    for (size_t i = 0; i < tally->n_places; i++)
        if (strcmp(tally->places[i].place, name) == 0)
            return &tally->places[i];
    return NULL;
}

static void say_estimate(struct speech *speech, const struct mt_estimate *estimate)
{
    const struct mt_tally_place *host = place_named(&estimate->tally, "host");
    const struct mt_tally_place *device = place_named(&estimate->tally, "gpu:0");
    int is_measured = resident(speech->host, MT_CATEGORY_WEIGHTS) > 0;
    if (device && !*speech->running->gpu_layers && !holds_all(speech, device)) {
        why(speech, "the server does not say how many layers lie on the device");
        return;
    }
    if (host)
        say_rows(speech, host, "host", is_measured);
    if (device)
        say_rows(speech, device, speech->devices[0]->place, 0);
    speech->is_whole = 1;
}

static void say_llama(struct speech *speech, const struct mt_model *model)
{
    char engine[128];
    struct mt_predict_settings settings = settings_of(speech, engine);
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct mt_estimate *estimate;
    uint64_t capacity = USUAL_DEVICE;
    if (speech->n_devices > 1) {
        why(speech, "the server does not say which of %zu devices has which layers",
            speech->n_devices);
        return;
    }
    if (!speech->n_devices && strcmp(speech->running->gpu_layers, "0") != 0 &&
        may_have_a_device(speech))
        return;
    if (speech->n_devices) {
        uint64_t told = speech->devices[0]->capacity_bytes;
        capacity = told == MT_UNKNOWN || !told ? capacity : told;
        settings.device_bytes = &capacity;
        settings.n_devices = 1;
        settings.has_gpu_layers = 1;
        settings.gpu_layers = strtoull(speech->running->gpu_layers, NULL, 10);
        if (speech->running->gpu_layers[0] < '0' || speech->running->gpu_layers[0] > '9')
            settings.gpu_layers = MT_ALL;
    }
    if (!resident(speech->host, MT_CATEGORY_WEIGHTS))
        settings.mmap = MT_SWITCH_OFF;
    if (mt_estimate_create(model, &settings, &estimate, &error) < 0) {
        why(speech, "%.180s", error.text);
        return;
    }
    say_estimate(speech, estimate);
    mt_estimate_destroy(estimate);
}

/* ---- engines with a pool ---- */

/* What each rank has of weights, and what a token takes of its cache; 0 where no rule tells. */
struct rank {
    uint64_t weight_bytes;
    uint64_t token_bytes;
};

static struct rank rank_of(struct speech *speech, const struct mt_model *model)
{
    const struct mt_drive_running *running = speech->running;
    char engine[128];
    uint64_t bytes[DEVICES_MAX];
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct mt_estimate *estimate;
    struct rank rank = {0};
    for (size_t i = 0; i < DEVICES_MAX; i++)
        bytes[i] = USUAL_DEVICE;
    const struct mt_predict_settings settings = {
        .engine = engine_of(running, engine),
        .context_tokens = running->context_tokens,
        .kv_type_k = or_null(running->kv_type_k),
        .tensor_parallel = running->ranks,
        .device_bytes = bytes,
        .n_devices = running->ranks,
    };
    if (mt_estimate_create(model, &settings, &estimate, &error) < 0) {
        why(speech, "%.180s", error.text);
        return rank;
    }
    const struct mt_tally_place *first = place_named(&estimate->tally, "gpu:0");
    const struct mt_tally_row *weights = first ? mt_tally_row_of(first, MT_CATEGORY_WEIGHTS) : NULL;
    rank.weight_bytes = weights ? weights->allocated_bytes : 0;
    rank.token_bytes = estimate->pool.present ? estimate->pool.bytes_per_token : 0;
    mt_estimate_destroy(estimate);
    return rank;
}

static void say_rank(struct speech *speech, const char *place, const struct rank *rank, uint64_t n)
{
    const struct mt_drive_running *running = speech->running;
    if (rank->weight_bytes)
        say(speech, place, MT_CATEGORY_WEIGHTS, rank->weight_bytes * n, MT_PROVENANCE_DERIVED,
            "by the model's header and the engine's rules");
    else
        say(speech, place, MT_CATEGORY_WEIGHTS, running->weight_bytes * n, MT_PROVENANCE_INFERRED,
            "by the engine's own word");
    if (rank->token_bytes && running->cache_tokens < UINT64_MAX / rank->token_bytes / n)
        say(speech, place, MT_CATEGORY_KV_CACHE, running->cache_tokens * rank->token_bytes * n,
            MT_PROVENANCE_DERIVED,
            "tokens by the engine's word, bytes of one by the model's header");
    else
        say(speech, place, MT_CATEGORY_KV_CACHE, running->cache_bytes * n, MT_PROVENANCE_INFERRED,
            "by the engine's own word");
}

/* A server's programs answer for all of it: one that has less of a device than the server says is
 * not the one that has its weights and cache. */
static int is_within(struct speech *speech, const struct mt_tally_place *place)
{
    uint64_t has = place->total_resident_bytes;
    uint64_t told = 0;
    char sizes[2][MT_SIZE_TEXT];
    for (size_t i = 0; i < speech->words->n; i++)
        if (strcmp(speech->words->items[i].place, place->place) == 0)
            told += speech->words->items[i].bytes;
    if (!has || told <= has)
        return 1;
    why(speech, "the server says that it has %s of %.48s, and this process has %s",
        mt_format_size(told, sizes[0]), place->place, mt_format_size(has, sizes[1]));
    return 0;
}

static void say_ranks(struct speech *speech, const struct rank *rank, size_t n)
{
    size_t said = speech->words->n;
    for (size_t i = 0; i < n; i++) {
        say_rank(speech, speech->devices[i]->place, rank, 1);
        if (!is_within(speech, speech->devices[i])) {
            speech->words->n = said;
            return;
        }
    }
}

static void say_pool(struct speech *speech, const struct mt_model *model)
{
    struct rank rank = {0};
    uint64_t n = speech->running->ranks ? speech->running->ranks : 1;
    if (n > DEVICES_MAX) {
        why(speech, "more than %u ranks are not told apart", DEVICES_MAX);
        return;
    }
    if (model)
        rank = rank_of(speech, model);
    if (!speech->n_devices && uses_a_driver(speech))
        say_rank(speech, UNSEEN_DEVICE, &rank, n);
    else if (!speech->n_devices && !may_have_a_device(speech))
        say_rank(speech, "host", &rank, n);
    else if (speech->n_devices == n)
        say_ranks(speech, &rank, n);
    else if (speech->n_devices)
        why(speech, "the server does not say which of %zu devices has which part",
            speech->n_devices);
}

/* ---- all of it ---- */

/* Ollama's word of what it has loaded; it does not say the parts. */
static void say_loaded(struct speech *speech)
{
    static const char name[] = "weights, cache and compute by the engine's own word";
    const struct mt_drive_running *running = speech->running;
    if (!running->is_told_loaded || speech->words->n || speech->n_devices > 1)
        return;
    say(speech, "host", MT_CATEGORY_RUNTIME, running->loaded_bytes - running->loaded_device_bytes,
        MT_PROVENANCE_INFERRED, name);
    say(speech, speech->n_devices ? speech->devices[0]->place : UNSEEN_DEVICE, MT_CATEGORY_RUNTIME,
        running->loaded_device_bytes, MT_PROVENANCE_INFERRED, name);
}

/* Whether one of the first `n` words tells of it. */
static int is_told(const struct speech *speech, size_t n, enum mt_category category)
{
    for (size_t i = 0; i < n; i++)
        if (speech->words->items[i].category == category)
            return 1;
    return 0;
}

static int is_told_of(const struct speech *speech, const char *place)
{
    for (size_t i = 0; i < speech->words->n; i++)
        if (strcmp(speech->words->items[i].place, place) == 0)
            return 1;
    return 0;
}

/* Ollama may say that it has nothing outside of devices. */
static int is_told_to_be_bare(const struct speech *speech, const char *place)
{
    const struct mt_drive_running *running = speech->running;
    return running->is_told_loaded && running->loaded_bytes == running->loaded_device_bytes &&
           strcmp(place, "host") == 0;
}

static int computes(const struct speech *speech)
{
    return speech->is_model || has_mapped(speech, computing) ||
           resident(speech->host, MT_CATEGORY_WEIGHTS);
}

/* Whether models may be computed there: by a known engine, a library or a mapped model, by whom
 * nobody could look at, or on a device, whatever it is that has some of it. */
static int may_compute(const struct speech *speech, const char *place)
{
    return computes(speech) || is_hidden(speech) || strcmp(place, "host") != 0;
}

/* What no word and no mapping tells of a place is not nothing. An engine that has its weights or
 * cache where a word says so has none elsewhere; of what it computes with no word tells. */
static void say_rest_of(struct speech *speech, const char *name, const struct mt_tally_place *place,
                        size_t n_told)
{
    static const enum mt_category categories[] = {MT_CATEGORY_WEIGHTS, MT_CATEGORY_KV_CACHE,
                                                  MT_CATEGORY_ACTIVATIONS};
    if (is_told_to_be_bare(speech, name) || !may_compute(speech, name))
        return;
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++) {
        enum mt_category category = categories[i];
        int is_whole = speech->is_whole && category != MT_CATEGORY_ACTIVATIONS;
        if (!is_whole && !is_told(speech, n_told, category) && !resident(place, category))
            say_unknown(speech, name, category);
    }
}

/* The reason of a program that is no known engine's. */
static void say_why_unknown(struct speech *speech)
{
    if (is_hidden(speech))
        why(speech, "not all of its mappings were seen, and no server tells what lies in them");
    else if (computes(speech))
        why(speech, "it has mapped a model or a library that computes models, and no server tells "
                    "what it has for them");
    else
        why(speech, "a driver says how much of a device it has, and not what for");
}

static void say_rest(struct speech *speech)
{
    size_t n_told = speech->words->n;
    for (size_t i = 0; i < speech->tally->n_places; i++)
        say_rest_of(speech, speech->tally->places[i].place, &speech->tally->places[i], n_told);
    int is_unseen =
        is_told_of(speech, UNSEEN_DEVICE) || (uses_a_driver(speech) && may_compute(speech, "host"));
    if (!speech->n_devices && is_unseen)
        say_rest_of(speech, UNSEEN_DEVICE, NULL, n_told);
    if (speech->words->n > n_told && !*speech->running->engine)
        say_why_unknown(speech);
    else if (!speech->n_devices && !computes(speech))
        (void)may_have_a_device(speech);
}

/* Whether the cache follows from the context by a rule, and is no pool that takes what is left. */
static int has_cells(const char *name)
{
    struct mt_engine engine;
    return mt_engine_find(name, &engine, NULL) == 0 && mt_engine_has(&engine, "kv_cache", "rule");
}

void mt_drive_running_header_open(const struct mt_model_files *files, const char *path,
                                  struct mt_drive_running_header *header)
{
    struct mt_error error = {.offset = MT_NO_OFFSET};
    *header = (struct mt_drive_running_header){0};
    if (mt_model_open(path, files, &header->model, &error) < 0)
        snprintf(header->why, sizeof header->why, "the model's header could not be read: %.140s",
                 error.text);
}

void mt_drive_running_header_close(struct mt_drive_running_header *header)
{
    mt_model_close(header->model);
    header->model = NULL;
}

static void say_engine(struct speech *speech, const struct mt_drive_running_header *header)
{
    const struct mt_model *model = header->model;
    if (!model)
        why(speech, "%s", *header->why ? header->why : "which model file it serves is not known");
    if (!has_cells(speech->running->rules))
        say_pool(speech, model);
    else if (model)
        say_llama(speech, model);
    say_loaded(speech);
}

void mt_drive_running_words(const struct mt_drive_running *running,
                            const struct mt_drive_running_header *header,
                            const struct mt_tally *tally, struct mt_drive_words *words)
{
    struct speech speech = {
        .running = running, .tally = tally, .words = words, .is_model = *running->engine != '\0'};
    *words = (struct mt_drive_words){.n = 0};
    find_places(&speech);
    if (*running->engine)
        say_engine(&speech, header);
    say_rest(&speech);
}

void mt_drive_unseen_words(const struct mt_tally *tally, int is_model, struct mt_drive_words *words)
{
    static const struct mt_drive_running nobody = {.ranks = 1};
    struct speech speech = {
        .running = &nobody, .tally = tally, .words = words, .is_model = is_model};
    *words = (struct mt_drive_words){.n = 0};
    for (size_t i = 0; i < tally->n_processes; i++)
        if (strcmp(tally->processes[i].observed, "outside") != 0)
            return;
    find_places(&speech);
    say_rest(&speech);
}
