/* SPDX-License-Identifier: MIT */
/* Copies the header of a GGUF model, of one file or of split ones, and leaves a hole for its
 * weights. The pairs are copied as they stand, so that what nobody here understands stays as it is;
 * the tensors' descriptions too, unless parts are joined. Knows the grammar, not what models are.
 */
#include "copy.h"

#include <memtally/model_file.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "model/gguf/gguf.h"

#define PIECE      (256 * 1024)
#define COUNTS_END 24 /* of the magic, the version and both counts */

struct copy {
    const struct mt_gguf *gguf;
    const struct mt_model_files *files;
    int drop_vocabulary;
    uint64_t vocabulary;
    const char *architecture;
    struct mt_out_file *file;
    struct mt_strbuf bytes; /* what is to be written next */
    uint64_t written;
    struct mt_error *error;
};

static void put_number(struct copy *copy, uint64_t value, size_t width)
{
    char bytes[8];
    for (size_t i = 0; i < width; i++)
        bytes[i] = (char)(uint8_t)(value >> (8 * i));
    mt_strbuf_append(&copy->bytes, bytes, width);
}

static void put_text(struct copy *copy, const char *text, size_t length)
{
    put_number(copy, length, 8);
    mt_strbuf_append(&copy->bytes, text, length);
}

static int flush(struct copy *copy)
{
    if (mt_strbuf_failed(&copy->bytes))
        return mt_fail(copy->error, MT_ENOMEM, MT_NO_OFFSET, "no memory for the header of %s",
                       copy->file->path);
    int code = mt_out_file_write(copy->file, mt_strbuf_text(&copy->bytes), copy->bytes.length,
                                 copy->error);
    copy->written += copy->bytes.length;
    copy->bytes.length = 0;
    return code;
}

/* Copies the bytes from `from` to `to` of a part. */
static int copy_range(struct copy *copy, const struct mt_model_source *source, uint64_t from,
                      uint64_t to)
{
    char *piece = malloc(PIECE);
    int code = piece ? 0 : mt_fail(copy->error, MT_ENOMEM, MT_NO_OFFSET, "no memory to copy with");
    while (from < to && !code) {
        size_t n = to - from < PIECE ? (size_t)(to - from) : PIECE;
        code = source->read(source->argument, from, piece, n, copy->error);
        if (!code)
            code = mt_out_file_write(copy->file, piece, n, copy->error);
        from += n;
        copy->written += n;
    }
    free(piece);
    return code;
}

static int starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static int is_dropped(const struct copy *copy, const struct mt_gguf_pair *pair)
{
    if (copy->gguf->n_parts > 1 && starts_with(pair->key, "split."))
        return 1;
    return copy->drop_vocabulary && starts_with(pair->key, "tokenizer.");
}

static uint64_t end_of_pair(const struct mt_gguf *gguf, size_t i)
{
    return i + 1 < gguf->pairs.n ? gguf->pairs.items[i + 1].at : gguf->parts[0].infos_at;
}

/* Whether the pair that says how many tokens there are is missing. */
static int needs_size(const struct copy *copy)
{
    char key[128];
    if (!copy->drop_vocabulary || !copy->vocabulary)
        return 0;
    snprintf(key, sizeof key, "%s.vocab_size", copy->architecture);
    return mt_gguf_find(&copy->gguf->pairs, key) == NULL;
}

static void put_counts(struct copy *copy)
{
    uint64_t n = copy->drop_vocabulary ? 1 + (uint64_t)needs_size(copy) : 0;
    for (size_t i = 0; i < copy->gguf->pairs.n; i++)
        n += !is_dropped(copy, &copy->gguf->pairs.items[i]);
    mt_strbuf_append(&copy->bytes, "GGUF", 4);
    put_number(copy, 3, 4);
    put_number(copy, copy->gguf->n, 8);
    put_number(copy, n, 8);
}

static void put_no_vocabulary(struct copy *copy)
{
    char key[128];
    static const char model[] = "tokenizer.ggml.model";
    put_text(copy, model, sizeof model - 1);
    put_number(copy, MT_GGUF_VALUE_STRING, 4);
    put_text(copy, "no_vocab", 8);
    if (!needs_size(copy))
        return;
    snprintf(key, sizeof key, "%s.vocab_size", copy->architecture);
    put_text(copy, key, strlen(key));
    put_number(copy, MT_GGUF_VALUE_U32, 4);
    put_number(copy, copy->vocabulary, 4);
}

/* Pairs that stand side by side are copied at once. */
static int copy_pairs(struct copy *copy, const struct mt_model_source *source)
{
    const struct mt_gguf *gguf = copy->gguf;
    int code = 0;
    put_counts(copy);
    if (copy->drop_vocabulary)
        put_no_vocabulary(copy);
    code = flush(copy);
    for (size_t i = 0; i < gguf->pairs.n && !code; i++) {
        if (is_dropped(copy, &gguf->pairs.items[i]))
            continue;
        uint64_t from = gguf->pairs.items[i].at;
        while (i + 1 < gguf->pairs.n && !is_dropped(copy, &gguf->pairs.items[i + 1]))
            i++;
        code = copy_range(copy, source, from, end_of_pair(gguf, i));
    }
    return code;
}

static uint64_t round_up(uint64_t number, uint64_t alignment)
{
    return (number + alignment - 1) & ~(alignment - 1);
}

/* The descriptions of all parts' tensors, one after the other. Fails where the data of all do not
 * fit in a file; *data_bytes is what they take. */
static int put_joined(struct copy *copy, uint64_t alignment, uint64_t *data_bytes)
{
    const struct mt_gguf *gguf = copy->gguf;
    uint64_t offset = 0;
    for (size_t i = 0; i < gguf->n; i++) {
        const struct mt_gguf_record *record = &gguf->records[i];
        put_text(copy, mt_gguf_name_of(gguf, record), record->name_length);
        put_number(copy, record->n_dims, 4);
        for (uint32_t k = 0; k < record->n_dims; k++)
            put_number(copy, mt_gguf_dim_of(gguf, record, k), 8);
        put_number(copy, mt_gguf_type_of(gguf, record), 4);
        put_number(copy, offset, 8);
        if (__builtin_add_overflow(offset, record->bytes, &offset) || offset > INT64_MAX / 2)
            return mt_fail(copy->error, MT_ELIMIT, MT_NO_OFFSET,
                           "the parts of the model together are larger than a file can be");
        offset = round_up(offset, alignment);
    }
    *data_bytes = offset;
    return flush(copy);
}

/* The header of the first part, and of all where there are more; the hole follows. */
static int copy_from(struct copy *copy, const struct mt_model_source *source)
{
    const struct mt_gguf_part *first = &copy->gguf->parts[0];
    uint64_t data_bytes =
        first->size_bytes > first->data_at ? first->size_bytes - first->data_at : 0;
    int code = copy_pairs(copy, source);
    if (code)
        return code;
    if (copy->gguf->n_parts > 1)
        code = put_joined(copy, first->alignment, &data_bytes);
    else
        code = copy_range(copy, source, first->infos_at, first->infos_end);
    if (code)
        return code;
    return mt_out_file_extend(copy->file, round_up(copy->written, first->alignment) + data_bytes,
                              copy->error);
}

/* A file in the other order of bytes is not taken apart: it is copied as it is. */
static int copy_whole(struct copy *copy, const struct mt_model_source *source)
{
    const struct mt_gguf_part *part = &copy->gguf->parts[0];
    int code = copy_range(copy, source, 0,
                          part->data_at < part->size_bytes ? part->data_at : part->size_bytes);
    return code ? code : mt_out_file_extend(copy->file, part->size_bytes, copy->error);
}

static int check_order(const struct copy *copy, const struct mt_model_source *source, int *is_big)
{
    unsigned char start[8];
    int code = source->read(source->argument, 0, start, sizeof start, copy->error);
    if (code)
        return code;
    *is_big = start[4] == 0 && start[5] == 0;
    if (*is_big && (copy->gguf->n_parts > 1 || copy->drop_vocabulary))
        return mt_fail(copy->error, MT_EUNSUPPORTED, 4,
                       "%s: it is big-endian; such a header is copied only as a whole",
                       copy->gguf->parts[0].path);
    return 0;
}

static int copy_opened(struct copy *copy, const struct mt_model_source *source)
{
    const struct mt_gguf_part *part = &copy->gguf->parts[0];
    int is_big = 0;
    if (source->size_bytes != part->size_bytes)
        return mt_fail(copy->error, MT_EFORMAT, MT_NO_OFFSET,
                       "%s has changed since it was opened: it has %llu bytes and had %llu",
                       part->path, (unsigned long long)source->size_bytes,
                       (unsigned long long)part->size_bytes);
    int code = check_order(copy, source, &is_big);
    if (code)
        return code;
    return is_big ? copy_whole(copy, source) : copy_from(copy, source);
}

int mt_gguf_copy_sparse(const struct mt_model *model, const struct mt_sparse_options *options,
                        struct mt_out_file *file, struct mt_error *error)
{
    const struct mt_gguf *gguf = model->tensors;
    struct mt_model_source source;
    struct copy copy = {.gguf = gguf,
                        .files = options->files ? options->files : mt_model_files_local(),
                        .drop_vocabulary = options->drop_vocabulary,
                        .vocabulary = model->description.vocabulary,
                        .architecture = model->description.architecture,
                        .file = file,
                        .error = error};
    int code = copy.files->open(copy.files->argument, gguf->parts[0].path, &source, error);
    if (code)
        return code;
    mt_strbuf_init(&copy.bytes);
    code = copy_opened(&copy, &source);
    mt_strbuf_finish(&copy.bytes);
    source.close(source.argument);
    return code;
}
