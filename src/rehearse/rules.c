/* SPDX-License-Identifier: MIT */
/* Reads a device's rules out of the engine's table (its keys "pretend.KIND.…"). It knows what a key
 * means and no number of any engine. */
#include "rehearse/rules.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/fused.h"

#define ENGINE      "llama.cpp"
#define KEY_BYTES   64
#define WORDS_BYTES 256
#define WORD_BYTES  32
#define AMD         0x1000000u /* what ggml adds to the number of an AMD architecture */

struct table {
    struct mt_engine engine;
    const char *kind;
};

/* The value of a key as text, "" where the table has none. */
static void get_words(const struct mt_engine *engine, const char *key, char *words, size_t size)
{
    struct mt_engine_value value;
    words[0] = 0;
    if (mt_engine_value(engine, key, &value) < 0 || value.length >= size)
        return;
    memcpy(words, value.text, value.length);
    words[value.length] = 0;
}

static void key_of(const struct table *table, const char *name, char key[KEY_BYTES])
{
    snprintf(key, KEY_BYTES, "pretend.%s.%s", table->kind, name);
}

static uint64_t get_number(const struct table *table, const char *name)
{
    char key[KEY_BYTES];
    key_of(table, name, key);
    return mt_engine_number(&table->engine, key, 0);
}

static uint32_t has(const struct table *table, const char *name, const char *word)
{
    char key[KEY_BYTES];
    key_of(table, name, key);
    return (uint32_t)mt_engine_has(&table->engine, key, word);
}

/* Takes the next word off *words; "" at the end. */
static void next_word(const char **words, char word[WORD_BYTES])
{
    const char *at = *words + strspn(*words, " ");
    size_t length = strcspn(at, " ");
    *words = at + length;
    snprintf(word, WORD_BYTES, "%.*s", (int)(length < WORD_BYTES ? length : WORD_BYTES - 1), at);
}

/* "8.6" is 860, "gfx90a" AMD's 0x90a, "3" is 3; 0 for what is no number of an architecture. */
static uint32_t parse_capability(const char *text)
{
    char *end;
    if (strncmp(text, "gfx", 3) == 0) {
        unsigned long number = strtoul(text + 3, &end, 16);
        return end == text + 3 || *end || number > 0xFFFF ? 0 : AMD + (uint32_t)number;
    }
    if (!isdigit((unsigned char)text[0]))
        return 0;
    unsigned long major = strtoul(text, &end, 10);
    if (!*end)
        return major < 1000 ? (uint32_t)major : 0;
    if (*end != '.' || !isdigit((unsigned char)end[1]) || end[2] || major > 99)
        return 0;
    return (uint32_t)(major * 100 + (unsigned long)(end[1] - '0') * 10);
}

static uint32_t capability_of(const struct table *table, const char *generation)
{
    char key[KEY_BYTES], value[WORD_BYTES];
    snprintf(key, sizeof key, "pretend.%s.generation.%s", table->kind, generation);
    get_words(&table->engine, key, value, sizeof value);
    return parse_capability(value);
}

/* Whether the asked name is this generation's, without regard to case. */
static int is_called(const char *name, const char *asked)
{
    size_t i = 0;
    while (name[i] && name[i] == (char)tolower((unsigned char)asked[i]))
        i++;
    return !name[i] && !asked[i];
}

/* Finds a generation by its name or its architecture's number: then it is the last generation that
 * is not newer, with the number that was given. Without either it is the newest. */
static int find_generation(const struct table *table, const char *asked,
                           struct mt_pretend_rules *rules, struct mt_error *error)
{
    char key[KEY_BYTES], words[WORDS_BYTES], word[WORD_BYTES];
    uint32_t number = asked ? parse_capability(asked) : 0;
    key_of(table, "generations", key);
    get_words(&table->engine, key, words, sizeof words);
    int found = 0;
    for (const char *at = words; next_word(&at, word), *word;) {
        uint32_t capability = capability_of(table, word);
        if (asked && !is_called(word, asked) && !(number && capability <= number))
            continue;
        snprintf(rules->generation, sizeof rules->generation, "%.15s", word);
        rules->capability = number ? number : capability;
        found = 1;
    }
    if (found)
        return 0;
    return mt_fail(error, MT_EARG, MT_NO_OFFSET, "no generation of %s is called %s: there are %s",
                   table->kind, asked ? asked : "", words);
}

static int find_kind(struct table *table, const char *asked, struct mt_error *error)
{
    char words[WORDS_BYTES];
    get_words(&table->engine, "pretend.kinds", words, sizeof words);
    if (!mt_engine_has(&table->engine, "pretend.kinds", asked))
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "no devices of kind %s are known: there are %s", asked, words);
    table->kind = asked;
    return 0;
}

/* Copies a name of the table; "-" stands for none. */
static void take_name(const char **words, char *name, size_t size)
{
    char word[WORD_BYTES];
    next_word(words, word);
    snprintf(name, size, "%.*s", (int)size - 1, strcmp(word, "-") == 0 ? "" : word);
}

static void read_names(const struct table *table, struct mt_pretend_rules *rules)
{
    char key[KEY_BYTES], words[WORDS_BYTES];
    key_of(table, "names", key);
    get_words(&table->engine, key, words, sizeof words);
    const char *at = words;
    snprintf(rules->kind, sizeof rules->kind, "%.15s", table->kind);
    take_name(&at, rules->registry, sizeof rules->registry);
    take_name(&at, rules->device_prefix, sizeof rules->device_prefix);
    take_name(&at, rules->host_buffer, sizeof rules->host_buffer);
}

static uint32_t kept(const struct table *table, const char *name)
{
    return (has(table, name, "topk") ? MT_KEEP_TOPK : 0) |
           (has(table, name, "reduction") ? MT_KEEP_REDUCTION : 0) |
           (has(table, name, "shared") ? MT_KEEP_SHARED : 0);
}

static void read_rules(const struct table *table, struct mt_pretend_rules *rules)
{
    rules->alignment = get_number(table, "alignment");
    rules->host_alignment = get_number(table, "alignment.host");
    rules->row_padding = get_number(table, "row_padding");
    rules->offload_batch = get_number(table, "offload_batch");
    rules->buffer_bytes_max = get_number(table, "buffer_max");
    rules->granule_bytes = (uint32_t)get_number(table, "granule");
    rules->has_async = has(table, "has", "async");
    rules->has_events = has(table, "has", "events");
    rules->has_split_buffers = has(table, "has", "split");
    rules->is_unified = has(table, "has", "unified");
    rules->is_reordered = has(table, "has", "order");
    rules->is_of_vendor = has(table, "has", "vendor");
    rules->is_unconfirmed = !has(table, "confirmed", "logs");
    rules->host_extra_bytes = (uint32_t)get_number(table, "host_extra");
    rules->flash_attention = has(table, "flash", "copies")  ? MT_PRETEND_FLASH_F16_COPIES
                             : has(table, "flash", "metal") ? MT_PRETEND_FLASH_METAL
                                                            : MT_PRETEND_FLASH_PLAIN;
    rules->flash_types = has(table, "flash_types", "pairs") ? MT_PRETEND_FLASH_TYPES_PAIRS
                                                            : MT_PRETEND_FLASH_TYPES_ANY;
    rules->graph_dependencies = kept(table, "keeps");
    rules->perhaps_dependencies = kept(table, "keeps.perhaps");
    rules->build = (uint32_t)table->engine.version.parts[0];
}

static int find_table(const char *kind, const char *engine_version, struct table *table,
                      struct mt_error *error)
{
    char name[64];
    if (engine_version && strlen(engine_version) > sizeof name - sizeof ENGINE - 1)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "%.40s is no version of " ENGINE,
                       engine_version);
    snprintf(name, sizeof name, "%s%s%s", ENGINE, engine_version ? "@" : "",
             engine_version ? engine_version : "");
    int status = mt_engine_find(name, &table->engine, error);
    return status < 0 ? status : find_kind(table, kind ? kind : "cuda", error);
}

int mt_pretend_rules_choose(const char *kind, const char *generation, const char *engine_version,
                            struct mt_pretend_rules *rules, struct mt_error *error)
{
    struct table table;
    struct mt_pretend_rules made = {0};
    int status = find_table(kind, engine_version, &table, error);
    if (status == 0)
        status = find_generation(&table, generation, &made, error);
    if (status < 0)
        return status;
    read_names(&table, &made);
    read_rules(&table, &made);
    *rules = made;
    return 0;
}

/* The build since which the table has had the value of a key; 0 where it has none. */
static uint64_t since(const struct mt_engine *engine, const char *key)
{
    struct mt_engine_value value;
    return mt_engine_value(engine, key, &value) < 0 ? 0 : strtoull(value.since, NULL, 10);
}

/* The latest build at which a rule changed. */
static uint64_t last_change(const struct table *table)
{
    static const char *const names[] = {
        "names",        "alignment", "alignment.host", "row_padding", "offload_batch", "buffer_max",
        "granule",      "has",       "host_extra",     "flash",       "flash_types",   "keeps",
        "keeps.perhaps"};
    uint64_t last = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char key[KEY_BYTES];
        key_of(table, names[i], key);
        uint64_t changed = since(&table->engine, key);
        last = changed > last ? changed : last;
    }
    return last;
}

/* Goes back from change to change. */
static void fill_eras(struct table *table, const struct mt_pretend_rules *model,
                      struct mt_pretend_builds *builds)
{
    while (builds->n_eras < MT_ACCOUNT_ERAS_MAX) {
        struct mt_pretend_era *era = &builds->era[builds->n_eras++];
        memcpy(&era->rules, model, sizeof *model);
        read_names(table, &era->rules);
        read_rules(table, &era->rules);
        era->since = last_change(table);
        if (!era->since)
            break;
        table->engine.version.parts[0] = era->since - 1;
    }
}

static uint32_t seen_api(struct mt_engine engine, uint64_t build)
{
    engine.version.parts[0] = build;
    return since(&engine, "ggml.api") == build ? (uint32_t)mt_engine_number(&engine, "ggml.api", 0)
                                               : 0;
}

static uint32_t seen_ggml(struct mt_engine engine, uint64_t build)
{
    char version[WORD_BYTES];
    engine.version.parts[0] = build;
    get_words(&engine, "ggml.version", version, sizeof version);
    return since(&engine, "ggml.version") == build ? mt_pretend_ggml_number(version) : 0;
}

static void fill_seen(struct mt_engine engine, struct mt_pretend_builds *builds)
{
    while (builds->n_seen < MT_ACCOUNT_SEEN_MAX) {
        uint64_t of_version = since(&engine, "ggml.version"), of_api = since(&engine, "ggml.api");
        uint64_t build = of_version > of_api ? of_version : of_api;
        if (!build)
            return;
        builds->seen[builds->n_seen++] = (struct mt_pretend_seen){
            (uint32_t)build, seen_ggml(engine, build), seen_api(engine, build)};
        engine.version.parts[0] = build - 1;
    }
}

int mt_pretend_builds_fill(const struct mt_pretend_rules *rules, struct mt_pretend_builds *builds,
                           struct mt_error *error)
{
    struct table table;
    int status = find_table(rules->kind, NULL, &table, error);
    if (status < 0)
        return status;
    fill_seen(table.engine, builds);
    fill_eras(&table, rules, builds);
    return 0;
}
