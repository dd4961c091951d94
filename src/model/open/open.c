/* SPDX-License-Identifier: MIT */
/* Opening a model of any format, and asking it. Tells formats apart by content, not by the names of
 * files; knows no format further than that. */
#include "model/hf/config.h"
#include "model/model.h"

#include "base/error.h"
#include "base/invariant.h"
#include "base/out_of_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Enough of a JSON file to see what it is. */
#define SNIFF_BYTES 4096
/* And of one that is not text. */
#define MAGIC_BYTES 16
/* An error shows so much of a text that is no model. */
#define TEXT_SHOWN 40

typedef int reader(struct mt_model *model, const struct mt_model_files *files, const char *path,
                   const struct mt_model_source *source, struct mt_error *error);

static int holds(const char *bytes, size_t length, const char *word)
{
    return memmem(bytes, length, word, strlen(word)) != NULL;
}

static int ends(const char *path, const char *ending)
{
    size_t length = strlen(path);
    size_t end = strlen(ending);
    return length >= end && strcmp(path + length - end, ending) == 0;
}

static int is_index(const char *path)
{
    return ends(path, ".safetensors.index.json");
}

static reader *json_reader(const char *path, const char *bytes, size_t length)
{
    if (holds(bytes, length, "\"weight_map\"") || is_index(path))
        return mt_safetensors_read;
    if (holds(bytes, length, "\"schemaVersion\"") && holds(bytes, length, "\"layers\""))
        return mt_ollama_manifest_read;
    return mt_hf_config_read;
}

/* The reader for a file that begins with these bytes, or NULL. */
static reader *find_reader(const char *path, const char *bytes, size_t length)
{
    if (length >= 4 && memcmp(bytes, "GGUF", 4) == 0)
        return mt_gguf_read;
    if (length > 8 && bytes[8] == '{' && bytes[7] == 0 && bytes[6] == 0)
        return mt_safetensors_read;
    size_t at = length >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    at += strspn(bytes + at, " \t\r\n");
    if (at < length && bytes[at] == '{')
        return json_reader(path, bytes, length);
    return NULL;
}

/* The first words of a file that is text, as of a server's refusal; 0 where it is none. */
static int show_text(const char *bytes, size_t length, char shown[TEXT_SHOWN + 1])
{
    size_t n = 0;
    while (n < length && n < TEXT_SHOWN && bytes[n] >= ' ' && bytes[n] < 0x7f)
        n++;
    if (n < length && n < TEXT_SHOWN && !strchr("\r\n\t", bytes[n]))
        return 0;
    snprintf(shown, TEXT_SHOWN + 1, "%.*s", (int)n, bytes);
    return n > 0;
}

static int fail_unknown(const char *path, const char *bytes, size_t length, struct mt_error *error)
{
    const struct mt_file_kind *kind = mt_file_kind_of(bytes, length);
    char text[TEXT_SHOWN + 1];
    char shown[4 * 3 + 1] = "";
    for (size_t i = 0; i < length && i < 4; i++)
        snprintf(shown + 3 * i, 4, " %02x", (unsigned char)bytes[i]);
    if (length == 0)
        return mt_fail(error, MT_EFORMAT, 0, "%s: the file is empty", path);
    if (kind)
        return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET, "%s: it is %s, not a model%s%s", path,
                       kind->what, kind->advice ? "; " : "", kind->advice ? kind->advice : "");
    if (show_text(bytes, length, text))
        return mt_fail(error, MT_EFORMAT, MT_NO_OFFSET,
                       "%s: it is a text that begins with '%s', not a model; a GGUF file, a "
                       "safetensors file or a config.json can be read",
                       path, text);
    return mt_fail(error, MT_EFORMAT, 0,
                   "%s: it begins with%s at byte 0, expected a GGUF file ('GGUF'), a safetensors "
                   "file or JSON ('{')",
                   path, shown);
}

/* Engines go by names where we do not. */
static int note_wrong_name(struct mt_model *model, const char *path)
{
    enum mt_model_format format = model->description.format;
    if (format == MT_MODEL_SAFETENSORS && ends(path, ".gguf"))
        return mt_model_note(model, "By its content this is a safetensors file, whatever its name "
                                    "says: llama.cpp does not load it; convert it with "
                                    "convert_hf_to_gguf.py.");
    if (format == MT_MODEL_CONFIG && ends(path, ".gguf"))
        return mt_model_note(model, "By its content this is a config.json, whatever its name says; "
                                    "the weights follow from the shapes in it.");
    if (format == MT_MODEL_GGUF && ends(path, ".safetensors"))
        return mt_model_note(model, "By its content this is a GGUF file, whatever its name says.");
    return 0;
}

static int read_source(struct mt_model *model, const struct mt_model_files *files, const char *path,
                       const struct mt_model_source *source, struct mt_error *error)
{
    char bytes[SNIFF_BYTES + 1];
    size_t most = source->size_bytes < SNIFF_BYTES ? (size_t)source->size_bytes : SNIFF_BYTES;
    size_t length = most < MAGIC_BYTES ? most : MAGIC_BYTES;
    int code = source->read(source->argument, 0, bytes, length, error);
    int is_binary = length == MAGIC_BYTES && (memcmp(bytes, "GGUF", 4) == 0 || bytes[7] == 0);
    if (!code && !is_binary && most > length) {
        code = source->read(source->argument, length, bytes + length, most - length, error);
        length = most;
    }
    if (code)
        return code;
    bytes[length] = '\0';
    reader *read = find_reader(path, bytes, length);
    if (!read)
        return fail_unknown(path, bytes, length, error);
    code = read(model, files, path, source, error);
    return code ? code : note_wrong_name(model, path);
}

static int read_path(struct mt_model *model, const struct mt_model_files *files, const char *path,
                     struct mt_error *error)
{
    struct mt_model_source source;
    int code = 0;
    if (files->is_folder(files->argument, path))
        code = mt_model_find_in_folder(model, files, path, &path, error);
    if (!code)
        code = files->open(files->argument, path, &source, error);
    if (code)
        return code;
    code = read_source(model, files, path, &source, error);
    source.close(source.argument);
    return code;
}

int mt_model_open(const char *path, const struct mt_model_files *files, struct mt_model **model,
                  struct mt_error *error)
{
    struct mt_model *opened = calloc(1, sizeof *opened);
    if (!opened)
        return mt_out_of_memory_for(error, path);
    int code = 0;
    opened->description.path = mt_arena_copy(&opened->arena, path, strlen(path));
    if (!opened->description.path)
        code = mt_out_of_memory_for(error, path);
    if (!code)
        code = read_path(opened, files ? files : mt_model_files_local(), path, error);
    if (code) {
        mt_model_close(opened);
        return code;
    }
    MT_HOLDS(mt_model_is_valid(opened));
    *model = opened;
    return 0;
}

void mt_model_close(struct mt_model *model)
{
    if (!model)
        return;
    if (model->finish)
        model->finish(model);
    mt_hf_config_free(model->config);
    mt_arena_finish(&model->arena);
    free(model);
}

const struct mt_model_description *mt_model_describe(const struct mt_model *model)
{
    return &model->description;
}

int mt_model_tensor_at(const struct mt_model *model, uint64_t index, struct mt_model_tensor *tensor)
{
    if (index >= model->description.n_tensors)
        return MT_EARG;
    return model->tensor_at(model, index, tensor);
}
