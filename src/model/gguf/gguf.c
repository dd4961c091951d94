/* SPDX-License-Identifier: MIT */
/* GGUF files, one or split ones. Knows how the parts of a model belong together, not what is in its
 * metadata beside that. */
#include "gguf.h"

#include "base/error.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION_OLDEST 2
#define VERSION_NEWEST 3
#define ALIGNMENT      32
#define PARTS_MAX      65535

/* The metadata of one part that says where it belongs. */
struct split {
    uint64_t number; /* from 0 */
    uint64_t count;  /* 0 where the file is no part */
    uint64_t n_tensors;
    uint64_t at; /* of split.no or split.count in its file; MT_NO_OFFSET without */
};

/* What the functions below share. */
struct opening {
    struct mt_model *model;
    struct mt_gguf *gguf;
    const struct mt_model_files *files;
    struct mt_error *error;
};

static void finish(struct mt_model *model)
{
    struct mt_gguf *gguf = model->tensors;
    if (!gguf)
        return;
    free(gguf->parts);
    free(gguf->kept);
    free(gguf->records);
    mt_gguf_pairs_finish(&gguf->pairs);
    free(gguf);
    model->tensors = NULL;
}

static int fail_memory(const struct opening *o)
{
    return mt_fail(o->error, MT_ENOMEM, MT_NO_OFFSET, "out of memory for a model's description");
}

static int read_version(struct mt_gguf_bytes *bytes, struct mt_error *error)
{
    uint64_t version;
    int code = mt_gguf_need(bytes, 8, "its first bytes", error);
    if (code)
        return code;
    if (memcmp(mt_gguf_here(bytes), "GGUF", 4) != 0)
        return mt_fail(error, MT_EFORMAT, 0, "%s: expected 'GGUF' at byte 0", bytes->path);
    bytes->at += 4;
    version = mt_gguf_number_at(mt_gguf_here(bytes), 4, 0);
    bytes->big_endian = version != 0 && (version & 0xffff) == 0;
    code = mt_gguf_number(bytes, 4, "its version", &version, error);
    if (code || (version >= VERSION_OLDEST && version <= VERSION_NEWEST))
        return code;
    return mt_fail(error, MT_EVERSION, 4,
                   "%s: version %llu of GGUF at byte 4, this build reads %d and %d%s", bytes->path,
                   (unsigned long long)version, VERSION_OLDEST, VERSION_NEWEST,
                   version == 1 ? "; convert the model anew, engines do not read it either" : "");
}

static int read_alignment(const struct mt_gguf_pairs *pairs, uint64_t *alignment,
                          struct mt_error *error)
{
    *alignment = ALIGNMENT;
    int found = mt_gguf_get(pairs, "general.alignment", alignment, error);
    if (found < 0)
        return found;
    if (*alignment != 0 && *alignment <= UINT32_MAX && (*alignment & (*alignment - 1)) == 0)
        return 0;
    uint64_t at = mt_gguf_find(pairs, "general.alignment")->at;
    return mt_fail(error, MT_EFORMAT, at,
                   "%s: general.alignment at byte %llu is %llu, expected a power of 2", pairs->path,
                   (unsigned long long)at, (unsigned long long)*alignment);
}

static int read_split(const struct mt_gguf_pairs *pairs, struct split *split,
                      struct mt_error *error)
{
    memset(split, 0, sizeof *split);
    int code = mt_gguf_get(pairs, "split.count", &split->count, error);
    if (code >= 0)
        code = mt_gguf_get(pairs, "split.no", &split->number, error);
    if (code >= 0)
        code = mt_gguf_get(pairs, "split.tensors.count", &split->n_tensors, error);
    if (code < 0)
        return code;
    const struct mt_gguf_pair *pair = mt_gguf_find(pairs, "split.no");
    pair = pair ? pair : mt_gguf_find(pairs, "split.count");
    split->at = pair ? pair->at : MT_NO_OFFSET;
    if (split->count <= 1) {
        split->count = 0;
        return 0;
    }
    if (split->count <= PARTS_MAX && split->number < split->count)
        return 0;
    uint64_t at = mt_gguf_find(pairs, "split.count")->at;
    return mt_fail(error, MT_EFORMAT, at,
                   "%s: it is part %llu (split.no, from 0) of %llu (split.count at byte %llu)",
                   pairs->path, (unsigned long long)split->number, (unsigned long long)split->count,
                   (unsigned long long)at);
}

static struct mt_gguf_part *add_part(const struct opening *o, const char *path,
                                     const struct mt_model_source *source)
{
    struct mt_gguf *gguf = o->gguf;
    struct mt_gguf_part *parts = realloc(gguf->parts, (gguf->n_parts + 1) * sizeof *parts);
    if (!parts)
        return NULL;
    gguf->parts = parts;
    struct mt_gguf_part *part = &parts[gguf->n_parts];
    *part = (struct mt_gguf_part){.size_bytes = source->size_bytes};
    part->path = mt_arena_copy(&o->model->arena, path, strlen(path));
    if (!part->path)
        return NULL;
    gguf->n_parts++;
    return part;
}

/* The pairs and tensors after the version. */
static int read_body(const struct opening *o, struct mt_gguf_bytes *bytes,
                     struct mt_gguf_pairs *pairs, struct split *split)
{
    struct mt_gguf_part *part = &o->gguf->parts[o->gguf->n_parts - 1];
    size_t first = o->gguf->n;
    uint64_t n_tensors = 0, n_pairs = 0;
    int code = mt_gguf_number(bytes, 8, "its count of tensors", &n_tensors, o->error);
    if (!code)
        code = mt_gguf_number(bytes, 8, "its count of pairs", &n_pairs, o->error);
    if (!code)
        code = mt_gguf_read_pairs(pairs, &o->model->arena, bytes, n_pairs, o->error);
    if (!code)
        code = read_alignment(pairs, &part->alignment, o->error);
    if (!code)
        code = read_split(pairs, split, o->error);
    o->gguf->expected = o->gguf->n_parts == 1 && !code ? split->n_tensors : o->gguf->expected;
    if (!code)
        code = mt_gguf_read_tensors(o->gguf, bytes, n_tensors, o->error);
    if (code)
        return code;
    part->infos_end = bytes->at;
    part->data_at = (bytes->at + part->alignment - 1) / part->alignment * part->alignment;
    o->model->description.header_bytes += part->data_at;
    o->model->description.file_bytes += part->size_bytes;
    return mt_gguf_place_tensors(o->gguf, first, o->error);
}

/* Reads one file as the next part. */
static int read_part(const struct opening *o, const char *path,
                     const struct mt_model_source *source, struct split *split)
{
    struct mt_gguf_part *part = add_part(o, path, source);
    if (!part)
        return fail_memory(o);
    struct mt_gguf_bytes bytes = {.source = source, .path = part->path};
    struct mt_gguf_pairs later = {0};
    struct mt_gguf_pairs *pairs = o->gguf->n_parts == 1 ? &o->gguf->pairs : &later;
    int code = read_version(&bytes, o->error);
    if (!code)
        code = read_body(o, &bytes, pairs, split);
    free(bytes.data);
    mt_gguf_pairs_finish(&later);
    return code;
}

/* Where in `path` the "-00001-of-00003.gguf" begins; NULL where it does not end so. */
static const char *find_suffix(const char *path)
{
    static const char pattern[] = "-ddddd-of-ddddd.gguf";
    size_t length = strlen(path);
    if (length < sizeof pattern - 1)
        return NULL;
    const char *suffix = path + length - (sizeof pattern - 1);
    for (size_t i = 0; i < sizeof pattern - 1; i++) {
        int fits =
            pattern[i] == 'd' ? isdigit((unsigned char)suffix[i]) != 0 : (suffix[i] == pattern[i]);
        if (!fits)
            return NULL;
    }
    return suffix;
}

static int check_suffix(const struct opening *o, const char *path, const struct split *split)
{
    char expected[48];
    snprintf(expected, sizeof expected, "-%05llu-of-%05llu.gguf",
             (unsigned long long)split->number + 1, (unsigned long long)split->count);
    const char *suffix = find_suffix(path);
    if (suffix && strcmp(suffix, expected) == 0)
        return 0;
    uint64_t at = mt_gguf_find(&o->gguf->pairs, "split.count")->at;
    return mt_fail(
        o->error, MT_EFORMAT, at,
        "%s: it says (at byte %llu) that it is part %llu of %llu, so its name should end "
        "in '%s'",
        path, (unsigned long long)at, (unsigned long long)split->number + 1,
        (unsigned long long)split->count, expected);
}

/* Opens and reads part `number` of the model whose one part is `path`. */
static int open_part(const struct opening *o, const char *path, uint64_t number,
                     const struct split *expected)
{
    int stem = (int)(find_suffix(path) - path);
    char *name =
        mt_arena_printf(&o->model->arena, "%.*s-%05llu-of-%05llu.gguf", stem, path,
                        (unsigned long long)number + 1, (unsigned long long)expected->count);
    if (!name)
        return fail_memory(o);
    struct mt_model_source source;
    struct split split = {0};
    int code = o->files->open(o->files->argument, name, &source, o->error);
    if (code == MT_ENOTFOUND)
        return mt_fail(o->error, code, MT_NO_OFFSET, "%s: part %llu of %llu is missing", name,
                       (unsigned long long)number + 1, (unsigned long long)expected->count);
    if (code)
        return code;
    code = read_part(o, name, &source, &split);
    source.close(source.argument);
    if (code)
        return code;
    if (split.number == number && split.count == expected->count)
        return 0;
    return mt_fail(o->error, MT_EFORMAT, split.at,
                   "%s: it says that it is part %llu of %llu, expected part %llu of %llu", name,
                   (unsigned long long)split.number + 1, (unsigned long long)split.count,
                   (unsigned long long)number + 1, (unsigned long long)expected->count);
}

/* Forgets what was read, to begin with the first part. */
static int start_again(struct opening *o)
{
    finish(o->model);
    o->model->description.header_bytes = o->model->description.file_bytes = 0;
    o->model->tensors = o->gguf = calloc(1, sizeof *o->gguf);
    return o->gguf ? 0 : fail_memory(o);
}

static int read_split_model(struct opening *o, const char *path, const struct split *split)
{
    int code = check_suffix(o, path, split);
    if (!code && split->number != 0)
        code = start_again(o);
    for (uint64_t i = split->number == 0; i < split->count && !code; i++)
        code = open_part(o, path, i, split);
    if (code)
        return code;
    if (split->n_tensors != 0 && split->n_tensors != o->gguf->n)
        return mt_fail(o->error, MT_EFORMAT,
                       mt_gguf_find(&o->gguf->pairs, "split.tensors.count")->at,
                       "%s: the parts have %zu tensors, split.tensors.count says %llu", path,
                       o->gguf->n, (unsigned long long)split->n_tensors);
    return 0;
}

int mt_gguf_read(struct mt_model *model, const struct mt_model_files *files, const char *path,
                 const struct mt_model_source *source, struct mt_error *error)
{
    struct opening o = {model, calloc(1, sizeof *o.gguf), files, error};
    struct split split = {0};
    if (!o.gguf)
        return fail_memory(&o);
    model->tensors = o.gguf;
    model->finish = finish;
    model->tensor_at = mt_gguf_tensor_at;
    int code = read_part(&o, path, source, &split);
    if (!code && split.count != 0)
        code = read_split_model(&o, path, &split);
    else if (!code && split.n_tensors > o.gguf->n)
        code = mt_model_note(model,
                             "split.tensors.count says %llu tensors, the file has %zu: it may be "
                             "one part of a model.",
                             (unsigned long long)split.n_tensors, o.gguf->n);
    if (!code)
        code = mt_gguf_check_names(o.gguf, error);
    return code ? code : mt_gguf_describe(model, o.gguf, error);
}
