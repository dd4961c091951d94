/* SPDX-License-Identifier: MIT */
#include "tests/support/memory_files.h"

#include "base/error.h"
#include "base/out_of_memory.h"

#include <stdlib.h>
#include <string.h>

struct opened {
    struct memory_files *memory;
    const struct memory_file *file;
};

static int read_memory(void *argument, uint64_t offset, void *to, size_t length,
                       struct mt_error *error)
{
    const struct opened *opened = argument;
    const struct memory_file *file = opened->file;
    if (++opened->memory->reads == opened->memory->failing_read)
        return mt_fail(error, MT_EIO, offset, "%s: made to fail", file->path);
    if (offset > file->size_bytes || length > file->size_bytes - offset)
        abort(); /* a reader must not ask for what is not there */
    if (opened->memory->most_read_bytes &&
        opened->memory->read_bytes + length > opened->memory->most_read_bytes)
        return mt_fail(error, MT_ELIMIT, offset, "%s: read too much", file->path);
    size_t given = offset < file->length ? file->length - (size_t)offset : 0;
    given = given < length ? given : length;
    if (given)
        memcpy(to, file->bytes + offset, given);
    memset((char *)to + given, 0, length - given);
    opened->memory->read_bytes += length;
    return 0;
}

static void close_memory(void *argument)
{
    struct opened *opened = argument;
    opened->memory->open_sources--;
    free(opened);
}

static int open_memory(void *argument, const char *path, struct mt_model_source *source,
                       struct mt_error *error)
{
    struct memory_files *memory = argument;
    const struct memory_file *file = memory->files;
    while (file->path && strcmp(file->path, path) != 0)
        file++;
    if (!file->path)
        return mt_fail(error, MT_ENOTFOUND, MT_NO_OFFSET, "%s: not found", path);
    struct opened *opened = malloc(sizeof *opened);
    if (!opened)
        return mt_out_of_memory_for(error, path);
    *opened = (struct opened){memory, file};
    *source = (struct mt_model_source){.argument = opened,
                                       .size_bytes = file->size_bytes,
                                       .step_bytes = memory->step_bytes,
                                       .read = read_memory,
                                       .close = close_memory};
    memory->open_sources++;
    return 0;
}

static int is_folder(void *argument, const char *path)
{
    (void)argument, (void)path;
    return 0;
}

void memory_files_table(struct memory_files *memory, struct mt_model_files *table)
{
    *table = (struct mt_model_files){
        .argument = memory, .open = open_memory, .is_folder = is_folder, .list = NULL};
}
