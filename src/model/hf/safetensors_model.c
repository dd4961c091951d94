/* SPDX-License-Identifier: MIT */
/* A model of safetensors: one file, or shards that an index names, with the config.json beside them
 * or without. */
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "model/names.h"
#include "safetensors.h"

#include "base/error.h"
#include "base/out_of_memory.h"

#define INDEX_BYTES_MAX (UINT64_C(128) << 20)
#define SHARDS_MAX      65536

/* The shards that an index names, in the order in which it does. */
struct shards {
    const char *path; /* of the index */
    struct mt_arena *arena;
    const char **names;
    uint64_t *n_tensors; /* that the index puts there */
    size_t n;
    size_t capacity;
    struct mt_names known;
};

static const char *shard_name(const void *argument, uint32_t number, size_t *length)
{
    const struct shards *shards = argument;
    *length = strlen(shards->names[number]);
    return shards->names[number];
}

static int grow(struct shards *shards)
{
    size_t capacity = shards->capacity ? 2 * shards->capacity : 64;
    if (shards->n < shards->capacity)
        return 0;
    const char **names = reallocarray(shards->names, capacity, sizeof *names);
    if (names)
        shards->names = names;
    uint64_t *counts = reallocarray(shards->n_tensors, capacity, sizeof *counts);
    if (counts)
        shards->n_tensors = counts;
    if (!names || !counts)
        return MT_ENOMEM;
    shards->capacity = capacity;
    return 0;
}

/* Shards lie beside their index; any other place is refused. */
static int is_plain_name(const char *name, size_t length)
{
    return length > 0 && length < 256 && name[0] != '.' && !memchr(name, '/', length) &&
           !memchr(name, '\\', length) && !memchr(name, '\0', length);
}

static int add_shard(struct shards *shards, const char *name, size_t length, struct mt_error *error)
{
    uint32_t at = mt_names_find(&shards->known, name, length);
    if (at != MT_NAMES_NONE) {
        shards->n_tensors[at]++;
        return 0;
    }
    if (shards->n == SHARDS_MAX)
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "%s: names more than %d files", shards->path,
                       SHARDS_MAX);
    char *copy = mt_arena_copy(shards->arena, name, length);
    if (!copy || grow(shards))
        return mt_out_of_memory_for(error, shards->path);
    shards->names[shards->n] = copy;
    shards->n_tensors[shards->n] = 1;
    uint32_t number = (uint32_t)shards->n++;
    int code = mt_names_reserve(&shards->known, shards->n);
    if (!code)
        code = mt_names_add(&shards->known, number, mt_names_hash(&shards->known, number), &at);
    return code < 0 ? mt_fail(error, code, MT_NO_OFFSET, "%s: too many like names of files",
                              shards->path)
                    : 0;
}

static int take_place(struct shards *shards, struct mt_json *json, struct mt_error *error)
{
    struct mt_json_token value;
    char name[256];
    int code = mt_json_next(json, &value, error);
    if (code)
        return code;
    size_t length = value.type == MT_JSON_STRING && value.length < sizeof name
                        ? mt_json_unescape(&value, name)
                        : 0;
    if (!is_plain_name(name, length))
        return mt_fail(error, MT_EFORMAT, mt_json_offset(json, &value),
                       "%s: weight_map names \"%.*s\", expected a file beside the index",
                       shards->path, (int)(value.length < 200 ? value.length : 200), value.text);
    return add_shard(shards, name, length, error);
}

static int take_weight_map(struct shards *shards, struct mt_json *json, struct mt_error *error)
{
    struct mt_json_token token;
    int code = mt_json_next(json, &token, error);
    if (!code && token.type != MT_JSON_OBJECT)
        return mt_fail(error, MT_EFORMAT, mt_json_offset(json, &token),
                       "%s: expected weight_map to be an object", shards->path);
    while (!code) {
        code = mt_json_next(json, &token, error);
        if (code || token.type == MT_JSON_OBJECT_END)
            return code;
        code = take_place(shards, json, error);
    }
    return code;
}

static int take_index(struct shards *shards, struct mt_json *json, struct mt_error *error)
{
    struct mt_json_token token;
    int maps = 0;
    int code = mt_json_next(json, &token, error);
    if (!code && token.type != MT_JSON_OBJECT)
        return mt_fail(error, MT_EFORMAT, 0, "%s: expected a JSON object", shards->path);
    while (!code) {
        code = mt_json_next(json, &token, error);
        if (code || token.type == MT_JSON_OBJECT_END)
            break;
        if (mt_json_is(&token, "weight_map")) {
            if (maps++)
                return mt_fail(error, MT_EFORMAT, mt_json_offset(json, &token),
                               "%s: the key \"weight_map\" occurs twice", shards->path);
            code = take_weight_map(shards, json, error);
            continue;
        }
        code = mt_json_next(json, &token, error);
        if (!code)
            code = mt_json_finish_value(json, &token, error);
    }
    if (!code && shards->n == 0)
        return mt_fail(error, MT_EFORMAT, 0, "%s: expected a weight_map that names files",
                       shards->path);
    return code;
}

/* Reading files of one model. */
struct reading {
    struct mt_model *model;
    const struct mt_model_files *files;
    struct mt_st_list *list;
};

static int read_one(struct reading *reading, const struct mt_model_source *source, const char *path,
                    struct mt_error *error)
{
    struct mt_model_description *description = &reading->model->description;
    int code = mt_st_read_header(reading->list, source, path, (uint32_t)description->n_files,
                                 &description->header_bytes, error);
    if (code)
        return code;
    description->n_files++;
    if (__builtin_add_overflow(description->file_bytes, source->size_bytes,
                               &description->file_bytes))
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "%s: the files have more than 2^64 bytes",
                       path);
    return 0;
}

static int read_shard(struct reading *reading, const struct shards *shards, size_t i,
                      struct mt_error *error)
{
    struct mt_model_source source;
    size_t before = reading->list->n;
    const char *path = mt_hf_sibling(shards->arena, shards->path, shards->names[i]);
    if (!path)
        return mt_out_of_memory_for(error, shards->path);
    int code = reading->files->open(reading->files->argument, path, &source, error);
    if (code == MT_ENOTFOUND)
        return mt_fail(error, code, MT_NO_OFFSET,
                       "%s: not found; it is shard %zu of %zu that %s names", path, i + 1,
                       shards->n, shards->path);
    if (code)
        return code;
    code = read_one(reading, &source, path, error);
    source.close(source.argument);
    if (!code && reading->list->n - before != shards->n_tensors[i])
        code = mt_model_note(reading->model,
                             "%s has %zu tensors, the index puts %llu there; those that are there "
                             "count.",
                             shards->names[i], reading->list->n - before,
                             (unsigned long long)shards->n_tensors[i]);
    return code;
}

static int read_shards(struct reading *reading, const struct mt_model_source *source,
                       const char *path, struct mt_error *error)
{
    struct shards shards = {.path = path, .arena = &reading->model->arena};
    struct mt_json json;
    char *text = NULL;
    size_t length = 0;
    shards.known.name_of = shard_name;
    shards.known.argument = &shards;
    int code = mt_hf_read_text(source, path, INDEX_BYTES_MAX, &text, &length, error);
    if (!code) {
        mt_json_start(&json, path, text, length, 0);
        code = take_index(&shards, &json, error);
        reading->model->description.header_bytes += length;
        free(text);
    }
    for (size_t i = 0; i < shards.n && !code; i++)
        code = read_shard(reading, &shards, i, error);
    mt_names_finish(&shards.known);
    free(shards.names);
    free(shards.n_tensors);
    return code;
}

static const char *tensor_name(const void *argument, uint32_t number, size_t *length)
{
    const struct mt_st_list *list = argument;
    *length = list->tensors[number].name_length;
    return list->tensors[number].name;
}

static int check_names(const struct mt_st_list *list, const char *path, struct mt_error *error)
{
    struct mt_names names = {.name_of = tensor_name, .argument = list};
    int code = list->n >= MT_NAMES_NONE ? MT_ELIMIT : mt_names_reserve(&names, list->n);
    for (uint32_t i = 0; i < list->n && !code; i++) {
        uint32_t other;
        code = mt_names_add(&names, i, mt_names_hash(&names, i), &other);
        if (code == 1)
            code = mt_fail(
                error, MT_EFORMAT, list->tensors[i].offset, "%s: the tensor \"%.*s\" occurs twice",
                path,
                (int)(list->tensors[i].name_length < 200 ? list->tensors[i].name_length : 200),
                list->tensors[i].name);
        else if (code)
            mt_fail(error, code, MT_NO_OFFSET, "%s: out of memory for the names of tensors", path);
    }
    mt_names_finish(&names);
    return code;
}

static int is_index(const struct mt_model_source *source)
{
    char start[9] = "";
    size_t length = source->size_bytes < 8 ? (size_t)source->size_bytes : 8;
    if (source->read(source->argument, 0, start, length, NULL))
        return 0;
    return start[strspn(start, " \t\r\n")] == '{' && (start[7] != 0 || length < 8);
}

/* Reads the tensors of a file or of the shards of an index, and gives them to the model. */
static int read_tensors(struct mt_model *model, const struct mt_model_files *files,
                        const char *path, const struct mt_model_source *source,
                        struct mt_error *error)
{
    struct reading reading = {model, files, calloc(1, sizeof *reading.list)};
    if (!reading.list)
        return mt_out_of_memory_for(error, path);
    model->description.n_files = 0;
    int code = is_index(source) ? read_shards(&reading, source, path, error)
                                : read_one(&reading, source, path, error);
    if (!code)
        code = check_names(reading.list, path, error);
    if (code) {
        mt_st_list_free(reading.list);
        return code;
    }
    mt_st_list_give(reading.list, model);
    return 0;
}

/* Opens the first of these names beside `path`; MT_ENOTFOUND where there is none. */
static int open_sibling(struct mt_model *model, const struct mt_model_files *files,
                        const char *path, const char *const *names, size_t n,
                        struct mt_model_source *source, const char **found, struct mt_error *error)
{
    for (size_t i = 0; i < n; i++) {
        const char *sibling = mt_hf_sibling(&model->arena, path, names[i]);
        if (!sibling)
            return mt_out_of_memory_for(error, path);
        int code = files->open(files->argument, sibling, source, error);
        *found = sibling;
        if (code != MT_ENOTFOUND)
            return code;
    }
    return MT_ENOTFOUND;
}

int mt_safetensors_beside(struct mt_model *model, const struct mt_model_files *files,
                          const char *path, int *found, struct mt_error *error)
{
    static const char *const names[] = {"model.safetensors.index.json", "model.safetensors"};
    struct mt_model_source source;
    const char *sibling = NULL;
    int code = open_sibling(model, files, path, names, 2, &source, &sibling, error);
    *found = 0;
    if (code == MT_ENOTFOUND)
        return 0;
    if (code)
        return code;
    code = read_tensors(model, files, sibling, &source, error);
    source.close(source.argument);
    *found = !code;
    return code;
}

/* Without a config.json the names tell how many layers there are, and the shape of the keys' matrix
 * how much a token takes in the cache, whatever its heads are. */
static int guess_layers(struct mt_model *model, const char *path, struct mt_error *error)
{
    struct mt_model_description *description = &model->description;
    struct mt_model_tensor tensor;
    uint64_t n = 0;
    for (uint64_t i = 0; i < description->n_tensors; i++) {
        model->tensor_at(model, i, &tensor);
        if (tensor.layer != MT_NO_LAYER && tensor.layer >= n && tensor.layer < MT_HF_LAYERS_MAX)
            n = tensor.layer + UINT64_C(1);
    }
    struct mt_model_layer *layers = mt_arena_array(&model->arena, n ? n : 1, sizeof *layers);
    if (!layers)
        return mt_out_of_memory_for(error, path);
    description->n_layers = n;
    description->layers = layers;
    for (uint64_t i = 0; i < n; i++)
        layers[i].cache_layer = i;
    return 0;
}

static int ends(const struct mt_model_tensor *tensor, const char *ending)
{
    size_t length = strlen(ending);
    return tensor->name_length >= length && tensor->n_dims == 2 &&
           memcmp(tensor->name + tensor->name_length - length, ending, length) == 0;
}

static void guess_from_shapes(struct mt_model *model)
{
    struct mt_model_description *description = &model->description;
    struct mt_model_layer *layers = (struct mt_model_layer *)description->layers;
    struct mt_model_tensor tensor;
    for (uint64_t i = 0; i < description->n_tensors; i++) {
        model->tensor_at(model, i, &tensor);
        if (tensor.role == MT_TENSOR_TOKEN_EMBEDDING && tensor.n_dims == 2) {
            description->embedding_length = tensor.dims[0];
            description->vocabulary = tensor.dims[1];
        }
        if (tensor.layer >= description->n_layers)
            continue;
        struct mt_model_layer *layer = &layers[tensor.layer];
        if (ends(&tensor, "k_proj.weight")) {
            layer->attention = MT_ATTENTION_GLOBAL;
            layer->kv_heads = 1;
            layer->key_size = tensor.dims[1];
        } else if (ends(&tensor, "v_proj.weight")) {
            layer->value_size = tensor.dims[1];
        } else if (ends(&tensor, "up_proj.weight") && tensor.role == MT_TENSOR_LAYER) {
            layer->ff_length = tensor.dims[1];
        }
    }
}

static int describe_bare(struct mt_model *model, const char *path, struct mt_error *error)
{
    struct mt_model_description *description = &model->description;
    description->position_streams = 1;
    int code = guess_layers(model, path, error);
    if (code)
        return code;
    guess_from_shapes(model);
    code =
        mt_model_note(model, "There is no config.json beside the safetensors: weights are exact, "
                             "but heads, windows and the length of the context are not known; "
                             "keys and values are taken as wide as their matrices.");
    if (code)
        return mt_fail(error, code, MT_NO_OFFSET, "%s: out of memory", path);
    return mt_hf_sum(model, error);
}

/* "model-00002-of-00003.safetensors" is a part: its index lies beside it as
 * "model.safetensors.index.json". */
static const char *index_name(struct mt_arena *arena, const char *path)
{
    static const char pattern[] = "-00000-of-00000.safetensors";
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    size_t length = strlen(name);
    if (length <= sizeof pattern - 1)
        return NULL;
    const char *part = name + length - (sizeof pattern - 1);
    for (size_t i = 0; pattern[i]; i++) {
        int fits = pattern[i] == '0' ? part[i] >= '0' && part[i] <= '9' : part[i] == pattern[i];
        if (!fits)
            return NULL;
    }
    return mt_arena_printf(arena, "%.*s.safetensors.index.json", (int)(part - name), name);
}

/* Reads all shards where `path` is one of them and the index is there; *done says so. */
static int read_by_index(struct mt_model *model, const struct mt_model_files *files,
                         const char *path, int *done, struct mt_error *error)
{
    struct mt_model_source index;
    const char *sibling = NULL;
    const char *name = index_name(&model->arena, path);
    *done = 0;
    if (!name)
        return 0;
    int code = open_sibling(model, files, path, &name, 1, &index, &sibling, error);
    if (code == MT_ENOTFOUND)
        return mt_model_note(model, "This is one shard of several, and their index is not beside "
                                    "it: only its own tensors count.");
    if (code)
        return code;
    code = read_tensors(model, files, sibling, &index, error);
    index.close(index.argument);
    *done = 1;
    return code;
}

int mt_safetensors_read(struct mt_model *model, const struct mt_model_files *files,
                        const char *path, const struct mt_model_source *source,
                        struct mt_error *error)
{
    static const char *const names[] = {"config.json"};
    struct mt_model_source config;
    const char *sibling = NULL;
    model->description.format = MT_MODEL_SAFETENSORS;
    int done;
    int code = read_by_index(model, files, path, &done, error);
    if (!code && !done)
        code = read_tensors(model, files, path, source, error);
    if (code)
        return code;
    code = open_sibling(model, files, path, names, 1, &config, &sibling, error);
    if (code == MT_ENOTFOUND)
        return describe_bare(model, path, error);
    if (code)
        return code;
    code = mt_hf_config_read(model, files, sibling, &config, error);
    config.close(config.argument);
    return code;
}
