/* SPDX-License-Identifier: MIT */
/* Ollama's store, its manifests and Modelfiles.
 *
 *   STORE/manifests/HOST/NAMESPACE/MODEL/TAG   JSON: layers, each with a media type and a digest
 *   STORE/blobs/sha256-HEX                     what a digest names
 *
 * The layer of type application/vnd.ollama.image.model is a GGUF file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/hf/config.h"

#include "base/error.h"
#include "base/out_of_memory.h"

#define MANIFEST_BYTES_MAX (UINT64_C(1) << 20)
#define MODEL_LAYER        "application/vnd.ollama.image.model"
#define PROJECTOR_LAYER    "application/vnd.ollama.image.projector"
#define DIGEST_LENGTH      71 /* "sha256:" and 64 digits */

struct manifest {
    char model[DIGEST_LENGTH + 1];
    int has_projector;
    uint64_t offset; /* of the layers, for errors */
};

struct layer {
    struct mt_json_token type;
    struct mt_json_token digest;
};

static int is_hex(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (!strchr("0123456789abcdef", text[i]) || text[i] == '\0')
            return 0;
    }
    return 1;
}

static int take_layer(struct mt_json *json, struct manifest *manifest, struct mt_error *error)
{
    struct layer layer = {.type = {.type = MT_JSON_END}};
    struct mt_json_token key;
    int code;
    while ((code = mt_json_next(json, &key, error)) == 0 && key.type == MT_JSON_KEY) {
        struct mt_json_token value;
        code = mt_json_next(json, &value, error);
        if (!code)
            code = mt_json_finish_value(json, &value, error);
        if (code)
            return code;
        if (mt_json_is(&key, "mediaType"))
            layer.type = value;
        if (mt_json_is(&key, "digest"))
            layer.digest = value;
    }
    if (code || layer.type.type != MT_JSON_STRING)
        return code;
    manifest->has_projector |= mt_json_is(&layer.type, PROJECTOR_LAYER);
    if (!mt_json_is(&layer.type, MODEL_LAYER) || manifest->model[0])
        return 0;
    if (layer.digest.type != MT_JSON_STRING || layer.digest.length != DIGEST_LENGTH ||
        memcmp(layer.digest.text, "sha256:", 7) != 0 || !is_hex(layer.digest.text + 7, 64))
        return mt_fail(error, MT_EFORMAT, mt_json_offset(json, &layer.type),
                       "%s: the model's layer has no digest like sha256:HEX", json->name);
    memcpy(manifest->model, layer.digest.text, DIGEST_LENGTH);
    return 0;
}

static int take_layers(struct mt_json *json, struct manifest *manifest, struct mt_error *error)
{
    struct mt_json_token token;
    int code = mt_json_next(json, &token, error);
    if (!code && token.type != MT_JSON_ARRAY)
        return mt_fail(error, MT_EFORMAT, mt_json_offset(json, &token),
                       "%s: expected layers to be an array", json->name);
    while (!code) {
        code = mt_json_next(json, &token, error);
        if (code || token.type == MT_JSON_ARRAY_END)
            return code;
        if (token.type == MT_JSON_OBJECT)
            code = take_layer(json, manifest, error);
        else
            code = mt_json_finish_value(json, &token, error);
    }
    return code;
}

static int parse_manifest(struct mt_json *json, struct manifest *manifest, struct mt_error *error)
{
    struct mt_json_token token;
    int code = mt_json_next(json, &token, error);
    if (!code && token.type != MT_JSON_OBJECT)
        return mt_fail(error, MT_EFORMAT, 0, "%s: expected a JSON object", json->name);
    while (!code) {
        code = mt_json_next(json, &token, error);
        if (code || token.type == MT_JSON_OBJECT_END)
            break;
        if (mt_json_is(&token, "layers")) {
            code = take_layers(json, manifest, error);
            continue;
        }
        code = mt_json_next(json, &token, error);
        if (!code)
            code = mt_json_finish_value(json, &token, error);
    }
    if (!code && !manifest->model[0])
        return mt_fail(error, MT_EFORMAT, 0, "%s: expected a layer of type %s", json->name,
                       MODEL_LAYER);
    return code;
}

/* The store that a manifest lies in: what stands before "/manifests/". */
static const char *blob_path(struct mt_arena *arena, const char *path, const char *digest)
{
    const char *found = NULL;
    for (const char *at = path; (at = strstr(at, "/manifests/")) != NULL; at++)
        found = at;
    if (!found)
        return mt_hf_sibling(arena, path, digest);
    char name[DIGEST_LENGTH + 1];
    memcpy(name, digest, sizeof name);
    name[6] = '-';
    return mt_arena_printf(arena, "%.*s/blobs/%s", (int)(found - path), path, name);
}

static int read_blob(struct mt_model *model, const struct mt_model_files *files, const char *path,
                     const struct manifest *manifest, struct mt_error *error)
{
    struct mt_model_source source;
    const char *blob = blob_path(&model->arena, path, manifest->model);
    if (!blob)
        return mt_out_of_memory_for(error, path);
    int code = files->open(files->argument, blob, &source, error);
    if (code == MT_ENOTFOUND)
        return mt_fail(error, code, MT_NO_OFFSET,
                       "%s: not found; it is the model that the manifest %s names", blob, path);
    if (code)
        return code;
    code = mt_gguf_read(model, files, blob, &source, error);
    source.close(source.argument);
    if (!code && manifest->has_projector)
        code = mt_model_note(model, "The manifest also names a projector, an encoder of images, "
                                    "which is a file of its own.");
    return code;
}

int mt_ollama_manifest_read(struct mt_model *model, const struct mt_model_files *files,
                            const char *path, const struct mt_model_source *source,
                            struct mt_error *error)
{
    struct manifest manifest = {.model = ""};
    struct mt_json json;
    char *text = NULL;
    size_t length = 0;
    int code = mt_hf_read_text(source, path, MANIFEST_BYTES_MAX, &text, &length, error);
    if (code)
        return code;
    mt_json_start(&json, path, text, length, 0);
    code = parse_manifest(&json, &manifest, error);
    free(text);
    return code ? code : read_blob(model, files, path, &manifest, error);
}

/* A part of a name: letters, digits and "-_.", no more than 80 of them, not beginning with a dot.
 */
static int is_part(const char *text, size_t length)
{
    if (length == 0 || length > 80 || text[0] == '.')
        return 0;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '-' || c == '_' || c == '.' || (c == ':' && i)))
            return 0;
    }
    return 1;
}

struct name {
    const char *parts[3]; /* host, namespace, model */
    size_t lengths[3];
    const char *tag;
};

static int split_name(const char *text, struct name *name)
{
    static const struct name usual = {
        {"registry.ollama.ai", "library", NULL}, {18, 7, 0}, "latest"};
    const char *colon = strrchr(text, ':');
    const char *slash = strrchr(text, '/');
    const char *end = colon && (!slash || colon > slash) ? colon : text + strlen(text);
    const char *starts[3];
    size_t lengths[3];
    size_t n = 0;
    *name = usual;
    if (*end)
        name->tag = end + 1;
    for (const char *at = text; n < 3; at++) {
        const char *stop = memchr(at, '/', (size_t)(end - at));
        starts[n] = at;
        lengths[n] = (size_t)((stop ? stop : end) - at);
        if (!is_part(starts[n], lengths[n]))
            return MT_EARG;
        n++;
        if (!stop)
            break;
        at = stop;
        if (n == 3)
            return MT_EARG;
    }
    for (size_t i = 0; i < n; i++) {
        name->parts[3 - n + i] = starts[i];
        name->lengths[3 - n + i] = lengths[i];
    }
    return is_part(name->tag, strlen(name->tag)) ? 0 : MT_EARG;
}

int mt_ollama_manifest_path(const char *store, const char *name, char *path, size_t size)
{
    struct name split;
    int code = split_name(name, &split);
    if (code)
        return code;
    int n = snprintf(path, size, "%s/manifests/%.*s/%.*s/%.*s/%s", store, (int)split.lengths[0],
                     split.parts[0], (int)split.lengths[1], split.parts[1], (int)split.lengths[2],
                     split.parts[2], split.tag);
    return n < 0 || (size_t)n >= size ? MT_ELIMIT : 0;
}

/* Whether a text between three quotes begins or ends in a line, and not both. */
static int has_odd_quotes(const char *line, const char *stop)
{
    int odd = 0;
    while ((line = memmem(line, (size_t)(stop - line), "\"\"\"", 3)) != NULL) {
        line += 3;
        odd = !odd;
    }
    return odd;
}

int mt_ollama_modelfile_from(const char *text, size_t length, char *from, size_t size)
{
    const char *end = text + length;
    int is_quoted = 0; /* within a text of several lines, which stands between three quotes */
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop ? stop : end;
        const char *at = is_quoted ? stop : line;
        is_quoted ^= has_odd_quotes(line, stop);
        while (at < stop && (*at == ' ' || *at == '\t'))
            at++;
        if (stop - at > 5 && strncasecmp(at, "from", 4) == 0 && (at[4] == ' ' || at[4] == '\t')) {
            at += 5;
            const char *last = stop;
            while (at < last && strchr(" \t\"", *at))
                at++;
            while (last > at && strchr(" \t\r\"", last[-1]))
                last--;
            if (last == at || (size_t)(last - at) >= size || memchr(at, '\0', (size_t)(last - at)))
                return MT_EFORMAT;
            memcpy(from, at, (size_t)(last - at));
            from[last - at] = '\0';
            return 0;
        }
        line = stop + 1;
    }
    return MT_ENOTFOUND;
}
