/* SPDX-License-Identifier: MIT */
/* A folder as it may have been laid out to do harm. The first line of the bytes is what refs/main
 * says, the others name the entries of every folder; the snapshots are a folder where the first
 * line is not empty. Every file there is a small config.json. */
#include "tests/fuzz/model_check.h"

#include <string.h>

#include "base/out_of_memory.h"

#define NAME_BYTES 256 /* what a file system allows, with its end */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

struct folder {
    const uint8_t *data;
    size_t length;
    size_t reference_length;
    int open_sources;
};

static const char config[] = "{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":64,"
                             "\"num_attention_heads\":8}";

struct opened {
    struct folder *folder;
    const uint8_t *bytes;
    size_t length;
};

static int read_opened(void *argument, uint64_t offset, void *to, size_t length,
                       struct mt_error *error)
{
    const struct opened *opened = argument;
    (void)error;
    if (offset > opened->length || length > opened->length - offset)
        abort(); /* a reader must not ask for what is not there */
    memcpy(to, opened->bytes + offset, length);
    return 0;
}

static void close_opened(void *argument)
{
    struct opened *opened = argument;
    opened->folder->open_sources--;
    free(opened);
}

/* Nothing but the folder's own files may be asked for, whatever their names. */
static int open_file(void *argument, const char *path, struct mt_model_source *source,
                     struct mt_error *error)
{
    struct folder *folder = argument;
    struct opened *opened = malloc(sizeof *opened);
    if (!opened)
        return mt_out_of_memory_for(error, path);
    if (strncmp(path, "/m/", 3) != 0 || strstr(path, "/../"))
        abort();
    *opened = (struct opened){folder, (const uint8_t *)config, sizeof config - 1};
    if (strcmp(path, "/m/refs/main") == 0)
        *opened = (struct opened){folder, folder->data, folder->reference_length};
    folder->open_sources++;
    *source = (struct mt_model_source){.argument = opened,
                                       .size_bytes = opened->length,
                                       .step_bytes = 1,
                                       .read = read_opened,
                                       .close = close_opened};
    return 0;
}

static int is_folder(void *argument, const char *path)
{
    const struct folder *folder = argument;
    return strcmp(path, "/m") == 0 ||
           (folder->reference_length != 0 && strcmp(path, "/m/snapshots") == 0);
}

/* Names as a file system has them: never empty, without '/' and NUL, of no more than 255 bytes. */
static int list(void *argument, const char *path, int (*each)(void *to, const char *name), void *to,
                struct mt_error *error)
{
    const struct folder *folder = argument;
    char name[NAME_BYTES];
    size_t used = 0;
    int code = 0;
    (void)path, (void)error;
    for (size_t i = folder->reference_length; i <= folder->length && !code; i++) {
        uint8_t byte = i < folder->length ? folder->data[i] : '\n';
        if (byte != '\n' && byte != '/' && byte != '\0' && used < sizeof name - 1) {
            name[used++] = (char)byte;
        } else if (byte == '\n' && used) {
            name[used] = '\0';
            used = 0;
            code = each(to, name);
        }
    }
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length)
{
    const uint8_t *end = length ? memchr(data, '\n', length) : NULL;
    struct folder folder = {data, length, end ? (size_t)(end - data) : length, 0};
    const struct mt_model_files files = {
        .argument = &folder, .open = open_file, .is_folder = is_folder, .list = list};
    struct mt_model *model;
    struct mt_error error = {.text = ""};
    if (mt_model_open("/m", &files, &model, &error) == 0) {
        check_model(model);
        mt_model_close(model);
    } else if (!error.text[0]) {
        abort();
    }
    if (folder.open_sources != 0)
        abort();
    return 0;
}
