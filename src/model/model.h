/* SPDX-License-Identifier: MIT */
/* A model being read, and what the readers of the formats share.
 *
 * A reader (gguf, safetensors, hf_config) fills the tensors and the facts of its format; a family
 * reader then makes the description of them. Knows nothing of engines. */
#ifndef MT_MODEL_MODEL_H
#define MT_MODEL_MODEL_H

#include <memtally/model_file.h>

#include "base/arena.h"

struct mt_hf_config;

/* A format's own tensors: filled once, then read through `at`. */
struct mt_model {
    struct mt_arena arena;
    struct mt_model_description description;
    void *tensors; /* the format's own records */
    int (*tensor_at)(const struct mt_model *model, uint64_t index, struct mt_model_tensor *tensor);
    void (*finish)(
        struct mt_model *model); /* frees `tensors` and what they refer to; may be NULL */
    size_t notes_capacity;
    struct mt_hf_config *config; /* of Hugging Face's formats, with its text; else NULL */
};

/* Whether layers refer to layers, parts are no more than wholes, and the tensors' bytes are the
 * weights'. */
int mt_model_is_valid(const struct mt_model *model);
int mt_description_is_valid(const struct mt_model_description *d);

/* Adds a sentence to the description's notes; a note that is there already is not added again. A
 * failed allocation is remembered by returning MT_ENOMEM. */
int mt_model_note(struct mt_model *model, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Readers. Each takes an opened source of `path`, reads the other files that belong to it through
 * `files`, and fills *model, which is zeroed. The source stays the caller's. */
int mt_gguf_read(struct mt_model *model, const struct mt_model_files *files, const char *path,
                 const struct mt_model_source *source, struct mt_error *error);
int mt_safetensors_read(struct mt_model *model, const struct mt_model_files *files,
                        const char *path, const struct mt_model_source *source,
                        struct mt_error *error);
/* A config.json; where safetensors lie beside it, their tensors are taken, else the shapes give
 * them. */
int mt_hf_config_read(struct mt_model *model, const struct mt_model_files *files, const char *path,
                      const struct mt_model_source *source, struct mt_error *error);
/* An Ollama manifest: opens the GGUF blob that it names. */
int mt_ollama_manifest_read(struct mt_model *model, const struct mt_model_files *files,
                            const char *path, const struct mt_model_source *source,
                            struct mt_error *error);
/* Finds the file to open in a folder; *found is allocated in the model's arena. */
int mt_model_find_in_folder(struct mt_model *model, const struct mt_model_files *files,
                            const char *folder, const char **found, struct mt_error *error);

/* The role and layer of a tensor by its GGUF name ("blk.3.ffn_up_exps.weight"), and by its name in
 * Hugging Face's checkpoints ("model.layers.3.mlp.experts.17.up_proj.weight"). */
void mt_tensor_role_of_gguf(const char *name, size_t length, struct mt_model_tensor *tensor);
void mt_tensor_role_of_hf(const char *name, size_t length, struct mt_model_tensor *tensor);

#endif
