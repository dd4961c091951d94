/* SPDX-License-Identifier: MIT */
/* Models that Hugging Face's programs have left on this machine. */
#ifndef CLI_HUB_CACHE_H
#define CLI_HUB_CACHE_H

#include <memtally/model_file.h>
#include <stddef.h>

/* Writes the path of what a name such as "org/model", "org/model/file.gguf" or "org/model@revision"
 * stands for in the cache among `files`: $HF_HUB_CACHE, else $HUGGINGFACE_HUB_CACHE, else
 * $HF_HOME/hub, else huggingface/hub in $XDG_CACHE_HOME or ~/.cache. Returns 1, or 0 where the
 * cache has it not. */
int cli_hub_cache_find(const struct mt_model_files *files, const char *name,
                       char *const *environment, char *path, size_t size);

/* Whether there is a folder or a file by that name, perhaps one that we may not read. */
int cli_files_have(const struct mt_model_files *files, const char *path);

#endif
