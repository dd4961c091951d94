/* SPDX-License-Identifier: MIT */
/* Readers that are not there yet. */
#include "model/hf_config.h"

#include "base/error.h"

int mt_safetensors_read(struct mt_model *model, const struct mt_model_files *files,
                        const char *path, const struct mt_model_source *source,
                        struct mt_error *error)
{
    (void)model, (void)files, (void)source;
    return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET, "%s: safetensors are not read yet", path);
}

int mt_safetensors_beside(struct mt_model *model, const struct mt_model_files *files,
                          const char *path, int *found, struct mt_error *error)
{
    (void)model, (void)files, (void)path, (void)error;
    *found = 0;
    return 0;
}

int mt_ollama_manifest_read(struct mt_model *model, const struct mt_model_files *files,
                            const char *path, const struct mt_model_source *source,
                            struct mt_error *error)
{
    (void)model, (void)files, (void)source;
    return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET, "%s: manifests are not read yet", path);
}

int mt_model_find_in_folder(struct mt_model *model, const struct mt_model_files *files,
                            const char *folder, const char **found, struct mt_error *error)
{
    (void)model, (void)files, (void)found;
    return mt_fail(error, MT_EUNSUPPORTED, MT_NO_OFFSET, "%s: folders are not read yet", folder);
}
