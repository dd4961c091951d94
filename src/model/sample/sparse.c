/* SPDX-License-Identifier: MIT */
/* From a model to a sparse GGUF file: which way it goes, and the file that appears complete or not
 * at all. Knows no grammar. */
#include "sparse.h"

#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "model/convert/convert.h"
#include "model/gguf/copy.h"
#include "model/gguf/gguf.h"

static const struct {
    enum mt_file_type type;
    const char *name;
} types[] = {
#define ROW(NAME, name) {MT_FILE_##NAME, name},
    MT_FILE_TYPE_LIST(ROW)
#undef ROW
};

#define N_TYPES (sizeof types / sizeof *types)

const char *mt_file_type_name(enum mt_file_type type)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (types[i].type == type)
            return types[i].name;
    return "?";
}

int mt_file_type_by_name(const char *name, enum mt_file_type *type)
{
    for (size_t i = 0; name && i < N_TYPES; i++) {
        if (strcasecmp(types[i].name, name) == 0) {
            *type = types[i].type;
            return 0;
        }
    }
    return MT_ENOTFOUND;
}

/* Whether both names are of one file, as far as this machine knows them. */
static int is_same(const struct mt_out_file_os *os, const char *a, const char *b)
{
    struct stat one, other;
    return os->stat(a, &one) == 0 && os->stat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

/* The weights of the model itself shall not become a hole. */
static int check_target(const struct mt_out_file_os *os, const struct mt_model *model,
                        const char *path, struct mt_error *error)
{
    const struct mt_gguf *gguf = model->tensors;
    int same = is_same(os, model->description.path, path);
    for (size_t i = 0; model->description.format == MT_MODEL_GGUF && i < gguf->n_parts; i++)
        same |= is_same(os, gguf->parts[i].path, path);
    return same ? mt_fail(error, MT_EARG, MT_NO_OFFSET,
                          "%s is the model itself; its weights would be lost", path)
                : 0;
}

static int write_header(const struct mt_model *model, const struct mt_sparse_options *options,
                        struct mt_out_file *file, struct mt_error *error)
{
    if (model->description.format == MT_MODEL_GGUF)
        return mt_gguf_copy_sparse(model, options, file, error);
    return mt_convert_sparse(model, options, file, error);
}

int mt_model_write_sparse_with(const struct mt_out_file_os *os, const struct mt_model *model,
                               const char *path, const struct mt_sparse_options *options,
                               struct mt_error *error)
{
    const struct mt_sparse_options usual = {0};
    struct mt_out_file file;
    options = options ? options : &usual;
    if (strcmp(mt_file_type_name(options->type), "?") == 0)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET, "no file type has the number %d",
                       (int)options->type);
    int code = check_target(os, model, path, error);
    if (!code)
        code = mt_out_file_begin(&file, os, path, error);
    if (code)
        return code;
    code = write_header(model, options, &file, error);
    if (!code)
        return mt_out_file_commit(&file, error);
    mt_out_file_discard(&file);
    return code;
}

int mt_model_write_sparse(const struct mt_model *model, const char *path,
                          const struct mt_sparse_options *options, struct mt_error *error)
{
    return mt_model_write_sparse_with(&mt_out_file_os, model, path, options, error);
}
