/* SPDX-License-Identifier: MIT */
/* Model files behind URLs, and by their names on a hub. Only headers are fetched. */
#ifndef CLI_REMOTE_FILES_H
#define CLI_REMOTE_FILES_H

#include <memtally/model_file.h>

#define CLI_REMOTE_PATH_MAX 2048

/* `endpoint` is where names without a scheme are looked up, `token` what its host is shown. */
struct cli_remote {
    const char *endpoint; /* NULL: https://huggingface.co */
    const char *token;    /* or NULL */
    uint64_t received_bytes;
    uint64_t requests; /* files opened */
};

/* A name "org/model[/file][@revision]" in parts. Lengths count bytes. */
struct cli_hub_name {
    size_t repository; /* length of "org/model" */
    const char *file;  /* "" where none is named */
    size_t file_length;
    const char *revision; /* "main" where none is named */
};

/* Returns 1, or 0 where `name` is none. What it fills in refers to `name`. */
int cli_hub_name_split(const char *name, struct cli_hub_name *split);

/* Whether `name` could only be meant as a remote model: a URL, or "org/name" that is no file here.
 */
int cli_remote_is_name(const char *name);

/* Writes what to open: a URL as it is, "org/name" as the folder of a repository, "org/name/file" as
 * a file in it; "@revision" after the name chooses one. Returns 0, MT_EARG, MT_ELIMIT. */
int cli_remote_path(const struct cli_remote *remote, const char *name, char *path, size_t size,
                    struct mt_error *error);

/* Files that are fetched by `remote`, which has to outlive them. */
struct mt_model_files cli_remote_files(struct cli_remote *remote);

#endif
