/* SPDX-License-Identifier: MIT */
/* What holds for every model that opens. */
#ifndef MT_TESTS_MODEL_CHECK_H
#define MT_TESTS_MODEL_CHECK_H

#include <memtally/error.h>

#include "model/model.h"
#include "model/sample/sparse.h"
#include "tests/support/memory_files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* Ends the program where a description does not fit its tensors, also where nothing is looked at
 * when a model opens. Opens nothing. */
static inline void check_model(const struct mt_model *model)
{
    struct mt_model_tensor tensor;
    if (!mt_model_is_valid(model) ||
        mt_model_tensor_at(model, mt_model_describe(model)->n_tensors, &tensor) != MT_EARG)
        abort();
}

/* How long the file became that is written nowhere. */
static uint64_t check_length;

static inline int check_open(const char *path, int flags, mode_t mode)
{
    (void)path;
    (void)flags;
    (void)mode;
    check_length = 0;
    return open("/dev/null", O_WRONLY | O_CLOEXEC);
}

static inline ssize_t check_write(int fd, const void *bytes, size_t length)
{
    (void)fd;
    (void)bytes;
    check_length += length;
    return (ssize_t)length;
}

static inline int check_truncate(int fd, off_t length)
{
    (void)fd;
    if (length < 0 || (uint64_t)length < check_length)
        abort();
    return 0;
}

static inline int check_stat(const char *path, struct stat *status)
{
    (void)path;
    (void)status;
    return -1;
}

static inline int check_rename(const char *from, const char *to)
{
    return from == to;
}

static inline int check_unlink(const char *path)
{
    return path == NULL;
}

/* Writes the model's header to nowhere, with a vocabulary where that is small. */
static inline void check_sparse(const struct mt_model *model, const struct mt_model_files *files)
{
    struct mt_out_file_os os = mt_out_file_os;
    struct mt_error error = {.text = ""};
    uint64_t vocabulary = mt_model_describe(model)->vocabulary;
    const struct mt_sparse_options options = {
        .files = files, .type = MT_FILE_Q4_K_M, .drop_vocabulary = vocabulary > 4096};
    os.open = check_open;
    os.write = check_write;
    os.truncate = check_truncate;
    os.stat = check_stat;
    os.rename = check_rename;
    os.unlink = check_unlink;
    int code = mt_model_write_sparse_with(&os, model, "nowhere", &options, &error);
    if (code && !error.text[0])
        abort();
}

/* Opens `path` of files in memory, checks it and closes it. */
static inline void check_files(const struct memory_file *files, const char *path)
{
    struct memory_files memory = {.files = files, .step_bytes = 1};
    struct mt_model_files table;
    struct mt_model *model;
    struct mt_error error = {.text = ""};
    memory_files_table(&memory, &table);
    if (mt_model_open(path, &table, &model, &error) == 0) {
        check_model(model);
        check_sparse(model, &table);
        mt_model_close(model);
    } else if (!error.text[0]) {
        abort();
    }
    if (memory.open_sources != 0)
        abort();
}

#endif
