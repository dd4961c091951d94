/* SPDX-License-Identifier: MIT */
/* The file of what was learnt: read whole, changed in memory, written beside itself and renamed. */
#include "cli/residue_store.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <memtally/error.h>
#include <memtally/residue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memtally/compare.h>
#include <memtally/model_file.h>
#include <memtally/predict.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "base/out_of_memory.h"
#include "cli/json_offset.h"
#include "cli/state_file.h"

#define SCHEMA    "memtally-residues/1"
#define BYTES_MAX (INT64_C(1) << 60)
#define RUNS_KEPT 4096

/* ---- where it lies ---- */

int cli_residues_path(struct mt_strbuf *path, struct mt_error *error)
{
    int result = cli_state_folder(path, error);
    mt_strbuf_puts(path, "/residues.json");
    return result;
}

/* ---- reading ---- */

/* An open store. `root` is a valid document. */
struct store {
    char *path;
    json_t *root;
    json_t *entries;
    int lock;
};

static int is_size(const json_t *entry, const char *key)
{
    const json_t *value = json_object_get(entry, key);
    return json_is_integer(value) && json_integer_value(value) <= BYTES_MAX &&
           json_integer_value(value) >= -BYTES_MAX;
}

static json_int_t number(const json_t *entry, const char *key)
{
    return json_integer_value(json_object_get(entry, key));
}

static const char *text_of(const json_t *entry, const char *key)
{
    return json_string_value(json_object_get(entry, key));
}

/* The categories that may be learnt; a file that says another was not written by us. */
static enum mt_category category_of(const json_t *entry)
{
    const char *name = text_of(entry, "category");
    enum mt_category category = name ? mt_category_by_name(name) : MT_CATEGORY_NONE;
    switch (category) {
    case MT_CATEGORY_CONTEXT:
    case MT_CATEGORY_RUNTIME:
    case MT_CATEGORY_CACHED:
    case MT_CATEGORY_WORKSPACE:
        return category;
    default:
        return MT_CATEGORY_NONE;
    }
}

static const char *place_kind_of(const json_t *entry)
{
    const char *place = text_of(entry, "place");
    if (place && strcmp(place, "host") == 0)
        return "host";
    return place && strcmp(place, "device") == 0 ? "device" : NULL;
}

/* The key of an entry that is wrong, or NULL. */
static const char *wrong_key(const json_t *entry)
{
    static const char *const texts[] = {"engine", "version", "device", "family"};
    static const char *const sizes[] = {"low_bytes", "mean_bytes", "high_bytes"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!text_of(entry, texts[i]))
            return texts[i];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!is_size(entry, sizes[i]))
            return sizes[i];
    if (!place_kind_of(entry))
        return "place";
    if (category_of(entry) == MT_CATEGORY_NONE)
        return "category";
    if (!is_size(entry, "n") || number(entry, "n") < 1)
        return "n";
    return number(entry, "low_bytes") > number(entry, "mean_bytes") ||
                   number(entry, "mean_bytes") > number(entry, "high_bytes")
               ? "mean_bytes"
               : NULL;
}

static int refuse(const char *path, const struct mt_strbuf *text, const char *place,
                  struct mt_error *error)
{
    return mt_fail(error, MT_EFORMAT, cli_json_offset(text->data, text->length, place),
                   "%s: %s is not what memtally writes there", path, *place ? place : "this");
}

static int check(const char *path, const struct mt_strbuf *text, json_t *root,
                 struct mt_error *error)
{
    char place[64];
    size_t i;
    const json_t *entry;
    const char *schema = text_of(root, "schema");
    if (!json_is_object(root))
        return refuse(path, text, "", error);
    if (!schema || strcmp(schema, SCHEMA) != 0)
        return refuse(path, text, "schema", error);
    if (!json_is_array(json_object_get(root, "entries")))
        return refuse(path, text, "entries", error);
    if (!json_is_array(json_object_get(root, "runs")))
        return refuse(path, text, "runs", error);
    json_array_foreach(json_object_get(root, "entries"), i, entry)
    {
        const char *key = wrong_key(entry);
        snprintf(place, sizeof place, "entries[%zu].%s", i, key ? key : "");
        if (key)
            return refuse(path, text, place, error);
    }
    return 0;
}

static json_t *new_root(void)
{
    return json_pack("{s:s,s:[],s:[]}", "schema", SCHEMA, "entries", "runs");
}

/* Reads and checks the file; what is not there is empty. */
static int read_root(const char *path, json_t **root, struct mt_error *error)
{
    struct mt_strbuf text = {0};
    json_error_t wrong;
    json_t *read = NULL;
    int result = cli_state_read(path, &text, error);
    if (result == 0 && text.length == 0 && access(path, F_OK) != 0) {
        read = new_root();
        if (!read)
            result = mt_out_of_memory(error);
    } else if (result == 0) {
        read = json_loadb(mt_strbuf_text(&text), text.length, JSON_REJECT_DUPLICATES, &wrong);
        result = read
                     ? check(path, &text, read, error)
                     : mt_fail(error, MT_EFORMAT, wrong.position > 0 ? (uint64_t)wrong.position : 0,
                               "%s: not JSON: %s", path, wrong.text);
    }
    mt_strbuf_finish(&text);
    if (result)
        json_decref(read);
    else
        *root = read;
    return result;
}

/* ---- writing ---- */

/* Gives a damaged file another name, which no file has. */
static void put_aside(const char *path, struct mt_error *error)
{
    char aside[PATH_MAX];
    char said[sizeof error->text];
    for (int i = 1; i < 1000; i++) {
        snprintf(aside, sizeof aside, i == 1 ? "%s.damaged" : "%s.damaged.%d", path, i);
        if (link(path, aside) != 0 && errno == EEXIST)
            continue;
        if (access(aside, F_OK) != 0 || unlink(path) != 0)
            return;
        snprintf(said, sizeof said, "%s", error->text);
        snprintf(error->text, sizeof error->text,
                 "%.300s; it is kept as %.120s, and learning "
                 "starts anew",
                 said, aside);
        return;
    }
}

/* Opens the store for a change: no other writer until it is closed. */
static int open_store(struct store *store, struct mt_error *error)
{
    struct mt_strbuf folder = {0};
    struct mt_strbuf lock = {0};
    struct mt_strbuf path = {0};
    *store = (struct store){.lock = -1};
    int result = cli_state_folder(&folder, error);
    if (result == 0)
        result = cli_state_make_folders(folder.data, error);
    if (result == 0)
        result = cli_residues_path(&path, error);
    store->path = mt_strbuf_take(&path);
    mt_strbuf_printf(&lock, "%s/residues.lock", mt_strbuf_text(&folder));
    if (result == 0) {
        store->lock = open(mt_strbuf_text(&lock), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (store->lock < 0 || flock(store->lock, LOCK_EX) != 0)
            result = mt_fail_errno(error, errno, "%s", mt_strbuf_text(&lock));
    }
    if (result == 0 && (result = read_root(store->path, &store->root, error)) == MT_EFORMAT &&
        error)
        put_aside(store->path, error);
    store->entries = json_object_get(store->root, "entries");
    mt_strbuf_finish(&folder);
    mt_strbuf_finish(&lock);
    return result;
}

static void close_store(struct store *store)
{
    json_decref(store->root);
    if (store->lock >= 0)
        close(store->lock);
    free(store->path);
}

static int save(const struct store *store, struct mt_error *error)
{
    return cli_state_save(store->path, store->root, error);
}

/* ---- entries ---- */

static int is_of(const json_t *entry, const struct cli_residue_key *key)
{
    return strcmp(text_of(entry, "engine"), key->engine) == 0 &&
           strcmp(text_of(entry, "version"), key->version) == 0 &&
           strcmp(text_of(entry, "device"), key->device) == 0 &&
           strcmp(text_of(entry, "family"), key->family) == 0;
}

static void get_residue(const json_t *entry, struct mt_residue *residue)
{
    *residue = (struct mt_residue){.place_kind = place_kind_of(entry),
                                   .category = category_of(entry),
                                   .low_bytes = number(entry, "low_bytes"),
                                   .mean_bytes = number(entry, "mean_bytes"),
                                   .high_bytes = number(entry, "high_bytes"),
                                   .n = (uint64_t)number(entry, "n")};
}

/* The residues of a key, in memory of their own. */
static int collect(const json_t *root, const struct cli_residue_key *key,
                   struct mt_residue **residues, size_t *n, struct mt_error *error)
{
    const json_t *entries = json_object_get(root, "entries");
    struct mt_residue *found = calloc(json_array_size(entries) + 1, sizeof *found);
    size_t n_found = 0;
    size_t i;
    const json_t *entry;
    if (!found)
        return mt_out_of_memory(error);
    json_array_foreach(entries, i, entry) if (is_of(entry, key))
        get_residue(entry, &found[n_found++]);
    if (n_found == 0) {
        free(found);
        found = NULL;
    }
    *residues = found;
    *n = n_found;
    return 0;
}

static json_t *entry_for(json_t *entries, const struct cli_residue_key *key,
                         const struct mt_residue *residue)
{
    size_t i;
    json_t *entry;
    json_array_foreach(entries, i, entry)
    {
        if (is_of(entry, key) && strcmp(place_kind_of(entry), residue->place_kind) == 0 &&
            category_of(entry) == residue->category)
            return entry;
    }
    entry = json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:i,s:i,s:i,s:i}", "engine", key->engine, "version",
                      key->version, "device", key->device, "family", key->family, "place",
                      residue->place_kind, "category", mt_category_name(residue->category), "n", 0,
                      "low_bytes", 0, "mean_bytes", 0, "high_bytes", 0);
    return entry && json_array_append_new(entries, entry) == 0 ? entry : NULL;
}

static int learn_one(json_t *entries, const struct cli_residue_key *key,
                     const struct mt_residue *residue)
{
    struct mt_residue known;
    json_t *entry = entry_for(entries, key, residue);
    if (!entry)
        return 0;
    get_residue(entry, &known);
    mt_residue_add(&known, residue->mean_bytes);
    return json_object_set_new(entry, "n", json_integer((json_int_t)known.n)) == 0 &&
           json_object_set_new(entry, "low_bytes", json_integer(known.low_bytes)) == 0 &&
           json_object_set_new(entry, "mean_bytes", json_integer(known.mean_bytes)) == 0 &&
           json_object_set_new(entry, "high_bytes", json_integer(known.high_bytes)) == 0;
}

/* Notes that a run was learnt. Returns 0 where it is known already, negative without memory. */
static int note_run(json_t *root, const struct cli_residue_key *key, const char *run)
{
    json_t *runs = json_object_get(root, "runs");
    size_t i;
    const json_t *known;
    json_t *name =
        json_sprintf("%s %s %s %s %s", key->engine, key->version, key->device, key->family, run);
    json_array_foreach(runs, i, known) if (name && json_equal(known, name))
    {
        json_decref(name);
        return 0;
    }
    if (json_array_size(runs) >= RUNS_KEPT)
        json_array_remove(runs, 0);
    return name && json_array_append_new(runs, name) == 0 ? 1 : -1;
}

/* ---- what others call ---- */

int cli_residues_load(const char *engine, const char *version, const char *device,
                      const char *family, struct mt_residue **residues, size_t *n,
                      struct mt_error *error)
{
    const struct cli_residue_key key = {engine ? engine : "", version ? version : "",
                                        device ? device : "", family ? family : ""};
    struct mt_strbuf path = {0};
    json_t *root = NULL;
    int result = cli_residues_path(&path, NULL);
    if (result == MT_ENOTFOUND) {
        mt_strbuf_finish(&path);
        *residues = NULL;
        *n = 0;
        return 0;
    }
    result = mt_strbuf_failed(&path) ? mt_out_of_memory(error) : read_root(path.data, &root, error);
    if (result == 0)
        result = collect(root, &key, residues, n, error);
    json_decref(root);
    mt_strbuf_finish(&path);
    return result;
}

static int learn(struct store *store, const struct cli_residue_key *key,
                 const struct mt_residue *residues, size_t n, const char *run, int *noted,
                 struct mt_error *error)
{
    *noted = note_run(store->root, key, run);
    int kept = *noted >= 0;
    for (size_t i = 0; i < n && kept && *noted; i++)
        kept = learn_one(store->entries, key, &residues[i]);
    if (!kept)
        return mt_out_of_memory(error);
    return *noted ? save(store, error) : 0;
}

int cli_residues_learn(const struct cli_residue_key *key, const struct mt_residue *residues,
                       size_t n, const char *run, int *is_new, struct mt_residue **after,
                       size_t *n_after, struct mt_error *error)
{
    struct store store;
    int noted = 0;
    int result = open_store(&store, error);
    if (result == 0)
        result = learn(&store, key, residues, n, run, &noted, error);
    if (result == 0)
        result = collect(store.root, key, after, n_after, error);
    if (result == 0)
        *is_new = noted;
    close_store(&store);
    return result;
}

/* Whether `name` is "llama.cpp" or "llama.cpp@b11434" of what an entry says. */
static int is_named(const json_t *entry, const char *name)
{
    const char *engine = text_of(entry, "engine");
    size_t length = strlen(engine);
    if (strncmp(name, engine, length) != 0)
        return 0;
    return name[length] == '\0' ||
           (name[length] == '@' && strcmp(name + length + 1, text_of(entry, "version")) == 0);
}

/* The runs of an engine may be learnt again once it is forgotten. */
static void forget_runs(json_t *runs, const char *name)
{
    char start[256];
    const char *at = name ? strchr(name, '@') : NULL;
    if (name)
        snprintf(start, sizeof start, "%.*s %s%s", at ? (int)(at - name) : (int)strlen(name), name,
                 at ? at + 1 : "", at ? " " : "");
    for (size_t i = json_array_size(runs); i-- > 0;) {
        const char *run = json_string_value(json_array_get(runs, i));
        if (!name || !run || strncmp(run, start, strlen(start)) == 0)
            json_array_remove(runs, i);
    }
}

int cli_residues_forget(const char *engine, size_t *forgotten, struct mt_error *error)
{
    struct store store;
    size_t n = 0;
    int result = open_store(&store, error);
    for (size_t i = json_array_size(store.entries); result == 0 && i-- > 0;) {
        if (engine && !is_named(json_array_get(store.entries, i), engine))
            continue;
        json_array_remove(store.entries, i);
        n++;
    }
    if (result == 0) {
        forget_runs(json_object_get(store.root, "runs"), engine);
        if (n)
            result = save(&store, error);
    }
    close_store(&store);
    if (result == 0)
        *forgotten = n;
    return result;
}

/* The settings' own engine may be without a version, and NULL: an estimate says what they come down
 * to. It is only made where something was learnt at all. */
int cli_residues_for(const struct mt_model *model, const struct mt_predict_settings *settings,
                     struct mt_residue **residues, size_t *n, struct mt_error *error)
{
    struct mt_strbuf path = {0};
    struct mt_estimate *estimate = NULL;
    int is_there = cli_residues_path(&path, NULL) == 0 && !mt_strbuf_failed(&path) &&
                   access(path.data, F_OK) == 0;
    int result = 0;
    *residues = NULL;
    *n = 0;
    if (is_there && settings->n_residues == 0 &&
        mt_estimate_create(model, settings, &estimate, NULL) == 0)
        result = cli_residues_load(estimate->tally.engine_name, estimate->tally.engine_version,
                                   settings->n_devices ? "gpu" : "cpu",
                                   mt_model_describe(model)->architecture, residues, n, error);
    mt_estimate_destroy(estimate);
    mt_strbuf_finish(&path);
    return result;
}

int cli_estimate_calibrated(const struct mt_model *model,
                            const struct mt_predict_settings *settings,
                            struct mt_estimate **estimate, struct mt_error *error)
{
    struct mt_predict_settings calibrated = *settings;
    struct mt_residue *residues = NULL;
    size_t n = 0;
    int result = cli_residues_for(model, settings, &residues, &n, error);
    if (n) {
        calibrated.residues = residues;
        calibrated.n_residues = n;
    }
    if (result == 0)
        result = mt_estimate_create(model, &calibrated, estimate, error);
    free(residues);
    return result;
}
