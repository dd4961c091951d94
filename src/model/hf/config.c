/* SPDX-License-Identifier: MIT */
/* Reading a config.json: its fields, and the way from them to a description. Knows no family. */
#include "config.h"

#include <memtally/units.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/out_of_memory.h"

#define FIRST_PIECE (256 * 1024)
#define NESTED_MAX  4
#define SHOWN_MAX   60 /* bytes of a text in a note */

static const struct {
    const char *name;
    size_t length;
} field_names[] = {
#define X(field) {#field, sizeof #field - 1},
#include "fields.def"
#undef X
};

static int compare_key(const struct mt_json_token *key, size_t field)
{
    size_t shorter =
        key->length < field_names[field].length ? key->length : field_names[field].length;
    int order = memcmp(key->text, field_names[field].name, shorter);
    return order ? order : (key->length > shorter) - (field_names[field].length > shorter);
}

/* The field that a key names, or MT_HF_FIELDS. */
static enum mt_hf_field find_field(const struct mt_json_token *key)
{
    size_t low = 0;
    size_t high = MT_HF_FIELDS;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = compare_key(key, middle);
        if (order == 0)
            return (enum mt_hf_field)middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return MT_HF_FIELDS;
}

static int make_value(const struct mt_json *json, const struct mt_json_token *token,
                      const char *name, struct mt_hf_value *value, struct mt_error *error)
{
    *value = (struct mt_hf_value){.is_there = token->type != MT_JSON_NULL,
                                  .is_null = token->type == MT_JSON_NULL,
                                  .number = MT_UNKNOWN};
    value->token = *token;
    if (token->type == MT_JSON_TRUE || token->type == MT_JSON_FALSE)
        value->number = token->type == MT_JSON_TRUE;
    if (token->type != MT_JSON_NUMBER)
        return 0;
    if (mt_json_u64(token, &value->number) == 0 && value->number <= MT_HF_NUMBER_MAX)
        return 0;
    value->number = MT_UNKNOWN;
    double number = 0;
    mt_json_double(token, &number);
    if (number > (double)MT_HF_NUMBER_MAX && number <= 0x1p1023)
        return mt_fail(error, MT_ELIMIT, mt_json_offset(json, token),
                       "%s: %s is %.*s, more than 2^40", json->name, name,
                       (int)(token->length < 40 ? token->length : 40), token->text);
    return 0;
}

/* Takes one field. The same key twice in one object is refused, whichever of them would win. */
static int take_field(struct mt_hf_config *config, struct mt_json *json,
                      const struct mt_json_token *key, uint8_t *seen, struct mt_error *error)
{
    struct mt_json_token token;
    enum mt_hf_field field = key->escaped ? MT_HF_FIELDS : find_field(key);
    int code = mt_json_next(json, &token, error);
    if (!code)
        code = mt_json_finish_value(json, &token, error);
    if (code || field == MT_HF_FIELDS)
        return code;
    if (seen[field])
        return mt_fail(error, MT_EFORMAT, mt_json_offset(json, key),
                       "%s: the key \"%s\" occurs twice", json->name, field_names[field].name);
    seen[field] = 1;
    struct mt_hf_value value;
    code = make_value(json, &token, field_names[field].name, &value, error);
    if (!code)
        config->values[field] = value;
    return code;
}

int mt_hf_config_scan(struct mt_hf_config *config, const char *text, size_t length,
                      uint64_t base_offset, struct mt_error *error)
{
    struct mt_json json;
    struct mt_json_token token;
    uint8_t seen[MT_HF_FIELDS] = {0};
    mt_json_start(&json, config->path, text, length, base_offset);
    int code = mt_json_next(&json, &token, error);
    if (code)
        return code;
    if (token.type != MT_JSON_OBJECT)
        return mt_fail(error, MT_EFORMAT, base_offset, "%s: expected a JSON object", config->path);
    for (;;) {
        code = mt_json_next(&json, &token, error);
        if (code)
            return code;
        if (token.type == MT_JSON_OBJECT_END)
            return mt_json_next(&json, &token, error);
        code = take_field(config, &json, &token, seen, error);
        if (code)
            return code;
    }
}

uint64_t mt_hf_number(const struct mt_hf_config *config, enum mt_hf_field field, uint64_t otherwise)
{
    const struct mt_hf_value *value = &config->values[field];
    return value->is_there && value->number != MT_UNKNOWN ? value->number : otherwise;
}

uint64_t mt_hf_first(const struct mt_hf_config *config, const enum mt_hf_field *fields, size_t n)
{
    uint64_t number = MT_UNKNOWN;
    for (size_t i = 0; i < n && number == MT_UNKNOWN; i++)
        number = mt_hf_number(config, fields[i], MT_UNKNOWN);
    return number == MT_UNKNOWN ? 0 : number;
}

int mt_hf_is(const struct mt_hf_config *config, enum mt_hf_field field, const char *text)
{
    const struct mt_hf_value *value = &config->values[field];
    return value->is_there && value->token.type == MT_JSON_STRING &&
           mt_json_is(&value->token, text);
}

/* The values were checked when they were scanned, so that errors cannot occur again. */
struct mt_hf_value mt_hf_entry(const struct mt_hf_config *config, enum mt_hf_field field,
                               const char *key)
{
    struct mt_hf_value found = {.number = MT_UNKNOWN};
    const struct mt_hf_value *value = &config->values[field];
    struct mt_json json;
    struct mt_json_token token;
    if (!value->is_there || value->token.type != MT_JSON_OBJECT)
        return found;
    mt_json_start(&json, config->path, value->token.text, value->token.length, 0);
    if (mt_json_next(&json, &token, NULL))
        return found;
    while (mt_json_next(&json, &token, NULL) == 0 && token.type == MT_JSON_KEY) {
        int is_it = mt_json_is(&token, key);
        if (mt_json_next(&json, &token, NULL) || mt_json_finish_value(&json, &token, NULL))
            break;
        if (is_it && make_value(&json, &token, key, &found, NULL))
            found = (struct mt_hf_value){.number = MT_UNKNOWN};
    }
    return found;
}

int mt_hf_each(const struct mt_hf_config *config, enum mt_hf_field field,
               int (*each)(void *to, size_t index, const struct mt_json_token *value), void *to)
{
    const struct mt_hf_value *value = &config->values[field];
    struct mt_json json;
    struct mt_json_token token;
    int code = 0;
    if (!value->is_there || value->token.type != MT_JSON_ARRAY)
        return 0;
    mt_json_start(&json, config->path, value->token.text, value->token.length, 0);
    mt_json_next(&json, &token, NULL);
    for (size_t i = 0; code == 0; i++) {
        if (mt_json_next(&json, &token, NULL) || token.type == MT_JSON_ARRAY_END ||
            mt_json_finish_value(&json, &token, NULL))
            break;
        code = each(to, i, &token);
    }
    return code;
}

/* In pieces that double: a small file in a large hole shall not make for a large allocation. */
int mt_hf_read_span(const struct mt_model_source *source, const char *path, uint64_t offset,
                    size_t length, char **text, struct mt_error *error)
{
    char *bytes = malloc(1);
    size_t done = 0;
    for (size_t piece = FIRST_PIECE; done < length && bytes; piece *= 2) {
        size_t n = length - done < piece ? length - done : piece;
        char *larger = realloc(bytes, done + n);
        if (!larger)
            break;
        bytes = larger;
        int code = source->read(source->argument, offset + done, bytes + done, n, error);
        const char *zero = code ? NULL : memchr(bytes + done, '\0', n);
        if (zero)
            code = mt_fail(error, MT_EFORMAT, offset + (uint64_t)(zero - bytes),
                           "%s: not valid JSON: a zero byte", path);
        if (code) {
            free(bytes);
            return code;
        }
        done += n;
    }
    if (!bytes || done < length) {
        free(bytes);
        return mt_out_of_memory_for(error, path);
    }
    *text = bytes;
    return 0;
}

int mt_hf_read_text(const struct mt_model_source *source, const char *path, uint64_t limit,
                    char **text, size_t *length, struct mt_error *error)
{
    if (source->size_bytes > limit)
        return mt_fail(error, MT_ELIMIT, limit, "%s: has %llu bytes; at most %llu are read", path,
                       (unsigned long long)source->size_bytes, (unsigned long long)limit);
    int code = mt_hf_read_span(source, path, 0, (size_t)source->size_bytes, text, error);
    if (!code)
        *length = (size_t)source->size_bytes;
    return code;
}

const char *mt_hf_sibling(struct mt_arena *arena, const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path + 1) : 0;
    return mt_arena_printf(arena, "%.*s%s", folder, path, name);
}

/* Takes out the object that describes the language model, where the config is of a model that also
 * sees, hears or speaks. Returns 0 where there is none. */
static int take_nested(struct mt_hf_config *config, struct mt_json_token *object)
{
    static const enum mt_hf_field names[] = {MT_HF_text_config, MT_HF_language_config,
                                             MT_HF_llm_config, MT_HF_thinker_config};
    int found = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct mt_hf_value *value = &config->values[names[i]];
        if (!found && value->is_there && value->token.type == MT_JSON_OBJECT) {
            *object = value->token;
            found = 1;
        }
        *value = (struct mt_hf_value){.number = MT_UNKNOWN};
    }
    return found;
}

static const struct mt_hf_family *family_of(const struct mt_hf_config *config)
{
    const struct mt_hf_value *type = &config->values[MT_HF_model_type];
    if (!type->is_there || type->token.type != MT_JSON_STRING)
        return NULL;
    return mt_hf_family_find(type->token.text, type->token.length);
}

static void put_defaults(struct mt_hf_config *config)
{
    for (const struct mt_hf_default *at = config->family->defaults; at->field != MT_HF_FIELDS;
         at++) {
        struct mt_hf_value *value = &config->values[at->field];
        if (!value->is_there && !value->is_null)
            *value = (struct mt_hf_value){.is_there = 1, .number = at->number};
    }
}

/* The text model's own object counts more than what surrounds it, at each level; the model_type of
 * the whole is used where that of the text model is not known. */
static int scan_all(struct mt_hf_config *config, size_t length, struct mt_error *error)
{
    struct mt_json_token object = {.text = config->text, .length = length};
    for (int level = 0; level <= NESTED_MAX; level++) {
        uint64_t offset = (uint64_t)(object.text - config->text);
        int code = mt_hf_config_scan(config, object.text, object.length, offset, error);
        if (code)
            return code;
        if (family_of(config))
            config->family = family_of(config);
        if (!take_nested(config, &object))
            return 0;
    }
    return mt_fail(error, MT_ELIMIT, (uint64_t)(object.text - config->text),
                   "%s: the text model lies nested deeper than %d levels", config->path,
                   NESTED_MAX);
}

int mt_hf_shown_length(const struct mt_json_token *token)
{
    size_t length = token->length < SHOWN_MAX ? token->length : SHOWN_MAX;
    while (length < token->length && length && (token->text[length] & 0xC0) == 0x80)
        length--;
    return (int)length;
}

/* To be called by mt_hf_each(). */
static int take_first(void *to, size_t index, const struct mt_json_token *value)
{
    if (index == 0 && value->type == MT_JSON_STRING)
        *(struct mt_json_token *)to = *value;
    return 1;
}

static int note_unnamed(struct mt_model *model, const struct mt_hf_config *config)
{
    static const char so[] = "memtally assumes layers like those of llama, as far as config.json "
                             "does not say otherwise.";
    struct mt_json_token class = {.length = 0};
    mt_hf_each(config, MT_HF_architectures, take_first, &class);
    if (!class.length)
        return mt_model_note(model, "config.json names no model type: %s", so);
    return mt_model_note(model, "config.json names no model type, only the class \"%.*s\": %s",
                         mt_hf_shown_length(&class), class.text, so);
}

static int note_unknown(struct mt_model *model, const struct mt_hf_config *config)
{
    const struct mt_hf_value *type = &config->values[MT_HF_model_type];
    if (!type->is_there || type->token.type != MT_JSON_STRING || !type->token.length)
        return note_unnamed(model, config);
    return mt_model_note(model,
                         "memtally does not know the model type \"%.*s\": it assumes layers like "
                         "those of llama, as far as config.json does not say otherwise.",
                         mt_hf_shown_length(&type->token), type->token.text);
}

static int choose_family(struct mt_model *model, struct mt_hf_config *config)
{
    struct mt_model_description *description = &model->description;
    const struct mt_json_token *type = &config->values[MT_HF_model_type].token;
    description->family_known = config->family != NULL;
    if (config->family) {
        description->architecture = mt_arch_name(config->family->arch);
        put_defaults(config);
        return 0;
    }
    int code = note_unknown(model, config);
    config->family = mt_hf_family_llama();
    if (code || !config->values[MT_HF_model_type].is_there || type->type != MT_JSON_STRING)
        return code;
    description->architecture = mt_arena_copy(&model->arena, type->text, type->length);
    return description->architecture ? 0 : MT_ENOMEM;
}

static int note_encoders(struct mt_model *model, const struct mt_hf_config *config)
{
    int sees = config->values[MT_HF_vision_config].is_there;
    int speaks = config->values[MT_HF_talker_config].is_there;
    int hears = config->values[MT_HF_audio_config].is_there;
    if (speaks && mt_model_note(model, "The model also has a part that speaks; config.json alone "
                                       "does not give its tensors."))
        return MT_ENOMEM;
    model->description.lacks_encoders = sees || hears || speaks;
    model->description.encoder_parameters =
        mt_hf_encoder_parameters(config, model->description.embedding_length);
    if (!sees && !hears)
        return 0;
    return mt_model_note(model,
                         "The model also has an encoder of %s; config.json alone does not give "
                         "its tensors.",
                         sees && hears ? "images and one of audio"
                         : sees        ? "images"
                                       : "audio");
}

static int tensors_of(struct mt_model *model, const struct mt_hf_config *config,
                      const struct mt_model_files *files, const char *path, struct mt_error *error)
{
    int found = model->tensors != NULL;
    int code = found || !files ? 0 : mt_safetensors_beside(model, files, path, &found, error);
    if (code)
        return code;
    if (found) {
        model->description.format = MT_MODEL_SAFETENSORS;
        if (model->description.family_known)
            code = mt_hf_derive(model, config, 1, error);
    } else {
        model->description.format = MT_MODEL_CONFIG;
        code = note_encoders(model, config);
        if (!code)
            code = mt_hf_derive(model, config, 0, error);
    }
    return code ? code : mt_hf_sum(model, error);
}

/* What embeds text sees all of it at once and keeps nothing. The heads of keys were needed for the
 * shapes of the weights. */
static int forget_caches(struct mt_model *model)
{
    size_t n = model->description.n_layers;
    struct mt_model_layer *layers = mt_arena_array(&model->arena, n, sizeof *layers);
    if (!layers)
        return MT_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        layers[i] = model->description.layers[i];
        layers[i].attention = MT_ATTENTION_NONE;
        layers[i].kv_heads = layers[i].key_size = layers[i].value_size = layers[i].window = 0;
    }
    model->description.layers = layers;
    return 0;
}

static int read_config(struct mt_model *model, struct mt_hf_config *config,
                       const struct mt_model_files *files, const char *path, size_t length,
                       struct mt_error *error)
{
    int code = scan_all(config, length, error);
    if (code)
        return code;
    code = choose_family(model, config);
    if (code)
        return mt_fail(error, code, MT_NO_OFFSET, "%s: out of memory", path);
    mt_hf_vision(config, &model->description);
    code = mt_hf_describe(model, config, error);
    if (!code)
        code = tensors_of(model, config, files, path, error);
    if (!code && model->description.is_embedder)
        code = forget_caches(model);
    return code;
}

void mt_hf_config_free(struct mt_hf_config *config)
{
    if (!config)
        return;
    free((char *)config->text);
    free(config);
}

/* The config stays with the model: converting it asks for more than the description has. */
int mt_hf_config_read(struct mt_model *model, const struct mt_model_files *files, const char *path,
                      const struct mt_model_source *source, struct mt_error *error)
{
    size_t length = 0;
    char *text = NULL;
    struct mt_hf_config *config = calloc(1, sizeof *config);
    const char *kept_path = mt_arena_copy(&model->arena, path, strlen(path));
    if (!config || !kept_path) {
        free(config);
        return mt_out_of_memory_for(error, path);
    }
    model->config = config;
    int code = mt_hf_read_text(source, path, MT_HF_CONFIG_BYTES_MAX, &text, &length, error);
    if (code)
        return code;
    if (!model->tensors)
        model->description.n_files = 1;
    model->description.header_bytes += length;
    config->path = kept_path;
    config->text = text;
    return read_config(model, config, files, kept_path, length, error);
}
