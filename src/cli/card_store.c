/* SPDX-License-Identifier: MIT */
/* The file of measured cards. */
#include "cli/card_store.h"

#include <jansson.h>
#include <memtally/gpu.h>
#include <memtally/units.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "cli/state_file.h"

#define SCHEMA    "memtally-cards/1"
#define BYTES_MAX (INT64_C(1) << 60)

/* The figures of an entry; those that may be unknown are null then. */
#define FIGURES(X)                                                                                 \
    X(driver_version)                                                                              \
    X(capability)                                                                                  \
    X(multiprocessors)                                                                             \
    X(threads)                                                                                     \
    X(total_bytes)                                                                                 \
    X(nvml_total_bytes)                                                                            \
    X(context_bytes)                                                                               \
    X(module_bytes)                                                                                \
    X(blas_bytes)                                                                                  \
    X(blas_code_bytes)                                                                             \
    X(graph_node_bytes)

int cli_cards_path(struct mt_strbuf *path, struct mt_error *error)
{
    int result = cli_state_folder(path, error);
    mt_strbuf_puts(path, "/cards.json");
    return result;
}

/* Returns 0 for what is neither a figure nor null. */
static int get_figure(const json_t *entry, const char *key, uint64_t *figure)
{
    const json_t *value = json_object_get(entry, key);
    json_int_t number = json_integer_value(value);
    if (json_is_null(value))
        *figure = MT_UNKNOWN;
    else if (!json_is_integer(value) || number < 0 || number > BYTES_MAX)
        return 0;
    else
        *figure = (uint64_t)number;
    return 1;
}

static int get_entry(const json_t *entry, struct mt_calibration *card)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    const char *uuid = json_string_value(json_object_get(entry, "uuid"));
    uint64_t figure;
    *card = (struct mt_calibration){.name = ""};
    if (!name || !uuid)
        return 0;
    snprintf(card->name, sizeof card->name, "%s", name);
    snprintf(card->uuid, sizeof card->uuid, "%s", uuid);
    card->is_disturbed = json_is_true(json_object_get(entry, "disturbed"));
#define GET(member)                                                                                \
    if (!get_figure(entry, #member, &figure))                                                      \
        return 0;                                                                                  \
    card->member = (__typeof__(card->member))figure;
    FIGURES(GET)
#undef GET
    return card->context_bytes != MT_UNKNOWN;
}

static json_t *put_figure(uint64_t figure)
{
    return figure == MT_UNKNOWN ? json_null() : json_integer((json_int_t)figure);
}

static json_t *make_entry(const struct mt_calibration *card)
{
    json_t *entry = json_object();
    json_object_set_new(entry, "name", json_string(card->name));
    json_object_set_new(entry, "uuid", json_string(card->uuid));
#define PUT(member) json_object_set_new(entry, #member, put_figure(card->member));
    FIGURES(PUT)
#undef PUT
    json_object_set_new(entry, "disturbed", json_boolean(card->is_disturbed));
    return entry;
}

static int read_cards(const json_t *root, struct cli_cards *cards)
{
    size_t i;
    const json_t *entry;
    const char *schema = json_string_value(json_object_get(root, "schema"));
    const json_t *list = json_object_get(root, "cards");
    if (!schema || strcmp(schema, SCHEMA) != 0 || !json_is_array(list))
        return 0;
    json_array_foreach(list, i, entry)
    {
        if (cards->n < CLI_CARDS_KEPT && !get_entry(entry, &cards->card[cards->n++]))
            return 0;
    }
    return 1;
}

int cli_cards_load(struct cli_cards *cards, struct mt_error *error)
{
    struct mt_strbuf path = {0}, text = {0};
    struct cli_cards found = {.n = 0};
    *cards = found;
    if (cli_cards_path(&path, NULL) < 0) {
        mt_strbuf_finish(&path);
        return 0;
    }
    int result = cli_state_read(mt_strbuf_text(&path), &text, error);
    if (result == 0 && text.length) {
        json_t *root = json_loadb(text.data, text.length, JSON_REJECT_DUPLICATES, NULL);
        if (!root || !read_cards(root, &found))
            result = mt_fail(error, MT_EFORMAT, MT_NO_OFFSET,
                             "%s is not what memtally writes there; remove it, or measure the "
                             "cards again with 'memtally doctor --calibrate'",
                             mt_strbuf_text(&path));
        else
            *cards = found;
        json_decref(root);
    }
    mt_strbuf_finish(&text);
    mt_strbuf_finish(&path);
    return result;
}

static int has(const struct cli_cards *cards, const char *uuid)
{
    for (size_t i = 0; i < cards->n; i++)
        if (!strcmp(cards->card[i].uuid, uuid))
            return 1;
    return 0;
}

int cli_cards_keep(const struct cli_cards *cards, struct mt_error *error)
{
    struct mt_strbuf folder = {0}, path = {0};
    struct cli_cards old;
    json_t *list = json_array();
    int result = cli_state_folder(&folder, error);
    if (result == 0)
        result = cli_state_make_folders(folder.data, error);
    if (result == 0)
        result = cli_cards_path(&path, error);
    cli_cards_load(&old, NULL);
    for (size_t i = 0; i < cards->n; i++)
        json_array_append_new(list, make_entry(&cards->card[i]));
    for (size_t i = 0; i < old.n && json_array_size(list) < CLI_CARDS_KEPT; i++)
        if (!has(cards, old.card[i].uuid))
            json_array_append_new(list, make_entry(&old.card[i]));
    json_t *root = json_pack("{s:s,s:o}", "schema", SCHEMA, "cards", list);
    if (result == 0 && !root)
        result = mt_out_of_memory(error);
    if (result == 0)
        result = cli_state_save(mt_strbuf_text(&path), root, error);
    json_decref(root);
    mt_strbuf_finish(&path);
    mt_strbuf_finish(&folder);
    return result;
}

/* Cards of two sizes may have one name. */
static int is_card(const struct mt_calibration *card, const struct mt_rehearsal_gpu *gpu)
{
    uint64_t margin = gpu->memory_bytes / 100 * 8;
    return strcmp(card->name, gpu->name) == 0 && card->total_bytes + margin >= gpu->memory_bytes &&
           card->total_bytes <= gpu->memory_bytes + margin;
}

const struct mt_calibration *cli_cards_find(const struct cli_cards *cards, const char *key,
                                            uint64_t bytes)
{
    struct mt_rehearsal_gpu gpu;
    if (key && mt_rehearsal_gpu_find(key, &gpu, NULL) < 0)
        return NULL;
    for (size_t i = 0; i < cards->n; i++) {
        const struct mt_calibration *card = &cards->card[i];
        if (key ? is_card(card, &gpu) : card->nvml_total_bytes == bytes)
            return card;
    }
    return NULL;
}
